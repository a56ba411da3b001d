// Sessions that have come and gone leave nothing behind, neither in the daemons nor in the client;
// all are in this process here. Measured by what the allocator has given out (mallinfo2), which
// knows no fragmentation.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "client/registries.h"
#include "client/session.h"
#include "executor/worker/server.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
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

// The least within a second: a daemon closes the last sessions after their client has gone.
int64_t BytesInUse() {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const struct mallinfo2 info = mallinfo2();
    least = std::min(least, static_cast<int64_t>(info.uordblks + info.hblkhd));
  }
  return least;
}

TEST(SessionGrowth, SessionsThatHaveEndedHoldNoMemory) {
  const auto first = Daemon(0), second = Daemon(1);
  const ClusterSpec cluster =
      ClusterSpec::FromHosts({{"worker", first->address() + "," + second->address()}}).value();
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {-1});
  const Output y =
      Neg(root.WithDevice("/job:worker/task:1"), Neg(root.WithDevice("/job:worker/task:0"), x));
  ASSERT_TRUE(root.ok()) << root.status();
  const auto run_sessions = [&](int count) {
    for (int i = 0; i < count; ++i) {
      auto session = Session::Connect(cluster, graph);
      ASSERT_TRUE(session.ok()) << session.status();
      const auto values = (*session)->Run({{x, Tensor::Vector<float>({1, 2, 3})}}, {y});
      ASSERT_TRUE(values.ok()) << values.status();
    }
  };
  // What stays for good: pools, caches of threads, the 256 connections that a daemon remembers.
  run_sessions(300);
  // A thread's first work may come late; what each session leaves is there in every round.
  constexpr int kSessions = 100;
  int64_t least = INT64_MAX;
  for (int round = 0; round < 3; ++round) {
    const int64_t before = BytesInUse();
    run_sessions(kSessions);
    least = std::min(least, (BytesInUse() - before) / kSessions);
  }
  // Records of peers that a transport kept for good were 1000 bytes and more of each session.
  EXPECT_LT(least, 250) << "bytes that each session leaves";
}

}  // namespace
}  // namespace monograph
