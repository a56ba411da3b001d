// What else the machine did during a run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tools/compare/load.h"

namespace monograph {
namespace {

using namespace std::chrono_literals;

TEST(CompareLoad, IsWhatWasNotIdleAndNotOurs) {
  const LoadCounters before{.clock = 100,
                            .processors = 4,
                            .idle = 50,
                            .interrupts = 1,
                            .stolen = 2,
                            .own = 10,
                            .waiting = 5,
                            .load_average = 1.5};
  // In 10 s of 4 processors: 12 s idle, 1 s of interrupts, 20 s ours, so 7 s of others.
  const LoadCounters after{.clock = 110,
                           .processors = 4,
                           .idle = 62,
                           .interrupts = 2,
                           .stolen = 4,
                           .own = 30,
                           .waiting = 8,
                           .load_average = 9};
  const RunLoad load = LoadBetween(before, after);
  EXPECT_EQ(load.processors, 4);
  EXPECT_NEAR(load.others, 0.7, 1e-9);
  EXPECT_NEAR(load.stolen, 0.2, 1e-9);
  EXPECT_NEAR(*load.pressure, 0.3, 1e-9);
  EXPECT_EQ(load.load_average, 1.5) << "before the run: afterwards it is our own";
  EXPECT_TRUE(load.busy());

  LoadCounters ours = after;
  ours.own += 7;
  EXPECT_NEAR(LoadBetween(before, ours).others, 0, 1e-9);
  EXPECT_FALSE(LoadBetween(before, ours).busy());
  ours.own += 1;  // more than there was: the clocks tick apart
  EXPECT_EQ(LoadBetween(before, ours).others, 0);
  ours.waiting.reset();
  EXPECT_FALSE(LoadBetween(before, ours).pressure.has_value());
  EXPECT_EQ(LoadBetween(before, before).others, 0) << "no time went by";
}

TEST(CompareLoad, BusyIsMoreThanFivePercentOfTheProcessors) {
  EXPECT_FALSE((RunLoad{.processors = 2, .others = 0.1}).busy());
  EXPECT_TRUE((RunLoad{.processors = 2, .others = 0.11}).busy());
  EXPECT_FALSE((RunLoad{.processors = 64, .others = 3}).busy());
}

TEST(CompareLoad, CountsTheProcessorsThatWeMayUse) {
  LoadCounters counters;
  AddProcStat(
      "cpu  1 1 1 1 1 1 1 1 0 0\n"
      "cpu0 100 0 100 1000 200 10 20 30 0 0\n"
      "cpu1 100 0 100 9000 900 90 90 90 0 0\n"
      "cpu12 100 0 100 500 0 0 0 10 0 0\n"
      "intr 12345\n",
      {0, 12}, 100, &counters);
  EXPECT_EQ(counters.processors, 2);
  EXPECT_NEAR(counters.idle, 17, 1e-9);
  EXPECT_NEAR(counters.interrupts, 0.3, 1e-9);
  EXPECT_NEAR(counters.stolen, 0.4, 1e-9);
}

TEST(CompareLoad, ReadsThePressureOfProcessors) {
  EXPECT_EQ(WaitingSeconds("some avg10=72.05 avg60=81.09 avg300=45.42 total=205523713\n"
                           "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
            205.523713);
  EXPECT_FALSE(WaitingSeconds("").has_value());
}

void Burn() {
  for (std::atomic<unsigned> i = 0;; ++i) {
  }
}

// A process that computes all the time counts as other work while it runs, and as ours once it has
// ended and was waited for.
TEST(CompareLoad, OfThisMachineTellsOthersFromOurs) {
  const std::optional<LoadCounters> before = ReadLoadCounters();
  ASSERT_TRUE(before.has_value());
  EXPECT_GT(before->processors, 0);
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) Burn();
  std::this_thread::sleep_for(700ms);
  const std::optional<LoadCounters> during = ReadLoadCounters();
  kill(other, SIGKILL);
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  const std::optional<LoadCounters> after = ReadLoadCounters();
  ASSERT_TRUE(during && after);
  // On a loaded machine it gets less than a processor, but others use the rest.
  EXPECT_GT(LoadBetween(*before, *during).others, 0.3);
  EXPECT_TRUE(LoadBetween(*before, *during).busy());
  EXPECT_GT(after->own, during->own + 0.02);
}

}  // namespace
}  // namespace monograph
