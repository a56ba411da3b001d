// CPU kernels. A serialized example is read where it lies: a first pass finds the features that are
// wanted, a second appends their values to one column for each feature (ops/example/features.h),
// and the columns become tensors when all examples are read.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/example/counts.h"
#include "ops/example/features.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::example {
namespace {

// What these cost, in the units of Looks.
constexpr int64_t kEachExample = 100, kEachNumber = 5;

// What a node wants: sparse columns, then dense ones, then ragged ones.
struct Wanted {
  std::vector<Column> columns;
  size_t sparse = 0, dense = 0, ragged = 0;
  std::vector<PartialShape> shapes;  // of the dense ones
  int first_default = 0;             // the input that holds the first dense column's default
};

// The elements of a dense feature, or of one row of it where its first dimension is open.
int64_t UnitOf(const PartialShape& shape) {
  int64_t unit = 1;
  for (int i = 0; i < shape.rank(); ++i) unit *= i == 0 && shape.dim(0) < 0 ? 1 : shape.dim(i);
  return unit;
}
bool IsOpen(const PartialShape& shape) { return shape.rank() > 0 && shape.dim(0) < 0; }

Status CheckDense(const KernelContext& c, const Wanted& wanted) {
  for (size_t i = 0; i < wanted.dense; ++i) {
    const PartialShape& shape = wanted.shapes[i];
    bool known = shape.known_rank();
    for (int d = 0; known && d < shape.rank(); ++d) known = shape.dim(d) >= 0 || d == 0;
    const Column& column = wanted.columns[wanted.sparse + i];
    if (!known) {
      return InvalidArgument("dense_shapes[" + std::to_string(i) + "] of '" + column.key + "' is " +
                             shape.ToString() + ": only its first dimension may be open");
    }
    PartialShape unit = shape;
    if (IsOpen(shape)) unit.set_dim(0, 1);
    MG_RETURN_IF_ERROR(Shape::Make(unit.dims()).status());
    const Tensor& fallback = c.input(wanted.first_default + static_cast<int>(i));
    const bool fits =
        fallback.dtype() == column.dtype &&
        (fallback.elements() == 0 ||
         (IsOpen(shape) ? fallback.elements() == 1 : fallback.shape() == shape.AsShape()));
    if (!fits) {
      return InvalidArgument("dense_defaults[" + std::to_string(i) + "] of '" + column.key +
                             "' has shape " + fallback.shape().ToString() + ", but the feature " +
                             shape.ToString());
    }
  }
  return Status();
}

std::string NameOf(const Tensor* names, size_t example) {
  return names != nullptr && names->elements() > 0 ? names->strings()[example] : "<unknown>";
}

// Appends the examples' values to the columns.
Status Read(const KernelContext& c, std::span<const std::string> examples, const Tensor* names,
            Wanted* wanted) {
  FeatureNumbers numbers;
  for (size_t i = 0; i < wanted->columns.size(); ++i) {
    if (!numbers.emplace(wanted->columns[i].key, i).second)
      return InvalidArgument("the key '" + wanted->columns[i].key + "' is given twice");
  }
  std::vector<Found> found(wanted->columns.size());
  Looks looks(c);
  for (size_t e = 0; e < examples.size(); ++e) {
    const std::string where = "Name: " + NameOf(names, e);
    const bool is_example = FindFeatures(&looks, examples[e], numbers, &found);
    if (!looks.GoOn(kEachExample)) return Cancelled("the step was aborted");
    if (!is_example)
      return InvalidArgument("Could not parse example input, value number " + std::to_string(e) +
                             " (" + where + ")");
    for (size_t i = 0; i < found.size(); ++i) {
      Column& column = wanted->columns[i];
      if (found[i].dtype != DT_INVALID) {
        if (found[i].dtype != column.dtype) {
          return InvalidArgument(
              where + ", Key: " + column.key + ", Index: " + std::to_string(e) +
              ".  Data types don't match. Expected type: " + std::string(DTypeName(column.dtype)) +
              ", got " + std::string(DTypeName(found[i].dtype)));
        }
        const bool is_feature = AppendList(&looks, found[i].list, &column);
        if (!looks.GoOn(0)) return Cancelled("the step was aborted");
        if (!is_feature)
          return InvalidArgument("Could not parse feature '" + column.key + "' of example " +
                                 std::to_string(e) + " (" + where + ")");
      }
      column.ends.push_back(column.size());
      if (i < wanted->sparse || i >= wanted->sparse + wanted->dense) continue;
      const PartialShape& shape = wanted->shapes[i - wanted->sparse];
      const int64_t n = column.size() - column.begin(e), unit = UnitOf(shape);
      if (found[i].dtype == DT_INVALID) {
        const Tensor& fallback =
            c.input(wanted->first_default + static_cast<int>(i - wanted->sparse));
        if (!IsOpen(shape) && fallback.elements() == 0 && unit > 0) {
          return InvalidArgument(where + ", Feature: " + column.key +
                                 " (data type: " + std::string(DTypeName(column.dtype)) +
                                 ") is required but could not be found.");
        }
      } else if (IsOpen(shape) ? unit == 0 || n % unit != 0 : n != unit) {
        return InvalidArgument(where + ", Key: " + column.key + ", Index: " + std::to_string(e) +
                               ".  Number of " + std::string(DTypeName(column.dtype)) +
                               " values != expected.  values size: " + std::to_string(n) +
                               " but output shape: " + shape.ToString());
      }
    }
  }
  return Status();
}

// `single`: one example, whose tensors have no dimension for the batch.
Status PutSparse(KernelContext& c, const Column& column, size_t examples, bool single, int output,
                 int step) {
  const int64_t n = column.size(), rank = single ? 1 : 2;
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(output, Shape{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(output + step, Shape{n}));
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(output + 2 * step, Shape{rank}));
  int64_t* at = indices->data<int64_t>();
  int64_t longest = 0;
  Looks looks(c);
  for (size_t e = 0; e < examples; ++e) {
    const int64_t first = column.begin(e), count = column.ends[e] - first;
    longest = std::max(longest, count);
    for (int64_t k = 0; k < count && looks.GoOn(1); ++k) {
      if (!single) *at++ = static_cast<int64_t>(e);
      *at++ = k;
    }
  }
  column.Put(&looks, 0, n, values, 0);
  if (!single) shape->data<int64_t>()[0] = static_cast<int64_t>(examples);
  shape->data<int64_t>()[rank - 1] = longest;
  return Status();
}

Status PutDense(KernelContext& c, const Wanted& wanted, size_t i, size_t examples, bool single,
                int output) {
  const Column& column = wanted.columns[wanted.sparse + i];
  const PartialShape& shape = wanted.shapes[i];
  const Tensor& fallback = c.input(wanted.first_default + static_cast<int>(i));
  int64_t each = UnitOf(shape), first_dim = shape.rank() > 0 ? shape.dim(0) : 0;
  if (IsOpen(shape)) {
    int64_t longest = 0;
    Looks looks(c);
    for (size_t e = 0; e < examples; ++e)
      longest = std::max(longest, column.ends[e] - column.begin(e));
    first_dim = each == 0 ? 0 : longest / each;
    each = longest;
  }
  SmallInts dims;
  if (!single) dims.push_back(static_cast<int64_t>(examples));
  for (int d = 0; d < shape.rank(); ++d) dims.push_back(d == 0 ? first_dim : shape.dim(d));
  MG_ASSIGN_OR_RETURN(const Shape whole, Shape::Make(dims.span()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(output, whole));
  const size_t bytes = DTypeSize(column.dtype);
  char* const to = static_cast<char*>(out->raw());
  if (out->dtype() != DT_STRING) MG_RETURN_IF_ERROR(ops::HostMoves::Zero(c, to, out->bytes()));
  Looks looks(c);
  for (size_t e = 0; e < examples && looks.GoOn(kEachExample); ++e) {
    const auto at = static_cast<int64_t>(e) * each;
    const int64_t n = column.ends[e] - column.begin(e);
    column.Put(&looks, column.begin(e), n, out, at);
    const char* from = static_cast<const char*>(fallback.raw());
    if (!IsOpen(shape) && n == 0 && fallback.elements() > 0) {
      CopyElements(c, column.dtype, from, to + static_cast<size_t>(at) * bytes,
                   static_cast<size_t>(each) * bytes);
    }
    for (int64_t k = n;
         IsOpen(shape) && fallback.elements() > 0 && k < each && looks.GoOn(kEachNumber); ++k)
      CopyElements(c, column.dtype, from, to + static_cast<size_t>(at + k) * bytes, bytes);
  }
  return Status();
}

Status PutRagged(KernelContext& c, const Column& column, size_t examples, int output, int step) {
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(output, Shape{column.size()}));
  Looks looks(c);
  column.Put(&looks, 0, column.size(), values, 0);
  const auto rows = static_cast<int64_t>(examples);
  MG_ASSIGN_OR_RETURN(Tensor * splits, c.AllocateOutput(output + step, Shape{rows + 1}));
  SetIndex(splits, 0, 0);
  for (size_t e = 0; e < examples; ++e)
    SetIndex(splits, static_cast<int64_t>(e) + 1, column.ends[e]);
  return Status();
}

Status PutAll(KernelContext& c, const Wanted& wanted, size_t examples, bool single) {
  const auto sparse = static_cast<int>(wanted.sparse), dense = static_cast<int>(wanted.dense),
             ragged = static_cast<int>(wanted.ragged);
  for (int i = 0; i < sparse; ++i)
    MG_RETURN_IF_ERROR(
        PutSparse(c, wanted.columns[static_cast<size_t>(i)], examples, single, i, sparse));
  for (int i = 0; i < dense; ++i)
    MG_RETURN_IF_ERROR(
        PutDense(c, wanted, static_cast<size_t>(i), examples, single, 3 * sparse + i));
  for (int i = 0; i < ragged; ++i)
    MG_RETURN_IF_ERROR(PutRagged(c, wanted.columns[static_cast<size_t>(sparse + dense + i)],
                                 examples, 3 * sparse + dense + i, ragged));
  return Status();
}

using Types = std::vector<DType>;

void AddColumn(Wanted* wanted, std::string key, DType dtype) {
  wanted->columns.push_back({.key = std::move(key), .dtype = dtype});
}

Result<Wanted> WantedOf(const Attrs& attrs) {
  MG_RETURN_IF_ERROR(CheckCounts(attrs));
  Wanted wanted;
  wanted.sparse = attrs.GetOr<Types>("sparse_types", {}).size();
  wanted.dense = attrs.GetOr<Types>("Tdense", {}).size();
  wanted.ragged = attrs.GetOr<Types>("ragged_value_types", {}).size();
  wanted.shapes = attrs.GetOr<std::vector<PartialShape>>("dense_shapes", {});
  return wanted;
}

Status Parse(KernelContext& c, Wanted* wanted, const Tensor* names, bool single) {
  const Tensor& serialized = c.input(0);
  if (names != nullptr && names->elements() > 0 && names->elements() != serialized.elements()) {
    return InvalidArgument(
        "Expected len(names) == len(serialized), but got: " + std::to_string(names->elements()) +
        " vs. " + std::to_string(serialized.elements()));
  }
  MG_RETURN_IF_ERROR(CheckDense(c, *wanted));
  const auto n = static_cast<size_t>(serialized.elements());
  Room room;  // for Column::ends: few bytes make many examples of many features
  MG_RETURN_IF_ERROR(room.Hold(n * wanted->columns.size() * sizeof(int64_t),
                               "a batch of " + std::to_string(n) + " examples with " +
                                   std::to_string(wanted->columns.size()) + " features"));
  MG_RETURN_IF_ERROR(Read(c, std::span(serialized.strings(), n), names, wanted));
  return PutAll(c, *wanted, n, single);
}

Status ParseExampleOf(KernelContext& c, const Attrs& attrs) {
  if (c.input(0).shape().rank() != 1)
    return InvalidArgument("Expected serialized to be a vector, got shape: " +
                           c.input(0).shape().ToString());
  MG_ASSIGN_OR_RETURN(Wanted wanted, WantedOf(attrs));
  const auto sparse_types = attrs.GetOr<Types>("sparse_types", {}),
             dense_types = attrs.GetOr<Types>("Tdense", {});
  const auto sparse = static_cast<int>(attrs.Get<int64_t>("Nsparse")),
             dense = static_cast<int>(attrs.Get<int64_t>("Ndense"));
  for (int i = 0; i < sparse + dense; ++i) {
    if (c.input(2 + i).shape().rank() != 0)
      return InvalidArgument("Expected keys to be scalars, got shape: " +
                             c.input(2 + i).shape().ToString());
    AddColumn(&wanted, *c.input(2 + i).strings(),
              i < sparse ? sparse_types[static_cast<size_t>(i)]
                         : dense_types[static_cast<size_t>(i - sparse)]);
  }
  wanted.first_default = 2 + sparse + dense;
  return Parse(c, &wanted, &c.input(1), false);
}

Status ParseExampleV2Of(KernelContext& c, const Attrs& attrs) {
  const int rank = c.input(0).shape().rank();
  if (rank > 1)
    return InvalidArgument("Expected serialized to be a scalar or vector, got shape: " +
                           c.input(0).shape().ToString());
  MG_ASSIGN_OR_RETURN(Wanted wanted, WantedOf(attrs));
  const std::pair<int, Types> keys[] = {{2, attrs.GetOr<Types>("sparse_types", {})},
                                        {3, attrs.GetOr<Types>("Tdense", {})},
                                        {4, attrs.GetOr<Types>("ragged_value_types", {})}};
  for (const auto& [input, types] : keys) {
    if (!(c.input(input).shape() == Shape{static_cast<int64_t>(types.size())})) {
      return InvalidArgument("keys of shape " + c.input(input).shape().ToString() + " for " +
                             std::to_string(types.size()) + " types");
    }
    for (size_t i = 0; i < types.size(); ++i)
      AddColumn(&wanted, c.input(input).strings()[i], types[i]);
  }
  if (wanted.ragged > 0 && rank == 0)
    return Unimplemented("ragged features of a single example are not supported; give a vector");
  wanted.first_default = 5;
  return Parse(c, &wanted, &c.input(1), rank == 0);
}

Status ParseSingleExampleOf(KernelContext& c, const Attrs& attrs) {
  if (c.input(0).shape().rank() != 0)
    return InvalidArgument("Expected serialized to be a scalar, got shape: " +
                           c.input(0).shape().ToString());
  MG_ASSIGN_OR_RETURN(Wanted wanted, WantedOf(attrs));
  using Keys = std::vector<std::string>;
  const std::pair<Keys, Types> keys[] = {
      {attrs.GetOr<Keys>("sparse_keys", {}), attrs.GetOr<Types>("sparse_types", {})},
      {attrs.GetOr<Keys>("dense_keys", {}), attrs.GetOr<Types>("Tdense", {})}};
  for (const auto& [names, types] : keys) {
    if (names.size() != types.size())
      return InvalidArgument(std::to_string(names.size()) + " keys for " +
                             std::to_string(types.size()) + " types");
    for (size_t i = 0; i < types.size(); ++i) AddColumn(&wanted, names[i], types[i]);
  }
  wanted.first_default = 1;
  return Parse(c, &wanted, nullptr, true);
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<FunctionKernel<ParseExampleOf>>({.op = "ParseExample"});
  registry->Add<FunctionKernel<ParseExampleV2Of>>({.op = "ParseExampleV2"});
  registry->Add<FunctionKernel<ParseSingleExampleOf>>({.op = "ParseSingleExample"});
}

}  // namespace monograph::ops::example
