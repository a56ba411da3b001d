// The scheduler finds what goes wrong only now and then, and the same seed finds it again.
#include "tests/simulation/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "base/thread.h"
#include "tests/simulation/host.h"

namespace monograph::simulation {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::hours;
using std::chrono::milliseconds;

// Runs the body under seeds 1 to `seeds`; ends the process with kFailed at the first failure.
template <typename Body>
void Search(int seeds, Body body) {
  for (int seed = 1; seed <= seeds; ++seed)
    RunSchedule({.seed = static_cast<uint64_t>(seed)}, body);
  std::exit(0);
}

const auto kFound = ::testing::ExitedWithCode(kFailed);
const auto kNotFound = ::testing::ExitedWithCode(0);

struct Queue {
  Mutex mutex;
  CondVar changed;
  std::vector<int> items MG_GUARDED_BY(mutex);

  void Push(int item) {
    MutexLock lock(mutex);
    items.push_back(item);
    changed.NotifyOne();
  }
  int Pop() {
    MutexLock lock(mutex);
    changed.Wait(mutex, [this]() MG_REQUIRES(mutex) { return !items.empty(); });
    const int item = items.back();
    items.pop_back();
    return item;
  }
};

void ProducersAndConsumers() {
  Queue queue;
  std::atomic<int> sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(StartThread("producer", [&queue] {
      for (int item = 1; item <= 4; ++item) queue.Push(item);
    }));
    threads.push_back(StartThread("consumer", [&queue, &sum] {
      for (int item = 1; item <= 4; ++item) sum += queue.Pop();
    }));
  }
  for (std::thread& thread : threads) thread.join();
  if (sum != 30) Fail("the sum is " + std::to_string(sum));
}

TEST(Scheduler, OneSeedIsOneScheduleWheneverItRuns) {
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 200; ++seed)
    hashes.push_back(RunSchedule({.seed = seed}, ProducersAndConsumers).hash);
  for (uint64_t seed = 200; seed >= 1; --seed)
    EXPECT_EQ(RunSchedule({.seed = seed}, ProducersAndConsumers).hash, hashes[seed - 1]) << seed;
  EXPECT_GT(std::set<uint64_t>(hashes.begin(), hashes.end()).size(), 150u);
}

TEST(Scheduler, RightCodeIsRightUnderEverySeed) {
  EXPECT_EXIT(Search(2000, ProducersAndConsumers), kNotFound, "");
}

TEST(Scheduler, FindsAnUpdateThatIsNotAtomic) {
  EXPECT_EXIT(Search(200,
                     [] {
                       Mutex mutex;
                       int value = 0;
                       auto add = [&] {
                         mutex.Lock();
                         const int read = value;
                         mutex.Unlock();
                         mutex.Lock();
                         value = read + 1;
                         mutex.Unlock();
                       };
                       std::thread other = StartThread("other", add);
                       add();
                       other.join();
                       if (value != 2) Fail("an update is lost");
                     }),
              kFound, "an update is lost");
}

TEST(Scheduler, FindsLocksThatAreTakenInTwoOrders) {
  EXPECT_EXIT(Search(200,
                     [] {
                       Mutex a, b;
                       std::thread other = StartThread("other", [&] {
                         MutexLock first(b);
                         MutexLock second(a);
                       });
                       {
                         MutexLock first(a);
                         MutexLock second(b);
                       }
                       other.join();
                     }),
              kFound, "all threads wait for ever");
}

TEST(Scheduler, FindsANotificationThatComesBeforeItsWait) {
  EXPECT_EXIT(Search(200,
                     [] {
                       Mutex mutex;
                       CondVar changed;
                       std::atomic<bool> ready = false;
                       std::thread other = StartThread("other", [&] {
                         ready = true;  // without the mutex
                         changed.NotifyAll();
                       });
                       {
                         MutexLock lock(mutex);
                         if (!ready) changed.Wait(mutex);
                       }
                       other.join();
                     }),
              kFound, "all threads wait for ever");
}

TEST(Scheduler, FindsADeadlineThatPassesOnlyWhereThreadsAreHeldUp) {
  EXPECT_EXIT(Search(3000,
                     [] {
                       std::promise<void> done;
                       std::thread other = StartThread("other", [&] { done.set_value(); });
                       if (done.get_future().wait_for(milliseconds(1)) != std::future_status::ready)
                         Fail("the answer is late");
                       other.join();
                     }),
              kFound, "the answer is late");
}

TEST(Scheduler, FindsAWaitThatTakesAWakeForItsReason) {
  EXPECT_EXIT(Search(500,
                     [] {
                       Mutex mutex;
                       CondVar changed;
                       bool ready = false;
                       std::thread other = StartThread("other", [&] {
                         std::this_thread::sleep_for(milliseconds(500));
                         MutexLock lock(mutex);
                         ready = true;
                         changed.NotifyAll();
                       });
                       {
                         MutexLock lock(mutex);
                         changed.Wait(mutex);
                         if (!ready) Fail("it is not ready");
                       }
                       other.join();
                     }),
              kFound, "it is not ready");
}

TEST(Scheduler, ALongSleepTakesNoTime) {
  const auto before = Clock::now();
  const ScheduleResult result = RunSchedule({.longest = hours(30)}, [] {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(hours(24));
    if (Clock::now() - begin < hours(24)) Fail("the clock did not move");
  });
  EXPECT_GE(result.simulated, hours(24));
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(5));
}

TEST(Scheduler, AHangInSimulatedTimeIsAFailure) {
  EXPECT_EXIT(RunSchedule({.longest = hours(1)},
                          [] {
                            while (true) std::this_thread::sleep_for(milliseconds(500));
                          }),
              kFound, "has not ended within its time");
}

int ends = 0;
struct CountsItsEnd {
  int uses = 0;
  ~CountsItsEnd() { ends += uses; }
};
thread_local CountsItsEnd counted;
thread_local int own = 7;

TEST(Scheduler, WhatThreadsHaveForThemselvesStaysTheirs) {
  ends = 0;
  RunSchedule({.seed = 3}, [] {
    const OnHost host(4);
    Mutex mutex;
    std::vector<std::thread> threads;
    std::set<std::thread::id> ids = {std::this_thread::get_id()};
    for (int i = 0; i < 4; ++i) {
      threads.push_back(StartThread("thread", [&, i] {
        if (CurrentHost() != 4) Fail("the host is " + std::to_string(CurrentHost()));
        ++counted.uses;
        own += i;
        try {
          throw i;
        } catch (const int caught) {
          MutexLock lock(mutex);
          std::this_thread::yield();
          if (own != 7 + i || caught != i) Fail("a variable is another thread's");
          ids.insert(std::this_thread::get_id());
        }
      }));
    }
    for (std::thread& thread : threads) thread.join();
    if (ids.size() != 5) Fail("threads share their names");
    if (ends != 4) Fail(std::to_string(ends) + " destructors ran");
  });
}

TEST(Scheduler, AtomicsSharedLocksAndStaticsWaitAsEverythingElse) {
  EXPECT_EXIT(Search(500,
                     [] {
                       std::atomic<int> turn = 0;
                       SharedMutex mutex;
                       std::once_flag once;
                       int calls = 0, writes = 0;
                       auto run = [&](int self) {
                         std::call_once(once, [&] {
                           std::this_thread::yield();
                           ++calls;
                         });
                         for (int seen = turn; seen != self; seen = turn) turn.wait(seen);
                         {
                           MutexLock lock(mutex);
                           ++writes;
                         }
                         ReaderLock lock(mutex);
                         if (calls != 1 || writes < self + 1) Fail("a wait ended too early");
                         ++turn;
                         turn.notify_all();
                       };
                       std::vector<std::thread> threads;
                       for (int i = 0; i < 4; ++i)
                         threads.push_back(StartThread("thread", [&, i] { run(i); }));
                       for (std::thread& thread : threads) thread.join();
                     }),
              kNotFound, "");
}

TEST(Scheduler, RandomNumbersAreTheSeeds) {
  std::vector<uint64_t> numbers;
  for (const uint64_t seed : {1, 1, 2})
    RunSchedule({.seed = seed}, [&] { numbers.push_back(RandomNonZero()); });
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_NE(numbers[0], numbers[2]);
}

}  // namespace
}  // namespace monograph::simulation
