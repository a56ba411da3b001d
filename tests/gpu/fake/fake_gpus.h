// GPUs that compute on the CPU (recording_driver.h), as devices of a task.
#pragma once

#include <memory>
#include <string>

#include "executor/gpu/gpu_device.h"
#include "executor/kernel.h"
#include "graph/op_def.h"
#include "tests/gpu/fake/recording_driver.h"

namespace monograph::testing {

inline constexpr char kGpu0[] = "/job:test/replica:0/task:0/device:GPU:0";
inline constexpr char kGpu1[] = "/job:test/replica:0/task:0/device:GPU:1";

// Registers the kernels for the CPU for the GPU, too, for every op that has none there, but for
// those that real GPUs have none for. What is computed of int32 (an op's T) is so in host memory,
// as with real GPUs.
void UseCpuKernelsOnGpus(KernelRegistry* kernels, const OpRegistry& ops);

struct FakeGpu {
  std::shared_ptr<RecordingDriver> driver;
  std::unique_ptr<GpuDevice> device;
};
// `card`: that it is on or part of, from which collectives reach other cards; empty: none. It may
// name a node, as "node/card".
FakeGpu MakeFakeGpu(const std::string& name, std::shared_ptr<World> world, uint32_t seed,
                    GpuDevice::Options options, const std::string& card = "");

}  // namespace monograph::testing
