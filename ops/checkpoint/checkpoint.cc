#include "ops/checkpoint/checkpoint.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Operation SaveV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                 const Output& shape_and_slices, const Outputs& tensors) {
  return OpBuilder(scope, "SaveV2")
      .Input(prefix)
      .Input(tensor_names)
      .Input(shape_and_slices)
      .Inputs(tensors)
      .Build();
}

Outputs RestoreV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                  const Output& shape_and_slices, const std::vector<DType>& dtypes) {
  const Operation node = OpBuilder(scope, "RestoreV2")
                             .Input(prefix)
                             .Input(tensor_names)
                             .Input(shape_and_slices)
                             .Attr("dtypes", AttrValue(dtypes))
                             .Build();
  Outputs outputs;
  for (int i = 0; node.valid() && i < node.num_outputs(); ++i) outputs.push_back(node.output(i));
  return outputs;
}

Operation MergeV2Checkpoints(const Scope& scope, const Output& checkpoint_prefixes,
                             const Output& destination_prefix) {
  return OpBuilder(scope, "MergeV2Checkpoints")
      .Input(checkpoint_prefixes)
      .Input(destination_prefix)
      .Build();
}

Output ShardedFilename(const Scope& scope, const Output& basename, const Output& shard,
                       const Output& num_shards) {
  return OpBuilder(scope, "ShardedFilename")
      .Input(basename)
      .Input(shard)
      .Input(num_shards)
      .BuildOutput();
}

std::string RowsOfShape(const Shape& whole, const RowRange& rows) {
  std::string text;
  for (const int64_t dim : whole.dims()) text += std::to_string(dim) + " ";
  text += std::to_string(rows.begin) + "," + std::to_string(rows.end - rows.begin);
  for (int i = 1; i < whole.rank(); ++i) text += ":-";
  return text;
}

namespace ops::checkpoint {
namespace {

// A scalar prefix, and two vectors of as many strings as there are tensors.
Status CheckNames(ShapeContext& c, int tensors) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  for (const int i : {1, 2}) {
    MG_ASSIGN_OR_RETURN(const PartialShape names, c.WithRank(i, 1));
    if (names.known_rank() && names.dim(0) >= 0 && names.dim(0) != tensors) {
      return InvalidArgument(std::string(i == 1 ? "tensor_names" : "shape_and_slices") + " has " +
                             std::to_string(names.dim(0)) + " elements for " +
                             std::to_string(tensors) + " tensors");
    }
  }
  return Status();
}

Status SaveShape(ShapeContext& c) { return CheckNames(c, c.num_inputs() - 3); }

Status RestoreShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(CheckNames(c, c.num_outputs()));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape());
  return Status();
}

Status MergeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  return c.WithRank(1, 0).status();
}

Status FilenameShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

OpDef OnFiles(const char* name) {
  OpDef def(name);
  def.Input("prefix: string")
      .Input("tensor_names: string")
      .Input("shape_and_slices: string")
      .Attr("dtypes: list(type) >= 1")
      .Stateful()
      .NoGradient();
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OnFiles("SaveV2").Input("tensors: dtypes").Shape(SaveShape));
  registry->Add(OnFiles("RestoreV2").Output("tensors: dtypes").Shape(RestoreShape));
  registry->Add(OpDef("MergeV2Checkpoints")
                    .Input("checkpoint_prefixes: string")
                    .Input("destination_prefix: string")
                    .Attr("delete_old_dirs: bool = true")
                    .Attr("allow_missing_files: bool = false")
                    .Stateful()
                    .NoGradient()
                    .Shape(MergeShape));
  registry->Add(OpDef("ShardedFilename")
                    .Input("basename: string")
                    .Input("shard: int32")
                    .Input("num_shards: int32")
                    .Output("filename: string")
                    .NoGradient()
                    .Shape(FilenameShape));
}

}  // namespace ops::checkpoint
}  // namespace monograph
