// The world of simulated GPUs by itself: what transfers take, and what it tells as a fault.
#include "tests/simulation/gpu_world.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;

// Two nodes of two GPUs; 1 GB/s between nodes and 10 within.
GpuTopology Small() {
  return {.nodes = SpreadOver(2, 4),
          .port = 10e9,
          .nic = 1e9,
          .port_latency = std::chrono::nanoseconds(0),
          .nic_latency = std::chrono::nanoseconds(0)};
}

struct Worlds {
  explicit Worlds(GpuTopology topology)
      : world(std::make_shared<GpuWorld>(std::move(topology),
                                         [this](const std::string& text) { fault = text; })) {
    for (int gpu = 0; gpu < world->topology().gpus(); ++gpu) world->Revive(gpu);
  }
  // All GPUs, or two.
  std::vector<GpuWorld::GroupPtr> Join(const std::string& id, const std::vector<int>& gpus) {
    std::vector<GpuWorld::GroupPtr> groups;
    for (size_t rank = 0; rank < gpus.size(); ++rank) {
      groups.push_back(
          world->Join(id, gpus[rank], static_cast<int>(rank), static_cast<int>(gpus.size())));
    }
    return groups;
  }
  void Send(const GpuWorld::GroupPtr& group, int rank, int to, size_t bytes) {
    const Communicator::Send send{to, this, bytes};
    world->Exchange(group, rank, {&send, 1}, {});
  }
  void Receive(const GpuWorld::GroupPtr& group, int rank, int from, size_t bytes) {
    const Communicator::Receive receive{from, nullptr, bytes};
    world->Exchange(group, rank, {}, {&receive, 1});
  }
  // Milliseconds until the GPU has done what it has.
  double Ends(int gpu) {
    const auto begin = std::chrono::steady_clock::now();
    const EventId event = world->MakeEvent(gpu);
    world->Record(gpu, Queue::kMembers, event);
    while (!world->Done(gpu, event)) std::this_thread::sleep_for(std::chrono::microseconds(10));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  std::string fault;
  std::shared_ptr<GpuWorld> world;
};

TEST(GpuWorld, TransfersShareTheLinksThatTheyCross) {
  RunSchedule({}, [] {
    HoldThreads(false);
    ComputeInNoTime(true);
    Worlds worlds(Small());
    const auto all = worlds.Join("all", {0, 1, 2, 3});
    // 10 MB from each of node 0 to GPU 2, whose NIC has 1 GB/s, and 10 MB within node 0.
    worlds.Send(all[0], 0, 2, 10'000'000);
    worlds.Send(all[1], 1, 2, 10'000'000);
    const Communicator::Receive both[] = {{0, nullptr, 10'000'000}, {1, nullptr, 10'000'000}};
    worlds.world->Exchange(all[2], 2, {}, both);
    EXPECT_NEAR(worlds.Ends(2), 20, 0.1);
    EXPECT_EQ(worlds.world->node_traffic(0).out, 20e6);
    EXPECT_EQ(worlds.world->node_traffic(1).in, 20e6);
    worlds.Send(all[0], 0, 1, 10'000'000);
    worlds.Receive(all[1], 1, 0, 10'000'000);
    EXPECT_NEAR(worlds.Ends(1), 1, 0.1);
    EXPECT_EQ(worlds.world->node_traffic(0).out, 20e6);
    EXPECT_EQ(worlds.world->gpu_traffic(0).out, 20e6);
    EXPECT_EQ(worlds.fault, "");
  });
}

TEST(GpuWorld, GpusThatLaunchInDifferentOrdersAreTold) {
  RunSchedule({}, [] {
    HoldThreads(false);
    ComputeInNoTime(true);
    Worlds worlds(Small());
    const auto one = worlds.Join("one", {0, 1}), other = worlds.Join("other", {0, 1});
    worlds.Send(one[0], 0, 1, 100);
    worlds.Send(other[0], 0, 1, 100);
    worlds.Receive(other[1], 1, 0, 100);
    worlds.Receive(one[1], 1, 0, 100);
    std::this_thread::sleep_for(milliseconds(1));
    (void)worlds.world->Ready(one[0].get(), 0);
    EXPECT_EQ(worlds.fault,
              "deadlock: GPU 0 runs an exchange of one and waits for GPU 1; GPU 1 runs an exchange "
              "of other and waits for GPU 0");
    // One that is aborted lets the other one go on.
    worlds.world->Abort(one[0].get(), 0);
    worlds.world->Abort(one[1].get(), 1);
    EXPECT_LT(worlds.Ends(1), 1);
  });
}

TEST(GpuWorld, RanksThatAreMergedInAnotherOrderAreTold) {
  RunSchedule({}, [] {
    ComputeInNoTime(true);
    Worlds worlds(Small());
    GpuWorld& world = *worlds.world;
    char inputs[3][64], sum[64];
    for (int rank = 0; rank < 3; ++rank) {
      const std::string name = "make " + std::to_string(rank);
      world.nodes()[name] = {
          .makes = GpuWorld::Content{.collective = 1, .first = rank, .last = rank + 1}};
      const MemoryAccess write{inputs[rank], 64};
      world.Kernel(0, {.name = name, .reads = {}, .writes = {&write, 1}}, 7);
    }
    world.nodes()["use"] = {.reads = {{.collective = 1, .first = 0, .last = 3}}};
    std::this_thread::sleep_for(milliseconds(1));
    const auto merge = [&](std::vector<int> ranks) {
      std::vector<MemoryAccess> reads;
      for (const int rank : ranks) reads.push_back({inputs[rank], 64});
      const MemoryAccess write{sum, 64}, read{sum, 64};
      world.Kernel(
          0, {.name = "merge", .reads = reads, .writes = {&write, 1}, .queue = Queue::kMembers}, 7);
      std::this_thread::sleep_for(milliseconds(1));
      world.Kernel(0, {.name = "use", .reads = {&read, 1}, .writes = {}}, 7);
      std::this_thread::sleep_for(milliseconds(1));
      world.ClearCounts();
      return std::exchange(worlds.fault, "");
    };
    EXPECT_EQ(merge({0, 1, 2}), "");
    EXPECT_NE(merge({0, 2, 1}), "");
    EXPECT_EQ(merge({0, 1}), "node use in step 7 reads [collective 1, step 7, ranks 0 to 2]");
  });
}

}  // namespace
}  // namespace monograph::simulation
