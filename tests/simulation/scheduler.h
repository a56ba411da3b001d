// Runs a piece of a program on simulated threads under a simulated clock, so that a seed decides
// everything: which thread goes on at each lock, wait, notification and start of a thread, which
// deadlines pass, which waits end for no reason.
//
// The program is not compiled anew. tests/simulation/interpose.cc has the functions of the system
// by which it locks, waits, starts threads and reads clocks; called on a thread of a schedule they
// come here. Of these threads exactly one runs at any time. When none can run the clock jumps to
// the next deadline; when there is no deadline either, all of them wait for ever, and the schedule
// fails with what each of them waits for.
//
// What fails cannot be unwound, so a failure is told on standard error and ends the process
// (kFailed). Run schedules in processes of their own (tests/simulation/simulation_main.cc).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace monograph::simulation {

inline constexpr int kFailed = 3;  // the process's exit status

struct ScheduleOptions {
  uint64_t seed = 1;
  // More simulated time, or more decisions, are a hang.
  std::chrono::nanoseconds longest = std::chrono::minutes(10);
  uint64_t most_decisions = 2'000'000;
  bool trace = false;  // tells every switch of threads
};

struct ScheduleResult {
  uint64_t hash = 0;  // of all decisions: equal for equal schedules
  uint64_t decisions = 0, switches = 0, threads = 0;
  std::chrono::nanoseconds simulated{0};
};

// Runs `body` as the first thread of a schedule; returns when it and all threads that it started
// have ended. One at a time, on one thread of the process.
ScheduleResult RunSchedule(const ScheduleOptions& options, const std::function<void()>& body);

// As long as it lives, locks within the object are no decisions: the object is the process's, and
// what it has from earlier schedules would decide how often they are taken; or it stands for what
// lies below the program. REQUIRES: they are held for a moment only.
class LeftOut {
 public:
  LeftOut(const void* object, size_t bytes);
  ~LeftOut();
  LeftOut(const LeftOut&) = delete;
  LeftOut& operator=(const LeftOut&) = delete;

 private:
  const void* const object_;
};

// Whether threads may be held up now, as they are at first. Where they may not, computing takes
// less time than any deadline.
void HoldThreads(bool may);

// Whether computing takes no time, as if it were fast and each thread had a core of its own: only
// waits take some, and one that yields waits a moment. For schedules whose simulated time is to be
// told; at first all threads share one core.
void ComputeInNoTime(bool does);

// Ends the schedule, and the process, as failed. The text says what is wrong, with numbers;
// `with_threads` adds where every thread is.
[[noreturn]] void Fail(const std::string& text, bool with_threads = false);

// A line of the trace, if there is one.
void Note(const std::string& text);
bool Tracing();

}  // namespace monograph::simulation
