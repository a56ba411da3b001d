// Collectives of several GPUs of one process over NCCL: bits, order, and what hangs. Where there
// are no two GPUs each test skips and says so. What hangs is made by the emulated NCCL alone
// (tests/gpu/emulated/nccl.cc).
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "executor/gpu/plugin.h"
#include "tests/client/collective_graphs.h"
#include "tests/gpu/emulated/held_exchanges.h"

namespace monograph::testing {
namespace {

using std::chrono::milliseconds;

emulated::HeldExchanges held("/tmp/monograph-held-" + std::to_string(getpid()));
const int named =
    setenv("MG_EMULATED_NCCL_HOLD", held.file().c_str(), 1);  // before an exchange asks

class GpuMembers : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::vector<GpuInfo>> gpus = ListGpus();
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    if (gpus->empty()) GTEST_SKIP() << "no GPU: " << WhyNoCuda();
    count_ = static_cast<int>(std::min<size_t>(gpus->size(), 4));
    emulated_ = gpus->at(0).name.starts_with("Emulated");
    if (count_ < 2) GTEST_SKIP() << "one GPU, which has none to exchange with";
    if (!gpus->at(0).nccl.starts_with("NCCL")) GTEST_SKIP() << gpus->at(0).nccl;
  }
  void TearDown() override {
    held.Release();
    session_ = nullptr;
  }

  std::unique_ptr<Session> Open(const Graph& graph, bool nccl = true) const {
    SessionOptions options;
    options.device_count = {{kCpu, 4}, {kGpu, count_}};
    options.inter_op_parallelism_threads = 2;
    options.intra_op_parallelism_threads = 2;
    options.gpu.nccl = nccl;
    return Session::Local(graph, std::move(options)).value();
  }
  // Adds up one float of each, in groups of these.
  void OpenSums(const std::vector<std::vector<std::string>>& groups, double timeout) {
    x_ = Placeholder(root_, DT_FLOAT, {});
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const Output& sum : SumOf(root_, x_, groups[g], 1, static_cast<int>(g + 1), timeout))
        sums_.push_back(sum);
    }
    ASSERT_TRUE(root_.ok()) << root_.status();
    session_ = Open(graph_);
  }
  Result<std::vector<Tensor>> Step(RunOptions options = {}) {
    const Result<std::vector<Tensor>> values =
        session_->Run({{x_, Tensor::Scalar(1.0f)}}, sums_, {}, options);
    for (size_t i = 0; values.ok() && i < sums_.size(); ++i)
      EXPECT_EQ(values->at(i).scalar<float>(), 4.0f) << i;
    return values;
  }

  int count_ = 0;
  bool emulated_ = false;
  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  Output x_;
  Outputs sums_;
  std::unique_ptr<Session> session_;
};

TEST_F(GpuMembers, EveryKindTypeAndSizeHasTheBitsOfCpus) {
  for (int ranks = 2; ranks <= count_; ++ranks) {
    Everything on_cpus(ranks, "CPU"), on_gpus(ranks, "GPU");
    ASSERT_TRUE(on_cpus.root.ok()) << on_cpus.root.status();
    ASSERT_TRUE(on_gpus.root.ok()) << on_gpus.root.status();
    const auto expected = Open(on_cpus.graph)->Run({}, on_cpus.fetches);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto session = Open(on_gpus.graph);
    for (int step = 0; step < 2; ++step) {
      const auto values = session->Run({}, on_gpus.fetches);
      ASSERT_TRUE(values.ok()) << values.status();
      for (size_t i = 0; i < values->size(); ++i) {
        EXPECT_TRUE(BitEqual(values->at(i), expected->at(i)))
            << on_gpus.fetches[i].name() << " of " << ranks << " GPUs in step " << step;
      }
    }
  }
}

TEST_F(GpuMembers, OverlappingGroupsInStepsThatOverlapDoNotWaitForEachOther) {
  if (count_ < 4) GTEST_SKIP() << count_ << " GPUs; it wants four";
  const OverlappingGroups groups(/*instances=*/2);
  ASSERT_TRUE(groups.root.ok()) << groups.root.status();
  const auto session = Open(groups.graph);
  groups.RunAtOnce(*session, /*threads=*/2, /*steps=*/3);
}

TEST_F(GpuMembers, AMemberThatDoesNotComeIsNamedAndTheNextStepRuns) {
  OpenSums({Gpus(2)}, /*timeout=*/8);
  ASSERT_EQ(Step().status().ToString(), "OK");
  const auto missing = session_->Run({{x_, Tensor::Scalar(1.0f)}}, {sums_[0]});
  EXPECT_EQ(missing.status().code(), Code::kDeadlineExceeded) << missing.status();
  EXPECT_NE(
      missing.status().message().find("rank 1 (/job:localhost/replica:0/task:0/device:GPU:1)"),
      std::string::npos)
      << missing.status();
  const auto values = Step();
  EXPECT_TRUE(values.ok()) << values.status();
}

// What the next tests hold up does come to the exchanges of NCCL.
TEST_F(GpuMembers, WithoutNcclNothingComesToAnExchange) {
  if (!emulated_) GTEST_SKIP() << "only the emulated NCCL is held up";
  x_ = Placeholder(root_, DT_FLOAT, {});
  sums_ = SumOf(root_, x_, Gpus(2), 1);
  session_ = Open(graph_, /*nccl=*/false);
  held.Hold();
  const auto values = Step();
  EXPECT_TRUE(values.ok()) << values.status();
}

TEST_F(GpuMembers, AnExchangeThatHangsEndsAtItsDeadlineAndTheNextStepConnectsAnew) {
  if (!emulated_) GTEST_SKIP() << "only the emulated NCCL is held up";
  OpenSums({Gpus(2)}, /*timeout=*/6);
  ASSERT_EQ(Step().status().ToString(), "OK");
  for (int round = 0; round < 2; ++round) {
    held.Hold();
    const Status status = Step().status();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    EXPECT_NE(status.message().find("for what the other members' GPUs send"), std::string::npos)
        << status;
    EXPECT_NE(status.message().find("collective 'CollectiveReduceV2' (group 1, instance 1)"),
              std::string::npos)
        << status;
    held.Release();
    const auto values = Step();
    EXPECT_TRUE(values.ok()) << values.status();
  }
}

TEST_F(GpuMembers, AStepThatIsAbortedInAnExchangeEndsAndTheNextOneRuns) {
  if (!emulated_) GTEST_SKIP() << "only the emulated NCCL is held up";
  OpenSums({Gpus(2)}, /*timeout=*/300);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Step().status().ToString(), "OK");
    held.Hold();
    const auto aborted = Step({.timeout = milliseconds(1000)});
    EXPECT_EQ(aborted.status().code(), Code::kDeadlineExceeded) << aborted.status();
    held.Release();
  }
  const auto values = Step();
  EXPECT_TRUE(values.ok()) << values.status();
}

// Two communicators of GPU 0 are ended beside each other, and joined anew.
TEST_F(GpuMembers, TwoGroupsThatHangOnOneGpuAreEndedBesideEachOther) {
  if (!emulated_) GTEST_SKIP() << "only the emulated NCCL is held up";
  if (count_ < 3) GTEST_SKIP() << "it wants three GPUs";
  OpenSums({{Gpu(0), Gpu(1)}, {Gpu(0), Gpu(2)}}, /*timeout=*/6);
  ASSERT_EQ(Step().status().ToString(), "OK");
  held.Hold();
  const Status status = Step().status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  held.Release();
  const auto values = Step();
  EXPECT_TRUE(values.ok()) << values.status();
}

}  // namespace
}  // namespace monograph::testing
