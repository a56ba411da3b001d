// How gradients meet and become an update.
#pragma once

#include <string>
#include <vector>

#include "train/replication/towers.h"

namespace monograph::replication {

// The step as far as it is built.
struct Draft {
  Scope scope;
  const ReplicateOptions& options;
  const Optimizer& optimizer;
  std::vector<std::string> devices;                   // by replica
  std::vector<std::vector<ModelVariable>> variables;  // [copy]; one unless replicated
  Towers towers;
  std::vector<LossScale> scales;  // by copy; empty: the loss is not scaled
  std::vector<Operation> initializers;
  std::string home;  // of global_step and what else belongs to no variable
};

// Makes global_step, and adds what the options ask for: step->train and updates, or those of each
// tower; step->sync; step->start.
Status AddUpdate(Draft* draft, ReplicatedStep* step);

}  // namespace monograph::replication
