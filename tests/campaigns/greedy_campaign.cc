// What a greedy user with the key does to a daemon, beside another one who wants little: graphs
// without end, signatures, variables, sessions, feeds, fetches that nobody reads, traces.
//
//   greedy_campaign [--scale=10] [--memory_limit=512MiB]
//
// Sizes grow with the scale; 1 is the short form of ctest, 10 means a million nodes, 10,000
// signatures, 1,000 sessions. After each attack the daemon is there, the other client has worked on
// all the time, and what the attack held is free again for a session that takes half of the limit.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/byte_size.h"
#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

int scale = 1;
std::string memory_limit = "512MiB";

// 1: `small`; 10: `large`; in between by powers.
int Scaled(double small, double large) {
  return static_cast<int>(small * std::pow(large / small, std::log10(scale)));
}

Tensor FloatOnes(int64_t count) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{count}).value();
  std::fill_n(tensor.data<float>(), count, 1.0f);
  return tensor;
}

// The one who wants little: a small product every few milliseconds, in a session of its own.
class Modest {
 public:
  explicit Modest(TestCluster& cluster) : graph_(NewGraph()) {
    Scope root(&graph_);
    x_ = Placeholder(root, DT_FLOAT, {64, 64});
    y_ = Sum(root.WithDevice(kWorker0), MatMul(root.WithDevice(kWorker0), x_, x_), {0, 1});
    session_ = cluster.Connect(graph_);
    value_ = FloatOnes(64 * 64).Reshaped({64, 64});
    thread_ = std::thread([this] {
      while (!ends_) {
        const auto begin = Clock::now();
        const Status status = session_->Run({{x_, value_}}, {y_}).status();
        const int64_t took = std::chrono::nanoseconds(Clock::now() - begin).count();
        if (!status.ok()) {
          ADD_FAILURE() << "the modest client: " << status;
          return;
        }
        longest_ = std::max(longest_.load(), took);
        ++steps_;
        std::this_thread::sleep_for(3ms);
      }
    });
  }
  ~Modest() {
    ends_ = true;
    thread_.join();
  }
  // Since the last call. Waits for a step: an attack may be refused before one has ended.
  std::pair<int64_t, double> StepsAndLongestMs() {
    for (const auto until = Clock::now() + 20s; steps_ == 0 && Clock::now() < until;)
      std::this_thread::sleep_for(1ms);
    return {steps_.exchange(0), static_cast<double>(longest_.exchange(0)) / 1e6};
  }

 private:
  Graph graph_;
  Output x_, y_;
  Tensor value_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> steps_ = 0, longest_ = 0;
  std::thread thread_;
};

class Greedy : public ::testing::Test {
 protected:
  Greedy()
      : cluster_({.ps = 0, .workers = 1, .flags = {"--memory_limit=" + memory_limit}}),
        graph_(NewGraph()),
        root_(&graph_),
        there_(root_.WithDevice(kWorker0)),
        modest_(cluster_),
        limit_(ParseBytes(memory_limit).value()) {}

  void TearDown() override {
    (void)cluster_.Connect(graph_)->Reset();
    const auto [steps, longest] = modest_.StepsAndLongestMs();
    std::printf("modest client: %ld steps, the longest took %.1f ms; daemon: %s resident\n",
                static_cast<long>(steps), longest,
                BytesText(cluster_.StatusOf("worker", 0).resident_bytes()).c_str());
    EXPECT_GT(steps, 0);
    EXPECT_LT(longest, kSanitized ? 20000 : 2000);
    EXPECT_FALSE(cluster_.daemon("worker", 0).Wait(0ms).has_value())
        << cluster_.daemon("worker", 0).error();
    // What the attack held is there for others, once its sessions are closed.
    Graph graph = NewGraph();
    Scope root(&graph);
    const Output side = Placeholder(root, DT_INT32, {1});
    const Output sum = Sum(root.WithDevice(kWorker0),
                           Fill(root.WithDevice(kWorker0), side, Const(root, 1.0f)), {0});
    auto session = cluster_.Connect(graph);
    const auto half = static_cast<int32_t>(limit_ / 2 / 4);
    Status fits;
    for (int i = 0; i < 100; ++i) {
      fits = session->Run({{side, Tensor::Vector<int32_t>({half})}}, {sum}).status();
      if (fits.ok()) break;
      std::this_thread::sleep_for(50ms);
    }
    EXPECT_TRUE(fits.ok()) << fits;
  }

  // Success, or one error that says what was too much.
  static void ExpectTold(const Status& status) {
    if (status.ok()) return;
    EXPECT_TRUE(status.code() == Code::kResourceExhausted ||
                status.code() == Code::kInvalidArgument)
        << status;
    std::printf("told: %s\n", status.ToString().substr(0, 300).c_str());
  }

  TestCluster cluster_;
  Graph graph_;
  Scope root_;
  const Scope there_;
  Modest modest_;
  const int64_t limit_;
};

TEST_F(Greedy, GraphsOfVeryManyNodes) {
  const int nodes = Scaled(20'000, 1'000'000);
  const Output x = Placeholder(root_, DT_FLOAT, {});
  Output y = x;
  for (int i = 0; i < nodes; ++i) y = Neg(there_, y);
  auto session = cluster_.Connect(graph_);
  for (int i = 0; i < 2; ++i) ExpectTold(session->Run({{x, Tensor::Scalar(1.0f)}}, {y}).status());
  RunMetadata metadata;
  ExpectTold(
      session->Run({{x, Tensor::Scalar(1.0f)}}, {y}, {}, {.trace = true}, &metadata).status());
  std::printf("%d nodes, a trace of %s%s\n", nodes,
              BytesText(static_cast<int64_t>(metadata.trace_json.size())).c_str(),
              metadata.trace_error.c_str());
}

TEST_F(Greedy, ANodeWithVeryManyInputs) {
  std::vector<Output> all;
  const Output x = Placeholder(root_, DT_FLOAT, {16});
  for (int i = 0; i < Scaled(3000, 50'000); ++i) all.push_back(Neg(there_, x));
  const Output sum = AddN(there_, all);
  ExpectTold(cluster_.Connect(graph_)->Run({{x, FloatOnes(16)}}, {sum}).status());
}

TEST_F(Greedy, VeryManySignatures) {
  const int count = Scaled(200, 10'000);
  std::vector<Output> outputs;
  for (int i = 0; i < count; ++i)
    outputs.push_back(Neg(there_, Const(there_, static_cast<float>(i))));
  auto session = cluster_.Connect(graph_);
  std::vector<Callable> kept;
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    Result<Callable> made = session->MakeCallable({}, {outputs[static_cast<size_t>(i)]});
    status = made.status();
    if (status.ok()) kept.push_back(std::move(made).value());
  }
  ExpectTold(status);
  EXPECT_TRUE(session->RunCallable(kept.back(), {}).ok());
  std::printf("%zu signatures, %d graphs at the daemon\n", kept.size(),
              cluster_.StatusOf("worker", 0).graphs());
}

TEST_F(Greedy, ConstantsWithoutEnd) {
  std::vector<Output> all;
  const int64_t each = int64_t{4} << 20;
  for (int64_t i = 0; i < 2 * limit_ / each; ++i)
    all.push_back(Sum(there_, Const(there_, FloatOnes(each / 4)), {0}));
  auto session = cluster_.Connect(graph_, {.optimizer = {.level = 0}});
  Status status;
  std::vector<Callable> kept;
  for (size_t i = 0; i < all.size() && status.ok(); ++i) {
    Result<Callable> made = session->MakeCallable({}, {all[i]});
    status = made.status();
    if (status.ok()) kept.push_back(std::move(made).value());
  }
  ExpectError(status, Code::kResourceExhausted, {"--memory_limit"});
  std::printf("%zu constants of %s\n", kept.size(), BytesText(each).c_str());
}

TEST_F(Greedy, VariablesWithoutEnd) {
  const int count = Scaled(3000, 100'000);
  std::vector<Operation> inits;
  for (int i = 0; i < count; ++i) {
    const Output w = VarHandle(there_.WithOpName("w" + std::to_string(i)), DT_FLOAT, {256});
    inits.push_back(
        AssignVariable(there_, w, Fill(there_, Const(there_, {256}), Const(there_, 1.f))));
  }
  ExpectTold(cluster_.Connect(graph_)->Run({}, {}, inits).status());
}

TEST_F(Greedy, VeryManySessions) {
  const Output y = Neg(there_, Const(there_, 1.0f));
  std::vector<std::unique_ptr<Session>> sessions;
  Status status;
  for (int i = 0; i < Scaled(20, 1000) && status.ok(); ++i) {
    auto session = Session::Connect(cluster_.spec(), graph_);
    status = session.status();
    if (!status.ok()) break;
    sessions.push_back(std::move(session).value());
    status = sessions.back()->Run({}, {y}).status();
  }
  if (!status.ok()) std::printf("told: %s\n", status.ToString().c_str());
  EXPECT_GE(sessions.size(), 20u);
  std::printf("%zu sessions\n", sessions.size());
}

TEST_F(Greedy, FeedsLargerThanTheMemoryAndManyAtOnce) {
  const Output x = Placeholder(root_, DT_FLOAT, {-1});
  const Output y = Sum(there_, Neg(there_, x), {0});
  auto session = cluster_.Connect(graph_);
  const auto run = [&](int64_t bytes) {
    return session->Run({{x, FloatOnes(bytes / 4)}}, {y}).status();
  };
  ExpectError(run(limit_ + (limit_ >> 2)), Code::kResourceExhausted, {"--memory_limit"});
  // More together than there is; some may fit.
  const Callable callable = session->MakeCallable({x}, {y}).value();
  const std::vector<Tensor> feed{FloatOnes(limit_ / 16)};
  std::atomic<int> left = 40, failed = 0;
  for (int i = 0; i < 40; ++i) {
    session->RunAsync(callable, feed, [&](const Result<std::vector<Tensor>>& result) {
      if (!result.ok()) {
        ++failed;
        EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << result.status();
      }
      --left;
    });
  }
  for (int i = 0; i < 6000 && left > 0; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(left, 0);
  std::printf("%d of 40 steps with large feeds refused\n", failed.load());
  EXPECT_TRUE(run(1000).ok());
}

TEST_F(Greedy, StepsWithoutEndThatNobodyAwaits) {
  const Output y = Neg(there_, Const(there_, 1.0f));
  auto session = cluster_.Connect(graph_);
  std::thread endless([&] { EXPECT_FALSE(session->Run({}, {y}, {}, {.steps = INT64_MAX}).ok()); });
  std::this_thread::sleep_for(500ms);
  const auto begin = Clock::now();
  EXPECT_TRUE(session->Close().ok());
  EXPECT_LT(Clock::now() - begin, 2s);
  endless.join();
}

// A client that stops while a fetch of half of the memory is sent to it.
TEST_F(Greedy, AFetchThatNobodyReads) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  const auto elements = static_cast<int32_t>(limit_ / 8);
  const Output big =
      Fill(there.WithOpName("big"), Const(there, {elements / 64, 64}), Const(there, 2.0f));
  const Output same = Neg(there.WithOpName("same"), big);
  ASSERT_TRUE(same.valid()) << root.status();
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteGraph(graph, folder.File("graph.pb")).ok());
  const std::string cluster = folder.File("cluster.json");
  std::ofstream(cluster) << cluster_.json();
  for (int i = 0; i < Scaled(2, 20); ++i) {
    auto client = std::make_unique<ChildProcess>(std::vector<std::string>{
        MonographPath(), "run", folder.File("graph.pb"), "--cluster=" + cluster,
        "--fetches=same:0=" + folder.File("same.npy")});
    EXPECT_TRUE(cluster_.WaitForStatus("worker", 0, [](const auto& status) {
      return status.sessions() == 2;
    })) << client->error();
    std::this_thread::sleep_for(std::chrono::milliseconds(60 + 37 * i % 400));
    client->Signal(SIGSTOP);
    std::this_thread::sleep_for(scale > 1 ? 4s : 1s);
    client = nullptr;  // SIGKILL
    EXPECT_TRUE(cluster_.WaitForStatus("worker", 0,
                                       [](const auto& status) { return status.sessions() == 1; }));
  }
}

bool TakeFlag(std::string_view argument) {
  const size_t equals = argument.find('=');
  if (!argument.starts_with("--") || equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(2, equals - 2), text = argument.substr(equals + 1);
  if (name == "memory_limit") memory_limit = text;
  const char* const end = text.data() + text.size();
  return name == "memory_limit" ||
         (name == "scale" && std::from_chars(text.data(), end, scale).ptr == end && scale >= 1 &&
          scale <= 100);
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (monograph::TakeFlag(argv[i])) continue;
    std::fprintf(stderr, "%s: %s: use --scale=N --memory_limit=BYTES\n", argv[0], argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
