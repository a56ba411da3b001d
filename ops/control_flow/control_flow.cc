// Switch, Merge and what loops are made of: their functions in C++, the shapes of their outputs,
// the gradients of branches (those of loops: graph/gradients.cc), and the definitions, each with
// its form for references. RefSelect has no form for values: what runs takes handles.
#include "ops/control_flow/control_flow.h"

#include <string>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"

namespace monograph {

SwitchOutputs Switch(const Scope& scope, const Output& data, const Output& pred) {
  const Operation node = OpBuilder(scope, "Switch").Input(data).Input(pred).Build();
  return {node.output(0), node.output(1)};
}

MergeOutputs Merge(const Scope& scope, const Outputs& inputs) {
  const Operation node = OpBuilder(scope, "Merge").Inputs(inputs).Build();
  return {node.output(0), node.output(1)};
}

Output EnterLoop(const Scope& scope, const Output& data, std::string_view frame_name,
                 bool is_constant, int parallel_iterations) {
  return OpBuilder(scope, "Enter")
      .Input(data)
      .Attr("frame_name", std::string(frame_name))
      .Attr("is_constant", is_constant)
      .Attr("parallel_iterations", parallel_iterations)
      .BuildOutput();
}

Output ExitLoop(const Scope& scope, const Output& data) {
  return OpBuilder(scope, "Exit").Input(data).BuildOutput();
}

Output NextIteration(const Scope& scope, const Output& data) {
  return OpBuilder(scope, "NextIteration").Input(data).BuildOutput();
}

Output LoopCond(const Scope& scope, const Output& condition) {
  return OpBuilder(scope, "LoopCond").Input(condition).BuildOutput();
}

namespace ops::control_flow {
namespace {

Status SwitchShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, c.input(0));
  c.set_output(1, c.input(0));
  return Status();
}

// What all inputs from `first` on have in common.
PartialShape CommonShape(const ShapeContext& c, int first) {
  PartialShape common = c.input(first);
  for (int i = first + 1; i < c.num_inputs(); ++i) {
    const PartialShape& other = c.input(i);
    if (!common.known_rank() || !other.known_rank() || common.rank() != other.rank()) {
      common = PartialShape();
      break;
    }
    for (int d = 0; d < common.rank(); ++d) {
      if (common.dim(d) != other.dim(d)) common.set_dim(d, -1);
    }
  }
  return common;
}

Status MergeShape(ShapeContext& c) {
  c.set_output(0, CommonShape(c, 0));
  c.set_output(1, PartialShape::Scalar());
  return Status();
}

Status SelectShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, CommonShape(c, 1));
  return Status();
}

// A branch's gradient is computed where the branch is: of the side that was not taken it is dead.
Status SwitchGradient(GradientContext& c) {
  Outputs sides;
  for (int i = 0; i < 2; ++i)
    sides.push_back(c.grad(i).valid() ? c.grad(i) : ZerosOf(c.scope(), c.output(i)));
  c.set_grad(0, Merge(c.scope(), sides).output);
  return Status();
}

Status MergeGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Output taken = Equal(c.scope(), c.output(1), Const(c.scope(), i));
    c.set_grad(i, Switch(c.scope(), c.grad(0), taken).output_true);
  }
  return Status();
}

// `ref`: the op, RefSwitch or such, is the form for references. It serves values as well.
void Add(OpDef op, bool ref, OpRegistry* registry) {
  if (ref) op.ByHandle({op.name().substr(3), {{"T", ""}}});
  registry->Add(std::move(op.ReadsOnly()));
}

OpDef Passes(const std::string& name, const std::string& type, FlowOp flow) {
  return OpDef(name)
      .Input("data: " + type)
      .Output("output: " + type)
      .Attr("T: type")
      .Flow(flow)
      .Shape(UnchangedShape)
      .NoGradient();  // AddGradients takes a loop as a whole
}

void DefineFor(bool ref, OpRegistry* registry) {
  const std::string prefix = ref ? "Ref" : "", type = ref ? "Ref(T)" : "T";
  Add(OpDef(prefix + "Switch")
          .Input("data: " + type)
          .Input("pred: bool")
          .Output("output_false: " + type)
          .Output("output_true: " + type)
          .Attr("T: type")
          .Flow(FlowOp::kSwitch)
          .Shape(SwitchShape)
          .Gradient(SwitchGradient),
      ref, registry);
  Add(OpDef(prefix + "Merge")
          .Input(ref ? "inputs: Ref(N * T)" : "inputs: N * T")
          .Output("output: " + type)
          .Output("value_index: int32")
          .Attr("T: type")
          .Attr("N: int >= 1")
          .Flow(FlowOp::kMerge)
          .Shape(MergeShape)
          .Gradient(MergeGradient),
      ref, registry);
  Add(Passes(prefix + "Enter", type, FlowOp::kEnter)
          .Attr("frame_name: string")
          .Attr("is_constant: bool = false")
          .Attr("parallel_iterations: int = 10"),
      ref, registry);
  Add(Passes(prefix + "Exit", type, FlowOp::kExit), ref, registry);
  Add(Passes(prefix + "NextIteration", type, FlowOp::kNextIteration), ref, registry);
}

// `choice`: the type of what is chosen from.
OpDef Select(const char* op, const std::string& choices, const char* choice) {
  return OpDef(op)
      .Input("index: int32")
      .Input("inputs: " + choices)
      .Output(std::string("output: ") + choice)
      .Attr("N: int >= 1")
      .ReadsOnly()
      .Shape(SelectShape);
}

}  // namespace

void Define(OpRegistry* registry) {
  DefineFor(false, registry);
  DefineFor(true, registry);
  registry->Add(OpDef("LoopCond")
                    .Input("input: bool")
                    .Output("output: bool")
                    .ReadsOnly()
                    .Flow(FlowOp::kLoopCond)
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(Select("RefSelect", "Ref(N * T)", "Ref(T)")
                    .Attr("T: type")
                    .ByHandle({"_SelectHandle", {{"T", ""}}}));
  registry->Add(Select("_SelectHandle", "N * resource", "resource").NoGradient());
  registry->Add(OpDef("ControlTrigger").Flow(FlowOp::kTrigger).Shape(NoOutputs).NoGradient());
}

}  // namespace ops::control_flow
}  // namespace monograph
