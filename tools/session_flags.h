// SessionFlags: the flags by which a program's user says where it runs and how; the same in every
// program.
//
//   Flags flags("my_program", "...");
//   SessionFlags session_flags;
//   session_flags.AddTo(&flags);
//   if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
//   Result<std::optional<ClusterSpec>> cluster = session_flags.Cluster();
//   auto session = session_flags.Open(*cluster, graph, 2);
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "client/cluster.h"
#include "client/session.h"
#include "tools/cluster_flags.h"
#include "tools/flags.h"
#include "tools/task_flags.h"

namespace monograph {

struct SessionFlags : ClusterFlags {
  // What the flags set, but for the placement and the level of optimisation, which are words here.
  // GPUs are those of a session without a cluster; daemons have their own.
  SessionOptions options;
  KeyFlag key;
  std::string log_device_placement = "none", placement_file, opt_level = "L1";

  // Parsing fails if Cluster() would, or a value cannot be; the error names the flag, and a key
  // file that cannot be used by its path. REQUIRES: outlives the parsing.
  void AddTo(Flags* flags);
  // Only the flags that describe the cluster.
  void AddClusterTo(Flags* flags);
  // The cluster that ReadCluster() finds; none: everything runs in this process. FailedPrecondition
  // if there is none, but srun, mpirun or TF_CONFIG say that this is one of several processes,
  // unless --cluster=none says that each is to run alone.
  Result<std::optional<ClusterSpec>> Cluster() const;
  SessionOptions Options() const;
  // A session on the cluster, or in this process with `local_devices` CPU devices.
  Result<std::unique_ptr<Session>> Open(const std::optional<ClusterSpec>& cluster,
                                        const Graph& graph, int local_devices = 1) const;
};

}  // namespace monograph
