// Functions, shape functions, gradients and definitions, op by op. What hands its input on hands
// the gradient back; StopGradient has none, and PreventGradient's is an error.
#include "ops/control/control.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/types.h"

namespace monograph {

Operation NoOp(const Scope& scope) { return OpBuilder(scope, "NoOp").Build(); }

Operation Group(const Scope& scope, std::span<const Operation> operations) {
  return NoOp(scope.WithControlDependencies(operations));
}

Operation Assert(const Scope& scope, const Output& condition, const Outputs& data, int summarize) {
  return OpBuilder(scope, "Assert")
      .Input(condition)
      .Inputs(data)
      .Attr("summarize", summarize)
      .Build();
}

Output Identity(const Scope& scope, const Output& input) {
  return OpBuilder(scope, "Identity").Input(input).BuildOutput();
}

Outputs IdentityN(const Scope& scope, const Outputs& inputs) {
  const Operation node = OpBuilder(scope, "IdentityN").Inputs(inputs).Build();
  Outputs outputs;
  for (size_t i = 0; i < inputs.size(); ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

Output StopGradient(const Scope& scope, const Output& input) {
  return OpBuilder(scope, "StopGradient").Input(input).BuildOutput();
}

Output PreventGradient(const Scope& scope, const Output& input, std::string_view message) {
  return OpBuilder(scope, "PreventGradient")
      .Input(input)
      .Attr("message", std::string(message))
      .BuildOutput();
}

Output CheckNumerics(const Scope& scope, const Output& tensor, std::string_view message) {
  return OpBuilder(scope, "CheckNumerics")
      .Input(tensor)
      .Attr("message", std::string(message))
      .BuildOutput();
}

namespace ops::control {
namespace {

Status EachUnchanged(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, c.input(i));
  return Status();
}

Status AssertShape(ShapeContext& c) { return c.WithRank(0, 0).status(); }

Status IdentityGradient(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_gradient(i, c.gradient(i));
  return Status();
}

Status PrintGradient(GradientContext& c) {
  c.set_gradient(0, c.gradient(0));
  return Status();
}

Status PreventedGradient(GradientContext& c) {
  return InvalidArgument("a gradient was asked for through '" + std::string(c.op().name()) +
                         "', which prevents it: " + c.attrs().GetOr<std::string>("message", ""));
}

Status CheckNumericsGradient(GradientContext& c) {
  c.set_grad(0, CheckNumerics(c.scope(), c.grad(0),
                              "Not a number (NaN) or infinity (Inf) values detected in gradient. " +
                                  c.attrs().Get<std::string>("message")));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("NoOp").Shape(NoOutputs).NoGradient());
  registry->Add(OpDef("Assert")
                    .Input("condition: bool")
                    .Input("data: T")
                    .Attr("T: list(type)")
                    .Attr("summarize: int = 3")
                    .Stateful()
                    .Shape(AssertShape)
                    .NoGradient());
  registry->Add(OpDef("Identity")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .ReadsOnly()
                    .Shape(UnchangedShape)
                    .Gradient(IdentityGradient));
  for (const char* name : {"DebugGradientIdentity", "GuaranteeConst"})
    registry->AddOtherName(name, "Identity");
  registry->Add(OpDef("IdentityN")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: list(type)")
                    .ReadsOnly()
                    .Shape(EachUnchanged)
                    .Gradient(IdentityGradient));
  registry->Add(OpDef("StopGradient")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .ReadsOnly()
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("PreventGradient")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("message: string = ''")
                    .ReadsOnly()
                    .Shape(UnchangedShape)
                    .Gradient(PreventedGradient));
  registry->Add(OpDef("CheckNumerics")
                    .Input("tensor: T")
                    .Output("output: T")
                    .Attr("T: " MG_OP_FLOAT_TYPES)
                    .Attr("message: string")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .Gradient(CheckNumericsGradient));
  registry->Add(OpDef("Print")
                    .Input("input: T")
                    .Input("data: U")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("U: list(type) >= 0")
                    .Attr("message: string = ''")
                    .Attr("first_n: int = -1")
                    .Attr("summarize: int = 3")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .Gradient(PrintGradient));
  registry->Add(OpDef("PrintV2")
                    .Input("input: string")
                    .Attr("output_stream: string = 'stderr'")
                    .Attr("end: string = '\n'")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
}

}  // namespace ops::control
}  // namespace monograph
