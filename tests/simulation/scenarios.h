// The bodies of the scenarios that tests/simulation/scenario.h lists.
#pragma once

namespace monograph::simulation {

void RunClusterSteps();
void RunPartition();
void RunAllReduce();
void RunRecovery();
void RunCallers();
void RunClientsThatGo();
void RunSessions();
void RunTransfers();
void RunJobs();
void RunNeighbours();
void RunGpus();
void RunGpuLosses();
void RunGpuClientLosses();

}  // namespace monograph::simulation
