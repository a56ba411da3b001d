#include "tests/gpu/fake/session_gpus.h"

#include <gtest/gtest.h>

#include "executor/gpu/plugin.h"
#include "executor/kernel.h"
#include "ops/register.h"

namespace monograph {
namespace testing {

std::vector<std::shared_ptr<RecordingDriver>>& FakeDrivers() {
  static auto* drivers = new std::vector<std::shared_ptr<RecordingDriver>>;
  return *drivers;
}

void ExpectNoRaces() {
  for (const auto& driver : FakeDrivers()) {
    for (const std::string& race : driver->races()) ADD_FAILURE() << race;
  }
}

namespace {

class RaceListener : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override { ExpectNoRaces(); }
};
[[maybe_unused]] const bool listens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new RaceListener);
  return true;
}();

}  // namespace

}  // namespace testing

using testing::fake_gpus;
using testing::FakeDrivers;

Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  if (options.device_count == 0) return devices;
  static auto world = testing::RecordingDriver::NewWorld();
  if (!fake_gpus.tasks) {
    FakeDrivers().clear();
    world = testing::RecordingDriver::NewWorld();
  }
  for (int id = 0; id < fake_gpus.count; ++id) {
    DeviceName name = task;
    name.type = kGpu;
    name.id = id;
    const std::string card =
        fake_gpus.cards.empty() ? "" : fake_gpus.cards.at(FakeDrivers().size());
    auto gpu = testing::MakeFakeGpu(
        name.ToString(), world, static_cast<uint32_t>(7 + FakeDrivers().size()),
        {.memory_limit = size_t{64} << 20, .replay = fake_gpus.replay}, card);
    if (fake_gpus.quiet) gpu.driver->BeQuiet();
    FakeDrivers().push_back(gpu.driver);
    devices.push_back(std::move(gpu.device));
  }
  return devices;
}

Result<std::vector<GpuInfo>> ListGpus() {
  return std::vector<GpuInfo>(static_cast<size_t>(fake_gpus.count));
}
std::string WhyNoCuda() { return ""; }
const char* CudaStamp() { return ""; }
const KernelRegistry* CudaKernels() {
  static const KernelRegistry* kernels = [] {
    auto* made = new KernelRegistry;
    RegisterCpuKernels(made);
    OpRegistry ops;
    DefineOps(&ops);
    testing::UseCpuKernelsOnGpus(made, ops);
    return made;
  }();
  return kernels;
}

}  // namespace monograph
