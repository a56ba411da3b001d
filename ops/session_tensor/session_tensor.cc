#include "ops/session_tensor/session_tensor.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output GetSessionHandle(const Scope& scope, const Output& value) {
  return OpBuilder(scope, "GetSessionHandle").Input(value).BuildOutput();
}

Output GetSessionTensor(const Scope& scope, const Output& handle, DType dtype) {
  return OpBuilder(scope, "GetSessionTensor").Input(handle).Attr("dtype", dtype).BuildOutput();
}

Operation DeleteSessionTensor(const Scope& scope, const Output& handle) {
  return OpBuilder(scope, "DeleteSessionTensor").Input(handle).Build();
}

namespace ops::session_tensor {
namespace {

Status HandleShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return Status();
}
Status TensorShape(ShapeContext& c) { return c.WithRank(0, 0).status(); }

}  // namespace

void Define(OpRegistry* registry) {
  const auto handle_of = [registry](const char* op, const char* output) {
    registry->Add(OpDef(op)
                      .Input("value: T")
                      .Output(output)
                      .Attr("T: type")
                      .Stateful()
                      .Shape(HandleShape)
                      .NoGradient());
  };
  handle_of("GetSessionHandle", "handle: string");
  handle_of("GetSessionHandleV2", "handle: resource");
  registry->Add(OpDef("GetSessionTensor")
                    .Input("handle: string")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Stateful()
                    .Shape(TensorShape)
                    .NoGradient());
  registry->Add(OpDef("DeleteSessionTensor")
                    .Input("handle: string")
                    .Stateful()
                    .Shape(TensorShape)
                    .NoGradient());
}

}  // namespace ops::session_tensor
}  // namespace monograph
