// Compiled by Clang as a test: as it stands it is right, and with one of the macros it breaks what
// an attribute of base/mutex.h says, and is to be refused.
#include "base/mutex.h"

namespace {

using monograph::CondVar;
using monograph::Mutex;
using monograph::MutexLock;
using monograph::ReaderLock;
using monograph::SharedMutex;

class Queue {
 public:
  int Take() {
    MutexLock lock(mutex_);
    filled_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return size_ > 0; });
    return TakeLocked();
  }
  int read() const {
#ifndef MG_READ_WITHOUT_LOCK
    MutexLock lock(mutex_);
#endif
    return size_;
  }
  int Call() {
#ifndef MG_CALL_WITHOUT_LOCK
    MutexLock lock(mutex_);
#endif
    return TakeLocked();
  }
  void WaitForOne() {
    MutexLock lock(mutex_);
#ifdef MG_WAIT_WITHOUT_LOCK
    lock.Unlock();
#endif
    filled_.Wait(mutex_);
  }

 private:
  int TakeLocked() MG_REQUIRES(mutex_) { return --size_; }

  mutable Mutex mutex_;
  CondVar filled_;
  int size_ MG_GUARDED_BY(mutex_) = 0;
};

class Table {
 public:
  void Set(int value) {
#ifdef MG_WRITE_AS_READER
    ReaderLock lock(mutex_);
#else
    MutexLock lock(mutex_);
#endif
    value_ = value;
  }
  int value() const {
    ReaderLock lock(mutex_);
    return value_;
  }
  bool SetNow(int value) {
#ifdef MG_TRY_WITHOUT_ASKING
    (void)mutex_.TryLock();
#else
    if (!mutex_.TryLock()) return false;
#endif
    MutexLock lock(mutex_, std::adopt_lock);
    value_ = value;
    return true;
  }

 private:
  mutable SharedMutex mutex_;
  int value_ MG_GUARDED_BY(mutex_) = 0;
};

}  // namespace

int main() {
  Queue queue;
  Table table;
  table.Set(queue.Take() + queue.read() + queue.Call());
  queue.WaitForOne();
  return table.SetNow(table.value()) ? 0 : 1;
}
