#include "transport/drive/drive_loop.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <thread>

namespace monograph {
namespace {

using Clock = DriveLoop::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Messages are numbers in an event descriptor, which tells of each.
class Fake : public Driven {
 public:
  Fake() : fd_(eventfd(0, EFD_NONBLOCK)) {}
  ~Fake() override { close(fd_); }

  void Send() {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  bool Poll() override {
    if (std::this_thread::get_id() != guest_) polled_by_thread_.store(true);
    polls_.fetch_add(1);
    uint64_t count = 0;
    if (read(fd_, &count, sizeof count) < 0) return false;
    received_.fetch_add(count);
    return true;
  }
  bool Arm() override {
    arms_.fetch_add(1);
    return true;
  }
  int event_fd() const override { return fd_; }
  bool busy() const override { return false; }
  void Finish() override { finished_by_.store(std::this_thread::get_id()); }

  uint64_t received() const { return received_.load(); }
  int arms() const { return arms_.load(); }
  int polls() const { return polls_.load(); }
  std::thread::id finished_by() const { return finished_by_.load(); }
  // True if another thread than the test's polled since the last call.
  bool TakePolledByThread() { return polled_by_thread_.exchange(false); }

 private:
  const int fd_;
  const std::thread::id guest_ = std::this_thread::get_id();
  std::atomic<uint64_t> received_{0};
  std::atomic<int> arms_{0}, polls_{0};
  std::atomic<std::thread::id> finished_by_{};
  std::atomic<bool> polled_by_thread_{false};
};

class DriveLoopTest : public ::testing::Test {
 protected:
  DriveLoopTest() { loop_.Start(); }
  ~DriveLoopTest() override {
    loop_.Stop();
    loop_.Join();
  }
  Fake fake_;
  DriveLoop loop_{&fake_, microseconds(50), "mg-test"};
};

TEST_F(DriveLoopTest, AGuestHandlesWhatComes) {
  fake_.Send();
  EXPECT_TRUE(loop_.DriveUntil([this] { return fake_.received() == 1; },
                               Clock::now() + std::chrono::seconds(30)));
  EXPECT_FALSE(loop_.DriveUntil([] { return false; }, Clock::now() + milliseconds(5)));
}

TEST_F(DriveLoopTest, AGuestWhoComesBackAtOnceFindsTheRoleFree) {
  int taken = 0;
  const int kVisits = 40;
  for (int visit = 0; visit < kVisits; ++visit) {
    (void)loop_.DriveUntil([] { return false; }, Clock::now() + milliseconds(4));
    (void)fake_.TakePolledByThread();
    (void)loop_.DriveUntil([] { return false; }, Clock::now() + milliseconds(1));
    taken += fake_.TakePolledByThread() ? 1 : 0;
  }
  // The progress thread may come between where the guest itself was held up.
  EXPECT_LT(taken, kVisits / 2);
}

// All threads on one core, which a program that computes has most of the time. A loop that would
// spin for a minute spins for a moment only.
TEST(CrowdedDriveLoop, WhoWaitsSleeps) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over{false};
  std::thread computes([&over] {
    while (!over.load(std::memory_order_relaxed)) {
    }
  });
  Fake fake;
  {
    DriveLoop loop(&fake, std::chrono::minutes(1), "mg-test");
    EXPECT_FALSE(loop.DriveUntil([] { return false; }, Clock::now() + milliseconds(100)));
    EXPECT_GT(fake.arms(), 0);
  }
  over.store(true);
  computes.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST_F(DriveLoopTest, AsLongAsTheDescriptorTellsOfEveryMessageItIsTrusted) {
  constexpr uint64_t kMessages = 20;
  const Clock::time_point start = Clock::now();
  std::thread sender([this] {
    for (uint64_t sent = 0; sent < kMessages; ++sent) {
      std::this_thread::sleep_for(milliseconds(20));  // a kernel somewhere
      fake_.Send();
    }
  });
  EXPECT_TRUE(loop_.DriveUntil([this] { return fake_.received() == kMessages; },
                               start + std::chrono::seconds(60)));
  sender.join();
  // One sleep per message, some to learn with, and one for each 64 ms that it all took longer.
  const auto long_sleeps = (Clock::now() - start) / milliseconds(32);
  EXPECT_LT(fake_.arms(),
            static_cast<int>(2 * kMessages + 10 + static_cast<uint64_t>(long_sleeps)));
}

TEST(DriveLoopStart, UntilItsThreadIsStartedGuestsAloneDriveAndWhoJoinsFinishes) {
  for (const bool start : {false, true}) {
    Fake fake;
    DriveLoop loop(&fake, microseconds(50), "mg-test");
    fake.Send();
    EXPECT_TRUE(loop.DriveUntil([&] { return fake.received() == 1; },
                                Clock::now() + std::chrono::seconds(30)));
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_FALSE(fake.TakePolledByThread());
    if (start) {
      loop.Start();
      loop.Start();
      fake.Send();
      const auto until = Clock::now() + std::chrono::seconds(30);
      while (fake.received() < 2 && Clock::now() < until)
        std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(fake.TakePolledByThread());
    }
    EXPECT_EQ(fake.finished_by(), std::thread::id());
    loop.Stop();
    loop.Join();
    EXPECT_EQ(fake.finished_by() == std::this_thread::get_id(), !start);
    loop.Start();  // too late
    loop.Join();
  }
}

TEST(DriveLoopSpin, AGuestWhoseVisitsAreLongDoesNotSpin) {
  Fake fake;
  DriveLoop loop(&fake, milliseconds(5), "mg-test");
  loop.Start();
  int least = INT_MAX;
  for (int visit = 0; visit < 9; ++visit) {
    std::thread sender([&] {
      std::this_thread::sleep_for(milliseconds(220));  // a kernel somewhere
      fake.Send();
    });
    const int before = fake.polls();
    const uint64_t wanted = fake.received() + 1;
    EXPECT_TRUE(loop.DriveUntil([&] { return fake.received() == wanted; },
                                Clock::now() + std::chrono::seconds(60)));
    sender.join();
    if (visit >= 4) least = std::min(least, fake.polls() - before);
  }
  // In 5 ms there is time for some 15,000.
  EXPECT_LT(least, 4000);
  loop.Stop();
  loop.Join();
}

}  // namespace
}  // namespace monograph
