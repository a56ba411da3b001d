// MachineDevices: the devices of this machine; what `monograph devices` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "executor/gpu/plugin.h"

namespace monograph {

struct MachineDevices {
  int64_t cores = 0, memory_bytes = 0;
  std::vector<GpuInfo> gpus;
  std::string why_no_gpu;  // if there is none
};

Result<MachineDevices> FindDevices();

// A line per device.
std::string FormatDevices(const MachineDevices& machine);
// The same as JSON, an object whose fields docs/programs.md lists.
std::string DevicesJson(const MachineDevices& machine);

}  // namespace monograph
