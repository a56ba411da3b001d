#include "ops/cpu/kernel_util.h"
#include "ops/gpu/launch.h"
#include "ops/random/distributions.h"

namespace monograph::ops::random {
namespace {

template <typename T, typename Distribution>
struct RandomBody {
  RandomStream stream;
  T* out;
  int64_t n;

  MG_HD void operator()(int64_t block) const {
    constexpr int kPer = Distribution::template kPerBlock<T>;
    T values[kPer];
    Distribution::template Fill<T>(stream, static_cast<uint64_t>(block), values);
    MG_UNROLL
    for (int i = 0; i < kPer; ++i) {
      if (block * kPer + i < n) out[block * kPer + i] = values[i];
    }
  }
};

RandomStream StreamOf(const KernelConstruction& k) {
  return RandomStream(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0);
}

template <typename T, typename Distribution>
class DeviceRandomKernel : public Kernel {
 public:
  explicit DeviceRandomKernel(const KernelConstruction& k) : stream_(StreamOf(k)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    RandomBody<T, Distribution> body{stream_, out->data<T>(), shape.elements()};
    body.stream.step = c.step_id();
    constexpr int64_t kPer = Distribution::template kPerBlock<T>;
    return ForEach(c, (body.n + kPer - 1) / kPer, body);
  }

 private:
  const RandomStream stream_;
};

template <typename T>
struct RandomIntBody {
  RandomStream stream;
  T* out;
  uint64_t low, range;

  MG_HD void operator()(int64_t i) const {
    out[i] = static_cast<T>(UniformInt(stream, static_cast<uint64_t>(i), low, range));
  }
};

template <typename T>
class DeviceRandomIntKernel : public Kernel {
 public:
  explicit DeviceRandomIntKernel(const KernelConstruction& k) : stream_(StreamOf(k)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    if (c.input(1).shape().rank() != 0 || c.input(2).shape().rank() != 0) {
      return InvalidArgument("minval and maxval must be scalars");
    }
    const T low = c.input(1).template scalar<T>(), high = c.input(2).template scalar<T>();
    if (low >= high) {
      return InvalidArgument("Need minval < maxval, got " + std::to_string(low) +
                             " >= " + std::to_string(high));
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    RandomIntBody<T> body{stream_, out->data<T>(), static_cast<uint64_t>(low),
                          static_cast<uint64_t>(high) - static_cast<uint64_t>(low)};
    body.stream.step = c.step_id();
    return ForEach(c, shape.elements(), body);
  }

 private:
  const RandomStream stream_;
};

// What is enqueued depends on the number of the step.
template <typename Distribution>
void AddDistribution(KernelRegistry* registry, const char* op) {
#define MG_ADD(T)                                                                        \
  registry->Add<DeviceRandomKernel<T, Distribution>>({.op = op,                          \
                                                      .device = kGpu,                    \
                                                      .types = {{"dtype", kDTypeOf<T>}}, \
                                                      .host_args = {"shape"},            \
                                                      .replayable = false});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddDistribution<Uniform>(registry, "RandomUniform");
  AddDistribution<Normal>(registry, "RandomStandardNormal");
  AddDistribution<Truncated>(registry, "TruncatedNormal");
#define MG_ADD(T)                                                                      \
  registry->Add<DeviceRandomIntKernel<T>>({.op = "RandomUniformInt",                   \
                                           .device = kGpu,                             \
                                           .types = {{"Tout", kDTypeOf<T>}},           \
                                           .host_args = {"shape", "minval", "maxval"}, \
                                           .replayable = false});
  MG_INDEX_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::random
