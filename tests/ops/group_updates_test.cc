#include "ops/rewrites/group_updates.h"

#include <algorithm>

#include "graph/scope.h"
#include "ops/cast/cast.h"
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
    const Output gradient = Const(scope.WithOpName(name + "_g"), Tensor::Vector<float>({1, 2}));
    return MomentumBy(scope, name, gradient, lr, nesterov);
  }
  Operation MomentumBy(const Scope& scope, const std::string& name, Output gradient, Output lr,
                       bool nesterov = false) {
    const Output var = VarHandle(scope.WithOpName(name), DT_FLOAT, {2}),
                 accum = VarHandle(scope.WithOpName(name + "_m"), DT_FLOAT, {2});
    return ResourceApplyMomentum(scope.WithOpName("update_" + name), var, accum, lr, gradient,
                                 momentum_, nesterov);
  }
  // As float, from a placeholder of another type.
  Output Widened(const Scope& scope, const std::string& name, DType from) {
    return Cast(scope.WithOpName(name), Placeholder(scope.WithOpName(name + "_in"), from, {2}),
                DT_FLOAT);
  }
  // The inputs of the one node of many updates.
  static std::vector<std::string> InputsOfGroup(const Graph& graph) {
    std::vector<std::string> inputs;
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      if (!graph.is(id, "_MultiResourceApply")) continue;
      for (const Endpoint& e : graph.inputs(id)) inputs.emplace_back(graph.name(e.node));
    }
    return inputs;
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
  Graph Grouped() {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto grouped = GroupUpdates(std::move(graph_));
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
  const Graph grouped = Grouped();
  EXPECT_EQ(Sizes(grouped), std::vector<int64_t>{3});
  EXPECT_EQ(grouped.num_nodes(), before - 2);
  const auto controls = grouped.control_inputs(grouped.Find("train"));
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_TRUE(grouped.is(controls[0], "_MultiResourceApply"));
  EXPECT_EQ(InputsOfGroup(grouped),
            (std::vector<std::string>{"a", "a_m", "b", "b_m", "c", "c_m", "lr", "momentum", "a_g",
                                      "b_g", "c_g"}));
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

TEST_F(GroupUpdatesTest, ReadsGradientsThatAreCastForNothingElseAsTheyAre) {
  const Output half = Widened(gpu_, "half", DT_HALF), brain = Widened(gpu_, "brain", DT_BFLOAT16),
               number = Widened(gpu_, "number", DT_DOUBLE);
  const Operation first = NoOp(gpu_.WithOpName("first"));
  const Output late = Cast(gpu_.WithOpName("late").WithControlDependencies({first}),
                           Placeholder(gpu_.WithOpName("late_in"), DT_HALF, {2}), DT_FLOAT);
  MomentumBy(gpu_, "a", half, lr_);
  MomentumBy(gpu_, "b", brain, lr_);
  MomentumBy(gpu_, "c", number, lr_);
  MomentumBy(gpu_, "d", late, lr_);
  Momentum(gpu_, "e", lr_);
  const Graph grouped = Grouped();
  EXPECT_EQ(
      InputsOfGroup(grouped),
      (std::vector<std::string>{"a", "a_m", "b", "b_m", "c", "c_m", "d", "d_m", "e", "e_m", "lr",
                                "momentum", "half_in", "brain_in", "number", "late_in", "e_g"}));
  const NodeId one = grouped.Find("update_a");
  ASSERT_GE(one, 0);
  EXPECT_EQ(grouped.attrs(one).Get<std::vector<DType>>("G"),
            (std::vector<DType>{DT_HALF, DT_BFLOAT16, DT_FLOAT, DT_HALF, DT_FLOAT}));
  EXPECT_LT(grouped.Find("half"), 0);
  ASSERT_EQ(grouped.control_inputs(one).size(), 1u);
  EXPECT_EQ(grouped.control_inputs(one)[0], grouped.Find("first"));
}

TEST_F(GroupUpdatesTest, OnACpuEachUpdateReadsItsGradientOfBfloat16AsItIs) {
  const Scope cpu = root_.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0");
  const Output read = Widened(cpu, "read", DT_BFLOAT16);
  Identity(cpu, read);
  MomentumBy(cpu, "a", Widened(cpu, "wide_a", DT_BFLOAT16), lr_);
  MomentumBy(cpu, "b", Widened(cpu, "wide_b", DT_BFLOAT16), lr_);
  MomentumBy(cpu, "c", Widened(cpu, "wide_c", DT_HALF), lr_);
  MomentumBy(cpu, "d", read, lr_);
  const Graph grouped = Grouped();
  EXPECT_EQ(Sizes(grouped), (std::vector<int64_t>{1, 1}));
  for (const char* name : {"update_a", "update_b"}) {
    const NodeId update = grouped.Find(name);
    ASSERT_GE(update, 0);
    EXPECT_EQ(grouped.attrs(update).Get<std::vector<DType>>("G"), std::vector<DType>{DT_BFLOAT16});
  }
  EXPECT_LT(grouped.Find("wide_a"), 0);
  for (const char* name : {"wide_c", "read"}) EXPECT_GE(grouped.Find(name), 0) << name;
}

TEST_F(GroupUpdatesTest, CastsThatServeOthersStay) {
  const Output read = Widened(gpu_, "read", DT_HALF), awaited = Widened(gpu_, "awaited", DT_HALF),
               elsewhere = Widened(root_.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0"),
                                   "elsewhere", DT_HALF);
  Identity(gpu_, read);
  NoOp(gpu_.WithControlDependencies({Operation(awaited)}));
  for (const Output& gradient : {read, awaited, elsewhere})
    MomentumBy(gpu_, "of_" + std::string(graph_.name(gradient.node())), gradient, lr_);
  Momentum(gpu_, "other", lr_);
  const Graph grouped = Grouped();
  EXPECT_EQ(Sizes(grouped), std::vector<int64_t>{4});
  for (const char* name : {"read", "awaited", "elsewhere"})
    EXPECT_GE(grouped.Find(name), 0) << name;
}

}  // namespace
}  // namespace monograph
