// Unfinished: what a task's part of a step had begun and not ended when the step's time was up. Its
// words are what the task reports to the client (executor/worker/step_message.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace monograph {

// True for the abort of a step whose time is up: the client asks what it was about.
inline bool TimeIsUp(const Status& status) {
  return status.derived() && status.code() == Code::kDeadlineExceeded;
}

class Unfinished {
 public:
  static constexpr std::string_view kAwaits = "awaits ";

  // A node had begun. `why`: what it says of its end, such as the state of the queue that it waited
  // for; OK if it says nothing.
  void Began(std::string_view node, std::string_view op, const Status& why);
  // A tensor had not come from `device`.
  void Awaits(std::string_view tensor, std::string_view device);

  // "node 'get' (QueueDequeueV2): FIFOQueue 'q' has ...; and 3 more nodes". If no node had begun:
  // kAwaits and "'get:0' from /job:ps/replica:0/task:0/device:CPU:0, and 2 more tensors". Empty if
  // there is neither. One line, which fits a header of the data plane.
  std::string ToString() const;

 private:
  std::vector<std::string> nodes_, tensors_;  // the first few
  size_t num_nodes_ = 0, num_tensors_ = 0;
};

}  // namespace monograph
