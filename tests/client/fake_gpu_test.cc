// Whole sessions on GPUs that are none: they compute with the CPU's kernels, so that everything
// that the GPU executor does (order, copies, memory plans, replayed graphs) must leave every bit as
// it is, and they report each access that nothing orders. This program's own functions stand in for
// those of executor/cuda_devices.h.
#include <gtest/gtest.h>

#include <mutex>

#include "client/monograph.h"
#include "executor/cuda_devices.h"
#include "executor/kernel.h"
#include "ops/register.h"
#include "tests/client/training_curve.h"
#include "tests/executor/gpu/fake_gpus.h"

namespace monograph {
namespace {

// Drivers of the devices that were made last.
std::vector<std::shared_ptr<testing::RecordingDriver>>& Drivers() {
  static auto* drivers = new std::vector<std::shared_ptr<testing::RecordingDriver>>;
  return *drivers;
}
bool replay_graphs = true;

}  // namespace

Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  if (options.device_count == 0) return devices;
  Drivers().clear();
  auto world = testing::RecordingDriver::NewWorld();
  for (int id = 0; id < 2; ++id) {
    DeviceName name = task;
    name.type = "GPU";
    name.id = id;
    auto gpu = testing::MakeFakeGpu(name.ToString(), world, static_cast<uint32_t>(7 + id),
                                    {.memory_limit = size_t{64} << 20, .replay = replay_graphs});
    Drivers().push_back(gpu.driver);
    devices.push_back(std::move(gpu.device));
  }
  return devices;
}

Result<std::vector<GpuInfo>> ListGpus() { return std::vector<GpuInfo>(2); }
std::string WhyNoCuda() { return ""; }
const char* CudaStamp() { return ""; }
const KernelRegistry* CudaKernels() {
  static const KernelRegistry* kernels = [] {
    auto* made = new KernelRegistry;
    RegisterCpuKernels(made);
    testing::UseCpuKernelsOnGpus(made);
    return made;
  }();
  return kernels;
}

namespace testing {
namespace {

Curve RunCurve(CurveOptions options) {
  Result<Curve> curve = TrainingCurve(options);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? std::move(curve).value() : Curve();
}

CurveOptions On(std::vector<std::string> devices) {
  CurveOptions options;
  options.replicas = std::move(devices);
  options.steps = 12;
  return options;
}

void ExpectNoRaces() {
  for (const auto& driver : Drivers()) {
    for (const std::string& race : driver->races()) ADD_FAILURE() << race;
  }
}

TEST(FakeGpuTraining, OneGpuGivesTheBitsOfTheCpu) {
  const Curve cpu = RunCurve(On({"/device:CPU:0"}));
  for (const bool replay : {true, false}) {
    replay_graphs = replay;
    const Curve gpu = RunCurve(On({"/device:GPU:0"}));
    EXPECT_EQ(Difference(gpu, cpu), "") << (replay ? "with graphs" : "without graphs");
    ExpectNoRaces();
    ASSERT_EQ(Drivers().size(), 2u);
    EXPECT_GT(Drivers()[0]->counts().kernels, 0);
    EXPECT_EQ(Drivers()[0]->counts().launches > 0, replay);
  }
  replay_graphs = true;
}

TEST(FakeGpuTraining, TwoGpusGiveTheBitsOfTwoCpus) {
  const Curve cpu = RunCurve(On({"/device:CPU:0", "/device:CPU:1"}));
  EXPECT_EQ(Difference(RunCurve(On({"/device:GPU:0", "/device:GPU:1"})), cpu), "");
  ExpectNoRaces();
  for (const auto& driver : Drivers()) EXPECT_GT(driver->counts().launches, 0);
}

TEST(FakeGpuTraining, VariablesOnTheCpuGiveTheSameBits) {
  CurveOptions cpu = On({"/device:CPU:0", "/device:CPU:1"});
  CurveOptions gpu = On({"/device:GPU:0", "/device:GPU:1"});
  cpu.variable_devices = gpu.variable_devices = {"/device:CPU:0"};
  EXPECT_EQ(Difference(RunCurve(gpu), RunCurve(cpu)), "");
  ExpectNoRaces();
}

TEST(FakeGpuTraining, DropoutDrawsTheSameNumbersInEveryStep) {
  CurveOptions cpu = On({"/device:CPU:0"}), gpu = On({"/device:GPU:0"});
  cpu.dropout = gpu.dropout = 0.5;
  EXPECT_EQ(Difference(RunCurve(gpu), RunCurve(cpu)), "");
  ExpectNoRaces();
}

}  // namespace
}  // namespace testing
}  // namespace monograph
