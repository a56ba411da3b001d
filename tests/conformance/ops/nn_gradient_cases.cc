// Gradients of layers (products, convolutions, pooling, activations, losses, images), to be
// compared with central differences; the shapes are small, since each element is moved by itself.
#include <cmath>
#include <utility>

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/dilation/dilation.h"
#include "ops/image/image.h"
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
  for (const char* op : {"Relu", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Softmax",
                         "LogSoftmax", "_Gelu"}) {
    cases->push_back(
        {op,
         [op](S s, In x) { return Outputs{OpBuilder(s, op).Input(x[0]).BuildOutput()}; },
         {{3, 5}}});
  }
  cases->push_back({"Relu6", [](S s, In x) { return Outputs{Relu6(s, x[0])}; }, {{4, 6}}, -3, 9});
  // (gradient, feature); the features of EluGrad are outputs of Elu, above -1.
  for (const char* op : {"ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad",
                         "SoftplusGrad", "SoftsignGrad"}) {
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

// Older and newer versions of products, and Einsum.
void AddOtherProducts(std::vector<GradientCase>* cases) {
  for (const char* op : {"BatchMatMul", "BatchMatMulV3"}) {
    for (bool ax : {false, true}) {
      for (bool ay : {false, true}) {
        cases->push_back(
            {std::string(op) + (ax ? " adj_x" : "") + (ay ? " adj_y" : ""),
             [op, ax, ay](S s, In x) {
               OpBuilder builder(s, op);
               builder.Input(x[0]).Input(x[1]).Attr("adj_x", ax).Attr("adj_y", ay);
               if (std::string_view(op).ends_with("V3")) builder.Attr("Tout", DT_DOUBLE);
               return Outputs{builder.BuildOutput()};
             },
             {ax ? Shape{2, 3, 2} : Shape{2, 2, 3}, ay ? Shape{2, 4, 3} : Shape{2, 3, 4}}});
      }
    }
  }
  struct Sum {
    const char* equation;
    std::vector<Shape> shapes;
  };
  for (const Sum& sum : {Sum{"ij->ji", {{2, 3}}},
                         {"ijk->j", {{2, 3, 2}}},
                         {"ij,jk->ik", {{2, 3}, {3, 4}}},
                         {"bhid,bhjd->bhij", {{2, 1, 2, 3}, {2, 1, 2, 3}}},
                         {"abc,cd->abd", {{2, 2, 3}, {3, 2}}},
                         {"ijk,kl->jl", {{2, 3, 2}, {2, 3}}},
                         {"i,j->ij", {Shape{2}, Shape{3}}}}) {
    cases->push_back(
        {std::string("Einsum ") + sum.equation,
         [equation = sum.equation](S s, In x) { return Outputs{Einsum(s, x, equation)}; },
         sum.shapes});
  }
  cases->push_back({"BiasAddV1",
                    [](S s, In x) {
                      return Outputs{
                          OpBuilder(s, "BiasAddV1").Input(x[0]).Input(x[1]).BuildOutput()};
                    },
                    {{2, 3, 4}, Shape{4}}});
  for (bool scales : {false, true}) {
    cases->push_back({std::string("BatchNormWithGlobalNormalization") + (scales ? ", scaled" : ""),
                      [scales](S s, In x) {
                        return Outputs{OpBuilder(s, "BatchNormWithGlobalNormalization")
                                           .Input(x[0])
                                           .Input(x[1])
                                           .Input(x[2])
                                           .Input(x[3])
                                           .Input(x[4])
                                           .Attr("variance_epsilon", AttrValue(0.01f))
                                           .Attr("scale_after_normalization", scales)
                                           .BuildOutput()};
                      },
                      {{2, 2, 1, 3}, Shape{3}, Shape{3}, Shape{3}, Shape{3}},
                      0.3,
                      2});
  }
}

// Depthwise convolutions and those of volumes, with their gradients.
void AddDeepConvolutions(std::vector<GradientCase>* cases) {
  const std::vector<int64_t> image{1, 4, 5, 2}, window{3, 2, 2, 2};
  const Shape pooled{1, 4, 5, 4};
  const auto ints = [](S s, const std::vector<int64_t>& dims) { return IntsConst(s, dims); };
  const auto with = [](OpBuilder builder) {
    return Outputs{builder.Attr("strides", AttrValue(std::vector<int64_t>{1, 1, 1, 1}))
                       .Attr("padding", std::string("SAME"))
                       .BuildOutput()};
  };
  cases->push_back({"DepthwiseConv2dNative",
                    [](S s, In x) {
                      return Outputs{DepthwiseConv2dNative(s, x[0], x[1], {1, 1, 1, 1}, "SAME")};
                    },
                    {Shape(image), Shape(window)}});
  cases->push_back({"DepthwiseConv2dNativeBackpropInput",
                    [=](S s, In x) {
                      return with(OpBuilder(s, "DepthwiseConv2dNativeBackpropInput")
                                      .Input(ints(s, image))
                                      .Input(x[0])
                                      .Input(x[1]));
                    },
                    {Shape(window), pooled}});
  cases->push_back({"DepthwiseConv2dNativeBackpropFilter",
                    [=](S s, In x) {
                      return with(OpBuilder(s, "DepthwiseConv2dNativeBackpropFilter")
                                      .Input(x[0])
                                      .Input(ints(s, window))
                                      .Input(x[1]));
                    },
                    {Shape(image), pooled}});

  cases->push_back({"Dilation2D",
                    [](S s, In x) {
                      return Outputs{Dilation2D(s, x[0], x[1], {1, 2, 1, 1}, {1, 1, 2, 1}, "SAME")};
                    },
                    {{1, 4, 5, 2}, {2, 2, 2}}});

  // Resizes and crops compute in floats: linear functions of the images, so that steps may be
  // large.
  const auto as_double = [](S s, const Output& y) { return Outputs{Cast(s, y, DT_DOUBLE)}; };
  for (const auto& named :
       {std::pair("", ResizeOptions{}), std::pair(" to corners", ResizeOptions{true, false}),
        std::pair(" of half pixels", ResizeOptions{false, true})}) {
    const ResizeOptions options = named.second;
    for (const bool smaller : {false, true}) {
      const auto size = [=](S s) { return smaller ? ints(s, {2, 3}) : ints(s, {5, 7}); };
      const std::string how = std::string(named.first) + (smaller ? ", smaller" : ", larger");
      cases->push_back(
          {"ResizeBilinear" + how,
           [=](S s, In x) { return as_double(s, ResizeBilinear(s, x[0], size(s), options)); },
           {{2, 3, 4, 2}}});
      cases->back().step = 64;
      cases->push_back(
          {"ResizeBicubic" + how,
           [=](S s, In x) { return as_double(s, ResizeBicubic(s, x[0], size(s), options)); },
           {{2, 3, 4, 2}}});
      cases->back().step = 64;
      cases->push_back(
          {"ResizeNearestNeighbor" + how,
           [=](S s, In x) { return Outputs{ResizeNearestNeighbor(s, x[0], size(s), options)}; },
           {{2, 3, 4, 2}}});
    }
  }
  const auto boxes = [](S s) {
    return Const<float>(s, Shape{3, 4}, {0.1f, 0, 0.9f, 0.6f, 1, 0.2f, 0, 0.9f, -0.5f, 0, 1, 1.5f});
  };
  for (const char* method : {"bilinear", "nearest"}) {
    for (const bool one_pixel : {false, true}) {
      cases->push_back(
          {std::string("CropAndResize of ") + method + (one_pixel ? " to one pixel" : ""),
           [=](S s, In x) {
             return as_double(
                 s, CropAndResize(s, x[0], boxes(s), Const<int32_t>(s, {1, 0, 1}),
                                  one_pixel ? ints(s, {1, 1}) : ints(s, {4, 3}), method, 1));
           },
           {{2, 4, 5, 2}}});
      cases->back().step = 64;
    }
  }
  // Colours apart, each of which is the largest and the smallest once with each other.
  cases->push_back({"RGBToHSV",
                    [](S s, In x) { return Outputs{RGBToHSV(s, x[0])}; },
                    {{6, 3}},
                    0,
                    1,
                    {{0.9, 0.5, 0.2, 0.8, 0.3, 0.6, 0.4, 0.7, 0.1, 0.2, 0.9, 0.6, 0.5, 0.1, 0.8,
                      0.15, 0.45, 0.95}}});
  cases->push_back({"ExtractImagePatches",
                    [](S s, In x) {
                      return Outputs{ExtractImagePatches(s, x[0], {1, 2, 3, 1}, {1, 1, 2, 1},
                                                         {1, 2, 1, 1}, "SAME")};
                    },
                    {{2, 4, 5, 2}}});

  const std::vector<int64_t> volume{1, 3, 2, 3, 2}, filter{2, 2, 2, 2, 2};
  const Shape out{1, 3, 2, 3, 2};
  const auto of_volume = [](OpBuilder builder) {
    return Outputs{builder.Attr("strides", AttrValue(std::vector<int64_t>{1, 1, 1, 1, 1}))
                       .Attr("padding", std::string("SAME"))
                       .BuildOutput()};
  };
  cases->push_back({"Conv3D",
                    [=](S s, In x) {
                      return Outputs{Conv3D(s, x[0], x[1], {1, 1, 1, 1, 1}, "SAME")};
                    },
                    {Shape(volume), Shape(filter)}});
  cases->push_back(
      {"Conv3DBackpropInputV2",
       [=](S s, In x) {
         return of_volume(
             OpBuilder(s, "Conv3DBackpropInputV2").Input(ints(s, volume)).Input(x[0]).Input(x[1]));
       },
       {Shape(filter), out}});
  cases->push_back(
      {"Conv3DBackpropFilterV2",
       [=](S s, In x) {
         return of_volume(
             OpBuilder(s, "Conv3DBackpropFilterV2").Input(x[0]).Input(ints(s, filter)).Input(x[1]));
       },
       {Shape(volume), out}});
  for (const char* first : {"Conv3DBackpropInput", "Conv3DBackpropFilter"}) {
    cases->push_back({first,
                      [=](S s, In x) {
                        return of_volume(OpBuilder(s, first).Input(x[0]).Input(x[1]).Input(x[2]));
                      },
                      {Shape(volume), Shape(filter), out}});
  }
}

// Poolings whose windows are inputs, that tell where the maxima are, or of volumes.
void AddOtherPools(std::vector<GradientCase>* cases) {
  const std::vector<int64_t> image{1, 5, 4, 2}, volume{1, 3, 4, 3, 2};
  const Shape pooled{1, 3, 2, 2}, pooled_volume{1, 2, 2, 2, 2};
  // Elements that are all different.
  const auto apart = [](S s, const std::vector<int64_t>& dims) {
    std::vector<double> values(static_cast<size_t>(Shape(dims).elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(7 * i));
    return Const(s, Tensor::FromValues<double>(Shape(dims), values));
  };
  const auto v2 = [](S s, const char* op, const Outputs& in) {
    OpBuilder builder(s, op);
    for (const Output& x : in) builder.Input(x);
    return builder.Input(IntsConst(s, {1, 2, 2, 1}))
        .Input(IntsConst(s, {1, 2, 2, 1}))
        .Attr("padding", std::string("SAME"))
        .BuildOutput();
  };
  cases->push_back({"MaxPoolV2",
                    [=](S s, In x) { return Outputs{v2(s, "MaxPoolV2", {x[0]})}; },
                    {Shape(image)}});
  for (const char* op : {"MaxPoolGradV2", "MaxPoolGradGradV2"}) {
    const bool twice = std::string_view(op) == "MaxPoolGradGradV2";
    cases->push_back({op,
                      [=](S s, In x) {
                        const Output in = apart(s, image), y = v2(s, "MaxPoolV2", {in});
                        return Outputs{v2(s, op, {in, y, x[0]})};
                      },
                      {twice ? Shape(image) : pooled}});
  }
  const auto with = [](OpBuilder builder, const std::vector<int64_t>& window) {
    return builder.Attr("ksize", AttrValue(window))
        .Attr("strides", AttrValue(window))
        .Attr("padding", std::string("SAME"))
        .Build();
  };
  const std::vector<int64_t> flat{1, 2, 2, 1}, deep{1, 2, 2, 2, 1};
  cases->push_back(
      {"MaxPoolWithArgmax",
       [=](S s, In x) { return Outputs{MaxPoolWithArgmax(s, x[0], flat, flat, "SAME").output}; },
       {Shape(image)}});
  for (const char* op : {"MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"}) {
    const bool twice = std::string_view(op) == "MaxPoolGradGradWithArgmax";
    cases->push_back(
        {op,
         [=](S s, In x) {
           const Output in = apart(s, image);
           const Output at = with(OpBuilder(s, "MaxPoolWithArgmax").Input(in), flat).output(1);
           return Outputs{with(OpBuilder(s, op).Input(in).Input(x[0]).Input(at), flat).output(0)};
         },
         {twice ? Shape(image) : pooled}});
  }
  // Sides that differ, so that a cell's largest element does not change within a step.
  for (const bool overlapping : {false, true}) {
    FractionalPoolOptions options{.overlapping = overlapping, .deterministic = true, .seed = 5};
    const std::string name = overlapping ? ", overlapping" : "";
    const std::vector<float> ratio{1, 1.6f, 1.3f, 1};
    cases->push_back(
        {"FractionalMaxPool" + name,
         [=](S s, In x) { return Outputs{FractionalMaxPool(s, x[0], ratio, options).output}; },
         {Shape(image)}});
    cases->push_back(
        {"FractionalAvgPool" + name,
         [=](S s, In x) { return Outputs{FractionalAvgPool(s, x[0], ratio, options).output}; },
         {Shape(image)}});
  }
  cases->push_back({"MaxPool3D",
                    [=](S s, In x) { return Outputs{MaxPool3D(s, x[0], deep, deep, "SAME")}; },
                    {Shape(volume)}});
  cases->push_back({"AvgPool3D",
                    [=](S s, In x) { return Outputs{AvgPool3D(s, x[0], deep, deep, "SAME")}; },
                    {Shape(volume)}});
  cases->push_back(
      {"AvgPool3DGrad",
       [=](S s, In x) {
         return Outputs{
             with(OpBuilder(s, "AvgPool3DGrad").Input(IntsConst(s, volume)).Input(x[0]), deep)
                 .output(0)};
       },
       {pooled_volume}});
  for (const char* op : {"MaxPool3DGrad", "MaxPool3DGradGrad"}) {
    const bool twice = std::string_view(op) == "MaxPool3DGradGrad";
    cases->push_back({op,
                      [=](S s, In x) {
                        const Output in = apart(s, volume);
                        const Output y = with(OpBuilder(s, "MaxPool3D").Input(in), deep).output(0);
                        return Outputs{
                            with(OpBuilder(s, op).Input(in).Input(y).Input(x[0]), deep).output(0)};
                      },
                      {twice ? Shape(volume) : pooled_volume}});
  }
}

}  // namespace

std::vector<GradientCase> NnGradientCases() {
  std::vector<GradientCase> cases;
  AddProducts(&cases);
  AddActivations(&cases);
  AddOtherProducts(&cases);
  AddOtherPools(&cases);
  AddDeepConvolutions(&cases);
  AddLosses(&cases);
  AddImages(&cases);
  return cases;
}

}  // namespace monograph::optest
