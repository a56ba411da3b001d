// What this program can run: of a GraphDef, and of TensorFlow's ops in general; the text of
// `monograph graph check` and `monograph graph ops`.
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

// A table of all ops by family (folder of ops/), in Markdown, and where TensorFlow lends some
// (executor/borrowed.h) of those, and of those that neither has. Ops whose names begin with '_' are
// made by passes only, and left out.
std::string ListOps();
// A row for each op, ours and borrowed: types, devices, gradient, whose it is. In Markdown. Which
// of ours GPUs compute shows only where there is one.
std::string ListTypes();
// The definition of one op and the types of its kernels for CPUs. Unimplemented gives near names.
Result<std::string> DescribeOp(const std::string& name);

}  // namespace monograph
