// towers_by_hand: the loop over devices that users of in-graph replication write themselves: a
// tower per device on its own part of the batch, variables shared by name, gradients averaged,
// clipped and applied once. Replicate does all of this in one call; by hand each line can be
// another.
#include <optional>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "examples/models/train.h"
#include "ops/bias/bias.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/clip.h"
#include "train/collections.h"
#include "train/moving_average.h"
#include "train/optimizer.h"
#include "train/tower_gradients.h"
#include "train/variable_scope.h"

namespace monograph::examples {
namespace {

// Variables live at `home`, everything else on the tower's device.
Scope::DeviceFunction Tower(const std::string& home, const std::string& device) {
  return [=](const NodeSpec& node, const DeviceName&) {
    return node.op == "VarHandleOp" ? home : device;
  };
}

Output Dense(const VariableScope& layer, const Output& x, int64_t units) {
  const int64_t inputs = x.valid() ? x.shape().dim(1) : 1;
  const Output weights = layer.Get("weights", {inputs, units}).value;
  const Output biases = layer.Get("biases", {units}, {.initializer = ZerosInitializer()}).value;
  return BiasAdd(layer.scope(), MatMul(layer.scope(), x, weights), biases);
}

// The mean loss of a tower's examples.
Output Loss(const VariableScope& tower, const Output& images, const Output& labels) {
  const Scope& scope = tower.scope();
  const Output hidden = Tanh(scope, Dense(tower.Open("fc1"), images, 64));
  const Output logits = Dense(tower.Open("fc2"), hidden, 10);
  return ReduceMean(scope.WithOpName("loss"),
                    SparseSoftmaxCrossEntropyWithLogits(scope, logits, labels));
}

constexpr int64_t kBatchPerTower = 32;

// The batch can be cut, and there is somebody to compute.
Status Check(const SessionFlags& session_flags, int64_t batch_size) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  const int towers = cluster ? cluster->num_tasks("worker") : 2;
  if (towers == 0) return InvalidArgument("towers_by_hand needs a cluster with a job worker");
  if (batch_size % towers == 0) return Status();
  return InvalidArgument("--batch_size must be a multiple of the number of towers, " +
                         std::to_string(towers));
}

Status Run(const SessionFlags& session_flags, int64_t batch_size, int steps) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  std::vector<std::string> devices = {"/device:CPU:0", "/device:CPU:1"};
  std::string home = devices[0];
  if (cluster) {
    devices = cluster->Tasks("worker");
    home = cluster->num_tasks("ps") > 0 ? cluster->Tasks("ps")[0] : devices[0];
  }
  const int towers = static_cast<int>(devices.size());
  if (batch_size == 0) batch_size = kBatchPerTower * towers;

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(1), parameters = root.WithDevice(home);
  const Output images = Placeholder(root.WithOpName("images"), DT_FLOAT, {batch_size, 784});
  const Output labels = Placeholder(root.WithOpName("labels"), DT_INT32, {batch_size});
  const Outputs image_parts = Split(root, images, towers, 0);
  const Outputs label_parts = Split(root, labels, towers, 0);
  const ModelVariable global_step = MakeGlobalStep(parameters);

  Collections collections;
  const VariableScope variables(root, &collections);
  Outputs losses;
  std::vector<std::vector<GradientAndVariable>> tower_gradients;
  for (size_t i = 0; i < devices.size(); ++i) {
    // The first tower makes the variables, the others find them by their names.
    const VariableScope tower = variables.Reusing(i == 0 ? Reuse::kFalse : Reuse::kTrue)
                                    .NameScope("tower_" + std::to_string(i))
                                    .WithDeviceFunction(Tower(home, devices[i]));
    losses.push_back(Loss(tower, image_parts[i], label_parts[i]));
    MG_RETURN_IF_ERROR(root.status());
    MG_ASSIGN_OR_RETURN(
        tower_gradients.emplace_back(),
        ComputeGradients(tower.scope(), losses.back(),
                         collections.Get<ModelVariable>(GraphKeys::kTrainableVariables)));
  }
  const auto trained = collections.Get<ModelVariable>(GraphKeys::kTrainableVariables);
  const Output loss = ReduceMean(parameters.WithOpName("loss"), Pack(parameters, losses));

  std::vector<Operation> initializers = {global_step.initializer};
  for (const ModelVariable& variable : trained) initializers.push_back(variable.initializer);
  MG_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      AverageGradients(root, tower_gradients));
  const ClippedGradients clipped = ClipByGlobalNorm(parameters, gradients, 5);
  const Optimizer optimizer = Momentum(ExponentialDecay(0.1, 100, 0.5), 0.9);
  const Operation update =
      optimizer.ApplyGradients(root, clipped.pairs, &initializers, {.global_step = &global_step});
  ExponentialMovingAverage averages(0.99, {.num_updates = global_step.value});
  MG_ASSIGN_OR_RETURN(const Operation train, averages.Apply(root.WithControlDependencies({update}),
                                                            trained, &initializers));
  const Operation init = Group(root, initializers);
  MG_RETURN_IF_ERROR(root.status());

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, 2));
  MG_RETURN_IF_ERROR(TrainOnSyntheticImages(session.get(), {images, labels}, init, train,
                                            {loss, clipped.norm}, "gradient norm", steps));
  return session->Close();
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) {
  using namespace monograph;  // NOLINT
  Flags flags(
      "towers_by_hand",
      "Trains a small network with a tower per device, written out by hand.\n\n"
      "Examples:\n"
      "  towers_by_hand                                          two CPU devices of this "
      "process\n"
      "  monograph launch --ps=1 --workers=2 -- towers_by_hand   two workers and a parameter "
      "server\n");
  int64_t batch_size = 0;
  int steps = 50;
  flags.Add("batch_size", &batch_size, "examples per step, of all towers together; 0: 32 for each",
            0, Flags::kMostExamples);
  flags.Add("num_batches", &steps, "training steps", 1);
  SessionFlags session_flags;
  session_flags.AddTo(&flags);
  flags.AddCheck([&] { return examples::Check(session_flags, batch_size); });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(examples::Run(session_flags, batch_size, steps));
}
