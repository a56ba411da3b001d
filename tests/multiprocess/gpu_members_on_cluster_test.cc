// GPUs of two daemons, as if on two machines, that exchange tensors over NCCL: the code that calls
// it, on an emulated library (tests/gpu/emulated). What becomes of a daemon that is killed, hangs,
// or loses its GPU in the middle of an exchange. And what they send each other without collectives,
// by UCX.
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/collective_graphs.h"
#include "tests/gpu/emulated/held_exchanges.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph::testing {
namespace {

// The first two on one machine, the third on another.
const std::vector<std::string> kMembers = {"/job:worker/task:0/device:GPU:0",
                                           "/job:worker/task:0/device:GPU:1",
                                           "/job:worker/task:1/device:GPU:0"};
constexpr int kRanks = 3;
constexpr char kSecondTask[] = "/job:worker/replica:0/task:1";
constexpr auto kLimit = 60s;

// Two daemons, with two cards and one. The exchanges of the second one can be held up. The
// parameter: whether the large sum is joint, and so part of a CUDA graph.
class GpuMembersOnCluster : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::string libraries = MG_EMULATED_GPU;
    setenv("MONOGRAPH_CUDA_PLUGIN", (libraries + "/libmonograph_cuda.so").c_str(), 1);
    setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
    setenv("MG_EMULATED_GPUS", "3", 1);
    Start(0);
    setenv("MG_EMULATED_NCCL_HOLD", held_.file().c_str(), 1);
    Start(1);
    unsetenv("MG_EMULATED_NCCL_HOLD");
  }
  void TearDown() override {
    session_ = nullptr;
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "MG_EMULATED_NODE", "MONOGRAPH_CUDA_PLUGIN"})
      unsetenv(name);
  }
  void Start(int task) {
    setenv("CUDA_VISIBLE_DEVICES", task == 0 ? "0,1" : "2", 1);
    setenv("MG_EMULATED_NODE", ("machine" + std::to_string(task)).c_str(), 1);
    cluster_.Start("worker", task);
  }

  // A sum of one float of each, which goes from each to all, and of 20'000, which goes along the
  // machines.
  void Open(double timeout) {
    x_ = Placeholder(root_, DT_FLOAT, {});
    fetches_ = SumOf(root_, x_, kMembers, 1, 1, timeout);
    const CollectiveGroup group{
        .size = kRanks, .key = 1, .members = kMembers, .timeout_seconds = timeout};
    Outputs inputs;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Scope place = root_.WithDevice(group.members[static_cast<size_t>(rank)]);
      Output value = Input(place, DT_FLOAT, {20'000}, rank);
      for (int i = 0; i < 3; ++i) value = Add(place, value, value);
      inputs.push_back(value);
      fetches_.push_back(GetParam() ? MonographAllReduce(place, {value}, group, 2)[0]
                                    : CollectiveReduce(place, value, group, 2));
    }
    fetches_.push_back(AddN(root_.WithDevice("/job:worker/task:0/device:CPU:0"), inputs));
    ASSERT_TRUE(root_.ok()) << root_.status();
    session_ = cluster_.Connect(graph_);
  }
  Status Step(RunOptions options = {}) {
    const auto values = session_->Run({{x_, Tensor::Scalar(1.0f)}}, fetches_, {}, options);
    if (!values.ok()) return values.status();
    for (size_t rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(values->at(rank).scalar<float>(), 2.0f * kRanks);
    ExpectBitsOfACpu(std::span(*values).subspan(kRanks));
    return Status();
  }
  Status LargeStep() {
    const auto values = session_->Run({}, Outputs(fetches_.begin() + kRanks, fetches_.end()));
    if (values.ok()) ExpectBitsOfACpu(*values);
    return values.status();
  }
  static void ExpectBitsOfACpu(std::span<const Tensor> sums) {
    for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(BitEqual(sums[rank], sums[kRanks]));
  }
  // How a step ends in which `fault` comes while an exchange between the machines is under way.
  template <typename Fault>
  Status StepWith(Fault fault) {
    for (int step = 0; step < 2 && GetParam(); ++step)  // the next one is replayed
      EXPECT_EQ(LargeStep(), Status());
    held_.Hold();
    auto step = std::async(std::launch::async, [this] { return LargeStep(); });
    EXPECT_TRUE(held_.OneWaits());
    fault();
    EXPECT_EQ(step.wait_for(kLimit), std::future_status::ready);
    return step.get();
  }

  TemporaryFolder folder_;
  emulated::HeldExchanges held_{folder_.File("hold")};
  TestCluster cluster_{{.ps = 0, .workers = 2, .start = false}};
  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  Output x_;
  Outputs fetches_;
  std::unique_ptr<Session> session_;
};

TEST_P(GpuMembersOnCluster, GpusOfTwoDaemonsSumWithTheBitsOfACpu) {
  Open(/*timeout=*/60);
  for (int step = 0; step < 4; ++step) {
    const Status status = Step();
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_NE(cluster_.daemon("worker", 0).error().find("NCCL 2.28.99, along 2 nodes"),
            std::string::npos)
      << cluster_.daemon("worker", 0).error();
  // They do come to NCCL.
  const Status status = StepWith([this] { held_.Release(); });
  EXPECT_TRUE(status.ok()) << status;
}

// The emulated NCCL refuses other memory beside what is registered.
TEST_P(GpuMembersOnCluster, RegisteredPoolsExchangeWithEachOtherAndNotWithOtherMemory) {
  setenv("MONOGRAPH_NCCL_POOL", "1", 1);
  for (const bool all : {false, true}) {
    session_ = nullptr;
    for (int task = 0; task < (all ? 2 : 1); ++task) {
      cluster_.daemon("worker", task).Signal(SIGKILL);
      Start(task);
    }
    Open(/*timeout=*/60);
    for (int step = 0; step < 2; ++step) {
      const Status status = Step();
      ASSERT_TRUE(status.ok()) << status;
    }
    const std::string error = cluster_.daemon("worker", 0).error();
    EXPECT_NE(error.find(all ? "go from GPU to GPU by NCCL 2.28.99 with registered pools"
                             : "go through host memory: " + std::string(kSecondTask)),
              std::string::npos)
        << error;
  }
  unsetenv("MONOGRAPH_NCCL_POOL");
}

TEST_P(GpuMembersOnCluster, AMemberThatDoesNotComeIsNamedAndTheNextStepRuns) {
  Open(/*timeout=*/8);
  ASSERT_EQ(Step().ToString(), "OK");
  ExpectError(session_->Run({{x_, Tensor::Scalar(1.0f)}}, {fetches_[0], fetches_[1]}).status(),
              Code::kDeadlineExceeded, {"rank 2", std::string(kSecondTask) + "/device:GPU:0"});
  const Status status = Step();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(GpuMembersOnCluster, AnExchangeThatHangsEndsAtItsDeadlineAndTheNextStepRuns) {
  Open(/*timeout=*/8);
  ASSERT_EQ(Step().ToString(), "OK");
  ExpectError(StepWith([] {}), Code::kDeadlineExceeded,
              {GetParam() ? "collective 'MonographAllReduce'" : "collective 'CollectiveReduceV2'"});
  held_.Release();
  const Status status = Step();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(GpuMembersOnCluster, AStepThatIsAbortedInAnExchangeEndsAndTheNextOneRuns) {
  Open(/*timeout=*/300);
  ASSERT_EQ(Step().ToString(), "OK");
  held_.Hold();
  const Status aborted = Step({.timeout = 2s});
  EXPECT_EQ(aborted.code(), Code::kDeadlineExceeded) << aborted;
  held_.Release();
  const Status status = Step();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(GpuMembersOnCluster, ADaemonThatIsKilledInAnExchangeIsNamedAndTheOtherGpuIsFree) {
  Open(/*timeout=*/300);
  ASSERT_EQ(Step().ToString(), "OK");
  ExpectError(StepWith([this] { cluster_.daemon("worker", 1).Signal(SIGKILL); }),
              Code::kUnavailable, {kSecondTask});
  held_.Release();
  Start(1);
  session_ = cluster_.Connect(graph_);
  const Status status = Step();
  EXPECT_TRUE(status.ok()) << status << cluster_.daemon("worker", 0).error();
}

TEST_P(GpuMembersOnCluster, AGpuThatIsLostInAnExchangeFailsTheStepAndHangsNone) {
  Open(/*timeout=*/300);
  ASSERT_EQ(Step().ToString(), "OK");
  ExpectError(StepWith([this] { held_.LoseTheGpu(); }), Code::kUnavailable,
              {"the context of " + std::string(kSecondTask) + "/device:GPU:0 is lost"});
  EXPECT_EQ(Step().code(), Code::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Sums, GpuMembersOnCluster, ::testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "Joint" : "EachByItself");
});

// Tensors that two daemons with a GPU each send each other and the client. Whether UCX knows CUDA's
// memory depends on the UCX that runs: MONOGRAPH_TEST_UCX_KNOWS_CUDA=1 says that it has to
// (tests/campaigns/ucx_of_pypi).
class GpuTransfersOnCluster : public ::testing::Test {
 protected:
  static bool UcxKnowsCuda() { return getenv("MONOGRAPH_TEST_UCX_KNOWS_CUDA") != nullptr; }

  void SetUp() override {
    const std::string libraries = MG_EMULATED_GPU;
    setenv("MONOGRAPH_CUDA_PLUGIN", (libraries + "/libmonograph_cuda.so").c_str(), 1);
    setenv("LD_LIBRARY_PATH", (libraries + "/ucx:" + libraries + ":" + library_path_).c_str(), 1);
    setenv("MG_EMULATED_GPUS", "2", 1);
  }
  void TearDown() override {
    session_ = nullptr;
    cluster_.reset();
    for (const char* name :
         {"CUDA_VISIBLE_DEVICES", "MONOGRAPH_CUDA_PLUGIN", "MG_EMULATED_GPU_LOG"})
      unsetenv(name);
    setenv("LD_LIBRARY_PATH", library_path_.c_str(), 1);
  }
  std::string LogOf(int task) const { return folder_.File("calls" + std::to_string(task)); }
  void Start(int task) {
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(task).c_str(), 1);
    setenv("MG_EMULATED_GPU_LOG", LogOf(task).c_str(), 1);
    cluster_->Start("worker", task);
  }
  // The lines about the data plane.
  std::string Connect() {
    ::testing::internal::CaptureStderr();
    session_ = cluster_->Connect(graph_);
    return ::testing::internal::GetCapturedStderr();
  }
  std::string Open(const std::string& transfers, std::vector<std::string> flags = {}) {
    flags.push_back("--gpu_transfers=" + transfers);
    cluster_.emplace(ClusterOptions{
        .ps = 0, .workers = 2, .flags = std::move(flags), .key_file = key_file_, .start = false});
    Start(0);
    Start(1);
    if (graph_.num_nodes() == 0) AddNodes();
    return Connect();
  }
  void AddNodes() {
    const Scope first = root_.WithDevice("/job:worker/task:0/device:GPU:0"),
                second = root_.WithDevice("/job:worker/task:1/device:GPU:0");
    x_ = Placeholder(root_.WithDevice("/job:worker/task:0/device:CPU:0"), DT_FLOAT, {elements_});
    const Output twice = Add(first, x_, x_);
    const Output four = Add(second, twice, twice);
    six_ = Add(first, four, twice);
  }
  // 6 x, by way of both GPUs.
  Status Step(int number) {
    Tensor x = Tensor::Allocate(DT_FLOAT, Shape{elements_}).value();
    for (int64_t i = 0; i < elements_; ++i)
      x.data<float>()[i] = static_cast<float>((i + number) % 1000);
    const auto values = session_->Run({{x_, x}}, {six_}, {}, {.timeout = kLimit});
    if (!values.ok()) return values.status();
    for (int64_t i = 0; i < elements_; ++i) {
      const float is = std::as_const(values->at(0)).data<float>()[i];
      if (is != 6 * x.data<float>()[i])
        return Internal("element " + std::to_string(i) + " is " + std::to_string(is));
    }
    return Status();
  }
  void Steps() {
    for (int step = 0; step < kSteps; ++step) {
      const Status status = Step(step);
      ASSERT_TRUE(status.ok()) << step << ": " << status;
    }
  }
  // Kills the second daemon in the middle of a step.
  void KillInTheMiddle(const std::string& transfers) {
    Open(transfers);
    ASSERT_EQ(Step(0).ToString(), "OK");
    std::atomic<int> steps{0};
    auto running = std::async(std::launch::async, [&] {
      Status status;
      for (; status.ok() && steps < 10'000; ++steps) status = Step(steps);
      return status;
    });
    // So that the kill comes in the middle of a step; at the latest when no step runs any more.
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (steps < 3 && std::chrono::steady_clock::now() < deadline &&
           running.wait_for(1ms) != std::future_status::ready) {
    }
    ASSERT_GE(steps, 3);
    cluster_->daemon("worker", 1).Signal(SIGKILL);
    ASSERT_EQ(running.wait_for(kLimit), std::future_status::ready);
    ExpectError(running.get(), Code::kUnavailable, {kSecondTask});
    Start(1);
    Connect();
    Steps();
  }
  // Ends the daemons, so that their logs are whole.
  void End() {
    session_ = nullptr;
    for (const int task : {0, 1}) {
      ChildProcess& daemon = cluster_->daemon("worker", task);
      daemon.Signal(SIGTERM);
      EXPECT_TRUE(daemon.Wait(kLimit).has_value());
    }
  }
  // How often the executor of a task copied so much (a whole tensor) between pinned memory and its
  // GPU.
  int Copies(int task, const std::string& where, int64_t bytes = 4 * kElements) {
    std::ifstream log(LogOf(task));
    const std::string copy = "cudaMemcpyAsync to the " + where + " " + std::to_string(bytes);
    int count = 0;
    for (std::string line; std::getline(log, line);) count += line == copy ? 1 : 0;
    return count;
  }

  static constexpr int64_t kElements = 100'003;
  static constexpr int kSteps = 4;
  int64_t elements_ = kElements;
  std::string key_file_;
  const std::string library_path_ =
      getenv("LD_LIBRARY_PATH") == nullptr ? "" : getenv("LD_LIBRARY_PATH");
  TemporaryFolder folder_;
  std::optional<TestCluster> cluster_;
  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  Output x_, six_;
  std::unique_ptr<Session> session_;
};

TEST_F(GpuTransfersOnCluster, TensorsGoDirectlyWhereUcxKnowsCudaAndTheLineSaysSo) {
  const std::string line = Open("auto");
  EXPECT_NE(
      line.find(UcxKnowsCuda() ? ", GPU memory directly" : ", GPU memory through the host (UCX 1."),
      std::string::npos)
      << line;
  Steps();
  End();
  if (UcxKnowsCuda()) {
    EXPECT_EQ(Copies(0, "host"), kSteps) << "to the client";
    EXPECT_EQ(Copies(1, "host"), 0);
    // What comes before its step has begun comes to the host.
    EXPECT_LT(Copies(1, "device"), kSteps);
  } else {
    EXPECT_EQ(Copies(0, "host"), 2 * kSteps) << "to the other daemon and to the client";
    EXPECT_EQ(Copies(1, "device"), kSteps);
  }
}

TEST_F(GpuTransfersOnCluster, TheFlagForbidsIt) {
  const std::string line = Open("staged");
  EXPECT_NE(line.find(", GPU memory through the host (--gpu_transfers=staged)"), std::string::npos)
      << line;
  Steps();
  End();
  EXPECT_EQ(Copies(0, "host"), 2 * kSteps);
}

// Three parts, the last of which has 1,000 bytes.
TEST_F(GpuTransfersOnCluster, LargeTensorsGoInPartsByEachLane) {
  constexpr int64_t kPart = int64_t{1} << 20, kLast = 1000;
  elements_ = (2 * kPart + kLast) / 4;
  key_file_ = folder_.File("cluster.key");
  ChildProcess keygen({MonographPath(), "keygen", key_file_});
  ASSERT_TRUE(keygen.Wait(kLimit).has_value());
  for (const std::string lanes : {"posix,cma", "tls"}) {
    SCOPED_TRACE(lanes);
    for (const int task : {0, 1}) std::filesystem::remove(LogOf(task));
    const std::string line = Open("staged", {"--lanes=" + lanes});
    EXPECT_NE(line.find(lanes == "tls" ? "tls" : "shm"), std::string::npos) << line;
    Steps();
    End();
    // What goes to the client goes as a whole.
    EXPECT_EQ(Copies(0, "host", 4 * elements_), kSteps);
    EXPECT_EQ(Copies(0, "host", kPart), 2 * kSteps);
    EXPECT_EQ(Copies(0, "host", kLast), kSteps);
    EXPECT_EQ(Copies(1, "host", kPart), 2 * kSteps);
    EXPECT_EQ(Copies(1, "host", kLast), kSteps);
    // What comes before its step has begun comes to the host, and to the GPU in the same pieces.
    EXPECT_EQ(Copies(1, "device", kPart), 2 * kSteps);
    EXPECT_EQ(Copies(1, "device", kLast), kSteps);
    EXPECT_EQ(Copies(0, "device", kPart), 4 * kSteps) << "with what the client feeds";
  }
}

TEST_F(GpuTransfersOnCluster, TheFlagForcesItOrTheDaemonSaysWhyItCannotBe) {
  if (UcxKnowsCuda()) {
    Open("direct");
    return Steps();
  }
  cluster_.emplace(
      ClusterOptions{.ps = 0, .workers = 1, .flags = {"--gpu_transfers=direct"}, .start = false});
  const std::string tasks = "--cluster=" + cluster_->json();
  ChildProcess daemon({ExecutorPath(), tasks, "--job=worker", "--gpu_transfers=direct"});
  const auto end = daemon.Wait(kLimit);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 1);
  for (const char* part : {"--gpu_transfers=direct", "does not know CUDA's memory", "posix"})
    EXPECT_NE(daemon.error().find(part), std::string::npos) << daemon.error();
}

TEST_F(GpuTransfersOnCluster, ADaemonThatIsKilledInTheMiddleIsNamedAndTheOtherGoesOn) {
  KillInTheMiddle("auto");
}

TEST_F(GpuTransfersOnCluster, ADaemonThatIsKilledBetweenPartsIsNamedAndTheOtherGoesOn) {
  elements_ = 600'003;  // three parts
  KillInTheMiddle("staged");
}

}  // namespace
}  // namespace monograph::testing
