// Layer normalisation, GELU and their gradients, against what their formulas say in double.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

Tensor CastTo(const Tensor& tensor, DType to) {
  return Run1("Cast", {tensor}, {{"SrcT", tensor.dtype()}, {"DstT", to}});
}
double At(const Tensor& tensor, int64_t i) { return static_cast<double>(tensor.data<float>()[i]); }

// {y, dx, dscale, doffset} in double, of x and dy rounded to `dtype`, and what the kernels say.
struct Compared {
  std::vector<Tensor> exact, got;
};
Compared LayerNormOf(const Shape& shape, DType dtype, ThreadPools* pools = nullptr) {
  const int64_t width = shape[shape.rank() - 1], rows = width == 0 ? 0 : shape.elements() / width;
  const float epsilon = 1e-3f;
  const Tensor x16 = CastTo(Random<float>(shape, 1), dtype),
               dy16 = CastTo(Random<float>(shape, 2), dtype);
  const Tensor scale = Random<float>({width}, 3), offset = Random<float>({width}, 4);
  Compared all;
  const auto forward =
      RunOp("_FusedLayerNorm", {x16, scale, offset}, {{"T", dtype}, {"epsilon", epsilon}}, pools);
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) return all;
  const auto backward =
      RunOp("_FusedLayerNormGrad", {dy16, x16, scale, (*forward)[1], (*forward)[2]}, {{"T", dtype}},
            pools);
  EXPECT_TRUE(backward.ok()) << backward.status();
  if (!backward.ok()) return all;
  all.got = {CastTo((*forward)[0], DT_FLOAT), CastTo((*backward)[0], DT_FLOAT), (*backward)[1],
             (*backward)[2]};
  const Tensor x = CastTo(x16, DT_FLOAT), dy = CastTo(dy16, DT_FLOAT);
  for (const Shape& of : {shape, shape, Shape{width}, Shape{width}}) {
    all.exact.push_back(Tensor::Allocate(DT_DOUBLE, of).value());
    std::fill_n(all.exact.back().data<double>(), of.elements(), 0.0);
  }
  const auto exact = [&](size_t i) { return all.exact[i].data<double>(); };
  const auto count = static_cast<double>(width);
  for (int64_t row = 0; row < rows; ++row) {
    double mean = 0, variance = 0, first = 0, second = 0;
    for (int64_t k = 0; k < width; ++k) mean += At(x, row * width + k) / count;
    for (int64_t k = 0; k < width; ++k)
      variance += std::pow(At(x, row * width + k) - mean, 2) / count;
    const double inverse = 1 / std::sqrt(variance + static_cast<double>(epsilon));
    const auto normal = [&](int64_t k) { return (At(x, row * width + k) - mean) * inverse; };
    const auto gradient = [&](int64_t k) { return At(dy, row * width + k) * At(scale, k); };
    for (int64_t k = 0; k < width; ++k) {
      first += gradient(k) / count;
      second += gradient(k) * normal(k) / count;
    }
    for (int64_t k = 0; k < width; ++k) {
      const int64_t at = row * width + k;
      exact(0)[at] = normal(k) * At(scale, k) + At(offset, k);
      exact(1)[at] = inverse * (gradient(k) - first - normal(k) * second);
      exact(2)[k] += At(dy, at) * normal(k);
      exact(3)[k] += At(dy, at);
    }
  }
  return all;
}

TEST(LayerNormTest, IsWhatItsFormulasSayForEachTypeAndShape) {
  for (const Shape& shape : {Shape{130, 24}, Shape{3, 5, 768}, Shape{7}, Shape{70, 1}, Shape{2, 37},
                             Shape{0, 8}, Shape{3, 0}}) {
    for (const DType dtype : {DT_FLOAT, DT_BFLOAT16, DT_HALF}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + shape.ToString());
      const Compared all = LayerNormOf(shape, dtype);
      ASSERT_EQ(all.got.size(), 4u);
      const double unit = dtype == DT_FLOAT ? 1e-5 : dtype == DT_HALF ? 2e-3 : 1e-2;
      for (size_t i = 0; i < 4; ++i) {
        SCOPED_TRACE(i);
        // Elements of the gradient are up to 1 / sqrt(epsilon) large.
        const double tolerance = i == 1 && shape[shape.rank() - 1] == 1 ? 40 * unit : 4 * unit;
        ExpectNear(all.got[i], all.exact[i], i < 2 ? tolerance : 1e-4);
      }
    }
  }
}

TEST(LayerNormTest, TheBitsDoNotDependOnThreads) {
  const Compared alone = LayerNormOf({300, 40}, DT_FLOAT);
  for (const int threads : {1, 3}) {
    ThreadPools pools(1, threads);
    const Compared got = LayerNormOf({300, 40}, DT_FLOAT, &pools);
    for (size_t i = 0; i < alone.got.size(); ++i)
      EXPECT_TRUE(BitEqual(got.got[i], alone.got[i])) << threads << " threads, " << i;
  }
}

TEST(LayerNormTest, WhatDoesNotFitIsNamed) {
  const Tensor x = Random<float>({2, 3}), three = Random<float>({3}), four = Random<float>({4});
  const Attrs attrs{{"T", DT_FLOAT}, {"epsilon", 1e-3f}};
  for (const auto& [inputs, why] :
       {std::pair{std::vector{x, three, four}, "the last dimension and a vector: 3 and 4 differ"},
        {std::vector{Tensor::Scalar<float>(1), three, three}, "at least one dimension"}}) {
    const auto result = RunOp("_FusedLayerNorm", inputs, attrs);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(why), std::string::npos) << result.status();
  }
}

TEST(GeluTest, AndItsGradientAreWhatTheirFormulasSay) {
  const Tensor wide = Random<float>({1000}, 5), gradient = Random<float>({1000}, 6);
  for (const DType dtype : {DT_FLOAT, DT_BFLOAT16, DT_HALF}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Tensor x16 = CastTo(Run1("Mul", {wide, Tensor::Scalar<float>(4)}, {{"T", DT_FLOAT}}),
                              dtype),
                 g16 = CastTo(gradient, dtype);
    const Tensor x = CastTo(x16, DT_FLOAT), g = CastTo(g16, DT_FLOAT);
    Tensor y = Tensor::Allocate(DT_DOUBLE, {1000}).value(),
           dx = Tensor::Allocate(DT_DOUBLE, {1000}).value();
    for (int64_t i = 0; i < 1000; ++i) {
      const double at = At(x, i), share = std::erfc(-at / std::sqrt(2.0)) / 2,
                   slope = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0));
      y.data<double>()[i] = at * share;
      dx.data<double>()[i] = At(g, i) * (share + at * slope);
    }
    const double unit = dtype == DT_FLOAT ? 1e-6 : dtype == DT_HALF ? 1e-3 : 8e-3;
    ExpectNear(CastTo(Run1("_Gelu", {x16}, {{"T", dtype}}), DT_FLOAT), y, 4 * unit);
    ExpectNear(CastTo(Run1("_GeluGrad", {g16, x16}, {{"T", dtype}}), DT_FLOAT), dx, unit);
  }
}

}  // namespace
}  // namespace monograph
