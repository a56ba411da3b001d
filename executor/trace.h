// StepTrace: what one task did in one step, node by node. ToChromeJson: several of them as one
// timeline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace monograph {

class Plan;

enum class TraceKind : uint8_t {
  kNode,  // a kernel ran
  kSend,  // a tensor left for another task
  kRecv,  // a tensor arrived from another task
};

// One line of a trace. Times are nanoseconds of the task's CLOCK_MONOTONIC.
struct TraceEvent {
  TraceKind kind = TraceKind::kNode;
  std::string name, op, device;
  int32_t thread = 0;
  int32_t edge = -1;  // of a send or receive
  int64_t bytes = 0;  // of a send or receive; that a kernel of a GPU reads and writes there
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int32_t id = -1;  // the node's number in its task
  int32_t after =
      -1;  // of the nodes that it waited for in its task, the one that ended last; -1: none
};

// Given to a step before it starts; read after the step is done. Each node writes its own record,
// so that recording takes no lock.
class StepTrace {
 public:
  // In order of start. Nodes that did not run are left out.
  std::vector<TraceEvent> Events() const;

  // Adds what is no node of the plan: a kernel of a GPU. Any thread, while the step runs.
  void Add(TraceEvent event);

 private:
  friend class Step;
  friend class StepExecutor;
  friend class NodeRunner;
  friend class StepLoop;
  struct Record {
    int64_t start_ns = 0, end_ns = 0;  // end 0: has not run
    int64_t bytes = 0;
    int32_t thread = 0;
  };
  std::vector<int32_t> LastPredecessors() const;

  std::shared_ptr<const Plan> plan_;
  std::vector<Record> records_;  // by plan node
  mutable Mutex mutex_;
  std::vector<TraceEvent> added_ MG_GUARDED_BY(mutex_);
};

int64_t TraceClockNs();
// A small number for the calling thread, the same for its whole life.
int32_t TraceThread();
// The name that the thread with this number had when it was numbered.
std::string TraceThreadName(int32_t thread);

struct TaskTrace {
  std::string task;             // "/job:worker/replica:0/task:1"
  int64_t clock_offset_ns = 0;  // added to the task's times to get the reader's; an estimate
  std::vector<TraceEvent> events;
  std::map<int32_t, std::string> threads = {};  // names, by TraceEvent::thread
};

// Chrome's trace format (chrome://tracing, Perfetto): one process per task, one row per thread,
// each with its name, and an arrow from send to receive for each edge of which both are here: a
// feed's send and a fetch's receive are in no task's record. Times start at the earliest event.
// Clock offsets are corrected where they would let a tensor arrive before it was sent.
std::string ToChromeJson(std::span<const TaskTrace> tasks);

}  // namespace monograph
