// FirstFailure: the status of work that several threads share. Thread-safe.
#pragma once

#include "base/mutex.h"
#include "base/status.h"

namespace monograph {

class FirstFailure {
 public:
  void Update(const Status& status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    status_.Update(status);
  }
  // The first that was not OK.
  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  Status status_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph
