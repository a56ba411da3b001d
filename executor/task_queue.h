// TaskQueue: what waits for an inter-op thread, in order, and the extra threads that see to it that
// no session waits for long kernels of another one.
//
// A task is overdue if it has waited for kPatience, another session has a task that runs, and its
// own session has none: then all threads may be inside kernels that take minutes. An extra thread
// ("mg-extra-N") takes it. There are as many of these as sessions that need one at the same time;
// a process with one session starts none. Cores may so have more threads than intended, each of
// another session.
//
// Thread-safe. A steady queue takes nothing from the heap.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace monograph {

class TaskQueue : public std::enable_shared_from_this<TaskQueue> {
  struct Key {};  // only Make makes queues, since threads share them

 public:
  struct Task {
    void (*run)(void* context, int32_t value) = nullptr;
    void* context = nullptr;
    int32_t value = 0;
    uint64_t session = 0;  // 0: of none; such a task waits for whatever runs
  };
  static constexpr std::chrono::milliseconds kPatience{2};

  explicit TaskQueue(Key) {}
  static std::shared_ptr<TaskQueue> Make() { return std::make_shared<TaskQueue>(Key()); }

  void Push(Task task) MG_EXCLUDES(mutex_);
  // Runs the oldest task on this thread, if there is one still. Called once for each Push.
  void RunNext() MG_EXCLUDES(mutex_);
  // Extra threads end. REQUIRES: no task waits.
  void Close() MG_EXCLUDES(mutex_);

 private:
  // How long an extra thread that was needed takes tasks at once, without kPatience; and how long
  // one stays that is not needed.
  static constexpr std::chrono::milliseconds kEager{100};
  static constexpr std::chrono::seconds kIdle{10};
  static constexpr int kMostExtra = 64;

  // How many tasks of each session there are; those without any are left out.
  class Counts {
   public:
    void Add(uint64_t session);
    void Remove(uint64_t session);
    bool Has(uint64_t session) const;
    bool empty() const { return counts_.empty(); }
    size_t sessions() const { return counts_.size(); }
    auto begin() const { return counts_.begin(); }
    auto end() const { return counts_.end(); }

   private:
    std::vector<std::pair<uint64_t, int>> counts_;
  };

  void GrowLocked() MG_REQUIRES(mutex_);
  void RunLocked(const Task& task) MG_REQUIRES(mutex_);  // without the lock meanwhile
  // Takes the oldest task of a session of which nothing runs, while something of another one does.
  bool TakeWaitingLocked(Task* task) MG_REQUIRES(mutex_);
  // If a session waits and others run, or may be first: has an extra thread look after kPatience,
  // or at once if one is eager.
  void CallExtraLocked() MG_REQUIRES(mutex_);
  void StartExtraLocked() MG_REQUIRES(mutex_);
  void Extra();  // body of an extra thread

  Mutex mutex_;
  CondVar called_;
  // A ring of a power of two; tasks that an extra thread has taken have no `run`.
  std::vector<Task> ring_ MG_GUARDED_BY(mutex_) = std::vector<Task>(64);
  uint64_t first_ MG_GUARDED_BY(mutex_) = 0, end_ MG_GUARDED_BY(mutex_) = 0;
  Counts waiting_ MG_GUARDED_BY(mutex_), running_ MG_GUARDED_BY(mutex_);
  int extra_ MG_GUARDED_BY(mutex_) = 0;  // threads
  int free_ MG_GUARDED_BY(mutex_) = 0;   // of these, those that run nothing
  int eager_ MG_GUARDED_BY(mutex_) = 0;  // of these, those that take a task at once
  bool call_ MG_GUARDED_BY(mutex_) = false;
  bool closed_ MG_GUARDED_BY(mutex_) = false;
};

}  // namespace monograph
