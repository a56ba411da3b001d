// GpuOptions: how a task uses its GPUs. Names and meanings are TensorFlow's where it has them
// (GPUOptions, ConfigProto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace monograph {

// Of the processes of one machine that divide its GPUs between them: which one, of how many.
struct GpuShare {
  int index = 0, count = 1;
  friend bool operator==(const GpuShare&, const GpuShare&) = default;
};

struct GpuOptions {
  // At most so many logical devices; -1: all that there are (device_count[kGpu]); 0: none, and
  // nothing of CUDA is loaded.
  int device_count = -1;
  // The GPUs that this process may use and their order, by CUDA's numbers: "2,0". Empty: all.
  std::string visible_device_list;
  // Of these GPUs this process takes its part, in their order: of 8 GPUs process 1 of 4 takes the
  // third and the fourth. If there are fewer GPUs than processes, several share one.
  GpuShare share = {};
  // Part of each GPU's memory that this process takes; 0: all that is free but for a reserve for
  // CUDA's own needs. Not for GPUs that are split, which have limits of their own.
  double per_process_gpu_memory_fraction = 0;
  // Take memory as it is needed instead of all at the start. What was taken is not given back.
  bool allow_growth = false;
  // By visible GPU: the memory limits in MiB of the logical devices it is split into. Empty for one
  // GPU: not split.
  std::vector<std::vector<int64_t>> virtual_device_memory_mb;

  bool allow_tf32 = false;    // float32 products and convolutions may round to TF32
  bool deterministic = true;  // only algorithms that give the same bits each time
  bool cuda_graphs = true;    // replay segments as CUDA graphs
  // Our own kernels begin to start while what runs before them on the GPU ends
  // (ops/gpu/launch.h); for GPUs of compute capability 9.0 and newer.
  bool programmatic_dependent_launch = false;
  bool nccl = true;              // collectives go from GPU to GPU where NCCL is
  bool launch_blocking = false;  // wait for each kernel, so that an error names its node
  // After an error that the GPU's context does not survive, end the process with status 75, so that
  // a supervisor starts it anew. Otherwise it goes on, and refuses steps on that GPU.
  bool exit_when_lost = false;
  std::string algorithm_cache = {};  // file that keeps the algorithms found by search; empty: none
};

// The numbers of visible_device_list. InvalidArgument for what is no number, or is there twice.
Result<std::vector<int>> ParseVisibleDeviceList(std::string_view text);
// "1/4": process 1 of 4, counted from 0. InvalidArgument says so.
Result<GpuShare> ParseGpuShare(std::string_view text);
// virtual_device_memory_mb as text: "4096,4096;8192" splits the first GPU into two of 4 GiB and
// limits the second to 8 GiB; "2x4096" says 4096 twice; an empty part leaves that GPU whole.
Result<std::vector<std::vector<int64_t>>> ParseVirtualGpus(std::string_view text);
// InvalidArgument names the option and what would be right. What needs the machine (is there a
// GPU 3?) is checked when devices are made.
Status CheckGpuOptions(const GpuOptions& options);

}  // namespace monograph
