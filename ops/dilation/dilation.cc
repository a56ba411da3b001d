#include "ops/dilation/dilation.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dilation/geometry.h"
#include "ops/dims.h"
#include "ops/types.h"

namespace monograph {

Output Dilation2D(const Scope& scope, Output input, Output filter,
                  const std::vector<int64_t>& strides, const std::vector<int64_t>& rates,
                  const std::string& padding) {
  return OpBuilder(scope, "Dilation2D")
      .Input(input)
      .Input(filter)
      .Attr("strides", AttrValue(strides))
      .Attr("rates", AttrValue(rates))
      .Attr("padding", AttrValue(padding))
      .BuildOutput();
}

namespace ops::dilation {
namespace {

Result<PartialShape> Dilated(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 3));
  MG_ASSIGN_OR_RETURN(const int64_t channels, MergeDim(input.dim(3), filter.dim(2),
                                                       "channels of the input and of the filter"));
  Window rows, columns;
  MG_RETURN_IF_ERROR(
      Place(c.attrs(), input.dim(1), input.dim(2), filter.dim(0), filter.dim(1), &rows, &columns));
  return PartialShape{input.dim(0), rows.out, columns.out, channels};
}

Status DilationShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape out, Dilated(c));
  c.set_output(0, out);
  return Status();
}

// The output has the shape of input kLike.
template <int kLike>
Status BackpropShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape out, Dilated(c));
  MG_RETURN_IF_ERROR(PartialShape::Merge(out, c.input(2)).status());
  MG_ASSIGN_OR_RETURN(const PartialShape like, c.WithRank(kLike, kLike == 0 ? 4 : 3));
  c.set_output(0, like);
  return Status();
}

Status DilationGradient(GradientContext& c) {
  for (int i : {0, 1}) {
    c.set_grad(i,
               OpBuilder(c.scope(), i == 0 ? "Dilation2DBackpropInput" : "Dilation2DBackpropFilter")
                   .Input(c.input(0))
                   .Input(c.input(1))
                   .Input(c.grad(0))
                   .Attr("strides", *c.attrs().Find("strides"))
                   .Attr("rates", *c.attrs().Find("rates"))
                   .Attr("padding", *c.attrs().Find("padding"))
                   .BuildOutput());
  }
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  const auto add = [&](OpDef def) {
    registry->Add(def.Attr("T: " MG_OP_REAL_TYPES)
                      .Attr("strides: list(int) >= 4")
                      .Attr("rates: list(int) >= 4")
                      .Attr("padding: {'SAME', 'VALID'}"));
  };
  add(OpDef("Dilation2D")
          .Input("input: T")
          .Input("filter: T")
          .Output("output: T")
          .Shape(DilationShape)
          .Gradient(DilationGradient));
  add(OpDef("Dilation2DBackpropInput")
          .Input("input: T")
          .Input("filter: T")
          .Input("out_backprop: T")
          .Output("in_backprop: T")
          .Shape(BackpropShape<0>));
  add(OpDef("Dilation2DBackpropFilter")
          .Input("input: T")
          .Input("filter: T")
          .Input("out_backprop: T")
          .Output("filter_backprop: T")
          .Shape(BackpropShape<1>));
}

}  // namespace ops::dilation
}  // namespace monograph
