// The definitions of ops of variables by reference, each with the name of the op that does the same
// by handle (OpDef::ByHandle). They have no kernels: a step's graph has the other ones in their
// places (graph/references.h). What is here is what TensorFlow says of their shapes.
#include "ops/variable/references.h"

#include <string>
#include <utility>

#include "graph/shape_inference.h"
#include "ops/types.h"

namespace monograph::ops::variable {
namespace {

Status DeclaredShape(ShapeContext& c) {
  c.set_output(0, c.attr<PartialShape>("shape"));
  return Status();
}

// TensorFlow's first variables say that they are scalars where they may have any shape.
Status OldDeclaredShape(ShapeContext& c) {
  const auto& shape = c.attr<PartialShape>("shape");
  c.set_output(0, shape == PartialShape::Scalar() ? PartialShape() : shape);
  return Status();
}

Status AssignedShape(ShapeContext& c) {
  if (!c.attrs().GetOr<bool>("validate_shape", true)) {
    c.set_output(0, c.input(1));
    return Status();
  }
  return MergeAllShape(c);
}

Status TemporaryShape(ShapeContext& c) {
  c.set_output(0, c.handle_shape(0));
  return Status();
}

OpDef Declares(const char* name, ShapeFn shape) {
  return OpDef(name)
      .Output("ref: Ref(dtype)")
      .Attr("shape: shape")
      .Attr("dtype: type")
      .Stateful()
      .Shape(shape)
      .NoGradient();
}

// Of a change of the variable `ref`, which is the output, too.
OpDef Changes(const std::string& name, const char* locks, HandleForm form) {
  return OpDef(name)
      .Input("ref: Ref(T)")
      .Output("output_ref: Ref(T)")
      .Attr(locks)
      .Stateful()
      .NoGradient()
      .ByHandle(std::move(form));
}

}  // namespace

void DefineReferences(OpRegistry* registry) {
  const auto variable = [registry](const char* name, ShapeFn shape) {
    registry->Add(Declares(name, shape)
                      .Attr("container: string = ''")
                      .Attr("shared_name: string = ''")
                      .ByHandle({"VarHandleOp", {}}));
  };
  variable("VariableV2", DeclaredShape);
  variable("Variable", OldDeclaredShape);
  registry->Add(OpDef("IsVariableInitialized")
                    .Input("ref: Ref(dtype)")
                    .Output("is_initialized: bool")
                    .Attr("dtype: type")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient()
                    .ByHandle({"VarIsInitializedOp", {}}));
  const std::vector<std::pair<std::string, std::string>> type = {{"T", "dtype"}};
  registry->Add(Changes("Assign", "use_locking: bool = true", {"AssignVariableOp", type})
                    .Input("value: T")
                    .Attr("T: type")
                    .Attr("validate_shape: bool = true")
                    .Shape(AssignedShape));
  for (const char* name : {"AssignAdd", "AssignSub"}) {
    registry->Add(
        Changes(name, "use_locking: bool = false", {std::string(name) + "VariableOp", type})
            .Input("value: T")
            .Attr("T: " MG_OP_NUMBER_TYPES)
            .Shape(MergeAllShape));
  }
  const auto scatter = [&](const std::string& name, const char* types, const char* locks) {
    const bool nd = name.starts_with("ScatterNd");
    OpDef def = Changes(name, locks, {"Resource" + name, nd ? HandleForm().renamed : type})
                    .Input("indices: Tindices")
                    .Input("updates: T")
                    .Attr(types)
                    .Attr("Tindices: {int32, int64}")
                    .Shape(UnchangedShape);
    if (nd) def.Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''");
    registry->Add(std::move(def));
  };
  for (const char* name :
       {"ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMin", "ScatterMax",
        "ScatterNdAdd", "ScatterNdSub", "ScatterNdMin", "ScatterNdMax"})
    scatter(name, "T: " MG_OP_NUMBER_TYPES, "use_locking: bool = false");
  for (const char* name : {"ScatterUpdate", "ScatterNdUpdate"})
    scatter(name, "T: type", "use_locking: bool = true");
  registry->Add(OpDef("StridedSliceAssign")
                    .Input("ref: Ref(T)")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Input("value: T")
                    .Output("output_ref: Ref(T)")
                    .Attr("T: type")
                    .Attr("Index: {int32, int64}")
                    .Attr("begin_mask: int = 0")
                    .Attr("end_mask: int = 0")
                    .Attr("ellipsis_mask: int = 0")
                    .Attr("new_axis_mask: int = 0")
                    .Attr("shrink_axis_mask: int = 0")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .NoGradient()
                    .ByHandle({"ResourceStridedSliceAssign", {}}));
  registry->Add(OpDef("CountUpTo")
                    .Input("ref: Ref(T)")
                    .Output("output: T")
                    .Attr("limit: int")
                    .Attr("T: {int32, int64}")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient()
                    .ByHandle({"ResourceCountUpTo", {}}));
  registry->Add(OpDef("RefIdentity")
                    .Input("input: Ref(T)")
                    .Output("output: Ref(T)")
                    .Attr("T: type")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(UnchangedShape)
                    .NoGradient()
                    .ByHandle({"Identity", {{"T", ""}}}));
  registry->AddOtherName("DebugGradientRefIdentity", "RefIdentity");
  registry->Add(Declares("TemporaryVariable", DeclaredShape)
                    .Attr("var_name: string = ''")
                    .ByHandle({"_TemporaryVariable", {}}));
  registry->Add(OpDef("DestroyTemporaryVariable")
                    .Input("ref: Ref(T)")
                    .Output("value: T")
                    .Attr("T: type")
                    .Attr("var_name: string")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .NoGradient()
                    .ByHandle({"_DestroyTemporaryVariable", {}}));
  // Makes a variable of this step, without a value that means anything.
  registry->Add(OpDef("_TemporaryVariable")
                    .Output("resource: resource")
                    .Attr("shape: shape")
                    .Attr("dtype: type")
                    .Attr("var_name: string = ''")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  // Its value at last.
  registry->Add(OpDef("_DestroyTemporaryVariable")
                    .Input("resource: resource")
                    .Output("value: T")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(TemporaryShape)
                    .NoGradient());
}

}  // namespace monograph::ops::variable
