// Who drives is decided under mutex_: a guest takes the role when nobody has it (DriveUntil); the
// progress thread (Run) gives it up when it sees a guest, and takes it back after a tick without
// one. Drive is the loop of either: poll, spin while nothing comes, sleep (Sleep), each time for
// longer as long as the descriptor has told of every message. Its relaxed reads are repeated by the
// next poll; all other atomics are in the default order, for the sake of Sleep.
#include "transport/drive/drive_loop.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/thread.h"

namespace monograph {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kTick{500};
// An idle driver polls from time to time, since an event descriptor may fail to report a message:
// often at first, and again after it has failed.
constexpr milliseconds kShortestSleep{1};
constexpr milliseconds kLongestSleep{64};
// kPollsPerYield: polls without success between two looks at the clock, each with a yield, since
// others may need this core to answer. kPollsPerClock: polls with success after which a guest looks
// at its deadline.
constexpr int kPollsPerYield = 10;
constexpr int kPollsPerClock = 512;
// A visit of a guest is long if it lasts kLongVisit times the spin or more. After kPatience long
// ones in a row guests do not spin, until a visit was not long.
constexpr int kLongVisit = 40;
constexpr int kPatience = 4;
// A yield longer than kLongYield means that other programs share the core. The scheduler favours
// sleepers, so nobody spins for kCrowded.
constexpr microseconds kLongYield{200};
constexpr milliseconds kCrowded{100};

}  // namespace

DriveLoop::DriveLoop(Driven* driven, microseconds spin, std::string thread_name)
    : driven_(driven),
      spin_(spin),
      thread_name_(std::move(thread_name)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      trust_(kShortestSleep) {
  MG_CHECK(wake_.get() >= 0);
}

DriveLoop::~DriveLoop() { MG_CHECK(!thread_.joinable()); }

void DriveLoop::Start() {
  if (started_.load()) return;
  MutexLock lock(mutex_);
  if (started_.load() || finish_.load()) return;
  thread_ = StartThread(thread_name_, [this] { Run(); });
  started_.store(true);
}

void DriveLoop::SignalSleeper() {
  if (sleeping_.load() && sleeping_.exchange(false)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }
}

void DriveLoop::Wake() {
  wakes_.fetch_add(1);
  SignalSleeper();
  if (waiting_.load() > 0) {
    MutexLock lock(mutex_);
    turn_.NotifyAll();
  }
}

void DriveLoop::Notify() { SignalSleeper(); }

void DriveLoop::Stop() {
  MutexLock lock(mutex_);
  stop_.store(true);
  SignalSleeper();
  turn_.NotifyAll();
  thread_wake_.NotifyOne();
}

void DriveLoop::Join() {
  {
    MutexLock lock(mutex_);
    finish_.store(true);
    SignalSleeper();
    thread_wake_.NotifyOne();
  }
  if (std::exchange(joined_, true)) return;
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();  // waits for guests to leave, then calls Finish
  }
}

bool DriveLoop::DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline) {
  if (ready()) return true;
  MutexLock lock(mutex_);
  guests_.fetch_add(1);
  ++visits_;
  bool mine = false;
  while (!stop_.load()) {
    if (!driving_.load()) {
      mine = true;
      break;
    }
    SignalSleeper();  // the progress thread steps back when it sees a guest
    const auto now = Clock::now();
    if (now >= deadline) break;
    waiting_.fetch_add(1);
    turn_.WaitUntil(mutex_, std::min(deadline, now + milliseconds(1)));
    waiting_.fetch_sub(1);
    lock.Unlock();
    const bool done = ready();
    lock.Lock();
    if (done) break;
  }
  if (mine) {
    driving_.store(true);
    lock.Unlock();
    Drive(&ready, deadline);
    lock.Lock();
    driving_.store(false);
  }
  ++visits_;
  if (guests_.fetch_sub(1) > 1) {
    turn_.NotifyAll();
  } else if (stop_.load() || thread_state_ == ThreadState::kParked) {
    thread_wake_.NotifyOne();
  }
  lock.Unlock();
  return ready();
}

void DriveLoop::Run() {
  MutexLock lock(mutex_);
  bool quiet = true;  // no guest for a tick
  while (true) {
    if (!driving_.load() && (stop_.load() || finish_.load() || (guests_.load() == 0 && quiet))) {
      thread_state_ = ThreadState::kDriving;
      driving_.store(true);
      lock.Unlock();
      if (finish_.load()) {
        driven_->Finish();
        return;  // keeps the role: nobody drives any more
      }
      Drive(nullptr, Clock::time_point::max());
      lock.Lock();
      driving_.store(false);
      quiet = false;
      turn_.NotifyAll();
      continue;
    }
    if (guests_.load() > 0 && thread_state_ == ThreadState::kParked) {
      thread_wake_.Wait(mutex_);
      quiet = false;  // a guest has just left, and may be back soon
      continue;
    }
    thread_state_ = ThreadState::kLingering;
    const uint64_t visits = visits_;
    thread_wake_.WaitFor(mutex_, kTick);
    quiet = visits == visits_;
    if (guests_.load() > 0 && (quiet || sleeping_.load())) thread_state_ = ThreadState::kParked;
  }
}

bool DriveLoop::Drive(const std::function<bool()>* ready, Clock::time_point deadline) {
  int idle_polls = 0;
  int busy_polls = 0;
  Idle idle;
  Clock::time_point spin_since, first_idle;
  bool slept = false;
  const Clock::duration spin =
      ready != nullptr && long_visits_ >= kPatience ? Clock::duration::zero() : spin_;
  Clock::duration often = kShortestSleep;  // the progress thread starts with short sleeps
  Clock::duration& trust = ready != nullptr ? trust_ : often;
  while (true) {
    const bool handled = driven_->Poll();
    if (handled && idle.is) {
      if (ready == nullptr || idle.overslept) trust = kShortestSleep;
      idle = {};
    }
    if (ready != nullptr) {
      if ((*ready)()) {
        const bool was_long = slept && Clock::now() - first_idle >= kLongVisit * spin_;
        long_visits_ = was_long ? long_visits_ + 1 : 0;
        return true;
      }
      if (stop_.load(std::memory_order_relaxed)) return false;
      if (handled && waiting_.load(std::memory_order_relaxed) > 0) {
        MutexLock lock(mutex_);
        turn_.NotifyAll();
      }
    } else if (finish_.load(std::memory_order_relaxed) ||
               (guests_.load(std::memory_order_relaxed) > 0 &&
                !stop_.load(std::memory_order_relaxed))) {
      return false;
    }
    if (handled) {
      idle_polls = 0;
      if (ready == nullptr || ++busy_polls < kPollsPerClock) continue;
      busy_polls = 0;
      if (Clock::now() >= deadline) return false;
      continue;
    }
    if (++idle_polls < kPollsPerYield) continue;
    idle_polls = 0;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    if (!idle.is) {
      idle.is = true;
      spin_since = now;
      if (first_idle == Clock::time_point()) first_idle = now;
    }
    if (now - spin_since < spin && now >= crowded_until_) {
      sched_yield();
      const auto back = Clock::now();
      if (back - now >= kLongYield) crowded_until_ = back + kCrowded;
      continue;
    }
    const Clock::duration trusted = driven_->busy() ? kShortestSleep : trust;
    const auto until = deadline - now > trusted ? now + trusted : deadline;
    Sleep(ready, until);
    slept = true;
    const auto woken = Clock::now();
    idle.overslept = woken >= until;
    if (idle.overslept) {  // poll once, then sleep again, for longer
      trust = std::clamp(2 * (until - now), trust, Clock::duration(kLongestSleep));
    } else {
      spin_since = woken;
    }
  }
}

// The default order is needed here: this thread sets sleeping_ and then reads wakes_ and the flags,
// while others write these and then read sleeping_ (SignalSleeper). One of the two must see what
// the other has written, or a wake-up is lost.
void DriveLoop::Sleep(const std::function<bool()>* ready, Clock::time_point until) {
  const uint64_t wakes = wakes_.load();
  sleeping_.store(true);
  const bool leave = ready != nullptr ? (*ready)() || stop_.load()
                                      : finish_.load() || (guests_.load() > 0 && !stop_.load());
  const bool look_again = leave || wakes != wakes_.load() || !driven_->Arm();
  if (look_again) {
    sleeping_.store(false);
    return;
  }
  pollfd fds[2] = {{wake_.get(), POLLIN, 0}, {driven_->event_fd(), POLLIN, 0}};
  const auto timeout = std::max(until - Clock::now(), Clock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec spec{static_cast<time_t>(seconds.count()),
                      static_cast<long>(std::chrono::nanoseconds(timeout - seconds).count())};
  ppoll(fds, 2, &spec, nullptr);
  sleeping_.store(false);
  if ((fds[0].revents & POLLIN) != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  }
}

}  // namespace monograph
