// Definitions of TensorFlow's ops on lists of tensors, the functions that add them to a graph, and
// their gradients: the gradient of a read is a write into a list of gradients, and the reverse.
#include "ops/tensor_list/tensor_list.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/gather/gather.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"

namespace monograph {

Output EmptyTensorList(const Scope& scope, const Output& element_shape,
                       const Output& max_num_elements, DType element_dtype) {
  return OpBuilder(scope, "EmptyTensorList")
      .Input(element_shape)
      .Input(max_num_elements)
      .Attr("element_dtype", element_dtype)
      .BuildOutput();
}

Output TensorListReserve(const Scope& scope, const Output& element_shape,
                         const Output& num_elements, DType element_dtype) {
  return OpBuilder(scope, "TensorListReserve")
      .Input(element_shape)
      .Input(num_elements)
      .Attr("element_dtype", element_dtype)
      .BuildOutput();
}

Output TensorListFromTensor(const Scope& scope, const Output& tensor, const Output& element_shape) {
  return OpBuilder(scope, "TensorListFromTensor").Input(tensor).Input(element_shape).BuildOutput();
}

Output TensorListScatter(const Scope& scope, const Output& tensor, const Output& indices,
                         const Output& element_shape, const Output& num_elements) {
  return OpBuilder(scope, "TensorListScatterV2")
      .Input(tensor)
      .Input(indices)
      .Input(element_shape)
      .Input(num_elements)
      .BuildOutput();
}

Output TensorListSplit(const Scope& scope, const Output& tensor, const Output& element_shape,
                       const Output& lengths) {
  return OpBuilder(scope, "TensorListSplit")
      .Input(tensor)
      .Input(element_shape)
      .Input(lengths)
      .BuildOutput();
}

Output TensorListPushBack(const Scope& scope, const Output& list, const Output& tensor) {
  return OpBuilder(scope, "TensorListPushBack").Input(list).Input(tensor).BuildOutput();
}

Output TensorListSetItem(const Scope& scope, const Output& list, const Output& index,
                         const Output& item) {
  return OpBuilder(scope, "TensorListSetItem").Input(list).Input(index).Input(item).BuildOutput();
}

Output TensorListResize(const Scope& scope, const Output& list, const Output& size) {
  return OpBuilder(scope, "TensorListResize").Input(list).Input(size).BuildOutput();
}

Output TensorListScatterIntoExistingList(const Scope& scope, const Output& list,
                                         const Output& tensor, const Output& indices) {
  return OpBuilder(scope, "TensorListScatterIntoExistingList")
      .Input(list)
      .Input(tensor)
      .Input(indices)
      .BuildOutput();
}

TensorListPopBackOutputs TensorListPopBack(const Scope& scope, const Output& list,
                                           const Output& element_shape, DType element_dtype) {
  const Operation node = OpBuilder(scope, "TensorListPopBack")
                             .Input(list)
                             .Input(element_shape)
                             .Attr("element_dtype", element_dtype)
                             .Build();
  return {node.output(0), node.output(1)};
}

Output TensorListGetItem(const Scope& scope, const Output& list, const Output& index,
                         const Output& element_shape, DType element_dtype) {
  return OpBuilder(scope, "TensorListGetItem")
      .Input(list)
      .Input(index)
      .Input(element_shape)
      .Attr("element_dtype", element_dtype)
      .BuildOutput();
}

Output TensorListStack(const Scope& scope, const Output& list, const Output& element_shape,
                       DType element_dtype, int64_t num_elements) {
  return OpBuilder(scope, "TensorListStack")
      .Input(list)
      .Input(element_shape)
      .Attr("element_dtype", element_dtype)
      .Attr("num_elements", num_elements)
      .BuildOutput();
}

Output TensorListGather(const Scope& scope, const Output& list, const Output& indices,
                        const Output& element_shape, DType element_dtype) {
  return OpBuilder(scope, "TensorListGather")
      .Input(list)
      .Input(indices)
      .Input(element_shape)
      .Attr("element_dtype", element_dtype)
      .BuildOutput();
}

TensorListConcatOutputs TensorListConcat(const Scope& scope, const Output& list,
                                         const Output& element_shape, const Output& leading_dims,
                                         DType element_dtype) {
  const Operation node = OpBuilder(scope, "TensorListConcatV2")
                             .Input(list)
                             .Input(element_shape)
                             .Input(leading_dims)
                             .Attr("element_dtype", element_dtype)
                             .Build();
  return {node.output(0), node.output(1)};
}

Output TensorListLength(const Scope& scope, const Output& list) {
  return OpBuilder(scope, "TensorListLength").Input(list).BuildOutput();
}

Output TensorListElementShape(const Scope& scope, const Output& list, DType shape_type) {
  return OpBuilder(scope, "TensorListElementShape")
      .Input(list)
      .Attr("shape_type", shape_type)
      .BuildOutput();
}

namespace ops::tensor_list {
namespace {

// What input i says of the shape of elements; a scalar says nothing.
Result<PartialShape> ElementShape(const ShapeContext& c, int i) {
  const Tensor* const value = c.input_value(i);
  const PartialShape& shape = c.input(i);
  if ((value != nullptr && value->shape().rank() == 0) || !shape.known_rank() || shape.rank() == 0)
    return PartialShape();
  return c.InputAsShape(i);
}

Status ListShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return Status();
}
Status ListOfListsShape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return Status();
}
Status PopBackShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  MG_ASSIGN_OR_RETURN(const PartialShape element, ElementShape(c, 1));
  c.set_output(1, element);
  return Status();
}
Status GetItemShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape element, ElementShape(c, 2));
  c.set_output(0, element);
  return Status();
}
Status StackShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape element, ElementShape(c, 1));
  c.set_output(0, Prepended(c.attr<int64_t>("num_elements"), element));
  return Status();
}
Status GatherShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape element, ElementShape(c, 2));
  const PartialShape& indices = c.input(1);
  c.set_output(0, Prepended(indices.rank() == 1 ? indices.dim(0) : -1, element));
  return Status();
}
Status ConcatShape(ShapeContext& c) {
  PartialShape element;
  if (c.num_inputs() > 1) {
    MG_ASSIGN_OR_RETURN(element, ElementShape(c, 1));
  } else {
    element = c.attr<PartialShape>("element_shape");
  }
  if (element.known_rank() && element.rank() > 0)
    c.set_output(0, Prepended(-1, PartialShape(element.dims().subspan(1))));
  c.set_output(1, PartialShape{-1});
  return Status();
}

// The shape of an element of the list of input 0, as int32.
Output ItsElementShape(const GradientContext& c) {
  return TensorListElementShape(c.scope(), c.input(0));
}
Output ItsLength(const GradientContext& c) { return TensorListLength(c.scope(), c.input(0)); }
// What is known of the shape of a row of `tensor` in a step.
Output RowShapeOf(const Scope& scope, const Output& tensor) {
  return Slice(scope, ShapeOf(scope, tensor), {1}, {-1});
}

Status PushBackGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const TensorListPopBackOutputs popped =
      TensorListPopBack(s, c.grad(0), ShapeOf(s, c.input(1)), c.input(1).dtype());
  c.set_grad(0, popped.list);
  c.set_grad(1, popped.tensor);
  return Status();
}

Status PopBackGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output element = c.grad(1).valid() ? c.grad(1) : ZerosLike(s, c.output(1));
  // No gradient for the remaining list: zeros.
  const Output list = c.grad(0).valid() ? c.grad(0) : ZerosLike(s, c.output(0));
  c.set_grad(0, TensorListPushBack(s, list, element));
  return Status();
}

Status StackGradient(GradientContext& c) {
  c.set_grad(0, TensorListFromTensor(c.scope(), c.grad(0), RowShapeOf(c.scope(), c.grad(0))));
  return Status();
}

Status FromTensorGradient(GradientContext& c) {
  const Output tensor = c.input(0);
  const int64_t rows = tensor.shape().known_rank() && tensor.shape().rank() > 0
                           ? tensor.shape().dim(0)
                           : int64_t{-1};
  c.set_grad(0, TensorListStack(c.scope(), c.grad(0), RowShapeOf(c.scope(), tensor), tensor.dtype(),
                                rows));
  return Status();
}

Status GetItemGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output zeros = TensorListReserve(s, ItsElementShape(c), ItsLength(c), c.grad(0).dtype());
  c.set_grad(0, TensorListSetItem(s, zeros, c.input(1), c.grad(0)));
  return Status();
}

Status SetItemGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output item = c.input(2);
  c.set_grad(0, TensorListSetItem(s, c.grad(0), c.input(1), ZerosLike(s, item)));
  c.set_grad(2, TensorListGetItem(s, c.grad(0), c.input(1), ShapeOf(s, item), item.dtype()));
  return Status();
}

Status ResizeGradient(GradientContext& c) {
  c.set_grad(0, TensorListResize(c.scope(), c.grad(0), ItsLength(c)));
  return Status();
}

// An element that was taken several times gets the sum.
Status GatherGradient(GradientContext& c) {
  const Output sums = UnsortedSegmentSum(c.scope(), c.grad(0), c.input(1), ItsLength(c));
  c.set_grad(0, TensorListFromTensor(c.scope(), sums, ItsElementShape(c)));
  return Status();
}

Status ScatterGradient(GradientContext& c) {
  const Output tensor = c.input(0);
  c.set_grad(0, TensorListGather(c.scope(), c.grad(0), c.input(1), RowShapeOf(c.scope(), tensor),
                                 tensor.dtype()));
  return Status();
}

Status ScatterIntoGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output tensor = c.input(1), indices = c.input(2);
  const Output zeroed =
      TensorListScatterIntoExistingList(s, c.grad(0), ZerosLike(s, tensor), indices);
  c.set_grad(0, TensorListResize(s, zeroed, ItsLength(c)));
  c.set_grad(1, TensorListGather(s, c.grad(0), indices, RowShapeOf(s, tensor), tensor.dtype()));
  return Status();
}

Status ConcatGradient(GradientContext& c) {
  c.set_grad(0, TensorListSplit(c.scope(), c.grad(0), ItsElementShape(c), c.output(1)));
  return Status();
}

Status SplitGradient(GradientContext& c) {
  const Output tensor = c.input(0);
  c.set_grad(0,
             TensorListConcat(c.scope(), c.grad(0), c.input(1), c.input(2), tensor.dtype()).tensor);
  return Status();
}

OpDef Typed(const char* name) { return OpDef(name).Attr("element_dtype: type"); }
OpDef Shaped(const char* name) { return Typed(name).Attr("shape_type: {int32, int64}"); }

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(Shaped("EmptyTensorList")
                    .Input("element_shape: shape_type")
                    .Input("max_num_elements: int32")
                    .Output("handle: variant")
                    .Shape(ListShape)
                    .NoGradient());
  registry->Add(Shaped("TensorListReserve")
                    .Input("element_shape: shape_type")
                    .Input("num_elements: int32")
                    .Output("handle: variant")
                    .Shape(ListShape)
                    .NoGradient());
  registry->Add(OpDef("TensorListLength")
                    .Input("input_handle: variant")
                    .Output("length: int32")
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("TensorListElementShape")
                    .Input("input_handle: variant")
                    .Output("element_shape: shape_type")
                    .Attr("shape_type: {int32, int64}")
                    .Shape(UnknownShape)
                    .NoGradient());
  registry->Add(Typed("TensorListPushBack")
                    .Input("input_handle: variant")
                    .Input("tensor: element_dtype")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(PushBackGradient));
  registry->Add(Typed("TensorListPopBack")
                    .Input("input_handle: variant")
                    .Input("element_shape: int32")
                    .Output("output_handle: variant")
                    .Output("tensor: element_dtype")
                    .Shape(PopBackShape)
                    .Gradient(PopBackGradient));
  registry->Add(Typed("TensorListGetItem")
                    .Attr("Tshape: {int32, int64} = DT_INT32")
                    .Input("input_handle: variant")
                    .Input("index: int32")
                    .Input("element_shape: Tshape")
                    .Output("item: element_dtype")
                    .Shape(GetItemShape)
                    .Gradient(GetItemGradient));
  registry->Add(Typed("TensorListSetItem")
                    .Input("input_handle: variant")
                    .Input("index: int32")
                    .Input("item: element_dtype")
                    .Output("output_handle: variant")
                    .Attr("resize_if_index_out_of_bounds: bool = false")
                    .Shape(ListShape)
                    .Gradient(SetItemGradient));
  registry->Add(OpDef("TensorListResize")
                    .Input("input_handle: variant")
                    .Input("size: int32")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(ResizeGradient));
  registry->Add(Typed("TensorListStack")
                    .Input("input_handle: variant")
                    .Input("element_shape: int32")
                    .Output("tensor: element_dtype")
                    .Attr("num_elements: int = -1")
                    .Shape(StackShape)
                    .Gradient(StackGradient));
  registry->Add(Typed("TensorListGather")
                    .Input("input_handle: variant")
                    .Input("indices: int32")
                    .Input("element_shape: int32")
                    .Output("values: element_dtype")
                    .Shape(GatherShape)
                    .Gradient(GatherGradient));
  registry->Add(Typed("TensorListConcat")
                    .Input("input_handle: variant")
                    .Output("tensor: element_dtype")
                    .Output("lengths: int64")
                    .Attr("element_shape: shape = { unknown_rank: true }")
                    .Shape(ConcatShape)
                    .Gradient(ConcatGradient));
  registry->Add(Shaped("TensorListConcatV2")
                    .Input("input_handle: variant")
                    .Input("element_shape: shape_type")
                    .Input("leading_dims: int64")
                    .Output("tensor: element_dtype")
                    .Output("lengths: int64")
                    .Shape(ConcatShape)
                    .Gradient(ConcatGradient));
  registry->Add(Shaped("TensorListFromTensor")
                    .Input("tensor: element_dtype")
                    .Input("element_shape: shape_type")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(FromTensorGradient));
  registry->Add(Shaped("TensorListSplit")
                    .Input("tensor: element_dtype")
                    .Input("element_shape: shape_type")
                    .Input("lengths: int64")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(SplitGradient));
  registry->Add(Shaped("TensorListScatter")
                    .Input("tensor: element_dtype")
                    .Input("indices: int32")
                    .Input("element_shape: shape_type")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(ScatterGradient));
  registry->Add(Shaped("TensorListScatterV2")
                    .Input("tensor: element_dtype")
                    .Input("indices: int32")
                    .Input("element_shape: shape_type")
                    .Input("num_elements: int32")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(ScatterGradient));
  registry->Add(Typed("TensorListScatterIntoExistingList")
                    .Input("input_handle: variant")
                    .Input("tensor: element_dtype")
                    .Input("indices: int32")
                    .Output("output_handle: variant")
                    .Shape(ListShape)
                    .Gradient(ScatterIntoGradient));
  registry->Add(Typed("TensorListPushBackBatch")
                    .Input("input_handles: variant")
                    .Input("tensor: element_dtype")
                    .Output("output_handles: variant")
                    .Shape(ListOfListsShape));
  registry->Add(Typed("TensorListConcatLists")
                    .Input("input_a: variant")
                    .Input("input_b: variant")
                    .Output("output: variant")
                    .Shape(ListOfListsShape));
}

}  // namespace ops::tensor_list
}  // namespace monograph
