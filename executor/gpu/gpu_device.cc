// The two threads of a GPU. Launching runs the posted tasks, those of earlier steps first.
// Completing looks at the first arrival of every queue: it polls while arrivals come, takes naps
// when they do not, and sleeps while nothing is awaited. It polls because it awaits several queues
// at once, and a driver's blocking wait is for one event. Once the context is lost, all that waits
// ends with that error, and with exit_when_lost the process ends a little later. A context may
// count as lost and yet live, because nothing tells any more what is over there; then who frees
// memory might wait for ever, and a device that does not become idle keeps its own.
#include "executor/gpu/gpu_device.h"

#include <sys/prctl.h>

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "executor/gpu/plugin.h"

namespace monograph {
namespace {

// The completing thread polls for kSpin without a nap; then it naps for kNap between two looks.
// Linux may prolong a nap by kNapSlackNs (50 us unless it is told otherwise).
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(20);
constexpr unsigned long kNapSlackNs = 1000;
// When a device is destroyed, its work may go on for so long without any progress; then the device
// counts as hung and is left alone.
constexpr auto kDrain = std::chrono::seconds(10);
// So long after a loss the process ends: time to report the failed steps.
constexpr auto kReport = std::chrono::seconds(2);

std::atomic<int>& Unending() {
  static std::atomic<int> unending{0};
  return unending;
}

}  // namespace

// The end of a segment.
struct GpuDevice::Tick : Arrival {
  GpuDevice* device = nullptr;
  uint64_t tick = 0;
  Tick* following = nullptr;

  void Arrived(const Status& status) override {
    // Do all of it under the lock: as soon as the record is free, the launching thread may use it
    // for another tick.
    MutexLock lock(device->ticks_mutex_);
    if (status.ok()) device->memory_->Completed(tick);
    device->first_tick_ = following;
    if (following == nullptr) device->last_tick_ = nullptr;
    device->free_ticks_.push_back(this);
  }
};

Result<std::unique_ptr<GpuDevice>> GpuDevice::Make(DeviceInfo info,
                                                   std::shared_ptr<StreamDriver> driver,
                                                   Options options) {
  MG_RETURN_IF_ERROR(driver->Enter());
  MG_ASSIGN_OR_RETURN(auto memory, GpuMemory::Make(driver, {.name = info.name.ToString(),
                                                            .limit = options.memory_limit,
                                                            .allow_growth = options.allow_growth,
                                                            .separate = options.separate_blocks}));
  return std::unique_ptr<GpuDevice>(
      new GpuDevice(std::move(info), std::move(driver), options, std::move(memory)));
}

GpuDevice::GpuDevice(DeviceInfo info, std::shared_ptr<StreamDriver> driver, Options options,
                     GpuMemory::Owner memory)
    : Device(std::move(info), memory.get()),
      driver_(std::move(driver)),
      options_(options),
      memory_(std::move(memory)),
      pinned_(PinnedMemory::Make(driver_)),
      unending_(Unending()) {
  const std::string id = std::to_string(this->info().name.id);
  launching_ = StartThread("mg-gpu" + id + "-launch", [this] { Launching(); });
  completing_ = StartThread("mg-gpu" + id + "-done", [this] { Completing(); });
}

GpuDevice::~GpuDevice() {
  End();
  for (auto& events : events_) {
    for (const EventId event : events) driver_->DropEvent(event);
  }
  bool stays;
  {
    MutexLock lock(lost_mutex_);
    stays = counts_;
  }
  if (stays) {
    LogError(name() +
             " does not end its work; its memory and the pinned memory stay to the process's end");
    (void)memory_.release();  // holds the driver
  }
  if (unending_.load() == 0) pinned_->Release();
}

void GpuDevice::End() {
  if (!launching_.joinable()) return;
  {
    MutexLock lock(launch_mutex_);
    launch_stop_ = true;
    launch_changed_.NotifyAll();
  }
  launching_.join();
  std::shared_ptr<DeviceWork> members;
  {
    MutexLock lock(members_mutex_);
    members = members_;
  }
  if (members != nullptr) members->Stop();
  {
    MutexLock lock(await_mutex_);
    await_stop_ = true;
    await_changed_.NotifyAll();
  }
  completing_.join();
  const bool ends = !hangs_ && (health().ok() || driver_->lost() || BecomesIdle());
  MutexLock lock(lost_mutex_);
  if (counts_ != ends) return;
  counts_ = !ends;
  unending_.fetch_add(ends ? -1 : 1);
}

bool GpuDevice::BecomesIdle() {
  std::vector<EventId> ends;
  bool idle = true;
  for (int queue = 0; queue < kQueues && idle; ++queue) {
    const Result<EventId> end = driver_->MakeEvent(/*timed=*/false);
    if (end.ok()) ends.push_back(*end);
    idle = end.ok() && driver_->Record(*end, static_cast<Queue>(queue)).ok();
  }
  const auto until = std::chrono::steady_clock::now() + kDrain;
  for (size_t i = 0; i < ends.size() && idle;) {
    const Result<bool> done = driver_->Done(ends[i]);
    if (done.ok() && *done) {
      ++i;
      continue;
    }
    // What a dead context has begun is over.
    if (!done.ok() && driver_->lost()) break;
    idle = done.ok() && std::chrono::steady_clock::now() < until;
    std::this_thread::sleep_for(kNap);
  }
  for (const EventId end : ends) driver_->DropEvent(end);
  return idle;
}

Status GpuDevice::health() const {
  if (!lost_.load(std::memory_order_acquire)) return Status();
  MutexLock lock(lost_mutex_);
  return loss_;
}

Status GpuDevice::Check(const Status& status) {
  if (status.ok()) [[likely]]
    return status;
  if (!driver_->lost()) return status;
  Lose(status);
  return health();
}

Status GpuDevice::LoseTrack(const Status& why) {
  Lose(why);
  return health();
}

void GpuDevice::Lose(const Status& status) {
  const bool lives = !driver_->lost();
  {
    MutexLock lock(lost_mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;  // relaxed: written under this lock only
    counts_ = lives;
    if (lives) unending_.fetch_add(1);
    // Without its GPU the task cannot go on with what it did.
    loss_ = TaskLost(info().name.TaskName(),
                     "the context of " + name() + " is lost (" + status.message() +
                         "); what it held is gone, and the task must be started anew, which " +
                         (options_.exit_when_lost
                              ? "this process leaves to who started it"
                              : "`monograph launch` or --exit_when_gpu_lost do by themselves"));
    lost_.store(true, std::memory_order_release);
    LogError(loss_.message());
  }
  MutexLock lock(await_mutex_);
  await_changed_.NotifyAll();
}

// ---- launching

void GpuDevice::Post(LaunchTask* task) {
  MutexLock lock(launch_mutex_);
  LaunchTask** at = &tasks_;
  while (*at != nullptr &&
         std::pair((*at)->step, (*at)->order) <= std::pair(task->step, task->order))
    at = &(*at)->next;
  task->next = std::exchange(*at, task);
  launch_changed_.NotifyOne();
}

void GpuDevice::Launching() {
  if (const Status status = driver_->Enter(); !status.ok()) Lose(status);
  MutexLock lock(launch_mutex_);
  for (;;) {
    launch_changed_.Wait(launch_mutex_, [this]() MG_REQUIRES(launch_mutex_) {
      return tasks_ != nullptr || launch_stop_;
    });
    if (tasks_ == nullptr) return;
    LaunchTask* const task = std::exchange(tasks_, tasks_->next);
    lock.Unlock();
    task->Run();
    lock.Lock();
  }
}

Status GpuDevice::EndSegment(uint64_t tick) {
  MutexLock lock(ticks_mutex_);  // held until it is in the list: it may arrive at once
  if (free_ticks_.empty()) {
    ticks_.push_back(std::make_unique<Tick>());
    free_ticks_.reserve(ticks_.size());
    free_ticks_.push_back(ticks_.back().get());
  }
  Tick* const record = free_ticks_.back();
  record->device = this;
  record->tick = tick;
  record->following = nullptr;
  // After a failure the tick has not ended: what it freed is for kCompute alone, until the event of
  // a later tick has come.
  MG_RETURN_IF_ERROR(IssueAndAwait(
      Queue::kCompute, record, [] { return Status(); }, [](EventId, uint64_t) {}));
  memory_->EndTick();
  free_ticks_.pop_back();
  (last_tick_ == nullptr ? first_tick_ : last_tick_->following) = record;
  last_tick_ = record;
  return Status();
}

Status GpuDevice::WaitForTick(Queue queue, uint64_t tick) {
  MutexLock lock(ticks_mutex_);
  if (tick <= memory_->completed()) return Status();
  for (Tick* record = first_tick_; record != nullptr; record = record->following) {
    if (record->tick >= tick) return driver_->Wait(queue, *driver_, record->event);
  }
  return Status();  // it arrived meanwhile
}

Status GpuDevice::LetWaitForSegments(StreamDriver& waiting, Queue queue) {
  MutexLock lock(ticks_mutex_);
  return last_tick_ == nullptr ? Status() : waiting.Wait(queue, *driver_, last_tick_->event);
}

// ---- completing

Result<EventId> GpuDevice::TakeEvent(Queue queue) {
  {
    MutexLock lock(await_mutex_);
    auto& events = events_[static_cast<size_t>(queue)];
    if (!events.empty()) {
      const EventId event = events.back();
      events.pop_back();
      return event;
    }
  }
  return driver_->MakeEvent(/*timed=*/false);
}

void GpuDevice::GiveEvent(Queue queue, EventId event) {
  MutexLock lock(await_mutex_);
  events_[static_cast<size_t>(queue)].push_back(event);
}

void GpuDevice::Await(Queue queue, Arrival* arrival) {
  MutexLock lock(await_mutex_);
  Line& line = lines_[static_cast<size_t>(queue)];
  arrival->next = nullptr;
  (line.first == nullptr ? line.first : line.last->next) = arrival;
  line.last = arrival;
  await_changed_.NotifyOne();
}

void GpuDevice::AwaitLast(Queue queue, Arrival* arrival) {
  arrival->event = -1;
  Await(queue, arrival);
}

void GpuDevice::Completing() {
  (void)prctl(PR_SET_TIMERSLACK, kNapSlackNs);
  if (const Status status = driver_->Enter(); !status.ok()) Lose(status);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto progress = now();
  bool stopping = false;
  MutexLock lock(await_mutex_);
  for (;;) {
    Arrival* arrived = nullptr;
    bool waiting = false;
    Status status;
    for (size_t queue = 0; queue < kQueues && arrived == nullptr; ++queue) {
      Line& line = lines_[queue];
      if (line.first == nullptr) continue;
      waiting = true;
      status = health();
      if (status.ok() && line.first->event >= 0) {
        const Result<bool> done = driver_->Done(line.first->event);
        if (done.ok() && !*done) continue;
        if (!done.ok()) {
          lock.Unlock();
          status = LoseTrack(done.status());
          lock.Lock();
        }
      }
      arrived = std::exchange(line.first, line.first->next);
      if (arrived->event >= 0) events_[queue].push_back(arrived->event);
    }
    if (arrived != nullptr) {
      lock.Unlock();
      arrived->Arrived(status);
      progress = now();
      lock.Lock();
      continue;
    }
    if (await_stop_ && !stopping) {
      stopping = true;
      progress = now();
    }
    if (!waiting) {
      // lost_ in the default order: this thread is about to sleep, so that it costs nothing.
      if (lost_.load() && options_.exit_when_lost && !await_stop_) {
        await_changed_.WaitFor(await_mutex_, kReport,
                               [this]() MG_REQUIRES(await_mutex_) { return await_stop_; });
        if (!await_stop_) {
          LogError("the process ends: a GPU's context is lost");
          std::_Exit(kGpuLostExit);
        }
      }
      if (await_stop_) return;
      await_changed_.Wait(await_mutex_);
      progress = now();
      continue;
    }
    if (stopping && now() - progress > kDrain) {
      hangs_ = true;
      return;
    }
    lock.Unlock();
    if (now() - progress < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
    lock.Lock();
  }
}

}  // namespace monograph
