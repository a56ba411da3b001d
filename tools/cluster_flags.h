// ClusterFlags: the flags by which a program's user names its cluster; the same for daemons and
// clients.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "client/cluster.h"
#include "tools/flags.h"

namespace monograph {

struct ClusterFlags {
  std::string cluster, ps_hosts, worker_hosts;

  // --cluster, --ps_hosts and --worker_hosts. REQUIRES: outlives the parsing.
  void AddNamesTo(Flags* flags);
  // The cluster of --cluster or of --ps_hosts and --worker_hosts; else of the environment's
  // MONOGRAPH_CLUSTER, which holds what --cluster may hold: a path, or the JSON itself. None if
  // nothing names one, or --cluster=none. Errors say which of the three is wrong.
  Result<std::optional<ClusterSpec>> ReadCluster() const;
  // True if a flag or the environment names a cluster, or --cluster=none says that there is none.
  bool given() const;
};

}  // namespace monograph
