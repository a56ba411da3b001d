#include "ops/optional/optional.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"

namespace monograph {

Output OptionalFromValue(const Scope& scope, const Outputs& components) {
  return OpBuilder(scope, "OptionalFromValue").Inputs(components).BuildOutput();
}

Output OptionalNone(const Scope& scope) { return OpBuilder(scope, "OptionalNone").BuildOutput(); }

Output OptionalHasValue(const Scope& scope, const Output& optional) {
  return OpBuilder(scope, "OptionalHasValue").Input(optional).BuildOutput();
}

Outputs OptionalGetValue(const Scope& scope, const Output& optional,
                         const std::vector<DType>& types, const std::vector<PartialShape>& shapes) {
  const Operation node = OpBuilder(scope, "OptionalGetValue")
                             .Input(optional)
                             .Attr("output_types", types)
                             .Attr("output_shapes", shapes)
                             .Build();
  Outputs components;
  for (size_t i = 0; scope.ok() && i < types.size(); ++i)
    components.push_back(node.output(static_cast<int>(i)));
  return components;
}

namespace ops::optional {
namespace {

Status GetValueShape(ShapeContext& c) {
  const auto& shapes = c.attr<std::vector<PartialShape>>("output_shapes");
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("`output_shapes` must be the same length as `output_types` (" +
                           std::to_string(shapes.size()) + " vs. " +
                           std::to_string(c.num_outputs()) + ")");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[static_cast<size_t>(i)]);
  return Status();
}

Status FromValueGradient(GradientContext& c) {
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    types.push_back(c.input(i).dtype());
    shapes.push_back(c.input(i).shape());
  }
  const Outputs components = OptionalGetValue(c.scope(), c.grad(0), types, shapes);
  for (size_t i = 0; i < components.size(); ++i) c.set_grad(static_cast<int>(i), components[i]);
  return Status();
}

Status GetValueGradient(GradientContext& c) {
  Outputs components;
  for (int i = 0; i < c.op().num_outputs(); ++i)
    components.push_back(c.grad(i).valid() ? c.grad(i) : ZerosLike(c.scope(), c.output(i)));
  c.set_grad(0, OptionalFromValue(c.scope(), components));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("OptionalFromValue")
                    .Input("components: Toutput_types")
                    .Output("optional: variant")
                    .Attr("Toutput_types: list(type) >= 1")
                    .Shape(ScalarShape)
                    .Gradient(FromValueGradient));
  registry->Add(OpDef("OptionalNone").Output("optional: variant").Shape(ScalarShape).NoGradient());
  registry->Add(OpDef("OptionalHasValue")
                    .Input("optional: variant")
                    .Output("has_value: bool")
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("OptionalGetValue")
                    .Input("optional: variant")
                    .Output("components: output_types")
                    .Attr("output_types: list(type) >= 1")
                    .Attr("output_shapes: list(shape) >= 1")
                    .Shape(GetValueShape)
                    .Gradient(GetValueGradient));
}

}  // namespace ops::optional
}  // namespace monograph
