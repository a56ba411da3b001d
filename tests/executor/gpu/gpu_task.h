// A task of the executor's tests with GPUs that compute on the CPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/gpu/copies.h"
#include "tests/executor/test_ops.h"
#include "tests/gpu/fake/fake_gpus.h"

namespace monograph::testing {

// A task with CPU:0, CPU:1, GPU:0 and GPU:1.
class GpuTask : public TestTask {
 public:
  explicit GpuTask(int inter_op = 2, GpuDevice::Options options = DefaultOptions(),
                   uint32_t seed = 1);
  static GpuDevice::Options DefaultOptions();

  // `takes_gpu_memory`, `send_part`: PlanOptions'. With the second all tasks take parts.
  Result<std::shared_ptr<const Plan>> Compile(
      const Graph& graph, std::function<bool(const std::string&)> takes_gpu_memory = {},
      SendPart send_part = {});
  FakeGpu& gpu(size_t i) { return gpus_[i]; }
  RecordingDriver& driver(size_t i) { return *gpus_[i].driver; }

 private:
  std::shared_ptr<World> world_;
  std::vector<FakeGpu> gpus_;
};

}  // namespace monograph::testing
