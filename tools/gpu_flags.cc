#include "tools/gpu_flags.h"

namespace monograph {

void GpuFlags::AddTo(Flags* flags) {
  flags->Section("GPUs");
  flags->Add("gpu_devices", &gpu_devices,
             "use at most so many GPU devices; 0: none; -1: all (device_count[kGpu])", -1);
  flags->Add(
      "gpu_memory_fraction", &gpu_memory_fraction,
      "part of a GPU's memory to take, 0 to 1 (per_process_gpu_memory_fraction); 0: all that "
      "is free but a reserve");
  flags->Add("allow_growth", &allow_growth,
             "take GPU memory as it is needed instead of all at the start");
  flags->Add("visible_device_list", &visible_device_list,
             "the GPUs to use and their order, by CUDA's numbers: 1,0; default: all");
  flags->Add("virtual_gpus", &virtual_gpus,
             "split GPUs into logical devices: memory in MiB of each, GPUs parted by ';': "
             "2x4096;8192");
  flags->Add("cuda_graphs", &cuda_graphs, "replay parts of a step as CUDA graphs");
  flags->Add("nccl", &nccl,
             "collectives go from GPU to GPU, by NCCL, where it can be loaded; else through host "
             "memory");
  flags->Add("gpu_launch_blocking", &launch_blocking,
             "wait for each kernel, so that the error of one that fails on the GPU names its node");
  flags->Add("exit_when_gpu_lost", &exit_when_lost,
             "end the process with status 75 when a GPU's context is lost, for a supervisor to "
             "start it anew");
  flags->Add("allow_tf32", &allow_tf32, "float32 products and convolutions may round to TF32");
  flags->Add("deterministic", &deterministic, "only algorithms that give the same bits each time");
  flags->AddOutputFile("algorithm_cache", &algorithm_cache,
                       "file that keeps the algorithms found for shapes; default: none");
}

Result<GpuOptions> GpuFlags::Options() const {
  GpuOptions options;
  options.device_count = gpu_devices;
  options.visible_device_list = visible_device_list;
  options.per_process_gpu_memory_fraction = gpu_memory_fraction;
  options.allow_growth = allow_growth;
  MG_ASSIGN_OR_RETURN(options.virtual_device_memory_mb, ParseVirtualGpus(virtual_gpus));
  options.allow_tf32 = allow_tf32;
  options.deterministic = deterministic;
  options.cuda_graphs = cuda_graphs;
  options.nccl = nccl;
  options.launch_blocking = launch_blocking;
  options.exit_when_lost = exit_when_lost;
  options.algorithm_cache = algorithm_cache;
  MG_RETURN_IF_ERROR(CheckGpuOptions(options));
  return options;
}

}  // namespace monograph
