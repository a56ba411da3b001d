// Locks whose use Clang checks. Attributes say which mutex guards a member and which a function
// needs; Clang (the preset `clang`) refuses code that does otherwise, other compilers ignore them.
// At run time they are the standard library's mutexes, inline. docs/threading.md lists all locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define MG_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define MG_THREAD_ATTRIBUTE(...)
#endif

// Of a class: it is a lock; it holds one from its constructor to its destructor.
#define MG_CAPABILITY MG_THREAD_ATTRIBUTE(capability("mutex"))
#define MG_SCOPED_CAPABILITY MG_THREAD_ATTRIBUTE(scoped_lockable)
// Of a member: it (of a pointer: what it points to) is read and written with that mutex held.
#define MG_GUARDED_BY(mutex) MG_THREAD_ATTRIBUTE(guarded_by(mutex))
#define MG_PT_GUARDED_BY(mutex) MG_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// Of a function or lambda, after its parameters: the caller holds these mutexes, does not hold
// them.
#define MG_REQUIRES(...) MG_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define MG_REQUIRES_SHARED(...) MG_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define MG_EXCLUDES(...) MG_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// The function takes them, takes them if it returns the first argument, gives them back.
#define MG_ACQUIRE(...) MG_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define MG_ACQUIRE_SHARED(...) MG_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define MG_TRY_ACQUIRE(...) MG_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define MG_TRY_ACQUIRE_SHARED(...) MG_THREAD_ATTRIBUTE(try_acquire_shared_capability(__VA_ARGS__))
#define MG_RELEASE(...) MG_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define MG_RELEASE_SHARED(...) MG_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define MG_RELEASE_GENERIC(...) MG_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
// Its caller holds the mutex in a way that the analysis cannot see. A comment says how.
#define MG_ASSERT_HELD(...) MG_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
// The analysis cannot follow it. A comment says why it is right.
#define MG_NO_THREAD_SAFETY_ANALYSIS MG_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace monograph {

class MG_CAPABILITY Mutex {
 public:
  void Lock() MG_ACQUIRE() { mutex_.lock(); }
  bool TryLock() MG_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() MG_RELEASE() { mutex_.unlock(); }
  void AssertHeld() const MG_ASSERT_HELD() {}  // for the analysis only

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// One writer, or any number of readers.
class MG_CAPABILITY SharedMutex {
 public:
  void Lock() MG_ACQUIRE() { mutex_.lock(); }
  bool TryLock() MG_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() MG_RELEASE() { mutex_.unlock(); }
  void LockShared() MG_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  bool TryLockShared() MG_TRY_ACQUIRE_SHARED(true) { return mutex_.try_lock_shared(); }
  void UnlockShared() MG_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a mutex of any kind, as long as it lives or but for the time from Unlock to Lock.
template <typename Kind>
class MG_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Kind& mutex) MG_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(Kind& mutex, std::adopt_lock_t) MG_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() MG_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Lock() MG_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }
  void Unlock() MG_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }

 private:
  Kind& mutex_;
  bool held_ = true;
};

// Holds a shared mutex as one of its readers.
class MG_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) MG_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.LockShared();
  }
  ReaderLock(SharedMutex& mutex, std::adopt_lock_t) MG_REQUIRES_SHARED(mutex) : mutex_(mutex) {}
  ~ReaderLock() MG_RELEASE_GENERIC() {
    if (held_) mutex_.UnlockShared();
  }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

  void Unlock() MG_RELEASE_GENERIC() {
    held_ = false;
    mutex_.UnlockShared();
  }

 private:
  SharedMutex& mutex_;
  bool held_ = true;
};

// Waits give the mutex back while they wait. `over` is a lambda `[...]() MG_REQUIRES(mutex) {...}`
// that says whether to stop waiting; without it a wait may end for no reason. Those with a time
// return false if it has passed and, where `over` is given, over() is false still.
class CondVar {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  void Wait(Mutex& mutex) MG_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait(held.lock);
  }
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point time) MG_REQUIRES(mutex) {
    Held held(mutex);
    return condition_.wait_until(held.lock, time) == std::cv_status::no_timeout;
  }
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds duration) MG_REQUIRES(mutex) {
    return WaitUntil(mutex, std::chrono::steady_clock::now() + duration);
  }

  // These call `over`, whose attribute names the caller's mutex: not theirs, as the analysis sees
  // it, though it is the same.
  template <typename Over>
  void Wait(Mutex& mutex, Over over) MG_REQUIRES(mutex) MG_NO_THREAD_SAFETY_ANALYSIS {
    while (!over()) Wait(mutex);
  }
  template <typename Over>
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point time, Over over)
      MG_REQUIRES(mutex) MG_NO_THREAD_SAFETY_ANALYSIS {
    while (!over()) {
      if (!WaitUntil(mutex, time)) return over();
    }
    return true;
  }
  template <typename Over>
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds duration, Over over) MG_REQUIRES(mutex) {
    return WaitUntil(mutex, std::chrono::steady_clock::now() + duration, over);
  }

 private:
  // std::condition_variable wants a lock of its own kind; the mutex stays the caller's.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition_;
};

}  // namespace monograph
