// Definitions of SparseCross in its three versions, and of sets along the last dimension.
#include <algorithm>
#include <string>

#include "ops/dims.h"
#include "ops/sparse/sparse_shapes.h"

namespace monograph::ops::sparse {
namespace {

constexpr const char* kSetTypes = "T: {int8, int16, int32, int64, uint8, uint16, string}";

// N indices, a tensor of values for each, N shapes, and dense columns up to `inputs`.
Status CrossShape(ShapeContext& c, int inputs) {
  const auto n = c.attr<int64_t>("N"),
             types = static_cast<int64_t>(c.attr<std::vector<DType>>("sparse_types").size());
  if (n != types) {
    return InvalidArgument("Expected " + std::to_string(n) + " input values, got " +
                           std::to_string(types));
  }
  for (int i = 0; i < inputs; ++i) {
    const int64_t list = n > 0 ? std::min<int64_t>(i / n, 3) : 3;
    const int rank = list == 0 || list == 3 ? 2 : 1;
    MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(i, rank));
    if (list == 0)
      MG_RETURN_IF_ERROR(ops::MergeDim(shape.dim(1), 2, "columns of indices").status());
  }
  c.set_output(0, PartialShape{-1, 2});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{2});
  return Status();
}
Status CrossV1Shape(ShapeContext& c) { return CrossShape(c, c.num_inputs()); }
Status CrossV2Shape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(c.num_inputs() - 1, 0).status());
  return CrossShape(c, c.num_inputs() - 1);
}
Status CrossHashedShape(ShapeContext& c) { return CrossShape(c, c.num_inputs() - 3); }

// A sparse set begins with its indices, a dense one is one input.
Status SetsShape(ShapeContext& c, bool first_is_sparse, bool second_is_sparse) {
  int64_t rank = -1;
  int input = 0;
  for (const bool is_sparse : {first_is_sparse, second_is_sparse}) {
    int64_t own = -1;
    if (is_sparse) {
      MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, input));
      own = known.rank;
    } else if (c.input(input).known_rank()) {
      own = c.input(input).rank();
    }
    input += is_sparse ? 3 : 1;
    MG_ASSIGN_OR_RETURN(rank, ops::MergeDim(rank, own, "ranks of the sets"));
  }
  if (rank >= 0 && rank < 2)
    return InvalidArgument("Input rank should be >= 2, not " + std::to_string(rank));
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{rank});
  return Status();
}
Status DenseSetsShape(ShapeContext& c) { return SetsShape(c, false, false); }
Status MixedSetsShape(ShapeContext& c) { return SetsShape(c, false, true); }
Status SparseSetsShape(ShapeContext& c) { return SetsShape(c, true, true); }

Status SetSizeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(KnownOf(c, 0).status());
  return UnknownShape(c);
}

OpDef CrossDef(const char* name) {
  return OpDef(name)
      .Input("indices: N * int64")
      .Input("values: sparse_types")
      .Input("shapes: N * int64")
      .Input("dense_inputs: dense_types")
      .Output("output_indices: int64")
      .Attr("N: int >= 0")
      .Attr("sparse_types: list({int64, string}) >= 0")
      .Attr("dense_types: list({int64, string}) >= 0")
      .NoGradient();
}

OpDef SparseSet(OpDef def, const std::string& name) {
  def.Input(name + "_indices: int64").Input(name + "_values: T").Input(name + "_shape: int64");
  return def;
}
OpDef Results(OpDef def) {
  def.Output("result_indices: int64")
      .Output("result_values: T")
      .Output("result_shape: int64")
      .Attr("set_operation: string")
      .Attr("validate_indices: bool = true")
      .Attr(kSetTypes)
      .NoGradient();
  return def;
}

}  // namespace

void DefineCrossAndSets(OpRegistry* registry) {
  registry->Add(CrossDef("SparseCross")
                    .Output("output_values: out_type")
                    .Output("output_shape: int64")
                    .Attr("hashed_output: bool")
                    .Attr("num_buckets: int >= 0")
                    .Attr("hash_key: int")
                    .Attr("out_type: {int64, string}")
                    .Attr("internal_type: {int64, string}")
                    .Shape(CrossV1Shape));
  registry->Add(CrossDef("SparseCrossV2")
                    .Input("sep: string")
                    .Output("output_values: string")
                    .Output("output_shape: int64")
                    .Shape(CrossV2Shape));
  registry->Add(CrossDef("SparseCrossHashed")
                    .Input("num_buckets: int64")
                    .Input("strong_hash: bool")
                    .Input("salt: int64")
                    .Output("output_values: int64")
                    .Output("output_shape: int64")
                    .Shape(CrossHashedShape));
  registry->Add(Results(OpDef("DenseToDenseSetOperation").Input("set1: T").Input("set2: T"))
                    .Shape(DenseSetsShape));
  registry->Add(Results(SparseSet(OpDef("DenseToSparseSetOperation").Input("set1: T"), "set2"))
                    .Shape(MixedSetsShape));
  registry->Add(Results(SparseSet(SparseSet(OpDef("SparseToSparseSetOperation"), "set1"), "set2"))
                    .Shape(SparseSetsShape));
  registry->Add(SparseSet(OpDef("SetSize"), "set")
                    .Output("size: int32")
                    .Attr("validate_indices: bool = true")
                    .Attr(kSetTypes)
                    .Shape(SetSizeShape)
                    .NoGradient());
}

}  // namespace monograph::ops::sparse
