// The GPU executor over devices that compute on the CPU and check every dependency.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "executor/gpu/copies.h"
#include "executor/resource_manager.h"
#include "executor/trace.h"
#include "tests/executor/gpu/gpu_task.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::Collector;
using testing::GpuTask;
using testing::kCpu0;
using testing::kGpu0;
using testing::kGpu1;
using testing::MakeFakeGpu;
using testing::RecordingDriver;
using testing::RunStep;
using Values = std::map<int32_t, float>;

// Runs the plan as often as it takes to measure, capture and replay, and some more.
constexpr int kSteps = 6;

// Both ends of a crossing between two devices of the task, as partitioning makes it.
Endpoint Cross(Builder& b, int64_t edge, Endpoint from, std::string_view source,
               std::string_view target) {
  b.Send(edge, from, 0, {}, source, target);
  return b.Recv(edge, {}, target, PartialShape(), source);
}

void ExpectNoRaces(GpuTask& task) {
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string& race : task.driver(i).races()) ADD_FAILURE() << race;
  }
}

// Waits until all that steps held on GPU 0 is let go of; what is left after ten seconds.
int64_t BytesLeft(GpuTask& task) {
  GpuMemory& memory = task.gpu(0).device->memory();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (memory.bytes_in_use() != 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return memory.bytes_in_use();
}

TEST(GpuExecutor, AChainOnAGpuGivesTheNumbersOfTheCpu) {
  for (const int threads : {1, 2}) {
    GpuTask task(threads);
    Graph graph = task.NewGraph();
    Builder b(&graph);
    Endpoint x = Cross(b, 1, b.Recv(0), kCpu0, kGpu0);
    for (int i = 0; i < 10; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
    b.Send(3, Cross(b, 2, x, kGpu0, kCpu0));
    const auto plan = task.Compile(graph).value();
    for (int i = 0; i < kSteps; ++i) {
      const auto values = RunStep(plan, {{0, static_cast<float>(i)}}, 1 + static_cast<uint64_t>(i));
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ(*values, (Values{{3, static_cast<float>(i) + 10}}));
    }
    ExpectNoRaces(task);
    EXPECT_GT(task.driver(0).counts().launches, 1) << "nothing was replayed";
    EXPECT_EQ(task.driver(1).counts().kernels, 0);
  }
}

TEST(GpuExecutor, ATensorOfAnotherTaskComesAndGoesThroughTheHost) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(*RunStep(plan, {{0, 4.0f}}), (Values{{1, 5.0f}}));
  ExpectNoRaces(task);
}

TEST(GpuExecutor, LargeTensorsGoThroughPinnedMemoryInPiecesWhichThreadsShare) {
  GpuDevice::Options options = GpuTask::DefaultOptions();
  options.memory_limit = size_t{64} << 20;
  for (const int threads : {1, 4}) {
    GpuTask task(threads, options);
    Graph graph = task.NewGraph();
    Builder b(&graph);
    b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
    const auto plan = task.Compile(graph).value();
    Tensor x = Tensor::Allocate(DT_FLOAT, Shape{1'500'000}).value();  // 6 MB: six pieces
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (int64_t i = 0; i < x.elements(); ++i)
        x.data<float>()[i] = static_cast<float>(i + static_cast<int64_t>(step));
      Collector collector;
      auto running = StepExecutor::Prepare(plan, step, &collector, collector.done());
      running->Deliver(0, x);
      running->Start();
      ASSERT_TRUE(collector.Wait().ok());
      const Tensor y = collector.Take().at(1);
      for (int64_t i = 0; i < y.elements(); ++i) {
        ASSERT_EQ(std::as_const(y).data<float>()[i],
                  static_cast<float>(i + static_cast<int64_t>(step)) + 1);
      }
    }
    EXPECT_GE(task.driver(0).counts().copies, kSteps * 7);
    ExpectNoRaces(task);
  }
}

TEST(GpuExecutor, ACopyInPiecesThatFailsEndsTheStepOnceAndKeepsNothing) {
  for (const int64_t after : {0, 2, 5}) {
    GpuTask task(4);
    Graph graph = task.NewGraph();
    Builder b(&graph);
    b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
    const auto plan = task.Compile(graph).value();
    task.driver(0).LoseAt(RecordingDriver::Call::kCopy, after);
    Collector collector;
    auto running = StepExecutor::Prepare(plan, 1, &collector, collector.done());
    running->Deliver(0, Tensor::Allocate(DT_FLOAT, Shape{1'500'000}).value());
    running->Start();
    EXPECT_EQ(collector.Wait().code(), Code::kUnavailable);
    running = nullptr;
    EXPECT_EQ(BytesLeft(task), 0);
  }
}

TEST(GpuExecutor, ACopyInPiecesOfWhichOneIsRefusedKeepsItsMemoryUntilTheOthersAreThere) {
  GpuTask task(4);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  task.driver(0).Hold();
  task.driver(0).RefuseAt(RecordingDriver::Call::kCopy, 2);
  Collector collector;
  auto running = StepExecutor::Prepare(plan, 1, &collector, collector.done());
  running->Deliver(0, Tensor::Allocate(DT_FLOAT, Shape{1'500'000}).value());
  running->Start();
  EXPECT_EQ(collector.Wait().code(), Code::kInternal);
  running = nullptr;
  EXPECT_GE(task.gpu(0).device->memory().bytes_in_use(), 6'000'000);
  task.driver(0).Resume();
  EXPECT_EQ(BytesLeft(task), 0);
}

// What `plan` makes of `x` on edge 0, on edge 1.
Tensor Through(const std::shared_ptr<const Plan>& plan, uint64_t step, const Tensor& x) {
  Collector collector;
  auto running = StepExecutor::Prepare(plan, step, &collector, collector.done());
  running->Deliver(0, x);
  running->Start();
  EXPECT_TRUE(collector.Wait().ok());
  return collector.Take().at(1);
}

TEST(GpuExecutor, LargeTensorsForTasksThatTakeThemFromTheGpuLeaveItUncopiedAndComeSo) {
  GpuDevice::Options options = GpuTask::DefaultOptions();
  options.memory_limit = size_t{64} << 20;
  GpuTask task(2, options);
  GpuMemory& memory = task.gpu(0).device->memory();
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
  std::set<std::string> asked;
  const auto plan = task.Compile(graph,
                                 [&](const std::string& device) {
                                   asked.insert(device);
                                   return true;
                                 })
                        .value();
  EXPECT_EQ(asked, std::set<std::string>{testing::kElsewhere});
  ASSERT_NE(plan->FindRecvEdge(0), nullptr);
  EXPECT_EQ(plan->FindRecvEdge(0)->gpu, task.gpu(0).device.get());
  EXPECT_EQ(plan->FindRecvEdge(77), nullptr);
  Tensor x = Tensor::Allocate(DT_FLOAT, Shape{100'000}).value();
  std::fill_n(x.data<float>(), x.elements(), 1.0f);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const int64_t copies = task.driver(0).counts().copies;
    const Tensor y = Through(plan, step, x);
    EXPECT_TRUE(memory.Contains(y.raw()));
    for (int64_t i = 0; i < y.elements(); ++i)
      ASSERT_EQ(y.data<float>()[i], static_cast<float>(step + 1));
    if (step > 1) {  // within the device at most: a replayed graph's output
      EXPECT_LE(task.driver(0).counts().copies, copies + 2);
    }
    x = y;
  }
  const Tensor small = Through(plan, 100, Tensor::Scalar(1.0f));
  EXPECT_FALSE(memory.Contains(small.raw()));
  EXPECT_EQ(small.scalar<float>(), 2.0f);
  x.Reset();
  EXPECT_EQ(BytesLeft(task), 0);
  ExpectNoRaces(task);
}

TEST(GpuExecutor, ATensorThatOneTaskDoesNotTakeFromTheGpuOrThatTheHostWantsGoesThroughTheHost) {
  constexpr char kThird[] = "/job:third/replica:0/task:0/device:CPU:0";
  const Tensor x = Tensor::Allocate(DT_FLOAT, Shape{100'000}).value();
  for (const bool third : {false, true}) {
    GpuTask task;
    Graph graph = task.NewGraph();
    Builder b(&graph);
    const Endpoint in = b.Recv(0, {}, kGpu0), out = b.Op("TInc", {in}, {}, {}, kGpu0);
    b.Send(1, out, 0, {}, kGpu0);
    if (third) b.Send(4, out, 0, {}, kGpu0, kThird);
    b.Send(5, b.Op("TInc", {Cross(b, 2, in, kGpu0, kCpu0)}));
    b.Send(6, b.Op("TInc", {Cross(b, 3, out, kGpu0, kCpu0)}));
    const auto plan =
        task.Compile(graph, [&](const std::string& device) { return device != kThird; }).value();
    EXPECT_EQ(plan->FindRecvEdge(0)->gpu, nullptr) << "the CPU reads it, too";
    const Tensor y = Through(plan, 1, x);
    EXPECT_EQ(task.gpu(0).device->memory().Contains(y.raw()), !third);
    ExpectNoRaces(task);
  }
}

// A task whose large tensors leave in parts, for two tasks; puts together what they get.
struct PartsTask {
  static constexpr char kThird[] = "/job:third/replica:0/task:0/device:CPU:0";
  static constexpr int64_t kElements = 1'500'003;  // a part and 6 MB
  static constexpr size_t kBytes = 4 * kElements;

  PartsTask() {
    Builder b(&graph);
    const Endpoint out = b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0);
    b.Send(1, out, 0, {}, kGpu0);
    b.Send(2, out, 0, {}, kGpu0, kThird);
    plan = task.Compile(graph, {},
                        [this](uint64_t step, int32_t edge, const Tensor& tensor, size_t offset) {
                          Take(step, edge, tensor, offset);
                        })
               .value();
  }
  static GpuDevice::Options Large() {
    GpuDevice::Options options = GpuTask::DefaultOptions();
    options.memory_limit = size_t{64} << 20;
    return options;
  }
  // On the completing thread.
  void Take(uint64_t step, int32_t edge, const Tensor& tensor, size_t offset) {
    EXPECT_EQ(step, expected_step);
    std::vector<char>& got = came[edge];
    EXPECT_EQ(got.size(), offset) << "in order";
    const char* const part = static_cast<const char*>(tensor.raw()) + offset;
    got.insert(got.end(), part, part + std::min(kTransferPart, kBytes - offset));
    if (offset == 0 && edge == 1 && hold_behind_first) task.driver(0).Hold();
    ++parts;
  }
  std::shared_ptr<Step> Begin(uint64_t step, Collector* collector) {
    expected_step = step;
    parts = 0;
    came.clear();
    Tensor x = Tensor::Allocate(DT_FLOAT, Shape{kElements}).value();
    for (int64_t i = 0; i < kElements; ++i)
      x.data<float>()[i] = static_cast<float>(i % 1000 + static_cast<int64_t>(step));
    auto running = StepExecutor::Prepare(plan, step, collector, collector->done());
    running->Deliver(0, std::move(x));
    running->Start();
    return running;
  }
  void ExpectAll() {
    for (const int32_t edge : {1, 2}) {
      const std::vector<char>& got = came[edge];
      ASSERT_EQ(got.size(), kBytes);
      for (int64_t i = 0; i < kElements; ++i) {
        float is;
        std::memcpy(&is, got.data() + 4 * i, sizeof is);
        ASSERT_EQ(is, static_cast<float>(i % 1000 + static_cast<int64_t>(expected_step) + 1));
      }
    }
  }
  bool WaitForParts(int wanted) {
    return WaitFor([&] { return parts >= wanted; });
  }
  bool WaitForRefusal() {
    return WaitFor([&] { return task.driver(0).has_refused(); });
  }
  template <typename Fn>
  static bool WaitFor(const Fn& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return holds();
  }

  uint64_t expected_step = 0;
  std::atomic<int> parts{0};
  bool hold_behind_first = false;
  std::map<int32_t, std::vector<char>> came;  // by edge
  GpuTask task{2, Large()};
  Graph graph = task.NewGraph();
  std::shared_ptr<const Plan> plan;
};
constexpr int kInParts = 6;  // 1 MiB each, and what is left

TEST(GpuExecutor, TheFirstPartOfALargeTensorLeavesBeforeTheLastIsCopied) {
  PartsTask task;
  for (const EdgeInfo& edge : task.plan->send_edges()) EXPECT_TRUE(edge.in_parts) << edge.id;
  task.hold_behind_first = true;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    Collector collector;
    const auto running = task.Begin(step, &collector);
    ASSERT_TRUE(task.WaitForParts(2));
    EXPECT_EQ(task.parts, 2) << "the first one, for both";
    EXPECT_FALSE(collector.finished());
    task.task.driver(0).Resume();
    ASSERT_TRUE(collector.Wait().ok());
    EXPECT_EQ(task.parts, 2 * kInParts);
    task.ExpectAll();
    const auto sent = collector.Take();
    EXPECT_EQ(sent.at(1).bytes(), PartsTask::kBytes);
    EXPECT_TRUE(sent.at(1).buffer() == sent.at(2).buffer()) << "copied once";
  }
  ExpectNoRaces(task.task);
}

TEST(GpuExecutor, ATensorOfWhichAPartIsNotCopiedFailsTheStepAndKeepsItsMemoryUntilTheOthersAre) {
  for (const int refused : {0, 2, kInParts - 1}) {
    PartsTask task;
    task.task.driver(0).Hold();
    // The copy to the GPU has as many pieces.
    task.task.driver(0).RefuseAt(RecordingDriver::Call::kCopy, kInParts + refused);
    Collector collector;
    auto running = task.Begin(1, &collector);
    if (refused > 0) {
      ASSERT_TRUE(task.WaitForRefusal());
      EXPECT_FALSE(collector.finished()) << refused;
      EXPECT_GE(task.task.gpu(0).device->memory().bytes_in_use(),
                static_cast<int64_t>(PartsTask::kBytes));
    }
    task.task.driver(0).Resume();
    const Status status = collector.Wait();
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_NE(status.message().find("(copied to the host)"), std::string::npos) << status;
    EXPECT_LE(task.parts, 2 * refused);
    running = nullptr;
    EXPECT_EQ(BytesLeft(task.task), 0);
    task.hold_behind_first = false;
    Collector next;
    running = task.Begin(2, &next);
    EXPECT_TRUE(next.Wait().ok());
    task.ExpectAll();
  }
}

TEST(GpuExecutor, AGpuThatIsLostBetweenTwoPartsFailsTheStepAndHangsNone) {
  PartsTask task;
  task.task.driver(0).LoseAt(RecordingDriver::Call::kCopy, kInParts + 2);
  Collector collector;
  auto running = task.Begin(1, &collector);
  EXPECT_EQ(collector.Wait().code(), Code::kUnavailable);
  running = nullptr;
  EXPECT_EQ(BytesLeft(task.task), 0);
}

TEST(GpuExecutor, SmallTensorsAndThoseOfLoopsLeaveAsAWhole) {
  std::atomic<int> parts{0};
  GpuTask task(2, PartsTask::Large());
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan =
      task.Compile(graph, {}, [&](uint64_t, int32_t, const Tensor&, size_t) { ++parts; }).value();
  Tensor x = Tensor::Allocate(DT_FLOAT, Shape{kLeastInParts / 4 - 1}).value();
  std::fill_n(x.data<float>(), x.elements(), 1.0f);
  EXPECT_EQ(Through(plan, 1, x).data<float>()[x.elements() - 1], 2.0f);
  EXPECT_EQ(parts, 0);
  x = Tensor::Allocate(DT_FLOAT, Shape{kLeastInParts / 4}).value();
  (void)Through(plan, 2, x);
  EXPECT_EQ(parts, 2);

  // Of one round.
  Graph with_loop = task.NewGraph();
  Builder l(&with_loop);
  const auto enter = [&](Endpoint to, bool constant) {
    return l.Op("TEnter", {to},
                {{"frame_name", std::string("loop")},
                 {"is_constant", constant},
                 {"parallel_iterations", int64_t{1}}});
  };
  const Endpoint first = enter(l.Const(0), false), i = l.Op("TMerge", {first, first});
  const Endpoint goes_on = l.Op("TLoopCond", {l.Op("TLess", {i, enter(l.Const(0), true)})});
  const NodeId split = l.Add("TSwitch", {i, goes_on});
  with_loop.ReplaceInput(i.node, 1, l.Op("TNext", {l.Op("TInc", {Endpoint{split, 1}})}));
  l.Send(1, l.Op("TInc", {enter(l.Recv(0), true)}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto looping =
      task.Compile(with_loop, {}, [&](uint64_t, int32_t, const Tensor&, size_t) { ++parts; })
          .value();
  EXPECT_TRUE(looping->send_edges()[0].in_loop);
  EXPECT_EQ(Through(looping, 3, x).bytes(), x.bytes());
  EXPECT_EQ(parts, 2);
}

TEST(GpuExecutor, MemoryForWhatOthersWriteIsThatWhichNoSegmentUsesAnyMore) {
  GpuTask task;
  GpuMemory& memory = task.gpu(0).device->memory();
  const std::string* const owner = memory.Intern("test");
  constexpr size_t kHalf = size_t{4} << 20;
  Buffer low = memory.AllocateIdle(kHalf, owner), high = memory.AllocateIdle(kHalf, owner);
  ASSERT_TRUE(low && high);
  EXPECT_FALSE(memory.AllocateIdle(1, owner));
  const uint64_t tick = memory.BeginTick();
  low = Buffer();  // a segment that is launched may use it
  EXPECT_FALSE(memory.AllocateIdle(1, owner));
  memory.EndTick();
  EXPECT_FALSE(memory.AllocateIdle(1, owner));
  memory.Completed(tick);
  low = memory.AllocateIdle(kHalf, owner);
  EXPECT_TRUE(low);
  EXPECT_TRUE(memory.Contains(static_cast<char*>(low.data()) + kHalf - 1));
  EXPECT_FALSE(memory.Contains(&task));
}

TEST(GpuExecutor, GpusOfATaskExchangeTensorsDirectly) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0);
  const Endpoint there = b.Op("TInc", {Cross(b, 1, x, kGpu0, kGpu1)}, {}, {}, kGpu1);
  const Endpoint back = Cross(b, 2, there, kGpu1, kGpu0);
  b.Send(3, b.Op("TAdd", {x, back}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (uint64_t i = 1; i <= kSteps; ++i)
    EXPECT_EQ(*RunStep(plan, {{0, 1.0f}}, i), (Values{{3, 5.0f}}));
  ExpectNoRaces(task);
}

// The same random graph on the CPU alone and over both GPUs.
struct RandomGraph {
  std::mt19937 random;
  void Build(Builder& b, bool gpus) {
    const char* const devices[] = {kCpu0, gpus ? kGpu0 : kCpu0, gpus ? kGpu1 : kCpu0,
                                   gpus ? kGpu0 : kCpu0};
    std::map<std::pair<Endpoint, std::string>, Endpoint> crossed;
    int64_t edge = 10'000;
    std::vector<std::pair<Endpoint, std::string>> made = {{b.Recv(1000), kCpu0},
                                                          {b.Recv(1001), kCpu0}};
    const auto pick = [&](const std::string& device) {
      const auto& [from, where] =
          made[made.size() - 1 - random() % std::min<size_t>(12, made.size())];
      if (where == device) return from;
      const auto [it, fresh] = crossed.emplace(std::pair(from, device), Endpoint());
      if (fresh) it->second = Cross(b, edge++, from, where, device);
      return it->second;
    };
    for (int i = 0; i < 120; ++i) {
      const std::string device = devices[random() % 4];
      const unsigned kind = random() % 4;
      if (kind == 0) {
        const Endpoint p = pick(device), q = pick(device);
        made.emplace_back(b.Op("TSum", {p, q}, {{"N", int64_t{2}}}, {}, device), device);
      } else {
        made.emplace_back(b.Op(kind == 1 ? "TIncSlow" : "TInc", {pick(device)}, {}, {}, device),
                          device);
      }
      if (random() % 12 == 0) b.Send(i, made.back().first, 0, {}, device);
    }
    b.Send(999, made.back().first, 0, {}, made.back().second);
  }
};

TEST(GpuExecutor, RandomGraphsOverSeveralDevicesGiveTheNumbersOfTheCpuWithoutARace) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    GpuTask task(seed % 2 == 0 ? 1 : 3, GpuTask::DefaultOptions(), seed);
    std::shared_ptr<const Plan> plans[2];
    for (const bool gpus : {false, true}) {
      Graph graph = task.NewGraph();
      Builder b(&graph);
      RandomGraph{std::mt19937(seed)}.Build(b, gpus);
      auto plan = task.Compile(graph);
      ASSERT_TRUE(plan.ok()) << plan.status();
      plans[gpus] = *plan;
    }
    for (int i = 0; i < kSteps; ++i) {
      const std::map<int32_t, float> feeds = {{1000, static_cast<float>(i)}, {1001, 2.0f}};
      const auto step = static_cast<uint64_t>(i + 1);
      const auto expected = RunStep(plans[0], feeds, step), got = RunStep(plans[1], feeds, step);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(*got, *expected) << "seed " << seed << ", step " << step;
    }
    ExpectNoRaces(task);
  }
}

TEST(GpuExecutor, SeveralStepsAtOnceDoNotDisturbEachOther) {
  GpuTask task(3);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0);
  for (int i = 0; i < 5; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
  // Back to the host in the middle.
  const Endpoint host = b.Op("TInc", {Cross(b, 1, x, kGpu0, kCpu0)});
  Endpoint y = Cross(b, 2, host, kCpu0, kGpu0);
  for (int i = 0; i < 5; ++i) y = b.Op("TAdd", {y, x}, {}, {}, kGpu0);
  b.Send(3, y, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  constexpr int kAtOnce = 8;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < kAtOnce; ++i) {
      collectors.push_back(std::make_unique<Collector>());
      auto step = StepExecutor::Prepare(plan, static_cast<uint64_t>(round * kAtOnce + i + 1),
                                        collectors.back().get(), collectors.back()->done());
      step->Start();
      step->Deliver(0, Tensor::Scalar(static_cast<float>(i)));
    }
    for (int i = 0; i < kAtOnce; ++i) {
      ASSERT_TRUE(collectors[static_cast<size_t>(i)]->Wait().ok());
      const float in = static_cast<float>(i) + 6;
      EXPECT_EQ(collectors[static_cast<size_t>(i)]->Value(3), in + 1 + 5 * in);
    }
  }
  ExpectNoRaces(task);
}

TEST(GpuExecutor, ASteadyStepTakesNoMemoryAndMakesNoEventsOrGraphs) {
  for (const bool replay : {true, false}) {
    auto options = GpuTask::DefaultOptions();
    options.replay = replay;
    GpuTask task(2, options);
    Graph graph = task.NewGraph();
    Builder b(&graph);
    Endpoint x = b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0);
    for (int i = 0; i < 20; ++i) x = b.Op("TSum", {x, x}, {{"N", int64_t{2}}}, {}, kGpu0);
    const Endpoint y = b.Op("TInc", {Cross(b, 1, x, kGpu0, kGpu1)}, {}, {}, kGpu1);
    b.Send(2, y, 0, {}, kGpu1);
    const auto plan = task.Compile(graph).value();
    uint64_t step = 0;
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) ASSERT_TRUE(RunStep(plan, {{0, 0.0f}}, ++step).ok());
    };
    run(20);
    int64_t before[2];
    for (size_t i = 0; i < 2; ++i) before[i] = task.driver(i).counts().allocations;
    run(100);
    // An event may be made late, when an earlier step's is still looked at. One a step would be
    // 100.
    for (size_t i = 0; i < 2; ++i)
      EXPECT_LE(task.driver(i).counts().allocations - before[i], 5) << "GPU " << i;
    EXPECT_EQ(task.driver(0).counts().launches > 0, replay);
    ExpectNoRaces(task);
  }
}

TEST(GpuExecutor, AGraphIsCapturedAnewWhenShapesChange) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Recv(0, {}, kGpu0, PartialShape({-1}));
  for (int i = 0; i < 4; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
  b.Send(1, x, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  uint64_t step = 0;
  for (const int64_t size : {3, 3, 3, 5, 5, 5, 3, 5, 7, 9, 11, 13, 3}) {
    Tensor in = Tensor::Allocate(DT_FLOAT, Shape{size}).value();
    for (int64_t i = 0; i < size; ++i) in.data<float>()[i] = static_cast<float>(i);
    Collector collector;
    auto running = StepExecutor::Prepare(plan, ++step, &collector, collector.done());
    running->Start();
    running->Deliver(0, in);
    ASSERT_TRUE(collector.Wait().ok());
    const Tensor out = collector.Take().at(1);
    ASSERT_EQ(out.shape(), in.shape());
    for (int64_t i = 0; i < size; ++i)
      ASSERT_EQ(std::as_const(out).data<float>()[i], static_cast<float>(i) + 4);
  }
  ExpectNoRaces(task);
}

TEST(GpuExecutor, WhatCannotBeAGraphIsLaunchedNodeByNodeAndTheLogSaysSoOnce) {
  GpuTask task;
  task.driver(0).RefuseCaptures(true);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Recv(0, {}, kGpu0);
  for (int i = 0; i < 4; ++i) x = b.Op("TSum", {x, x}, {{"N", int64_t{2}}}, {}, kGpu0);
  b.Send(1, x, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  ::testing::internal::CaptureStderr();
  for (uint64_t i = 1; i <= kSteps; ++i)
    EXPECT_EQ(*RunStep(plan, {{0, 1.0f}}, i), (Values{{1, 16.0f}}));
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string told =
      " is not captured as a CUDA graph (operation not permitted when stream is capturing); its "
      "nodes are launched one by one";
  EXPECT_NE(log.find(told), std::string::npos) << log;
  EXPECT_EQ(log.find(told), log.rfind(told)) << log;
  EXPECT_EQ(task.driver(0).counts().launches, 0);
  ExpectNoRaces(task);
}

TEST(GpuExecutor, AKernelsFailureNamesItsNodeAndOpOnce) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const NodeId fail = b.Add("TFail", {}, {{"message", std::string("no such row")}}, {}, kGpu0);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {fail}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (uint64_t i = 1; i <= 3; ++i) {
    const Status status = RunStep(plan, {{0, 1.0f}}, i).status();
    EXPECT_EQ(status.message(), "node 'TFail' (TFail) on " + std::string(kGpu0) + ": no such row");
  }
  ExpectNoRaces(task);
}

TEST(GpuExecutor, OutOfMemoryFailsTheStepWithATableOfWhoHoldsWhat) {
  auto options = GpuTask::DefaultOptions();
  options.memory_limit = 64 << 10;
  GpuTask task(2, options);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Recv(0, {}, kGpu0);
  const Endpoint big = b.Op("TInc", {x}, {}, {}, kGpu0);
  const Endpoint bigger = b.Op("TInc", {x}, {}, {}, kGpu0);
  b.Send(1, b.Op("TAdd", {big, bigger}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (uint64_t i = 1; i <= 3; ++i) {
    Collector collector;
    auto step = StepExecutor::Prepare(plan, i, &collector, collector.done());
    step->Start();
    step->Deliver(0, Tensor::Allocate(DT_FLOAT, Shape{6000}).value());  // 24 kB each
    const Status status = collector.Wait();
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_NE(status.message().find("node 'TInc_1' (TInc) on " + std::string(kGpu0)),
              std::string::npos)
        << status;
    EXPECT_NE(status.message().find("24064 bytes in 1 blocks: node 'TInc' (TInc)"),
              std::string::npos)
        << status;
    EXPECT_NE(status.message().find("limit 65536 bytes"), std::string::npos) << status;
    EXPECT_EQ(BytesLeft(task), 0);
  }
  // A step that fits still runs, and nothing is left behind.
  EXPECT_EQ(*RunStep(plan, {{0, 1.0f}}, 9), (Values{{1, 4.0f}}));
}

TEST(GpuExecutor, AllowGrowthTakesMemoryAsItIsNeeded) {
  auto options = GpuTask::DefaultOptions();
  options.memory_limit = size_t{256} << 20;
  options.allow_growth = true;
  GpuTask task(2, options);
  EXPECT_EQ(task.driver(0).counts().device_bytes, 0);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  EXPECT_TRUE(RunStep(plan, {{0, 1.0f}}).ok());
  EXPECT_EQ(task.driver(0).counts().device_bytes, 64 << 20);
  EXPECT_EQ(task.driver(1).counts().device_bytes, 0);
}

TEST(GpuExecutor, ALostContextFailsEveryStepAndHangsNone) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Recv(0, {}, kGpu0);
  for (int i = 0; i < 3; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
  b.Send(1, x, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  EXPECT_TRUE(RunStep(plan, {{0, 1.0f}}, 1).ok());
  // While a step waits for the device.
  task.driver(0).Hold();
  Collector collector;
  auto step = StepExecutor::Prepare(plan, 2, &collector, collector.done());
  step->Start();
  step->Deliver(0, Tensor::Scalar(1.0f));
  task.driver(0).Lose();
  const Status status = collector.Wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("the context of " + std::string(kGpu0) + " is lost"),
            std::string::npos)
      << status;
  EXPECT_NE(status.message().find("illegal memory access"), std::string::npos) << status;
  for (uint64_t i = 3; i < 6; ++i)
    EXPECT_EQ(RunStep(plan, {{0, 1.0f}}, i).status().code(), Code::kUnavailable);
}

TEST(GpuExecutor, AStickyErrorOfAnyCallFailsTheStepWithNodeAndOpAndHangsNone) {
  using Call = RecordingDriver::Call;
  const std::map<Call, int> calls = {
      {Call::kMakeEvent, 2},    {Call::kRecord, 12},      {Call::kWait, 8},
      {Call::kDone, 16},        {Call::kCopy, 8},         {Call::kLaunch, 3},
      {Call::kCopyFromPeer, 3}, {Call::kBeginCapture, 1}, {Call::kEndCapture, 1}};
  for (const auto& [call, most] : calls) {
    int failed = 0;
    for (int after = 0; after < most; ++after) {
      for (const size_t gpu : {size_t{0}, size_t{1}}) {
        GpuTask task;
        Graph graph = task.NewGraph();
        Builder b(&graph);
        Endpoint x = b.Recv(0, {}, kGpu0);
        for (int i = 0; i < 3; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
        x = Cross(b, 1, x, kGpu0, kGpu1);
        for (int i = 0; i < 3; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu1);
        b.Send(2, x, 0, {}, kGpu1);
        const auto plan = task.Compile(graph).value();
        task.driver(gpu).LoseAt(call, after);
        Status first;
        for (uint64_t step = 1; step <= kSteps; ++step) {
          const Status status = RunStep(plan, {{0, 1.0f}}, step).status();
          if (first.ok()) {
            first = status;
          } else {
            EXPECT_EQ(status.code(), Code::kUnavailable) << status;
          }
        }
        if (first.ok()) continue;  // there are not so many calls
        ++failed;
        EXPECT_EQ(first.code(), Code::kUnavailable) << first;
        for (const std::string& part :
             {"the context of " + task.gpu(gpu).device->name() + " is lost",
              std::string("illegal memory access"), std::string("node '")}) {
          EXPECT_NE(first.message().find(part), std::string::npos)
              << "no '" << part << "': " << first;
        }
        // Of the nodes, or of the tensor that is copied.
        const bool names = first.message().find("TInc") != std::string::npos ||
                           first.message().find("'_Recv") != std::string::npos;
        EXPECT_TRUE(names) << first;
      }
    }
    EXPECT_GT(failed, 0) << "call " << static_cast<int>(call);
  }
}

TEST(GpuExecutor, AnyCallThatIsRefusedOnceFailsOneStepWithoutARaceOrTheGpuIsLost) {
  using Call = RecordingDriver::Call;
  const std::map<Call, int> calls = {
      {Call::kMakeEvent, 4},    {Call::kRecord, 12},      {Call::kWait, 8},
      {Call::kDone, 16},        {Call::kCopy, 8},         {Call::kLaunch, 3},
      {Call::kCopyFromPeer, 3}, {Call::kBeginCapture, 1}, {Call::kEndCapture, 1}};
  for (const auto& [call, most] : calls) {
    for (int after = 0; after < most; ++after) {
      for (const size_t gpu : {size_t{0}, size_t{1}}) {
        SCOPED_TRACE("call " + std::to_string(static_cast<int>(call)) + ", number " +
                     std::to_string(after) + " of GPU " + std::to_string(gpu));
        GpuTask task;
        Graph graph = task.NewGraph();
        Builder b(&graph);
        Endpoint x = b.Recv(0, {}, kGpu0);
        for (int i = 0; i < 4; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
        x = Cross(b, 1, x, kGpu0, kGpu1);
        for (int i = 0; i < 4; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu1);
        b.Send(2, x, 0, {}, kGpu1);
        const auto plan = task.Compile(graph).value();
        task.driver(gpu).RefuseAt(call, after);
        int failed = 0;
        bool lost = false;
        for (uint64_t step = 1; step <= 2 * kSteps; ++step) {
          const auto values = RunStep(plan, {{0, static_cast<float>(step)}}, step);
          if (values.ok()) {
            EXPECT_EQ(*values, (Values{{2, static_cast<float>(step) + 8}})) << "step " << step;
            continue;
          }
          const std::string& why = values.status().message();
          EXPECT_NE(why.find("the call was refused"), std::string::npos) << why;
          if (why.find(" is lost") == std::string::npos) ++failed;
          lost = lost || why.find(" is lost") != std::string::npos;
        }
        EXPECT_LE(failed, 1);
        // A GPU that counts as lost may go on reading what the other one writes; nobody sees it.
        if (!lost) ExpectNoRaces(task);
      }
    }
  }
}

TEST(GpuExecutor, SeparateBlocksGiveTheSameNumbers) {
  auto options = GpuTask::DefaultOptions();
  options.separate_blocks = true;
  GpuTask task(2, options);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Recv(0, {}, kGpu0);
  for (int i = 0; i < 5; ++i) x = b.Op("TSum", {x, x}, {{"N", int64_t{2}}}, {}, kGpu0);
  b.Send(2, b.Op("TInc", {Cross(b, 1, x, kGpu0, kGpu1)}, {}, {}, kGpu1), 0, {}, kGpu1);
  const auto plan = task.Compile(graph).value();
  for (uint64_t step = 1; step <= kSteps; ++step)
    EXPECT_EQ(*RunStep(plan, {{0, 1.0f}}, step), (Values{{2, 33.0f}}));
  EXPECT_EQ(task.driver(0).counts().launches, 0);
  EXPECT_EQ(BytesLeft(task), 0);
  ExpectNoRaces(task);
}

TEST(GpuExecutor, AnAbortedStepEndsAndLeavesNothingBehind) {
  GpuTask task;
  task.gate("g");
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint gate = b.Op("TGate", {b.Recv(1)}, {{"gate", std::string("g")}});
  const Endpoint late = Cross(b, 2, gate, kCpu0, kGpu0);
  b.Send(3,
         b.Op("TAdd", {b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), late}, {}, {}, kGpu0),
         0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (uint64_t i = 1; i <= 5; ++i) {
    Collector collector;
    auto step = StepExecutor::Prepare(plan, i, &collector, collector.done());
    step->Start();
    step->Deliver(0, Tensor::Scalar(1.0f));
    step->Deliver(1, Tensor::Scalar(1.0f));
    step->Abort(Cancelled("enough"));
    EXPECT_EQ(collector.Wait().message(), "enough");
  }
  EXPECT_EQ(BytesLeft(task), 0);
  ExpectNoRaces(task);
}

TEST(GpuExecutor, ATracedStepHasARecordOfEachNode) {
  GpuTask task;
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint x = b.Recv(0, {}, kGpu0);
  for (int i = 0; i < 3; ++i) x = b.Op("TInc", {x}, {}, {}, kGpu0);
  b.Send(1, x, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  for (uint64_t step = 1; step <= 4; ++step) {
    StepTrace trace;
    ASSERT_TRUE(RunStep(plan, {{0, 1.0f}}, step, false, &trace).ok());
    int64_t last = 0;
    std::vector<std::string> names;
    for (const TraceEvent& event : trace.Events()) {
      if (event.op != "TInc") continue;
      EXPECT_EQ(event.device, kGpu0);
      EXPECT_GE(event.start_ns, last);
      EXPECT_GT(event.end_ns, event.start_ns);
      last = event.start_ns;
      names.push_back(event.name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"TInc", "TInc_1", "TInc_2"}));
  }
}

// ---- what a node keeps beyond its segment

// TBox() -> handle    of the task's box `name`
// TKeep(handle, x) -> x, which stays in the box, but for the first `dropped` times; attr copied: a
//                     copy does, in memory that the kernel takes for it
// TKept(handle, x) -> y    what came into the box first, or x; attr taken: it leaves the box
// TMake(x) -> y       x + 10 in memory of its own; not replayed
// TFirst(x) -> y      x + 1 in memory of its own; in the first run it takes two blocks more, and
// keeps them
struct Box : Resource {
  std::string DebugString() const override { return "box"; }
  int64_t runs = 0;
  std::vector<Tensor> kept;
};

class BoxKernel : public Kernel {
 public:
  explicit BoxKernel(const KernelConstruction& k) : name_(k.attr<std::string>("name")) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(c.resources()
                           .FindOrCreate<Box>("test", name_, [] { return std::make_shared<Box>(); })
                           .status());
    MG_ASSIGN_OR_RETURN(Tensor * handle, c.AllocateOutput(0, Shape()));
    *handle->handles() = {std::string(c.device()), "test", name_};
    return Status();
  }

 private:
  const std::string name_;
};

Result<std::shared_ptr<Box>> BoxOf(const KernelContext& c) {
  return c.resources().Find<Box>("test", c.input(0).handles()->name);
}

class KeepKernel : public Kernel {
 public:
  explicit KeepKernel(const KernelConstruction& k)
      : dropped_(k.attr<int64_t>("dropped")), copied_(k.attr<bool>("copied")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Box> box, BoxOf(c));
    c.set_output(0, c.input(1));
    if (box->runs++ < dropped_) return Status();
    box->kept.push_back(c.input(1));
    if (!copied_) return Status();
    MG_ASSIGN_OR_RETURN(box->kept.back(), c.AllocateTemp(DT_FLOAT, Shape()));
    *box->kept.back().data<float>() = *c.input(1).data<float>();
    return Status();
  }

 private:
  const int64_t dropped_;
  const bool copied_;
};

class KeptKernel : public Kernel {
 public:
  explicit KeptKernel(const KernelConstruction& k) : taken_(k.attr<bool>("taken")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Box> box, BoxOf(c));
    c.set_output(0, box->kept.empty() ? c.input(1) : box->kept.front());
    if (taken_ && !box->kept.empty()) box->kept.erase(box->kept.begin());
    return Status();
  }

 private:
  const bool taken_;
};

class MakeKernel : public Kernel {
 public:
  explicit MakeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, c.input(0).shape()));
    *y->data<float>() = *c.input(0).data<float>() + 10;
    return Status();
  }
};

class FirstKernel : public Kernel {
 public:
  explicit FirstKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (Tensor& kept : kept_) {
      if (kept.valid()) continue;
      MG_ASSIGN_OR_RETURN(kept, c.AllocateTemp(DT_FLOAT, c.input(0).shape()));
    }
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, c.input(0).shape()));
    *y->data<float>() = *c.input(0).data<float>() + 1;
    return Status();
  }

 private:
  std::array<Tensor, 2> kept_;
};

void AddBoxOps(GpuTask& task) {
  OpRegistry& ops = task.ops();
  ops.Add(OpDef("TBox").Output("handle: resource").Attr("name: string").Stateful());
  ops.Add(OpDef("TKeep")
              .Input("handle: resource")
              .Input("x: float")
              .Output("y: float")
              .Attr("dropped: int = 0")
              .Attr("copied: bool = false")
              .Stateful());
  ops.Add(OpDef("TKept")
              .Input("handle: resource")
              .Input("x: float")
              .Output("y: float")
              .Attr("taken: bool = false")
              .Stateful());
  ops.Add(OpDef("TFirst").Input("x: float").Output("y: float"));
  ops.Add(OpDef("TMake").Input("x: float").Output("y: float").Stateful());
  KernelRegistry& kernels = task.kernels();
  kernels.Add<BoxKernel>({.op = "TBox", .device = kGpu, .replayable = false});
  kernels.Add<KeepKernel>({.op = "TKeep", .device = kGpu, .replayable = false});
  kernels.Add<KeptKernel>({.op = "TKept", .device = kGpu, .replayable = false});
  kernels.Add<FirstKernel>({.op = "TFirst", .device = kGpu});
  kernels.Add<MakeKernel>({.op = "TMake", .device = kGpu});
}

std::vector<float> KeptIn(GpuTask& task, const std::string& name) {
  std::vector<float> values;
  for (const Tensor& tensor : task.resources().Find<Box>("test", name).value()->kept)
    values.push_back(tensor.scalar<float>());
  return values;
}

// Each number is in memory of its own.
Endpoint Times8(Builder& b, Endpoint x, NodeId after) {
  for (int i = 0; i < 3; ++i) x = b.Op("TSum", {x, x}, {{"N", int64_t{2}}}, {after}, kGpu0);
  return x;
}

// As iterations of a loop do with a TensorArray: what came into it stays as it was when the same
// graphs run again, whether these have made it, it came into the segment, or a node that is not
// replayed has made it in memory that was planned for others, too.
TEST(GpuExecutor, WhatANodeKeepsStaysAsItIsWhenTheSegmentRunsAgain) {
  for (const bool replay : {true, false}) {
    for (const int64_t dropped : {0, 2}) {
      SCOPED_TRACE(std::string(replay ? "with" : "without") + " graphs, dropped " +
                   std::to_string(dropped));
      GpuDevice::Options options = GpuTask::DefaultOptions();
      options.replay = replay;
      GpuTask task(2, options);
      AddBoxOps(task);
      Graph graph = task.NewGraph();
      Builder b(&graph);
      const auto increased = [&](Endpoint x, std::vector<NodeId> after = {}) {
        for (int i = 0; i < 3; ++i)
          x = b.Op("TInc", {x}, {}, i == 0 ? after : std::vector<NodeId>(), kGpu0);
        return x;
      };
      const auto keep = [&](const std::string& box, Endpoint x) {
        const Endpoint handle = b.Op("TBox", {}, {{"name", box}}, {}, kGpu0);
        return std::pair(handle, b.Op("TKeep", {handle, x}, {{"dropped", dropped}}, {}, kGpu0));
      };
      const Endpoint x = b.Recv(0, {}, kGpu0);
      const auto [made, y] = keep("of a graph", increased(x));
      b.Send(1, increased(b.Op("TKept", {made, y}, {}, {}, kGpu0)), 0, {}, kGpu0);
      b.Send(2, increased(y), 0, {}, kGpu0);
      const auto [entered, same] = keep("as it came", x);
      b.Send(3, increased(same), 0, {}, kGpu0);
      const Endpoint ten = b.Op("TMake", {x}, {}, {}, kGpu0);
      const auto [own, once] = keep("of a node", ten);
      b.Send(4, increased(ten, {once.node}), 0, {}, kGpu0);  // in place where it may
      const auto [alone, gone] = keep("alone", b.Op("TMake", {x}, {}, {}, kGpu0));
      b.Send(5, Times8(b, x, gone.node), 0, {}, kGpu0);
      const auto [full, put] = keep("taken out", increased(x));
      b.Send(6, increased(b.Op("TKept", {full, put}, {{"taken", true}}, {}, kGpu0)), 0, {}, kGpu0);
      const auto plan = task.Compile(graph).value();
      constexpr int kRuns = 10;
      std::vector<float> fed;
      for (int step = 1; step <= kRuns; ++step) {
        const auto in = static_cast<float>(step);
        if (step > dropped) fed.push_back(in);
        const float first = fed.empty() ? in : fed[0];
        const auto values = RunStep(plan, {{0, in}}, static_cast<uint64_t>(step));
        ASSERT_TRUE(values.ok()) << values.status();
        const Values expected = {{1, first + 6}, {2, in + 6}, {3, in + 3},
                                 {4, in + 13},   {5, in * 8}, {6, in + 6}};
        EXPECT_EQ(*values, expected) << "step " << step;
      }
      const auto plus = [&](float n) {
        std::vector<float> more = fed;
        for (float& value : more) value += n;
        return more;
      };
      EXPECT_EQ(KeptIn(task, "of a graph"), plus(3));
      EXPECT_EQ(KeptIn(task, "as it came"), plus(0));
      for (const char* box : {"of a node", "alone"}) EXPECT_EQ(KeptIn(task, box), plus(10));
      EXPECT_EQ(KeptIn(task, "taken out").size(), 0u);
      // Every stretch is captured in the second run, and replayed in all later ones.
      const int64_t launches = task.driver(0).counts().launches;
      EXPECT_EQ(launches % (kRuns - 1), 0) << launches;
      EXPECT_EQ(launches > 0, replay);
      ExpectNoRaces(task);
      task.resources().Clear({});
    }
  }
}

// A gradient's array takes memory for a sum when an element is written a second time, which may
// not be in the run that is measured.
TEST(GpuExecutor, WhatANodeTakesMemoryForNowAndThenIsInNobodysWay) {
  GpuTask task;
  AddBoxOps(task);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Recv(0, {}, kGpu0);
  const Endpoint box = b.Op("TBox", {}, {{"name", std::string("box")}}, {}, kGpu0);
  const Attrs attrs{{"dropped", int64_t{3}}, {"copied", true}};
  b.Send(1, Times8(b, x, b.Add("TKeep", {box, x}, attrs, {}, kGpu0)), 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  std::vector<float> expected;
  for (int step = 1; step <= kSteps; ++step) {
    const auto in = static_cast<float>(step);
    if (step > 3) expected.push_back(in);
    EXPECT_EQ(*RunStep(plan, {{0, in}}, static_cast<uint64_t>(step)), (Values{{1, in * 8}}));
  }
  EXPECT_EQ(KeptIn(task, "box"), expected);
  EXPECT_EQ(task.driver(0).counts().launches, kSteps - 1);
  ExpectNoRaces(task);
  task.resources().Clear({});
}

// The measured run takes a block more than the others, of the same size: the memory that was
// planned for that one is given back in the middle of the next run, and no graph may go on writing
// it.
TEST(GpuExecutor, AGraphWritesIntoNobodysMemoryWhereTheMeasuredRunTookOtherBlocks) {
  GpuTask task;
  AddBoxOps(task);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  Endpoint y = b.Op("TFirst", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0);
  for (int i = 0; i < 4; ++i) y = b.Op("TSum", {y, y}, {{"N", int64_t{2}}}, {}, kGpu0);
  b.Send(1, y, 0, {}, kGpu0);
  const auto plan = task.Compile(graph).value();
  // What comes into the box lies in memory that is free.
  Graph taking = task.NewGraph();
  Builder t(&taking);
  const Endpoint x = t.Recv(0, {}, kGpu0);
  const Endpoint box = t.Op("TBox", {}, {{"name", std::string("box")}}, {}, kGpu0);
  t.Send(1, t.Op("TKeep", {box, x}, {}, {}, kGpu0), 0, {}, kGpu0);
  const auto taking_plan = task.Compile(taking).value();
  std::vector<float> expected;
  constexpr int kRuns = 10, kSteady = 4;
  int64_t launches = 0;
  for (int step = 1; step <= kRuns; ++step) {
    const auto in = static_cast<float>(step);
    if (step == kRuns - kSteady + 1) launches = task.driver(0).counts().launches;
    EXPECT_EQ(*RunStep(plan, {{0, in}}, static_cast<uint64_t>(step)), (Values{{1, (in + 1) * 16}}));
    for (int i = 0; i < 3; ++i) {
      const auto number = static_cast<uint64_t>(100 * step + i);
      expected.push_back(-static_cast<float>(number));
      const auto given = RunStep(taking_plan, {{0, expected.back()}}, number);
      EXPECT_EQ(*given, (Values{{1, expected.back()}}));
    }
  }
  EXPECT_EQ(KeptIn(task, "box"), expected);
  EXPECT_EQ(task.driver(0).counts().launches, launches + kSteady);
  ExpectNoRaces(task);
  task.resources().Clear({});
}

// ---- does the check find what it is for?

// A copy to the GPU and a kernel that reads it, with and without the event between them.
TEST(RecordingDriver, FindsAWaitThatIsLeftOut) {
  for (const int64_t skipped : {-1, 0, 1}) {
    GpuTask task(1);
    Graph graph = task.NewGraph();
    Builder b(&graph);
    b.Send(1, b.Op("TInc", {b.Recv(0, {}, kGpu0)}, {}, {}, kGpu0), 0, {}, kGpu0);
    const auto plan = task.Compile(graph).value();
    task.driver(0).Hold();             // so that the host does not see the copy's end first
    task.driver(0).SkipWait(skipped);  // 0: kernel behind copy; 1: copy to the host behind kernel
    Collector collector;
    auto step = StepExecutor::Prepare(plan, 1, &collector, collector.done());
    step->Start();
    step->Deliver(0, Tensor::Scalar(1.0f));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (task.driver(0).counts().waits < 2 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    task.driver(0).Resume();
    ASSERT_TRUE(collector.Wait().ok());
    const auto races = task.driver(0).races();
    EXPECT_EQ(races.empty(), skipped < 0) << "wait " << skipped;
  }
}

TEST(RecordingDriver, FindsMemoryThatIsUsedAgainTooEarly) {
  for (const bool early : {false, true}) {
    auto world = RecordingDriver::NewWorld();
    auto gpu = MakeFakeGpu(kGpu0, world, 1, {.memory_limit = 4096});
    RecordingDriver& driver = *gpu.driver;
    GpuMemory& memory = gpu.device->memory();
    driver.Hold();
    // A kernel of tick 1 writes a block that is then let go of.
    const uint64_t tick = gpu.device->BeginSegment();
    {
      const Buffer block = Buffer::Allocate(&memory, 4096);
      const MemoryAccess write{block.data(), 4096};
      driver.OnKernel({.name = "kernel", .reads = {}, .writes = {&write, 1}, .again = {}});
    }
    ASSERT_TRUE(gpu.device->EndSegment(tick).ok());
    // The only memory there is goes to a copy: behind the kernel, or, if the memory believes that
    // the device has come further than it has, at once.
    if (early) memory.Completed(tick);
    uint64_t wait = 0;
    bool busy = false;
    const Buffer block = memory.AllocateFor(4096, nullptr, &wait, &busy);
    ASSERT_TRUE(block);
    ASSERT_TRUE(gpu.device->WaitForTick(Queue::kToDevice, wait).ok());
    char host[4096] = {};
    ASSERT_TRUE(driver.Copy(Queue::kToDevice, block.data(), host, sizeof host).ok());
    EXPECT_EQ(driver.races().empty(), !early);
    driver.Resume();
  }
}

TEST(GpuMemory, WhatTheLaunchedSegmentUsesIsBusyForCopies) {
  auto gpu = MakeFakeGpu(kGpu0, RecordingDriver::NewWorld(), 1, {.memory_limit = 4096});
  GpuMemory& memory = gpu.device->memory();
  const uint64_t tick = gpu.device->BeginSegment();
  (void)Buffer::Allocate(&memory, 4096);
  uint64_t wait = 0;
  bool busy = false;
  EXPECT_FALSE(memory.AllocateFor(4096, nullptr, &wait, &busy));
  EXPECT_TRUE(busy);
  ASSERT_TRUE(gpu.device->EndSegment(tick).ok());
  EXPECT_TRUE(memory.AllocateFor(4096, nullptr, &wait, &busy));
  EXPECT_FALSE(memory.AllocateFor(8192, nullptr, &wait, &busy));
  EXPECT_FALSE(busy);
}

TEST(GpuMemory, WhatASegmentUsesWhoseEndIsNotKnownIsBusyUntilTheNextOnesIs) {
  auto gpu = MakeFakeGpu(kGpu0, RecordingDriver::NewWorld(), 1, {.memory_limit = 4096});
  GpuMemory& memory = gpu.device->memory();
  const uint64_t first = gpu.device->BeginSegment();
  (void)Buffer::Allocate(&memory, 4096);
  gpu.driver->RefuseAt(RecordingDriver::Call::kMakeEvent, 0);
  EXPECT_EQ(gpu.device->EndSegment(first).code(), Code::kInternal);
  uint64_t wait = 0;
  bool busy = false;
  EXPECT_FALSE(memory.AllocateFor(4096, nullptr, &wait, &busy));
  EXPECT_TRUE(busy);
  ASSERT_TRUE(gpu.device->EndSegment(gpu.device->BeginSegment()).ok());
  EXPECT_TRUE(memory.AllocateFor(4096, nullptr, &wait, &busy));
}

TEST(GpuMemory, SeparateBlocksAreAllocationsOfTheSizeThatWasAskedForAndAreGivenBack) {
  auto gpu = MakeFakeGpu(kGpu0, RecordingDriver::NewWorld(), 1,
                         {.memory_limit = 4096, .separate_blocks = true});
  GpuMemory& memory = gpu.device->memory();
  const auto before = gpu.driver->counts();
  EXPECT_EQ(before.device_bytes, 0);
  for (int round = 1; round <= 3; ++round) {
    const Buffer first = Buffer::Allocate(&memory, 100), second = Buffer::Allocate(&memory, 700);
    EXPECT_EQ(gpu.driver->counts().allocations, before.allocations + 2 * round);
    EXPECT_EQ(gpu.driver->counts().device_bytes, 800 * round);
    EXPECT_EQ(memory.bytes_in_use(), 512 + 1024);
    EXPECT_FALSE(Buffer::Allocate(&memory, 4096)) << "beyond the limit";
  }
  EXPECT_EQ(memory.bytes_in_use(), 0);
  EXPECT_TRUE(Buffer::Allocate(&memory, 4096)) << "all is free again";
}

TEST(GpuMemory, BlocksJoinAgainWhenTheyAreFreed) {
  auto gpu = MakeFakeGpu(kGpu0, RecordingDriver::NewWorld(), 1, {.memory_limit = 1 << 20});
  GpuMemory& memory = gpu.device->memory();
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<Buffer> blocks;
    for (int i = 0; i < 200; ++i) {
      if (!blocks.empty() && random() % 3 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        blocks.pop_back();
      } else if (Buffer block = Buffer::Allocate(&memory, random() % 8000)) {
        blocks.push_back(std::move(block));
      }
    }
    blocks.clear();
    EXPECT_EQ(memory.bytes_in_use(), 0);
    EXPECT_TRUE(Buffer::Allocate(&memory, 1 << 20)) << "it is in pieces";
  }
}

}  // namespace
}  // namespace monograph
