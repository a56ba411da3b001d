// CriticalPath: the chain of kernels, transfers and waits that set the time of one step.
//
// From the event that ended last, back: a kernel began when the last of its inputs was there and
// its thread was free, whichever came later; a received tensor came from the send of the same edge
// on another task. What lies between two events of the chain is waiting. The segments follow each
// other without gaps, so that their times sum up to the whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace monograph {

struct PathSegment {
  enum class Kind {
    kCompute,   // a kernel ran
    kTransfer,  // from the call that sent a tensor until it was at the other task
    kWait,      // nothing of the chain ran, or an op waited for other clients or tasks (a queue, a
                // barrier, a collective)
  };
  Kind kind = Kind::kCompute;
  std::string name;  // of the node, or of the tensor
  std::string op;    // "Conv2D"; empty for a wait between nodes
  std::string task;  // "/job:worker/replica:0/task:1"; of a transfer the receiving one
  double start_us = 0, us = 0;
};

struct CriticalPath {
  double total_us = 0;  // from the first event of the step to the last
  double compute_us = 0, transfer_us = 0, wait_us = 0;
  std::vector<PathSegment> segments;  // in order of time
};

// `chrome_json` is RunMetadata::trace_json, or the file of --trace_file. InvalidArgument for other
// text; FailedPrecondition for a trace without events.
Result<CriticalPath> FindCriticalPath(std::string_view chrome_json);

// "compute", "transfer", "wait".
std::string_view PathKindName(PathSegment::Kind kind);

}  // namespace monograph
