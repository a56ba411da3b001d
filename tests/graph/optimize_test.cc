#include "graph/optimize.h"

#include <gtest/gtest.h>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Const;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class OptimizeTest : public ::testing::Test {
 protected:
  // Computes Add of float scalars, and nothing else.
  Evaluator evaluator_ = [this](const Graph& graph, NodeId node,
                                std::span<const Tensor> inputs) -> Result<std::vector<Tensor>> {
    ++evaluations_;
    if (!graph.is(node, "Add")) return Unimplemented("only Add");
    return std::vector<Tensor>{
        Tensor::Scalar<float>(inputs[0].scalar<float>() + inputs[1].scalar<float>())};
  };
  Graph Optimized(std::initializer_list<NodeId> keep, const OptimizeOptions& options = {}) {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto optimized = Optimize(graph_, options, {keep.begin(), keep.size()}, evaluator_, &mapping_);
    EXPECT_TRUE(optimized.ok()) << optimized.status();
    return std::move(optimized).value();
  }
  Output Number(float value) { return Const(root_, Tensor::Scalar<float>(value)); }

  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};
  std::vector<NodeId> mapping_;
  int evaluations_ = 0;
};

TEST_F(OptimizeTest, ConstantsAreFoldedTransitively) {
  const Output five = Binary(root_.WithOpName("five"), "Add", Number(2), Number(3));
  const Output six = Binary(root_.WithOpName("six"), "Add", five, Number(1));
  const Output y = Binary(root_.WithOpName("y"), "Mul", Placeholder(root_, DT_FLOAT, {}), six);
  const Graph optimized = Optimized({y.node()});
  EXPECT_EQ(optimized.num_nodes(), 3);
  const NodeId folded = optimized.Find("six");
  ASSERT_TRUE(optimized.is(folded, "Const"));
  EXPECT_EQ(optimized.attrs(folded).Get<Tensor>("value").scalar<float>(), 6.0f);
  EXPECT_EQ(mapping_[static_cast<size_t>(six.node())], folded);
  EXPECT_EQ(mapping_[static_cast<size_t>(five.node())], -1);
}

TEST_F(OptimizeTest, AKeptNodeMayBeFedAndIsNotTakenForAConstant) {
  const Output two = Number(2);
  const Output sum = Binary(root_.WithOpName("sum"), "Add", two, Number(3));
  const Output y = Unary(root_.WithOpName("y"), "Relu", sum);
  const Graph optimized = Optimized({two.node(), y.node()});
  EXPECT_TRUE(optimized.is(optimized.Find("sum"), "Add"));
}

TEST_F(OptimizeTest, StaticShapesNeedNoEvaluation) {
  const Output shape =
      Unary(root_.WithOpName("shape"), "Shape", Placeholder(root_, DT_FLOAT, {4, 5}));
  const Output open =
      Unary(root_.WithOpName("open"), "Shape", Placeholder(root_, DT_FLOAT, {-1, 5}));
  const Output y = Binary(root_.WithOpName("y"), "Mul", shape, open);
  const Graph optimized = Optimized({y.node()});
  ASSERT_TRUE(optimized.is(optimized.Find("shape"), "Const"));
  EXPECT_EQ(optimized.attrs(optimized.Find("shape")).Get<Tensor>("value").ToString(),
            "int32[2] = 4 5");
  EXPECT_TRUE(optimized.is(optimized.Find("open"), "Shape"));
  EXPECT_EQ(evaluations_, 0);
}

TEST_F(OptimizeTest, WhatCannotBeEvaluatedStays) {
  const Output y =
      Unary(root_.WithOpName("y"), "Relu", Unary(root_.WithOpName("r"), "Relu", Number(1)));
  const Graph optimized = Optimized({y.node()});
  EXPECT_TRUE(optimized.is(optimized.Find("r"), "Relu"));
  EXPECT_EQ(evaluations_, 1);
}

TEST_F(OptimizeTest, LargeResultsAndDisabledFoldingLeaveTheNode) {
  const Output sum = Binary(root_.WithOpName("sum"), "Add", Number(2), Number(3));
  const Output y = Unary(root_.WithOpName("y"), "Relu", sum);
  EXPECT_TRUE(Optimized({y.node()}, {.max_folded_bytes = 2}).Find("sum") >= 0);
  EXPECT_EQ(evaluations_, 0);
  Optimized({y.node()}, {.constant_folding = false});
  EXPECT_EQ(evaluations_, 0);
  const Graph same = Optimized({y.node()}, {.level = 0});
  EXPECT_EQ(same.num_nodes(), graph_.num_nodes());
  EXPECT_EQ(evaluations_, 0);
}

TEST_F(OptimizeTest, EqualNodesAreMergedAlsoWithSwappedInputs) {
  const Output a = Placeholder(root_, DT_FLOAT, {2}), b = Placeholder(root_, DT_FLOAT, {2});
  const Output p = Binary(root_.WithOpName("p"), "Mul", a, b),
               q = Binary(root_.WithOpName("q"), "Mul", b, a);
  const Output r = Binary(root_.WithOpName("r"), "Sub", a, b),
               s = Binary(root_.WithOpName("s"), "Sub", b, a);
  const Outputs all = {p, q, r, s};
  const Output y = OpBuilder(root_.WithOpName("y"), "AddN").Inputs(all).BuildOutput();
  const Graph optimized = Optimized({y.node()});
  const auto inputs = optimized.inputs(optimized.Find("y"));
  EXPECT_EQ(inputs[0], inputs[1]);
  EXPECT_NE(inputs[2], inputs[3]);
  EXPECT_EQ(optimized.num_nodes(), 6);
  EXPECT_EQ(mapping_[static_cast<size_t>(q.node())], mapping_[static_cast<size_t>(p.node())]);
}

TEST_F(OptimizeTest, PlaceholdersStatefulNodesAndOtherDevicesAreNotMerged) {
  const Output shape = Const(root_, Tensor::Vector<int32_t>({2}));
  const auto random = [&](const Scope& scope) {
    return OpBuilder(scope, "RandomUniform").Input(shape).Attr("dtype", DT_FLOAT).BuildOutput();
  };
  const Output a = Placeholder(root_, DT_FLOAT, {2}), b = Placeholder(root_, DT_FLOAT, {2});
  const Outputs all = {a,
                       b,
                       random(root_),
                       random(root_),
                       Unary(root_.WithDevice("/task:0"), "Relu", a),
                       Unary(root_.WithDevice("/task:1"), "Relu", a)};
  const Output y = OpBuilder(root_.WithOpName("y"), "AddN").Inputs(all).BuildOutput();
  const Graph optimized = Optimized({y.node()});
  EXPECT_EQ(optimized.num_nodes(), graph_.num_nodes());
}

TEST_F(OptimizeTest, ConstantsThatAreEqualAreMerged) {
  const Output y = Binary(root_.WithOpName("y"), "Mul", Number(7), Number(7));
  const Output z = Binary(root_.WithOpName("z"), "Mul", Number(-0.0f), Number(0.0f));
  const Graph optimized = Optimized({y.node(), z.node()});
  EXPECT_EQ(optimized.inputs(optimized.Find("y"))[0], optimized.inputs(optimized.Find("y"))[1]);
  EXPECT_NE(optimized.inputs(optimized.Find("z"))[0], optimized.inputs(optimized.Find("z"))[1]);
}

TEST_F(OptimizeTest, ControlEdgesFollowFoldedNodes) {
  const Output five = Binary(root_.WithOpName("five"), "Add", Number(2), Number(3));
  const Operation last =
      OpBuilder(root_.WithOpName("last").WithControlDependencies({five}), "NoOp").Build();
  const Graph optimized = Optimized({last.id});
  ASSERT_EQ(optimized.control_inputs(optimized.Find("last")).size(), 1u);
  EXPECT_EQ(optimized.name(optimized.control_inputs(optimized.Find("last"))[0]), "five");
}

}  // namespace
}  // namespace monograph
