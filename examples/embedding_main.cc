// embedding: tables that are too large to travel. Vectors of users and of films live in parts on
// the parameter servers; a worker asks each part for the rows that its ratings need, and sends
// gradients of those rows back: what a step moves depends on its batch, not on the tables.
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/device_setter.h"
#include "train/embedding.h"
#include "train/tower_gradients.h"
#include "train/variable_scope.h"

namespace monograph::examples {
namespace {

struct Sizes {
  int64_t users = 500, films = 200, dimensions = 8, batch_size = 0;
};

// What a user thinks of a film: a rule that vectors of two numbers could follow.
float Rating(int64_t user, int64_t film) {
  return static_cast<float>(
      std::cos(0.7 * static_cast<double>(user) - 0.3 * static_cast<double>(film)));
}

struct Ratings {
  Tensor users, films, ratings;
};
Ratings Draw(const Sizes& sizes, std::mt19937* random) {
  const Shape shape{sizes.batch_size};
  Ratings batch{Tensor::Allocate(DT_INT32, shape).value(),
                Tensor::Allocate(DT_INT32, shape).value(),
                Tensor::Allocate(DT_FLOAT, shape).value()};
  for (int64_t i = 0; i < sizes.batch_size; ++i) {
    const auto user = static_cast<int32_t>((*random)() % static_cast<uint64_t>(sizes.users));
    const auto film = static_cast<int32_t>((*random)() % static_cast<uint64_t>(sizes.films));
    batch.users.data<int32_t>()[i] = user;
    batch.films.data<int32_t>()[i] = film;
    batch.ratings.data<float>()[i] = Rating(user, film);
  }
  return batch;
}

// The error of one worker's part of the batch.
Output Loss(const VariableScope& tower, const Sizes& sizes, const Outputs& batch) {
  const Scope& scope = tower.scope();
  const auto rows = [&](const char* name, int64_t count, const Output& ids) {
    return EmbeddingLookup(scope, tower.Get(name, {count, sizes.dimensions}), ids);
  };
  const Output users = rows("users", sizes.users, batch[0]),
               films = rows("films", sizes.films, batch[1]);
  const Output guess = Sum(scope.WithOpName("guess"), Mul(scope, users, films), {1});
  return ReduceMean(scope.WithOpName("loss"), SquaredDifference(scope, guess, batch[2]));
}

constexpr int64_t kBatchPerWorker = 256;

// The batch can be cut, and there is somebody to compute.
Status Check(const SessionFlags& session_flags, int64_t batch_size) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  const int workers = cluster ? cluster->num_tasks("worker") : 2;
  if (workers == 0) return InvalidArgument("embedding needs a cluster with a job worker");
  if (batch_size % workers == 0) return Status();
  return InvalidArgument("--batch_size must be a multiple of the number of workers, " +
                         std::to_string(workers));
}

Status Run(const SessionFlags& session_flags, Sizes sizes, int steps) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, session_flags.Cluster());
  std::vector<std::string> workers = {"/device:CPU:0", "/device:CPU:1"};
  if (cluster) workers = cluster->Tasks("worker");
  const auto towers = static_cast<int64_t>(workers.size());
  if (sizes.batch_size == 0) sizes.batch_size = kBatchPerWorker * towers;
  const int64_t shards = cluster ? std::max(1, cluster->num_tasks("ps")) : 2;

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(1);
  Collections collections;
  const VariableScope model = VariableScope(root, &collections)
                                  .Open("model", {.reuse = Reuse::kAutoReuse,
                                                  .initializer = RandomNormalInitializer(0, 0.5),
                                                  .partitioner = FixedSizePartitioner(shards)});
  const Shape shape{sizes.batch_size};
  const Outputs batch = {Placeholder(root.WithOpName("user_ids"), DT_INT32, shape),
                         Placeholder(root.WithOpName("film_ids"), DT_INT32, shape),
                         Placeholder(root.WithOpName("ratings"), DT_FLOAT, shape)};
  std::vector<Outputs> parts;
  for (const Output& input : batch)
    parts.push_back(Split(root, input, static_cast<int>(towers), 0));

  // Variables go to the parameter servers in turn; where there are none, to the first worker.
  std::vector<std::vector<GradientAndVariable>> gradients;
  Outputs losses;
  for (size_t i = 0; i < workers.size(); ++i) {
    VariableScope tower = model.NameScope("tower_" + std::to_string(i));
    if (cluster) {
      MG_ASSIGN_OR_RETURN(const Scope::DeviceFunction setter,
                          ReplicaDeviceSetter(*cluster, {.worker_device = workers[i]}));
      tower = tower.WithDeviceFunction(setter);
    } else {
      tower = tower.WithDevice(workers[i]);
    }
    losses.push_back(Loss(tower, sizes, {parts[0][i], parts[1][i], parts[2][i]}));
    MG_ASSIGN_OR_RETURN(
        std::vector<GradientAndVariable> pairs,
        ComputeGradients(tower.scope(), losses.back(), TrainableVariables(collections)));
    gradients.push_back(std::move(pairs));
  }
  MG_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> mean,
                      AverageGradients(root, gradients));
  std::vector<Operation> initializers = {GlobalVariablesInitializer(root, collections)};
  const Operation train = Adagrad(2.0).ApplyGradients(root, mean, &initializers);
  const Operation init = Group(root, initializers);
  const Output loss = Mul(root, AddN(root, losses), Const(root, 1.0f / static_cast<float>(towers)));
  MG_RETURN_IF_ERROR(root.status());

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, 2));
  MG_RETURN_IF_ERROR(session->Run({}, {}, {init}).status());
  std::mt19937 random(7);
  for (int step = 1; step <= steps; ++step) {
    const Ratings drawn = Draw(sizes, &random);
    MG_ASSIGN_OR_RETURN(
        const std::vector<Tensor> values,
        session->Run({{batch[0], drawn.users}, {batch[1], drawn.films}, {batch[2], drawn.ratings}},
                     {loss}, {train}));
    if (step % 100 == 0) std::printf("step %d  loss %.4f\n", step, values[0].scalar<float>());
  }
  return session->Close();
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) {
  using namespace monograph;  // NOLINT
  Flags flags("embedding",
              "Learns vectors of users and films from ratings, in tables that are spread over the "
              "parameter servers.\n\n"
              "Examples:\n"
              "  embedding                                          two CPU devices of this "
              "process\n"
              "  monograph launch --ps=2 --workers=2 -- embedding   two workers and two parameter "
              "servers\n");
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // rows have int32 numbers
  examples::Sizes sizes;
  int steps = 600;
  flags.Add("users", &sizes.users, "rows of the users' table", 1, kMostRows);
  flags.Add("films", &sizes.films, "rows of the films' table", 1, kMostRows);
  flags.Add("dimensions", &sizes.dimensions, "numbers in a row", 1, Flags::kMostUnits);
  flags.Add("batch_size", &sizes.batch_size,
            "ratings per step, a multiple of the workers; 0: 256 for each", 0,
            Flags::kMostExamples);
  flags.Add("num_batches", &steps, "training steps", 1);
  SessionFlags session_flags;
  session_flags.AddTo(&flags);
  flags.AddCheck([&] { return examples::Check(session_flags, sizes.batch_size); });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(examples::Run(session_flags, sizes, steps));
}
