// What libmonograph_cuda.so and the program that opens it agree on.
//
// Everything that needs CUDA is in that one shared library. It holds its own copies of Monograph's
// static libraries, hidden, and shows one symbol, monograph_cuda_plugin; what crosses are virtual
// interfaces (Device, Kernel, Allocator) and values of base/. So both sides must be built from the
// same headers with the same options: the stamp says so, and is compared before anything is called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/status.h"

namespace monograph {

class Device;
class KernelRegistry;
struct GpuOptions;
enum class LogLevel;

// A GPU of this machine as the driver sees it.
struct GpuInfo {
  int id = 0;  // the driver's number
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  std::string pci_bus_id;
  int driver_version = 0;     // of CUDA, that the driver supports: 13000 is 13.0
  int runtime_version = 0;    // of CUDA, that the plug-in was built with
  int64_t cudnn_version = 0;  // 91900 is 9.19.0
  std::string nccl = {};      // "NCCL 2.28.9", or why there is none
};

struct CudaPlugin {
  // First, in every version: CudaStamp() of the plug-in's build.
  const char* stamp;
  // The machine's GPUs, without making a context on any. An error says why CUDA cannot be used.
  Result<std::vector<GpuInfo>> (*list)();
  // Devices /device:GPU:0 .. of `task`. REQUIRES: CheckGpuOptions(options) is OK.
  Result<std::vector<std::unique_ptr<Device>>> (*make_devices)(const DeviceName& task,
                                                               const GpuOptions& options);
  // Adds every kernel for GPUs.
  void (*register_kernels)(KernelRegistry* registry);
};

// The plug-in's one symbol. `level` is the program's log level.
using CudaPluginEntry = const CudaPlugin* (*)(LogLevel level);
inline constexpr char kCudaPluginEntry[] = "monograph_cuda_plugin";

}  // namespace monograph
