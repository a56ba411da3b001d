// TaskStatus: what a task says of itself: how long it is up, what it holds, what it has done and
// how many bytes it has moved.
#pragma once

#include <cstdint>
#include <string>

namespace monograph {

class Worker;
namespace wire {
class StatusResponse;
}

struct TaskStatus {
  std::string task;     // "/job:worker/replica:0/task:1"
  std::string address;  // of its control port; empty for the process that asks
  uint64_t incarnation = 0;
  int64_t process_id = 0;
  // Of the process.
  double uptime_seconds = 0, cpu_seconds = 0;
  int64_t resident_bytes = 0;
  // Of the task, now.
  int64_t resource_bytes = 0;  // variables and the like
  int sessions = 0, graphs = 0, running_steps = 0;
  // Since its start.
  uint64_t steps_done = 0, steps_failed = 0, messages_dropped = 0;
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  // of the data plane: headers and payloads
  // Of its GPUs; fallbacks: graphs that could not be launched, whose nodes were, one by one; nodes:
  // all that were launched one by one.
  uint64_t cuda_graphs_captured = 0, cuda_graphs_replayed = 0, cuda_graph_fallbacks = 0;
  uint64_t cuda_nodes_launched = 0;
};

// Fills the answer to the control method Status. Thread-safe.
void DescribeTask(const Worker& worker, wire::StatusResponse* response);
// The same as a value; `address` is left empty.
TaskStatus ToTaskStatus(const wire::StatusResponse& response);

}  // namespace monograph
