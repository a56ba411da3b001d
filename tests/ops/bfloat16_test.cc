// Kernels of bfloat16 against those of double on the same values: what they give is the exact
// result, rounded once. On processors without instructions for bfloat16 the same kernels compute in
// float, and the same holds.
#include <cmath>
#include <tuple>

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

}  // namespace
}  // namespace monograph
