// GpuFlags: the flags by which a program's user says how its process uses its GPUs; the same for
// daemons and for sessions that run in one process.
#pragma once

#include <string>

#include "base/status.h"
#include "executor/gpu_options.h"
#include "tools/flags.h"

namespace monograph {

struct GpuFlags {
  int gpu_devices = -1;
  double gpu_memory_fraction = 0;
  bool allow_growth = false;
  std::string visible_device_list, virtual_gpus, algorithm_cache;
  bool allow_tf32 = false;
  bool deterministic = true;
  bool cuda_graphs = true;
  bool nccl = true;
  bool launch_blocking = false;
  bool exit_when_lost = false;

  // REQUIRES: outlives the parsing.
  void AddTo(Flags* flags);
  // InvalidArgument names the option and what would be right.
  Result<GpuOptions> Options() const;
};

}  // namespace monograph
