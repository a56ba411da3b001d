// The bodies of the scenarios that tests/simulation/scenario.h lists.
#pragma once

namespace monograph::simulation {

void RunLocalSteps();
void RunClusterSteps();
void RunPartition();
void RunAllReduce();
void RunRecovery();
void RunClientsThatGo();
void RunJobs();
void RunNeighbours();

}  // namespace monograph::simulation
