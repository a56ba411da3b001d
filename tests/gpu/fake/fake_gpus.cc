#include "tests/gpu/fake/fake_gpus.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/ops/gpu_reasons.h"

namespace monograph::testing {

void UseCpuKernelsOnGpus(KernelRegistry* kernels, const OpRegistry& ops) {
  std::vector<const KernelRegistry::Entry*> missing;
  for (const KernelRegistry::Entry* entry : kernels->All()) {
    const auto without = optest::WithoutGpuKernel().find(entry->def.op);
    const bool none =
        without != optest::WithoutGpuKernel().end() && without->second != optest::kBesideTheCpus;
    if (entry->def.device == kCpu && !none && !kernels->HasOp(entry->def.op, kGpu))
      missing.push_back(entry);
  }
  for (const KernelRegistry::Entry* entry : missing) {
    KernelDef def = entry->def;
    def.device = kGpu;
    kernels->Add(def, entry->factory);
    // Shapes, axes and counters, which kernels want in host memory.
    const char* const type = def.op == "Const" ? "dtype" : "T";
    const OpDef* const op = ops.Find(def.op);
    if (op == nullptr || op->FindAttr(type) == nullptr) continue;
    const auto of_type = [&](const auto& of) { return of.first == type; };
    const auto constraint = std::ranges::find_if(def.types, of_type);
    if (constraint == def.types.end()) {
      def.types.emplace_back(type, DT_INT32);
    } else if (constraint->second != DT_INT32) {
      continue;
    }
    for (const ArgDef& arg : op->inputs()) def.host_args.push_back(arg.name);
    for (const ArgDef& arg : op->outputs()) def.host_args.push_back(arg.name);
    ++def.priority;
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
