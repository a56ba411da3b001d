// What a session says of its data plane: a line for each way, however many tasks take it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/device_name.h"

namespace monograph {

// How one task reaches another: "shm(posix,cma) ~12 GB/s".
struct LaneUse {
  DeviceName from, to;
  std::string way;
};

// The tasks in order, runs of them in short: "ps/0, worker/0-9".
std::string TaskList(std::vector<DeviceName> tasks);

// A line for each way, in the order of the ways, with the tasks that it serves:
//   "data plane: shm(posix,cma) ~12 GB/s among client/0, ps/0, worker/0-9"    each with each other
//   "data plane: tcp(eth0) ~1.2 GB/s between worker/0-3 | worker/4-7"         across the bars
//   "data plane: tcp(eth0) ~1.2 GB/s from ps/0 to worker/0-9"                 one way only
// Several such groups of one way are separated by semicolons; a long line ends with their number.
std::vector<std::string> DescribeLanes(std::span<const LaneUse> uses);

}  // namespace monograph
