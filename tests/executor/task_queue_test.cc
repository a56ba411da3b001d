#include "executor/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

namespace monograph {
namespace {

using namespace std::chrono_literals;

// A task that runs until it is let go.
struct LongTask {
  std::latch begun{1}, over{1};
  TaskQueue::Task Of(uint64_t session) {
    return {[](void* self, int32_t) {
              static_cast<LongTask*>(self)->begun.count_down();
              static_cast<LongTask*>(self)->over.wait();
            },
            this, 0, session};
  }
};

struct ShortTask {
  std::atomic<int> runs{0};
  TaskQueue::Task Of(uint64_t session) {
    return {[](void* self, int32_t) { static_cast<ShortTask*>(self)->runs.fetch_add(1); }, this, 0,
            session};
  }
  bool RunsWithin(std::chrono::milliseconds limit, int wanted = 1) {
    for (const auto until = std::chrono::steady_clock::now() + limit;
         std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(1ms)) {
      if (runs == wanted) return true;
    }
    return runs == wanted;
  }
};

TEST(TaskQueue, ASessionDoesNotWaitForLongTasksOfOthers) {
  const auto queue = TaskQueue::Make();
  LongTask first, second;
  queue->Push(first.Of(1));
  std::thread worker([&] { queue->RunNext(); });  // the only one
  first.begun.wait();
  queue->Push(second.Of(2));
  second.begun.wait();  // on an extra thread, which another one stands in for
  ShortTask third;
  queue->Push(third.Of(3));
  EXPECT_TRUE(third.RunsWithin(10s));
  for (int i = 2; i <= 50; ++i) {
    queue->Push(third.Of(3));
    EXPECT_TRUE(third.RunsWithin(10s, i));
  }
  first.over.count_down();
  second.over.count_down();
  worker.join();
  queue->Close();
}

TEST(TaskQueue, ASessionThatHasAThreadAlreadyGetsNoOther) {
  const auto queue = TaskQueue::Make();
  LongTask running;
  queue->Push(running.Of(1));
  std::thread worker([&] { queue->RunNext(); });
  running.begun.wait();
  ShortTask own;
  queue->Push(own.Of(1));
  EXPECT_FALSE(own.RunsWithin(20 * TaskQueue::kPatience));
  queue->RunNext();
  EXPECT_EQ(own.runs, 1);
  running.over.count_down();
  worker.join();
  queue->Close();
}

TEST(TaskQueue, ATaskBehindItsOwnSessionsAndAnotherOnesIsFoundWhenTheFirstHasEnded) {
  const auto queue = TaskQueue::Make();
  LongTask other;
  ShortTask own;
  queue->Push(other.Of(1));
  queue->Push(own.Of(2));
  queue->Push(own.Of(2));
  std::thread worker([&] { queue->RunNext(); });
  EXPECT_TRUE(own.RunsWithin(10s, 2));
  other.over.count_down();
  worker.join();
  queue->Close();
}

TEST(TaskQueue, RunsInOrderAndOnceEachHoweverManyThereAre) {
  const auto queue = TaskQueue::Make();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    queue->Push(
        {[](void* list, int32_t value) { static_cast<std::vector<int>*>(list)->push_back(value); },
         &order, i, 0});
  }
  for (int i = 0; i < 1000; ++i) queue->RunNext();
  queue->RunNext();  // nothing is left
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  queue->Close();
}

}  // namespace
}  // namespace monograph
