#include "tests/simulation/sim_cluster.h"

#include "client/host.h"
#include "tests/simulation/host.h"

namespace monograph::simulation {

SimCluster::SimCluster(Network* network, const std::vector<std::pair<std::string, int>>& jobs,
                       std::optional<control::KeyRing> key)
    : network_(network), key_(std::move(key)) {
  for (const auto& [job, count] : jobs) {
    for (int index = 0; index < count; ++index) {
      const std::string name = job + "-" + std::to_string(index);
      network_->AddHost(name);
      MG_CHECK(spec_.AddTask(job, index, name + ":2222").ok());
      tasks_[name] = {job, index, nullptr};
    }
  }
}

SimCluster::~SimCluster() = default;

Status SimCluster::Start() {
  for (const auto& [name, task] : tasks_) {
    if (task.server == nullptr) MG_RETURN_IF_ERROR(Start(name));
  }
  return Status();
}

Status SimCluster::Start(const std::string& task) {
  Task& starting = tasks_.at(task);
  const OnHost here(HostOf(task));
  HostOptions options;
  options.key = key_;
  options.inter_op_parallelism_threads = 2;
  options.intra_op_parallelism_threads = 1;
  MG_ASSIGN_OR_RETURN(starting.server, HostTask(spec_, starting.job, starting.index, options));
  return Status();
}

Server* SimCluster::server(const std::string& task) const { return tasks_.at(task).server.get(); }

void SimCluster::Kill(const std::string& task, bool whole_machine) {
  const int host = HostOf(task);
  if (whole_machine) {
    network_->Crash(host);
  } else {
    network_->Kill(host);
  }
  const OnHost there(host);
  tasks_.at(task).server = nullptr;
}

Status SimCluster::Restart(const std::string& task) {
  network_->Restart(HostOf(task));
  return Start(task);
}

}  // namespace monograph::simulation
