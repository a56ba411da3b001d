#include "ops/stack/stack.h"

#include <string>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output Stack(const Scope& scope, DType elem_type, const Output& max_size) {
  return OpBuilder(scope, "StackV2").Input(max_size).Attr("elem_type", elem_type).BuildOutput();
}

Output StackPush(const Scope& scope, const Output& stack, const Output& elem) {
  return OpBuilder(scope, "StackPushV2").Input(stack).Input(elem).BuildOutput();
}

Output StackPop(const Scope& scope, const Output& stack, DType elem_type) {
  return OpBuilder(scope, "StackPopV2").Input(stack).Attr("elem_type", elem_type).BuildOutput();
}

Operation StackClose(const Scope& scope, const Output& stack) {
  return OpBuilder(scope, "StackCloseV2").Input(stack).Build();
}

namespace ops::stack {
namespace {

Status StackShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return c.WithRank(0, 0).status();
}
Status PushShape(ShapeContext& c) {
  c.set_output(0, c.input(1));
  return Status();
}
Status PopShape(ShapeContext&) { return Status(); }

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("StackV2")
                    .Input("max_size: int32")
                    .Output("handle: resource")
                    .Attr("elem_type: type")
                    .Attr("stack_name: string = ''")
                    .Stateful()
                    .Shape(StackShape)
                    .NoGradient());
  registry->Add(OpDef("StackPushV2")
                    .Input("handle: resource")
                    .Input("elem: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("swap_memory: bool = false")
                    .Stateful()
                    .Shape(PushShape)
                    .NoGradient());
  registry->Add(OpDef("StackPopV2")
                    .Input("handle: resource")
                    .Output("elem: elem_type")
                    .Attr("elem_type: type")
                    .Stateful()
                    .Shape(PopShape)
                    .NoGradient());
  registry->Add(
      OpDef("StackCloseV2").Input("handle: resource").Stateful().Shape(NoOutputs).NoGradient());
  // Of any size, as the first op was.
  registry->Add(OpDef("_Stack")
                    .Output("handle: resource")
                    .Attr("elem_type: type")
                    .Attr("stack_name: string = ''")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->AddStringReferenceForm("Stack", "_Stack");
  for (const std::string name : {"StackPush", "StackPop", "StackClose"})
    registry->AddStringReferenceForm(name, name + "V2");
}

}  // namespace ops::stack
}  // namespace monograph
