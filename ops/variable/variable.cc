// Functions, shape functions, gradients and definitions. A handle carries the variable's type and
// shape while the graph is built, so that reads have known shapes (handle_shape). Only reading and
// gathering have gradients: that of a read is passed on as it is, and that of a gather stays rows,
// so that the update of a large table touches only the rows that were read.
#include "ops/variable/variable.h"

#include "graph/gradients.h"
#include "graph/references.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"
#include "ops/gather/gather.h"
#include "ops/variable/references.h"

namespace monograph {

Output VarHandle(const Scope& scope, DType dtype, const PartialShape& shape,
                 const std::string& container, const std::string& shared_name) {
  return OpBuilder(scope, "VarHandleOp")
      .Attr("dtype", AttrValue(dtype))
      .Attr("shape", AttrValue(shape))
      .Attr("container", AttrValue(container))
      .Attr("shared_name", AttrValue(shared_name))
      .BuildOutput();
}

Output ReadVariable(const Scope& scope, Output handle, DType dtype) {
  return OpBuilder(scope, "ReadVariableOp")
      .Input(handle)
      .Attr("dtype", AttrValue(dtype))
      .BuildOutput();
}

Output ReadVariable(const Scope& scope, Output handle) {
  if (!scope.ok() || !handle.valid()) return Output();
  Operation op = handle;
  while (op.graph->is(op.id, "Identity")) op = op.input(0);
  const AttrValue* dtype = op.attrs().Find("dtype");
  if (dtype == nullptr || !std::holds_alternative<DType>(*dtype)) {
    scope.Fail(InvalidArgument(
        "ReadVariable of '" + std::string(op.name()) +
        "': the handle does not come from a VarHandleOp; name the type of its value"));
    return Output();
  }
  return ReadVariable(scope, handle, std::get<DType>(*dtype));
}

Operation AssignVariable(const Scope& scope, Output handle, Output value) {
  return OpBuilder(scope, "AssignVariableOp").Input(handle).Input(value).Build();
}
Operation AssignAddVariable(const Scope& scope, Output handle, Output value) {
  return OpBuilder(scope, "AssignAddVariableOp").Input(handle).Input(value).Build();
}
Operation AssignSubVariable(const Scope& scope, Output handle, Output value) {
  return OpBuilder(scope, "AssignSubVariableOp").Input(handle).Input(value).Build();
}
Output ResourceCountUpTo(const Scope& scope, Output handle, int64_t limit, DType dtype) {
  return OpBuilder(scope, "ResourceCountUpTo")
      .Input(handle)
      .Attr("limit", AttrValue(limit))
      .Attr("T", AttrValue(dtype))
      .BuildOutput();
}
Output VarIsInitialized(const Scope& scope, Output handle) {
  return OpBuilder(scope, "VarIsInitializedOp").Input(handle).BuildOutput();
}
Output VariableShape(const Scope& scope, Output handle, DType out_type) {
  return OpBuilder(scope, "VariableShape")
      .Input(handle)
      .Attr("out_type", AttrValue(out_type))
      .BuildOutput();
}
Output ResourceGather(const Scope& scope, Output handle, Output indices, DType dtype) {
  return OpBuilder(scope, "ResourceGather")
      .Input(handle)
      .Input(indices)
      .Attr("dtype", AttrValue(dtype))
      .BuildOutput();
}
Operation ResourceScatterAdd(const Scope& scope, Output handle, Output indices, Output updates) {
  return OpBuilder(scope, "ResourceScatterAdd").Input(handle).Input(indices).Input(updates).Build();
}
Operation ResourceScatterSub(const Scope& scope, Output handle, Output indices, Output updates) {
  return OpBuilder(scope, "ResourceScatterSub").Input(handle).Input(indices).Input(updates).Build();
}
Operation DestroyResource(const Scope& scope, Output handle, bool ignore_lookup_error) {
  return OpBuilder(scope, "DestroyResourceOp")
      .Input(handle)
      .Attr("ignore_lookup_error", AttrValue(ignore_lookup_error))
      .Build();
}

namespace ops::variable {
namespace {

Status ReadShape(ShapeContext& c) {
  c.set_output(0, c.handle_shape(0));
  return Status();
}

Status HandleStringsShape(ShapeContext& c) {
  c.set_output(0, PartialShape{2});
  return Status();
}

Status AssignShape(ShapeContext& c) {
  const bool any =
      c.attrs().GetOr<bool>(kByReference, false) && !c.attrs().GetOr<bool>("validate_shape", true);
  if (any) return Status();
  return PartialShape::Merge(c.handle_shape(0), c.input(1)).status();
}

Status VariableShapeShape(ShapeContext& c) {
  c.set_output(0, PartialShape{c.handle_shape(0).rank()});
  return Status();
}

Status GatherShape(ShapeContext& c) {
  const PartialShape &params = c.handle_shape(0), &indices = c.input(1);
  if (!params.known_rank() || !indices.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (params.rank() < 1) return InvalidArgument("a scalar variable has no rows to gather");
  if (params.rank() - 1 + indices.rank() > kMaxRank)
    return InvalidArgument("the result has too many dimensions");
  PartialShape out = indices;
  for (int i = 1; i < params.rank(); ++i) out.AddDim(params.dim(i));
  c.set_output(0, out);
  return Status();
}

Status ReadGradient(GradientContext& c) {
  c.set_gradient(0, c.gradient(0));
  return Status();
}

Status GatherGradient(GradientContext& c) {
  if (c.attrs().GetOr<int64_t>("batch_dims", 0) != 0)
    return Unimplemented("the gradient of ResourceGather with batch_dims");
  c.set_gradient(0, RowGradient(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  DefineReferences(registry);
  registry->Add(OpDef("VarHandleOp")
                    .Output("resource: resource")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Attr("dtype: type")
                    .Attr("shape: shape")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("_HandleStrings")  // graph/references.h
                    .Input("resource: resource")
                    .Output("value: string")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(HandleStringsShape)
                    .NoGradient());
  registry->Add(OpDef("ReadVariableOp")
                    .Input("resource: resource")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(ReadShape)
                    .Gradient(ReadGradient));
  registry->Add(OpDef("AssignVariableOp")
                    .Input("resource: resource")
                    .Input("value: dtype")
                    .Attr("dtype: type")
                    .Attr("validate_shape: bool = false")
                    .Stateful()
                    .Shape(AssignShape)
                    .NoGradient());
  for (const char* name : {"AssignAddVariableOp", "AssignSubVariableOp"}) {
    registry->Add(OpDef(name)
                      .Input("resource: resource")
                      .Input("value: dtype")
                      .Attr("dtype: type")
                      .Stateful()
                      .Shape(AssignShape)
                      .NoGradient());
  }
  registry->Add(OpDef("ResourceCountUpTo")
                    .Input("resource: resource")
                    .Output("output: T")
                    .Attr("limit: int")
                    .Attr("T: {int32, int64}")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("VarIsInitializedOp")
                    .Input("resource: resource")
                    .Output("is_initialized: bool")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("VariableShape")
                    .Input("input: resource")
                    .Output("output: out_type")
                    .Attr("out_type: {int32, int64} = DT_INT32")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(VariableShapeShape)
                    .NoGradient());
  registry->Add(OpDef("ResourceGather")
                    .Input("resource: resource")
                    .Input("indices: Tindices")
                    .Output("output: dtype")
                    .Attr("batch_dims: int = 0")
                    .Attr("validate_indices: bool = true")
                    .Attr("dtype: type")
                    .Attr("Tindices: {int32, int64}")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(GatherShape)
                    .Gradient(GatherGradient));
  for (const char* name :
       {"ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul", "ResourceScatterDiv",
        "ResourceScatterMin", "ResourceScatterMax", "ResourceScatterUpdate"}) {
    registry->Add(OpDef(name)
                      .Input("resource: resource")
                      .Input("indices: Tindices")
                      .Input("updates: dtype")
                      .Attr("dtype: type")
                      .Attr("Tindices: {int32, int64}")
                      .Stateful()
                      .Shape(NoOutputs)
                      .NoGradient());
  }
  for (const char* name : {"ResourceScatterNdAdd", "ResourceScatterNdSub", "ResourceScatterNdMin",
                           "ResourceScatterNdMax", "ResourceScatterNdUpdate"}) {
    registry->Add(OpDef(name)
                      .Input("ref: resource")
                      .Input("indices: Tindices")
                      .Input("updates: T")
                      .Attr("T: type")
                      .Attr("Tindices: {int32, int64}")
                      .Attr("use_locking: bool = true")
                      .Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
                      .Stateful()
                      .Shape(NoOutputs)
                      .NoGradient());
  }
  registry->Add(OpDef("ResourceStridedSliceAssign")
                    .Input("ref: resource")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Input("value: T")
                    .Attr("T: type")
                    .Attr("Index: {int32, int64}")
                    .Attr("begin_mask: int = 0")
                    .Attr("end_mask: int = 0")
                    .Attr("ellipsis_mask: int = 0")
                    .Attr("new_axis_mask: int = 0")
                    .Attr("shrink_axis_mask: int = 0")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  registry->Add(OpDef("DestroyResourceOp")
                    .Input("resource: resource")
                    .Attr("ignore_lookup_error: bool = true")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
}

}  // namespace ops::variable
}  // namespace monograph
