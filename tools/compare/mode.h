// CompareMode: one way of replication, as flags of the program.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct CompareMode {
  std::string name;   // "in_graph_replicated"
  std::string title;  // "In-graph (all-reduce)"
  std::vector<std::string> flags;
  std::vector<std::string> executor_flags;  // that its daemons need
  bool uses_ps = false;
  bool per_worker = false;  // a client for each worker, else one for all
  bool synchronous =
      false;  // all replicas in step: its weights are the same bits in every such mode
};

const std::vector<CompareMode>& KnownModes();
// The words of --modes between its commas; a number after one of NAME=FLAGS goes on with its last
// flag (--split=weights=3,1). InvalidArgument with the nearest name, and for names that are given
// twice.
Result<std::vector<CompareMode>> ParseModes(const std::vector<std::string>& words);

}  // namespace monograph
