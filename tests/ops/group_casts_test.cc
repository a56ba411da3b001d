// Casts and turns of many variables and gradients in one node: what is grouped, and what has to
// stay by itself for the sake of devices, control edges and readers.
#include "ops/rewrites/group_casts.h"

#include <algorithm>

#include "graph/scope.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/conv/conv.h"
#include "ops/rewrites/group_updates.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

class GroupCastsTest : public ::testing::Test {
 protected:
  GroupCastsTest() : graph_(&Ops()), root_(&graph_), gpu_(On("GPU:0")) {}

  Scope On(const std::string& device) const {
    return root_.WithDevice("/job:localhost/replica:0/task:0/device:" + device);
  }
  static Output Read(const Scope& scope, const std::string& name) {
    return ReadVariable(scope.WithOpName(name + "_value"),
                        VarHandle(scope.WithOpName(name), DT_FLOAT, {2, 3}));
  }
  static Output CastOf(const Scope& scope, const std::string& name, DType to = DT_BFLOAT16) {
    return Cast(scope.WithOpName(name + "_cast"), Read(scope, name), to);
  }
  // The inputs of each group.
  static std::vector<std::vector<std::string>> Groups(const Graph& graph) {
    std::vector<std::vector<std::string>> groups;
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      if (!graph.is(id, "_MultiCast")) continue;
      groups.emplace_back();
      for (const Endpoint& e : graph.inputs(id)) groups.back().emplace_back(graph.name(e.node));
    }
    return groups;
  }
  static std::vector<bool> LastFirst(const Graph& graph) {
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      if (graph.is(id, "_MultiCast")) return graph.attrs(id).Get<std::vector<bool>>("last_first");
    }
    return {};
  }
  // A variable that is a filter, and what convolves with it.
  static Output Filter(const Scope& scope, const std::string& name, int64_t window = 3) {
    return ReadVariable(scope.WithOpName(name + "_value"),
                        VarHandle(scope.WithOpName(name), DT_FLOAT, {window, window, 4, 8}));
  }
  static Output Images(const Scope& scope, DType dtype, int64_t channels) {
    return Placeholder(scope, dtype, {2, 9, 9, channels});
  }
  static Output Forward(const Scope& scope, const std::string& name, const Output& filter,
                        int64_t stride = 1, const Conv2DOptions& options = {}) {
    const bool first = options.data_format == "NCHW";
    const Output x =
        first ? Placeholder(scope, filter.dtype(), {2, 4, 9, 9}) : Images(scope, filter.dtype(), 4);
    return Conv2D(scope.WithOpName(name), x, filter,
                  first ? std::vector<int64_t>{1, 1, stride, stride}
                        : std::vector<int64_t>{1, stride, stride, 1},
                  "SAME", options);
  }
  static Output Backward(const Scope& scope, const std::string& name, const Output& filter) {
    const Output sizes =
        Const(scope, Tensor::FromValues<int32_t>({4}, std::vector<int32_t>{2, 9, 9, 4}));
    return Conv2DBackpropInput(scope.WithOpName(name), sizes, filter,
                               Images(scope, filter.dtype(), 8), {1, 1, 1, 1}, "SAME");
  }
  Graph Grouped() {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto grouped = GroupCasts(std::move(graph_));
    EXPECT_TRUE(grouped.ok()) << grouped.status();
    return std::move(*grouped);
  }

  using Names = std::vector<std::vector<std::string>>;
  Graph graph_;
  const Scope root_, gpu_;
};

TEST_F(GroupCastsTest, CastsOfVariablesBecomeOneNode) {
  const Output a = CastOf(gpu_, "a");
  const Output use_a = Identity(gpu_.WithOpName("use_a"), a);
  const Output b = Cast(gpu_.WithOpName("b_cast"),
                        Identity(gpu_.WithOpName("same"), Read(gpu_, "b")), DT_BFLOAT16);
  Identity(gpu_.WithOpName("use_b"), b);
  NoOp(gpu_.WithOpName("behind").WithControlDependencies({Operation(b), Operation(use_a)}));
  const Graph grouped = Grouped();
  EXPECT_EQ(Groups(grouped), (Names{{"a_value", "same"}}));
  const auto [one, first] = grouped.inputs(grouped.Find("use_a"))[0];
  EXPECT_TRUE(grouped.is(one, "_MultiCast"));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(grouped.inputs(grouped.Find("use_b"))[0], (Endpoint{one, 1}));
  EXPECT_EQ(grouped.shape({one, 1}), PartialShape({2, 3}));
  EXPECT_EQ(grouped.dtype({one, 1}), DT_BFLOAT16);
  EXPECT_EQ(LastFirst(grouped), (std::vector<bool>{false, false}));
  const auto controls = grouped.control_inputs(grouped.Find("behind"));
  EXPECT_EQ(std::count(controls.begin(), controls.end(), one), 1);
}

TEST_F(GroupCastsTest, DevicesStayApart) {
  for (const char* name : {"a", "b"}) {
    CastOf(gpu_, name);
    CastOf(gpu_, name + std::string("_half"), DT_HALF);
    CastOf(On("GPU:1"), name + std::string("_second"));
    CastOf(On("CPU:0"), name + std::string("_cpu"));
    CastOf(gpu_, name + std::string("_double"), DT_DOUBLE);
  }
  const Graph grouped = Grouped();
  const Names groups = Groups(grouped);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].size(), 4u);  // bfloat16 and half
  EXPECT_EQ(groups[1].size(), 2u);
  EXPECT_TRUE(grouped.is(grouped.Find("a_cpu_cast"), "Cast"));
  EXPECT_TRUE(grouped.is(grouped.Find("a_double_cast"), "Cast"));
}

TEST_F(GroupCastsTest, WhatMayHaveToWaitStays) {
  CastOf(gpu_, "a");
  CastOf(gpu_, "b");
  const Output early = Read(gpu_, "early");
  const Operation assign = AssignVariable(gpu_, VarHandle(gpu_, DT_FLOAT, {2, 3}), early);
  // Read after an update, and cast after one.
  Cast(gpu_.WithOpName("late_cast"), Read(gpu_.WithControlDependencies({assign}), "late"),
       DT_BFLOAT16);
  Cast(gpu_.WithOpName("later").WithControlDependencies({assign}), Read(gpu_, "x"), DT_BFLOAT16);
  // From another device, and of what is no variable.
  Cast(gpu_, Read(On("GPU:1"), "far"), DT_BFLOAT16);
  Cast(gpu_, Placeholder(gpu_, DT_FLOAT, {2, 3}), DT_BFLOAT16);
  const Graph grouped = Grouped();
  EXPECT_EQ(Groups(grouped), (Names{{"a_value", "b_value"}}));
  for (const char* name : {"late_cast", "later"})
    EXPECT_TRUE(grouped.is(grouped.Find(name), "Cast")) << name;
  EXPECT_TRUE(grouped.TopologicalOrder().ok());
}

TEST_F(GroupCastsTest, ConvolutionsTakeFiltersThatAreTurnedOnce) {
  const Output value = Filter(gpu_, "f");
  const Output filter = Cast(gpu_.WithOpName("f_cast"), value, DT_BFLOAT16);
  Forward(gpu_, "forward", filter);
  Backward(gpu_, "backward", filter);
  const Output both = Cast(gpu_.WithOpName("g_cast"), Filter(gpu_, "g"), DT_BFLOAT16);
  Forward(gpu_, "other", both);
  Identity(gpu_.WithOpName("plain"), both);
  const Graph grouped = Grouped();
  EXPECT_EQ(Groups(grouped), (Names{{"f_value", "g_value", "g_value"}}));
  EXPECT_EQ(LastFirst(grouped), (std::vector<bool>{true, false, true}));
  const NodeId forward = grouped.Find("forward"), backward = grouped.Find("backward"),
               other = grouped.Find("other");
  ASSERT_TRUE(grouped.is(forward, "_FusedConv2D") && grouped.is(other, "_FusedConv2D"));
  ASSERT_TRUE(grouped.is(backward, "_Conv2DBackpropInput"));
  const NodeId one = grouped.inputs(forward)[1].node;
  EXPECT_EQ(grouped.inputs(forward)[1], (Endpoint{one, 0}));
  EXPECT_EQ(grouped.inputs(backward)[1], (Endpoint{one, 0}));
  EXPECT_EQ(grouped.inputs(grouped.Find("plain"))[0], (Endpoint{one, 1}));
  EXPECT_EQ(grouped.inputs(other)[1], (Endpoint{one, 2}));
  EXPECT_EQ(grouped.shape({one, 0}), PartialShape({8, 3, 3, 4}));
  EXPECT_EQ(grouped.shape({forward, 0}), PartialShape({2, 9, 9, 8}));
  EXPECT_TRUE(grouped.attrs(forward).Get<bool>("filter_last_first"));
  EXPECT_LT(grouped.Find("f_cast"), 0);
}

TEST_F(GroupCastsTest, FloatFiltersAreTurnedWithoutACast) {
  const Output filter = Filter(gpu_, "f");
  Forward(gpu_, "forward", filter);
  Backward(gpu_, "backward", filter);
  const Graph grouped = Grouped();
  EXPECT_EQ(Groups(grouped), (Names{{"f_value"}}));
  EXPECT_EQ(LastFirst(grouped), std::vector<bool>{true});
  EXPECT_TRUE(grouped.is(grouped.Find("backward"), "_Conv2DBackpropInput"));
}

TEST_F(GroupCastsTest, GradientsOfFiltersAreTurnedTogetherBeforeTheirUpdate) {
  const Output rate = Const(gpu_, Tensor::Scalar(0.1f)),
               momentum = Const(gpu_, Tensor::Scalar(0.9f));
  const auto update = [&](const Scope& scope, const std::string& name, int64_t window) {
    const Output sizes = Const(
        scope,
        Tensor::FromValues<int32_t>({4}, std::vector<int32_t>{static_cast<int32_t>(window),
                                                              static_cast<int32_t>(window), 4, 8}));
    const Output gradient =
        Conv2DBackpropFilter(scope.WithOpName(name), Images(scope, DT_BFLOAT16, 4), sizes,
                             Images(scope, DT_BFLOAT16, 8), {1, 1, 1, 1}, "SAME");
    const Shape shape{window, window, 4, 8};
    ResourceApplyMomentum(scope, VarHandle(scope.WithOpName(name + "_v"), DT_FLOAT, shape),
                          VarHandle(scope.WithOpName(name + "_m"), DT_FLOAT, shape), rate,
                          Cast(scope, gradient, DT_FLOAT), momentum);
    return gradient;
  };
  update(gpu_, "a", 3);
  update(gpu_, "pixel", 1);
  Identity(gpu_, update(gpu_, "read", 3));
  update(gpu_, "b", 5);
  ASSERT_TRUE(root_.ok()) << root_.status();
  auto updates = GroupUpdates(std::move(graph_));
  ASSERT_TRUE(updates.ok()) << updates.status();
  const auto grouped = GroupCasts(std::move(*updates));
  ASSERT_TRUE(grouped.ok()) << grouped.status();
  EXPECT_EQ(Groups(*grouped), (Names{{"a", "b"}}));
  EXPECT_EQ(LastFirst(*grouped), (std::vector<bool>{true, true}));
  for (const char* name : {"a", "b"})
    EXPECT_TRUE(grouped->is(grouped->Find(name), "_Conv2DBackpropFilter")) << name;
  for (const char* name : {"pixel", "read"})
    EXPECT_TRUE(grouped->is(grouped->Find(name), "Conv2DBackpropFilter")) << name;
  EXPECT_EQ(grouped->shape({grouped->Find("a"), 0}), PartialShape({8, 3, 3, 4}));
  for (NodeId id = 0; id < grouped->num_nodes(); ++id) {
    if (!grouped->is(id, "_MultiCast")) continue;
    EXPECT_TRUE(grouped->attrs(id).Get<bool>("back"));
    EXPECT_EQ(grouped->shape({id, 1}), PartialShape({5, 5, 4, 8}));
  }
}

TEST_F(GroupCastsTest, OtherFiltersStayAsTheyLie) {
  const Output pixel = Filter(gpu_, "pixel", 1), wide = Filter(gpu_, "wide"),
               planes = Filter(gpu_, "planes"),
               late = Filter(gpu_.WithControlDependencies({Operation(wide)}), "late");
  Forward(gpu_, "of_pixel", pixel);
  Forward(gpu_, "of_planes", planes, 1, {.data_format = "NCHW"});
  Forward(gpu_, "of_late", late);
  Forward(gpu_, "of_fed", Placeholder(gpu_, DT_FLOAT, {3, 3, 4, 8}));
  Forward(On("GPU:1"), "elsewhere", wide);
  // These two are turned.
  Forward(gpu_, "strided", Filter(gpu_, "strided_pixel", 1), 2);
  Forward(gpu_, "of_wide", wide);
  const Graph grouped = Grouped();
  EXPECT_EQ(LastFirst(grouped), (std::vector<bool>{true, true}));
  for (const char* name : {"of_pixel", "of_planes", "of_late", "of_fed", "elsewhere"})
    EXPECT_TRUE(grouped.is(grouped.Find(name), "Conv2D")) << name;
  for (const char* name : {"strided", "of_wide"})
    EXPECT_TRUE(grouped.is(grouped.Find(name), "_FusedConv2D")) << name;
}

TEST_F(GroupCastsTest, OneAloneStaysAsItIs) {
  CastOf(gpu_, "a");
  const Graph grouped = Grouped();
  EXPECT_TRUE(grouped.is(grouped.Find("a_cast"), "Cast"));
}

}  // namespace
}  // namespace monograph
