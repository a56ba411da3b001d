// Rows are updated in their order and each thread has columns of its own: the split among threads
// cannot change the result.
#include <array>
#include <cstring>

#include "ops/sparse_training/check_rows.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::sparse_training {
namespace {

using training::Coefficient;
using training::Locked;
using training::UpdateInputs;

template <typename I>
Status CheckIndices(const Tensor& indices, int64_t rows) {
  const auto index = indices.values<I>();
  for (size_t i = 0; i < index.size(); ++i) {
    if (index[i] >= 0 && index[i] < rows) continue;
    return InvalidArgument("indices[" + std::to_string(i) + "] = " + std::to_string(index[i]) +
                           " is not in [0, " + std::to_string(rows) + ")");
  }
  return Status();
}

template <typename T, typename I, template <typename> typename FormulaOf,
          const UpdateInputs& kInputs>
class SparseUpdateKernel : public Kernel {
 public:
  explicit SparseUpdateKernel(const KernelConstruction& k) : flag_(training::FlagOf(k, kInputs)) {}

  Status Compute(KernelContext& c) override {
    using A = Accumulator<T>;
    using Formula = FormulaOf<A>;
    constexpr int kN = Formula::kVariables;
    std::array<A, Formula::kCoefficients> values;
    for (size_t i = 0; i < values.size(); ++i) {
      MG_ASSIGN_OR_RETURN(values[i], Coefficient<T>(c, kInputs.coefficients[i]));
    }
    const Formula formula = Formula::Make(values.data(), flag_);
    const Tensor &rows = c.input(kInputs.gradient), &indices = c.input(kInputs.gradient + 1);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<kN>::MakeAlike(c, kDTypeOf<T>));
    const Shape shape = locked.variable(0).value.shape();
    MG_RETURN_IF_ERROR(CheckRows(shape, rows, indices));
    MG_RETURN_IF_ERROR(CheckIndices<I>(indices, shape.dim(0)));
    std::array<T*, kN> data;
    for (int i = 0; i < kN; ++i) {
      const T* before = locked[i].template before<T>();
      T* after = locked[i].template after<T>();
      if (after != before && shape.elements() > 0)
        std::memcpy(after, before, static_cast<size_t>(shape.elements()) * sizeof(T));
      data[static_cast<size_t>(i)] = after;
    }
    const auto index = indices.values<I>();
    const int64_t columns = shape.dim(0) == 0 ? 0 : shape.elements() / shape.dim(0);
    const T* gradient = rows.data<T>();
    const auto body = [&](int64_t begin, int64_t end) {
      for (size_t i = 0; i < index.size(); ++i) {
        const int64_t row = static_cast<int64_t>(index[i]) * columns;
        const T* g = gradient + static_cast<int64_t>(i) * columns;
        for (int64_t k = begin; k < end; ++k) {
          A old[kN], fresh[kN];
          for (size_t v = 0; v < kN; ++v) old[v] = static_cast<A>(data[v][row + k]);
          formula(old, static_cast<A>(g[k]), fresh);
          for (size_t v = 0; v < kN; ++v) data[v][row + k] = T(fresh[v]);
        }
      }
    };
    c.ParallelFor(columns, 1 + static_cast<int64_t>(index.size()), std::ref(body));
    locked.Commit();
    return Status();
  }

 private:
  const bool flag_;
};

template <template <typename> typename FormulaOf, const UpdateInputs& kInputs>
void Add(KernelRegistry* registry, const char* op, const std::vector<std::string>& resources) {
#define ADD(T, I)                                                \
  registry->Add<SparseUpdateKernel<T, I, FormulaOf, kInputs>>(   \
      {.op = op,                                                 \
       .types = {{"T", kDTypeOf<T>}, {"Tindices", kDTypeOf<I>}}, \
       .host_args = resources});
#define ADD_BOTH(T) ADD(T, int32_t) ADD(T, int64_t)
  MG_FLOAT_TYPES(ADD_BOTH)
#undef ADD_BOTH
#undef ADD
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  Add<training::MomentumFormula, training::kSparseMomentum>(registry, "ResourceSparseApplyMomentum",
                                                            {"var", "accum"});
  Add<training::AdagradV1, training::kAdagrad>(registry, "ResourceSparseApplyAdagrad",
                                               {"var", "accum"});
  Add<training::AdagradV2, training::kAdagradV2>(registry, "ResourceSparseApplyAdagradV2",
                                                 {"var", "accum"});
  Add<training::RMSPropFormula, training::kRMSProp>(registry, "ResourceSparseApplyRMSProp",
                                                    {"var", "ms", "mom"});
  Add<training::CenteredRMSPropFormula, training::kCenteredRMSProp>(
      registry, "ResourceSparseApplyCenteredRMSProp", {"var", "mg", "ms", "mom"});
}

}  // namespace monograph::ops::sparse_training
