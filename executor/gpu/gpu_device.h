// GpuDevice: a logical GPU of a task: its memory, its launching thread, and the thread that notices
// when copies and segments are done.
//
// The launching thread is the only one that issues work to Queue::kCompute; it never waits for the
// device, but in a joint launch for other members' launching threads (executor/gpu/joint_launch.h).
// Copies to and from the host are issued by whichever thread has the tensor. What is to happen when
// the device has come to a point is an Arrival: the completing thread looks at events, at once
// while it is busy and after naps of some tens of microseconds when nothing comes, and sleeps when
// nothing is awaited.
//
// A lost context (an illegal address in a kernel, say) ends everything that waits with Unavailable,
// and refuses what comes, until the process is started anew.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "executor/device.h"
#include "executor/gpu/driver.h"
#include "executor/gpu/memory.h"

namespace monograph {

// Work for the launching thread. Linked while it waits.
struct LaunchTask {
  virtual ~LaunchTask() = default;
  virtual void Run() = 0;  // once per Post
  uint64_t step = 0;       // earlier steps first, then
  int32_t order = 0;       // smaller first
  LaunchTask* next = nullptr;
};

// A callback for when the device has reached an event. Linked into a queue's list while it waits.
struct Arrival {
  virtual ~Arrival() = default;
  virtual void Arrived(const Status& status) = 0;  // on the completing thread
  EventId event = -1;  // of the device; -1: when all that was awaited on the queue before arrived
  Arrival* next = nullptr;
};

// Another part that issues work to the device (collectives); it is stopped before the device goes.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  virtual void Stop() = 0;
};

class GpuDevice : public Device {
 public:
  struct Options {
    size_t memory_limit = 0;
    bool allow_growth = false;
    bool replay = true;            // CUDA graphs
    int32_t min_replayed = 4;      // nodes
    bool launch_blocking = false;  // waits for each kernel, to name the one that fails
    bool exit_when_lost = false;   // ends the process, for a supervisor to start it anew
    bool separate_blocks = false;  // GpuMemory::Options::separate; nothing is replayed then
  };
  // `info` has name, description and memory limit.
  static Result<std::unique_ptr<GpuDevice>> Make(DeviceInfo info,
                                                 std::shared_ptr<StreamDriver> driver,
                                                 Options options);
  ~GpuDevice() override;  // as End
  // Nothing begins any more; waits for what is issued, but not for a device that hangs: its memory
  // then stays to the end of the process, and so does pinned memory of all its GPUs, since to free
  // it CUDA would wait for that device. Before any of them is destroyed, so that all know.
  void End();

  GpuDevice* gpu() override { return this; }
  DeviceStream* stream() { return driver_->stream(); }

  StreamDriver& driver() { return *driver_; }
  const std::shared_ptr<StreamDriver>& shared_driver() const { return driver_; }
  GpuMemory& memory() { return *memory_; }
  PinnedMemory& pinned() { return *pinned_; }
  const Options& options() const { return options_; }

  // The device's collectives from GPU to GPU (executor/gpu/members.h), which `make` makes at the
  // first call. `make` is a parameter because this file must not depend on members.h: it is also
  // compiled into the CUDA plug-in, which has no sessions.
  template <typename MakeFn>
  std::shared_ptr<DeviceWork> members(MakeFn make) {
    MutexLock lock(members_mutex_);
    if (members_ == nullptr) members_ = make();
    return members_;
  }

  Status health() const;  // Unavailable once the context is lost
  // Makes the context lost if the driver says so. Returns `status`, or the loss.
  Status Check(const Status& status);

  // Nothing tells any more, because of `why`, when what was issued is over and its memory free: the
  // context counts as lost. Returns the loss.
  Status LoseTrack(const Status& why);

  void Post(LaunchTask* task);

  // Issues what `issue` does to `queue`. Several threads may issue to one queue, but to kCompute
  // only the launching thread.
  template <typename IssueFn>
  Status Issue(Queue queue, IssueFn issue) {
    MutexLock lock(issuing_[static_cast<size_t>(queue)].mutex);
    MG_RETURN_IF_ERROR(health());
    return Check(issue());
  }
  // The same, and then an event; `arrival` hears of it, and may do so before this returns. Before
  // that, publish(event, number) is called, with the event's number on the queue. After a failure
  // `arrival` is not called, and nothing that `issue` did is under way, or the device is lost.
  template <typename IssueFn, typename PublishFn>
  Status IssueAndAwait(Queue queue, Arrival* arrival, IssueFn issue, PublishFn publish) {
    Issuing& issuing = issuing_[static_cast<size_t>(queue)];
    MutexLock lock(issuing.mutex);
    MG_RETURN_IF_ERROR(health());
    // Taken first: once something is issued, only an event tells when its memory is free.
    const Result<EventId> event = TakeEvent(queue);
    if (!event.ok()) return Check(event.status());
    if (const Status issued = issue(); !issued.ok()) {
      GiveEvent(queue, *event);
      return Check(issued);
    }
    if (const Status recorded = driver_->Record(*event, queue); !recorded.ok())
      return LoseTrack(recorded);
    arrival->event = *event;
    publish(*event, ++issuing.issued);
    Await(queue, arrival);
    return Status();
  }
  // `arrival` follows everything that is awaited on the queue so far.
  void AwaitLast(Queue queue, Arrival* arrival);
  // Lets `queue` wait until the device has completed `tick` (GpuMemory). REQUIRES: the tick ended.
  Status WaitForTick(Queue queue, uint64_t tick);
  // Lets `queue` of a driver, which may be a peer's, wait for all segments that have ended before.
  Status LetWaitForSegments(StreamDriver& waiting, Queue queue);
  // The launching thread's: begins a segment; ends it, with an event on kCompute.
  uint64_t BeginSegment() { return memory_->BeginTick(); }
  Status EndSegment(uint64_t tick);
  // Of CUDA graphs, since the start. Counted by the launching thread; in the default order, which
  // none of them needs.
  struct GraphCounts {
    std::atomic<uint64_t> captures{0}, replays{0};
    // Graphs that could not be captured or launched, whose nodes were launched one by one.
    std::atomic<uint64_t> fallbacks{0};
    std::atomic<uint64_t> nodes{0};  // launched one by one
  };
  GraphCounts& graph_counts() { return graph_counts_; }
  // The number up to which kCompute has waited for another queue of this device; the launching
  // thread's.
  uint64_t& compute_knows(Queue queue) { return compute_knows_[static_cast<size_t>(queue)]; }

 private:
  struct Tick;
  GpuDevice(DeviceInfo info, std::shared_ptr<StreamDriver> driver, Options options,
            GpuMemory::Owner memory);
  Result<EventId> TakeEvent(Queue queue);
  void GiveEvent(Queue queue, EventId event);
  void Await(Queue queue, Arrival* arrival);
  void Launching();
  void Completing();
  void Lose(const Status& status);
  // Whether all that was issued is over within a deadline.
  bool BecomesIdle();

  const std::shared_ptr<StreamDriver> driver_;
  const Options options_;
  GpuMemory::Owner memory_;
  PinnedMemory* const pinned_;

  struct Issuing {
    Mutex mutex;
    uint64_t issued MG_GUARDED_BY(mutex) = 0;
  };
  std::array<Issuing, kQueues> issuing_;

  std::array<uint64_t, kQueues> compute_knows_{};
  GraphCounts graph_counts_;

  mutable Mutex lost_mutex_;
  Status loss_ MG_GUARDED_BY(lost_mutex_);
  std::atomic<bool> lost_{false};

  Mutex launch_mutex_;
  CondVar launch_changed_;
  LaunchTask* tasks_ MG_GUARDED_BY(launch_mutex_) = nullptr;
  bool launch_stop_ MG_GUARDED_BY(launch_mutex_) = false;

  Mutex await_mutex_;
  CondVar await_changed_;
  struct Line {
    Arrival* first = nullptr;
    Arrival* last = nullptr;
  };
  std::array<Line, kQueues> lines_ MG_GUARDED_BY(await_mutex_);
  std::array<std::vector<EventId>, kQueues> events_ MG_GUARDED_BY(await_mutex_);  // that are free
  bool await_stop_ MG_GUARDED_BY(await_mutex_) = false;

  Mutex ticks_mutex_;
  std::vector<Tick*> free_ticks_ MG_GUARDED_BY(ticks_mutex_);
  std::vector<std::unique_ptr<Tick>> ticks_ MG_GUARDED_BY(ticks_mutex_);  // all
  Tick* first_tick_ MG_GUARDED_BY(ticks_mutex_) = nullptr;                // in flight, in order
  Tick* last_tick_ MG_GUARDED_BY(ticks_mutex_) = nullptr;

  Mutex members_mutex_;
  std::shared_ptr<DeviceWork> members_ MG_GUARDED_BY(members_mutex_);

  // Of the process: GPUs whose work may never end. A reference, as the plug-in and the program each
  // have their own copy of this code's statics. Default order: of losses and ends only.
  std::atomic<int>& unending_;
  bool counts_ MG_GUARDED_BY(lost_mutex_) = false;  // in unending_
  bool hangs_ = false;                              // the completing thread's, then End's

  std::thread launching_, completing_;
};

}  // namespace monograph
