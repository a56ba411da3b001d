#include "tests/executor/gpu/gpu_task.h"

#include <utility>

namespace monograph::testing {

GpuTask::GpuTask(int inter_op, GpuDevice::Options options, uint32_t seed)
    : TestTask(inter_op), world_(RecordingDriver::NewWorld()) {
  UseCpuKernelsOnGpus(&kernels(), ops());
  gpus_.push_back(MakeFakeGpu(kGpu0, world_, seed, options));
  gpus_.push_back(MakeFakeGpu(kGpu1, world_, seed + 1, options));
}

GpuDevice::Options GpuTask::DefaultOptions() {
  return {.memory_limit = size_t{8} << 20, .min_replayed = 2};
}

Result<std::shared_ptr<const Plan>> GpuTask::Compile(
    const Graph& graph, std::function<bool(const std::string&)> takes_gpu_memory,
    SendPart send_part) {
  PlanOptions with = options();
  with.takes_gpu_memory = std::move(takes_gpu_memory);
  if (send_part) with.takes_parts = [](const std::string&) { return true; };
  with.send_part = std::move(send_part);
  for (FakeGpu& gpu : gpus_) with.devices.push_back(gpu.device.get());
  return CompilePlan(graph, with);
}

}  // namespace monograph::testing
