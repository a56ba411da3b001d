#include "ops/py_func/py_func.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Outputs PyFunc(const Scope& scope, const Outputs& inputs, const std::string& token,
               const std::vector<DType>& types) {
  const Operation node =
      OpBuilder(scope, "PyFunc").Inputs(inputs).Attr("token", token).Attr("Tout", types).Build();
  Outputs outputs;
  for (size_t i = 0; i < types.size(); ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

namespace ops::py_func {
namespace {

Status UnknownShapes(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape());
  return Status();
}

// None is folded, since the function is the program's, whatever its name says of state.
OpDef Def(const char* op) {
  return OpDef(op)
      .Input("input: Tin")
      .Output("output: Tout")
      .Attr("token: string")
      .Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Stateful()
      .InClient()
      .MayWait()
      .Shape(UnknownShapes)
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(Def("PyFunc"));
  registry->Add(Def("PyFuncStateless"));
  registry->Add(Def("EagerPyFunc").Attr("is_async: bool = false"));
}

}  // namespace ops::py_func
}  // namespace monograph
