// A steady step allocates nothing from the heap: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/executor/test_ops.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 16); }
void* operator new[](size_t bytes) { return Allocate(bytes, 16); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 16); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace monograph {
namespace {

using testing::Builder;
using testing::TestTask;

// Keeps nothing and allocates nothing.
struct Sink : StepSink {
  std::atomic<int> sent{0};
  std::atomic<int> done{0};
  void OnSend(uint64_t, const EdgeInfo&, Tensor) override { sent.fetch_add(1); }
  void Wait(int count) {
    for (int now = done.load(); now < count; now = done.load()) done.wait(now);
  }
};

class AllocationTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, AllocationTest, ::testing::Values(1, 2, 4));

TEST_P(AllocationTest, ASteadyStepTakesNoHeapMemory) {
  TestTask task(GetParam());
  Graph graph = task.NewGraph();
  Builder b(&graph);
  task.gate("g")->Open();
  const Endpoint x = b.Recv(0);
  std::vector<Endpoint> nodes;
  for (int i = 0; i < 200; ++i) nodes.push_back(b.Op("TInc", {b.Op("TIncSlow", {x})}));
  const NodeId split = b.Add("TSplit", {nodes[0]}, {{"N", int64_t{9}}});
  nodes[0] = {split, 8};
  b.Send(1, b.Op("TSum", nodes, {{"N", int64_t{200}}}));
  const auto plan = task.Compile(std::move(graph)).value();
  Sink sink;
  int steps = 0;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      auto step = StepExecutor::Prepare(plan, 1, &sink, [&sink](const Status& status) {
        MG_CHECK(status.ok());
        sink.done.fetch_add(1);
        sink.done.notify_all();
      });
      step->Start();
      step->Deliver(0, Tensor::Scalar(1.0f));
      sink.Wait(++steps);
    }
  };
  run(200);
  const int64_t before = allocations.load();
  run(200);
  // A second step's memory may be made late, when a finishing thread still holds the first one's.
  EXPECT_LE(allocations.load() - before, 12);
  EXPECT_EQ(sink.sent.load(), 400);
}

}  // namespace
}  // namespace monograph
