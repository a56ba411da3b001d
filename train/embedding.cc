#include "train/embedding.h"

#include <string>
#include <vector>

#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

Status Check(std::span<const TablePart> params, PartitionStrategy strategy) {
  if (params.empty()) return InvalidArgument("EmbeddingLookup: need at least one param");
  const auto num_parts = static_cast<int64_t>(params.size());
  int64_t rows = 0;
  for (const TablePart& part : params) {
    Shape row = part.shape, first = params[0].shape;
    if (row.rank() < 1)
      return InvalidArgument("EmbeddingLookup: variable '" + part.name + "' has no rows");
    rows += row[0];
    row.set_dim(0, 0);
    if (first.rank() > 0) first.set_dim(0, 0);
    if (part.dtype != params[0].dtype || !(row == first)) {
      return InvalidArgument("EmbeddingLookup: variable '" + part.name + "' is " +
                             std::string(DTypeName(part.dtype)) + part.shape.ToString() +
                             ", its rows do not fit those of '" + params[0].name + "', " +
                             std::string(DTypeName(params[0].dtype)) + params[0].shape.ToString());
    }
  }
  if (rows < num_parts) {
    return InvalidArgument("EmbeddingLookup: " + std::to_string(rows) + " rows in " +
                           std::to_string(num_parts) + " parts; each part needs one at least");
  }
  for (int64_t i = 0; i < num_parts; ++i) {
    const int64_t expected = rows / num_parts + (i < rows % num_parts ? 1 : 0);
    const TablePart& part = params[static_cast<size_t>(i)];
    if (part.shape[0] == expected) continue;
    return InvalidArgument("EmbeddingLookup: variable '" + part.name + "' has " +
                           std::to_string(part.shape[0]) + " rows; of " + std::to_string(rows) +
                           " rows in " + std::to_string(num_parts) + " parts it must have " +
                           std::to_string(expected) + " for the strategy '" +
                           (strategy == PartitionStrategy::kMod ? "mod'" : "div'"));
  }
  return Status();
}

Output RowsOf(const TablePart& part, const Output& ids) {
  return ResourceGather(part.place, part.handle, ids, part.dtype);
}

// For each id its part (int32) and its row there.
struct Places {
  Output part, row;
};
Places PlacesOf(const Scope& s, const Output& ids, std::span<const TablePart> params,
                PartitionStrategy strategy) {
  const auto constant = [&](int64_t value) {
    return ScalarConst(s, static_cast<double>(value), ids.dtype());
  };
  const auto num_parts = static_cast<int64_t>(params.size());
  Places places;
  if (strategy == PartitionStrategy::kMod) {
    const Output n = constant(num_parts);
    places = {FloorMod(s, ids, n), FloorDiv(s, ids, n)};
  } else {
    int64_t rows = 0;
    for (const TablePart& part : params) rows += part.shape[0];
    const int64_t extras = rows % num_parts;
    // The first `extras` parts have one row more.
    const Output large = constant(rows / num_parts + 1), small = constant(rows / num_parts),
                 shifted = Sub(s, ids, constant(extras));
    places.part = Maximum(s, FloorDiv(s, ids, large), FloorDiv(s, shifted, small));
    places.row = Select(s, Less(s, places.part, constant(extras)), FloorMod(s, ids, large),
                        FloorMod(s, shifted, small));
  }
  if (ids.dtype() != DT_INT32) places.part = Cast(s, places.part, DT_INT32);
  return places;
}

// The rows of a vector of ids, each looked up in its part.
Output InParts(const Scope& s, std::span<const TablePart> params, const Output& ids,
               PartitionStrategy strategy) {
  if (params.size() == 1) return RowsOf(params[0], ids);
  const int num_parts = static_cast<int>(params.size());
  const Places places = PlacesOf(s, ids, params, strategy);
  if (!s.ok()) return {};
  const Output positions = Range(s, Const(s, 0), Size(s, ids), Const(s, 1));
  const Outputs rows = DynamicPartition(s, places.row, places.part, num_parts),
                back = DynamicPartition(s, positions, places.part, num_parts);
  Outputs found;
  for (size_t i = 0; i < params.size() && s.ok(); ++i) found.push_back(RowsOf(params[i], rows[i]));
  return DynamicStitch(s, back, found);
}

}  // namespace

Output EmbeddingLookup(const Scope& scope, std::span<const TablePart> params, const Output& ids,
                       PartitionStrategy strategy) {
  if (!scope.ok()) return {};
  Status status = Check(params, strategy);
  if (!ids.valid() || (ids.dtype() != DT_INT32 && ids.dtype() != DT_INT64))
    status.Update(InvalidArgument("EmbeddingLookup: ids must be int32 or int64"));
  if (!status.ok()) {
    scope.Fail(status);
    return {};
  }
  const Scope s = scope.SubScope("embedding_lookup");
  // Ids are made a vector, so that the gradients are rows of the tables' shape.
  const bool flat = ids.shape().known_rank() && ids.shape().rank() == 1;
  const Output found = InParts(s, params, flat ? ids : Reshape(s, ids, {-1}), strategy);
  if (flat) return found;
  std::vector<int64_t> row(params[0].shape.dims().begin() + 1, params[0].shape.dims().end());
  return Reshape(s, found, Concat(s, {ShapeOf(s, ids), IntsConst(s, row)}, 0));
}

Output EmbeddingLookup(const Scope& scope, std::span<const ModelVariable> params, const Output& ids,
                       PartitionStrategy strategy) {
  std::vector<TablePart> parts;
  for (const ModelVariable& part : params) {
    if (!scope.ok()) return {};
    parts.push_back(
        {part.name, part.handle, part.shape, part.dtype, scope.ColocateWith(part.handle)});
  }
  return EmbeddingLookup(scope, parts, ids, strategy);
}

Output EmbeddingLookup(const Scope& scope, const ScopedVariable& params, const Output& ids,
                       PartitionStrategy strategy) {
  if (params.axis != 0 && params.parts.size() > 1) {
    scope.Fail(InvalidArgument("EmbeddingLookup: variable '" + params.name +
                               "' is cut along dimension " + std::to_string(params.axis) +
                               "; rows can be looked up in parts of dimension 0 only"));
    return {};
  }
  return EmbeddingLookup(scope, params.parts, ids, strategy);
}

}  // namespace monograph
