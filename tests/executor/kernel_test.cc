#include "executor/kernel.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "executor/device.h"
#include "executor/resource_manager.h"
#include "executor/step/outcome.h"
#include "executor/thread_pools.h"
#include "executor/trace.h"
#include "tests/executor/run_op.h"
#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

using testing::Gate;
using testing::TestTask;

class Nothing : public Kernel {
 public:
  explicit Nothing(const KernelConstruction&) {}
  Status Compute(KernelContext&) override { return Status(); }
};

TEST(KernelRegistry, FindsTheKernelOfHighestPriorityThatMatchesAllTypes) {
  KernelRegistry registry;
  registry.Add<Nothing>({.op = "X", .types = {{"T", DT_FLOAT}}});
  registry.Add<Nothing>({.op = "X", .types = {{"T", DT_FLOAT}}, .priority = 2});
  registry.Add<Nothing>({.op = "X", .device = kGpu, .types = {{"T", DT_FLOAT}}, .priority = 9});
  registry.Add<Nothing>({.op = "X", .types = {{"T", DT_INT32}, {"U", DT_INT64}}});
  const auto found = registry.Find("X", kCpu, Attrs{{"T", DT_FLOAT}});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)->def.priority, 2);
  EXPECT_TRUE(registry.Find("X", kCpu, Attrs{{"T", DT_INT32}, {"U", DT_INT64}}).ok());
  EXPECT_EQ(registry.Find("X", kCpu, Attrs{{"T", DT_INT32}, {"U", DT_INT32}}).status().message(),
            "op 'X' has no CPU kernel for T=int32, U=int32; registered: CPU T=float, CPU T=float, "
            "GPU T=float, "
            "CPU T=int32 U=int64");
  EXPECT_TRUE(registry.HasOp("X", kGpu));
  EXPECT_FALSE(registry.HasOp("X", DeviceType("TPU")));
  EXPECT_FALSE(registry.HasOp("Y", kCpu));
  EXPECT_TRUE(registry.HasOp("X"));
  EXPECT_FALSE(registry.HasOp("Y"));
  EXPECT_EQ(registry.All().size(), 4u);
}

TEST(KernelRunner, RunsAnOpByItselfInPlaceWhereTheInputWasMovedIn) {
  TestTask task(1);
  KernelRunner runner(&task.kernels());
  const Tensor kept = Tensor::Vector<float>({1, 2});
  testing::TakeInPlaceCount();
  auto result = testing::RunOp(runner, task.ops(), "TInc", {kept});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(BitEqual((*result)[0], Tensor::Vector<float>({2, 3})));
  EXPECT_EQ(testing::TakeInPlaceCount(), 0);
  std::vector<Tensor> moved;
  moved.push_back(Tensor::Vector<float>({1, 2}));
  EXPECT_TRUE(testing::RunOp(runner, task.ops(), "TInc", std::move(moved)).ok());
  EXPECT_EQ(testing::TakeInPlaceCount(), 1);
}

TEST(KernelRunner, TellsWhatIsWrong) {
  TestTask task(1);
  KernelRunner runner(&task.kernels());
  EXPECT_EQ(
      testing::RunOp(runner, task.ops(), "TFail", {}, Attrs{{"message", std::string("broken")}})
          .status(),
      OutOfRange("node 'TFail' (TFail): broken"));
  EXPECT_EQ(testing::RunOp(runner, task.ops(), "TMissing", {Tensor::Scalar(1.0f)}).status().code(),
            Code::kInternal);
  EXPECT_FALSE(testing::RunOp(runner, task.ops(), "TInc", {}).ok());
  EXPECT_FALSE(testing::RunOp(runner, task.ops(), "TInc", {Tensor::Scalar(1)}).ok());
}

TEST(KernelRunner, WaitsForAnAsynchronousKernel) {
  TestTask task(1);
  task.gate("g")->Open();
  KernelRunner runner(&task.kernels(), {.resources = &task.resources()});
  auto result = testing::RunOp(runner, task.ops(), "TGate", {Tensor::Scalar(3.0f)},
                               Attrs{{"gate", std::string("g")}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>(), 3.0f);
}

TEST(ResourceManager, FindsByContainerAndNameAndChecksTheClass) {
  ResourceManager resources;
  const auto make = [] { return std::make_shared<Variable>("w", DT_FLOAT, PartialShape{2}); };
  const auto w = resources.FindOrCreate<Variable>("localhost", "w", make).value();
  EXPECT_EQ(resources.FindOrCreate<Variable>("localhost", "w", make).value(), w);
  EXPECT_NE(resources.FindOrCreate<Variable>("mine", "w", make).value(), w);
  {
    MutexLock lock(w->mutex);
    w->value = Tensor::Vector<float>({1, 2});
  }
  EXPECT_EQ(resources.bytes(), 8);
  EXPECT_EQ(resources.All().size(), 2u);
  EXPECT_EQ(resources.Find<Variable>("localhost", "v").status(),
            NotFound("resource 'localhost/v' does not exist"));
  EXPECT_EQ(resources.Find<Gate>("localhost", "w").status().code(), Code::kInvalidArgument);
  resources.Clear({"localhost"});
  EXPECT_FALSE(resources.Find<Variable>("localhost", "w").ok());
  EXPECT_TRUE(resources.Find<Variable>("mine", "w").ok());
  resources.Delete("mine", "w");
  EXPECT_TRUE(resources.All().empty());
}

TEST(ThreadPools, ParallelForCoversEveryIndexOnceWithASplitThatDependsOnItsArgumentsAlone) {
  for (const int threads : {1, 2, 4}) {
    ThreadPools pools(1, threads);
    std::set<std::pair<int64_t, int64_t>> first;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> seen(1000);
      std::mutex mutex;
      std::set<std::pair<int64_t, int64_t>> blocks;
      pools.ParallelFor(1000, 1000, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
        std::lock_guard lock(mutex);
        blocks.emplace(begin, end);
      });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
      if (round == 0) first = blocks;
      EXPECT_EQ(blocks, first);
    }
    EXPECT_EQ(first.size() > 1, threads > 1);
  }
}

TEST(ThreadPools, LongWorkIsCutIntoPiecesOfMillisecondsAndLeftOutOnceTheStepIsAborted) {
  for (const int threads : {1, 3}) {
    ThreadPools pools(1, threads);
    StepOutcome outcome;
    std::atomic<int64_t> most{0}, pieces{0};
    const auto body = [&](int64_t begin, int64_t end) {
      if (pieces.fetch_add(1) == 10) outcome.Settle(StepOutcome::kAborted);
      for (int64_t old = most;
           old < end - begin && !most.compare_exchange_weak(old, end - begin);) {
      }
    };
    pools.ParallelFor(100'000, 100'000, body, &outcome);  // ten seconds, it says
    EXPECT_LE(most, 20);
    EXPECT_GE(pieces, 11);
    EXPECT_LE(pieces, 10 + threads);
  }
}

TEST(ThreadPools, SmallLoopsStayOnTheCallingThread) {
  ThreadPools pools(2, 4);
  int calls = 0;
  pools.ParallelFor(10, 100, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
  });
  pools.ParallelFor(0, 100, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPools, LoopsMayNestAndRunBesideEachOther) {
  ThreadPools pools(2, 3);
  std::atomic<int64_t> sum{0};
  pools.ParallelFor(20, 1'000'000, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pools.ParallelFor(100, 10'000, [&](int64_t b, int64_t e) { sum.fetch_add(e - b); });
    }
  });
  EXPECT_EQ(sum.load(), 2000);
}

TEST(Devices, AreNamedByTask) {
  const auto devices =
      MakeCpuDevices(DeviceName::Parse("/job:w/replica:0/task:3").value(), 2).value();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1]->name(), "/job:w/replica:0/task:3/device:CPU:1");
  EXPECT_GT(devices[0]->info().memory_limit, 0);
  EXPECT_FALSE(MakeCpuDevices(DeviceName::Parse("/job:w").value(), 1).ok());
  EXPECT_FALSE(MakeCpuDevices(DeviceName::Parse("/job:w/replica:0/task:3").value(), 0).ok());
}

TEST(Trace, TasksAreDrawnOnOneClockWithArrowsBetweenThem) {
  std::vector<TaskTrace> tasks(2);
  tasks[0] = {"/job:a", 0, {{TraceKind::kSend, "x:0", "_Send", "cpu", 1, 7, 16, 1000, 2000}}};
  tasks[1] = {
      "/job:\"b\"", -5000, {{TraceKind::kRecv, "x:0", "_Recv", "cpu", 2, 7, 16, 8500, 8500}}};
  const std::string json = ToChromeJson(tasks);
  EXPECT_NE(json.find(R"("args":{"name":"/job:\"b\""}})"), std::string::npos) << json;
  EXPECT_NE(json.find(R"({"ph":"s","pid":0,"tid":1,"name":"edge","cat":"edge","id":7,"ts":0.000})"),
            std::string::npos)
      << json;
  EXPECT_NE(
      json.find(
          R"({"ph":"f","bp":"e","pid":1,"tid":2,"name":"edge","cat":"edge","id":7,"ts":2.500})"),
      std::string::npos)
      << json;
}

TEST(Trace, AnArrowHasTwoEndsOrIsLeftOut) {
  std::vector<TaskTrace> tasks(2);
  tasks[0] = {"/job:a",
              0,
              {{TraceKind::kSend, "x:0", "_Send", "cpu", 1, 7, 16, 1000, 2000},
               {TraceKind::kSend, "fetched:0", "_Send", "cpu", 1, 8, 16, 2000, 2100}}};
  tasks[1] = {"/job:b",
              0,
              {{TraceKind::kRecv, "fed:0", "_Recv", "cpu", 2, 9, 16, 500, 500},
               {TraceKind::kRecv, "x:0", "_Recv", "cpu", 2, 7, 16, 2500, 2500}}};
  const std::string json = ToChromeJson(tasks);
  for (const char* arrow : {R"("ph":"s")", R"("ph":"f")"}) {
    const size_t at = json.find(arrow);
    ASSERT_NE(at, std::string::npos) << json;
    EXPECT_EQ(json.find(arrow, at + 1), std::string::npos) << json;
  }
  // The transfers themselves are shown.
  EXPECT_NE(json.find(R"("name":"fetched:0")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("name":"fed:0")"), std::string::npos) << json;
}

TEST(Trace, EveryThreadThatShowsHasItsName) {
  std::vector<TaskTrace> tasks(1);
  std::thread([&] {
    pthread_setname_np(pthread_self(), "my-thread");
    const int32_t id = TraceThread();
    tasks[0] = {"/job:a",
                0,
                {{TraceKind::kNode, "x", "Neg", "cpu", id, -1, 0, 1000, 2000},
                 {TraceKind::kNode, "y", "Neg", "cpu", id + 100, -1, 0, 1000, 2000}},
                {{id, TraceThreadName(id)}}};
  }).join();
  const std::string json = ToChromeJson(tasks);
  EXPECT_NE(json.find(R"("args":{"name":"my-thread"}})"), std::string::npos) << json;
  const std::string unknown = std::to_string(tasks[0].events[1].thread);
  EXPECT_NE(json.find(R"({"ph":"M","name":"thread_name","pid":0,"tid":)" + unknown +
                      R"(,"args":{"name":"thread )" + unknown + R"("}})"),
            std::string::npos)
      << json;
}

TEST(Trace, NoTensorArrivesBeforeItWasSentHoweverRoughTheClocksAreKnown) {
  std::vector<TaskTrace> tasks(3);
  tasks[0] = {"/job:a", 0, {{TraceKind::kSend, "x:0", "_Send", "cpu", 1, 7, 16, 1000, 2000}}};
  tasks[1] = {"/job:b",
              -5000,
              {{TraceKind::kRecv, "x:0", "_Recv", "cpu", 1, 7, 16, 5200, 5200},
               {TraceKind::kSend, "y:0", "_Send", "cpu", 1, 8, 16, 5300, 5400}}};
  tasks[2] = {"/job:c", 8500, {{TraceKind::kRecv, "y:0", "_Recv", "cpu", 1, 8, 16, -8300, -8300}}};
  const std::string json = ToChromeJson(tasks);
  // b's clock goes back until y arrives when it left b, then a's until x does.
  EXPECT_NE(
      json.find(
          R"("ph":"f","bp":"e","pid":1,"tid":1,"name":"edge","cat":"edge","id":7,"ts":0.000})"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("ph":"s","pid":1,"tid":1,"name":"edge","cat":"edge","id":8,"ts":0.100})"),
            std::string::npos)
      << json;
  EXPECT_NE(
      json.find(
          R"("ph":"f","bp":"e","pid":2,"tid":1,"name":"edge","cat":"edge","id":8,"ts":0.100})"),
      std::string::npos)
      << json;
}

}  // namespace
}  // namespace monograph
