#include "graph/scope.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class ScopeTest : public ::testing::Test {
 protected:
  Operation NoOp(const Scope& scope) { return OpBuilder(scope, "NoOp").Build(); }
  std::string Device(Operation op) { return graph_.device(op.id).ToString(); }
  std::vector<std::string> Class(Operation op) {
    return op.attrs().GetOr<std::vector<std::string>>("_class", {});
  }
  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};
};

TEST_F(ScopeTest, NamesAreMadeUniqueAsTensorFlowDoes) {
  EXPECT_EQ(NoOp(root_).name(), "NoOp");
  EXPECT_EQ(NoOp(root_).name(), "NoOp_1");
  EXPECT_EQ(NoOp(root_.WithOpName("init")).name(), "init");
  EXPECT_EQ(NoOp(root_.WithOpName("init")).name(), "init_1");
  const Scope first = root_.SubScope("conv1"), second = root_.SubScope("conv1");
  EXPECT_EQ(first.prefix(), "conv1");
  EXPECT_EQ(second.prefix(), "conv1_1");
  EXPECT_EQ(NoOp(first).name(), "conv1/NoOp");
  EXPECT_EQ(NoOp(second.SubScope("a").SubScope("b")).name(), "conv1_1/a/b/NoOp");
  EXPECT_EQ(NoOp(root_.WithOpName("conv1")).name(), "conv1_2");
  EXPECT_EQ(NoOp(root_.ReuseScope("conv1")).name(), "conv1/NoOp_1");
  EXPECT_EQ(Scope(&graph_).SubScope("conv1").prefix(), "conv1_3");
}

TEST_F(ScopeTest, AnOpNameHoldsForOneOpOnly) {
  const Scope named = root_.SubScope("s").WithOpName("first");
  const std::pair<Scope, Scope> copies = {named, named};
  EXPECT_EQ(copies.first.MakeName("NoOp"), "s/first");
  EXPECT_EQ(NoOp(copies.first).name(), "s/first");
  EXPECT_EQ(NoOp(copies.second).name(), "s/NoOp");
}

TEST_F(ScopeTest, HelperNodesAreNamedUnderTheNodeTheyHelp) {
  const Scope scope = root_.WithOpName("loss");
  EXPECT_EQ(NoOp(scope.HelperScope("Mean").WithOpName("axis")).name(), "loss/axis");
  EXPECT_EQ(NoOp(scope).name(), "loss");
  EXPECT_EQ(NoOp(root_.HelperScope("Mean").WithOpName("axis")).name(), "Mean/axis");
}

TEST_F(ScopeTest, InnerDevicePartsWinAndOuterOnesFillTheRest) {
  const Scope outer = root_.WithDevice("/job:worker/task:1/device:GPU:0");
  EXPECT_EQ(Device(NoOp(outer)), "/job:worker/task:1/device:GPU:0");
  EXPECT_EQ(Device(NoOp(outer.WithDevice("/task:3"))), "/job:worker/task:3/device:GPU:0");
  EXPECT_EQ(Device(NoOp(outer.WithDevice("/job:ps").WithDevice("/cpu:0"))),
            "/job:ps/task:1/device:CPU:0");
}

TEST_F(ScopeTest, ADeviceFunctionSeesTheOpAndTheDeviceRequestedSoFar) {
  std::string seen;
  const Scope scope =
      root_.WithDevice("/job:worker")
          .WithDeviceFunction([&](const NodeSpec& node, const DeviceName& requested) {
            seen = std::string(node.op) + " " + std::string(node.name) + " " + requested.ToString();
            return node.op == "NoOp" ? "/task:7" : std::string();
          });
  EXPECT_EQ(Device(NoOp(scope.WithDevice("/cpu:0"))), "/job:worker/task:7");
  EXPECT_EQ(seen, "NoOp NoOp /device:CPU:0");
  EXPECT_EQ(Device(Placeholder(scope, DT_FLOAT, {})), "/job:worker");
}

TEST_F(ScopeTest, ControlDependenciesOrderNodesUnlessADataEdgeDoes) {
  const Operation a = NoOp(root_), b = NoOp(root_);
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Scope scope =
      root_.WithControlDependencies({a, b}).WithControlDependencies({a, Operation(x)});
  EXPECT_EQ(graph_.control_inputs(NoOp(scope).id).size(), 3u);
  EXPECT_EQ(graph_.control_inputs(Unary(scope, "Relu", x).node()).size(), 2u);
}

TEST_F(ScopeTest, ColocatedNodesJoinTheGroupAndTakeItsDevice) {
  const Operation a = NoOp(root_.WithDevice("/job:ps/task:0").WithOpName("a"));
  const Scope with = root_.WithDevice("/job:worker").ColocateWith(a);
  const Operation b = NoOp(with.WithOpName("b"));
  EXPECT_EQ(Class(b), (std::vector<std::string>{"loc:@a"}));
  EXPECT_EQ(Device(b), "/job:ps/task:0");
  const Operation c = NoOp(root_.ColocateWith(b));
  EXPECT_EQ(Class(c), (std::vector<std::string>{"loc:@a"}));
  EXPECT_TRUE(Class(NoOp(with.ClearColocation())).empty());
}

TEST_F(ScopeTest, AttributesAndSeedsComeWithTheScope) {
  const Scope scope = root_.WithAttr("_replica", int64_t{3}).WithSeed(42);
  EXPECT_EQ(NoOp(scope.SubScope("x")).attrs().Get<int64_t>("_replica"), 3);
  EXPECT_EQ(scope.SubScope("x").seed(), 42);
  EXPECT_EQ(root_.seed(), 0);
}

TEST_F(ScopeTest, TheFirstMistakeIsKeptAndBuildingStops) {
  const Scope sub = root_.SubScope("s");
  const Output broken = Unary(sub, "Relu", Output());
  EXPECT_FALSE(broken.valid());
  EXPECT_FALSE(NoOp(root_).valid());
  EXPECT_EQ(root_.status().message(), "node 's/Relu' (Relu): input 0 was never set");
  EXPECT_EQ(graph_.num_nodes(), 0);
}

TEST_F(ScopeTest, MistakesInScopesAreReported) {
  for (const auto& mistake : std::vector<std::function<void(const Scope&)>>{
           [](const Scope& s) { s.SubScope("a b"); }, [](const Scope& s) { s.WithDevice("gpu"); },
           [](const Scope& s) { s.ColocateWith(Operation()); },
           [](const Scope& s) { s.WithControlDependencies({Operation()}); }}) {
    const Scope scope(&graph_);
    mistake(scope);
    EXPECT_EQ(scope.status().code(), Code::kInvalidArgument);
  }
}

TEST_F(ScopeTest, AttributesOfAllKindsAreTakenForWhatTheyAre) {
  Graph graph(&TestRegistry());
  const Scope scope(&graph);
  const Operation op = OpBuilder(scope, "NoOp")
                           .Attr("_bool", true)
                           .Attr("_int", 3)
                           .Attr("_type", DT_INT32)
                           .Attr("_float", 0.5f)
                           .Attr("_text", "abc")
                           .Attr("_list", {1})
                           .Build();
  ASSERT_TRUE(scope.ok()) << scope.status();
  EXPECT_TRUE(op.attrs().Get<bool>("_bool"));
  EXPECT_EQ(op.attrs().Get<int64_t>("_int"), 3);
  EXPECT_EQ(op.attrs().Get<DType>("_type"), DT_INT32);
  EXPECT_EQ(op.attrs().Get<float>("_float"), 0.5f);
  EXPECT_EQ(op.attrs().Get<std::string>("_text"), "abc");
  EXPECT_EQ(op.attrs().Get<std::vector<int64_t>>("_list"), (std::vector<int64_t>{1}));
}

}  // namespace
}  // namespace monograph
