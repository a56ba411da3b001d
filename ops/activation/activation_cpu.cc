#include <algorithm>
#include <functional>

#include "executor/kernel.h"
#include "ops/activation/functors.h"
#include "ops/cpu/float_view_cpu.h"

namespace monograph::ops::activation {
namespace {

constexpr int64_t kBlock = 4096;

template <typename Body>
void ForBlocks(KernelContext& c, int64_t n, int64_t cost_ns, const Body& body) {
  const auto blocks = [&](int64_t begin, int64_t end) {
    body(begin * kBlock, std::min(n, end * kBlock));
  };
  c.ParallelFor((n + kBlock - 1) / kBlock, cost_ns, std::ref(blocks));
}

template <typename T, typename Fn>
class Unary : public Kernel {
 public:
  explicit Unary(const KernelConstruction& k) : alpha_(k.attrs().GetOr<float>("alpha", 0.f)) {}
  Status Compute(KernelContext& c) override {
    const T* x = c.input(0).data<T>();
    const int64_t n = c.input(0).elements();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    T* y = out->data<T>();
    using A = Accumulator<T>;
    const float alpha = alpha_;
    ForBlocks(c, n, 1000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = T(Fn()(static_cast<A>(x[i]), alpha));
    });
    return Status();
  }

 private:
  const float alpha_;
};

template <typename T, typename Fn>
class Gradient : public Kernel {
 public:
  explicit Gradient(const KernelConstruction& k) : alpha_(k.attrs().GetOr<float>("alpha", 0.f)) {}
  Status Compute(KernelContext& c) override {
    if (!(c.input(0).shape() == c.input(1).shape())) {
      return InvalidArgument("gradients " + c.input(0).shape().ToString() + " and features " +
                             c.input(1).shape().ToString() + " must have one shape");
    }
    const T* g = c.input(0).data<T>();
    const T* x = c.input(1).data<T>();
    const int64_t n = c.input(0).elements();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    T* y = out->data<T>();
    using A = Accumulator<T>;
    const float alpha = alpha_;
    ForBlocks(c, n, 1500, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        y[i] = T(Fn()(static_cast<A>(g[i]), static_cast<A>(x[i]), alpha));
    });
    return Status();
  }

 private:
  const float alpha_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                               \
  registry->Add<Unary<T, ReluFn>>({.op = "Relu", .types = {{"T", kDTypeOf<T>}}});            \
  registry->Add<Unary<T, Relu6Fn>>({.op = "Relu6", .types = {{"T", kDTypeOf<T>}}});          \
  registry->Add<Gradient<T, ReluGradFn>>({.op = "ReluGrad", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<Gradient<T, Relu6GradFn>>({.op = "Relu6Grad", .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
#define ADD(T)                                                                              \
  registry->Add<Unary<T, LeakyReluFn>>({.op = "LeakyRelu", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<Unary<T, EluFn>>({.op = "Elu", .types = {{"T", kDTypeOf<T>}}});             \
  registry->Add<Unary<T, SoftplusFn>>({.op = "Softplus", .types = {{"T", kDTypeOf<T>}}});   \
  registry->Add<Gradient<T, LeakyReluGradFn>>(                                              \
      {.op = "LeakyReluGrad", .types = {{"T", kDTypeOf<T>}}});                              \
  registry->Add<Gradient<T, EluGradFn>>({.op = "EluGrad", .types = {{"T", kDTypeOf<T>}}});  \
  registry->Add<Gradient<T, SoftplusGradFn>>({.op = "SoftplusGrad", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::activation
