// Connecting goes in three phases: open a control channel to every task at the same time, ask each
// task what it is (devices, incarnation, GPU kernels), and watch it by heartbeats from then on.
// Connect waits for all channels before it fails, so that one error lists every task that is
// missing and not just the first. Calls to several tasks are sent at once, too; a latch waits for
// the answers, each of which has its own deadline.
#include "client/cluster_connection.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/system_memory.h"
#include "executor/worker/worker.pb.h"
#include "transport/control/channel.h"
#include "transport/control/heartbeat.h"
#include "transport/control/host_port.h"

namespace monograph {
namespace {

constexpr std::chrono::seconds kStatusTimeout(10);
// Twice the time between two heartbeats.
constexpr std::chrono::milliseconds kFresh(1000);

// Counts answers that come on other threads.
class Latch {
 public:
  explicit Latch(size_t count) : count_(count) {}
  void CountDown() {
    MutexLock lock(mutex_);
    if (--count_ == 0) zero_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    zero_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return count_ == 0; });
  }

 private:
  Mutex mutex_;
  CondVar zero_;
  size_t count_ MG_GUARDED_BY(mutex_);
};

// True if a session with these filters uses the task.
Result<bool> Admits(const std::vector<std::string>& filters, const DeviceName& task) {
  if (filters.empty()) return true;
  for (const std::string& text : filters) {
    MG_ASSIGN_OR_RETURN(DeviceName filter, DeviceName::Parse(text));
    filter.type = DeviceType();
    filter.id = -1;
    if (filter.Matches(task)) return true;
  }
  return false;
}

// An answer that has not come in time shows that the task is lost.
Result<std::string> NamingLost(Result<std::string> answer, const RemoteTask& task) {
  const Status status = answer.status();
  if (status.code() != Code::kDeadlineExceeded || !status.lost_task().empty()) return answer;
  return Status(status.code(), status.message(), task.task);
}

}  // namespace

class ClusterConnection::Impl {
 public:
  Status Connect(const ClusterSpec& cluster, Options options);
  ~Impl() { monitor_ = nullptr; }  // before the channels that it watches

  struct Entry {
    std::unique_ptr<control::Channel> channel;
    uint64_t watch = 0;
  };

  // Adds to the loss of a task of this machine that the system kills for lack of memory, if so.
  Status Explained(int task, const Status& why) const;

  Options options_;
  const std::optional<int64_t> kills_before_ = OutOfMemoryKills();
  std::vector<RemoteTask> tasks_;
  std::vector<Entry> entries_;
  std::unique_ptr<control::HeartbeatMonitor> monitor_;
  mutable Mutex mutex_;
  std::vector<Status> lost_ MG_GUARDED_BY(mutex_);  // by task
};

Status ClusterConnection::Impl::Connect(const ClusterSpec& cluster, Options options) {
  options_ = std::move(options);
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      RemoteTask task;
      task.name = {.job = job, .replica = 0, .task = index};
      task.task = task.name.TaskName();
      task.address = address;
      MG_ASSIGN_OR_RETURN(const bool used, Admits(options_.device_filters, task.name));
      if (used) tasks_.push_back(std::move(task));
    }
  }
  if (tasks_.empty())
    return InvalidArgument("the device filters let no task of the cluster through");
  entries_.resize(tasks_.size());
  {
    MutexLock lock(mutex_);
    lost_.resize(tasks_.size());
  }

  // All at once: each channel retries by itself until the time is up.
  std::vector<Status> outcomes(tasks_.size());
  Latch connected(tasks_.size());
  for (size_t i = 0; i < tasks_.size(); ++i) {
    control::ChannelOptions channel;
    channel.key = options_.key;
    channel.hello.task_name = "/job:client/replica:0/task:0";
    channel.hello.fingerprint = options_.fingerprint;
    channel.timeout = options_.start_timeout;
    channel.expected_task = tasks_[i].task;
    control::Channel::ConnectAsync(
        tasks_[i].address, std::move(channel),
        [this, i, &outcomes, &connected](Result<std::unique_ptr<control::Channel>> result) {
          outcomes[i] = result.status();
          if (result.ok()) entries_[i].channel = std::move(result).value();
          connected.CountDown();
        });
  }
  connected.Wait();
  std::string missing;
  Status first;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (outcomes[i].ok()) continue;
    first.Update(outcomes[i]);
    missing += "\n  " + outcomes[i].message();
  }
  if (!missing.empty()) {
    return Status(
        first.code(),
        "cannot reach every task of the cluster; missing are:" + missing +
            (first.code() == Code::kUnavailable
                 ? "\nStart each with: monograph-executor --cluster=... --job=NAME --task=N"
                 : ""));
  }

  control::HeartbeatOptions heartbeat;
  monitor_ = control::HeartbeatMonitor::Start(heartbeat);
  // Heartbeats come first: they end calls to a task that is lost.
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const int index = static_cast<int>(i);
    entries_[i].watch = monitor_->Watch(*entries_[i].channel,
                                        [this, index](const std::string&, const Status& lost) {
                                          const Status why = Explained(index, lost);
                                          {
                                            MutexLock lock(mutex_);
                                            lost_[static_cast<size_t>(index)] = why;
                                          }
                                          LogWarning(why.message());
                                          if (options_.on_lost) options_.on_lost(index, why);
                                        });
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    RemoteTask& task = tasks_[i];
    MG_ASSIGN_OR_RETURN(const std::string bytes,
                        NamingLost(entries_[i].channel->Call("Status", "", kStatusTimeout), task));
    wire::StatusResponse response;
    if (!response.ParseFromString(bytes))
      return Internal("malformed answer to Status from " + task.task);
    task.incarnation = response.incarnation();
    for (const wire::Device& device : response.devices()) {
      MG_ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(device.name()));
      task.devices.push_back({std::move(name), device.description(), device.memory_limit(),
                              response.incarnation(), device.link()});
    }
    // Kernels that differ only in priority are listed once.
    std::set<std::pair<std::string, std::vector<std::pair<std::string, DType>>>> seen;
    for (const wire::Kernel& kernel : response.gpu_kernels()) {
      KernelDef def{.op = kernel.op(), .device = kGpu};
      for (int type = 0; type < std::min(kernel.attrs_size(), kernel.dtypes_size()); ++type)
        def.types.emplace_back(kernel.attrs(type), static_cast<DType>(kernel.dtypes(type)));
      std::sort(def.types.begin(), def.types.end());
      if (seen.emplace(def.op, def.types).second) task.gpu_kernels.push_back(std::move(def));
    }
  }
  return Status();
}

Status ClusterConnection::Impl::Explained(int task, const Status& why) const {
  const auto address = control::ParseHostPort(tasks_[static_cast<size_t>(task)].address);
  if (!address.ok() || !control::IsLoopback(address->host)) return why;
  const std::optional<int64_t> kills = OutOfMemoryKills();
  if (!kills || !kills_before_ || *kills <= *kills_before_) return why;
  return why.WithMessage(why.message() +
                         "; killed by the system for lack of memory, as it seems: it has killed a "
                         "process of this machine since this client connected");
}

ClusterConnection::ClusterConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClusterConnection::~ClusterConnection() = default;

Result<std::unique_ptr<ClusterConnection>> ClusterConnection::Connect(const ClusterSpec& cluster,
                                                                      Options options) {
  auto impl = std::make_unique<Impl>();
  MG_RETURN_IF_ERROR(impl->Connect(cluster, std::move(options)));
  return std::unique_ptr<ClusterConnection>(new ClusterConnection(std::move(impl)));
}

const std::vector<RemoteTask>& ClusterConnection::tasks() const { return impl_->tasks_; }

Status ClusterConnection::status(int task) const {
  MutexLock lock(impl_->mutex_);
  return impl_->lost_[static_cast<size_t>(task)];
}

bool ClusterConnection::Answers(int task) const {
  const auto health = impl_->monitor_->Health(impl_->entries_[static_cast<size_t>(task)].watch);
  return health && std::chrono::steady_clock::now() - health->last_answer < kFresh;
}

void ClusterConnection::Ask() { impl_->monitor_->Ask(); }

bool ClusterConnection::HasAnsweredSince(int task,
                                         std::chrono::steady_clock::time_point time) const {
  const auto health = impl_->monitor_->Health(impl_->entries_[static_cast<size_t>(task)].watch);
  return health && health->asked >= time;
}

std::vector<Result<std::string>> ClusterConnection::Call(
    std::string_view method, std::vector<std::pair<int, std::string>> requests,
    std::chrono::milliseconds timeout) {
  std::vector<Result<std::string>> responses(requests.size(), Result<std::string>(std::string()));
  if (requests.empty()) return responses;
  Latch answered(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& [task, request] = requests[i];
    impl_->entries_[static_cast<size_t>(task)].channel->CallAsync(
        std::string(method), std::move(request), timeout,
        [&responses, &answered, i,
         &remote = impl_->tasks_[static_cast<size_t>(task)]](Result<std::string> response) {
          responses[i] = NamingLost(std::move(response), remote);
          answered.CountDown();
        });
  }
  answered.Wait();  // every call has its own deadline
  return responses;
}

void ClusterConnection::Notify(std::string_view method, int task, std::string request,
                               std::chrono::milliseconds timeout) {
  impl_->entries_[static_cast<size_t>(task)].channel->CallAsync(
      std::string(method), std::move(request), timeout, [](const Result<std::string>&) {});
}

void ClusterConnection::Close() {
  for (const auto& entry : impl_->entries_) {
    if (entry.channel != nullptr) entry.channel->Close();
  }
}

void ClusterConnection::StopWatching() { impl_->monitor_ = nullptr; }

int64_t ClusterConnection::ClockOffset(int task) const {
  const auto health = impl_->monitor_->Health(impl_->entries_[static_cast<size_t>(task)].watch);
  return health ? health->clock_offset.count() : 0;
}

}  // namespace monograph
