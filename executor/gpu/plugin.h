// The GPUs of this machine. All that needs CUDA is in a shared library
// (executor/gpu/plugin_interface.h), which the first of these calls opens if the machine has a
// driver; nothing of CUDA is linked into programs, and where it is absent there are no GPUs and a
// reason.
//
// The library is looked for in this order:
//   1. the environment's MONOGRAPH_CUDA_PLUGIN: a path, or "none" for no GPUs;
//   2. beside the program as it was built or installed, ../lib/monograph/;
//   3. where `cmake --install` of this build puts it.
//
// Threads: all functions may be called from any thread. The first call opens the library and takes
// up to a tenth of a second where there is a driver. It stays open until the process ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/gpu/plugin_interface.h"
#include "executor/gpu_options.h"

namespace monograph {

// Devices /device:GPU:0 .. of `task`. None where CUDA cannot be used; WhyNoCuda says why.
// InvalidArgument for options that do not fit this machine; FailedPrecondition for a library of
// another build. With options.device_count = 0 nothing is opened.
Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions& options);
// The GPUs as the driver counts them; makes no context. Empty where CUDA cannot be used.
Result<std::vector<GpuInfo>> ListGpus();
// How a process ends whose GPU's context is lost, if GpuOptions::exit_when_lost says so:
// EX_TEMPFAIL, start me again.
inline constexpr int kGpuLostExit = 75;

// Why there are no GPUs, for one line; empty if there are.
std::string WhyNoCuda();
// The kernels for GPUs; nullptr where CUDA cannot be used. Lives until the process ends.
const KernelRegistry* CudaKernels();

// What this program was built from, as far as it matters to a library that it opens: version,
// compiler, and a hash of the headers.
const char* CudaStamp();

}  // namespace monograph
