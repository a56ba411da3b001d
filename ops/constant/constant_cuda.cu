#include <cstring>

#include "base/mutex.h"
#include "ops/constant/fill_kernels.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::constant {

void RegisterCpu(KernelRegistry* registry);

namespace {

// Bytes that travel as arguments of the launch.
struct BytesBody {
  static constexpr size_t kMost = 2048;
  unsigned char bytes[kMost];
  unsigned char* to;
  MG_HD void operator()(int64_t i) const { to[i] = bytes[i]; }
};

// The value is copied to the device when the first step asks for it, and stays there.
class DeviceConstKernel : public Kernel {
 public:
  explicit DeviceConstKernel(const KernelConstruction& k) : value_(k.attr<Tensor>("value")) {}
  Status Compute(KernelContext& c) override {
    MutexLock lock(mutex_);
    if (!on_device_.valid()) {
      MG_ASSIGN_OR_RETURN(Tensor copy,
                          Tensor::Allocate(value_.dtype(), value_.shape(), c.allocator()));
      MG_RETURN_IF_ERROR(Upload(c, static_cast<unsigned char*>(copy.raw())));
      on_device_ = std::move(copy);
    }
    c.set_output(0, on_device_);  // shared; nobody writes it, because this kernel holds it too
    return Status();
  }

 private:
  Status Upload(KernelContext& c, unsigned char* to) const {
    if (value_.bytes() > BytesBody::kMost) return DeviceUpload(c, to, value_.raw(), value_.bytes());
    BytesBody body;
    std::memcpy(body.bytes, value_.raw(), value_.bytes());
    body.to = to;
    return ForEach(c, static_cast<int64_t>(value_.bytes()), body);
  }

  const Tensor value_;
  Mutex mutex_;
  Tensor on_device_ MG_GUARDED_BY(mutex_);
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddForTypes<DeviceConstKernel>(registry, {.op = "Const", .device = kGpu}, "dtype", kDeviceTypes);
  AddForTypes<FillKernel<DeviceMoves>>(
      registry, {.op = "Fill", .device = kGpu, .host_args = {"dims"}}, "T", kDeviceTypes);
  AddForTypes<ZerosLikeKernel<DeviceMoves>>(registry, {.op = "ZerosLike", .device = kGpu}, "T",
                                            kDeviceTypes);
  AddForTypes<OnesLikeKernel<DeviceMoves>>(registry, {.op = "OnesLike", .device = kGpu}, "T",
                                           kDeviceTypes);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"Placeholder", "PlaceholderWithDefault", "Range"})
    AddOnHost(registry, cpu, op);
  AddOnHost(registry, cpu, "Const", {"output"}, "dtype", kHostInt);
  AddOnHost(registry, cpu, "Fill", {"value", "output"}, "T", kHostInt);
  AddOnHost(registry, cpu, "PlaceholderWithDefault", {"input", "output"}, "dtype", kHostInt);
  for (const char* op : {"ZerosLike", "OnesLike"})
    AddOnHost(registry, cpu, op, {"x", "y"}, "T", kHostInt);
}

}  // namespace monograph::ops::constant
