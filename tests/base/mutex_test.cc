#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace monograph {
namespace {

using namespace std::chrono_literals;

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value MG_GUARDED_BY(mutex) = 0;
};

TEST(MutexLock, IsGivenBackAndTakenAgain) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    std::thread([&] {
      const bool taken = mutex.TryLock();
      EXPECT_FALSE(taken);
      if (taken) mutex.Unlock();
    }).join();
    lock.Unlock();
    std::thread([&] { MutexLock other(mutex); }).join();
    lock.Lock();
  }
  if (!mutex.TryLock()) FAIL() << "a lock that ends gives its mutex back";
  MutexLock adopted(mutex, std::adopt_lock);
}

TEST(ReaderLock, AdmitsReadersAndNoWriter) {
  SharedMutex mutex;
  {
    ReaderLock lock(mutex);
    std::thread([&] {
      const bool read = mutex.TryLockShared();
      EXPECT_TRUE(read);
      if (read) mutex.UnlockShared();
      const bool written = mutex.TryLock();
      EXPECT_FALSE(written);
      if (written) mutex.Unlock();
    }).join();
    lock.Unlock();
  }
  MutexLock writer(mutex);
}

TEST(CondVar, GivesTheMutexBackWhileItWaits) {
  Counter counter;
  std::thread other([&] {
    MutexLock lock(counter.mutex);
    counter.value = 1;
    counter.changed.NotifyAll();
    counter.changed.Wait(counter.mutex,
                         [&]() MG_REQUIRES(counter.mutex) { return counter.value == 2; });
    counter.value = 3;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(counter.mutex);
    while (counter.value != 1) counter.changed.Wait(counter.mutex);
    counter.value = 2;
    counter.changed.NotifyAll();
    EXPECT_TRUE(counter.changed.WaitFor(
        counter.mutex, 60s, [&]() MG_REQUIRES(counter.mutex) { return counter.value == 3; }));
  }
  other.join();
}

TEST(CondVar, SaysThatTheTimeHasPassed) {
  Counter counter;
  MutexLock lock(counter.mutex);
  const auto until = std::chrono::steady_clock::now() + 5ms;
  while (counter.changed.WaitUntil(counter.mutex, until)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), until);
  const auto over = [&]() MG_REQUIRES(counter.mutex) { return counter.value == 1; };
  EXPECT_FALSE(counter.changed.WaitUntil(counter.mutex, until, over));
  EXPECT_FALSE(counter.changed.WaitFor(counter.mutex, 1ms, over));
  counter.value = 1;
  EXPECT_TRUE(counter.changed.WaitUntil(counter.mutex, until, over));
}

}  // namespace
}  // namespace monograph
