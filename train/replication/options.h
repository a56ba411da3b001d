// What the options mean together, and which of them contradict each other.
#pragma once

#include <string>
#include <vector>

#include "train/replication.h"

namespace monograph::replication {

// InvalidArgument says which options do not fit, and what would.
Status CheckOptions(const ReplicateOptions& options, const std::vector<std::string>& devices);

inline bool InGraph(const ReplicateOptions& options) {
  return options.replication == Replication::kInGraph;
}
inline bool Mirrored(const ReplicateOptions& options) {
  return options.variable_update == VariableUpdate::kReplicated;
}

}  // namespace monograph::replication
