#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>

#include "client/registries.h"
#include "client/session.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"

namespace monograph {
namespace {

// loss = (w as half) * x, so that dw = x, computed in half.
class LossScaleTest : public ::testing::Test {
 protected:
  LossScaleTest() : graph_(NewGraph()), root_(&graph_) {}

  void Build(const LossScaleOptions& options) {
    x_ = Placeholder(root_.WithOpName("x"), DT_FLOAT, Shape());
    w_ = MakeVariable(root_, "w", ScalarConst(root_, 1, DT_FLOAT));
    std::vector<Operation> init{w_.initializer};
    const Output product = Mul(root_, Cast(root_, w_.value, DT_HALF), Cast(root_, x_, DT_HALF));
    const LossScale scaling(root_, options, &init);
    const std::vector<ModelVariable> variables{w_};
    const auto pairs =
        ComputeGradients(root_, scaling.Scaled(root_, Cast(root_, product, DT_FLOAT)), variables);
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    const UnscaledGradients unscaled = scaling.Unscaled(root_, *pairs);
    ASSERT_TRUE(root_.ok()) << root_.status();
    gradient_ = unscaled.pairs[0].gradient;
    finite_ = unscaled.finite;
    train_ = {GradientDescent(1.0).ApplyGradients(root_, unscaled.pairs, &init), unscaled.update};
    scale_ = scaling.variable().value;
    ASSERT_TRUE(root_.ok()) << root_.status();
    auto session = Session::Local(graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(*session);
    const auto started = session_->Run({}, {}, init);
    ASSERT_TRUE(started.ok()) << started.status();
  }
  struct Step {
    float gradient, scale;
    bool finite;
  };
  // One step; the scale is that before its update.
  Step Train(float x) {
    const auto got = session_->Run({{x_, Tensor::Scalar(x)}}, {gradient_, scale_, finite_}, train_);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return {};
    return {(*got)[0].scalar<float>(), (*got)[1].scalar<float>(), (*got)[2].scalar<bool>()};
  }
  float Value(const Output& output) {
    const auto got = session_->Run({}, {output});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? (*got)[0].scalar<float>() : 0;
  }

  Graph graph_;
  const Scope root_;
  ModelVariable w_;
  Output x_, gradient_, finite_, scale_;
  std::vector<Operation> train_;
  std::unique_ptr<Session> session_;
};

TEST_F(LossScaleTest, KeepsGradientsThatHalfCannotHold) {
  // The gradient of w, x, travels as half; 2^-20 times the scale is well within its range, and the
  // quotient is exact.
  Build({.initial = 1024, .dynamic = false});
  const Step step = Train(0x1p-20f);
  EXPECT_TRUE(step.finite);
  EXPECT_EQ(step.gradient, 0x1p-20f);
  EXPECT_EQ(Value(w_.value), 1.0f - 0x1p-20f);
}

TEST_F(LossScaleTest, AnOverflowChangesNothingAndHalvesTheScale) {
  Build({.initial = 1024, .growth_steps = 2});
  const Step over = Train(100);  // 102400 is infinite in half
  EXPECT_FALSE(over.finite);
  EXPECT_EQ(over.gradient, 0);
  EXPECT_EQ(over.scale, 1024);
  EXPECT_EQ(Value(w_.value), 1);
  const Step good = Train(100);
  EXPECT_TRUE(good.finite);
  EXPECT_EQ(good.gradient, 100);
  EXPECT_EQ(good.scale, 512);
}

TEST_F(LossScaleTest, GoodStepsDoubleItUpToALimit) {
  Build({.initial = 8, .growth_steps = 2, .largest = 16});
  std::vector<float> scales;
  for (int i = 0; i < 7; ++i) scales.push_back(Train(i == 4 ? 30000.0f : 1.0f).scale);
  EXPECT_EQ(scales, (std::vector<float>{8, 8, 16, 16, 16, 8, 8}));
}

TEST_F(LossScaleTest, RefusesOptionsThatMakeNoSense) {
  std::vector<Operation> init;
  const LossScale scaling(root_, {.initial = 0.5}, &init);
  EXPECT_EQ(root_.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(init.empty());
}

}  // namespace
}  // namespace monograph
