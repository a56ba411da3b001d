// A steady step of a client over two daemons, all in this process and over UCX, takes no heap
// memory but for the vector of results.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "client/registries.h"
#include "client/session.h"
#include "executor/worker/server.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/executor/allocation_counter.h"
#include "transport/transports.h"

namespace monograph {
namespace {

std::unique_ptr<Server> Daemon(int task) {
  Registries& registries = DefaultRegistries();
  ServerOptions options;
  options.worker.task = {.job = "worker", .replica = 0, .task = task};
  options.worker.ops = &registries.ops;
  options.worker.kernels = &registries.kernels;
  options.worker.make_transport = ChooseTransport({}, {.loopback = true}).value();
  return Server::Start(std::move(options)).value();
}

TEST(ClientAllocations, ASteadyStepOverTwoDaemonsTakesOnlyTheVectorOfItsResults) {
  const auto first = Daemon(0), second = Daemon(1);
  const ClusterSpec cluster =
      ClusterSpec::FromHosts({{"worker", first->address() + "," + second->address()}}).value();
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {-1});
  const Output y =
      Neg(root.WithDevice("/job:worker/task:1"), Neg(root.WithDevice("/job:worker/task:0"), x));
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = Session::Connect(cluster, graph).value();
  const Callable fetched = session->MakeCallable({x}, {y}).value();
  const Callable silent = session->MakeCallable({x}, {}, {y}).value();
  const Tensor value = Tensor::Vector<float>({1, 2, 3});
  // The fewest of many short rows of steps: heartbeats come between some of them, and on a busy
  // machine between many.
  const auto fewest_allocations_of = [&](const Callable& callable, int steps) {
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (int row = 0; row < 60; ++row) {
      const int64_t before = testing::Allocations();
      for (int i = 0; i < steps; ++i) {
        const auto values = session->RunCallable(callable, std::span(&value, 1));
        EXPECT_TRUE(values.ok()) << values.status();
      }
      fewest = std::min(fewest, testing::Allocations() - before);
    }
    return fewest;
  };
  constexpr int kSteps = 20;
  EXPECT_EQ(fewest_allocations_of(silent, kSteps), 0);
  EXPECT_EQ(fewest_allocations_of(fetched, kSteps), kSteps);
}

}  // namespace
}  // namespace monograph
