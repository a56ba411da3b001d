#include "tests/gpu/fake/fake_gpus.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace monograph::testing {

void UseCpuKernelsOnGpus(KernelRegistry* kernels, const OpRegistry& ops) {
  std::vector<const KernelRegistry::Entry*> missing;
  for (const KernelRegistry::Entry* entry : kernels->All()) {
    if (entry->def.device == kCpu && !kernels->HasOp(entry->def.op, kGpu)) missing.push_back(entry);
  }
  for (const KernelRegistry::Entry* entry : missing) {
    KernelDef def = entry->def;
    def.device = kGpu;
    const bool of_int32 = std::ranges::count(def.types, std::pair(std::string("T"), DT_INT32)) > 0;
    if (const OpDef* op = ops.Find(def.op); op != nullptr && of_int32) {
      // What is computed of int32 is a shape or a counter, and stays in host memory.
      for (const ArgDef& arg : op->inputs()) def.host_args.push_back(arg.name);
      for (const ArgDef& arg : op->outputs()) def.host_args.push_back(arg.name);
    }
    kernels->Add(def, entry->factory);
    if (def.op != "Const") continue;
    // Shapes and axes, which kernels want in host memory.
    def.types = {{"dtype", DT_INT32}};
    def.host_args = {"output"};
    def.priority = 1;
    kernels->Add(std::move(def), entry->factory);
  }
}

FakeGpu MakeFakeGpu(const std::string& name, std::shared_ptr<World> world, uint32_t seed,
                    GpuDevice::Options options, const std::string& card) {
  FakeGpu gpu;
  gpu.driver = std::make_shared<RecordingDriver>(std::move(world), seed);
  DeviceInfo info{.name = DeviceName::Parse(name).value(),
                  .description = "a GPU that is none",
                  .memory_limit = static_cast<int64_t>(options.memory_limit),
                  .incarnation = seed};
  if (!card.empty()) {
    gpu.driver->Link();
    info.link = "recorded/" + card;
  }
  gpu.device = GpuDevice::Make(std::move(info), gpu.driver, options).value();
  return gpu;
}

}  // namespace monograph::testing
