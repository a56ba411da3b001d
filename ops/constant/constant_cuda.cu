#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "ops/constant/fill_kernels.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::constant {

void RegisterCpu(KernelRegistry* registry);

namespace {

// Bytes that travel as arguments of the launch, which may have 32764.
template <size_t kBytes>
struct BytesBody {
  unsigned char bytes[kBytes];
  unsigned char* to;
  MG_HD void operator()(int64_t i) const { to[i] = bytes[i]; }
};
constexpr size_t kFewBytes = 2048, kMostBytes = 31'744;

// The value goes to the device when the first step asks for it, and stays there. It goes by
// launches because a copy from memory that is not pinned would wait for what is enqueued before it,
// and could not be part of a CUDA graph.
class DeviceConstKernel : public Kernel {
 public:
  explicit DeviceConstKernel(const KernelConstruction& k) : value_(k.attr<Tensor>("value")) {}
  Status Compute(KernelContext& c) override {
    MutexLock lock(mutex_);
    if (!on_device_.valid()) {
      MG_ASSIGN_OR_RETURN(Tensor copy,
                          Tensor::Allocate(value_.dtype(), value_.shape(), c.allocator()->kept()));
      MG_RETURN_IF_ERROR(Upload(c, static_cast<unsigned char*>(copy.raw())));
      on_device_ = std::move(copy);
    }
    c.set_output(0, on_device_);  // shared; nobody writes it, because this kernel holds it too
    return Status();
  }

 private:
  Status Upload(KernelContext& c, unsigned char* to) const {
    if (value_.bytes() <= kFewBytes) return Send<kFewBytes>(c, to);
    return Send<kMostBytes>(c, to);
  }
  template <size_t kBytes>
  Status Send(KernelContext& c, unsigned char* to) const {
    const auto* from = static_cast<const unsigned char*>(value_.raw());
    BytesBody<kBytes> body;
    for (size_t begin = 0; begin < value_.bytes(); begin += kBytes) {
      const size_t bytes = std::min(kBytes, value_.bytes() - begin);
      std::memcpy(body.bytes, from + begin, bytes);
      body.to = to + begin;
      MG_RETURN_IF_ERROR(ForEach(c, static_cast<int64_t>(bytes), body));
    }
    return Status();
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
  constexpr DType kVariant[] = {DT_VARIANT};
  AddOnHost(registry, cpu, "ZerosLike", {}, "T", kVariant);
}

}  // namespace monograph::ops::constant
