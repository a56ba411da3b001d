#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

Attrs Transposes(bool a, bool b) { return {{"transpose_a", a}, {"transpose_b", b}}; }

class MatMulTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(MatMulTest, AFloatProductAgreesWithTheDoubleOne) {
  const auto [ta, tb] = GetParam();
  for (auto [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{37, 53, 10},
                         {100, 3136, 130},
                         {3000, 100, 65},
                         {1, 700, 300},
                         {4, 4, 4}}) {
    const Tensor a = Random<float>(ta ? Shape{k, m} : Shape{m, k}, 1),
                 b = Random<float>(tb ? Shape{n, k} : Shape{k, n}, 2);
    const Tensor got = Run1("MatMul", {a, b}, Transposes(ta, tb));
    ExpectNear(got, Run1("MatMul", {AsDouble(a), AsDouble(b)}, Transposes(ta, tb)),
               2e-6 * static_cast<double>(k) + 1e-6);
  }
}

TEST_P(MatMulTest, TheBitsDoNotDependOnThreads) {
  const auto [ta, tb] = GetParam();
  const Tensor a = Random<float>(ta ? Shape{700, 310} : Shape{310, 700}, 1),
               b = Random<float>(tb ? Shape{1100, 700} : Shape{700, 1100}, 2);
  const Tensor alone = Run1("MatMul", {a, b}, Transposes(ta, tb));
  for (int threads : {1, 2, 3}) {
    ThreadPools pools(1, threads);
    EXPECT_TRUE(BitEqual(Run1("MatMul", {a, b}, Transposes(ta, tb), &pools), alone)) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTransposes, MatMulTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

// Tiles of very large products are cut in both dimensions, so that an abort is seen in time. Parts
// of the product by themselves are cut otherwise, and so are their sums on some processors.
TEST(LargeMatMulTest, AgreesWithItsPartsHoweverTheyAreCut) {
  constexpr int64_t kPart = 130;
  ThreadPools pools(1, 2);
  for (const auto& [m, k, n] :
       {std::tuple<int64_t, int64_t, int64_t>{4100, 4000, 4200}, {8200, 4000, 2100}}) {
    const Tensor a = Random<float>({m, k}, 1), b = Random<float>({k, n}, 2);
    const Tensor whole = Run1("MatMul", {a, b}, Transposes(false, false), &pools);
    const Tensor rows =
        Run1("MatMul", {a.Slice(m - kPart, m), b}, Transposes(false, false), &pools);
    const Tensor last_rows = whole.Slice(m - kPart, m);
    for (int64_t i = 0; i < kPart * n; ++i) {
      ASSERT_NEAR(last_rows.data<float>()[i], rows.data<float>()[i], 2e-6 * k + 1e-6)
          << "number " << i << " of the last rows of " << m << " " << k << " " << n;
    }
    Tensor last = Tensor::Allocate(DT_FLOAT, Shape{k, kPart}).value();
    for (int64_t i = 0; i < k; ++i)
      std::copy_n(b.data<float>() + (i + 1) * n - kPart, kPart, last.data<float>() + i * kPart);
    const Tensor columns = Run1("MatMul", {a, last}, Transposes(false, false), &pools);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < kPart; ++j) {
        ASSERT_NEAR(whole.data<float>()[(i + 1) * n - kPart + j],
                    std::as_const(columns).data<float>()[i * kPart + j], 2e-6 * k + 1e-6)
            << "row " << i << " of " << m << " " << k << " " << n;
      }
    }
  }
}

TEST(FusedMatMulTest, IsTheProductThenTheBiasThenReluUpToRounding) {
  // The last one is computed in tiles.
  for (auto [m, k, n] :
       {std::tuple<int64_t, int64_t, int64_t>{20, 3, 33}, {20, 200, 33}, {130, 1500, 1100}}) {
    const Tensor a = Random<float>({m, k}, 1), b = Random<float>({k, n}, 2),
                 bias = Random<float>({n}, 3);
    const Tensor product = Run1("MatMul", {a, b});
    const Tensor sum = Run1("BiasAdd", {product, bias});
    const Tensor relu = Run1("Relu", {sum});
    Attrs attrs{{"num_args", int64_t{1}}, {"fused_ops", std::vector<std::string>{"BiasAdd"}}};
    ExpectNear(Run1("_FusedMatMul", {a, b, bias}, attrs), sum, 1e-5);
    attrs.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
    ExpectNear(Run1("_FusedMatMul", {a, b, bias}, attrs), relu, 1e-5);
  }
}

TEST(FusedMatMulTest, AnUnknownFusionIsRefusedByName) {
  const auto result =
      RunOp("_FusedMatMul", {Random<float>({2, 2}), Random<float>({2, 2}), Random<float>({2})},
            {{"num_args", int64_t{1}}, {"fused_ops", std::vector<std::string>{"BiasAdd", "Tanh"}}});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("BiasAdd,Tanh"), std::string::npos) << result.status();
}

TEST(MatMulShapeTest, InnerDimensionsThatDifferAreNamed) {
  const auto result = RunOp("MatMul", {Random<float>({2, 3}), Random<float>({4, 5})});
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("3 and 4"), std::string::npos) << result.status();
}

TEST(BatchMatMulTest, MultipliesEveryPairOfMatricesAndBroadcasts) {
  const Tensor x = Random<float>({2, 1, 3, 4}, 1), y = Random<float>({5, 6, 4}, 2);
  const Tensor got = Run1("BatchMatMulV2", {x, y}, {{"adj_y", true}});
  ASSERT_EQ(got.shape(), (Shape{2, 5, 3, 6}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      const Tensor a = x.Slice(i, i + 1).Reshaped({3, 4}), b = y.Slice(j, j + 1).Reshaped({6, 4});
      const Tensor one = got.Slice(i, i + 1).Reshaped({5, 3, 6}).Slice(j, j + 1).Reshaped({3, 6});
      ExpectNear(one, Run1("MatMul", {AsDouble(a), AsDouble(b)}, Transposes(false, true)), 1e-5);
    }
  }
}

TEST(BiasTest, TheGradientIsTheSumOverAllButTheChannelsOnAnyNumberOfThreads) {
  for (const Shape& shape : {Shape{3, 5}, Shape{100, 28, 28, 32}, Shape{2000, 1}}) {
    const Tensor x = Random<float>(shape, 4);
    const Tensor got = Run1("BiasAddGrad", {x});
    ExpectNear(got, Run1("BiasAddGrad", {AsDouble(x)}), 2e-2);
    ThreadPools pools(1, 2);
    EXPECT_TRUE(BitEqual(got, Run1("BiasAddGrad", {x}, {}, &pools)));
  }
}

}  // namespace
}  // namespace monograph
