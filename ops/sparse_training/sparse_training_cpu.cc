// Rows are updated in their order and each thread has columns of its own: the split among threads
// cannot change the result.
#include <cmath>
#include <cstring>

#include "ops/training/update_cpu.h"

namespace monograph::ops::sparse_training {
namespace {

using training::Coefficient;
using training::Locked;

// What to do with one element of the variable and its slots. Make reads the coefficients.
template <typename T>
struct Momentum {
  using A = Accumulator<T>;
  static constexpr int kVariables = 2, kGradient = 3;
  static Result<Momentum> Make(const KernelContext& c, const Attrs& attrs) {
    Momentum formula;
    MG_ASSIGN_OR_RETURN(formula.lr, Coefficient<T>(c, 2));
    MG_ASSIGN_OR_RETURN(formula.momentum, Coefficient<T>(c, 5));
    formula.nesterov = attrs.GetOr<bool>("use_nesterov", false);
    return formula;
  }
  void operator()(std::array<T*, 2> v, A g) const {
    const A a = static_cast<A>(*v[1]) * momentum + g;
    *v[1] = T(a);
    *v[0] = T(static_cast<A>(*v[0]) - (nesterov ? g * lr + a * momentum * lr : a * lr));
  }
  A lr, momentum;
  bool nesterov;
};

// Adagrad, and V2 with its epsilon.
template <typename T, bool kEpsilon>
struct Adagrad {
  using A = Accumulator<T>;
  static constexpr int kVariables = 2, kGradient = kEpsilon ? 4 : 3;
  static Result<Adagrad> Make(const KernelContext& c, const Attrs& attrs) {
    Adagrad formula;
    MG_ASSIGN_OR_RETURN(formula.lr, Coefficient<T>(c, 2));
    if (kEpsilon) {
      MG_ASSIGN_OR_RETURN(formula.epsilon, Coefficient<T>(c, 3));
    }
    formula.update = attrs.GetOr<bool>("update_slots", true);
    return formula;
  }
  void operator()(std::array<T*, 2> v, A g) const {
    const A a = static_cast<A>(*v[1]) + (update ? g * g : A(0));
    *v[1] = T(a);
    *v[0] = T(static_cast<A>(*v[0]) - g * lr / (std::sqrt(a) + epsilon));
  }
  A lr, epsilon = 0;
  bool update;
};

template <typename T>
struct RMSProp {
  using A = Accumulator<T>;
  static constexpr int kVariables = 3, kGradient = 7;
  static Result<RMSProp> Make(const KernelContext& c, const Attrs&) {
    RMSProp formula;
    MG_ASSIGN_OR_RETURN(formula.lr, Coefficient<T>(c, 3));
    MG_ASSIGN_OR_RETURN(const A rho, Coefficient<T>(c, 4));
    formula.one_minus_rho = A(1) - rho;
    MG_ASSIGN_OR_RETURN(formula.momentum, Coefficient<T>(c, 5));
    MG_ASSIGN_OR_RETURN(formula.epsilon, Coefficient<T>(c, 6));
    return formula;
  }
  void operator()(std::array<T*, 3> v, A g) const {
    const A s = static_cast<A>(*v[1]) + (g * g - static_cast<A>(*v[1])) * one_minus_rho;
    const A d = static_cast<A>(*v[2]) * momentum + g * lr / std::sqrt(s + epsilon);
    *v[1] = T(s);
    *v[2] = T(d);
    *v[0] = T(static_cast<A>(*v[0]) - d);
  }
  A lr, one_minus_rho, momentum, epsilon;
};

template <typename T>
struct CenteredRMSProp {
  using A = Accumulator<T>;
  static constexpr int kVariables = 4, kGradient = 8;
  static Result<CenteredRMSProp> Make(const KernelContext& c, const Attrs&) {
    MG_ASSIGN_OR_RETURN(const auto values, (training::Coefficients<T, 4>(c, 4)));
    return CenteredRMSProp{values[0], A(1) - values[1], values[2], values[3]};
  }
  void operator()(std::array<T*, 4> v, A g) const {
    const A m = static_cast<A>(*v[1]) + (g - static_cast<A>(*v[1])) * one_minus_rho;
    const A s = static_cast<A>(*v[2]) + (g * g - static_cast<A>(*v[2])) * one_minus_rho;
    const A d = static_cast<A>(*v[3]) * momentum + g * lr / std::sqrt(s - m * m + epsilon);
    *v[1] = T(m);
    *v[2] = T(s);
    *v[3] = T(d);
    *v[0] = T(static_cast<A>(*v[0]) - d);
  }
  A lr, one_minus_rho, momentum, epsilon;
};

Status CheckRows(const Shape& variable, const Tensor& rows, const Tensor& indices) {
  Shape wanted{indices.elements()};
  for (int i = 1; i < variable.rank(); ++i) wanted.AddDim(variable.dim(i));
  if (variable.rank() > 0 && indices.shape().rank() == 1 && rows.shape() == wanted) return Status();
  return InvalidArgument("rows of shape " + rows.shape().ToString() + " at indices of shape " +
                         indices.shape().ToString() + " do not fit a variable of shape " +
                         variable.ToString());
}

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

template <typename T, typename I, typename Formula>
class SparseUpdateKernel : public Kernel {
 public:
  explicit SparseUpdateKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    constexpr int kN = Formula::kVariables;
    MG_ASSIGN_OR_RETURN(const Formula formula, Formula::Make(c, attrs_));
    const Tensor &rows = c.input(Formula::kGradient), &indices = c.input(Formula::kGradient + 1);
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
        std::array<T*, kN> at = data;
        for (T*& element : at) element += static_cast<int64_t>(index[i]) * columns + begin;
        const T* g = gradient + static_cast<int64_t>(i) * columns;
        for (int64_t k = begin; k < end; ++k) {
          formula(at, static_cast<Accumulator<T>>(g[k]));
          for (T*& element : at) ++element;
        }
      }
    };
    c.ParallelFor(columns, 1 + static_cast<int64_t>(index.size()), std::ref(body));
    locked.Commit();
    return Status();
  }

 private:
  const Attrs attrs_;
};

template <typename T, typename Formula>
void Add(KernelRegistry* registry, const char* op, const std::vector<std::string>& resources) {
  registry->Add<SparseUpdateKernel<T, int32_t, Formula>>(
      {.op = op, .types = {{"T", kDTypeOf<T>}, {"Tindices", DT_INT32}}, .host_args = resources});
  registry->Add<SparseUpdateKernel<T, int64_t, Formula>>(
      {.op = op, .types = {{"T", kDTypeOf<T>}, {"Tindices", DT_INT64}}, .host_args = resources});
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                          \
  Add<T, Momentum<T>>(registry, "ResourceSparseApplyMomentum", {"var", "accum"});       \
  Add<T, Adagrad<T, false>>(registry, "ResourceSparseApplyAdagrad", {"var", "accum"});  \
  Add<T, Adagrad<T, true>>(registry, "ResourceSparseApplyAdagradV2", {"var", "accum"}); \
  Add<T, RMSProp<T>>(registry, "ResourceSparseApplyRMSProp", {"var", "ms", "mom"});     \
  Add<T, CenteredRMSProp<T>>(registry, "ResourceSparseApplyCenteredRMSProp",            \
                             {"var", "mg", "ms", "mom"});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::sparse_training
