// calculation_server: workers collect data with the current weights and put it in a queue; this
// client takes it out, trains, and gives the workers new weights. Weights go in and data comes out
// through the session; nobody waits for anybody but at the queue. Each run has a container of its
// own, so that it meets neither the closed queue of the run before nor another run's weights.
//
// The task: for a state s, choose the action a = s w + noise that earns most; the reward
// -(a - s best)^2 is all that a worker hears of `best`. Noise that earned more than usual shows
// where to go.
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/queue/queue.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/coordinator.h"

namespace monograph::examples {
namespace {

constexpr float kBest[] = {2, -1}, kNoise = 0.3f, kRate = 0.1f;
constexpr int64_t kStates = 50;  // in one element of the queue

// One worker: reads the weights, tries actions, and enqueues what it saw.
Operation Collect(const Scope& worker, const Output& weights, const Output& queue) {
  const auto normal = [&](const char* name, std::initializer_list<int64_t> shape) {
    return RandomNormal(worker.WithOpName(name), IntsConst(worker, shape));
  };
  const Output states = normal("states", {kStates, 2}), noise = normal("noise", {kStates, 1});
  const Output actions =
      Add(worker, MatMul(worker, states, ReadVariable(worker.ColocateWith(weights), weights)),
          Mul(worker, noise, Const(worker, kNoise)));
  const Output best = MatMul(worker, states, Const(worker, Shape{2, 1}, {kBest[0], kBest[1]}));
  const Output rewards = Neg(worker, SquaredDifference(worker, actions, best));
  return QueueEnqueue(worker.WithOpName("collect"), queue, {states, noise, rewards});
}

Status Run(const SessionFlags& session_flags, int batches) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  std::vector<std::string> workers = {"/device:CPU:0", "/device:CPU:1"};
  if (cluster) workers = cluster->Tasks("worker");
  const bool has_ps = cluster && cluster->num_tasks("ps") > 0;

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(7);
  // Weights and queue are where everybody finds them.
  const Scope meeting = root.WithDevice(has_ps ? "/job:ps/task:0" : workers[0]);
  const std::string container = "calculation_server." + std::to_string(std::random_device()());
  const Output weights = VarHandle(meeting.WithOpName("weights"), DT_FLOAT, {2, 1}, container);
  const Operation initialize = AssignVariable(meeting, weights, Zeros(meeting, {2, 1}, DT_FLOAT));
  const Output queue = FIFOQueue(meeting.WithOpName("experience"), {DT_FLOAT, DT_FLOAT, DT_FLOAT},
                                 {.capacity = 2,
                                  .shapes = {{kStates, 2}, {kStates, 1}, {kStates, 1}},
                                  .container = container});
  std::vector<Operation> collect;
  for (size_t i = 0; i < workers.size(); ++i) {
    const Scope worker = root.SubScope("worker_" + std::to_string(i)).WithDevice(workers[i]);
    collect.push_back(Collect(worker, weights, queue));
  }

  // This client: data comes out of the queue, and new weights follow from it.
  const Scope trainer =
      root.SubScope("trainer").WithDevice(cluster ? "/job:client/task:0" : "/device:CPU:0");
  const Outputs data = QueueDequeue(trainer, queue);
  const Output current = Placeholder(trainer.WithOpName("current"), DT_FLOAT, {2, 1});
  const Output fresh = Placeholder(trainer.WithOpName("fresh"), DT_FLOAT, {2, 1});
  MG_RETURN_IF_ERROR(root.status());
  const Output reward = ReduceMean(trainer.WithOpName("reward"), data[2]);
  const Output surprise = Mul(trainer, Sub(trainer, data[2], reward), data[1]);
  const Output direction = MatMul(trainer, data[0], surprise, {.transpose_a = true});
  const Output next = Add(trainer.WithOpName("next"), current,
                          Mul(trainer, direction, Const(trainer, kRate / kStates)));
  const Operation publish = AssignVariable(meeting.WithOpName("publish"), weights, fresh);
  const QueueRunner collectors(collect, QueueClose(meeting, queue),
                               QueueClose(meeting, queue, /*cancel_pending_enqueues=*/true));
  MG_RETURN_IF_ERROR(root.status());

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, 2));
  MG_RETURN_IF_ERROR(session->Run({}, {}, {initialize}).status());
  Coordinator coordinator;
  collectors.Start(session.get(), &coordinator);
  Tensor value = Tensor::FromValues<float>({2, 1}, {0, 0});
  for (int batch = 1; batch <= batches && !coordinator.ShouldStop(); ++batch) {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        session->Run({{current, value}}, {next, reward}));
    value = values[0];
    MG_RETURN_IF_ERROR(session->Run({{fresh, value}}, {}, {publish}).status());
    if (batch % 50 == 0) std::printf("batch %d  reward %.3f\n", batch, values[1].scalar<float>());
  }
  coordinator.RequestStop();
  MG_RETURN_IF_ERROR(coordinator.Join());
  MG_RETURN_IF_ERROR(session->Reset({container}));
  std::printf("weights %.2f %.2f (best: %.0f %.0f)\n", value.data<float>()[0],
              value.data<float>()[1], kBest[0], kBest[1]);
  return session->Close();
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) {
  using namespace monograph;  // NOLINT
  Flags flags("calculation_server",
              "Workers collect data with the current weights, this client trains with it.\n\n"
              "Examples:\n"
              "  calculation_server                                          two CPU devices of "
              "this process\n"
              "  monograph launch --ps=1 --workers=3 -- calculation_server   three workers\n");
  int batches = 400;
  flags.Add("num_batches", &batches, "batches of data to train with", 1);
  SessionFlags session_flags;
  session_flags.AddTo(&flags);
  flags.AddCheck([&]() -> Status {
    MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
    if (!cluster || cluster->num_tasks("worker") > 0) return Status();
    return InvalidArgument("calculation_server needs a cluster with a job worker");
  });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(examples::Run(session_flags, batches));
}
