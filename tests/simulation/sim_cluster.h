// A cluster whose tasks live in this process, each on a machine of the simulated network.
//
// Threads: one at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cluster.h"
#include "executor/worker/server.h"
#include "tests/simulation/network.h"
#include "transport/control/key_ring.h"

namespace monograph::simulation {

class SimCluster {
 public:
  // {{"ps", 1}, {"worker", 2}}: machines "ps-0", "worker-0", "worker-1". Nothing runs yet. Clients
  // need the key, if there is one.
  SimCluster(Network* network, const std::vector<std::pair<std::string, int>>& jobs,
             std::optional<control::KeyRing> key = {});
  ~SimCluster();

  const ClusterSpec& spec() const { return spec_; }
  const std::optional<control::KeyRing>& key() const { return key_; }
  // Starts every task that does not run.
  Status Start();

  // Of tasks: "ps-0", as their machines are named.
  Status Start(const std::string& task);
  int HostOf(const std::string& task) const { return network_->HostNamed(task); }
  Server* server(const std::string& task) const;  // nullptr: it does not run
  // The process is gone at once (its machine too, if `whole_machine`): nothing leaves it any more.
  // What is left of it is taken down in this process, which takes bounded time.
  void Kill(const std::string& task, bool whole_machine = false);
  // Starts it anew on its machine, as another process.
  Status Restart(const std::string& task);

 private:
  struct Task {
    std::string job;
    int index = 0;
    std::unique_ptr<Server> server;
  };

  Network* const network_;
  const std::optional<control::KeyRing> key_;
  ClusterSpec spec_;
  std::map<std::string, Task> tasks_;  // by the name of the machine
};

}  // namespace monograph::simulation
