// Whole sessions on GPUs that are none: they compute with the CPU's kernels, so that everything
// that the GPU executor does (order, copies, memory plans, replayed graphs) must leave every bit as
// it is, and they report each access that nothing orders.
#include <gtest/gtest.h>

#include "client/monograph.h"
#include "tests/client/fake_gpu_devices.h"
#include "tests/client/training_curve.h"

namespace monograph {
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

TEST(FakeGpuTraining, OneGpuGivesTheBitsOfTheCpu) {
  const Curve cpu = RunCurve(On({"/device:CPU:0"}));
  for (const bool replay : {true, false}) {
    fake_gpus.replay = replay;
    const Curve gpu = RunCurve(On({"/device:GPU:0"}));
    EXPECT_EQ(Difference(gpu, cpu), "") << (replay ? "with graphs" : "without graphs");
    ExpectNoRaces();
    ASSERT_EQ(FakeDrivers().size(), 2u);
    EXPECT_GT(FakeDrivers()[0]->counts().kernels, 0);
    EXPECT_EQ(FakeDrivers()[0]->counts().launches > 0, replay);
  }
  fake_gpus.replay = true;
}

TEST(FakeGpuTraining, TwoGpusGiveTheBitsOfTwoCpus) {
  const Curve cpu = RunCurve(On({"/device:CPU:0", "/device:CPU:1"}));
  EXPECT_EQ(Difference(RunCurve(On({"/device:GPU:0", "/device:GPU:1"})), cpu), "");
  ExpectNoRaces();
  for (const auto& driver : FakeDrivers()) EXPECT_GT(driver->counts().launches, 0);
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
