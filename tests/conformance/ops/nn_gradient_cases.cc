#include <cmath>

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/softmax/softmax.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

using In = const Outputs&;
using S = const Scope&;

void AddProducts(std::vector<GradientCase>* cases) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const std::string which = std::string(ta ? " a'" : " a") + (tb ? " b'" : " b");
      cases->push_back({"MatMul" + which,
                        [=](S s, In x) {
                          return Outputs{
                              MatMul(s, x[0], x[1], {.transpose_a = ta, .transpose_b = tb})};
                        },
                        {ta ? Shape{3, 2} : Shape{2, 3}, tb ? Shape{4, 3} : Shape{3, 4}}});
      cases->push_back(
          {"BatchMatMulV2" + which,
           [=](S s, In x) { return Outputs{BatchMatMul(s, x[0], x[1], ta, tb)}; },
           {ta ? Shape{2, 1, 3, 2} : Shape{2, 1, 2, 3}, tb ? Shape{3, 4, 3} : Shape{3, 3, 4}}});
    }
  }
  cases->push_back({"BatchMatMulV2 of equal batches",
                    [](S s, In x) { return Outputs{BatchMatMul(s, x[0], x[1])}; },
                    {{2, 2, 3}, {2, 3, 2}}});
  cases->push_back({"BiasAdd",
                    [](S s, In x) { return Outputs{BiasAdd(s, x[0], x[1])}; },
                    {{2, 3, 4}, Shape{4}}});
  cases->push_back({"BiasAdd, channels first",
                    [](S s, In x) { return Outputs{BiasAdd(s, x[0], x[1], "NCHW")}; },
                    {{2, 3, 2, 2}, Shape{3}}});
  cases->push_back({"BiasAddGrad",
                    [](S s, In x) { return Outputs{BiasAddGrad(s, x[0])}; },
                    {{2, 3, 4}},
                    -2,
                    2,
                    {},
                    /*unknown_shapes=*/true});
}

void AddActivations(std::vector<GradientCase>* cases) {
  for (const char* op : {"Relu", "LeakyRelu", "Elu", "Softplus", "Softmax", "LogSoftmax"}) {
    cases->push_back(
        {op,
         [op](S s, In x) { return Outputs{OpBuilder(s, op).Input(x[0]).BuildOutput()}; },
         {{3, 5}}});
  }
  cases->push_back({"Relu6", [](S s, In x) { return Outputs{Relu6(s, x[0])}; }, {{4, 6}}, -3, 9});
  // (gradient, feature); the features of EluGrad are outputs of Elu, above -1.
  for (const char* op : {"ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SoftplusGrad"}) {
    cases->push_back({op,
                      [op](S s, In x) {
                        return Outputs{OpBuilder(s, op).Input(x[0]).Input(x[1]).BuildOutput()};
                      },
                      {{2, 5}, {2, 5}},
                      -0.9,
                      2});
  }
}

void AddLosses(std::vector<GradientCase>* cases) {
  cases->push_back({"SparseSoftmaxCrossEntropyWithLogits",
                    [](S s, In x) {
                      const Output labels = Const<int32_t>(s, {3, 0, 1});
                      return Outputs{SparseSoftmaxCrossEntropyWithLogits(s, x[0], labels)};
                    },
                    {{3, 4}}});
  cases->push_back({"SigmoidCrossEntropyWithLogits",
                    [](S s, In x) { return Outputs{SigmoidCrossEntropyWithLogits(s, x[0], x[1])}; },
                    {{2, 3}, {2, 3}}});
  cases->push_back(
      {"SoftmaxCrossEntropyWithLogits, logits",
       [](S s, In x) {
         const Output labels = Const<double>(s, Shape{2, 3}, {0.1, 0.2, 0.7, 0.0, 1.0, 0.0});
         return Outputs{SoftmaxCrossEntropyWithLogits(s, x[0], labels)};
       },
       {{2, 3}}});
  cases->push_back(
      {"SoftmaxCrossEntropyWithLogits, labels",
       [](S s, In x) {
         const Output logits = Const<double>(s, Shape{2, 3}, {0.5, -1.0, 2.0, 0.0, 1.0, 0.3});
         return Outputs{SoftmaxCrossEntropyWithLogits(s, logits, x[0])};
       },
       {{2, 3}},
       0.1,
       1});
  cases->push_back({"L2Loss", [](S s, In x) { return Outputs{L2Loss(s, x[0])}; }, {{2, 3}}});
}

void AddImages(std::vector<GradientCase>* cases) {
  struct Conv {
    const char* name;
    Shape input, filter, output;
    std::vector<int64_t> strides;
    const char* padding;
    Conv2DOptions options = {};
  };
  for (const Conv& c :
       {Conv{"", {2, 4, 3, 2}, {3, 2, 2, 3}, {2, 4, 3, 3}, {1, 1, 1, 1}, "SAME"},
        Conv{", groups", {1, 3, 4, 4}, {2, 2, 2, 6}, {1, 3, 4, 6}, {1, 1, 1, 1}, "SAME"},
        Conv{", strides", {1, 5, 4, 2}, {2, 2, 2, 2}, {1, 2, 3, 2}, {1, 2, 1, 1}, "VALID"},
        Conv{", dilations",
             {1, 6, 5, 1},
             {2, 2, 1, 2},
             {1, 6, 5, 2},
             {1, 1, 1, 1},
             "SAME",
             {.dilations = {1, 2, 3, 1}}},
        Conv{", explicit padding",
             {1, 3, 4, 1},
             {3, 2, 1, 2},
             {1, 3, 3, 2},
             {1, 1, 2, 1},
             "EXPLICIT",
             {.explicit_paddings = {0, 0, 2, 0, 1, 1, 0, 0}}},
        Conv{", channels first",
             {1, 2, 4, 3},
             {2, 2, 2, 2},
             {1, 2, 4, 3},
             {1, 1, 1, 1},
             "SAME",
             {.data_format = "NCHW"}}}) {
    const std::string name = c.name;
    const auto ints = [](S s, const Shape& shape) { return IntsConst(s, shape.dims()); };
    cases->push_back(
        {"Conv2D" + name,
         [c](S s, In x) { return Outputs{Conv2D(s, x[0], x[1], c.strides, c.padding, c.options)}; },
         {c.input, c.filter}});
    cases->push_back({"Conv2DBackpropInput" + name,
                      [c, ints](S s, In x) {
                        return Outputs{Conv2DBackpropInput(s, ints(s, c.input), x[0], x[1],
                                                           c.strides, c.padding, c.options)};
                      },
                      {c.filter, c.output}});
    cases->push_back({"Conv2DBackpropFilter" + name,
                      [c, ints](S s, In x) {
                        return Outputs{Conv2DBackpropFilter(s, x[0], ints(s, c.filter), x[1],
                                                            c.strides, c.padding, c.options)};
                      },
                      {c.input, c.output}});
  }
  struct Pool {
    const char* name;
    Shape input, output;
    std::vector<int64_t> ksize, strides;
    const char* padding;
    const char* format = "NHWC";
  };
  for (const Pool& p :
       {Pool{", tiles", {2, 4, 5, 3}, {2, 2, 3, 3}, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME"},
        Pool{", overlapping", {1, 5, 5, 2}, {1, 3, 3, 2}, {1, 3, 3, 1}, {1, 1, 1, 1}, "VALID"},
        Pool{", gaps", {1, 5, 4, 2}, {1, 2, 4, 2}, {1, 2, 2, 1}, {1, 3, 1, 1}, "SAME"},
        Pool{", channels first",
             {1, 2, 4, 4},
             {1, 2, 2, 2},
             {1, 1, 3, 3},
             {1, 1, 2, 2},
             "SAME",
             "NCHW"}}) {
    const std::string name = p.name;
    cases->push_back({"MaxPool" + name,
                      [p](S s, In x) {
                        return Outputs{MaxPool(s, x[0], p.ksize, p.strides, p.padding, p.format)};
                      },
                      {p.input}});
    // Of an image whose elements are all different.
    const auto image = [p](S s) {
      std::vector<double> values(static_cast<size_t>(Shape(p.input).elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(7 * i));
      return Const(s, Tensor::FromValues<double>(p.input, values));
    };
    cases->push_back({"MaxPoolGrad" + name,
                      [p, image](S s, In x) {
                        const Output y =
                            MaxPool(s, image(s), p.ksize, p.strides, p.padding, p.format);
                        return Outputs{MaxPoolGrad(s, image(s), y, x[0], p.ksize, p.strides,
                                                   p.padding, p.format)};
                      },
                      {p.output}});
    cases->push_back({"MaxPoolGradGrad" + name,
                      [p, image](S s, In x) {
                        const Output y =
                            MaxPool(s, image(s), p.ksize, p.strides, p.padding, p.format);
                        return Outputs{MaxPoolGradGrad(s, image(s), y, x[0], p.ksize, p.strides,
                                                       p.padding, p.format)};
                      },
                      {p.input}});
    cases->push_back({"AvgPool" + name,
                      [p](S s, In x) {
                        return Outputs{AvgPool(s, x[0], p.ksize, p.strides, p.padding, p.format)};
                      },
                      {p.input}});
    cases->push_back({"AvgPoolGrad" + name,
                      [p](S s, In x) {
                        return Outputs{AvgPoolGrad(s, IntsConst(s, p.input.dims()), x[0], p.ksize,
                                                   p.strides, p.padding, p.format)};
                      },
                      {p.output}});
  }
}

}  // namespace

std::vector<GradientCase> NnGradientCases() {
  std::vector<GradientCase> cases;
  AddProducts(&cases);
  AddActivations(&cases);
  AddLosses(&cases);
  AddImages(&cases);
  return cases;
}

}  // namespace monograph::optest
