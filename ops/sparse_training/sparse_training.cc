// Updates of rows of variables: the functions that build them, and the ops' definitions, one for
// each optimizer by resource and, where TensorFlow has it, by reference.
#include "ops/sparse_training/sparse_training.h"

#include "graph/shape_inference.h"
#include "ops/gather/gather.h"
#include "ops/shape/shape.h"
#include "ops/unique/unique.h"

namespace monograph {

Operation ResourceSparseApplyMomentum(const Scope& scope, Output var, Output accum, Output lr,
                                      const Gradient& rows, Output momentum, bool use_nesterov) {
  OpBuilder builder(scope, "ResourceSparseApplyMomentum");
  for (const Output& input : {var, accum, lr, rows.values, rows.indices, momentum})
    builder.Input(input);
  return builder.Attr("use_nesterov", AttrValue(use_nesterov)).Build();
}

Operation ResourceSparseApplyAdagrad(const Scope& scope, Output var, Output accum, Output lr,
                                     const Gradient& rows, bool update_slots) {
  OpBuilder builder(scope, "ResourceSparseApplyAdagrad");
  for (const Output& input : {var, accum, lr, rows.values, rows.indices}) builder.Input(input);
  return builder.Attr("update_slots", AttrValue(update_slots)).Build();
}

Operation ResourceSparseApplyAdagradV2(const Scope& scope, Output var, Output accum, Output lr,
                                       Output epsilon, const Gradient& rows, bool update_slots) {
  OpBuilder builder(scope, "ResourceSparseApplyAdagradV2");
  for (const Output& input : {var, accum, lr, epsilon, rows.values, rows.indices})
    builder.Input(input);
  return builder.Attr("update_slots", AttrValue(update_slots)).Build();
}

Operation ResourceSparseApplyRMSProp(const Scope& scope, Output var, Output ms, Output mom,
                                     Output lr, Output rho, Output momentum, Output epsilon,
                                     const Gradient& rows) {
  OpBuilder builder(scope, "ResourceSparseApplyRMSProp");
  for (const Output& input : {var, ms, mom, lr, rho, momentum, epsilon, rows.values, rows.indices})
    builder.Input(input);
  return builder.Build();
}

Operation ResourceSparseApplyCenteredRMSProp(const Scope& scope, Output var, Output mg, Output ms,
                                             Output mom, Output lr, Output rho, Output momentum,
                                             Output epsilon, const Gradient& rows) {
  OpBuilder builder(scope, "ResourceSparseApplyCenteredRMSProp");
  for (const Output& input :
       {var, mg, ms, mom, lr, rho, momentum, epsilon, rows.values, rows.indices})
    builder.Input(input);
  return builder.Build();
}

Gradient SumRepeatedRows(const Scope& scope, const Gradient& rows) {
  const Scope inner = scope.SubScope("sum_repeated_rows");
  const UniqueResult unique = Unique(inner, rows.indices);
  return {UnsortedSegmentSum(inner, rows.values, unique.idx, Size(inner, unique.y)), unique.y};
}

namespace ops::sparse_training {
namespace {

// Resources come first, then `scalars` coefficients, then the rows and their indices.
Status Check(ShapeContext& c, int grad, std::initializer_list<int> scalars) {
  for (int i : scalars) {
    if (auto scalar = c.WithRank(i, 0); !scalar.ok()) {
      return scalar.status().WithContext("coefficient " + std::to_string(i) +
                                         " of an update must be a scalar");
    }
  }
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(grad + 1, 1));
  PartialShape rows = c.input(grad);
  if (!rows.known_rank()) return Status();
  if (rows.rank() == 0) return InvalidArgument("the gradient of rows must not be a scalar");
  if (rows.dim(0) >= 0 && indices.dim(0) >= 0 && rows.dim(0) != indices.dim(0)) {
    return InvalidArgument(std::to_string(rows.dim(0)) + " rows of a gradient but " +
                           std::to_string(indices.dim(0)) + " indices");
  }
  rows.set_dim(0, -1);
  for (int i = 0; c.input_dtype(i) == DT_RESOURCE; ++i) {
    if (auto both = PartialShape::Merge(c.handle_shape(i), rows); !both.ok()) {
      return both.status().WithContext("variable " + std::to_string(i) + " and rows of a gradient");
    }
  }
  return Status();
}

Status MomentumShape(ShapeContext& c) { return Check(c, 3, {2, 5}); }
Status AdagradShape(ShapeContext& c) { return Check(c, 3, {2}); }
Status AdagradV2Shape(ShapeContext& c) { return Check(c, 4, {2, 3}); }
Status RMSPropShape(ShapeContext& c) { return Check(c, 7, {3, 4, 5, 6}); }
Status CenteredRMSPropShape(ShapeContext& c) { return Check(c, 8, {4, 5, 6, 7}); }

Status AdadeltaShape(ShapeContext& c) { return Check(c, 6, {3, 4, 5}); }
Status FtrlShape(ShapeContext& c) { return Check(c, 3, {5, 6, 7, 8}); }
Status FtrlV2Shape(ShapeContext& c) { return Check(c, 3, {5, 6, 7, 8, 9}); }
Status ProximalGradientDescentShape(ShapeContext& c) { return Check(c, 4, {1, 2, 3}); }
Status ProximalAdagradShape(ShapeContext& c) { return Check(c, 5, {2, 3, 4}); }

constexpr std::string_view kResource = "Resource";

OpDef Update(const char* name, std::initializer_list<const char*> resources,
             std::initializer_list<const char*> values, ShapeFn shape) {
  OpDef def(name);
  for (const char* resource : resources) def.Input(std::string(resource) + ": resource");
  for (const std::string value : values) {
    def.Input(value + (value == "global_step" ? ": int64" : ": T"));
    if (value == "grad") def.Input("indices: Tindices");
  }
  def.Attr("T: {float, double, half, bfloat16}").Attr("Tindices: {int32, int64}");
  def.Attr("use_locking: bool = false").Stateful().Shape(shape).NoGradient();
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  const auto add = [registry](OpDef op) {
    registry->Add(op.ReferenceForm(op.name().substr(kResource.size()), "T", UnchangedShape));
    registry->Add(std::move(op));
  };
  add(Update("ResourceSparseApplyMomentum", {"var", "accum"}, {"lr", "grad", "momentum"},
             MomentumShape)
          .Attr("use_nesterov: bool = false"));
  add(Update("ResourceSparseApplyAdagrad", {"var", "accum"}, {"lr", "grad"}, AdagradShape)
          .Attr("update_slots: bool = true"));
  add(Update("ResourceSparseApplyAdagradV2", {"var", "accum"}, {"lr", "epsilon", "grad"},
             AdagradV2Shape)
          .Attr("update_slots: bool = true"));
  add(Update("ResourceSparseApplyRMSProp", {"var", "ms", "mom"},
             {"lr", "rho", "momentum", "epsilon", "grad"}, RMSPropShape));
  add(Update("ResourceSparseApplyCenteredRMSProp", {"var", "mg", "ms", "mom"},
             {"lr", "rho", "momentum", "epsilon", "grad"}, CenteredRMSPropShape));
  add(Update("ResourceSparseApplyAdadelta", {"var", "accum", "accum_update"},
             {"lr", "rho", "epsilon", "grad"}, AdadeltaShape));
  add(Update("ResourceSparseApplyFtrl", {"var", "accum", "linear"},
             {"grad", "lr", "l1", "l2", "lr_power"}, FtrlShape)
          .Attr("multiply_linear_by_lr: bool = false"));
  add(Update("ResourceSparseApplyFtrlV2", {"var", "accum", "linear"},
             {"grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"}, FtrlV2Shape)
          .Attr("multiply_linear_by_lr: bool = false"));
  add(Update("ResourceSparseApplyProximalGradientDescent", {"var"}, {"alpha", "l1", "l2", "grad"},
             ProximalGradientDescentShape));
  add(Update("ResourceSparseApplyProximalAdagrad", {"var", "accum"}, {"lr", "l1", "l2", "grad"},
             ProximalAdagradShape));
  add(Update("ResourceSparseApplyAdagradDA",
             {"var", "gradient_accumulator", "gradient_squared_accumulator"},
             {"grad", "lr", "l1", "l2", "global_step"}, FtrlShape));
  registry->Add(Update("ResourceSparseApplyKerasMomentum", {"var", "accum"},
                       {"lr", "grad", "momentum"}, MomentumShape)
                    .Attr("use_nesterov: bool = false"));
}

}  // namespace ops::sparse_training
}  // namespace monograph
