// The same training curve from one device and from two in-graph replicas, with the same bits for
// every number of threads and every repeat.
#include "tests/train/training_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace monograph::testing {
namespace {

CurveOptions OneDevice() { return {}; }
CurveOptions TwoReplicas() { return {.replicas = {"/device:CPU:0", "/device:CPU:1"}}; }
CurveOptions WithThreads(CurveOptions options, int threads) {
  options.session.inter_op_parallelism_threads = threads;
  options.session.intra_op_parallelism_threads = threads;
  return options;
}

Curve RunCurve(const CurveOptions& options) {
  Result<Curve> curve = TrainingCurve(options);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? std::move(curve).value() : Curve();
}

float Mean(const std::vector<float>& values, size_t begin, size_t end) {
  float sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<float>(end - begin);
}

TEST(TrainingCurve, LossFallsOnOneDevice) {
  CurveOptions options = OneDevice();
  options.steps = 80;
  const Curve curve = RunCurve(options);
  ASSERT_EQ(curve.losses.size(), 80u);
  EXPECT_LT(Mean(curve.losses, 75, 80), 0.5f * Mean(curve.losses, 0, 5));
  EXPECT_GT(Mean(curve.accuracies, 75, 80), 0.7f);
}

TEST(TrainingCurve, TwoReplicasFollowOneDeviceUpToRounding) {
  const Curve one = RunCurve(OneDevice()), two = RunCurve(TwoReplicas());
  ASSERT_EQ(one.losses.size(), two.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    // Rounding grows with the steps; the first ones must agree to a few units in the last place.
    const float tolerance = (i < 3 ? 1e-5f : 1e-2f) * std::max(1.0f, std::fabs(one.losses[i]));
    EXPECT_NEAR(one.losses[i], two.losses[i], tolerance) << "step " << i;
  }
}

TEST(TrainingCurve, RepeatsHaveTheSameBits) {
  EXPECT_EQ(Difference(RunCurve(TwoReplicas()), RunCurve(TwoReplicas())), "");
  CurveOptions dropout = TwoReplicas();
  dropout.dropout = 0.5;
  EXPECT_EQ(Difference(RunCurve(dropout), RunCurve(dropout)), "");
  EXPECT_NE(Difference(RunCurve(dropout), RunCurve(TwoReplicas())), "");
}

TEST(TrainingCurve, ThreadsDoNotChangeABit) {
  EXPECT_EQ(
      Difference(RunCurve(WithThreads(TwoReplicas(), 1)), RunCurve(WithThreads(TwoReplicas(), 4))),
      "");
  EXPECT_EQ(
      Difference(RunCurve(WithThreads(OneDevice(), 1)), RunCurve(WithThreads(OneDevice(), 4))), "");
}

TEST(TrainingCurve, ABatchThatDoesNotDivideEvenlyKeepsTheExactMean) {
  CurveOptions one = OneDevice(), two = TwoReplicas();
  one.batch_size = two.batch_size = 25;
  one.steps = two.steps = 5;
  const Curve a = RunCurve(one), b = RunCurve(two);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-3f) << "step " << i;
  EXPECT_EQ(Difference(b, RunCurve(two)), "");
}

TEST(TrainingCurve, InputReadByTheReplicasGivesTheSameBitsAsInputFedByTheClient) {
  for (const int64_t batch_size : {24, 25}) {
    CurveOptions fed = TwoReplicas(), read = TwoReplicas();
    fed.batch_size = read.batch_size = batch_size;
    read.executor_input = true;
    EXPECT_EQ(Difference(RunCurve(fed), RunCurve(read)), "") << "batch of " << batch_size;
  }
}

TEST(TrainingCurve, AnotherSeedGivesAnotherCurve) {
  CurveOptions other = OneDevice();
  other.seed = 12;
  EXPECT_NE(Difference(RunCurve(OneDevice()), RunCurve(other)), "");
}

TEST(TrainingCurve, ABatchSmallerThanTheReplicasIsRefused) {
  CurveOptions options = TwoReplicas();
  options.batch_size = 1;
  const Status status = TrainingCurve(options).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("smaller than its 2 replicas"), std::string::npos) << status;
}

}  // namespace
}  // namespace monograph::testing
