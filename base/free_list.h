// FreeList: records of one kind that are used again and again, so that a steady step takes none
// from the heap. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"

namespace monograph {

// Owns its records, also those that are taken.
template <typename T>
class FreeList {
 public:
  // The record that was given back last, as it was left, or a new one.
  T* Take() {
    MutexLock lock(mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      free_.reserve(all_.size());
      return all_.back().get();
    }
    T* record = free_.back();
    free_.pop_back();
    return record;
  }
  void Give(T* record) {
    MutexLock lock(mutex_);
    free_.push_back(record);
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<T>> all_ MG_GUARDED_BY(mutex_);
  std::vector<T*> free_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph
