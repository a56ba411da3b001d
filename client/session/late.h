// What a step whose time is up says of the tasks that had not ended their parts.
#pragma once

#include <string>
#include <vector>

namespace monograph {

struct LatePart {
  int peer = 0;  // as in Worker::SendRunStep
  std::string task;
  bool answered = false;  // has ended, too late
  // executor/step/unfinished.h, or why that is not known; may be empty. Until it is known: the node
  // that it is inside.
  std::string what = {};
};

// "/job:ps/replica:0/task:0 (node 'get' ...), /job:worker/replica:0/task:0 (awaits 'get:0' ...)":
// first the parts that did something, last those that only waited for others. At most eight.
std::string DescribeLateParts(std::vector<LatePart> parts);

}  // namespace monograph
