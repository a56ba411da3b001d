// Definitions of TensorFlow's TensorArray ops, and the functions that add them to a graph. Nodes of
// the first two versions, whose handles were strings, become nodes of the third. What is known of
// the shape of elements comes from the array's node, as far as the graph sees it from the handle
// (handle_shape).
#include "ops/tensor_array/tensor_array.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {
namespace {

Output Node(const Scope& scope, const char* op, std::initializer_list<Output> inputs) {
  OpBuilder builder(scope, op);
  for (const Output& input : inputs) builder.Input(input);
  return builder.BuildOutput();
}

}  // namespace

TensorArrayOutputs TensorArray(const Scope& scope, const Output& size, DType dtype,
                               const TensorArrayOptions& options) {
  const Operation node = OpBuilder(scope, "TensorArrayV3")
                             .Input(size)
                             .Attr("dtype", dtype)
                             .Attr("element_shape", options.element_shape)
                             .Attr("dynamic_size", options.dynamic_size)
                             .Attr("clear_after_read", options.clear_after_read)
                             .Attr("identical_element_shapes", options.identical_element_shapes)
                             .Attr("tensor_array_name", options.name)
                             .Build();
  return {node.output(0), node.output(1)};
}

TensorArrayOutputs TensorArrayGrad(const Scope& scope, const Output& handle, const Output& flow,
                                   const std::string& source) {
  const Operation node = OpBuilder(scope, "TensorArrayGradV3")
                             .Input(handle)
                             .Input(flow)
                             .Attr("source", source)
                             .Build();
  return {node.output(0), node.output(1)};
}

TensorArrayOutputs TensorArrayGradWithShape(const Scope& scope, const Output& handle,
                                            const Output& flow, const Output& shape_to_prepend,
                                            const std::string& source) {
  const Operation node = OpBuilder(scope, "TensorArrayGradWithShape")
                             .Input(handle)
                             .Input(flow)
                             .Input(shape_to_prepend)
                             .Attr("source", source)
                             .Build();
  return {node.output(0), node.output(1)};
}

Output TensorArrayWrite(const Scope& scope, const Output& handle, const Output& index,
                        const Output& value, const Output& flow) {
  return Node(scope, "TensorArrayWriteV3", {handle, index, value, flow});
}

Output TensorArrayScatter(const Scope& scope, const Output& handle, const Output& indices,
                          const Output& value, const Output& flow) {
  return Node(scope, "TensorArrayScatterV3", {handle, indices, value, flow});
}

Output TensorArraySplit(const Scope& scope, const Output& handle, const Output& value,
                        const Output& lengths, const Output& flow) {
  return Node(scope, "TensorArraySplitV3", {handle, value, lengths, flow});
}

Output TensorArrayRead(const Scope& scope, const Output& handle, const Output& index,
                       const Output& flow, DType dtype) {
  return OpBuilder(scope, "TensorArrayReadV3")
      .Input(handle)
      .Input(index)
      .Input(flow)
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output TensorArrayGather(const Scope& scope, const Output& handle, const Output& indices,
                         const Output& flow, DType dtype, const PartialShape& element_shape) {
  return OpBuilder(scope, "TensorArrayGatherV3")
      .Input(handle)
      .Input(indices)
      .Input(flow)
      .Attr("dtype", dtype)
      .Attr("element_shape", element_shape)
      .BuildOutput();
}

TensorArrayConcatOutputs TensorArrayConcat(const Scope& scope, const Output& handle,
                                           const Output& flow, DType dtype,
                                           const PartialShape& element_shape_except0) {
  const Operation node = OpBuilder(scope, "TensorArrayConcatV3")
                             .Input(handle)
                             .Input(flow)
                             .Attr("dtype", dtype)
                             .Attr("element_shape_except0", element_shape_except0)
                             .Build();
  return {node.output(0), node.output(1)};
}

Output TensorArraySize(const Scope& scope, const Output& handle, const Output& flow) {
  return Node(scope, "TensorArraySizeV3", {handle, flow});
}

Operation TensorArrayClose(const Scope& scope, const Output& handle) {
  return OpBuilder(scope, "TensorArrayCloseV3").Input(handle).Build();
}

namespace ops::tensor_array {
namespace {

Status ArrayShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  c.set_output(1, PartialShape::Scalar());
  return c.num_inputs() == 1 ? c.WithRank(0, 0).status() : Status();
}
Status WriteShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return PartialShape::Merge(c.handle_shape(0), c.input(2)).status();
}
Status ReadShape(ShapeContext& c) {
  c.set_output(0, c.handle_shape(0));
  return c.WithRank(1, 0).status();
}
Status GatherShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MG_ASSIGN_OR_RETURN(
      const PartialShape element,
      PartialShape::Merge(c.attr<PartialShape>("element_shape"), c.handle_shape(0)));
  c.set_output(0, Prepended(indices.dim(0), element));
  return Status();
}
Status ScatterShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  const PartialShape& value = c.input(2);
  if (!value.known_rank() || value.rank() == 0) return Status();
  return PartialShape::Merge(c.handle_shape(0), PartialShape(value.dims().subspan(1))).status();
}
Status PackShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(
      const PartialShape element,
      PartialShape::Merge(c.attr<PartialShape>("element_shape"), c.handle_shape(0)));
  c.set_output(0, Prepended(-1, element));
  return Status();
}
Status SplitShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return c.WithRank(2, 1).status();
}
Status ConcatShape(ShapeContext& c) {
  c.set_output(0, Prepended(-1, c.attr<PartialShape>("element_shape_except0")));
  c.set_output(1, PartialShape{-1});
  return Status();
}

// The gradient of an array's flow is the flow of its gradient array; one AddGradients has one
// gradient array per array (c.call() names it). Writes to it precede this node in the order of
// gradients.

TensorArrayOutputs ArrayOfGradients(GradientContext& c, const Output& flow) {
  return TensorArrayGrad(c.scope(), c.input(0), flow, c.call());
}

Status WriteGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.grad(0));
  c.set_grad(2,
             TensorArrayRead(c.scope(), array.handle, c.input(1), array.flow, c.input(2).dtype()));
  c.set_grad(3, c.grad(0));
  return Status();
}
Status ReadGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.input(2));
  c.set_grad(2, TensorArrayWrite(c.scope(), array.handle, c.input(1), c.grad(0), array.flow));
  return Status();
}
Status GatherGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.input(2));
  c.set_grad(2, TensorArrayScatter(c.scope(), array.handle, c.input(1), c.grad(0), array.flow));
  return Status();
}
Status PackGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.input(1));
  c.set_grad(1, Node(c.scope(), "TensorArrayUnpack", {array.handle, c.grad(0), array.flow}));
  return Status();
}
Status UnpackGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.grad(0));
  c.set_grad(1, OpBuilder(c.scope(), "TensorArrayPack")
                    .Input(array.handle)
                    .Input(array.flow)
                    .Attr("dtype", c.input(1).dtype())
                    .BuildOutput());
  c.set_grad(2, c.grad(0));
  return Status();
}
Status ScatterGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.grad(0));
  c.set_grad(
      2, TensorArrayGather(c.scope(), array.handle, c.input(1), array.flow, c.input(2).dtype()));
  c.set_grad(3, c.grad(0));
  return Status();
}
Status ConcatGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();
  const TensorArrayOutputs array = ArrayOfGradients(c, c.input(1));
  c.set_grad(1, TensorArraySplit(c.scope(), array.handle, c.grad(0), c.output(1), array.flow));
  return Status();
}
Status SplitGradient(GradientContext& c) {
  const TensorArrayOutputs array = ArrayOfGradients(c, c.grad(0));
  c.set_grad(1, TensorArrayConcat(c.scope(), array.handle, array.flow, c.input(1).dtype()).value);
  c.set_grad(3, c.grad(0));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("TensorArrayV3")
                    .Input("size: int32")
                    .Output("handle: resource")
                    .Output("flow: float")
                    .Attr("dtype: type")
                    .Attr("element_shape: shape = { unknown_rank: true }")
                    .Attr("dynamic_size: bool = false")
                    .Attr("clear_after_read: bool = true")
                    .Attr("identical_element_shapes: bool = false")
                    .Attr("tensor_array_name: string = ''")
                    .Stateful()
                    .Shape(ArrayShape)
                    .NoGradient());
  registry->Add(OpDef("TensorArrayGradV3")
                    .Input("handle: resource")
                    .Input("flow_in: float")
                    .Output("grad_handle: resource")
                    .Output("flow_out: float")
                    .Attr("source: string")
                    .Stateful()
                    .Shape(ArrayShape)
                    .NoGradient());
  registry->Add(OpDef("TensorArrayGradWithShape")
                    .Input("handle: resource")
                    .Input("flow_in: float")
                    .Input("shape_to_prepend: int32")
                    .Output("grad_handle: resource")
                    .Output("flow_out: float")
                    .Attr("source: string")
                    .Stateful()
                    .Shape(ArrayShape)
                    .NoGradient());
  registry->Add(OpDef("TensorArrayWriteV3")
                    .Input("handle: resource")
                    .Input("index: int32")
                    .Input("value: T")
                    .Input("flow_in: float")
                    .Output("flow_out: float")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(WriteShape)
                    .Gradient(WriteGradient));
  registry->Add(OpDef("TensorArrayReadV3")
                    .Input("handle: resource")
                    .Input("index: int32")
                    .Input("flow_in: float")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Stateful()
                    .Shape(ReadShape)
                    .Gradient(ReadGradient));
  registry->Add(OpDef("TensorArrayGatherV3")
                    .Input("handle: resource")
                    .Input("indices: int32")
                    .Input("flow_in: float")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Attr("element_shape: shape = { unknown_rank: true }")
                    .Stateful()
                    .Shape(GatherShape)
                    .Gradient(GatherGradient));
  registry->Add(OpDef("TensorArrayScatterV3")
                    .Input("handle: resource")
                    .Input("indices: int32")
                    .Input("value: T")
                    .Input("flow_in: float")
                    .Output("flow_out: float")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(ScatterShape)
                    .Gradient(ScatterGradient));
  registry->Add(OpDef("TensorArrayConcatV3")
                    .Input("handle: resource")
                    .Input("flow_in: float")
                    .Output("value: dtype")
                    .Output("lengths: int64")
                    .Attr("dtype: type")
                    .Attr("element_shape_except0: shape = { unknown_rank: true }")
                    .Stateful()
                    .Shape(ConcatShape)
                    .Gradient(ConcatGradient));
  registry->Add(OpDef("TensorArraySplitV3")
                    .Input("handle: resource")
                    .Input("value: T")
                    .Input("lengths: int64")
                    .Input("flow_in: float")
                    .Output("flow_out: float")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(SplitShape)
                    .Gradient(SplitGradient));
  registry->Add(OpDef("TensorArraySizeV3")
                    .Input("handle: resource")
                    .Input("flow_in: float")
                    .Output("size: int32")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("TensorArrayCloseV3")
                    .Input("handle: resource")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  // Of the first version alone: a gather of all elements, a scatter to all.
  registry->Add(OpDef("TensorArrayPack")
                    .Input("handle: resource")
                    .Input("flow_in: float")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Attr("element_shape: shape = { unknown_rank: true }")
                    .Stateful()
                    .Shape(PackShape)
                    .Gradient(PackGradient));
  registry->Add(OpDef("TensorArrayUnpack")
                    .Input("handle: resource")
                    .Input("value: T")
                    .Input("flow_in: float")
                    .Output("flow_out: float")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(ScalarShape)
                    .Gradient(UnpackGradient));
  for (const std::string op :
       {"", "Grad", "Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size", "Close"}) {
    const std::string name = "TensorArray" + op;
    for (const char* version : {"", "V2"}) registry->AddOtherName(name + version, name + "V3");
  }
}

}  // namespace ops::tensor_array
}  // namespace monograph
