// Room: what a resource holds outside the task's memory pool (strings, nodes of a table) counts
// against the limit of the task's memory (--memory_limit) all the same. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/pool_allocator.h"
#include "base/status.h"

namespace monograph::ops {

class Room {
 public:
  // Room for `bytes` in all, more or less than before; less than a mebibyte needs none. What there
  // is stays where there is no more: ResourceExhausted "`what` has no room for 5000000 bytes: ...".
  Status Hold(size_t bytes, std::string_view what) {
    const size_t wanted = bytes / kStep, there = held_.size();
    if (wanted > there) {
      const size_t more = (wanted - there) * kStep;
      std::shared_ptr<void> room = HostPool().Reserve(more);
      if (room == nullptr) {
        return ResourceExhausted(std::string(what) + " has no room for " + std::to_string(bytes) +
                                 " bytes: " + HostPool().Explain(more));
      }
      held_.resize(wanted, room);
    } else if (there > wanted + 1) {  // one stays, for a size that moves about a border
      held_.resize(wanted + 1);
    }
    return Status();
  }

 private:
  static constexpr size_t kStep = size_t{1} << 20;
  std::vector<std::shared_ptr<void>> held_;  // for each step
};

}  // namespace monograph::ops
