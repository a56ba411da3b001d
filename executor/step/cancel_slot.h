// CancelSlot: where an asynchronous kernel leaves what to do when its step is aborted. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>

#include "base/mutex.h"

namespace monograph {

class StepTrace;

struct CancelSlot {
  // For kernels that run other nodes: of a traced step; and the step's id
  // (executor/worker/step_ids.h), which grows with its number.
  StepTrace* trace = nullptr;
  uint64_t step = 0;
  Mutex mutex;
  std::function<void()> callback MG_GUARDED_BY(mutex);
  bool cancelled MG_GUARDED_BY(mutex) = false;

  bool Set(std::function<void()> fn) {
    MutexLock lock(mutex);
    if (cancelled) return false;
    callback = std::move(fn);
    return true;
  }
  // Whether a kernel has begun to wait and has not been told that it ended.
  bool waits() {
    MutexLock lock(mutex);
    return callback != nullptr;
  }
  void Cancel() {
    std::function<void()> run;
    {
      MutexLock lock(mutex);
      cancelled = true;
      run.swap(callback);
    }
    if (run) run();
  }
  void Reset() {
    std::function<void()> drop;  // destroyed outside the lock
    MutexLock lock(mutex);
    drop.swap(callback);
    cancelled = false;
  }
};

}  // namespace monograph
