#include "ops/control_flow/control_flow.h"

#include <string>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

SwitchOutputs Switch(const Scope& scope, const Output& data, const Output& pred) {
  const Operation node = OpBuilder(scope, "Switch").Input(data).Input(pred).Build();
  return {node.output(0), node.output(1)};
}

MergeOutputs Merge(const Scope& scope, const Outputs& inputs) {
  const Operation node = OpBuilder(scope, "Merge").Inputs(inputs).Build();
  return {node.output(0), node.output(1)};
}

Output Enter(const Scope& scope, const Output& data, std::string_view frame_name, bool is_constant,
             int parallel_iterations) {
  return OpBuilder(scope, "Enter")
      .Input(data)
      .Attr("frame_name", std::string(frame_name))
      .Attr("is_constant", is_constant)
      .Attr("parallel_iterations", parallel_iterations)
      .BuildOutput();
}

Output Exit(const Scope& scope, const Output& data) {
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

// What all inputs have in common.
Status MergeShape(ShapeContext& c) {
  PartialShape common = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    const PartialShape& other = c.input(i);
    if (!common.known_rank() || !other.known_rank() || common.rank() != other.rank()) {
      common = PartialShape();
      break;
    }
    for (int d = 0; d < common.rank(); ++d) {
      if (common.dim(d) != other.dim(d)) common.set_dim(d, -1);
    }
  }
  c.set_output(0, common);
  c.set_output(1, PartialShape::Scalar());
  return Status();
}

OpDef Passes(const char* name, FlowOp flow) {
  return OpDef(name)
      .Input("data: T")
      .Output("output: T")
      .Attr("T: type")
      .ReadsOnly()
      .Flow(flow)
      .Shape(UnchangedShape);
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Switch")
                    .Input("data: T")
                    .Input("pred: bool")
                    .Output("output_false: T")
                    .Output("output_true: T")
                    .Attr("T: type")
                    .ReadsOnly()
                    .Flow(FlowOp::kSwitch)
                    .Shape(SwitchShape));
  registry->Add(OpDef("Merge")
                    .Input("inputs: N * T")
                    .Output("output: T")
                    .Output("value_index: int32")
                    .Attr("T: type")
                    .Attr("N: int >= 1")
                    .ReadsOnly()
                    .Flow(FlowOp::kMerge)
                    .Shape(MergeShape));
  registry->Add(Passes("Enter", FlowOp::kEnter)
                    .Attr("frame_name: string")
                    .Attr("is_constant: bool = false")
                    .Attr("parallel_iterations: int = 10"));
  registry->Add(Passes("Exit", FlowOp::kExit));
  registry->Add(Passes("NextIteration", FlowOp::kNextIteration));
  registry->Add(OpDef("LoopCond")
                    .Input("input: bool")
                    .Output("output: bool")
                    .ReadsOnly()
                    .Flow(FlowOp::kLoopCond)
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("ControlTrigger").Flow(FlowOp::kTrigger).Shape(NoOutputs).NoGradient());
}

}  // namespace ops::control_flow
}  // namespace monograph
