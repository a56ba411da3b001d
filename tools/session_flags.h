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
#include "tools/gpu_flags.h"
#include "tools/transport_flags.h"

namespace monograph {

struct SessionFlags : ClusterFlags {
  // Where.
  std::string key_file, device_filters;
  double start_timeout = 30;  // seconds
  // How.
  std::string log_device_placement = "none", placement_file, opt_level = "L1";
  bool allow_soft_placement = false;
  int inter_op_parallelism_threads = 0, intra_op_parallelism_threads = 0;
  double operation_timeout = 0;  // seconds; 0: none
  TransportFlags transport;
  // Of a session without a cluster; daemons have their own.
  GpuFlags gpu;

  // Parsing fails if Cluster() or Options() would. REQUIRES: outlives the parsing.
  void AddTo(Flags* flags);
  // Only the flags that describe the cluster.
  void AddClusterTo(Flags* flags);
  // The cluster that ReadCluster() finds; none: everything runs in this process. FailedPrecondition
  // if there is none, but srun, mpirun or TF_CONFIG say that this is one of several processes,
  // unless --cluster=none says that each is to run alone.
  Result<std::optional<ClusterSpec>> Cluster() const;
  // InvalidArgument names the flag; a key file that cannot be used is reported with its path.
  Result<SessionOptions> Options() const;
  // A session on the cluster, or in this process with `local_devices` CPU devices.
  Result<std::unique_ptr<Session>> Open(const std::optional<ClusterSpec>& cluster,
                                        const Graph& graph, int local_devices = 1) const;
};

}  // namespace monograph
