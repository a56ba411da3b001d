// linear_regression: y = w x + b over several tasks, by hand: a part of the points on each worker,
// the parameters in turn on the parameter servers, gradients summed there. mnist_replica does the
// same with Replicate.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/device_setter.h"
#include "train/optimizer.h"

namespace monograph::examples {
namespace {

constexpr float kSlope = 3, kOffset = -1;
constexpr int64_t kPoints = 100;  // per worker and step

Status Run(const SessionFlags& session_flags, int steps) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  std::vector<std::string> workers = {"/device:CPU:0", "/device:CPU:1"};
  if (cluster) workers = cluster->Tasks("worker");

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(7);
  // Two parameters on two parameter servers: one each. Without any, both are on the first worker.
  Scope parameters = root.WithDevice(workers[0]);
  if (cluster && cluster->num_tasks("ps") > 0) {
    MG_ASSIGN_OR_RETURN(const Scope::DeviceFunction setter,
                        ReplicaDeviceSetter(*cluster, {.worker_device = workers[0]}));
    parameters = root.WithDeviceFunction(setter);
  }
  const auto zero = [](const Scope& beside) { return Const(beside, 0.0f); };
  const std::vector<ModelVariable> variables = {MakeVariable(parameters, "w", {}, DT_FLOAT, zero),
                                                MakeVariable(parameters, "b", {}, DT_FLOAT, zero)};
  // Each worker draws points of its own and compares the line with them.
  Outputs losses;
  for (size_t i = 0; i < workers.size(); ++i) {
    const Scope worker = root.SubScope("worker_" + std::to_string(i)).WithDevice(workers[i]);
    const Output x = RandomNormal(worker.WithOpName("x"), IntsConst(worker, {kPoints}));
    const Output noise =
        Mul(worker, RandomNormal(worker.WithOpName("noise"), IntsConst(worker, {kPoints})),
            Const(worker, 0.1f));
    const Output y = Add(
        worker, Add(worker, Mul(worker, x, Const(worker, kSlope)), Const(worker, kOffset)), noise);
    const Output line = Add(worker, Mul(worker, x, variables[0].value), variables[1].value);
    losses.push_back(ReduceMean(worker.WithOpName("loss"), SquaredDifference(worker, line, y)));
  }
  const Output loss = Mul(parameters.WithOpName("loss"), AddN(parameters, losses),
                          Const(parameters, 1.0f / static_cast<float>(workers.size())));
  MG_RETURN_IF_ERROR(root.status());
  std::vector<Operation> initializers = {variables[0].initializer, variables[1].initializer};
  MG_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      ComputeGradients(root, loss, variables));
  const Operation train = GradientDescent(0.1).ApplyGradients(root, gradients, &initializers);
  const Operation init = Group(root, initializers);
  MG_RETURN_IF_ERROR(root.status());

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, 2));
  MG_RETURN_IF_ERROR(session->Run({}, {}, {init}).status());
  for (int step = 1; step <= steps; ++step) {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session->Run({}, {loss}, {train}));
    if (step % 10 == 0) std::printf("step %d  loss %.4f\n", step, values[0].scalar<float>());
  }
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                      session->Run({}, {variables[0].value, variables[1].value}));
  std::printf("w = %.3f (true: %.0f)  b = %.3f (true: %.0f)\n", values[0].scalar<float>(), kSlope,
              values[1].scalar<float>(), kOffset);
  return session->Close();
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) {
  using namespace monograph;  // NOLINT
  Flags flags("linear_regression",
              "Fits a line to points that several tasks draw.\n\n"
              "Examples:\n"
              "  linear_regression                                          two CPU devices of "
              "this process\n"
              "  monograph launch --ps=2 --workers=3 -- linear_regression   three workers and two "
              "parameter servers\n");
  int steps = 50;
  flags.Add("num_batches", &steps, "training steps", 1);
  SessionFlags session_flags;
  session_flags.AddTo(&flags);
  flags.AddCheck([&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
    if (!cluster || cluster->num_tasks("worker") > 0) return Status();
    return InvalidArgument("linear_regression needs a cluster with a job worker");
  });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(examples::Run(session_flags, steps));
}
