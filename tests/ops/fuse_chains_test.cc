#include "ops/rewrites/fuse_chains.h"

#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

class FuseChainsTest : public ::testing::Test {
 protected:
  FuseChainsTest()
      : graph_(&Ops()),
        root_(&graph_),
        gpu_(root_.WithDevice("/job:localhost/replica:0/task:0/device:GPU:0")),
        x_(Placeholder(gpu_.WithOpName("x"), DT_FLOAT, {-1, 4})),
        a_(Placeholder(gpu_.WithOpName("a"), DT_FLOAT, {4})),
        b_(Placeholder(gpu_.WithOpName("b"), DT_FLOAT, {-1, 4})) {}

  Graph Fused() {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto fused = FuseChains(std::move(graph_));
    EXPECT_TRUE(fused.ok()) << fused.status();
    return std::move(*fused);
  }
  static int Count(const Graph& graph) {
    int count = 0;
    for (NodeId id = 0; id < graph.num_nodes(); ++id)
      count += graph.is(id, "_FusedElementwise") ? 1 : 0;
    return count;
  }

  Graph graph_;
  const Scope root_, gpu_;
  const Output x_, a_, b_;
};

TEST_F(FuseChainsTest, AChainBecomesOneNodeWithTheLastName) {
  const Output difference = Sub(gpu_, b_, Mul(gpu_, x_, a_));
  const Output y = Relu(gpu_.WithOpName("y"), difference);
  Identity(gpu_.WithOpName("end"), y);
  const Graph fused = Fused();
  ASSERT_EQ(Count(fused), 1);
  const NodeId id = fused.Find("y");
  ASSERT_GE(id, 0);
  EXPECT_TRUE(fused.is(id, "_FusedElementwise"));
  EXPECT_EQ(fused.num_nodes(), 5);
  std::vector<std::string> inputs;
  for (const Endpoint& e : fused.inputs(id)) inputs.emplace_back(fused.name(e.node));
  EXPECT_EQ(inputs, (std::vector<std::string>{"x", "a", "b"}));
  const Attrs& attrs = fused.attrs(id);
  EXPECT_EQ(attrs.Get<std::vector<std::string>>("ops"),
            (std::vector<std::string>{"Mul", "Sub", "Relu"}));
  EXPECT_EQ(attrs.Get<std::vector<int64_t>>("operand"), (std::vector<int64_t>{1, 2, -1}));
  EXPECT_EQ(attrs.Get<std::vector<int64_t>>("operand_first"), (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(fused.inputs(fused.Find("end"))[0].node, id);
}

TEST_F(FuseChainsTest, WhatOthersUseIsNotAbsorbed) {
  const Output product = Mul(gpu_, x_, a_);
  const Output y = Relu(gpu_, product), z = Neg(gpu_, product);
  Identity(gpu_, AddN(gpu_, {y, z}));
  EXPECT_EQ(Count(Fused()), 0);
}

TEST_F(FuseChainsTest, NorIsWhatSomebodyWaitsFor) {
  const Output awaited = Neg(gpu_, x_);
  NoOp(gpu_.WithControlDependencies({awaited}));
  Square(gpu_, awaited);
  EXPECT_EQ(Count(Fused()), 0);
}

TEST_F(FuseChainsTest, AStepThatGrowsTheShapeBeginsAChain) {
  // exp(a) is computed once for each column, not for each row too.
  const Output y = Relu(gpu_.WithOpName("y"), Mul(gpu_, Exp(gpu_, a_), x_));
  Identity(gpu_, y);
  const Graph fused = Fused();
  ASSERT_EQ(Count(fused), 1);
  EXPECT_EQ(fused.attrs(fused.Find("y")).Get<std::vector<std::string>>("ops"),
            (std::vector<std::string>{"Mul", "Relu"}));
}

TEST_F(FuseChainsTest, CpusAndOtherDevicesKeepTheirNodes) {
  const Scope cpu = root_.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0"),
              other = root_.WithDevice("/job:localhost/replica:0/task:0/device:GPU:1");
  Identity(root_, Relu(cpu, Mul(cpu, x_, a_)));
  Identity(root_, Relu(other, Mul(gpu_, x_, a_)));
  EXPECT_EQ(Count(Fused()), 0);
}

TEST_F(FuseChainsTest, LongChainsAreCut) {
  Output y = x_;
  for (int i = 0; i < 20; ++i) y = Neg(gpu_, y);
  Identity(gpu_, y);
  const Graph fused = Fused();
  EXPECT_GE(Count(fused), 1);
  EXPECT_LE(fused.num_nodes(), 3 + 1 + 4 + 1);
}

}  // namespace
}  // namespace monograph
