// Collectives of several GPUs of one process over NCCL: bits, order, and what hangs. Where there
// are no two GPUs each test skips and says so. What hangs and what fails is made by the emulated
// libraries alone (tests/gpu/emulated).
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <tuple>

#include "executor/gpu/plugin.h"
#include "ops/softmax/softmax.h"
#include "tests/client/collective_graphs.h"
#include "tests/gpu/emulated/held_exchanges.h"
#include "tests/gpu/emulated/injected_failures.h"

namespace monograph::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kSystemError = 2;  // NCCL's

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

  std::unique_ptr<Session> Open(const Graph& graph, bool nccl = true,
                                bool cuda_graphs = true) const {
    SessionOptions options;
    options.device_count = {{kCpu, 4}, {kGpu, count_}};
    options.inter_op_parallelism_threads = 2;
    options.intra_op_parallelism_threads = 2;
    options.gpu.nccl = nccl;
    options.gpu.cuda_graphs = cuda_graphs;
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

// Towers whose collectives are in the graphs that are replayed.
TEST_F(GpuMembers, JointStepsHaveTheBitsOfCpusAndEndWhereOneHangsInItsGraph) {
  constexpr int kSteps = 9;
  const Towers towers(2, "GPU", /*timeout=*/6), on_cpus(2, "CPU");
  ASSERT_TRUE(towers.root.ok()) << towers.root.status();
  std::vector<std::vector<Tensor>> expected;
  {
    const auto cpus = Open(on_cpus.graph);
    for (int step = 0; step < kSteps; ++step) {
      expected.push_back(
          cpus->Run(on_cpus.Feeds(3, static_cast<float>(step)), on_cpus.sums).value());
    }
  }
  session_ = Open(towers.graph);
  const auto run = [&](int step, RunOptions options = {}) {
    return session_->Run(towers.Feeds(3, static_cast<float>(step)), towers.sums, {}, options);
  };
  const auto expect = [&](int step) {
    const auto values = run(step);
    ASSERT_TRUE(values.ok()) << values.status();
    if (!emulated_) return;  // a GPU's reductions have bits of their own
    for (size_t i = 0; i < values->size(); ++i)
      EXPECT_TRUE(BitEqual(values->at(i), expected[static_cast<size_t>(step)][i]))
          << i << " in step " << step;
  };
  for (int step = 0; step < 5; ++step) expect(step);
  if (!emulated_) return;
  for (const bool aborts : {false, true}) {
    held.Hold();
    const Status status =
        run(5, aborts ? RunOptions{.timeout = milliseconds(1000)} : RunOptions{}).status();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    held.Release();
    for (int step = 6; step < kSteps; ++step) expect(step);
  }
}

// In a process of its own, in which an exchange is never let go.
TEST_F(GpuMembers, AnAbortThatFailsLosesTheGpuAndTheProcessEndsThoughTheExchangeDoesNot) {
  if (!emulated_) GTEST_SKIP() << "only calls of the emulated libraries fail";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [this] {
    emulated::InjectedFailures failures;
    OpenSums({Gpus(2)}, /*timeout=*/300);
    EXPECT_EQ(Step().status().ToString(), "OK");
    EXPECT_TRUE(failures.Found());
    held.Hold();
    failures.FailAt(1, kSystemError, "ncclCommAbort");
    EXPECT_FALSE(Step({.timeout = milliseconds(500)}).ok());
    EXPECT_EQ(failures.Failed(), "ncclCommAbort");
    failures.Stop();
    const Status next = Step().status();
    EXPECT_EQ(next.code(), Code::kUnavailable) << next;
    EXPECT_NE(next.message().find("is lost (ncclCommAbort failed"), std::string::npos) << next;
    session_ = nullptr;
    std::exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "GPU:[01] does not end its work; its memory");
}

// Steps of two GPUs with a collective between nodes that are replayed, or (joint) replayed with
// those that lead to it, in which one call of CUDA or NCCL fails.
enum class Phase { kConnects, kCaptures, kReplays, kConnectsAnew };
constexpr const char* kPhases[] = {"Connects", "Captures", "Replays", "ConnectsAnew"};

class GpuMembersFailures : public GpuMembers,
                           public ::testing::WithParamInterface<std::tuple<Phase, bool>> {
 protected:
  static constexpr int kMembers = 2, kSteps = 7;

  void SetUp() override {
    GpuMembers::SetUp();
    if (IsSkipped()) return;
    if (!emulated_) GTEST_SKIP() << "only calls of the emulated libraries fail";
    ASSERT_TRUE(failures_.Found());
    joint_ = std::get<1>(GetParam());
    x_ = Placeholder(root_, DT_FLOAT, {2, 6});
    const CollectiveGroup group{
        .size = kMembers, .key = 1, .members = Gpus(kMembers), .timeout_seconds = kTimeout};
    for (int rank = 0; rank < kMembers; ++rank) {
      const Scope place = root_.WithDevice(Gpu(rank));
      Output y = Mul(place, x_, Const(place, static_cast<float>(rank + 1)));
      for (int i = 0; i < 4; ++i) y = Softmax(place, y);
      y = joint_ ? MonographAllReduce(place, {y}, group, 1)[0]
                 : CollectiveReduce(place, y, group, 1);
      for (int i = 0; i < 4; ++i) y = Softmax(place, y);
      sums_.push_back(y);
    }
    ASSERT_TRUE(root_.ok()) << root_.status();
    session_ = Open(graph_, /*nccl=*/true, /*cuda_graphs=*/false);
    for (int step = 0; step < kSteps; ++step) expected_.push_back(Run(step).value());
    ASSERT_FALSE(BitEqual(expected_[0][0], expected_[1][0]));
  }
  Result<std::vector<Tensor>> Run(int step) {
    Tensor x = Tensor::Allocate(DT_FLOAT, {2, 6}).value();
    for (int i = 0; i < 12; ++i)
      x.data<float>()[i] = static_cast<float>(i % 5 + step) / static_cast<float>(i + 2);
    return session_->Run({{x_, x}}, sums_);
  }
  void Expect(int step) {
    const auto values = Run(step);
    ASSERT_TRUE(values.ok()) << values.status();
    ExpectRight(step, *values);
  }
  void ExpectRight(int step, const std::vector<Tensor>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(BitEqual(values[i], expected_[static_cast<size_t>(step)][i]))
          << "GPU " << i << " in step " << step;
  }
  // Runs what comes before; returns the number of the step.
  int Prepare(Phase phase) {
    session_ = nullptr;
    session_ = Open(graph_);
    // A joint collective is not issued again when it is replayed.
    const int anew = joint_ ? 0 : 2;
    const int before = phase == Phase::kConnectsAnew ? anew : static_cast<int>(phase);
    for (int step = 0; step < before; ++step) Expect(step);
    if (phase != Phase::kConnectsAnew) return before;
    failures_.FailAt(1, kSystemError, "ncclGroupEnd");
    EXPECT_FALSE(Run(before).ok());
    failures_.Stop();
    return before + 1;
  }
  // Lets each of `calls` fail.
  void FailEach(Phase phase, int error, const std::string& only, emulated::FailingCalls calls);

  static constexpr double kTimeout = 20;
  bool joint_ = false;
  emulated::InjectedFailures failures_;
  std::vector<std::vector<Tensor>> expected_;  // by step, without CUDA graphs
  std::set<std::string> failed_;               // names of calls
};

void GpuMembersFailures::FailEach(Phase phase, int error, const std::string& only,
                                  emulated::FailingCalls calls) {
  int failed = 0, ended = 0, lost = 0;
  for (int64_t call = calls.first; !HasFailure(); call += calls.stride) {
    const int step = Prepare(phase);
    if (HasFailure()) break;
    failures_.FailAt(call, error, only);
    const auto begin = std::chrono::steady_clock::now();
    Result<std::vector<Tensor>> values = Run(step);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::string which = failures_.Failed();
    failures_.Stop();
    SCOPED_TRACE(which + ", call " + std::to_string(call) + " of a step that " +
                 kPhases[static_cast<size_t>(phase)] + ", fails with " + std::to_string(error));
    EXPECT_LT(took.count(), 2 * kTimeout);
    failed_.insert(which);
    failed += which.empty() ? 0 : 1;
    ended += values.ok() ? 0 : 1;
    if (values.ok()) {
      ExpectRight(step, *values);
    } else {
      const std::string why = values.status().message();
      const std::string name = which == "launch" ? "cudaLaunchKernelExC" : which;
      bool says = false;
      // NCCL calls CUDA, too, and says only that.
      for (const std::string& part :
           {name, std::string(" is lost"), std::string("no memory"),
            std::string("no pinned host memory"), std::string("ncclUnhandledCudaError")})
        says = says || why.find(part) != std::string::npos;
      EXPECT_TRUE(!which.empty() && says) << values.status();
    }
    values = Aborted("given back");  // what it held is memory of the GPU's driver
    // A loss may be noticed behind the step's end.
    const auto next = Run(step + 1);
    if (next.ok()) {
      ExpectRight(step + 1, *next);
    } else {
      ++lost;
      EXPECT_NE(next.status().message().find(" is lost"), std::string::npos) << next.status();
      session_ = nullptr;
      failures_.Restart();
      session_ = Open(graph_);
    }
    Expect(step + 2);
    if (which.empty()) break;
  }
  std::printf("failing calls: %d, %s that %s, %s with %d: %d steps failed, %d lost the GPU\n",
              failed, joint_ ? "joint collective" : "collective",
              kPhases[static_cast<size_t>(phase)], only.empty() ? "CUDA" : only.c_str(), error,
              ended, lost);
}

TEST_P(GpuMembersFailures, OfOneCallEndTheStepByNameOrChangeNoBit) {
  constexpr int kInvalidValue = 1, kNoMemory = 2, kLaunchFailure = 719;
  const Phase phase = std::get<0>(GetParam());
  for (const int error : {kInvalidValue, kNoMemory, kLaunchFailure})
    FailEach(phase, error, "", emulated::ChooseCalls(/*stride=*/31));
  const bool joins = phase == Phase::kConnects || phase == Phase::kConnectsAnew;
  constexpr int kRemoteError = 6;
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig"}) {
    FailEach(phase, kSystemError, call, emulated::ChooseCalls(1));
    // A later part of the calls may have none.
    EXPECT_TRUE(failed_.contains(call) == joins || emulated::ChooseCalls(1).first > 1) << call;
  }
  for (const char* call : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    FailEach(phase, kSystemError, call, emulated::ChooseCalls(3));
    const bool called = !joint_ || phase != Phase::kReplays;
    EXPECT_TRUE(failed_.contains(call) == called || emulated::ChooseCalls(3).first > 1) << call;
  }
  // How often it is asked for depends on the time that things take.
  for (const int error : {kSystemError, kRemoteError})
    FailEach(phase, error, "ncclCommGetAsyncError", emulated::ChooseCalls(17));
}
INSTANTIATE_TEST_SUITE_P(Steps, GpuMembersFailures,
                         ::testing::Combine(::testing::Values(Phase::kConnects, Phase::kCaptures,
                                                              Phase::kReplays,
                                                              Phase::kConnectsAnew),
                                            ::testing::Bool()),
                         [](const auto& of) {
                           return std::string(std::get<1>(of.param) ? "Joint" : "") +
                                  kPhases[static_cast<size_t>(std::get<0>(of.param))];
                         });

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
