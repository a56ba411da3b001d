// ClusterStatus: what every daemon of a cluster says of itself; what `monograph status` prints.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/cluster.h"
#include "executor/worker/task_status.h"
#include "transport/control/key_ring.h"

namespace monograph {

struct ClusterTask {
  std::string task, address;
  Result<TaskStatus> status;  // or why it cannot be reached
};

// Asks all tasks at the same time, each over a connection of its own, for at most `timeout`. In
// order of jobs and tasks.
std::vector<ClusterTask> AskCluster(const ClusterSpec& cluster,
                                    const std::optional<control::KeyRing>& key,
                                    std::chrono::milliseconds timeout);

// A table, a line per task.
std::string FormatClusterStatus(const std::vector<ClusterTask>& tasks);
// The same as JSON, an object whose fields docs/programs.md lists.
std::string ClusterStatusJson(const std::vector<ClusterTask>& tasks);

}  // namespace monograph
