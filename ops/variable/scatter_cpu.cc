// CPU kernels that change slices of a variable (ops/cpu/slices_cpu.h).
#include <algorithm>
#include <string>

#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/slices_cpu.h"
#include "ops/variable/assign.h"
#include "ops/variable/variable_cpu.h"

namespace monograph::ops::variable {
namespace {

struct Operation {
  const char* rows;  // the op whose indices name rows; nullptr: none
  const char* nd;    // the op whose indices have vectors that name elements or slices
  SliceUpdate update;
};
constexpr Operation kOperations[] = {
    {"ResourceScatterUpdate", "ResourceScatterNdUpdate", SliceUpdate::kSet},
    {"ResourceScatterAdd", "ResourceScatterNdAdd", SliceUpdate::kAdd},
    {"ResourceScatterSub", "ResourceScatterNdSub", SliceUpdate::kSub},
    {"ResourceScatterMul", nullptr, SliceUpdate::kMul},
    {"ResourceScatterDiv", nullptr, SliceUpdate::kDiv},
    {"ResourceScatterMin", "ResourceScatterNdMin", SliceUpdate::kMin},
    {"ResourceScatterMax", "ResourceScatterNdMax", SliceUpdate::kMax},
};

template <typename T>
bool HasZero(const KernelContext& c, const Tensor& tensor) {
  const auto values = tensor.values<T>();
  bool found = false;
  InPieces(c, tensor.elements(), [&](int64_t begin, int64_t end) {
    found = found ||
            std::find(values.begin() + begin, values.begin() + end, T(0)) != values.begin() + end;
  });
  return found;
}

// Each vector of `depth` indices names one slice; rows have vectors of one.
class HostSlices {
 public:
  using Moves = HostMoves;
  static constexpr bool kCutsLong = true;

  explicit HostSlices(const KernelConstruction& k) : dtype_(k.input_dtype(2)) {
    for (const Operation& operation : kOperations) {
      nd_ = operation.nd != nullptr && k.op() == operation.nd;
      if (!nd_ && (operation.rows == nullptr || k.op() != operation.rows)) continue;
      combine_ = CombineOf(operation.update, dtype_);
      divides_ = operation.update == SliceUpdate::kDiv;
      break;
    }
  }
  DType dtype() const { return dtype_; }

  Status Check(const KernelContext& c, const Variable& variable) const
      MG_REQUIRES_SHARED(variable.mutex) {
    const Tensor &indices = c.input(1), &updates = c.input(2);
    const Shape shape = variable.value.shape();
    if (nd_) {
      MG_RETURN_IF_ERROR(CheckNdShapes(shape, indices.shape(), updates.shape(), "a variable"));
      return CheckNdIndices(c, shape, indices);
    }
    MG_RETURN_IF_ERROR(CheckUpdates(variable, indices.shape(), updates.shape()));
    MG_RETURN_IF_ERROR(CheckRowIndices(c, shape[0], indices));
    // Check for zero divisors first: on an error the variable stays unchanged.
    if (!divides_ || !IsInteger(dtype_)) return Status();
    return WithRealType(dtype_, [&](auto t) {
      return HasZero<decltype(t)>(c, updates) ? InvalidArgument("Integer division by zero")
                                              : Status();
    });
  }

  Status Apply(KernelContext& c, void* table, const Shape& shape) const {
    const Tensor &indices = c.input(1), &updates = c.input(2);
    const int depth = nd_ ? DepthOf(indices) : 1;
    int64_t size = 1;
    for (int i = depth; i < shape.rank(); ++i) size *= shape[i];
    const bool scalar = !nd_ && updates.shape().rank() == 0;
    const int64_t n = nd_ ? (size == 0 ? 0 : updates.elements() / size) : indices.elements();
    const size_t bytes = DTypeSize(dtype_);
    const void* from = updates.raw();
    Tensor row;  // of the scalar
    if (scalar) {
      MG_ASSIGN_OR_RETURN(row, c.AllocateTemp(dtype_, Shape{size}));
      MG_RETURN_IF_ERROR(Moves::Fill(c, bytes, from, row.raw(), size));
      from = std::as_const(row).raw();
    }
    const int64_t step = scalar ? 0 : size;
    CombineNd(c, combine_, table, shape, indices, depth, n, from, bytes, step, size);
    return Status();
  }

 private:
  const DType dtype_;
  bool nd_ = false, divides_ = false;
  CombineFn combine_ = nullptr;
};

void AddScatter(KernelRegistry* registry, const char* op, const char* type_attr,
                const char* resource, DType dtype) {
  if (op == nullptr) return;
  for (DType index : {DT_INT32, DT_INT64}) {
    registry->Add<ScatterKernel<HostSlices>>(
        {.op = op, .types = {{type_attr, dtype}, {"Tindices", index}}, .host_args = {resource}});
  }
}

}  // namespace

void RegisterScatters(KernelRegistry* registry) {
  for (const Operation& operation : kOperations) {
    const auto add = [&](DType dtype) {
      AddScatter(registry, operation.rows, "dtype", "resource", dtype);
      AddScatter(registry, operation.nd, "T", "ref", dtype);
    };
#define ADD(T) add(kDTypeOf<T>);
    MG_REAL_TYPES(ADD)
#undef ADD
    for (const DType dtype : kPlainTypes) {
      // The others have been added.
      const bool set =
          operation.update == SliceUpdate::kSet && !IsInteger(dtype) && !IsFloating(dtype);
      const bool add_parts =
          (operation.update == SliceUpdate::kAdd || operation.update == SliceUpdate::kSub) &&
          IsComplex(dtype);
      if (set || add_parts) add(dtype);
    }
  }
}

}  // namespace monograph::ops::variable
