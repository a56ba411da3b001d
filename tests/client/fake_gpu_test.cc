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

TEST(FakeGpuGraphs, AnOutputAndAViewOfItBothLeaveWhatIsReplayed) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope gpu = root.WithDevice("/device:GPU:0");
  const Output x = Placeholder(root, DT_FLOAT, {2, 2});
  const auto add_up = [&](Output value, int times) {
    for (int i = 0; i < times; ++i) value = Cumsum(gpu, value, Const(root, int32_t{0}));
    return value;
  };
  const Output sums = add_up(x, 2);
  const Output row = Reshape(gpu, sums, Const(root, Tensor::Vector<int32_t>({4})));
  const Output last = add_up(row, 6);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph, {}).value();
  constexpr int kSteps = 12, kSteady = 4;
  RecordingDriver::Counts before;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - kSteady) before = FakeDrivers()[0]->counts();
    const auto one = static_cast<float>(step);
    const std::vector<float> fed{one, 2, 3, 4}, once{one, 2, 3 + 2 * one, 4 + 2 * 2};
    const auto values =
        session->Run({{x, Tensor::FromValues<float>(Shape{2, 2}, fed)}}, {sums, row, last});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(BitEqual(values->at(0), Tensor::FromValues<float>(Shape{2, 2}, once)));
    EXPECT_TRUE(BitEqual(values->at(1), Tensor::FromValues<float>(Shape{4}, once)));
    // C(5 + k, k) times what stands k places before.
    EXPECT_EQ(values->at(2).values<float>()[3],
              once[3] + 6 * once[2] + 21 * once[1] + 56 * once[0]);
  }
  const RecordingDriver::Counts after = FakeDrivers()[0]->counts();
  EXPECT_GE(after.launches, before.launches + kSteady);
  EXPECT_EQ(after.kernels, before.kernels);
  ExpectNoRaces();
}

}  // namespace
}  // namespace testing
}  // namespace monograph
