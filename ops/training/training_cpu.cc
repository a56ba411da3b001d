// Each update is one pass over variable, slots and gradient, element by element: the split among
// threads cannot change the result.
#include "ops/training/cpu_formulas.h"
#include "ops/training/multi_update.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::training {
namespace {

// Updates the variable that input `first` names, and the slots behind it. `gradient` is of type G.
template <typename T, typename G = T, typename Formula>
Status Update(KernelContext& c, const Formula& formula, int first, const Tensor& gradient) {
  constexpr size_t kN = Formula::kVariables;
  MG_ASSIGN_OR_RETURN(auto locked,
                      Locked<Formula::kVariables>::Make(c, kDTypeOf<T>, gradient.shape(), first));
  std::array<const T*, kN> before;
  std::array<T*, kN> after;
  for (size_t i = 0; i < kN; ++i) {
    before[i] = locked[static_cast<int>(i)].template before<T>();
    after[i] = locked[static_cast<int>(i)].template after<T>();
  }
  const G* g = gradient.data<G>();
  ForElements(c, gradient.elements(), [=](int64_t i) {
    UpdateElement<T>(formula, before.data(), after.data(), static_cast<Accumulator<T>>(g[i]), i,
                     std::make_index_sequence<kN>());
  });
  locked.Commit();
  return Status();
}

template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs>
class UpdateKernel : public Kernel {
 public:
  explicit UpdateKernel(const KernelConstruction& k) : flag_(FlagOf(k, kInputs)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto formula,
                        (MakeFormula<T, FormulaOf>(c, kInputs.coefficients, flag_)));
    return Update<T>(c, formula, 0, c.input(kInputs.gradient));
  }

 private:
  const bool flag_;
};

// _MultiResourceApply: the updates one after the other.
template <typename T, template <typename> typename FormulaOf>
class MultiUpdateKernel : public Kernel {
 public:
  explicit MultiUpdateKernel(const KernelConstruction& k) : inputs_(k) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto formula,
                        (MakeFormula<T, FormulaOf>(c, inputs_.coefficients.data(), inputs_.flag)));
    constexpr int kN = FormulaOf<Accumulator<T>>::kVariables;
    for (int i = 0; i < inputs_.updates; ++i)
      MG_RETURN_IF_ERROR(UpdateOne(c, formula, i * kN, c.input(inputs_.gradient + i)));
    return Status();
  }

 private:
  template <typename Formula>
  static Status UpdateOne(KernelContext& c, const Formula& formula, int first,
                          const Tensor& gradient) {
    if constexpr (std::is_same_v<T, float>) {
      if (gradient.dtype() == DT_HALF) return Update<T, half>(c, formula, first, gradient);
      if (gradient.dtype() == DT_BFLOAT16) return Update<T, bfloat16>(c, formula, first, gradient);
    }
    return Update<T>(c, formula, first, gradient);
  }

  const MultiInputs inputs_;
};

template <typename T, template <typename> typename FormulaOf>
struct MakeMulti {
  static std::unique_ptr<Kernel> Make(const KernelConstruction& k) {
    return std::make_unique<MultiUpdateKernel<T, FormulaOf>>(k);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const auto add = [&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
                       const char* op, std::initializer_list<const char*> variables) {
    const std::vector<std::string> host_args(variables.begin(), variables.end());
#define ADD(T)                                        \
  registry->Add<UpdateKernel<T, FormulaOf, kInputs>>( \
      {.op = op, .types = {{"T", kDTypeOf<T>}}, .host_args = host_args});
    MG_FLOAT_TYPES(ADD)
#undef ADD
  };
  ForEachUpdate(add);
  ForEachCpuUpdate(add);
#define ADD(T)                                                                                  \
  registry->Add(                                                                                \
      {.op = "_MultiResourceApply", .types = {{"T", kDTypeOf<T>}}, .host_args = {"variables"}}, \
      &MakeMultiUpdate<T, MakeMulti>);
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::training
