#include "ops/group_updates.h"

#include <algorithm>

#include "graph/scope.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

class GroupUpdatesTest : public ::testing::Test {
 protected:
  GroupUpdatesTest()
      : graph_(&Ops()),
        root_(&graph_),
        gpu_(root_.WithDevice("/job:localhost/replica:0/task:0/device:GPU:0")),
        lr_(Const(gpu_.WithOpName("lr"), Tensor::Scalar<float>(0.5f))),
        momentum_(Const(gpu_.WithOpName("momentum"), Tensor::Scalar<float>(0.9f))) {}

  Operation Momentum(const Scope& scope, const std::string& name, Output lr,
                     bool nesterov = false) {
    const Output var = VarHandle(scope.WithOpName(name), DT_FLOAT, {2}),
                 accum = VarHandle(scope.WithOpName(name + "_m"), DT_FLOAT, {2}),
                 gradient = Const(scope.WithOpName(name + "_g"), Tensor::Vector<float>({1, 2}));
    return ResourceApplyMomentum(scope.WithOpName("update_" + name), var, accum, lr, gradient,
                                 momentum_, nesterov);
  }
  // How many updates each _MultiResourceApply stands for, in order of size.
  static std::vector<int64_t> Sizes(const Graph& graph) {
    std::vector<int64_t> sizes;
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      if (graph.is(id, "_MultiResourceApply")) sizes.push_back(graph.attrs(id).Get<int64_t>("N"));
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }
  Graph Grouped(std::vector<NodeId>* mapping = nullptr, std::span<const NodeId> keep = {}) {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto grouped = GroupUpdates(std::move(graph_), keep, mapping);
    EXPECT_TRUE(grouped.ok()) << grouped.status();
    return std::move(*grouped);
  }

  Graph graph_;
  const Scope root_, gpu_;
  const Output lr_, momentum_;
};

TEST_F(GroupUpdatesTest, UpdatesOfOneKindBecomeOneNode) {
  const Operation a = Momentum(gpu_, "a", lr_), b = Momentum(gpu_, "b", lr_),
                  c = Momentum(gpu_, "c", lr_);
  NoOp(gpu_.WithOpName("train").WithControlDependencies({a, b, c}));
  const int before = graph_.num_nodes();
  std::vector<NodeId> mapping;
  const Graph grouped = Grouped(&mapping);
  EXPECT_EQ(Sizes(grouped), std::vector<int64_t>{3});
  EXPECT_EQ(grouped.num_nodes(), before - 2);
  const NodeId one = mapping[static_cast<size_t>(a.id)];
  EXPECT_EQ(mapping[static_cast<size_t>(b.id)], one);
  EXPECT_EQ(mapping[static_cast<size_t>(c.id)], one);
  const auto controls = grouped.control_inputs(grouped.Find("train"));
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_EQ(controls[0], one);
  std::vector<std::string> inputs;
  for (const Endpoint& e : grouped.inputs(one)) inputs.emplace_back(grouped.name(e.node));
  EXPECT_EQ(inputs, (std::vector<std::string>{"a", "a_m", "b", "b_m", "c", "c_m", "lr", "momentum",
                                              "a_g", "b_g", "c_g"}));
}

TEST_F(GroupUpdatesTest, OthersStayApart) {
  const Output other = Const(gpu_, Tensor::Scalar<float>(0.1f));
  Momentum(gpu_, "a", lr_);
  Momentum(gpu_, "b", lr_);
  Momentum(gpu_, "other_rate", other);
  Momentum(gpu_, "nesterov", lr_, true);
  Momentum(root_.WithDevice("/job:localhost/replica:0/task:0/device:GPU:1"), "other_gpu", lr_);
  Momentum(root_.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0"), "cpu1", lr_);
  Momentum(root_.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0"), "cpu2", lr_);
  EXPECT_EQ(Sizes(Grouped()), std::vector<int64_t>{2});
}

TEST_F(GroupUpdatesTest, AnUpdateThatWaitsForAnotherStaysBehindIt) {
  const Operation a = Momentum(gpu_, "a", lr_);
  const Operation between = NoOp(gpu_.WithOpName("between").WithControlDependencies({a}));
  Momentum(gpu_.WithControlDependencies({between}), "b", lr_);
  Momentum(gpu_, "c", lr_);
  const Graph grouped = Grouped();
  EXPECT_EQ(Sizes(grouped), std::vector<int64_t>{2});
  EXPECT_GE(grouped.Find("update_b"), 0);
  EXPECT_TRUE(grouped.TopologicalOrder().ok());
}

TEST_F(GroupUpdatesTest, WhatMustSurviveDoes) {
  const Operation a = Momentum(gpu_, "a", lr_);
  Momentum(gpu_, "b", lr_);
  const std::vector<NodeId> keep{a.id};
  std::vector<NodeId> mapping;
  const Graph grouped = Grouped(&mapping, keep);
  EXPECT_TRUE(Sizes(grouped).empty());
  EXPECT_EQ(mapping[static_cast<size_t>(a.id)], a.id);
}

}  // namespace
}  // namespace monograph
