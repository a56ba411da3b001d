// Training on a real GPU, against the CPU. Without a GPU each test skips and says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "executor/gpu/plugin.h"
#include "tests/gpu/emulated/injected_failures.h"
#include "tests/train/training_curve.h"

namespace monograph::testing {
namespace {

class GpuTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::vector<GpuInfo>> gpus = ListGpus();
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    if (gpus->empty()) GTEST_SKIP() << "no GPU: " << WhyNoCuda();
  }

  // One physical GPU, split into `devices`.
  static CurveOptions On(int devices, bool graphs = true) {
    CurveOptions options;
    options.replicas.clear();
    std::vector<int64_t> limits;
    for (int i = 0; i < devices; ++i) {
      options.replicas.push_back("/device:GPU:" + std::to_string(i));
      limits.push_back(1024);
    }
    options.session.gpu.visible_device_list = "0";
    options.session.gpu.virtual_device_memory_mb = {limits};
    options.session.gpu.cuda_graphs = graphs;
    return options;
  }
  static Curve Run(const CurveOptions& options) {
    Result<Curve> curve = TrainingCurve(options);
    EXPECT_TRUE(curve.ok()) << curve.status();
    return curve.ok() ? std::move(curve).value() : Curve();
  }
  // The curve of On(devices, graphs), which tests share: a run takes long on an emulated GPU.
  static const Curve& CurveOn(int devices, bool graphs = true) {
    static std::map<std::pair<int, bool>, Curve> curves;
    const auto [at, added] = curves.try_emplace({devices, graphs});
    if (added) at->second = Run(On(devices, graphs));
    return at->second;
  }
};

void ExpectNear(const Curve& a, const Curve& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  ASSERT_FALSE(a.losses.empty());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    const float tolerance = (i < 3 ? 1e-4f : 3e-2f) * std::max(1.0f, std::fabs(b.losses[i]));
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance) << "step " << i;
  }
}

TEST_F(GpuTraining, FollowsTheCpuUpToRounding) { ExpectNear(CurveOn(1), Run(CurveOptions())); }

TEST_F(GpuTraining, TwoPartsOfOneGpuFollowTwoCpus) {
  ExpectNear(CurveOn(2), Run({.replicas = {"/device:CPU:0", "/device:CPU:1"}}));
}

TEST_F(GpuTraining, GraphsChangeNoBit) {
  EXPECT_EQ(Difference(CurveOn(1, true), CurveOn(1, false)), "");
  EXPECT_EQ(Difference(CurveOn(2, true), CurveOn(2, false)), "");
}

// Launched one by one in the first step, captured and replayed in those that follow.
TEST_F(GpuTraining, KernelsThatBeginToStartBeforeTheirTurnChangeNoBit) {
  emulated::InjectedFailures emulation;
  const bool emulated = emulation.Found();
  const int64_t before = emulated ? emulation.ProgrammaticLaunches() : 0;
  const Curve& plain = CurveOn(1);
  if (emulated) {
    EXPECT_EQ(emulation.ProgrammaticLaunches(), before);
  }
  CurveOptions options = On(1);
  options.session.gpu.programmatic_dependent_launch = true;
  EXPECT_EQ(Difference(plain, Run(options)), "");
  if (emulated) {
    EXPECT_GT(emulation.ProgrammaticLaunches(), before);
  }
}

TEST_F(GpuTraining, RepeatsHaveTheSameBits) { EXPECT_EQ(Difference(CurveOn(2), Run(On(2))), ""); }

TEST_F(GpuTraining, VariablesOnTheCpuCrossInEveryStep) {
  CurveOptions gpu = On(2), cpu;
  cpu.replicas = {"/device:CPU:0", "/device:CPU:1"};
  gpu.variable_devices = cpu.variable_devices = {"/device:CPU:0"};
  ExpectNear(Run(gpu), Run(cpu));
}

}  // namespace
}  // namespace monograph::testing
