// The update ops of optimizers: functions that build the nodes, shape functions, definitions. Each
// takes the handles of a variable and its slots, scalar coefficients, and the gradient, and has no
// output: it writes the variables. _MultiResourceApply, which GroupUpdates makes on GPUs, is any of
// them for many variables at once.
#include "ops/training/training.h"

#include "graph/shape_inference.h"

namespace monograph {

Operation ResourceApplyGradientDescent(const Scope& scope, Output var, Output alpha, Output delta) {
  return OpBuilder(scope, "ResourceApplyGradientDescent")
      .Input(var)
      .Input(alpha)
      .Input(delta)
      .Build();
}

Operation ResourceApplyMomentum(const Scope& scope, Output var, Output accum, Output lr,
                                Output grad, Output momentum, bool use_nesterov) {
  return OpBuilder(scope, "ResourceApplyMomentum")
      .Input(var)
      .Input(accum)
      .Input(lr)
      .Input(grad)
      .Input(momentum)
      .Attr("use_nesterov", AttrValue(use_nesterov))
      .Build();
}

Operation ResourceApplyAdam(const Scope& scope, Output var, Output m, Output v, Output beta1_power,
                            Output beta2_power, Output lr, Output beta1, Output beta2,
                            Output epsilon, Output grad, bool use_nesterov) {
  OpBuilder builder(scope, "ResourceApplyAdam");
  for (const Output& input : {var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad})
    builder.Input(input);
  return builder.Attr("use_nesterov", AttrValue(use_nesterov)).Build();
}

Operation ResourceApplyAdagrad(const Scope& scope, Output var, Output accum, Output lr, Output grad,
                               bool update_slots) {
  return OpBuilder(scope, "ResourceApplyAdagrad")
      .Input(var)
      .Input(accum)
      .Input(lr)
      .Input(grad)
      .Attr("update_slots", AttrValue(update_slots))
      .Build();
}

Operation ResourceApplyAdagradV2(const Scope& scope, Output var, Output accum, Output lr,
                                 Output epsilon, Output grad, bool update_slots) {
  return OpBuilder(scope, "ResourceApplyAdagradV2")
      .Input(var)
      .Input(accum)
      .Input(lr)
      .Input(epsilon)
      .Input(grad)
      .Attr("update_slots", AttrValue(update_slots))
      .Build();
}

Operation ResourceApplyRMSProp(const Scope& scope, Output var, Output ms, Output mom, Output lr,
                               Output rho, Output momentum, Output epsilon, Output grad) {
  OpBuilder builder(scope, "ResourceApplyRMSProp");
  for (const Output& input : {var, ms, mom, lr, rho, momentum, epsilon, grad}) builder.Input(input);
  return builder.Build();
}

Operation ResourceApplyCenteredRMSProp(const Scope& scope, Output var, Output mg, Output ms,
                                       Output mom, Output lr, Output rho, Output momentum,
                                       Output epsilon, Output grad) {
  OpBuilder builder(scope, "ResourceApplyCenteredRMSProp");
  for (const Output& input : {var, mg, ms, mom, lr, rho, momentum, epsilon, grad})
    builder.Input(input);
  return builder.Build();
}

namespace ops::training {
namespace {

// Checks that the inputs `scalars` are scalars and that every variable has the shape of the input
// `gradient`.
Status Check(ShapeContext& c, std::initializer_list<int> scalars, int gradient) {
  for (int i : scalars) {
    if (auto scalar = c.WithRank(i, 0); !scalar.ok()) {
      return scalar.status().WithContext("coefficient " + std::to_string(i) +
                                         " of an update must be a scalar");
    }
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input_dtype(i) != DT_RESOURCE) continue;
    if (auto both = PartialShape::Merge(c.handle_shape(i), c.input(gradient)); !both.ok()) {
      return both.status().WithContext("variable " + std::to_string(i) + " and the gradient");
    }
  }
  return Status();
}

Status GradientDescentShape(ShapeContext& c) { return Check(c, {1}, 2); }
Status MomentumShape(ShapeContext& c) { return Check(c, {2, 4}, 3); }
Status AdamShape(ShapeContext& c) { return Check(c, {3, 4, 5, 6, 7, 8}, 9); }
Status AmsgradShape(ShapeContext& c) { return Check(c, {4, 5, 6, 7, 8, 9}, 10); }
Status AdagradShape(ShapeContext& c) { return Check(c, {2}, 3); }
Status AdagradV2Shape(ShapeContext& c) { return Check(c, {2, 3}, 4); }
Status RMSPropShape(ShapeContext& c) { return Check(c, {3, 4, 5, 6}, 7); }
Status CenteredRMSPropShape(ShapeContext& c) { return Check(c, {4, 5, 6, 7}, 8); }

Status AdadeltaShape(ShapeContext& c) { return Check(c, {3, 4, 5}, 6); }
Status FtrlShape(ShapeContext& c) { return Check(c, {4, 5, 6, 7}, 3); }
Status FtrlV2Shape(ShapeContext& c) { return Check(c, {4, 5, 6, 7, 8}, 3); }
Status ProximalGradientDescentShape(ShapeContext& c) { return Check(c, {1, 2, 3}, 4); }
Status ProximalAdagradShape(ShapeContext& c) { return Check(c, {2, 3, 4}, 5); }
Status SignShape(ShapeContext& c) { return Check(c, {2, 3, 4, 5}, 6); }
Status AdaMaxShape(ShapeContext& c) { return Check(c, {3, 4, 5, 6, 7}, 8); }

constexpr std::string_view kResource = "Resource";

OpDef Update(const char* name, std::initializer_list<const char*> resources,
             std::initializer_list<const char*> values, ShapeFn shape) {
  OpDef def(name);
  for (const char* resource : resources) def.Input(std::string(resource) + ": resource");
  for (const std::string value : values)
    def.Input(value + (value == "global_step" ? ": int64" : ": T"));
  def.Attr("T: {float, double, half, bfloat16}").Attr("use_locking: bool = false");
  def.Stateful().Shape(shape).NoGradient();
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  const auto add = [registry](OpDef op) {
    registry->Add(op.ReferenceForm(op.name().substr(kResource.size()), "T", UnchangedShape));
    registry->Add(std::move(op));
  };
  add(Update("ResourceApplyGradientDescent", {"var"}, {"alpha", "delta"}, GradientDescentShape));
  add(Update("ResourceApplyMomentum", {"var", "accum"}, {"lr", "grad", "momentum"}, MomentumShape)
          .Attr("use_nesterov: bool = false"));
  add(Update("ResourceApplyAdam", {"var", "m", "v"},
             {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"}, AdamShape)
          .Attr("use_nesterov: bool = false"));
  add(Update("ResourceApplyAdagrad", {"var", "accum"}, {"lr", "grad"}, AdagradShape)
          .Attr("update_slots: bool = true"));
  add(Update("ResourceApplyAdagradV2", {"var", "accum"}, {"lr", "epsilon", "grad"}, AdagradV2Shape)
          .Attr("update_slots: bool = true"));
  add(Update("ResourceApplyRMSProp", {"var", "ms", "mom"},
             {"lr", "rho", "momentum", "epsilon", "grad"}, RMSPropShape));
  add(Update("ResourceApplyCenteredRMSProp", {"var", "mg", "ms", "mom"},
             {"lr", "rho", "momentum", "epsilon", "grad"}, CenteredRMSPropShape));
  add(Update("ResourceApplyAdadelta", {"var", "accum", "accum_update"},
             {"lr", "rho", "epsilon", "grad"}, AdadeltaShape));
  add(Update("ResourceApplyFtrl", {"var", "accum", "linear"},
             {"grad", "lr", "l1", "l2", "lr_power"}, FtrlShape)
          .Attr("multiply_linear_by_lr: bool = false"));
  add(Update("ResourceApplyFtrlV2", {"var", "accum", "linear"},
             {"grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"}, FtrlV2Shape)
          .Attr("multiply_linear_by_lr: bool = false"));
  add(Update("ResourceApplyProximalGradientDescent", {"var"}, {"alpha", "l1", "l2", "delta"},
             ProximalGradientDescentShape));
  add(Update("ResourceApplyProximalAdagrad", {"var", "accum"}, {"lr", "l1", "l2", "grad"},
             ProximalAdagradShape));
  add(Update("ResourceApplyAdagradDA",
             {"var", "gradient_accumulator", "gradient_squared_accumulator"},
             {"grad", "lr", "l1", "l2", "global_step"}, FtrlShape));
  add(Update("ResourceApplyAddSign", {"var", "m"}, {"lr", "alpha", "sign_decay", "beta", "grad"},
             SignShape));
  add(Update("ResourceApplyPowerSign", {"var", "m"},
             {"lr", "logbase", "sign_decay", "beta", "grad"}, SignShape));
  add(Update("ResourceApplyAdaMax", {"var", "m", "v"},
             {"beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"}, AdaMaxShape));
  registry->Add(Update("ResourceApplyKerasMomentum", {"var", "accum"}, {"lr", "grad", "momentum"},
                       MomentumShape)
                    .Attr("use_nesterov: bool = false"));
  registry->Add(Update("ResourceApplyAdamWithAmsgrad", {"var", "m", "v", "vhat"},
                       {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"},
                       AmsgradShape));
  registry->Add(OpDef("_MultiResourceApply")
                    .Input("variables: V * resource")
                    .Input("coefficients: C * T")
                    .Input("gradients: G")
                    .Attr("update: string")
                    .Attr("flag: bool = false")
                    .Attr("V: int >= 1")
                    .Attr("C: int >= 1")
                    .Attr("N: int >= 1")
                    .Attr("G: list(type)")
                    .Attr("T: {float, double, half, bfloat16}")
                    .Stateful()
                    .Shape([](ShapeContext&) { return Status(); })
                    .NoGradient());
}

}  // namespace ops::training
}  // namespace monograph
