// A loop over devices written by hand gives what Replicate gives.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "client/registries.h"
#include "client/session.h"
#include "ops/bias/bias.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "train/collections.h"
#include "train/optimizer.h"
#include "train/replication.h"
#include "train/tower_gradients.h"
#include "train/variable_scope.h"

namespace monograph {
namespace {

constexpr int64_t kTowerRows = 12, kIn = 5;
constexpr int kTowerSteps = 8;

Tensor Pattern(const Shape& shape, int seed) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = static_cast<float>((i * 7 + seed * 5) % 11) / 11.0f - 0.4f;
  return tensor;
}

Result<Outputs> TowersModel(Scope& tower, std::span<const Output> batch,
                            ModelVariables& variables) {
  const Output w1 = variables.Get("w1", {kIn, 4}, Initial::Value(Pattern({kIn, 4}, 1)));
  const Output b1 = variables.Get("b1", {4}, Initial::Value(Pattern({4}, 2)));
  const Output w2 = variables.Get("w2", {4, 1}, Initial::Value(Pattern({4, 1}, 3)));
  const Output hidden = Tanh(tower, BiasAdd(tower, MatMul(tower, batch[0], w1), b1));
  return Outputs{ReduceMean(tower, SquaredDifference(tower, MatMul(tower, hidden, w2), batch[1]))};
}

// How a program trains: what it feeds, runs, and looks at.
struct Program {
  Outputs batch;
  Output loss;
  Operation init, train;
  std::vector<ModelVariable> variables;
};

std::vector<std::string> Devices(int towers) {
  std::vector<std::string> devices;
  for (int i = 0; i < towers; ++i) devices.push_back("/device:CPU:" + std::to_string(i));
  return devices;
}

Outputs MakeBatch(const Scope& root) {
  return {Placeholder(root, DT_FLOAT, {kTowerRows, kIn}),
          Placeholder(root, DT_FLOAT, {kTowerRows, 1})};
}

Program ByReplicate(Scope& root, int towers) {
  Program program;
  program.batch = MakeBatch(root);
  const auto step = Replicate(root, Devices(towers), program.batch, TowersModel, Adam(0.05));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return program;
  program.loss = step->results[0];
  program.init = step->init;
  program.train = step->train;
  program.variables = step->variables;
  return program;
}

Program ByHand(Scope& root, int towers) {
  Program program;
  program.batch = MakeBatch(root);
  const std::vector<std::string> devices = Devices(towers);
  const Outputs x = Split(root, program.batch[0], towers, 0),
                y = Split(root, program.batch[1], towers, 0);
  Collections collections;
  const VariableScope variables(root, &collections);
  Outputs losses;
  std::vector<std::vector<GradientAndVariable>> gradients;
  for (size_t i = 0; i < devices.size(); ++i) {
    const VariableScope tower =
        variables.Reusing(Reuse::kAutoReuse)
            .NameScope("tower_" + std::to_string(i))
            .WithDeviceFunction([&, i](const NodeSpec& node, const DeviceName&) {
              return devices[node.op == "VarHandleOp" ? 0 : i];
            });
    Scope ops = tower.scope();
    ScopedModelVariables by_name(tower);
    losses.push_back(TowersModel(ops, Outputs{x[i], y[i]}, by_name).value()[0]);
    gradients.push_back(
        ComputeGradients(ops, losses.back(),
                         collections.Get<ModelVariable>(GraphKeys::kTrainableVariables))
            .value());
  }
  program.variables = collections.Get<ModelVariable>(GraphKeys::kTrainableVariables);
  std::vector<Operation> initializers;
  for (const ModelVariable& variable : program.variables)
    initializers.push_back(variable.initializer);
  const auto mean = AverageGradients(root, gradients);
  EXPECT_TRUE(mean.ok()) << mean.status();
  program.loss = ReduceMean(root, Pack(root, losses));
  program.train = Adam(0.05).ApplyGradients(root, *mean, &initializers);
  program.init = Group(root, initializers);
  return program;
}

struct Trained {
  std::vector<float> losses;
  std::map<std::string, Tensor> variables;
};

std::optional<Trained> Train(Program (*build)(Scope& root, int towers), int towers) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Program program = build(root, towers);
  EXPECT_TRUE(root.ok()) << root.status();
  if (!root.ok()) return std::nullopt;
  SessionOptions options;
  options.device_count = {{kCpu, towers}};
  const auto session = Session::Local(graph, options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok() || !(*session)->Run({}, {}, {program.init}).ok()) return std::nullopt;
  Trained trained;
  for (int i = 0; i < kTowerSteps; ++i) {
    const auto loss = (*session)->Run({{program.batch[0], Pattern({kTowerRows, kIn}, i)},
                                       {program.batch[1], Pattern({kTowerRows, 1}, i + 3)}},
                                      {program.loss}, {program.train});
    EXPECT_TRUE(loss.ok()) << loss.status();
    if (!loss.ok()) return std::nullopt;
    trained.losses.push_back((*loss)[0].scalar<float>());
  }
  for (const ModelVariable& variable : program.variables) {
    const auto value = (*session)->Run({}, {variable.value});
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) trained.variables[variable.name] = (*value)[0];
  }
  return trained;
}

class TowersTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(All, TowersTest, ::testing::Values(1, 2, 3));

TEST_P(TowersTest, ALoopByHandGivesTheNumbersOfReplicate) {
  const std::optional<Trained> replicate = Train(ByReplicate, GetParam()),
                               by_hand = Train(ByHand, GetParam());
  ASSERT_TRUE(replicate && by_hand);
  EXPECT_LT(by_hand->losses.back(), by_hand->losses.front());
  for (int i = 0; i < kTowerSteps; ++i)
    EXPECT_NEAR(by_hand->losses[i], replicate->losses[i], 1e-6) << "step " << i;
  ASSERT_EQ(by_hand->variables.size(), 3u);
  // A weight of 1/2 is exact wherever it is multiplied in, one of 1/3 is not.
  const bool exact = GetParam() != 3;
  for (const auto& [name, value] : by_hand->variables) {
    const Tensor& expected = replicate->variables.at(name);
    if (exact) {
      EXPECT_TRUE(BitEqual(value, expected)) << name;
    }
    for (int64_t i = 0; i < value.elements(); ++i)
      EXPECT_NEAR(value.data<float>()[i], expected.data<float>()[i], 1e-5) << name;
  }
}

TEST(GlobalStep, OfReplicasOnGpusIsOnTheirTasksCpu) {
  for (const bool mirrored : {false, true}) {
    Graph graph = NewGraph();
    Scope root(&graph);
    ReplicateOptions options;
    if (mirrored) options.variable_update = VariableUpdate::kReplicated;
    const auto step =
        Replicate(root, {"/job:worker/task:1/device:GPU:0", "/job:worker/task:1/device:GPU:1"},
                  MakeBatch(root), TowersModel, Adam(0.05), options);
    ASSERT_TRUE(step.ok()) << step.status();
    const auto place = [&](const Output& of) { return graph.device(of.node()).ToString(); };
    EXPECT_EQ(place(step->variables[0].handle), "/job:worker/task:1/device:GPU:0");
    EXPECT_EQ(place(step->global_step.handle), "/job:worker/task:1/device:CPU:0");
    EXPECT_EQ(place(step->updates), "/job:worker/task:1/device:CPU:0");
  }
}

}  // namespace
}  // namespace monograph
