// Every enqueue, dequeue and close is an Attempt in one of two lines. Start appends it and calls
// Flush, which serves the heads of both lines until neither makes progress. An attempt that was
// served in part keeps its tuples and its place at the head, so that the attempts of a line end in
// the order in which they began, and a cancelled dequeue puts its tuples back.
#include "ops/queue/queue_resource_cpu.h"

#include <algorithm>
#include <utility>

#include "base/pool_allocator.h"
#include "base/random.h"

namespace monograph::ops::queue {
namespace {

// Tensors count against the task's memory by themselves. Places of tuples are reserved there so
// many bytes at a time (Admit), from before they are made until they leave (Finish).
constexpr size_t kRoom = size_t{1} << 20;

// TensorFlow's: with the same seeds, the same order.
random::PhiloxStream ShuffleStream(const QueueSpec& spec) {
  if (spec.seed == 0 && spec.seed2 == 0)
    return random::PhiloxStream(RandomNonZero(), 0, RandomNonZero());
  return random::PhiloxStream(static_cast<uint64_t>(spec.seed), 0,
                              static_cast<uint64_t>(spec.seed2));
}

}  // namespace

std::string QueueSpec::ToString() const {
  std::string text = kind + "(component_types=" + AttrToString(types) +
                     ", shapes=" + AttrToString(shapes) + ", capacity=" + std::to_string(capacity);
  if (shuffle) {
    text += ", min_after_dequeue=" + std::to_string(min_after_dequeue) +
            ", seed=" + std::to_string(seed) + ", seed2=" + std::to_string(seed2);
  }
  return text + ")";
}

QueueResource::QueueResource(QueueSpec spec)
    : spec_(std::move(spec)), draws_(ShuffleStream(spec_)) {}

size_t QueueResource::TuplesOfRoom() const {
  constexpr size_t kHeapBlock = 16;
  constexpr size_t kNode = 80;  // of the tree, beside the tuple
  return kRoom / (2 * sizeof(Tuple) + kHeapBlock + spec_.types.size() * sizeof(Tensor) +
                  (spec_.priority ? kNode : 0));
}

Status QueueResource::Admit(size_t tuples) {
  const size_t each = TuplesOfRoom();
  MutexLock lock(mutex_);
  const size_t wanted = (admitted_ + tuples) / each, there = room_.size();
  if (wanted > there) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(wanted - there, kRoom, &bytes)) bytes = SIZE_MAX;  // refused
    std::shared_ptr<void> room = HostPool().Reserve(bytes);
    if (room == nullptr) {
      return ResourceExhausted(Quoted() + " has no room for " + std::to_string(tuples) +
                               " more elements beside its " + std::to_string(count()) + ": " +
                               HostPool().Explain(bytes));
    }
    room_.resize(wanted, room);
  }
  admitted_ += tuples;
  return Status();
}

void QueueResource::Dismiss(size_t tuples) {
  MutexLock lock(mutex_);
  DismissLocked(tuples);
}

void QueueResource::DismissLocked(size_t tuples) {
  admitted_ -= tuples;
  // One more than is needed stays, for a queue whose size moves about a border.
  room_.resize(std::min(room_.size(), admitted_ / TuplesOfRoom() + 1));
}

void QueueResource::Enqueue(KernelContext& c, std::vector<Tuple> tuples, Done done) {
  Attempt attempt;
  attempt.tuples = std::move(tuples);
  attempt.done = [done = std::move(done)](const Status& status, std::vector<Tuple>) {
    done(status);
  };
  Start(c, true, std::move(attempt));
}

void QueueResource::Dequeue(KernelContext& c, int64_t n, bool up_to, Taken done) {
  Attempt attempt;
  attempt.wanted = n;
  attempt.up_to = up_to;
  attempt.done = std::move(done);
  Start(c, false, std::move(attempt));
}

void QueueResource::Close(KernelContext& c, bool cancel_pending_enqueues, Done done) {
  if (!cancel_pending_enqueues) {
    Attempt attempt;
    attempt.close = true;
    attempt.done = [done = std::move(done)](const Status& status, std::vector<Tuple>) {
      done(status);
    };
    return Start(c, true, std::move(attempt));
  }
  Completions completions;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    FailAll(&enqueues_, Cancelled("Enqueue operation was cancelled"), &completions);
    Flush(&completions);
  }
  Run(std::move(completions));
  done(Status());
}

int64_t QueueResource::size() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(count());
}

bool QueueResource::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

std::string QueueResource::DebugString() const {
  return "queue " + spec_.name + ": " + spec_.ToString() + " of " + std::to_string(size()) +
         " elements" + (closed() ? ", closed" : "");
}

int64_t QueueResource::bytes() const {
  MutexLock lock(mutex_);
  size_t total = 0;
  const auto add = [&](const Tuple& tuple) {
    for (const Tensor& tensor : tuple) total += tensor.bytes();
  };
  for (const Tuple& tuple : elements_) add(tuple);
  for (const auto& [rank, tuple] : ranked_) add(tuple);
  return static_cast<int64_t>(total);
}

void QueueResource::OnRemoved() {
  Completions completions;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    const Status status = Aborted(Quoted() + " was removed from its task.");
    FailAll(&enqueues_, status, &completions);
    FailAll(&dequeues_, status, &completions);
  }
  Run(std::move(completions));
}

void QueueResource::Start(KernelContext& c, bool enqueue, Attempt attempt) {
  Completions completions;
  uint64_t id = 0;
  bool waits = false;
  {
    MutexLock lock(mutex_);
    id = attempt.id = ++last_id_;
    attempt.c = &c;
    std::list<Attempt>& line = enqueue ? enqueues_ : dequeues_;
    line.push_back(std::move(attempt));
    Flush(&completions);
    waits = !line.empty() && line.back().id == id;
  }
  Run(std::move(completions));
  // From here on somebody else may complete the attempt; cancelling it is then without effect.
  if (waits && !c.OnCancel([self = shared_from_this(), id] { self->Cancel(id); })) Cancel(id);
}

void QueueResource::Cancel(uint64_t id) {
  Completions completions;
  {
    MutexLock lock(mutex_);
    for (std::list<Attempt>* line : {&enqueues_, &dequeues_}) {
      for (auto it = line->begin(); it != line->end(); ++it) {
        if (it->id != id) continue;
        if (line == &dequeues_) PutBack(*it);
        Finish(line, it, Cancelled(Waits(*it)).AsDerived(), &completions);
        break;
      }
    }
    Flush(&completions);
  }
  Run(std::move(completions));
}

std::string QueueResource::Waits(const Attempt& attempt) const {
  const std::string size = ", current size " + std::to_string(count()) + ")";
  if (attempt.wanted > 0) {
    const std::string stay = spec_.min_after_dequeue > 0
                                 ? ", min_after_dequeue " + std::to_string(spec_.min_after_dequeue)
                                 : "";
    return Quoted() + " has insufficient elements (requested " + std::to_string(attempt.wanted) +
           stay + size;
  }
  if (attempt.close) return Quoted() + " is not closed yet: others enqueue before";
  return Quoted() + " is full (capacity " + std::to_string(spec_.capacity) + size;
}

void QueueResource::FailAll(std::list<Attempt>* line, const Status& status,
                            Completions* completions) {
  while (!line->empty()) Finish(line, line->begin(), status, completions);
}

void QueueResource::Flush(Completions* completions) {
  for (bool progress = true; progress;) {
    progress = TryEnqueue(completions);
    progress = TryDequeue(completions) || progress;
  }
}

bool QueueResource::Stopped(const Attempt& attempt, size_t moved) {
  constexpr size_t kLook = 4096;  // tuples between two looks
  return moved % kLook == kLook - 1 && attempt.c->cancelled();
}

bool QueueResource::TryEnqueue(Completions* completions) {
  if (enqueues_.empty()) return false;
  Attempt& head = enqueues_.front();
  if (head.close) {
    Finish(&enqueues_, enqueues_.begin(),
           closed_ ? Cancelled(Quoted() + " is already closed.") : Status(), completions);
    closed_ = true;
    return true;
  }
  if (closed_) {
    Finish(&enqueues_, enqueues_.begin(), Cancelled(Quoted() + " is closed."), completions);
    return true;
  }
  const size_t before = head.entered;
  while (head.entered < head.tuples.size() &&
         (spec_.capacity < 0 || static_cast<int64_t>(count()) < spec_.capacity)) {
    PutLast(std::move(head.tuples[head.entered++]));
    if (!Stopped(head, head.entered)) continue;
    Finish(&enqueues_, enqueues_.begin(), Cancelled(Waits(head)).AsDerived(), completions);
    return true;
  }
  const bool progress = head.entered > before;
  if (head.entered < head.tuples.size()) return progress;
  head.tuples.clear();
  head.entered = 0;
  Finish(&enqueues_, enqueues_.begin(), Status(), completions);
  return true;
}

bool QueueResource::TryDequeue(Completions* completions) {
  if (dequeues_.empty()) return false;
  Attempt& head = dequeues_.front();
  if (closed_) {
    const auto there = static_cast<int64_t>(count() + head.tuples.size());
    if (there < head.wanted) {
      PutBack(head);
      if (!head.up_to || there == 0) {
        Finish(&dequeues_, dequeues_.begin(),
               OutOfRange(Quoted() + " is closed and has insufficient elements (requested " +
                          std::to_string(head.wanted) + ", current size " + std::to_string(there) +
                          ")"),
               completions);
        return true;
      }
      head.wanted = there;
    }
  }
  const auto wanted = static_cast<size_t>(head.wanted);
  const size_t before = head.tuples.size();
  const size_t stay = closed_ ? 0 : static_cast<size_t>(spec_.min_after_dequeue);
  while (head.tuples.size() < wanted && count() > stay) {
    head.tuples.push_back(TakeOne());
    if (!Stopped(head, head.tuples.size())) continue;
    PutBack(head);
    Finish(&dequeues_, dequeues_.begin(), Cancelled(Waits(head)).AsDerived(), completions);
    return true;
  }
  if (head.tuples.size() < wanted) return head.tuples.size() > before;
  Finish(&dequeues_, dequeues_.begin(), Status(), completions);
  return true;
}

void QueueResource::Finish(std::list<Attempt>* line, std::list<Attempt>::iterator which,
                           Status status, Completions* completions) {
  DismissLocked(which->tuples.size() - which->entered);
  completions->push_back({std::move(which->done), std::move(status), std::move(which->tuples)});
  line->erase(which);
}

void QueueResource::PutLast(Tuple tuple) {
  if (!spec_.priority) return elements_.push_back(std::move(tuple));
  const auto priority = tuple[0].scalar<int64_t>();
  ranked_.emplace(std::pair(priority, ++last_), std::move(tuple));
}

void QueueResource::PutFirst(Tuple tuple) {
  if (!spec_.priority) return elements_.push_front(std::move(tuple));
  const auto priority = tuple[0].scalar<int64_t>();
  ranked_.emplace(std::pair(priority, first_--), std::move(tuple));
}

QueueResource::Tuple QueueResource::TakeOne() {
  if (spec_.priority) return std::move(ranked_.extract(ranked_.begin()).mapped());
  if (spec_.shuffle) {
    // The last element takes the place of the drawn one.
    std::swap(elements_.back(), elements_[draws_.Next() % elements_.size()]);
    Tuple tuple = std::move(elements_.back());
    elements_.pop_back();
    return tuple;
  }
  Tuple tuple = std::move(elements_.front());
  elements_.pop_front();
  return tuple;
}

void QueueResource::PutBack(Attempt& attempt) {
  for (auto it = attempt.tuples.rbegin(); it != attempt.tuples.rend(); ++it)
    PutFirst(std::move(*it));
  attempt.tuples.clear();
}

void QueueResource::Run(Completions completions) {
  for (Completion& completion : completions)
    completion.done(completion.status, std::move(completion.tuples));
}

}  // namespace monograph::ops::queue
