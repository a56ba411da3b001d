// What bench gpu --plan says that a step must move, for graphs small enough to count by hand.
#include "bench/gpu_least.h"

#include <gtest/gtest.h>

#include <map>

#include "client/registries.h"
#include "graph/gradients.h"
#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/pool/pool.h"

namespace monograph::bench {
namespace {

class LeastBytesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kValue = 2 * 4 * 4 * 8 * 4;  // bytes of an image batch

  Output Given(const Shape& shape) { return Placeholder(root_, DT_FLOAT, shape); }
  Output Conv(const Output& x) {
    return Conv2D(root_, x, Given({1, 1, 8, 8}), {1, 1, 1, 1}, "SAME");
  }
  Output Norm(const Output& x) { return FusedBatchNorm(root_, x, Given({8}), Given({8})).y; }

  // {values read, values written} of each pass; what is less than a value is left out.
  std::map<std::string, std::pair<int64_t, int64_t>> Values() {
    EXPECT_TRUE(root_.ok()) << root_.status();
    std::map<std::string, std::pair<int64_t, int64_t>> values;
    for (const LeastBytes& one : ListLeastBytes(graph_))
      values[one.pass] = {one.read / kValue, one.written / kValue};
    return values;
  }
  using Pair = std::pair<int64_t, int64_t>;

  Graph graph_ = NewGraph();
  const Scope root_ = Scope(&graph_);
};

TEST_F(LeastBytesTest, WhatLiesBetweenProductsIsOnePassAndTheSums) {
  const Output side = Given({2, 4, 4, 8});
  Conv(Relu(root_, Add(root_, Norm(Conv(Given({2, 4, 4, 8}))), side)));
  auto values = Values();
  EXPECT_EQ(values["Conv2D"], Pair(2, 2));
  EXPECT_EQ(values["FusedBatchNormV3 (sums)"], Pair(1, 0));
  EXPECT_EQ(values["Relu"], Pair(2, 1));
  EXPECT_FALSE(values.contains("AddV2"));
  EXPECT_FALSE(values.contains("FusedBatchNormV3"));
}

TEST_F(LeastBytesTest, AProductDoesWhatFollowsItElementByElement) {
  Conv(Relu(root_, Conv(Given({2, 4, 4, 8}))));
  auto values = Values();
  EXPECT_EQ(values["Conv2D"], Pair(2, 1));
  EXPECT_EQ(values["Relu"], Pair(0, 1));
}

// Of y, which two read: the sum of their gradients and what passes the ReLU are made where the
// normalisation's sums are taken.
TEST_F(LeastBytesTest, TheGradientWhereAResidualJoinsReadsEachTensorOnce) {
  const Output x = Given({2, 4, 4, 8}), side = Given({2, 4, 4, 8});
  const Output y = Relu(root_, Add(root_, Norm(x), side));
  const auto gradients = AddGradients(root_, Outputs{Conv(y), Conv(y)}, Outputs{x, side},
                                      Outputs{Given({2, 4, 4, 8}), Given({2, 4, 4, 8})});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  for (const Output& gradient : *gradients) Conv(gradient);
  auto values = Values();
  EXPECT_EQ(values["Conv2DBackpropInput"], Pair(2, 2));
  EXPECT_EQ(values["ReluGrad"], Pair(3, 1));
  EXPECT_EQ(values["FusedBatchNormGradV3 (sums)"], Pair(1, 0));
  EXPECT_EQ(values["FusedBatchNormGradV3"], Pair(2, 1));
  EXPECT_FALSE(values.contains("AddN"));
}

TEST_F(LeastBytesTest, AReluOfANormalisedValueIsTheSameForItsGradientWithoutTheValue) {
  const Output x = Given({2, 4, 4, 8});
  const auto gradients = AddGradients(root_, Outputs{Conv(Relu(root_, Norm(x)))}, Outputs{x},
                                      Outputs{Given({2, 4, 4, 8})});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  auto values = Values();
  EXPECT_EQ(values["FusedBatchNormGradV3 (sums)"], Pair(2, 0));
  EXPECT_EQ(values["FusedBatchNormGradV3"], Pair(2, 1));
  EXPECT_FALSE(values.contains("ReluGrad"));
}

// Half a value more each: what was pooled, and its gradient.
TEST_F(LeastBytesTest, APoolingsGradientLetsPassWhatPassedTheRelu) {
  const Output x = Given({2, 4, 4, 8});
  const Output pooled = MaxPool(root_, Relu(root_, Conv(x)), {1, 2, 1, 1}, {1, 2, 1, 1}, "VALID");
  ASSERT_TRUE(AddGradients(root_, Outputs{pooled}, Outputs{x}, Outputs{Given({2, 2, 4, 8})}).ok());
  auto values = Values();
  EXPECT_EQ(values["MaxPool"], Pair(1, 0));
  EXPECT_EQ(values["ReluGrad"], Pair(2, 1));
  EXPECT_FALSE(values.contains("MaxPoolGrad"));
}

TEST_F(LeastBytesTest, ANormalisationReadsItsInputTwice) {
  EXPECT_EQ(BytesReadAgain(graph_, "none", "FusedBatchNormV3", 99), 0);
  const Output y = Norm(Given({2, 4, 4, 8}));
  const std::string name(graph_.name(y.node()));
  EXPECT_EQ(BytesReadAgain(graph_, name, "Conv2D", 99), 0);
  EXPECT_EQ(BytesReadAgain(graph_, name, "FusedBatchNormV3", 2 * kValue), kValue);
  EXPECT_EQ(BytesReadAgain(graph_, name, "_FusedBatchNormEx", 3 * kValue), kValue);
  EXPECT_EQ(BytesReadAgain(graph_, name, "FusedBatchNormGradV3", 3 * kValue), 2 * kValue);
  EXPECT_EQ(BytesReadAgain(graph_, name, "_FusedBatchNormGradEx", 4 * kValue), kValue);
  EXPECT_EQ(BytesReadAgain(graph_, name, "_FusedBatchNormGradEx", 6 * kValue), 2 * kValue);
}

}  // namespace
}  // namespace monograph::bench
