// DeviceName: "/job:worker/replica:0/task:1/device:GPU:0", whole or in part.
//
// Grammar: parts /job:NAME /replica:N /task:N /device:TYPE:N in any order, each optional; the
// last of repeated parts counts; `*` for N or NAME leaves it open; "/cpu:N" and "/gpu:N" (either
// case) mean /device:CPU:N, /device:GPU:N; "" and "/" leave every part open. NAME is a letter
// followed by letters, digits or '_'; TYPE is such a name, too (base/device_type.h).
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/device_type.h"
#include "base/status.h"

namespace monograph {

struct DeviceName {
  std::string job;   // "" : any
  int replica = -1;  // -1 : any
  int task = -1;
  DeviceType type;  // empty: any
  int id = -1;

  // InvalidArgument names the text and the part that is wrong.
  static Result<DeviceName> Parse(std::string_view text);

  bool empty() const { return job.empty() && replica < 0 && task < 0 && type.empty() && id < 0; }
  bool full() const {
    return !job.empty() && replica >= 0 && task >= 0 && !type.empty() && id >= 0;
  }
  bool has_task() const { return !job.empty() && replica >= 0 && task >= 0; }

  // "/job:w/replica:0/task:1" : the task's part of this name.
  std::string TaskName() const;
  // Parts that are set, in canonical order; a type without id prints "TYPE:*".
  std::string ToString() const;

  // True if every part that is set here is the same in `full`.
  bool Matches(const DeviceName& full) const;

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
  friend std::strong_ordering operator<=>(const DeviceName&, const DeviceName&) = default;
};

// Fills the parts that `inner` leaves open from `outer` (device scopes).
DeviceName MergeScope(const DeviceName& inner, const DeviceName& outer);

// The first CPU of the task of `device`; `device` itself if it is a CPU or leaves the type open.
DeviceName HostOf(const DeviceName& device);

// The name with the parts of both. If they differ in type or id and `soft` is set, that part is
// dropped; any other difference is InvalidArgument "Cannot merge devices with incompatible jobs:
// 'a' and 'b'".
Result<DeviceName> MergeConstraints(const DeviceName& a, const DeviceName& b, bool soft);

}  // namespace monograph
