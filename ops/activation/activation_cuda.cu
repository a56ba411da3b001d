// Activations: one thread for as many elements as 16 bytes hold.
#include <cstdint>

#include "executor/kernel.h"
#include "ops/activation/functors.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/on_host_cuda.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::activation {

void RegisterCpu(KernelRegistry* registry);

namespace {

// Elements [i * N, i * N + N), those that there are.
template <typename T, int N, typename Fn>
struct Apply {
  int64_t n;
  float alpha;
  const T* x;
  T* y;

  MG_HD T One(T in) const { return Narrow<T>(Fn()(Widen(in), alpha)); }
  MG_HD void operator()(int64_t i) const {
    if ((i + 1) * N > n) {
      for (int64_t k = i * N; k < n; ++k) y[k] = One(x[k]);
      return;
    }
    const auto in = LoadPack<T, N>(x + i * N);
    ElementPack<T, N> out;
    MG_UNROLL
    for (int v = 0; v < N; ++v) out.values[v] = One(in.values[v]);
    StorePack<T, N>(y + i * N, out);
  }
};

template <typename T, int N, typename Fn>
struct ApplyGradient {
  int64_t n;
  float alpha;
  const T *g, *x;
  T* y;

  MG_HD T One(T gradient, T in) const { return Narrow<T>(Fn()(Widen(gradient), Widen(in), alpha)); }
  MG_HD void operator()(int64_t i) const {
    if ((i + 1) * N > n) {
      for (int64_t k = i * N; k < n; ++k) y[k] = One(g[k], x[k]);
      return;
    }
    const auto gradient = LoadPack<T, N>(g + i * N), in = LoadPack<T, N>(x + i * N);
    ElementPack<T, N> out;
    MG_UNROLL
    for (int v = 0; v < N; ++v) out.values[v] = One(gradient.values[v], in.values[v]);
    StorePack<T, N>(y + i * N, out);
  }
};

template <typename T, typename Fn>
class Unary : public Kernel {
 public:
  explicit Unary(const KernelConstruction& k) : alpha_(k.attrs().GetOr<float>("alpha", 0.f)) {}

  Status Compute(KernelContext& c) override {
    const T* x = c.input(0).data<T>();
    const int64_t n = c.input(0).elements();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    T* y = out->data<T>();
    constexpr int kWide = kWidth<T>;
    if (Aligned({x, y}))
      return ForEach(c, (n + kWide - 1) / kWide, Apply<T, kWide, Fn>{n, alpha_, x, y});
    return ForEach(c, n, Apply<T, 1, Fn>{n, alpha_, x, y});
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
    const T *g = c.input(0).data<T>(), *x = c.input(1).data<T>();
    const int64_t n = c.input(0).elements();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    T* y = out->data<T>();
    constexpr int kWide = kWidth<T>;
    if (Aligned({g, x, y}))
      return ForEach(c, (n + kWide - 1) / kWide, ApplyGradient<T, kWide, Fn>{n, alpha_, g, x, y});
    return ForEach(c, n, ApplyGradient<T, 1, Fn>{n, alpha_, g, x, y});
  }

 private:
  const float alpha_;
};

template <typename T, typename Fn>
void AddUnary(KernelRegistry* registry, const char* op) {
  registry->Add<Unary<T, Fn>>({.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
}
template <typename T, typename Fn>
void AddGradient(KernelRegistry* registry, const char* op) {
  registry->Add<Gradient<T, Fn>>({.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                      \
  AddUnary<T, ReluFn>(registry, "Relu");            \
  AddUnary<T, Relu6Fn>(registry, "Relu6");          \
  AddGradient<T, ReluGradFn>(registry, "ReluGrad"); \
  AddGradient<T, Relu6GradFn>(registry, "Relu6Grad");
  MG_FLOAT_TYPES(ADD)
  ADD(int64_t)
#undef ADD
#define ADD(T)                                                \
  AddUnary<T, LeakyReluFn>(registry, "LeakyRelu");            \
  AddUnary<T, EluFn>(registry, "Elu");                        \
  AddUnary<T, SoftplusFn>(registry, "Softplus");              \
  AddUnary<T, SeluFn>(registry, "Selu");                      \
  AddUnary<T, SoftsignFn>(registry, "Softsign");              \
  AddUnary<T, GeluFn>(registry, "_Gelu");                     \
  AddGradient<T, GeluGradFn>(registry, "_GeluGrad");          \
  AddGradient<T, LeakyReluGradFn>(registry, "LeakyReluGrad"); \
  AddGradient<T, EluGradFn>(registry, "EluGrad");             \
  AddGradient<T, SeluGradFn>(registry, "SeluGrad");           \
  AddGradient<T, SoftsignGradFn>(registry, "SoftsignGrad");   \
  AddGradient<T, SoftplusGradFn>(registry, "SoftplusGrad");
  MG_FLOAT_TYPES(ADD)
#undef ADD
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  constexpr DType kInt32[] = {DT_INT32};
  for (const char* op : {"Relu", "Relu6"})
    AddOnHost(registry, cpu, op, {"features", "activations"}, "T", kInt32);
  for (const char* op : {"ReluGrad", "Relu6Grad"})
    AddOnHost(registry, cpu, op, {"gradients", "features", "backprops"}, "T", kInt32);
}

}  // namespace monograph::ops::activation
