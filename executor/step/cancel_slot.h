// CancelSlot: where an asynchronous kernel leaves what to do when its step is aborted. Thread-safe.
#pragma once

#include <functional>
#include <mutex>

namespace monograph {

class StepTrace;

struct CancelSlot {
  StepTrace* trace = nullptr;  // of a traced step, for kernels that run other nodes
  std::mutex mutex;
  std::function<void()> callback;  // guarded by mutex
  bool cancelled = false;          // guarded by mutex

  bool Set(std::function<void()> fn) {
    std::lock_guard lock(mutex);
    if (cancelled) return false;
    callback = std::move(fn);
    return true;
  }
  void Cancel() {
    std::function<void()> run;
    {
      std::lock_guard lock(mutex);
      cancelled = true;
      run.swap(callback);
    }
    if (run) run();
  }
  void Reset() {
    std::function<void()> drop;  // destroyed outside the lock
    std::lock_guard lock(mutex);
    drop.swap(callback);
    cancelled = false;
  }
};

}  // namespace monograph
