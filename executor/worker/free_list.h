// Records of one kind that are used again and again, linked by T::next, so that a steady step takes
// none from the heap. Thread-safe.
#pragma once

#include <mutex>
#include <utility>

namespace monograph {

template <typename T>
class FreeList {
 public:
  FreeList() = default;
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;
  ~FreeList() {
    while (first_ != nullptr) delete std::exchange(first_, first_->next);
  }
  T* Take() {
    {
      std::lock_guard lock(mutex_);
      if (first_ != nullptr) return std::exchange(first_, first_->next);
    }
    return new T;
  }
  void Give(T* record) {
    std::lock_guard lock(mutex_);
    record->next = first_;
    first_ = record;
  }

 private:
  std::mutex mutex_;
  T* first_ = nullptr;  // guarded by mutex_
};

}  // namespace monograph
