// Each update is one pass over variable, slots and gradient, element by element: the split among
// threads cannot change the result.
#include <cmath>

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
    ForElements(c, delta.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
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
    ForElements(c, gradient.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const A gi = static_cast<A>(g[i]), a = static_cast<A>(old_accum[i]) * momentum + gi;
        accum[i] = T(a);
        var[i] = T(static_cast<A>(old_var[i]) - (nesterov ? gi * lr + a * momentum * lr : a * lr));
      }
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
    A value[6];
    for (int i = 0; i < 6; ++i) {
      MG_ASSIGN_OR_RETURN(value[i], Coefficient<T>(c, 3 + i));
    }
    const auto [beta1_power, beta2_power, lr, beta1, beta2, epsilon] = value;
    const Tensor& gradient = c.input(9);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<3>::Make(c, kDTypeOf<T>, gradient.shape()));
    Pass pass;
    pass.old_var = locked[0].template before<T>();
    pass.old_m = locked[1].template before<T>();
    pass.old_v = locked[2].template before<T>();
    pass.g = gradient.data<T>();
    pass.var = locked[0].template after<T>();
    pass.m = locked[1].template after<T>();
    pass.v = locked[2].template after<T>();
    pass.alpha = lr * std::sqrt(A(1) - beta2_power) / (A(1) - beta1_power);
    pass.beta1 = beta1;
    pass.one_minus_beta1 = A(1) - beta1;
    pass.one_minus_beta2 = A(1) - beta2;
    pass.epsilon = epsilon;
    ForElements(c, gradient.elements(), [&pass, nesterov = nesterov_](int64_t begin, int64_t end) {
      if (nesterov) {
        pass.template Run<true>(begin, end);
      } else {
        pass.template Run<false>(begin, end);
      }
    });
    locked.Commit();
    return Status();
  }

 private:
  struct Pass {
    using A = Accumulator<T>;
    const T *old_var, *old_m, *old_v, *g;
    T *var, *m, *v;
    A alpha, beta1, one_minus_beta1, one_minus_beta2, epsilon;

    template <bool kNesterov>
    void Run(int64_t begin, int64_t end) const {
      // Old and new may be the same memory, but never shifted against each other.
      const Pass p = *this;
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const A gi = static_cast<A>(p.g[i]);
        const A mi =
            static_cast<A>(p.old_m[i]) + (gi - static_cast<A>(p.old_m[i])) * p.one_minus_beta1;
        const A vi =
            static_cast<A>(p.old_v[i]) + (gi * gi - static_cast<A>(p.old_v[i])) * p.one_minus_beta2;
        const A step = kNesterov ? gi * p.one_minus_beta1 + p.beta1 * mi : mi;
        p.m[i] = T(mi);
        p.v[i] = T(vi);
        p.var[i] = T(static_cast<A>(p.old_var[i]) - step * p.alpha / (std::sqrt(vi) + p.epsilon));
      }
    }
  };

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
    ForElements(c, gradient.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const A gi = static_cast<A>(g[i]),
                a = static_cast<A>(old_accum[i]) + (update ? gi * gi : A(0));
        accum[i] = T(a);
        var[i] = T(static_cast<A>(old_var[i]) - gi * lr / (std::sqrt(a) + epsilon));
      }
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
    A value[4];
    for (int i = 0; i < 4; ++i) {
      MG_ASSIGN_OR_RETURN(value[i], Coefficient<T>(c, 3 + i));
    }
    const A lr = value[0], one_minus_rho = A(1) - value[1], momentum = value[2], epsilon = value[3];
    const Tensor& gradient = c.input(7);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<3>::Make(c, kDTypeOf<T>, gradient.shape()));
    const T *g = gradient.data<T>(), *old_var = locked[0].template before<T>(),
            *old_ms = locked[1].template before<T>(), *old_mom = locked[2].template before<T>();
    T *var = locked[0].template after<T>(), *ms = locked[1].template after<T>(),
      *mom = locked[2].template after<T>();
    ForElements(c, gradient.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const A gi = static_cast<A>(g[i]),
                s = static_cast<A>(old_ms[i]) +
                    (gi * gi - static_cast<A>(old_ms[i])) * one_minus_rho;
        const A d = static_cast<A>(old_mom[i]) * momentum + gi * lr / std::sqrt(s + epsilon);
        ms[i] = T(s);
        mom[i] = T(d);
        var[i] = T(static_cast<A>(old_var[i]) - d);
      }
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
  ADD_OP("ResourceApplyRMSProp", RMSPropKernel<T>, T, "var", "ms", "mom")
  MG_FLOAT_TYPES(ADD)
#undef ADD
#undef ADD_OP
}

}  // namespace monograph::ops::training
