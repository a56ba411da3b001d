// DriveLoop: who drives a transport, and how it waits.
//
// Exactly one thread at a time holds the driving role: the loop's own progress thread, or a guest
// inside DriveUntil. The driver polls, spins while nothing comes, then sleeps on file descriptors.
// A guest whose last visits were all long does not spin.
//
//   progress thread:  driving --guest comes--> lingering --a tick without any guest--> driving
//                                                 |  ^
//             a guest sleeps or stays for a tick  v  |  the guest leaves
//                                                parked
//
// The progress thread may be started late: what nobody needs yet costs no thread, and until then
// only guests drive.
//
// Lingering keeps hand-overs cheap: a client that calls DriveUntil again and again takes the role
// without waking anybody. What arrives when nobody drives waits for at most two ticks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "base/mutex.h"

namespace monograph {

// What is driven. Poll, Arm and Finish are called by the driving thread only.
class Driven {
 public:
  virtual ~Driven() = default;
  // Handles what is there; true if there was something.
  virtual bool Poll() = 0;
  // Prepares for sleep: from now on, whatever comes makes event_fd() readable or calls
  // DriveLoop::Notify. False if something is there already.
  virtual bool Arm() = 0;
  // Becomes readable when something comes; -1 if only Notify tells.
  virtual int event_fd() const = 0;
  // True while something that was started needs polling to complete.
  virtual bool busy() const = 0;
  // The last call, from Join, on the progress thread or, if that was never started, on the one that
  // joins: completes what is pending, in bounded time.
  virtual void Finish() = 0;
};

class DriveLoop {
 public:
  using Clock = std::chrono::steady_clock;

  // `driven` outlives the loop.
  DriveLoop(Driven* driven, std::chrono::microseconds spin, std::string thread_name);
  ~DriveLoop();  // REQUIRES: never started, or Stop and Join were called
  DriveLoop(const DriveLoop&) = delete;
  DriveLoop& operator=(const DriveLoop&) = delete;

  // Starts the progress thread, unless it was started or Join has begun. Cheap if it was.
  void Start();
  // Drives on the calling thread until ready() or the deadline or Stop; returns ready(). Not from
  // inside a callback.
  bool DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline);
  // Makes sleepers, and guests that wait for their turn, look again.
  void Wake();
  // Something has come that event_fd() does not show: ends the driver's sleep. Cheap if nobody
  // sleeps.
  void Notify();
  // From now on DriveUntil returns at once; the progress thread drives. Idempotent; returns at
  // once.
  void Stop();
  // Returns when Finish has returned and the progress thread has ended. For one thread at a time.
  // REQUIRES: Stop was called.
  void Join();

 private:
  enum class ThreadState { kDriving, kLingering, kParked };

  // A time without messages.
  struct Idle {
    bool is = false;
    bool overslept = false;  // the last sleep ended by the clock
  };

  void Run();
  bool Drive(const std::function<bool()>* ready, Clock::time_point deadline);
  void Sleep(const std::function<bool()>* ready, Clock::time_point until);
  void SignalSleeper();

  Driven* const driven_;
  const std::chrono::microseconds spin_;
  const std::string thread_name_;
  const Descriptor wake_;  // an eventfd

  // No spinning until this time. Used by the driver, and passed on with the role.
  Clock::time_point crowded_until_;
  // These two are used by the driving guest only, and passed on with the role.
  // How long to sleep at a time: it grows while the event descriptors report every message.
  Clock::duration trust_;
  // Number of long visits in a row; after kPatience of them guests do not spin, so that cores are
  // left to computing steps.
  uint64_t long_visits_ = 0;

  // Sequentially consistent: who goes to sleep or waits says so and then reads what would keep it
  // awake, who changes that writes it and then reads whether somebody sleeps or waits. One of the
  // two must see the other (drive_loop.cc, Sleep). Relaxed loads only between two polls: a change
  // is seen at the next one.
  std::atomic<bool> stop_{false};
  std::atomic<bool> started_{false};  // written under mutex_
  std::atomic<bool> finish_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> driving_{false};  // written under mutex_
  std::atomic<int> guests_{0};        // inside DriveUntil; written under mutex_
  std::atomic<int> waiting_{0};       // guests that wait for their turn
  std::atomic<uint64_t> wakes_{0};    // number of Wake calls

  Mutex mutex_;
  CondVar turn_;         // guests
  CondVar thread_wake_;  // the progress thread
  ThreadState thread_state_ MG_GUARDED_BY(mutex_) = ThreadState::kLingering;
  uint64_t visits_ MG_GUARDED_BY(mutex_) = 0;  // guests that came or left
  bool joined_ = false;                        // of who joins
  std::thread thread_;  // written under mutex_, before finish_ is set; then used by who joins
};

}  // namespace monograph
