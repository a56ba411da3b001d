// Kernels of bfloat16 against those of double on the same values: what they give is the exact
// result, rounded once. On processors without instructions for bfloat16 the same kernels compute in
// float, and the same holds.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

Tensor Widened(const Tensor& in) {
  Tensor out = Tensor::Allocate(DT_DOUBLE, in.shape()).value();
  for (int64_t i = 0; i < in.elements(); ++i)
    out.data<double>()[i] = static_cast<double>(static_cast<float>(in.data<bfloat16>()[i]));
  return out;
}

// Element by element: `exact` rounded, up to `sums`, the error of its sums of floats.
void ExpectRounded(const Tensor& got, const Tensor& exact, double sums) {
  ASSERT_TRUE(got.valid() && exact.valid());
  ASSERT_EQ(got.dtype(), DT_BFLOAT16);
  ASSERT_EQ(got.shape(), exact.shape());
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double want = exact.data<double>()[i];
    ASSERT_NEAR(static_cast<double>(static_cast<float>(got.data<bfloat16>()[i])), want,
                std::abs(want) / 256 + sums)
        << "element " << i;
  }
}

// The same kernel on other threads, and once more, gives the same bits.
void ExpectSameBits(const Tensor& got, const std::string& op, const std::vector<Tensor>& inputs,
                    const Attrs& attrs) {
  for (int threads : {1, 2, 3}) {
    ThreadPools pools(1, threads);
    EXPECT_TRUE(BitEqual(Run1(op, inputs, attrs, &pools), got)) << op << " on " << threads;
  }
}

TEST(Bfloat16Test, AProductIsRoundedOnce) {
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{37, 53, 10},
                                {100, 3136, 130},
                                {100, 1500, 1100},
                                {3000, 100, 65},
                                {1, 700, 300},
                                {4, 4, 4}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Tensor a = Random<bfloat16>(ta ? Shape{k, m} : Shape{m, k}, 1),
                     b = Random<bfloat16>(tb ? Shape{n, k} : Shape{k, n}, 2);
        const Attrs attrs{{"transpose_a", ta}, {"transpose_b", tb}};
        const Tensor got = Run1("MatMul", {a, b}, attrs);
        ExpectRounded(got, Run1("MatMul", {Widened(a), Widened(b)}, attrs),
                      2e-6 * static_cast<double>(k) + 1e-6);
        ExpectSameBits(got, "MatMul", {a, b}, attrs);
      }
    }
  }
}

TEST(Bfloat16Test, AProductWithItsBiasAndReluIsRoundedOnce) {
  for (const auto& [m, k, n] :
       {std::tuple<int64_t, int64_t, int64_t>{20, 3, 33}, {20, 200, 33}, {130, 1500, 1100}}) {
    const Tensor a = Random<bfloat16>({m, k}, 1), b = Random<bfloat16>({k, n}, 2),
                 bias = Random<bfloat16>({n}, 3);
    const std::vector<Tensor> wide{Widened(a), Widened(b), Widened(bias)};
    Attrs attrs{{"num_args", int64_t{1}}, {"fused_ops", std::vector<std::string>{"BiasAdd"}}};
    ExpectRounded(Run1("_FusedMatMul", {a, b, bias}, attrs), Run1("_FusedMatMul", wide, attrs),
                  4e-6 * static_cast<double>(k));
    attrs.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
    const Tensor got = Run1("_FusedMatMul", {a, b, bias}, attrs);
    ExpectRounded(got, Run1("_FusedMatMul", wide, attrs), 4e-6 * static_cast<double>(k));
    ExpectSameBits(got, "_FusedMatMul", {a, b, bias}, attrs);
  }
}

TEST(Bfloat16Test, AFusedReluKeepsNaN) {
  Tensor a = Random<bfloat16>({8, 40}, 1);
  const Tensor b = Random<bfloat16>({40, 16}, 2);
  const Tensor bias = Random<bfloat16>({16}, 3);
  a.data<bfloat16>()[5 * 40] = bfloat16(std::nanf(""));
  const Tensor got =
      Run1("_FusedMatMul", {a, b, bias},
           {{"num_args", int64_t{1}}, {"fused_ops", std::vector<std::string>{"BiasAdd", "Relu"}}});
  for (int64_t i = 0; i < got.elements(); ++i) {
    const float value = got.data<bfloat16>()[i];
    EXPECT_EQ(std::isnan(value), i / 16 == 5) << i;
    EXPECT_FALSE(value < 0) << i;
  }
}

TEST(Bfloat16Test, ProductsOfABatchAreRoundedOnce) {
  const Tensor x = Random<bfloat16>({2, 1, 13, 24}, 1), y = Random<bfloat16>({5, 16, 24}, 2);
  const Attrs attrs{{"adj_y", true}};
  ExpectRounded(Run1("BatchMatMulV2", {x, y}, attrs),
                Run1("BatchMatMulV2", {Widened(x), Widened(y)}, attrs), 1e-4);
}

struct ConvCase {
  Shape image, filter;
  const char* format = "NHWC";
  int64_t stride = 1;
};

Attrs AttrsOf(const ConvCase& layer) {
  const bool nchw = layer.format[1] == 'C';
  const int64_t s = layer.stride;
  return {{"strides", nchw ? std::vector<int64_t>{1, 1, s, s} : std::vector<int64_t>{1, s, s, 1}},
          {"padding", std::string("SAME")},
          {"data_format", std::string(layer.format)}};
}

Tensor SizesOf(const Shape& shape) {
  std::vector<int32_t> sizes;
  for (const int64_t dim : shape.dims()) sizes.push_back(static_cast<int32_t>(dim));
  return Tensor::FromValues<int32_t>({shape.rank()}, sizes);
}

// One channel; a last chunk of images that is smaller; groups; channels first; strides; by
// transforms; no more than a pixel.
const ConvCase kLayers[] = {{{9, 28, 28, 1}, {5, 5, 1, 32}},
                            {{67, 21, 20, 32}, {3, 3, 32, 24}},
                            {{7, 12, 13, 32}, {5, 5, 8, 32}},
                            {{6, 16, 15, 14}, {3, 3, 16, 24}, "NCHW"},
                            {{5, 15, 16, 10}, {3, 3, 10, 7}, "NHWC", 2},
                            {{34, 13, 14, 48}, {5, 5, 48, 32}},
                            {{1, 1, 1, 1}, {1, 1, 1, 1}}};

// What a transform of whole images adds to the error, where a layer is computed by one: a rounding
// of the largest value.
double ErrorOfTransforms(const ConvCase& layer, const Tensor& exact) {
  if (layer.image[0] < 32 || layer.filter[0] < 5) return 0;
  double largest = 0;
  for (int64_t i = 0; i < exact.elements(); ++i)
    largest = std::max(largest, std::abs(exact.data<double>()[i]));
  return largest / 256;
}

TEST(Bfloat16Test, AConvolutionAndItsGradientsAreRoundedOnce) {
  for (const ConvCase& layer : kLayers) {
    SCOPED_TRACE(layer.image.ToString() + layer.filter.ToString() + layer.format);
    const Attrs attrs = AttrsOf(layer);
    const Tensor x = Random<bfloat16>(layer.image, 1), w = Random<bfloat16>(layer.filter, 2);
    const Tensor y = Run1("Conv2D", {x, w}, attrs);
    const auto expect = [&](const Tensor& got, const Tensor& exact, int64_t terms) {
      ExpectRounded(got, exact,
                    2e-6 * static_cast<double>(terms) + 1e-5 + ErrorOfTransforms(layer, exact));
    };
    const int64_t window = w.elements() / layer.filter[3];
    expect(y, Run1("Conv2D", {Widened(x), Widened(w)}, attrs), window);
    ExpectSameBits(y, "Conv2D", {x, w}, attrs);

    const Tensor dy = Random<bfloat16>(y.shape(), 3);
    const Tensor input = SizesOf(x.shape()), filter = SizesOf(w.shape());
    const Tensor dx = Run1("Conv2DBackpropInput", {input, w, dy}, attrs);
    expect(dx, Run1("Conv2DBackpropInput", {input, Widened(w), Widened(dy)}, attrs), w.elements());
    ExpectSameBits(dx, "Conv2DBackpropInput", {input, w, dy}, attrs);

    const Tensor dw = Run1("Conv2DBackpropFilter", {x, filter, dy}, attrs);
    expect(dw, Run1("Conv2DBackpropFilter", {Widened(x), filter, Widened(dy)}, attrs),
           y.elements() / layer.filter[3]);
    ExpectSameBits(dw, "Conv2DBackpropFilter", {x, filter, dy}, attrs);
  }
}

TEST(Bfloat16Test, AConvolutionWithItsBiasAndReluIsRoundedOnceAndKeepsNaN) {
  for (const ConvCase& layer : kLayers) {
    SCOPED_TRACE(layer.image.ToString() + layer.filter.ToString() + layer.format);
    Attrs attrs = AttrsOf(layer);
    attrs.Set("num_args", int64_t{1});
    attrs.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
    Tensor x = Random<bfloat16>(layer.image, 1);
    const Tensor w = Random<bfloat16>(layer.filter, 2),
                 bias = Random<bfloat16>({layer.filter[3]}, 3);
    const Tensor y = Run1("_FusedConv2D", {x, w, bias}, attrs);
    const Tensor exact = Run1("_FusedConv2D", {Widened(x), Widened(w), Widened(bias)}, attrs);
    const int64_t window = w.elements() / layer.filter[3];
    ExpectRounded(y, exact,
                  2e-6 * static_cast<double>(window) + 1e-5 + ErrorOfTransforms(layer, exact));
    ExpectSameBits(y, "_FusedConv2D", {x, w, bias}, attrs);
    x.data<bfloat16>()[0] = bfloat16(std::nanf(""));
    const Tensor with_nan = Run1("_FusedConv2D", {x, w, bias}, attrs);
    EXPECT_TRUE(std::isnan(static_cast<float>(std::as_const(with_nan).data<bfloat16>()[0])));
  }
}

// Of a zero the sign does not count, and a NaN is the maximum of no window.
TEST(Bfloat16Test, TheGradientOfMaxPoolingGoesToTheFirstEqualNumber) {
  const float nan = std::nanf("");
  const Attrs attrs{{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                    {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                    {"padding", std::string("VALID")}};
  const auto tensor = [](const Shape& shape, const std::vector<float>& values) {
    std::vector<bfloat16> narrow;
    for (const float value : values) narrow.emplace_back(value);
    return Tensor::FromValues<bfloat16>(shape, narrow);
  };
  const Tensor x = tensor({1, 2, 8, 1}, {-1, 2, -0.f, 0, nan, 1, -3, -2,  //
                                         2, 1, 0, -1, 1, 0, -2, -4});
  const Tensor y = tensor({1, 1, 4, 1}, {2, 0, nan, -2}), dy = tensor({1, 1, 4, 1}, {1, 2, 3, 4});
  const Tensor dx = Run1("MaxPoolGrad", {x, y, dy}, attrs);
  const std::vector<float> want{0, 1, 2, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(static_cast<float>(dx.data<bfloat16>()[i]), want[i]) << i;
}

TEST(Bfloat16Test, MaxPoolingGivesTheValuesOfFloat) {
  for (const Shape& shape : {Shape{3, 28, 28, 32}, Shape{2, 7, 5, 3}}) {
    const Tensor x = Random<bfloat16>(shape, 1);
    for (const int64_t size : {2, 3}) {
      const Attrs attrs{{"ksize", std::vector<int64_t>{1, size, size, 1}},
                        {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                        {"padding", std::string("SAME")}};
      const Tensor y = Run1("MaxPool", {x}, attrs);
      ExpectRounded(y, Run1("MaxPool", {Widened(x)}, attrs), 0);
      const Tensor dy = Random<bfloat16>(y.shape(), 2);
      ExpectRounded(Run1("MaxPoolGrad", {x, y, dy}, attrs),
                    Run1("MaxPoolGrad", {Widened(x), Widened(y), Widened(dy)}, attrs), 2e-2);
    }
  }
}

}  // namespace
}  // namespace monograph
