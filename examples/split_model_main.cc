// split_model: one model over two devices: the convolutions on one, the dense layers on the other.
// Each layer's variables live where the layer runs, and gradients are computed beside their forward
// nodes: what crosses between the devices is the features and their gradient.
#include <optional>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "examples/models/mnist_cnn.h"
#include "examples/models/train.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph::examples {
namespace {

Status Run(const SessionFlags& session_flags, int64_t batch_size, int steps) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  std::vector<std::string> devices = {"/device:CPU:0", "/device:CPU:1"};
  if (cluster) devices = cluster->Tasks("worker");

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(1);
  const Scope first = root.WithDevice(devices[0]), second = root.WithDevice(devices[1]);
  const Output images = Placeholder(root.WithOpName("images"), DT_FLOAT, {batch_size, 784});
  const Output labels = Placeholder(root.WithOpName("labels"), DT_INT32, {batch_size});

  const MnistCnn model{.conv1 = 16, .conv2 = 32, .fc = 128, .dropout = 0};
  // Each part's variables live where the part runs.
  Collections collections;
  const VariableScope variables(root, &collections);
  ScopedModelVariables on_first(variables.WithDevice(devices[0])),
      on_second(variables.WithDevice(devices[1]));
  const Output features = model.Convolutions(first, images, on_first);
  const Output logits = model.Dense(second, features, on_second, true);
  const Outputs results = LossAndAccuracy(second, logits, labels);
  MG_RETURN_IF_ERROR(root.status());

  std::vector<Operation> initializers = {GlobalVariablesInitializer(root, collections)};
  MG_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      ComputeGradients(root, results[0], TrainableVariables(collections)));
  const Operation train = Adam(1e-3).ApplyGradients(root, gradients, &initializers);
  const Operation init = Group(root, initializers);
  MG_RETURN_IF_ERROR(root.status());

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, 2));
  MG_RETURN_IF_ERROR(TrainOnSyntheticImages(session.get(), {images, labels}, init, train, results,
                                            "accuracy", steps));
  return session->Close();
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) {
  using namespace monograph;  // NOLINT
  Flags flags("split_model",
              "Trains a CNN on synthetic images with its convolutions on one device and its dense "
              "layers on another.\n\n"
              "Examples:\n"
              "  split_model --log_device_placement=summary                 two CPU devices of "
              "this process\n"
              "  monograph launch --workers=2 -- split_model                two tasks\n");
  int64_t batch_size = 50;
  int steps = 50;
  flags.Add("batch_size", &batch_size, "examples per step", 1, Flags::kMostExamples);
  flags.Add("num_batches", &steps, "training steps", 1);
  SessionFlags session_flags;
  session_flags.AddTo(&flags);
  flags.AddCheck([&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
    if (!cluster || cluster->num_tasks("worker") >= 2) return Status();
    return InvalidArgument("split_model needs a cluster with two tasks of job worker");
  });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(examples::Run(session_flags, batch_size, steps));
}
