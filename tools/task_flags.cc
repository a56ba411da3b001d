// A function for each group of flags: key, threads, memory, TensorFlow, transport, GPUs. The text
// of a flag is checked where it is declared, so that the error can say what would be right.
#include "tools/task_flags.h"

#include <cstdlib>
#include <memory>
#include <optional>

#include "base/byte_size.h"
#include "base/pool_allocator.h"
#include "executor/borrowed.h"
#include "tools/own_task.h"
#include "transport/trusted_network.h"

namespace monograph {

void KeyFlag::AddTo(Flags* flags) {
  flags->Add("key_file", &file,
             "the cluster's key, made by `monograph keygen`; daemons need it for any address but "
             "loopback. Default: the environment's MONOGRAPH_KEY_FILE");
}

Result<std::optional<control::KeyRing>> KeyFlag::Read() const {
  std::string path = file;
  if (const char* variable = std::getenv("MONOGRAPH_KEY_FILE"); path.empty() && variable != nullptr)
    path = variable;
  if (path.empty()) return std::optional<control::KeyRing>();
  MG_ASSIGN_OR_RETURN(control::KeyRing ring, control::KeyRing::FromFile(path));
  return std::optional<control::KeyRing>(std::move(ring));
}

void AddThreadFlags(Flags* flags, int* inter_op_parallelism_threads,
                    int* intra_op_parallelism_threads) {
  flags->Add("inter_op_parallelism_threads", inter_op_parallelism_threads,
             "threads of this process that run nodes beside each other; 0: one per core", 0,
             Flags::kMostThreads);
  flags->Add("intra_op_parallelism_threads", intra_op_parallelism_threads,
             "threads of this process inside one kernel; 0: one per core", 0, Flags::kMostThreads);
}

void AddMemoryFlag(Flags* flags) {
  flags->AddParsed(
      "memory_limit",
      [](const std::string& text) -> Status {
        constexpr int64_t kLeast = int64_t{64} << 20;
        const Result<int64_t> bytes = ParseBytes(text);
        if (!bytes.ok()) return bytes.status().WithContext("--memory_limit");
        if (*bytes < kLeast)
          return InvalidArgument("--memory_limit: must be at least " + BytesText(kLeast) +
                                 ", not " + text);
        HostPool().SetLimit(*bytes);
        return Status();
      },
      "most memory for tensors of this process: 12GiB, 512M, ...; default: that of the machine or, "
      "if it is less, of the control group, but for a reserve of an eighth (at most 2 GiB)");
}

void AddTensorFlowFlag(Flags* flags) {
  flags->AddParsed(
      "tensorflow",
      [](const std::string& text) {
        NameTensorFlow(text);
        return Status();
      },
      "Python interpreter whose TensorFlow lends the ops that are lacking here; default: none");
}

void AddTransportFlags(Flags* flags, TransportOptions* options) {
  flags->Add(
      "lanes", &options->lanes,
      "UCX transports (UCX_TLS), such as posix,cma or rc; default: shared memory, RDMA where "
      "there are devices, and tcp in a trusted network. ^reference: daemons of this host copy "
      "large tensors and do not read them in place");
  flags->Add("net_devices", &options->net_devices,
             "network devices (UCX_NET_DEVICES); default: those of the trusted network and RDMA's");
  flags->Add("trusted_network", &options->trusted_network,
             "networks, such as 10.0.0.0/24, in which UCX may use TCP; whoever is in them can end "
             "this process, and read and change its tensors. Default: none");
  flags->AddParsed(
      "gpu_transfers",
      [options](const std::string& text) -> Status {
        if (text != "auto" && text != "direct" && text != "staged") {
          return InvalidArgument("--gpu_transfers: must be auto, direct or staged, not '" + text +
                                 "'");
        }
        options->gpu_transfers = text == "auto"     ? GpuTransfers::kAuto
                                 : text == "direct" ? GpuTransfers::kDirect
                                                    : GpuTransfers::kStaged;
        return Status();
      },
      "how tensors in GPUs' memory go to other tasks: direct: UCX reads and writes that memory, "
      "and tasks with GPUs that cannot do not meet; staged: by way of host memory; auto: direct "
      "where both tasks can. Default: auto");
  flags->AddCheck([options] {
    return ParseNetworks(options->trusted_network).status().WithContext("--trusted_network");
  });
}

void AddGpuFlags(Flags* flags, GpuOptions* options) {
  flags->Section("GPUs");
  flags->Add("gpu_devices", &options->device_count,
             "use at most so many GPU devices; 0: none; -1: all (device_count[\"GPU\"])", -1);
  flags->Add(
      "gpu_memory_fraction", &options->per_process_gpu_memory_fraction,
      "part of a GPU's memory to take, 0 to 1 (per_process_gpu_memory_fraction); 0: all that "
      "is free but a reserve");
  flags->Add("allow_growth", &options->allow_growth,
             "take GPU memory as it is needed instead of all at the start");
  flags->Add("visible_device_list", &options->visible_device_list,
             "the GPUs to use and their order, by CUDA's numbers: 1,0; default: all");
  const auto share = std::make_shared<std::optional<GpuShare>>();
  flags->AddParsed(
      "gpu_share",
      [share](const std::string& text) -> Status {
        MG_ASSIGN_OR_RETURN(*share, ParseGpuShare(text));
        return Status();
      },
      "1/4: of these GPUs take what falls to process 1 of 4 of this machine; default: as srun or "
      "mpirun number the processes that they start here, unless visible_device_list is given");
  flags->AddParsed(
      "virtual_gpus",
      [options](const std::string& text) -> Status {
        MG_ASSIGN_OR_RETURN(options->virtual_device_memory_mb, ParseVirtualGpus(text));
        return Status();
      },
      "split GPUs into logical devices: memory in MiB of each, GPUs parted by ';': "
      "2x4096;8192");
  flags->Add("cuda_graphs", &options->cuda_graphs, "replay parts of a step as CUDA graphs");
  flags->Add("programmatic_dependent_launch", &options->programmatic_dependent_launch,
             "Monograph's own kernels begin to start while the one before ends; needs GPUs of "
             "compute capability 9.0 or newer");
  flags->Add("nccl", &options->nccl,
             "collectives go from GPU to GPU, by NCCL, where it can be loaded; else through host "
             "memory");
  flags->Add("gpu_launch_blocking", &options->launch_blocking,
             "wait for each kernel, so that the error of one that fails on the GPU names its node");
  flags->Add("exit_when_gpu_lost", &options->exit_when_lost,
             "end the process with status 75 when a GPU's context is lost, for a supervisor to "
             "start it anew");
  flags->Add("allow_tf32", &options->allow_tf32,
             "float32 products and convolutions may round to TF32");
  flags->Add("deterministic", &options->deterministic,
             "only algorithms that give the same bits each time");
  flags->AddOutputFile("algorithm_cache", &options->algorithm_cache,
                       "file that keeps the algorithms found for shapes; default: none");
  flags->AddCheck([options, share] {
    const bool all = !options->visible_device_list.empty();
    options->share = share->value_or(all ? GpuShare() : ShareOfLauncher());
    return CheckGpuOptions(*options);
  });
}

}  // namespace monograph
