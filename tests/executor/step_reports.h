// StepReports: how steps ended, as a worker told a test that stands in for its client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"

namespace monograph::testing {

class StepReports {
 public:
  void Ended(uint64_t step, const Status& status) {
    std::lock_guard lock(mutex_);
    ended_[step] = status;
    changed_.notify_all();
  }
  // How it ended; DeadlineExceeded if nothing was told in 20 s.
  Status WaitFor(uint64_t step) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_.contains(step); }))
      return DeadlineExceeded("no end");
    return ended_[step];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Status> ended_;  // guarded by mutex_
};

}  // namespace monograph::testing
