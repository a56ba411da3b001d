// Sessions with GPUs under tensorflow_random_streams: nodes with seeds draw on the CPU.
#include <gtest/gtest.h>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "tests/client/session_fixture.h"
#include "tests/gpu/fake/session_gpus.h"

namespace monograph {
namespace testing {
namespace {

class GpuRandomStreamsTest : public LocalSessionTest {
 protected:
  Output Uniform(const Scope& scope, int64_t seed) {
    return RandomUniform(scope, IntsConst(scope, {8}), DT_FLOAT, seed);
  }
  std::string TypeOf(const Output& x) {
    const auto device = session_->DeviceOf(x);
    return device.ok() ? device->type.ToString() : device.status().ToString();
  }
};

TEST_F(GpuRandomStreamsTest, NodesWithSeedsGoToTheCpu) {
  const Output seeded = Uniform(root_, 7), bare = Uniform(root_, 0), y = Square(root_, seeded);
  const auto values = session({.tensorflow_random_streams = true}).Run({}, {seeded, bare, y});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(TypeOf(seeded), "CPU");
  EXPECT_EQ(TypeOf(bare), "GPU");
  EXPECT_EQ(TypeOf(y), "GPU");
  session_ = nullptr;
  const auto on_cpu = session({.device_count = {{kGpu, 0}}, .tensorflow_random_streams = true})
                          .Run({}, {seeded, bare, y});
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 8; ++k)
      EXPECT_EQ((*values)[i].data<float>()[k], (*on_cpu)[i].data<float>()[k]) << i << ", " << k;
  }
}

TEST_F(GpuRandomStreamsTest, ANodeThatAsksForAGpuIsRefusedOrPlacedSoftly) {
  const Output x = Uniform(root_.WithDevice("/device:GPU:0"), 7);
  const auto refused = session({.tensorflow_random_streams = true}).Run({}, {x});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  for (const char* words : {"RandomUniform", "with tensorflow_random_streams a node that has seeds",
                            "allow_soft_placement"}) {
    EXPECT_NE(refused.status().message().find(words), std::string::npos) << refused.status();
  }
  session_ = nullptr;
  const auto moved =
      session({.allow_soft_placement = true, .tensorflow_random_streams = true}).Run({}, {x});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(TypeOf(x), "CPU");
}

}  // namespace
}  // namespace testing
}  // namespace monograph
