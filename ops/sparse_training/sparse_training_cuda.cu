// The rows of one index are applied in their order by one thread per column: the same bits as on a
// CPU. An index that the variable has no row for is passed over.
#include "ops/index_list.h"
#include "ops/sparse_training/check_rows.h"
#include "ops/training/update_cuda.h"

namespace monograph::ops::sparse_training {
namespace {

using training::DeviceFormula;
using training::Locked;
using training::UpdateInputs;

template <typename T, template <typename> typename FormulaOf>
struct SparseUpdateBody {
  using A = Accumulator<T>;
  using Formula = FormulaOf<A>;
  static constexpr int kN = Formula::kVariables;

  DeviceFormula<T, FormulaOf> formula;
  Chains chains;
  IndexList index;
  T* data[kN];
  const T* rows;
  Divisor columns;

  MG_HD void operator()(int64_t at) const {
    const int64_t i = columns.Divide(at), k = at - i * columns.divisor();
    if (chains.head[i] == 0) return;
    const Formula update = formula.Make();
    const int64_t place = index[i] * columns.divisor() + k;
    T values[kN];
    for (int v = 0; v < kN; ++v) values[v] = data[v][place];
    chains.Walk(i, [&](int64_t p) {
      A old[kN], fresh[kN];
      for (int v = 0; v < kN; ++v) old[v] = Widen(values[v]);
      update(old, Widen(rows[p * columns.divisor() + k]), fresh);
      for (int v = 0; v < kN; ++v) values[v] = Narrow<T>(fresh[v]);
    });
    for (int v = 0; v < kN; ++v) data[v][place] = values[v];
  }
};

template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs>
class DeviceSparseUpdateKernel : public Kernel {
 public:
  explicit DeviceSparseUpdateKernel(const KernelConstruction& k)
      : flag_(training::FlagOf(k, kInputs)) {}

  Status Compute(KernelContext& c) override {
    using Body = SparseUpdateBody<T, FormulaOf>;
    MG_ASSIGN_OR_RETURN(const auto formula,
                        (DeviceFormula<T, FormulaOf>::Of(c, kInputs.coefficients, flag_)));
    const Tensor &rows = c.input(kInputs.gradient), &indices = c.input(kInputs.gradient + 1);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<Body::kN>::MakeAlike(c, kDTypeOf<T>));
    const Shape shape = locked.variable(0).value.shape();
    MG_RETURN_IF_ERROR(CheckRows(shape, rows, indices));
    const size_t bytes = static_cast<size_t>(shape.elements()) * sizeof(T);
    T* data[Body::kN];
    for (int i = 0; i < Body::kN; ++i) {
      data[i] = locked[i].template after<T>();
      MG_RETURN_IF_ERROR(DeviceCopy(c, data[i], locked[i].template before<T>(), bytes));
    }
    const int64_t n = indices.elements();
    if (n > 0 && bytes > 0) {
      const int64_t columns = shape.elements() / shape.dim(0);
      Tensor memory;
      MG_ASSIGN_OR_RETURN(const Chains chains, MakeChains(c, indices, shape.dim(0), &memory));
      Body body{formula, chains, IndexList(indices), {}, rows.data<T>(), Divisor(columns)};
      std::copy_n(data, Body::kN, body.data);
      MG_RETURN_IF_ERROR(ForEach(c, n * columns, body));
    }
    locked.Commit();
    return Status();
  }

 private:
  const bool flag_;
};

template <template <typename> typename FormulaOf, const UpdateInputs& kInputs>
void Add(KernelRegistry* registry, const char* op, const std::vector<std::string>& resources) {
#define ADD(T)                                                      \
  for (DType index : {DT_INT32, DT_INT64}) {                        \
    registry->Add<DeviceSparseUpdateKernel<T, FormulaOf, kInputs>>( \
        {.op = op,                                                  \
         .device = "GPU",                                           \
         .types = {{"T", kDTypeOf<T>}, {"Tindices", index}},        \
         .host_args = resources});                                  \
  }
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
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
