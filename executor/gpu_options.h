// GpuOptions: how a task uses its GPUs. Names and meanings are TensorFlow's where it has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace monograph {

struct GpuOptions {
  // At most so many logical devices; -1: all that there are (device_count["GPU"]).
  int device_count = -1;
  // The GPUs that this process may use and their order, by CUDA's numbers: "2,0". Empty: all.
  std::string visible_device_list;
  // Part of a GPU's memory that this process takes, split evenly among the logical devices of that
  // GPU; 0: all that is free but for a reserve for CUDA's own needs.
  double per_process_gpu_memory_fraction = 0;
  // Take memory as it is needed instead of all at the start. What was taken is not given back.
  bool allow_growth = false;
  // By visible GPU: the memory limits in MiB of the logical devices it is split into. Empty for one
  // GPU: not split.
  std::vector<std::vector<int64_t>> virtual_device_memory_mb;

  bool allow_tf32 = false;           // float32 products and convolutions may round to TF32
  bool deterministic = false;        // only algorithms that give the same bits each time
  bool cuda_graphs = true;           // replay segments as CUDA graphs
  std::string algorithm_cache = {};  // file that keeps the algorithms found by search; empty: none
};

}  // namespace monograph
