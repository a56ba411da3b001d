#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

TEST(SparseCrossEntropyTest, ALabelOutOfRangeIsNamedWithItsRow) {
  for (int32_t label : {3, -1}) {
    const auto result = RunOp("SparseSoftmaxCrossEntropyWithLogits",
                              {Random<float>({2, 3}), Tensor::Vector<int32_t>({0, label})});
    ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
    const std::string message = result.status().message();
    EXPECT_NE(message.find("label value of " + std::to_string(label) + " at index 1"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("[0, 3)"), std::string::npos) << message;
  }
}

TEST(SparseCrossEntropyTest, UniformLogitsCostTheLogarithmOfTheClasses) {
  const Tensor logits = Tensor::FromValues<float>({2, 4}, {0, 0, 0, 0, 7, 7, 7, 7});
  const auto result =
      RunOp("SparseSoftmaxCrossEntropyWithLogits", {logits, Tensor::Vector<int64_t>({1, 3})});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectNear((*result)[0], Tensor::Vector<double>({std::log(4.0), std::log(4.0)}), 1e-6);
  ExpectNear((*result)[1],
             Tensor::FromValues<double>({2, 4}, {.25, -.75, .25, .25, .25, .25, .25, -.75}), 1e-6);
}

TEST(CrossEntropyTest, DenseAndSparseLabelsAgree) {
  const Tensor logits = Random<float>({3, 5}, 7);
  Tensor one_hot = Tensor::Allocate(DT_FLOAT, {3, 5}).value();
  for (int64_t i = 0; i < 15; ++i) one_hot.data<float>()[i] = i % 5 == (i / 5) * 2 ? 1.f : 0.f;
  const auto sparse =
      RunOp("SparseSoftmaxCrossEntropyWithLogits", {logits, Tensor::Vector<int32_t>({0, 2, 4})});
  const auto dense = RunOp("SoftmaxCrossEntropyWithLogits", {logits, one_hot});
  ASSERT_TRUE(sparse.ok() && dense.ok());
  for (size_t i = 0; i < 2; ++i) ExpectNear((*sparse)[i], AsDouble((*dense)[i]), 1e-6);
}

TEST(L2LossTest, TheSumIsTheSameOnAnyNumberOfThreads) {
  const Tensor x = Random<float>({123457}, 3);
  const Tensor alone = Run1("L2Loss", {x});
  ThreadPools pools(1, 2);
  EXPECT_TRUE(BitEqual(alone, Run1("L2Loss", {x}, {}, &pools)));
  ExpectNear(alone, Run1("L2Loss", {AsDouble(x)}), 1e-2);
}

TEST(InTopKTest, CountsTargetsAmongTheHighest) {
  const Tensor predictions = Tensor::FromValues<float>({3, 3}, {1, 2, 3, 3, 2, 1, 5, 5, 5});
  const Tensor got = Run1(
      "InTopKV2", {predictions, Tensor::Vector<int32_t>({2, 2, 0}), Tensor::Scalar<int32_t>(1)});
  EXPECT_TRUE(BitEqual(got, Tensor::Vector<bool>({true, false, true}))) << got.ToString();
}

TEST(ActivationTest, FollowTheirFormulas) {
  const Tensor x = Tensor::Vector<float>({-2, -0.5f, 0, 3, 7});
  ExpectNear(Run1("Relu6", {x}), Tensor::Vector<double>({0, 0, 0, 3, 6}), 0);
  ExpectNear(Run1("LeakyRelu", {x}, {{"alpha", 0.1f}}),
             Tensor::Vector<double>({-0.2, -0.05, 0, 3, 7}), 1e-6);
  ExpectNear(Run1("Elu", {x}),
             Tensor::Vector<double>({std::exp(-2) - 1, std::exp(-0.5) - 1, 0, 3, 7}), 1e-6);
  const auto softplus = [](double v) { return std::log(std::exp(v) + 1); };
  ExpectNear(
      Run1("Softplus", {x}),
      Tensor::Vector<double>({softplus(-2), softplus(-0.5), softplus(0), softplus(3), softplus(7)}),
      1e-6);
}

TEST(ReluTest, ANaNStaysOne) {
  const Tensor got = Run1("Relu", {Tensor::Vector<float>({std::nanf(""), -1, 2})});
  EXPECT_TRUE(std::isnan(got.data<float>()[0]));
  EXPECT_EQ(got.data<float>()[1], 0);
  EXPECT_EQ(got.data<float>()[2], 2);
}

}  // namespace
}  // namespace monograph
