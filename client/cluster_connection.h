// ClusterConnection: the client's control channels to every daemon of a cluster, with heartbeats.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/device_info.h"
#include "base/status.h"
#include "client/cluster.h"
#include "executor/kernel.h"
#include "transport/control/key_ring.h"

namespace monograph {

// What a daemon said of itself when the client connected.
struct RemoteTask {
  DeviceName name;   // job, replica, task
  std::string task;  // the same as text
  std::string address;
  std::vector<DeviceInfo> devices;
  std::vector<KernelDef> gpu_kernels;  // op, device and types of each
  uint64_t incarnation = 0;
};

class ClusterConnection {
 public:
  struct Options {
    std::vector<std::string> device_filters;
    std::chrono::milliseconds start_timeout{30000};
    std::optional<control::KeyRing> key;
    std::string fingerprint;  // of the op registry
    // A task was lost: its index in tasks() and why, naming the task. At most once per task, on a
    // thread of the control plane; must not block for more than a tenth of a second.
    std::function<void(int task, const Status& why)> on_lost;
  };

  // Waits for all tasks at once, saying every second for which. Unavailable lists every task that
  // is missing and why.
  static Result<std::unique_ptr<ClusterConnection>> Connect(const ClusterSpec& cluster,
                                                            Options options);
  ~ClusterConnection();

  const std::vector<RemoteTask>& tasks() const;
  // OK, or why the task is lost.
  Status status(int task) const;
  // It has answered a heartbeat within the last second.
  bool Answers(int task) const;
  // Asks all tasks for a heartbeat now; whether the task has answered one that it was asked for at
  // this time or later.
  void Ask();
  bool HasAnsweredSince(int task, std::chrono::steady_clock::time_point time) const;

  // One call to each named task at the same time; results in the same order. Failures name the
  // task; one whose answer does not come in time counts as lost (Status::lost_task).
  std::vector<Result<std::string>> Call(std::string_view method,
                                        std::vector<std::pair<int, std::string>> requests,
                                        std::chrono::milliseconds timeout);
  // The same without waiting for the answer, which is ignored.
  void Notify(std::string_view method, int task, std::string request,
              std::chrono::milliseconds timeout);

  // Ends every pending call with Cancelled, and later ones. Idempotent.
  void Close();
  // When it returns, on_lost is not running and will not be called. Not to be called from on_lost.
  void StopWatching();

  // The daemon's clock minus ours, in nanoseconds, as heartbeats estimate it.
  int64_t ClockOffset(int task) const;

 private:
  class Impl;
  explicit ClusterConnection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
