// Ops on colours. The gradient of RGBToHSV is TensorFlow's, also where two colours of a pixel are
// equal and it has none: the first of red, green and blue then counts as the largest, and the last
// as the smallest. Its formulas for the three colours are one, turned.
#include <utility>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/image/definitions.h"
#include "ops/image/image.h"

namespace monograph {
namespace {

Output Adjust(const Scope& scope, const char* op, const Output& images, const Output& by) {
  return OpBuilder(scope, op).Input(images).Input(by).BuildOutput();
}

}  // namespace

Output AdjustContrast(const Scope& scope, const Output& images, const Output& contrast_factor) {
  return Adjust(scope, "AdjustContrastv2", images, contrast_factor);
}
Output AdjustHue(const Scope& scope, const Output& images, const Output& delta) {
  return Adjust(scope, "AdjustHue", images, delta);
}
Output AdjustSaturation(const Scope& scope, const Output& images, const Output& scale) {
  return Adjust(scope, "AdjustSaturation", images, scale);
}
Output RGBToHSV(const Scope& scope, const Output& images) {
  return OpBuilder(scope, "RGBToHSV").Input(images).BuildOutput();
}
Output HSVToRGB(const Scope& scope, const Output& images) {
  return OpBuilder(scope, "HSVToRGB").Input(images).BuildOutput();
}

namespace ops::image {
namespace {

// Images of at least three dimensions, and a scalar.
Status AdjustShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (c.input(0).known_rank() && c.input(0).rank() < 3) {
    return InvalidArgument("input must be at least 3-D, got shape " + c.input(0).ToString());
  }
  c.set_output(0, c.input(0));
  return Status();
}

// The last of any number of dimensions is three colours.
Status ColoursShape(ShapeContext& c) {
  PartialShape images = c.input(0);
  if (images.known_rank()) {
    if (images.rank() < 1) return InvalidArgument("input must be at least 1D");
    MG_ASSIGN_OR_RETURN(const int64_t three,
                        MergeDim(images.dim(images.rank() - 1), 3, "channels of the input"));
    images.set_dim(images.rank() - 1, three);
  }
  c.set_output(0, images);
  return Status();
}

// One colour of all pixels, and where it is the largest, the smallest and above 0: 1, else 0.
struct Part {
  Output value, largest, smallest, positive;
};

// What flows to a colour whose hue begins in front of `next`; `grads`: of hue, saturation, value.
Output ToHsvGradOf(const Scope& s, const Part& own, const Part& next, const Part& last,
                   const Output& saturation, const Output& value, const Outputs& grads) {
  const DType dtype = own.value.dtype();
  const auto over = [&](const Output& x) { return DivNoNan(s, ScalarConst(s, 1, dtype), x); };
  const auto sum = [&s](const Outputs& terms) { return AddN(s, terms); };
  const auto product = [&s](Outputs factors) {
    Output all = factors[0];
    for (size_t i = 1; i < factors.size(); ++i) all = Mul(s, all, factors[i]);
    return all;
  };
  const auto values = [&](const Output& of_next, const Output& of_last) {
    return Add(s, Mul(s, of_next, next.value), Mul(s, of_last, last.value));
  };
  const Output most_of_others = values(next.largest, last.largest),
               least_of_others = values(next.smallest, last.smallest);
  const Output of_saturation =
      Mul(s, own.positive,
          Sub(s, product({own.largest, least_of_others, over(Square(s, own.value))}),
              Mul(s, own.smallest, over(most_of_others))));
  const Output apart = Sub(s, last.value, next.value);
  const auto largest = [&](const Part& part) { return Mul(s, part.positive, part.largest); };
  const auto from = [&](const Part& other) {
    return over(Square(s, Sub(s, own.value, other.value)));
  };
  const Output of_hue =
      sum({product({largest(own), apart, over(Square(s, saturation)), over(Square(s, value))}),
           product({largest(next), own.smallest, apart, from(next)}),
           product({largest(next), last.smallest, over(apart)}),
           product({largest(last), own.smallest, apart, from(last)}),
           product({largest(last), next.smallest, over(apart)})});
  return sum({Mul(s, grads[2], own.largest), Mul(s, grads[1], of_saturation),
              product({grads[0], of_hue, ScalarConst(s, 1.0 / 6, dtype)})});
}

Status ToHsvGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output images = c.input(0);
  const Outputs rgb = Split(s, images, 3, -1), hsv = Split(s, c.output(0), 3, -1),
                grads = Split(s, c.grad(0), 3, -1);
  const auto where = [&](const Output& a, const Output& b) {
    return Cast(s, LogicalAnd(s, a, b), images.dtype());
  };
  const Output zero = ScalarConst(s, 0, images.dtype());
  Part parts[3];
  for (size_t i = 0; i < 3; ++i) {
    parts[i].value = rgb[i];
    parts[i].positive = Cast(s, Greater(s, rgb[i], zero), images.dtype());
  }
  const Output &r = rgb[0], &g = rgb[1], &b = rgb[2];
  parts[0].largest = where(GreaterEqual(s, r, b), GreaterEqual(s, r, g));
  parts[1].largest = where(Greater(s, g, r), GreaterEqual(s, g, b));
  parts[2].largest = where(Greater(s, b, r), Greater(s, b, g));
  parts[0].smallest = where(Greater(s, b, r), Greater(s, g, r));
  parts[1].smallest = where(GreaterEqual(s, r, g), Greater(s, b, g));
  parts[2].smallest = where(GreaterEqual(s, r, b), GreaterEqual(s, g, b));
  Outputs all;
  for (size_t i = 0; i < 3; ++i) {
    all.push_back(
        ToHsvGradOf(s, parts[i], parts[(i + 1) % 3], parts[(i + 2) % 3], hsv[1], hsv[2], grads));
  }
  c.set_grad(0, Concat(s, all, -1));
  return Status();
}

}  // namespace

void DefineColours(OpRegistry* registry) {
  const std::pair<const char*, const char*> adjustments[] = {
      {"AdjustContrastv2", "contrast_factor: float"},
      {"AdjustHue", "delta: float"},
      {"AdjustSaturation", "scale: float"}};
  for (const auto& [op, by] : adjustments) {
    registry->Add(OpDef(op)
                      .Input("images: T")
                      .Input(by)
                      .Output("output: T")
                      .Attr("T: {half, float} = DT_FLOAT")
                      .Shape(AdjustShape));
  }
  const auto convert = [](const char* op) {
    return OpDef(op)
        .Input("images: T")
        .Output("output: T")
        .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
        .Shape(ColoursShape);
  };
  registry->Add(convert("RGBToHSV").Gradient(ToHsvGradient));
  registry->Add(convert("HSVToRGB").NoGradient());
}

}  // namespace ops::image
}  // namespace monograph
