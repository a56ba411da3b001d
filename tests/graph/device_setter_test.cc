#include "graph/device_setter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/graph/pass_ops.h"

namespace monograph {
namespace {

class DeviceSetterTest : public ::testing::Test {
 protected:
  std::vector<std::string> VariableDevices(const ReplicaDeviceSetterOptions& options) {
    const Scope scope = root_.WithDeviceFunction(ReplicaDeviceSetter(options).value());
    std::vector<std::string> devices;
    for (int64_t floats : {10, 8, 6, 4, 2}) {
      devices.push_back(graph_.device(Variable(scope, "v", {floats}).node()).ToString());
    }
    return devices;
  }
  std::string Of(const Output& output) const { return graph_.device(output.node()).ToString(); }

  Graph graph_{&PassOps()};
  Scope root_{&graph_};
};

std::vector<std::string> Tasks(std::initializer_list<int> tasks) {
  std::vector<std::string> devices;
  for (int task : tasks) devices.push_back("/job:ps/task:" + std::to_string(task));
  return devices;
}

TEST_F(DeviceSetterTest, RoundRobinTakesTheTasksInTurn) {
  EXPECT_EQ(VariableDevices({.ps_tasks = 2}), Tasks({0, 1, 0, 1, 0}));
}

TEST_F(DeviceSetterTest, GreedyTakesTheTaskWithTheFewestBytes) {
  EXPECT_EQ(
      VariableDevices({.ps_tasks = 2, .strategy = GreedyLoadBalancingStrategy(2, ByteSizeLoad)}),
      Tasks({0, 1, 1, 0, 0}));
}

TEST_F(DeviceSetterTest, OnlyVariablesGoToParameterServers) {
  const Scope scope = root_.WithDeviceFunction(
      ReplicaDeviceSetter({.ps_tasks = 2, .worker_device = "/job:worker/task:3"}).value());
  const Output v = Variable(scope, "v");
  EXPECT_EQ(Of(v), "/job:ps/task:0");
  EXPECT_EQ(Of(Op1(scope, "Square", Read(scope, v))), "/job:worker/task:3");
  EXPECT_EQ(Of(Variable(scope, "w")), "/job:ps/task:1");
}

TEST_F(DeviceSetterTest, WhatANodeAsksForItselfWins) {
  const auto setter = ReplicaDeviceSetter({.ps_tasks = 2}).value();
  const Scope scope = root_.WithDeviceFunction(setter);
  EXPECT_EQ(Of(Variable(scope.WithDevice("/device:GPU:1"), "a")), "/job:ps/task:0/device:GPU:1");
  EXPECT_EQ(Of(Variable(scope.WithDevice("/job:chief/task:0"), "b")), "/job:chief/task:0");
  EXPECT_EQ(Of(Variable(scope.WithDevice("/job:ps/task:0"), "c")), "/job:ps/task:0");
  EXPECT_EQ(Of(Variable(scope, "d")), "/job:ps/task:0");
}

TEST_F(DeviceSetterTest, WithoutMergingANodeThatAsksForAnythingIsLeftAlone) {
  const auto setter = ReplicaDeviceSetter({.ps_tasks = 2, .merge_devices = false}).value();
  const Scope scope = root_.WithDeviceFunction(setter);
  EXPECT_EQ(Of(Variable(scope.WithDevice("/device:GPU:1"), "a")), "/device:GPU:1");
  EXPECT_EQ(Of(Variable(scope, "b")), "/job:ps/task:0");
}

TEST_F(DeviceSetterTest, WithoutParameterServersVariablesStayWithTheWorker) {
  EXPECT_EQ(VariableDevices({.ps_tasks = 0})[0], "/job:worker");
}

TEST_F(DeviceSetterTest, AMalformedDeviceIsRefused) {
  EXPECT_EQ(ReplicaDeviceSetter({.ps_tasks = 1, .ps_device = "job:ps"}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ReplicaDeviceSetter({.ps_tasks = -1}).status().code(), Code::kInvalidArgument);
}

TEST_F(DeviceSetterTest, AVariableThatNoTaskCanHoldIsReported) {
  Status said;
  ReplicaDeviceSetterOptions options{.ps_tasks = 2,
                                     .strategy = GreedyLoadBalancingStrategy(2, ByteSizeLoad)};
  options.report = [&](const Status& status) { said.Update(status); };
  Variable(root_.WithDeviceFunction(ReplicaDeviceSetter(options).value()), "unknown", {-1});
  EXPECT_EQ(said.code(), Code::kInvalidArgument);
  EXPECT_NE(said.message().find("variable 'unknown' cannot be placed"), std::string::npos) << said;
  said = Status();
  options.strategy = [](const NodeSpec&) { return 7; };
  Variable(root_.WithDeviceFunction(ReplicaDeviceSetter(options).value()), "v", {1});
  EXPECT_NE(said.message().find("task 7 by its strategy, but there are 2"), std::string::npos)
      << said;
}

TEST_F(DeviceSetterTest, AStrategyMayGoByALoadOfTheUsersOwn) {
  const auto by_rows = [](const NodeSpec& variable) {
    return static_cast<double>(variable.attrs->Get<PartialShape>("shape").dim(0));
  };
  EXPECT_EQ(VariableDevices({.ps_tasks = 3, .strategy = GreedyLoadBalancingStrategy(3, by_rows)}),
            Tasks({0, 1, 2, 2, 1}));
}

TEST(ByteSizeLoadTest, AVariableOfUnknownShapeHasNoSize) {
  NodeSpec spec{.name = "v", .op = "VarHandleOp"};
  EXPECT_TRUE(std::isnan(ByteSizeLoad(spec)));
  spec.attrs =
      std::make_shared<const Attrs>(Attrs{{"dtype", DT_DOUBLE}, {"shape", PartialShape({-1, 2})}});
  EXPECT_TRUE(std::isnan(ByteSizeLoad(spec)));
  spec.attrs =
      std::make_shared<const Attrs>(Attrs{{"dtype", DT_DOUBLE}, {"shape", PartialShape({3, 2})}});
  EXPECT_EQ(ByteSizeLoad(spec), 48);
}

}  // namespace
}  // namespace monograph
