#include "tests/simulation/scenario.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simulation/scenarios.h"

namespace monograph::simulation {

std::span<const Scenario> Scenarios() {
  static constexpr Scenario kScenarios[] = {
      {"local", "threads run steps of a session within one process, which may close",
       RunLocalSteps},
      {"steps", "steps on a cluster while links and tasks are lost, and the next session's",
       RunClusterSteps},
      {"partition", "the link between a worker and the ps is cut; the client reaches both",
       RunPartition},
      {"all_reduce", "sums of two or three workers, by one client or one each, with losses",
       RunAllReduce},
      {"recovery", "counts are saved and restored while links and tasks are lost", RunRecovery},
      {"clients", "clients come and go, and are killed", RunClientsThatGo},
      {"jobs", "a job with checkpoints that loses tasks, links, clients and disks", RunJobs},
      {"neighbours", "two sessions on the same tasks, of which one loses its worker",
       RunNeighbours},
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
