// DeviceInfo: what a task tells about one of its devices.
#pragma once

#include <cstdint>
#include <string>

#include "base/device_name.h"

namespace monograph {

struct DeviceInfo {
  DeviceName name;               // full
  std::string description = {};  // "NVIDIA H200, 139 GiB"; empty for CPUs
  int64_t memory_limit = 0;
  uint64_t incarnation = 0;  // changes when the task restarts
  // How other GPUs reach this one without the host, and the card that it is on, as
  // "NCCL 2.28.9/card"; empty: not at all. Devices with the same part before the '/' reach each
  // other if they are on different cards.
  std::string link = {};
};

}  // namespace monograph
