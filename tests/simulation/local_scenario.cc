// A session within one process: threads that run steps beside each other while it may close.
#include <atomic>
#include <thread>

#include "base/mutex.h"
#include "base/thread.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {

void RunLocalSteps() {
  const CountingGraph counting("/device:CPU:0", {"/device:CPU:0", "/device:CPU:0"});
  SessionOptions options;
  options.inter_op_parallelism_threads = 1 + static_cast<int>(Draw(3));
  std::unique_ptr<Session> session = Session::Local(counting.graph, options).value();
  if (const auto made = session->Run({}, {}, {counting.init}); !made.ok())
    Fail("the first step failed: " + made.status().ToString());
  Counts counts;
  Mutex mutex;
  const bool closes = Draw(4) == 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.push_back(StartThread("caller-" + std::to_string(t), [&, t] {
      const auto& member = counting.members[static_cast<size_t>(t % 2)];
      for (int step = 0; step < 3; ++step) {
        const int field = 3 * t + step;
        {
          MutexLock lock(mutex);
          counts.Try(field);
        }
        const auto ran =
            session->Run({{member.feed, Counts::Of(field)}}, {counting.value}, {member.update});
        MutexLock lock(mutex);
        if (!ran.ok()) {
          if (!closes) Fail("a step failed: " + ran.status().ToString());
          continue;
        }
        counts.Confirm(field);
        counts.Check(ran->at(0), "a step's value", /*before=*/true);
      }
    }));
  }
  if (closes) (void)session->Close();
  for (std::thread& thread : threads) thread.join();
  if (!closes) {
    const auto value = session->Run({}, {counting.value});
    if (!value.ok()) Fail("the last step failed: " + value.status().ToString());
    counts.Check(value->at(0), "the variable");
  }
}

}  // namespace monograph::simulation
