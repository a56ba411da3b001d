#include <algorithm>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/random/distributions.h"
#include "ops/random/streams_cpu.h"

namespace monograph::ops::random {
namespace {

// Values: the same distribution, as TensorFlow draws it.
template <typename T, typename Distribution, typename Values>
class RandomKernel : public Kernel {
 public:
  explicit RandomKernel(const KernelConstruction& k)
      : stream_(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0), seeded_(k) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (seeded_) {
      Draw<T>(c, seeded_.TakeForNumbers(shape.elements()), Values(), out);
      return Status();
    }
    RandomStream stream = stream_;
    stream.step = c.step_id();
    constexpr int64_t kPer = Distribution::template kPerBlock<T>;
    const int64_t n = shape.elements();
    T* to = out->data<T>();
    c.ParallelFor((n + kPer - 1) / kPer, 30, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        T values[kPer];
        Distribution::template Fill<T>(stream, static_cast<uint64_t>(block), values);
        const int64_t count = std::min(kPer, n - block * kPer);
        for (int64_t i = 0; i < count; ++i) to[block * kPer + i] = values[i];
      }
    });
    return Status();
  }

 private:
  const RandomStream stream_;
  const SeededStream seeded_;
};

template <typename T>
class RandomIntKernel : public Kernel {
 public:
  explicit RandomIntKernel(const KernelConstruction& k)
      : stream_(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0), seeded_(k) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    if (c.input(1).shape().rank() != 0 || c.input(2).shape().rank() != 0) {
      return InvalidArgument("minval and maxval must be scalars");
    }
    const T low = c.input(1).scalar<T>(), high = c.input(2).scalar<T>();
    if (low >= high) {
      return InvalidArgument("Need minval < maxval, got " + std::to_string(low) +
                             " >= " + std::to_string(high));
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    if (seeded_) {
      Draw<T>(c, seeded_.TakeForNumbers(shape.elements()),
              IntegerValues{static_cast<uint64_t>(low), range}, out);
      return Status();
    }
    RandomStream stream = stream_;
    stream.step = c.step_id();
    T* to = out->data<T>();
    c.ParallelFor(shape.elements(), 20, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = static_cast<T>(
            UniformInt(stream, static_cast<uint64_t>(i), static_cast<uint64_t>(low), range));
      }
    });
    return Status();
  }

 private:
  const RandomStream stream_;
  const SeededStream seeded_;
};

template <typename Distribution, typename Values>
void AddDistribution(KernelRegistry* registry, const char* op) {
#define MG_ADD(T)                                       \
  registry->Add<RandomKernel<T, Distribution, Values>>( \
      {.op = op, .types = {{"dtype", kDTypeOf<T>}}, .host_args = {"shape"}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddDistribution<Uniform, UniformValues>(registry, "RandomUniform");
  AddDistribution<Normal, NormalValues>(registry, "RandomStandardNormal");
  AddDistribution<Truncated, TruncatedValues>(registry, "TruncatedNormal");
  registry->Add<RandomIntKernel<int32_t>>({.op = "RandomUniformInt",
                                           .types = {{"Tout", DT_INT32}},
                                           .host_args = {"shape", "minval", "maxval"}});
  registry->Add<RandomIntKernel<int64_t>>({.op = "RandomUniformInt",
                                           .types = {{"Tout", DT_INT64}},
                                           .host_args = {"shape", "minval", "maxval"}});
}

}  // namespace monograph::ops::random
