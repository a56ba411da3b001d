// Each call of an interposed function is a decision: the clock moves on a little, deadlines pass,
// and another thread may go on (Decide). How often, and which one, is a strategy that the seed
// chooses for the whole schedule: any thread with a probability of its own; or by priorities with a
// few points at which the one that runs falls behind all others (Burckhardt and others, A
// randomized scheduler with probabilistic guarantees of finding bugs, ASPLOS 2010), which finds
// what needs few switches at the right places. A thread may also be held up for a while at any
// point, as a busy machine does, so that deadlines pass that computing alone would always keep.
#include "tests/simulation/scheduler.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simulation/context.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/host.h"
#include "tests/simulation/threads.h"

namespace monograph::simulation {

namespace {

enum class Waits { kNothing, kMutex, kReaders, kCondition, kFutex, kThread, kTime };

constexpr const char* kWaitNames[] = {"nothing", "a mutex",  "a shared mutex", "a condition",
                                      "a value", "a thread", "a time"};

constexpr uint64_t kStart = 1'000'000'000'000;  // the clock at first
constexpr uint64_t kDecisionTakes = 200, kLookTakes = 50, kYieldTakes = 2'000;  // nanoseconds
constexpr uint64_t kYieldWaits = 10'000;
constexpr uint64_t kLongestHold = 200'000'000;

}  // namespace

struct Thread {
  Thread(int number, int on_host, void (*enter)(void*))
      : id(number), host(on_host), context(enter, this) {}

  const int id;
  const int host;
  std::string name;
  void* (*routine)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;
  bool ended = false, detached = false;
  Waits waits = Waits::kNothing;
  const void* object = nullptr;  // of the wait
  uint64_t deadline = kNever;
  bool timed_out = false;
  uint64_t priority = 0;  // of the strategy by priorities
  std::vector<std::pair<void (*)(void*), void*>> at_exit;
  std::map<unsigned, void*> specific;  // by keys of pthread_key_create
  Context context;
};

namespace {

class Scheduler {
 public:
  explicit Scheduler(const ScheduleOptions& options);
  ScheduleResult Run(const std::function<void()>& body);
  [[noreturn]] void Fail(const std::string& text, bool with_threads);
  void HoldThreads(bool may) { may_hold_ = may; }
  void ComputeInNoTime(bool does) { in_no_time_ = does; }
  void Note(const std::string& text) const;
  bool tracing() const { return options_.trace; }

  // Whether the caller runs on this schedule's threads; not once these only tell where they are.
  bool Owns() const {
    return current_ != nullptr && !telling_ && system_ == __builtin_thread_pointer();
  }
  uint64_t Look();
  uint64_t now() const { return now_; }
  void Decide(uint64_t what);
  // Returns false if the deadline has passed.
  bool Block(Waits waits, const void* object, uint64_t deadline);
  // Lets threads that wait so go on, `most` of them, chosen by chance. Returns how many.
  int Wake(Waits waits, const void* object, int most);
  bool HasWaiter(Waits waits, const void* object);
  Thread* Start(void* (*routine)(void*), void* argument);
  void* Join(Thread* thread);
  void Detach(Thread* thread);
  void Yield();
  Thread* current() const { return current_; }

 private:
  static void Enter(void* thread);
  void Mix(uint64_t value) { result_.hash = (result_.hash ^ value) * 0x100000001B3; }
  // The threads that can go on; after the clock has jumped, if there was none.
  const std::vector<Thread*>& Ready(bool must);
  void MakeReady(Thread* thread);
  std::vector<Thread*>& WaitersNear(const void* object) {
    return waiters_[(reinterpret_cast<uintptr_t>(object) >> 3) % std::size(waiters_)];
  }
  Thread* Choose(const std::vector<Thread*>& ready);
  void SwitchTo(Thread* next);
  void PassDeadlines();
  std::string Describe(const Thread& thread) const;
  void TellThreads();

  const ScheduleOptions options_;
  const void* const system_ = __builtin_thread_pointer();
  ScheduleResult result_;
  Context root_;
  std::vector<std::unique_ptr<Thread>>
      threads_;                                 // all that have not ended, in order of their start
  std::vector<std::unique_ptr<Thread>> ended_;  // that may still be joined
  std::unique_ptr<Thread> leaving_;             // its stack is in use until the next switch
  std::vector<Thread*> ready_;                  // in order of their start
  // Those that wait with a deadline, by it and by their number.
  std::map<std::pair<uint64_t, int>, Thread*> timed_;
  // Those that wait for an object, by its address.
  std::vector<Thread*> waiters_[1024];
  Thread* current_ = nullptr;
  uint64_t now_ = kStart;
  int last_id_ = 0;
  bool telling_ = false;
  const Thread* failed_ = nullptr;  // in which the failure was found
  size_t told_ = 0;

  // The strategy.
  bool by_priority_ = false;
  uint64_t switch_one_in_ = 1;
  uint64_t hold_one_in_ = 0;  // 0: never
  bool may_hold_ = true;
  bool in_no_time_ = false;
  uint64_t spurious_one_in_ = 0;  // 0: never
  std::vector<uint64_t> falls_;   // decisions at which the running thread falls behind
  uint64_t lowest_ = 1'000'000;
};

Scheduler* scheduler = nullptr;
std::vector<std::pair<const char*, const char*>> left_out;  // begin and end of each object

bool IsLeftOut(const void* object) {
  return std::any_of(left_out.begin(), left_out.end(), [object](const auto& range) {
    return object >= range.first && object < range.second;
  });
}

Scheduler::Scheduler(const ScheduleOptions& options) : options_(options) {
  SeedDraws(options.seed);
  result_.hash = 0xCBF29CE484222325;
  by_priority_ = Draw(3) == 0;
  if (by_priority_) {
    const uint64_t falls = Draw(6), within = uint64_t{64} << Draw(9);
    for (uint64_t i = 0; i < falls; ++i) falls_.push_back(Draw(within));
  } else {
    switch_one_in_ = uint64_t{1} << Draw(8);
  }
  if (Draw(2) == 0) hold_one_in_ = uint64_t{64} << Draw(8);
  if (Draw(4) == 0) spurious_one_in_ = uint64_t{16} << Draw(6);
}

// ---- threads

void Scheduler::Enter(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  if (scheduler->telling_) scheduler->TellThreads();
  const OnHost host(thread->host);
  thread->result = thread->routine(thread->argument);
  while (!thread->at_exit.empty()) {
    const auto [destroy, object] = thread->at_exit.back();
    thread->at_exit.pop_back();
    destroy(object);
  }
  while (!thread->specific.empty()) {
    const auto value = *thread->specific.begin();
    thread->specific.erase(thread->specific.begin());
    DestroySpecific(value.first, value.second);
  }
  Scheduler& self = *scheduler;
  thread->ended = true;
  self.Wake(Waits::kThread, thread, 1);
  const auto place = std::find_if(self.threads_.begin(), self.threads_.end(),
                                  [thread](const auto& other) { return other.get() == thread; });
  // The one that was leaving is not on its stack any more.
  self.leaving_ = nullptr;
  if (thread->detached) {
    self.leaving_ = std::move(*place);
  } else {
    self.ended_.push_back(std::move(*place));
  }
  self.threads_.erase(place);
  std::erase(self.ready_, thread);
  if (self.threads_.empty()) {
    self.current_ = nullptr;
    Context::Switch(thread->context, self.root_);
  }
  self.SwitchTo(self.Choose(self.Ready(true)));
  std::abort();  // nobody switches to a thread that has ended
}

Thread* Scheduler::Start(void* (*routine)(void*), void* argument) {
  threads_.push_back(std::make_unique<Thread>(++last_id_, CurrentHost(), &Enter));
  Thread* thread = threads_.back().get();
  thread->routine = routine;
  thread->argument = argument;
  thread->name = "thread-" + std::to_string(thread->id);
  if (by_priority_) thread->priority = 1'000'000 + Draw(1'000'000);
  MakeReady(thread);
  ++result_.threads;
  return thread;
}

ScheduleResult Scheduler::Run(const std::function<void()>& body) {
  const auto run = [](void* function) -> void* {
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  Thread* first = Start(run, const_cast<std::function<void()>*>(&body));
  first->name = "main";
  first->detached = true;
  current_ = first;
  Context::Switch(root_, first->context);
  leaving_ = nullptr;
  if (!ended_.empty())
    Fail("thread " + ended_.front()->name + " was neither joined nor detached", false);
  result_.simulated = std::chrono::nanoseconds(now_ - kStart);
  return result_;
}

void* Scheduler::Join(Thread* thread) {
  while (!thread->ended) Block(Waits::kThread, thread, kNever);
  void* const result = thread->result;
  Detach(thread);
  return result;
}

void Scheduler::Detach(Thread* thread) {
  thread->detached = true;
  std::erase_if(ended_, [thread](const auto& other) { return other.get() == thread; });
}

// ---- decisions

uint64_t Scheduler::Look() {
  now_ += in_no_time_ ? 1 : kLookTakes;
  return now_;
}

// Ends its wait.
void Scheduler::MakeReady(Thread* thread) {
  if (thread->deadline != kNever) timed_.erase({thread->deadline, thread->id});
  if (thread->object != nullptr) std::erase(WaitersNear(thread->object), thread);
  thread->waits = Waits::kNothing;
  thread->object = nullptr;
  thread->deadline = kNever;
  const auto place =
      std::lower_bound(ready_.begin(), ready_.end(), thread,
                       [](const Thread* a, const Thread* b) { return a->id < b->id; });
  ready_.insert(place, thread);
}

void Scheduler::PassDeadlines() {
  while (!timed_.empty() && timed_.begin()->first.first <= now_) {
    Thread* const thread = timed_.begin()->second;
    thread->timed_out = true;
    MakeReady(thread);
  }
}

const std::vector<Thread*>& Scheduler::Ready(bool must) {
  PassDeadlines();
  if (!ready_.empty() || !must) return ready_;
  if (timed_.empty()) Fail("all threads wait for ever", true);
  now_ = timed_.begin()->first.first;
  if (std::chrono::nanoseconds(now_ - kStart) > options_.longest)
    Fail("the schedule has not ended within its time", true);
  return Ready(true);
}

Thread* Scheduler::Choose(const std::vector<Thread*>& ready) {
  if (by_priority_) {
    return *std::max_element(ready.begin(), ready.end(), [](const Thread* a, const Thread* b) {
      return a->priority < b->priority;
    });
  }
  return ready[ready.size() == 1 ? 0 : Draw(ready.size())];
}

void Scheduler::SwitchTo(Thread* next) {
  if (next == current_) return;
  ++result_.switches;
  Mix(static_cast<uint64_t>(next->id));
  Mix(now_);
  Thread* const before = std::exchange(current_, next);
  if (options_.trace) Note("goes on");
  Context::Switch(before->context, next->context);
  if (telling_) TellThreads();
}

void Scheduler::Decide(uint64_t what) {
  Mix(what);
  if (!in_no_time_) now_ += kDecisionTakes;
  if (++result_.decisions > options_.most_decisions)
    Fail("the schedule has not ended after " + std::to_string(result_.decisions) + " decisions",
         true);
  if (std::chrono::nanoseconds(now_ - kStart) > options_.longest)
    Fail("the schedule has not ended within its time", true);
  if (may_hold_ && hold_one_in_ != 0 && Draw(hold_one_in_) == 0) {
    // Mostly short, seldom as long as deadlines are.
    const uint64_t longest = kLongestHold >> (2 * Draw(9));
    Block(Waits::kTime, nullptr, now_ + Draw(longest + 1));
    return;
  }
  if (by_priority_) {
    if (std::find(falls_.begin(), falls_.end(), result_.decisions) != falls_.end())
      current_->priority = --lowest_;
  } else if (switch_one_in_ > 1 && Draw(switch_one_in_) != 0) {
    PassDeadlines();
    return;
  }
  SwitchTo(Choose(Ready(false)));
}

bool Scheduler::Block(Waits waits, const void* object, uint64_t deadline) {
  Thread* const self = current_;
  self->waits = waits;
  self->object = object;
  self->deadline = deadline;
  self->timed_out = false;
  std::erase(ready_, self);
  if (deadline != kNever) timed_[{deadline, self->id}] = self;
  if (object != nullptr) WaitersNear(object).push_back(self);
  if (waits == Waits::kCondition && spurious_one_in_ != 0 && Draw(spurious_one_in_) == 0)
    MakeReady(self);  // a wait may end for no reason
  SwitchTo(Choose(Ready(true)));
  return !self->timed_out;
}

int Scheduler::Wake(Waits waits, const void* object, int most) {
  std::vector<Thread*> waiting;
  for (Thread* thread : WaitersNear(object)) {
    if (thread->waits == waits && thread->object == object) waiting.push_back(thread);
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const Thread* a, const Thread* b) { return a->id < b->id; });
  int woken = 0;
  while (woken < most && !waiting.empty()) {
    const size_t i = waiting.size() == 1 ? 0 : Draw(waiting.size());
    MakeReady(waiting[i]);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
    ++woken;
  }
  return woken;
}

bool Scheduler::HasWaiter(Waits waits, const void* object) {
  const auto& near = WaitersNear(object);
  return std::any_of(near.begin(), near.end(), [&](const Thread* thread) {
    return thread->waits == waits && thread->object == object;
  });
}

void Scheduler::Yield() {
  if (in_no_time_) {
    Block(Waits::kTime, nullptr, now_ + kYieldWaits);
    return;
  }
  now_ += kYieldTakes;
  if (by_priority_) current_->priority = --lowest_;
  // Who yields waits for others; if all of them wait for a time, so does it.
  const auto& ready = Ready(false);
  if (ready.size() == 1 && !timed_.empty())
    now_ = std::max(now_, std::min(timed_.begin()->first.first, now_ + 1'000'000));
  SwitchTo(Choose(Ready(false)));
  Decide(9);
}

// ---- failures

std::string Scheduler::Describe(const Thread& thread) const {
  std::string text = "  " + thread.name + " (" + std::to_string(thread.id) + ", host " +
                     std::to_string(thread.host) + ")";
  if (&thread == failed_) text += " (here)";
  if (thread.waits == Waits::kNothing) return text + " could go on";
  char object[40];
  std::snprintf(object, sizeof object, " %p", thread.object);
  text += std::string(" waits for ") + kWaitNames[static_cast<int>(thread.waits)] + object;
  if (thread.waits == Waits::kMutex) {
    const int holder = static_cast<const pthread_mutex_t*>(thread.object)->__data.__lock;
    text += " that thread " + std::to_string(holder) + " holds";
  }
  if (thread.deadline != kNever)
    text += ", for " + std::to_string((thread.deadline - now_) / 1'000'000) + " ms more";
  return text;
}

// Each thread that waits is resumed once and tells where it is.
void Scheduler::TellThreads() {
  const auto tell = [this](const Thread& thread) {
    std::fprintf(stderr, "%s\n", Describe(thread).c_str());
    void* frames[40];
    const int count = backtrace(frames, 40);
    int told = 0;
    for (int i = 0; i < count && told < 16; ++i) {
      Dl_info info{};
      if (dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
      int failed = 0;
      char* name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &failed);
      const std::string text = failed == 0 ? name : info.dli_sname;
      std::free(name);
      if (text.find("monograph::simulation::") != std::string::npos || text.starts_with("std::") ||
          text.starts_with("pthread_"))
        continue;
      std::fprintf(stderr, "      %.150s\n", text.c_str());
      ++told;
    }
  };
  tell(*current_);
  while (told_ < threads_.size() && threads_[told_].get() == failed_) ++told_;
  if (told_ < threads_.size()) {
    Thread* const before = std::exchange(current_, threads_[told_++].get());
    Context::Switch(before->context, current_->context);
  }
  std::fflush(stderr);
  _exit(kFailed);
}

void Scheduler::Fail(const std::string& text, bool with_threads) {
  std::fprintf(stderr, "seed %llu: %s\n  after %.6f s, %llu decisions, in thread %s\n",
               static_cast<unsigned long long>(options_.seed), text.c_str(),
               static_cast<double>(now_ - kStart) / 1e9,
               static_cast<unsigned long long>(result_.decisions),
               current_ == nullptr ? "none" : current_->name.c_str());
  if (telling_ || !with_threads || current_ == nullptr) _exit(kFailed);
  telling_ = true;
  failed_ = current_;
  TellThreads();
  std::abort();
}

void Scheduler::Note(const std::string& text) const {
  std::fprintf(stderr, "%12.6f ms  %s(%d): %s\n", static_cast<double>(now_ - kStart) / 1e6,
               current_ == nullptr ? "-" : current_->name.c_str(),
               current_ == nullptr ? 0 : current_->id, text.c_str());
}

// What each interposed function is in the hash.
enum Decision : uint64_t { kLock = 1, kUnlock, kWait, kNotify, kStartThread, kShare, kWaitValue };

}  // namespace

// ---- scheduler.h

ScheduleResult RunSchedule(const ScheduleOptions& options, const std::function<void()>& body) {
  Scheduler own(options);
  scheduler = &own;
  ScheduleResult result = own.Run(body);
  scheduler = nullptr;
  return result;
}

LeftOut::LeftOut(const void* object, size_t bytes) : object_(object) {
  const char* const begin = static_cast<const char*>(object);
  left_out.emplace_back(begin, begin + bytes);
}

LeftOut::~LeftOut() {
  std::erase_if(left_out, [this](const auto& range) { return range.first == object_; });
}

void HoldThreads(bool may) {
  if (scheduler != nullptr) scheduler->HoldThreads(may);
}

void ComputeInNoTime(bool does) {
  if (scheduler != nullptr) scheduler->ComputeInNoTime(does);
}

void Fail(const std::string& text, bool with_threads) {
  if (scheduler != nullptr) scheduler->Fail(text, with_threads);
  std::fprintf(stderr, "%s\n", text.c_str());
  _exit(kFailed);
}

void Note(const std::string& text) {
  if (Tracing()) scheduler->Note(text);
}

bool Tracing() { return scheduler != nullptr && scheduler->tracing(); }

// ---- threads.h

bool Simulated() { return scheduler != nullptr && scheduler->Owns(); }

uint64_t NowNanoseconds() { return scheduler->Look(); }

uint64_t PeekNanoseconds() { return scheduler->now(); }

namespace {

// Without a decision before: for what goes on after a wait.
void Acquire(pthread_mutex_t* mutex) {
  const int self = scheduler->current()->id;
  while (mutex->__data.__lock != 0) {
    if (mutex->__data.__lock == self && mutex->__data.__kind != PTHREAD_MUTEX_RECURSIVE)
      Fail("a thread locks a mutex that it holds already");
    if (mutex->__data.__lock == self) break;
    scheduler->Block(Waits::kMutex, mutex, kNever);
  }
  mutex->__data.__lock = self;
  ++mutex->__data.__count;
}

void Release(pthread_mutex_t* mutex) {
  if (mutex->__data.__lock != scheduler->current()->id)
    Fail("a thread unlocks a mutex that it does not hold");
  if (--mutex->__data.__count != 0) return;
  mutex->__data.__lock = 0;
  scheduler->Wake(Waits::kMutex, mutex, 1);
}

}  // namespace

void LockMutex(pthread_mutex_t* mutex) {
  if (!IsLeftOut(mutex)) scheduler->Decide(kLock);
  Acquire(mutex);
}

bool TryLockMutex(pthread_mutex_t* mutex) {
  scheduler->Decide(kLock);
  const int self = scheduler->current()->id;
  const bool again =
      mutex->__data.__lock == self && mutex->__data.__kind == PTHREAD_MUTEX_RECURSIVE;
  if (mutex->__data.__lock != 0 && !again) return false;
  Acquire(mutex);
  return true;
}

void UnlockMutex(pthread_mutex_t* mutex) {
  Release(mutex);
  if (!IsLeftOut(mutex)) scheduler->Decide(kUnlock);
}

bool LockReaders(pthread_rwlock_t* lock, bool write, bool wait, bool decides) {
  if (decides) scheduler->Decide(kShare);
  while (lock->__data.__cur_writer != 0 || (write && lock->__data.__readers != 0)) {
    if (!wait) return false;
    scheduler->Block(Waits::kReaders, lock, kNever);
  }
  if (write) {
    lock->__data.__cur_writer = scheduler->current()->id;
  } else {
    ++lock->__data.__readers;
  }
  return true;
}

void UnlockReaders(pthread_rwlock_t* lock, bool decides) {
  if (lock->__data.__cur_writer != 0) {
    if (lock->__data.__cur_writer != scheduler->current()->id)
      Fail("a thread unlocks a shared mutex that another one has locked");
    lock->__data.__cur_writer = 0;
  } else if (lock->__data.__readers-- == 0) {
    Fail("a thread unlocks a shared mutex that nobody has locked");
  }
  scheduler->Wake(Waits::kReaders, lock, 1 << 20);
  if (decides) scheduler->Decide(kShare);
}

bool WaitCondition(pthread_cond_t* condition, pthread_mutex_t* mutex, uint64_t deadline) {
  scheduler->Decide(kWait);
  Release(mutex);
  const bool in_time = scheduler->Block(Waits::kCondition, condition, deadline);
  Acquire(mutex);
  return in_time;
}

void Notify(pthread_cond_t* condition, bool all) {
  scheduler->Decide(kNotify);
  scheduler->Wake(Waits::kCondition, condition, all ? 1 << 20 : 1);
}

void DestroyCondition(pthread_cond_t* condition) {
  if (scheduler->HasWaiter(Waits::kCondition, condition))
    Fail("a condition is destroyed that a thread waits for");
}

// The C library's numbers: 0 before, 1 during, 2 after the call. The decision comes last: until the
// routine has begun, std::call_once keeps what it shall call in a thread_local variable of the
// standard library, which all simulated threads share.
void CallOnce(pthread_once_t* once, void (*routine)(), bool decides) {
  while (*once == 1) scheduler->Block(Waits::kFutex, once, kNever);
  if (*once == 0) {
    *once = 1;
    routine();
    *once = 2;
    scheduler->Wake(Waits::kFutex, once, 1 << 20);
  }
  if (decides) scheduler->Decide(kLock);
}

int WaitFutex(const void* address, uint32_t expected, uint64_t deadline) {
  scheduler->Decide(kWaitValue);
  if (*static_cast<const volatile uint32_t*>(address) != expected) return EAGAIN;
  return scheduler->Block(Waits::kFutex, address, deadline) ? 0 : ETIMEDOUT;
}

// The standard library may wake who is not there: it counts waiters of several addresses together.
int WakeFutex(const void* address, int most) {
  if (!scheduler->HasWaiter(Waits::kFutex, address)) return 0;
  scheduler->Decide(kWaitValue);
  return scheduler->Wake(Waits::kFutex, address, most);
}

Thread* StartSimulated(void* (*routine)(void*), void* argument) {
  Thread* thread = scheduler->Start(routine, argument);
  scheduler->Decide(kStartThread);
  return thread;
}

void* JoinSimulated(Thread* thread) { return scheduler->Join(thread); }

void DetachSimulated(Thread* thread) { scheduler->Detach(thread); }

Thread* CurrentThread() { return scheduler->current(); }

void NameSimulated(Thread* thread, const char* name) { thread->name = name; }

void* GetSpecific(unsigned key) {
  const auto& values = scheduler->current()->specific;
  const auto found = values.find(key);
  return found == values.end() ? nullptr : found->second;
}

void SetSpecific(unsigned key, void* value) {
  auto& values = scheduler->current()->specific;
  if (value == nullptr) {
    values.erase(key);
  } else {
    values[key] = value;
  }
}

void AtThreadExit(void (*destroy)(void*), void* object) {
  scheduler->current()->at_exit.emplace_back(destroy, object);
}

void SleepUntil(uint64_t deadline) { scheduler->Block(Waits::kTime, nullptr, deadline); }

void YieldThread() { scheduler->Yield(); }

}  // namespace monograph::simulation
