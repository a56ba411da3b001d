// Each update is one pass over variable, slots and gradient, element by element: the split among
// threads cannot change the result.
#include <cmath>
#include <type_traits>

#include "ops/training/update_cpu.h"

namespace monograph::ops::training {
namespace {

template <typename T>
class GradientDescentKernel : public Kernel {
 public:
  explicit GradientDescentKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const A alpha, Coefficient<T>(c, 1));
    const Tensor& delta = c.input(2);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<1>::Make(c, kDTypeOf<T>, delta.shape()));
    const T *d = delta.data<T>(), *old = locked[0].template before<T>();
    T* var = locked[0].template after<T>();
    ForElements(c, delta.elements(), [=](int64_t i) {
      var[i] = T(static_cast<A>(old[i]) - static_cast<A>(d[i]) * alpha);
    });
    locked.Commit();
    return Status();
  }
};

template <typename T>
class MomentumKernel : public Kernel {
 public:
  explicit MomentumKernel(const KernelConstruction& k)
      : nesterov_(k.attrs().GetOr<bool>("use_nesterov", false)) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const A lr, Coefficient<T>(c, 2));
    MG_ASSIGN_OR_RETURN(const A momentum, Coefficient<T>(c, 4));
    const Tensor& gradient = c.input(3);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<2>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_accum = locked[1].template before<T>();
    T *var = locked[0].template after<T>(), *accum = locked[1].template after<T>();
    const bool nesterov = nesterov_;
    ForElements(c, gradient.elements(), [=](int64_t i) {
      const A gi = static_cast<A>(g[i]), a = static_cast<A>(old_accum[i]) * momentum + gi;
      accum[i] = T(a);
      var[i] = T(static_cast<A>(old_var[i]) - (nesterov ? gi * lr + a * momentum * lr : a * lr));
    });
    locked.Commit();
    return Status();
  }

 private:
  const bool nesterov_;
};

template <typename T>
class AdamKernel : public Kernel {
 public:
  explicit AdamKernel(const KernelConstruction& k)
      : nesterov_(k.attrs().GetOr<bool>("use_nesterov", false)) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const auto values, (Coefficients<T, 6>(c, 3)));
    const auto [beta1_power, beta2_power, lr, beta1, beta2, epsilon] = values;
    const Tensor& gradient = c.input(9);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<3>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_m = locked[1].template before<T>(), *old_v = locked[2].template before<T>();
    T *var = locked[0].template after<T>(), *m = locked[1].template after<T>(),
      *v = locked[2].template after<T>();
    const A alpha = lr * std::sqrt(A(1) - beta2_power) / (A(1) - beta1_power);
    const A one_minus_beta1 = A(1) - beta1, one_minus_beta2 = A(1) - beta2;
    const auto run = [&](auto nesterov) {
      ForElements(c, gradient.elements(), [=, beta1 = beta1, epsilon = epsilon](int64_t i) {
        const A gi = static_cast<A>(g[i]), m0 = static_cast<A>(old_m[i]),
                v0 = static_cast<A>(old_v[i]);
        const A mi = m0 + (gi - m0) * one_minus_beta1, vi = v0 + (gi * gi - v0) * one_minus_beta2;
        const A step = nesterov() ? gi * one_minus_beta1 + beta1 * mi : mi;
        m[i] = T(mi);
        v[i] = T(vi);
        var[i] = T(static_cast<A>(old_var[i]) - step * alpha / (std::sqrt(vi) + epsilon));
      });
    };
    if (nesterov_) {
      run(std::true_type());
    } else {
      run(std::false_type());
    }
    locked.Commit();
    return Status();
  }

 private:
  const bool nesterov_;
};

// ResourceApplyAdagrad, and V2 with its epsilon.
template <typename T, bool kEpsilon>
class AdagradKernel : public Kernel {
 public:
  explicit AdagradKernel(const KernelConstruction& k)
      : update_slots_(k.attrs().GetOr<bool>("update_slots", true)) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const A lr, Coefficient<T>(c, 2));
    A epsilon = 0;
    if (kEpsilon) {
      MG_ASSIGN_OR_RETURN(epsilon, Coefficient<T>(c, 3));
    }
    const Tensor& gradient = c.input(kEpsilon ? 4 : 3);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<2>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_accum = locked[1].template before<T>();
    T *var = locked[0].template after<T>(), *accum = locked[1].template after<T>();
    const bool update = update_slots_;
    ForElements(c, gradient.elements(), [=](int64_t i) {
      const A gi = static_cast<A>(g[i]),
              a = static_cast<A>(old_accum[i]) + (update ? gi * gi : A(0));
      accum[i] = T(a);
      var[i] = T(static_cast<A>(old_var[i]) - gi * lr / (std::sqrt(a) + epsilon));
    });
    locked.Commit();
    return Status();
  }

 private:
  const bool update_slots_;
};

template <typename T>
class RMSPropKernel : public Kernel {
 public:
  explicit RMSPropKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const auto values, (Coefficients<T, 4>(c, 3)));
    const A lr = values[0], one_minus_rho = A(1) - values[1], momentum = values[2],
            epsilon = values[3];
    const Tensor& gradient = c.input(7);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<3>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_ms = locked[1].template before<T>(), *old_mom = locked[2].template before<T>();
    T *var = locked[0].template after<T>(), *ms = locked[1].template after<T>(),
      *mom = locked[2].template after<T>();
    ForElements(c, gradient.elements(), [=](int64_t i) {
      const A gi = static_cast<A>(g[i]), s0 = static_cast<A>(old_ms[i]);
      const A s = s0 + (gi * gi - s0) * one_minus_rho;
      const A d = static_cast<A>(old_mom[i]) * momentum + gi * lr / std::sqrt(s + epsilon);
      ms[i] = T(s);
      mom[i] = T(d);
      var[i] = T(static_cast<A>(old_var[i]) - d);
    });
    locked.Commit();
    return Status();
  }
};

template <typename T>
class CenteredRMSPropKernel : public Kernel {
 public:
  explicit CenteredRMSPropKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const auto values, (Coefficients<T, 4>(c, 4)));
    const A lr = values[0], one_minus_rho = A(1) - values[1], momentum = values[2],
            epsilon = values[3];
    const Tensor& gradient = c.input(8);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<4>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_mg = locked[1].template before<T>(), *old_ms = locked[2].template before<T>(),
            *old_mom = locked[3].template before<T>();
    T *var = locked[0].template after<T>(), *mg = locked[1].template after<T>(),
      *ms = locked[2].template after<T>(), *mom = locked[3].template after<T>();
    ForElements(c, gradient.elements(), [=](int64_t i) {
      const A gi = static_cast<A>(g[i]), m0 = static_cast<A>(old_mg[i]),
              s0 = static_cast<A>(old_ms[i]);
      const A m = m0 + (gi - m0) * one_minus_rho, s = s0 + (gi * gi - s0) * one_minus_rho;
      const A d = static_cast<A>(old_mom[i]) * momentum + gi * lr / std::sqrt(s - m * m + epsilon);
      mg[i] = T(m);
      ms[i] = T(s);
      mom[i] = T(d);
      var[i] = T(static_cast<A>(old_var[i]) - d);
    });
    locked.Commit();
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD_OP(name, kernel, T, ...) \
  registry->Add<kernel>({.op = name, .types = {{"T", kDTypeOf<T>}}, .host_args = {__VA_ARGS__}});
#define ADD(T)                                                               \
  ADD_OP("ResourceApplyGradientDescent", GradientDescentKernel<T>, T, "var") \
  ADD_OP("ResourceApplyMomentum", MomentumKernel<T>, T, "var", "accum")      \
  ADD_OP("ResourceApplyAdam", AdamKernel<T>, T, "var", "m", "v")             \
  registry->Add<AdagradKernel<T, false>>({.op = "ResourceApplyAdagrad",      \
                                          .types = {{"T", kDTypeOf<T>}},     \
                                          .host_args = {"var", "accum"}});   \
  registry->Add<AdagradKernel<T, true>>({.op = "ResourceApplyAdagradV2",     \
                                         .types = {{"T", kDTypeOf<T>}},      \
                                         .host_args = {"var", "accum"}});    \
  ADD_OP("ResourceApplyRMSProp", RMSPropKernel<T>, T, "var", "ms", "mom")    \
  ADD_OP("ResourceApplyCenteredRMSProp", CenteredRMSPropKernel<T>, T, "var", "mg", "ms", "mom")
  MG_FLOAT_TYPES(ADD)
#undef ADD
#undef ADD_OP
}

}  // namespace monograph::ops::training
