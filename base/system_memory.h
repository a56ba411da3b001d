// What the system lets this process have of memory, and whether it has killed for lack of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace monograph {

struct SystemMemory {
  // The machine's memory or, if that is less, the smallest limit of the control groups (v1 and v2)
  // that this process is in, directly or not.
  int64_t total = 0;
  // What can be taken of it now without swapping: of the machine, and of each group with a limit,
  // whichever is least. What others could give back at once, such as cached files, counts.
  int64_t available = 0;
};

// Reads /proc and /sys/fs/cgroup below `root`, some files each time.
SystemMemory ReadSystemMemory(const std::string& root = "");

// A count that grows with each process of this machine, or of this process's control groups, that
// the system kills for lack of memory. Only the difference of two calls means something. Nothing
// where the system does not say.
std::optional<int64_t> OutOfMemoryKills(const std::string& root = "");

// Has the system kill this process before others if it must kill one, unless somebody has decided
// on that already: sets oom_score_adj to 200 if it is 0.
void PreferToBeKilled();

}  // namespace monograph
