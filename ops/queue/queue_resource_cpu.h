// QueueResource: the elements of a queue, and who waits for them. Thread-safe.
//
// Attempts to enqueue and to dequeue stand in two lines, first come, first served; closing stands
// in the line of those who enqueue. A call that changes the queue serves the heads of both lines
// until neither makes progress, and then runs the completions of the attempts that ended, on its
// own thread, without the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "ops/random/philox_stream.h"

namespace monograph::ops::queue {

struct QueueSpec {
  static constexpr const char* kNoun = "queue";
  std::string kind;  // "FIFOQueue", "RandomShuffleQueue": TensorFlow's words in errors
  std::string name;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;  // one per component, or none
  int64_t capacity = -1;
  bool shuffle = false;
  bool priority = false;  // the first component, an int64, tells who leaves first: the smallest
  bool padding = false;   // of a batch, elements are filled up to one shape
  int64_t min_after_dequeue = 0, seed = 0, seed2 = 0;

  // "FIFOQueue(component_types=[float], shapes=[[784]], capacity=10)"
  std::string ToString() const;
};

class QueueResource : public Resource, public std::enable_shared_from_this<QueueResource> {
 public:
  using Spec = QueueSpec;
  using Tuple = std::vector<Tensor>;
  using Taken = std::function<void(const Status&, std::vector<Tuple>)>;

  explicit QueueResource(QueueSpec spec);

  const QueueSpec& spec() const { return spec_; }

  // Room for so many tuples beside their tensors, which must come before they are made for Enqueue:
  // a queue without a bound is bounded by the task's memory. ResourceExhausted if there is none.
  Status Admit(size_t tuples);
  // They were not enqueued.
  void Dismiss(size_t tuples);

  // Each calls `done` once, at once or when it is through. An aborted step ends the wait and the
  // moves: tuples that are in the queue by then stay there, and those that were taken are put back.
  // The tuples fit the queue's types and shapes, and were admitted.
  void Enqueue(KernelContext& c, std::vector<Tuple> tuples, Done done);
  void Dequeue(KernelContext& c, int64_t n, bool up_to, Taken done);
  void Close(KernelContext& c, bool cancel_pending_enqueues, Done done);

  int64_t size() const;
  bool closed() const;

  std::string DebugString() const override;
  int64_t bytes() const override;
  void OnRemoved() override;  // whoever waits gets Aborted

 private:
  struct Attempt {
    uint64_t id = 0;
    const KernelContext* c = nullptr;  // valid until `done`
    // Enqueue: what is to go in, and how many are in.
    std::vector<Tuple> tuples;
    size_t entered = 0;
    bool close = false;
    // Dequeue: how many are wanted, and those that are out already.
    int64_t wanted = 0;
    bool up_to = false;
    Taken done;
  };
  struct Completion {
    Taken done;
    Status status;
    std::vector<Tuple> tuples;
  };
  using Completions = std::vector<Completion>;

  std::string Quoted() const { return spec_.kind + " '" + spec_.name + "'"; }
  void Start(KernelContext& c, bool enqueue, Attempt attempt);
  void Cancel(uint64_t id);
  void FailAll(std::list<Attempt>* line, const Status& status, Completions* completions)
      MG_REQUIRES(mutex_);
  void Flush(Completions* completions) MG_REQUIRES(mutex_);
  // Whether its step is aborted; looks only now and then.
  static bool Stopped(const Attempt& attempt, size_t moved);
  bool TryEnqueue(Completions* completions) MG_REQUIRES(mutex_);  // true: something has changed
  bool TryDequeue(Completions* completions) MG_REQUIRES(mutex_);
  // Why the attempt has to wait.
  std::string Waits(const Attempt& attempt) const MG_REQUIRES(mutex_);
  void Finish(std::list<Attempt>* line, std::list<Attempt>::iterator which, Status status,
              Completions* completions) MG_REQUIRES(mutex_);
  void DismissLocked(size_t tuples) MG_REQUIRES(mutex_);
  size_t count() const MG_REQUIRES(mutex_) { return elements_.size() + ranked_.size(); }
  void PutLast(Tuple tuple) MG_REQUIRES(mutex_);
  void PutFirst(Tuple tuple) MG_REQUIRES(mutex_);
  Tuple TakeOne() MG_REQUIRES(mutex_);
  void PutBack(Attempt& attempt) MG_REQUIRES(mutex_);
  static void Run(Completions completions);

  // Tuples that one reservation is for.
  size_t TuplesOfRoom() const;

  const QueueSpec spec_;

  mutable Mutex mutex_;
  std::deque<Tuple> elements_ MG_GUARDED_BY(mutex_);
  // Those of a priority queue instead, by priority and by place among equal ones.
  std::map<std::pair<int64_t, int64_t>, Tuple> ranked_ MG_GUARDED_BY(mutex_);
  int64_t first_ MG_GUARDED_BY(mutex_) = 0, last_ MG_GUARDED_BY(mutex_) = 0;  // places
  std::list<Attempt> enqueues_ MG_GUARDED_BY(mutex_), dequeues_ MG_GUARDED_BY(mutex_);
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  size_t admitted_ MG_GUARDED_BY(mutex_) = 0;  // tuples
  // For these, kRoom bytes each; a few tuples have room without.
  std::vector<std::shared_ptr<void>> room_ MG_GUARDED_BY(mutex_);
  uint64_t last_id_ MG_GUARDED_BY(mutex_) = 0;
  random::PhiloxWords draws_ MG_GUARDED_BY(mutex_);  // of the shuffle
};

// Component i of the tuples, in one tensor along a new first dimension, becomes output i of the
// kernel. REQUIRES: the spec has shapes, fully known but for a padding queue's.
Status StackTuples(KernelContext& c, const QueueSpec& spec,
                   const std::vector<QueueResource::Tuple>& tuples);

}  // namespace monograph::ops::queue
