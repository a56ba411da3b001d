#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/conv/fourier_conv_cpu.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

struct ConvCase {
  const char* name;
  Shape input, filter;  // NHWC, HWIO
  int64_t stride = 1, dilation = 1;
  const char* padding = "SAME";
  std::vector<int64_t> explicit_paddings = {};

  Attrs attrs() const {
    return {{"strides", std::vector<int64_t>{1, stride, stride, 1}},
            {"dilations", std::vector<int64_t>{1, dilation, dilation, 1}},
            {"padding", std::string(padding)},
            {"explicit_paddings", explicit_paddings}};
  }
  // By the number of products in a sum: oneDNN's order of additions differs from processor to
  // processor.
  double tolerance() const {
    return 2e-6 * static_cast<double>(filter[0] * filter[1] * filter[2]) + 1e-5;
  }
};
std::ostream& operator<<(std::ostream& out, const ConvCase& c) { return out << c.name; }

Tensor Ints(const Shape& shape) {
  Tensor out = Tensor::Allocate(DT_INT32, Shape{shape.rank()}).value();
  for (int i = 0; i < shape.rank(); ++i) out.data<int32_t>()[i] = static_cast<int32_t>(shape[i]);
  return out;
}

class ConvTest : public ::testing::TestWithParam<ConvCase> {};

// The double kernels are plain loops, the float ones oneDNN in chunks of the batch.
TEST_P(ConvTest, FloatAgreesWithThePlainLoopsOnAnyNumberOfThreads) {
  const ConvCase& p = GetParam();
  const Tensor x = Random<float>(p.input, 1), w = Random<float>(p.filter, 2);
  const Tensor y = Run1("Conv2D", {x, w}, p.attrs());
  ExpectNear(y, Run1("Conv2D", {AsDouble(x), AsDouble(w)}, p.attrs()), p.tolerance());
  const Tensor dy = Random<float>(y.shape(), 3);
  const Tensor dx = Run1("Conv2DBackpropInput", {Ints(p.input), w, dy}, p.attrs());
  ExpectNear(dx, Run1("Conv2DBackpropInput", {Ints(p.input), AsDouble(w), AsDouble(dy)}, p.attrs()),
             4 * p.tolerance());
  const Tensor dw = Run1("Conv2DBackpropFilter", {x, Ints(p.filter), dy}, p.attrs());
  ExpectNear(dw,
             Run1("Conv2DBackpropFilter", {AsDouble(x), Ints(p.filter), AsDouble(dy)}, p.attrs()),
             2e-6 * static_cast<double>(y.elements()) + 1e-4);
  for (int threads : {2, 3}) {
    ThreadPools pools(1, threads);
    EXPECT_TRUE(BitEqual(Run1("Conv2D", {x, w}, p.attrs(), &pools), y));
    EXPECT_TRUE(
        BitEqual(Run1("Conv2DBackpropInput", {Ints(p.input), w, dy}, p.attrs(), &pools), dx));
    EXPECT_TRUE(
        BitEqual(Run1("Conv2DBackpropFilter", {x, Ints(p.filter), dy}, p.attrs(), &pools), dw));
  }
}

TEST_P(ConvTest, TheFusedFormIsConvolutionThenBiasThenRelu) {
  const ConvCase& p = GetParam();
  const Tensor x = Random<float>(p.input, 1), w = Random<float>(p.filter, 2),
               b = Random<float>({p.filter[3]}, 3);
  Attrs attrs = p.attrs();
  attrs.Set("num_args", int64_t{1});
  attrs.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
  const Tensor expected = Run1("Relu", {Run1("BiasAdd", {Run1("Conv2D", {x, w}, p.attrs()), b})});
  ExpectNear(Run1("_FusedConv2D", {x, w, b}, attrs), expected, p.tolerance());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvTest,
    ::testing::Values(
        ConvCase{"OneChannelIn", {5, 28, 28, 1}, {5, 5, 1, 32}},
        ConvCase{"ManyChunks", {47, 14, 14, 32}, {5, 5, 32, 64}},
        ConvCase{"WholeChunks", {40, 14, 14, 16}, {3, 3, 16, 16}},
        ConvCase{"OddChannels", {3, 9, 7, 5}, {3, 2, 5, 7}, 2, 1, "VALID"},
        ConvCase{"Dilated", {2, 11, 12, 3}, {3, 3, 3, 4}, 1, 2, "SAME"},
        ConvCase{
            "Explicit", {2, 6, 5, 3}, {3, 3, 3, 4}, 2, 1, "EXPLICIT", {0, 0, 2, 1, 0, 2, 0, 0}},
        ConvCase{"FilterBeyondImage", {1, 3, 3, 2}, {5, 5, 2, 2}},
        ConvCase{"Transformed", {33, 14, 14, 32}, {5, 5, 32, 48}},
        ConvCase{"OnePixelTooLargeForThePeriod", {32, 15, 14, 32}, {5, 5, 32, 32}}),
    [](const auto& test) { return std::string(test.param.name); });

// Large windows with many channels: the transforms of ops/conv/fourier_conv_cpu.h.
class TransformedConvTest : public ::testing::TestWithParam<ConvCase> {
 protected:
  static double Largest(const Tensor& t) {
    double largest = 0;
    for (int64_t i = 0; i < t.elements(); ++i)
      largest = std::max(largest, std::abs(t.data<double>()[i]));
    return largest;
  }
  static void ExpectAccurate(const Tensor& got, const Tensor& expected) {
    ExpectNear(got, expected, 1e-6 * Largest(expected));
  }
};

TEST_P(TransformedConvTest, AllThreePassesAreAccurateRelativeToTheLargestValue) {
  const ConvCase& p = GetParam();
  const auto g = ops::conv::MakeGeometry(
      [&] {
        Attrs attrs = p.attrs();
        attrs.Set("data_format", std::string("NHWC"));
        return attrs;
      }(),
      p.input, p.filter);
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_TRUE(ops::conv::FourierConv::Fits(*g));
  const Tensor x = Random<float>(p.input, 1), w = Random<float>(p.filter, 2);
  const Tensor y = Run1("Conv2D", {AsDouble(x), AsDouble(w)}, p.attrs());
  const Tensor dy = Random<float>(y.shape(), 3);
  const Tensor dx =
      Run1("Conv2DBackpropInput", {Ints(p.input), AsDouble(w), AsDouble(dy)}, p.attrs());
  const Tensor dw =
      Run1("Conv2DBackpropFilter", {AsDouble(x), Ints(p.filter), AsDouble(dy)}, p.attrs());
  ExpectAccurate(Run1("Conv2D", {x, w}, p.attrs()), y);
  ExpectAccurate(Run1("Conv2DBackpropInput", {Ints(p.input), w, dy}, p.attrs()), dx);
  ExpectAccurate(Run1("Conv2DBackpropFilter", {x, Ints(p.filter), dy}, p.attrs()), dw);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TransformedConvTest,
    ::testing::Values(ConvCase{"Side10", {32, 10, 10, 32}, {5, 5, 32, 32}},
                      ConvCase{"Sides13And11", {35, 13, 11, 32}, {5, 5, 32, 48}},
                      ConvCase{"Side14InTwoBlocks", {90, 14, 14, 32}, {5, 5, 32, 32}},
                      ConvCase{"EvenWindow", {32, 13, 13, 48}, {6, 5, 48, 32}},
                      ConvCase{"Side7Window7", {32, 7, 7, 32}, {7, 7, 32, 32}},
                      ConvCase{"Valid16", {32, 16, 15, 32}, {5, 5, 32, 32}, 1, 1, "VALID"},
                      ConvCase{"Valid20Window7", {32, 20, 20, 32}, {7, 7, 32, 32}, 1, 1, "VALID"},
                      ConvCase{"ExplicitMoreThanTheWindow",
                               {32, 8, 11, 32},
                               {5, 5, 32, 32},
                               1,
                               1,
                               "EXPLICIT",
                               {0, 0, 6, 1, 0, 4, 0, 0}},
                      ConvCase{"Side20", {32, 20, 20, 32}, {5, 5, 32, 32}}),
    [](const auto& test) { return std::string(test.param.name); });

// A transform alone would spread it over the whole image.
TEST(TransformedConvSpecialTest, NaNAndInfinityReachTheResultsOfTheirWindowsOnly) {
  const ConvCase p{"", {32, 14, 14, 32}, {5, 5, 32, 32}};
  Tensor x = Random<float>(p.input, 1);
  const Tensor w = Random<float>(p.filter, 2);
  x.data<float>()[5 * 14 * 14 * 32] = std::numeric_limits<float>::infinity();
  x.data<float>()[14 * 14 * 32 - 1] = std::numeric_limits<float>::quiet_NaN();
  const auto expect_same_kind = [](const Tensor& got, const Tensor& expected) {
    ASSERT_EQ(got.shape(), expected.shape());
    int64_t differ = 0, special = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
      const float a = got.data<float>()[i];
      const double b = expected.data<double>()[i];
      special += std::isfinite(b) ? 0 : 1;
      differ += std::isnan(a) != std::isnan(b) || std::isinf(a) != std::isinf(b) ? 1 : 0;
    }
    EXPECT_EQ(differ, 0);
    EXPECT_GT(special, 0);
    EXPECT_LT(special, got.elements() / 2);
  };
  expect_same_kind(Run1("Conv2D", {x, w}, p.attrs()),
                   Run1("Conv2D", {AsDouble(x), AsDouble(w)}, p.attrs()));
  expect_same_kind(
      Run1("Conv2DBackpropInput", {Ints(p.input), w, x}, p.attrs()),
      Run1("Conv2DBackpropInput", {Ints(p.input), AsDouble(w), AsDouble(x)}, p.attrs()));
}

Tensor Transpose(const Tensor& nhwc) {
  const Shape s = nhwc.shape();
  Tensor out = Tensor::Allocate(DT_FLOAT, {s[0], s[3], s[1], s[2]}).value();
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t p = 0; p < s[1] * s[2]; ++p) {
      for (int64_t c = 0; c < s[3]; ++c)
        out.data<float>()[(n * s[3] + c) * s[1] * s[2] + p] =
            nhwc.data<float>()[(n * s[1] * s[2] + p) * s[3] + c];
    }
  }
  return out;
}

TEST(ConvFormatTest, ChannelsFirstGivesTheSameNumbers) {
  const Tensor x = Random<float>({3, 8, 7, 4}, 1), w = Random<float>({3, 3, 4, 5}, 2);
  const Attrs nhwc{{"strides", std::vector<int64_t>{1, 2, 1, 1}}, {"padding", std::string("SAME")}};
  const Attrs nchw{{"strides", std::vector<int64_t>{1, 1, 2, 1}},
                   {"padding", std::string("SAME")},
                   {"data_format", std::string("NCHW")}};
  ExpectNear(Run1("Conv2D", {Transpose(x), w}, nchw), Transpose(Run1("Conv2D", {x, w}, nhwc)),
             1e-5);
  const Attrs pool_nhwc{{"ksize", std::vector<int64_t>{1, 3, 2, 1}},
                        {"strides", std::vector<int64_t>{1, 2, 1, 1}},
                        {"padding", std::string("SAME")}};
  const Attrs pool_nchw{{"ksize", std::vector<int64_t>{1, 1, 3, 2}},
                        {"strides", std::vector<int64_t>{1, 1, 2, 1}},
                        {"padding", std::string("SAME")},
                        {"data_format", std::string("NCHW")}};
  for (const char* op : {"MaxPool", "AvgPool"})
    ExpectNear(Run1(op, {Transpose(x)}, pool_nchw), Transpose(Run1(op, {x}, pool_nhwc)), 1e-6);
  const Tensor y = Run1("MaxPool", {x}, pool_nhwc), dy = Random<float>(y.shape(), 3);
  ExpectNear(Run1("MaxPoolGrad", {Transpose(x), Transpose(y), Transpose(dy)}, pool_nchw),
             Transpose(Run1("MaxPoolGrad", {x, y, dy}, pool_nhwc)), 1e-6);
}

TEST(PoolTest, TheGradientGoesToTheFirstOfEqualMaxima) {
  const Attrs attrs{{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                    {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                    {"padding", std::string("SAME")}};
  const Tensor x = Tensor::FromValues<float>({1, 2, 4, 1}, {0, 0, 1, 2, 0, 0, 2, 2});
  const Tensor y = Run1("MaxPool", {x}, attrs);
  EXPECT_TRUE(BitEqual(y, Tensor::FromValues<float>({1, 1, 2, 1}, {0, 2})));
  const Tensor dx =
      Run1("MaxPoolGrad", {x, y, Tensor::FromValues<float>({1, 1, 2, 1}, {5, 7})}, attrs);
  EXPECT_TRUE(BitEqual(dx, Tensor::FromValues<float>({1, 2, 4, 1}, {5, 0, 0, 7, 0, 0, 0, 0})))
      << dx.ToString();
}

TEST(PoolTest, GradientsOfTilingWindowsAgreeWithThoseOfTheGeneralLoop) {
  const Tensor x = Run1("Relu", {Random<float>({4, 7, 9, 37}, 1)});
  const auto attrs = [](const char* format) {
    return Attrs{{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                 {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                 {"padding", std::string("SAME")},
                 {"data_format", std::string(format)}};
  };
  const Tensor y = Run1("MaxPool", {x}, attrs("NHWC")), dy = Random<float>(y.shape(), 3);
  const Tensor fast = Run1("MaxPoolGrad", {x, y, dy}, attrs("NHWC"));
  // Each window's gradient arrives somewhere, once.
  double in = 0, out = 0;
  for (float v : dy.values<float>()) in += static_cast<double>(v);
  for (float v : fast.values<float>()) out += static_cast<double>(v);
  EXPECT_NEAR(in, out, 1e-3);
  ExpectNear(fast, Run1("MaxPoolGrad", {AsDouble(x), AsDouble(y), AsDouble(dy)}, attrs("NHWC")),
             1e-6);
}

TEST(ConvErrorTest, AnOutBackpropOfTheWrongShapeIsNamed) {
  Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("VALID")}};
  const auto result =
      RunOp("Conv2DBackpropInput",
            {Ints({1, 4, 4, 1}), Random<float>({2, 2, 1, 1}), Random<float>({1, 4, 4, 1})}, attrs);
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("[1,3,3,1]"), std::string::npos) << result.status();
}

}  // namespace
}  // namespace monograph
