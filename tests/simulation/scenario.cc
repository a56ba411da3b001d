#include "tests/simulation/scenario.h"

#include "tests/simulation/scenarios.h"

namespace monograph::simulation {

std::span<const Scenario> Scenarios() {
  static constexpr Scenario scenarios[] = {
      {"local", "threads run steps of a session within one process, which may close",
       RunLocalSteps},
      {"steps", "steps on a cluster while links and tasks are lost, and the next session's",
       RunClusterSteps},
      {"partition", "the link between a worker and the ps is cut; the client reaches both",
       RunPartition},
      {"all_reduce", "sums of two or three workers, by one client or one each, with losses",
       RunAllReduce},
      {"clients", "clients come and go, and are killed", RunClientsThatGo},
  };
  return scenarios;
}

}  // namespace monograph::simulation
