#include "tests/simulation/scenario.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simulation/scenarios.h"

namespace monograph::simulation {

std::span<const Scenario> Scenarios() {
  static constexpr Scenario kScenarios[] = {
      {"callers", "threads run steps of one session, here or on a cluster, which may close",
       RunCallers},
      {"steps", "steps on a cluster while links and tasks are lost, and the next session's",
       RunClusterSteps},
      {"partition", "the link between a worker and the ps is cut; the client reaches both",
       RunPartition},
      {"all_reduce", "sums of two or three workers, by one client or one each, with losses",
       RunAllReduce},
      {"recovery", "counts are saved and restored while links and tasks are lost", RunRecovery},
      {"clients", "clients come and go, and are killed", RunClientsThatGo},
      {"transfers", "a connection between two tasks breaks while a tensor is on its way",
       RunTransfers},
      {"sessions", "one session after another, which leaves nothing in the daemons", RunSessions},
      {"jobs", "a job with checkpoints that loses tasks, links, clients and disks", RunJobs},
      {"neighbours", "two sessions on the same tasks, of which one loses its worker",
       RunNeighbours},
      {"gpus", "collectives of 2 to 64 GPUs in random graphs, several steps at once", RunGpus,
       std::chrono::seconds(600), 50'000'000},
      {"gpu_losses", "a GPU, its process or its machine is lost; the others go on", RunGpuLosses,
       std::chrono::seconds(600), 20'000'000},
      {"gpu_client_losses", "the same with a client for each worker", RunGpuClientLosses,
       std::chrono::seconds(600), 20'000'000},
  };
  return kScenarios;
}

const std::string& ScratchFolder() {
  static const std::string folder = [] {
    for (std::string name :
         {"/dev/shm/monograph-simulation-XXXXXX", "/tmp/monograph-simulation-XXXXXX"}) {
      if (mkdtemp(name.data()) != nullptr) return name;
    }
    std::perror("a folder for the simulation");
    std::exit(2);
  }();
  return folder;
}

}  // namespace monograph::simulation
