// StubExecutors: a process that plays K executor daemons, whose steps take a given time and no CPU:
// what is left of a step's time is the client's. They speak the control plane and the data plane as
// a daemon does, over one transport that one thread drives.
#pragma once

#include <memory>

#include "bench/harness.h"
#include "client/cluster.h"

namespace monograph::bench {

class StubExecutors {
 public:
  // Forks. REQUIRES: this process has no other threads yet.
  explicit StubExecutors(int count);

  const ClusterSpec& cluster() const { return cluster_; }  // job worker
  // How long each step takes from now on.
  void SetStepTime(double seconds);
  // Every executor runs `steps` steps by itself, one after the other, without a client. Seconds per
  // step.
  double RunFree(long steps);

 private:
  std::unique_ptr<Child> child_;
  ClusterSpec cluster_;
};

}  // namespace monograph::bench
