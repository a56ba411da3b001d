// Functions, shape functions and definitions. All versions say the same of a feature's shape
// (FeatureShapes); they differ in how they list the features.
#include "ops/example/example.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/example/counts.h"

namespace monograph {

Outputs ParseExample(const Scope& scope, const Output& serialized,
                     const std::vector<DenseFeature>& dense) {
  const Scope inner = scope.HelperScope("ParseExample");
  Outputs keys, defaults;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  for (const DenseFeature& feature : dense) {
    if (!feature.default_value.valid()) return {};
    keys.push_back(Const(inner.WithOpName("key"), feature.key));
    defaults.push_back(feature.default_value);
    types.push_back(feature.default_value.dtype());
    shapes.push_back(feature.shape);
  }
  const Output names =
      Const(inner.WithOpName("names"), Tensor::Allocate(DT_STRING, Shape{0}).value());
  const Operation node = OpBuilder(scope, "ParseExample")
                             .Input(serialized)
                             .Input(names)
                             .Inputs(keys)
                             .Inputs(defaults)
                             .Attr("Nsparse", 0)
                             .Attr("Ndense", AttrValue(static_cast<int64_t>(dense.size())))
                             .Attr("sparse_types", AttrValue(std::vector<DType>()))
                             .Attr("Tdense", AttrValue(types))
                             .Attr("dense_shapes", AttrValue(shapes))
                             .Build();
  Outputs outputs;
  for (size_t i = 0; i < dense.size(); ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

namespace ops::example {

Status CheckCounts(const Attrs& attrs) {
  const auto types = [&](const char* name) {
    return static_cast<int64_t>(attrs.GetOr<std::vector<DType>>(name, {}).size());
  };
  const auto differ = [](const std::string& what, int64_t given, int64_t wanted) {
    return InvalidArgument("there are " + std::to_string(given) + " " + what + ", but " +
                           std::to_string(wanted) + " types");
  };
  const int64_t sparse = types("sparse_types"), dense = types("Tdense");
  for (const char* name : {"num_sparse", "Nsparse"}) {
    const int64_t given = attrs.GetOr<int64_t>(name, sparse);
    if (given != sparse)
      return differ("sparse features (" + std::string(name) + ")", given, sparse);
  }
  const int64_t given = attrs.GetOr<int64_t>("Ndense", dense);
  if (given != dense) return differ("dense features (Ndense)", given, dense);
  const auto shapes = attrs.GetOr<std::vector<PartialShape>>("dense_shapes", {});
  if (static_cast<int64_t>(shapes.size()) != dense)
    return differ("dense_shapes", static_cast<int64_t>(shapes.size()), dense);
  if (types("ragged_value_types") != types("ragged_split_types"))
    return differ("ragged_value_types", types("ragged_value_types"), types("ragged_split_types"));
  return Status();
}

namespace {

// Sparse outputs (indices, values and shapes, each for all features), then dense and ragged ones.
// `batch`: the dimensions that the batch puts in front of a feature's.
Status FeatureShapes(ShapeContext& c, const PartialShape& batch) {
  MG_RETURN_IF_ERROR(CheckCounts(c.attrs()));
  const auto shapes = c.attrs().GetOr<std::vector<PartialShape>>("dense_shapes", {});
  const auto n = static_cast<int>(c.attrs().GetOr<std::vector<DType>>("sparse_types", {}).size());
  const int rank = batch.known_rank() ? batch.rank() + 1 : -1;
  for (int i = 0; i < n; ++i) {
    c.set_output(i, PartialShape{-1, rank});
    c.set_output(n + i, PartialShape{-1});
    c.set_output(2 * n + i, PartialShape{rank});
  }
  int next = 3 * n;
  for (const PartialShape& shape : shapes) {
    PartialShape output;
    if (batch.known_rank() && shape.known_rank()) {
      if (batch.rank() + shape.rank() > kMaxRank) return TooManyDimensions();
      output = batch;
      for (int i = 0; i < shape.rank(); ++i) output.AddDim(shape.dim(i));
    }
    c.set_output(next++, output);
  }
  for (; next < c.num_outputs(); ++next) c.set_output(next, PartialShape{-1});
  return Status();
}

Status ParseExampleShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(0, 1));
  return FeatureShapes(c, serialized);
}
Status ParseExampleV2Shape(ShapeContext& c) {
  if (c.input(0).known_rank() && c.input(0).rank() > 1)
    return InvalidArgument("serialized must be a scalar or a vector");
  return FeatureShapes(c, c.input(0));
}
Status ParseSingleExampleShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  return FeatureShapes(c, PartialShape::Scalar());
}

constexpr const char* kTypes = "{float, int64, string}";

}  // namespace

void Define(OpRegistry* registry) {
  const auto types = [](const char* name) {
    return std::string(name) + ": list(" + kTypes + ") >= 0";
  };
  registry->Add(OpDef("ParseExample")
                    .Input("serialized: string")
                    .Input("names: string")
                    .Input("sparse_keys: Nsparse * string")
                    .Input("dense_keys: Ndense * string")
                    .Input("dense_defaults: Tdense")
                    .Output("sparse_indices: Nsparse * int64")
                    .Output("sparse_values: sparse_types")
                    .Output("sparse_shapes: Nsparse * int64")
                    .Output("dense_values: Tdense")
                    .Attr("Nsparse: int >= 0")
                    .Attr("Ndense: int >= 0")
                    .Attr(types("sparse_types"))
                    .Attr(types("Tdense"))
                    .Attr("dense_shapes: list(shape) >= 0")
                    .Shape(ParseExampleShape)
                    .NoGradient());
  registry->Add(OpDef("ParseExampleV2")
                    .Input("serialized: string")
                    .Input("names: string")
                    .Input("sparse_keys: string")
                    .Input("dense_keys: string")
                    .Input("ragged_keys: string")
                    .Input("dense_defaults: Tdense")
                    .Output("sparse_indices: num_sparse * int64")
                    .Output("sparse_values: sparse_types")
                    .Output("sparse_shapes: num_sparse * int64")
                    .Output("dense_values: Tdense")
                    .Output("ragged_values: ragged_value_types")
                    .Output("ragged_row_splits: ragged_split_types")
                    .Attr(types("Tdense"))
                    .Attr("num_sparse: int >= 0")
                    .Attr(types("sparse_types"))
                    .Attr(types("ragged_value_types"))
                    .Attr("ragged_split_types: list({int32, int64}) >= 0")
                    .Attr("dense_shapes: list(shape) >= 0")
                    .Shape(ParseExampleV2Shape)
                    .NoGradient());
  registry->Add(OpDef("ParseSingleExample")
                    .Input("serialized: string")
                    .Input("dense_defaults: Tdense")
                    .Output("sparse_indices: num_sparse * int64")
                    .Output("sparse_values: sparse_types")
                    .Output("sparse_shapes: num_sparse * int64")
                    .Output("dense_values: Tdense")
                    .Attr("num_sparse: int >= 0")
                    .Attr("sparse_keys: list(string) >= 0")
                    .Attr("dense_keys: list(string) >= 0")
                    .Attr(types("sparse_types"))
                    .Attr(types("Tdense"))
                    .Attr("dense_shapes: list(shape) >= 0")
                    .Shape(ParseSingleExampleShape)
                    .NoGradient());
}

}  // namespace ops::example
}  // namespace monograph
