// What of a GraphDef this program can run: the text of `monograph graph check`.
#pragma once

#include <string>

#include "base/status.h"

namespace monograph {

struct GraphReport {
  std::string text;       // one line if all is there; else that line, a table, and what helps
  bool complete = false;  // every node has its op and a kernel for a CPU
};

// Ops that DefaultRegistries() lacks, attributes that it does not take, and types that no kernel
// for a CPU computes, in the graph and in its functions. A failure is one of the file: it cannot be
// read, holds no GraphDef, or one whose nodes do not fit each other.
Result<GraphReport> ReportGraph(const std::string& path);

}  // namespace monograph
