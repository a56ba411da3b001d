// LaunchPlan: what a launch starts, known before anything is started: the tasks and where they run,
// and the command lines of daemons and clients.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "client/cluster.h"
#include "tools/launch.h"
#include "tools/launch/child.h"
#include "tools/training_command.h"

namespace monograph {

// Files that commands name, and what daemons on other machines read.
struct LaunchFiles {
  std::string cluster;
  std::string key;
  const std::string* key_line;  // the key as in its file
};

struct PlannedTask {
  std::string job;
  int task = 0;
  std::string host;  // empty: this machine
};

class LaunchPlan {
 public:
  // InvalidArgument names the option that cannot be.
  static Result<LaunchPlan> Make(const LaunchOptions& options);

  const ClusterSpec& cluster() const { return cluster_; }
  bool remote() const { return !options_->hosts.empty(); }
  // "starting 1 ps and 2 workers; --ps and --workers say how many", if the user has not said both;
  // else empty.
  std::string Choices() const;
  // The clients are labelled, one per worker; false: there is one.
  bool client_per_worker() const;

  // The processes, daemons first. `files` must outlive them.
  std::vector<ChildCommand> Commands(const LaunchFiles& files) const;

 private:
  explicit LaunchPlan(const LaunchOptions& options)
      : options_(&options), program_(TrainingCommand::Read(options.command)) {}
  int WorkersFor(const std::string& host, int otherwise);
  Status PlaceTasks();
  Status GiveAddresses();
  std::vector<std::string> DaemonCommand(const PlannedTask& task, const LaunchFiles& files) const;
  int NumWorkers() const { return cluster_.num_tasks("worker"); }

  const LaunchOptions* options_;
  TrainingCommand program_;
  std::vector<PlannedTask> tasks_;
  bool by_gpus_ = false;  // a machine's GPUs say how many workers it has
  ClusterSpec cluster_;
};

// What was missing where a daemon could not be started, and what mends it; empty for a daemon that
// has ended otherwise.
std::string AdviceFor(const Child& daemon, const LaunchOptions& options);

}  // namespace monograph
