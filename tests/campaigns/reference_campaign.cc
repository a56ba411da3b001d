// Tensors that daemons read in place, while daemons are killed, many times over: makers that are
// killed while others read, readers that are killed while their makers go on.
//
//   reference_campaign [--kills=40] [--seed=1]
//
// Each of ps/0, worker/0 and worker/1 fills tensors with a number of the step, which both others
// look through; two steps run at a time, so that memory which is used again too early shows
// another step's number. ps/0 and worker/1 are killed, worker/0 never.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/input/input.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

int kills = 40;
unsigned seed = 1;

struct Program {
  Program() : graph(NewGraph()) {
    const Scope root(&graph);
    x = Placeholder(root, DT_FLOAT, {});
    for (const char* maker : {kPs, kWorker0, kWorker1}) {
      const Scope there = root.WithDevice(maker);
      const Output filled = Fill(there, IntsConst(there, {int64_t{2} << 20}), x);
      for (const char* reader : {kPs, kWorker0, kWorker1}) {
        if (reader == maker) continue;
        const Scope here = root.WithDevice(reader);
        const Output read = Identity(here, filled);
        seen.push_back(Max(here, read, {0}));
        seen.push_back(Min(here, read, IntsConst(here, {0})));
      }
    }
    EXPECT_TRUE(root.ok()) << root.status();
  }
  // A step that must show its own number everywhere, if it ends well.
  Status Run(Session& session, float number) const {
    const auto values = session.Run({{x, Tensor::Scalar(number)}}, seen);
    if (!values.ok()) return values.status();
    for (const Tensor& value : *values) EXPECT_EQ(value.scalar<float>(), number);
    return Status();
  }
  Graph graph;
  Output x;
  Outputs seen;
};

// What a daemon has of the system's.
struct Use {
  int descriptors = 0, threads = 0;
  int arenas = 0;            // mapped: its own, and those that it reads
  int64_t shared_bytes = 0;  // resident
};

Use UseOf(TestCluster& cluster, const std::string& job, int task) {
  namespace fs = std::filesystem;
  const fs::path process = "/proc/" + std::to_string(cluster.daemon(job, task).pid());
  const auto entries = [&](const char* folder) {
    return static_cast<int>(
        std::distance(fs::directory_iterator(process / folder), fs::directory_iterator()));
  };
  Use use{.descriptors = entries("fd"), .threads = entries("task")};
  std::ifstream maps(process / "maps"), status(process / "status");
  for (std::string line; std::getline(maps, line);)
    use.arenas += line.find("/memfd:monograph (deleted)") != std::string::npos ? 1 : 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssShmem:")) use.shared_bytes = std::stoll(line.substr(9)) << 10;
  return use;
}

TEST(ReferenceCampaign, WhoeverIsKilledNobodyReadsWrongBytesAndNothingIsLeft) {
  std::mt19937 random(seed);
  TestCluster cluster;
  const Program program;
  std::atomic<int> number{0};
  const auto next = [&number] { return static_cast<float>(++number % 1'000'000); };
  const auto connect = [&] {
    auto session = cluster.Connect(program.graph);
    const Status status = program.Run(*session, next());
    EXPECT_TRUE(status.ok()) << status;
    return session;
  };
  Use before;
  for (int kill = 0; kill < kills && !::testing::Test::HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    auto session = connect();
    if (kill == kills / 4) before = UseOf(cluster, "worker", 0);
    std::mutex mutex;
    Status ended;
    const auto go_on = [&] {
      for (;;) {
        const Status status = program.Run(*session, next());
        std::lock_guard lock(mutex);
        ended.Update(status);
        if (!ended.ok()) return;
      }
    };
    std::thread first(go_on), second(go_on);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    const bool ps = random() % 2 == 0;
    cluster.daemon(ps ? "ps" : "worker", ps ? 0 : 1).Signal(SIGKILL);
    const auto killed = Clock::now();
    first.join();
    second.join();
    EXPECT_LT(Clock::now() - killed, 10s);
    ExpectError(ended, Code::kUnavailable, {ps ? "/job:ps/" : "/job:worker/replica:0/task:1"});
    session = nullptr;
    cluster.Start(ps ? "ps" : "worker", ps ? 0 : 1);
  }
  for (int i = 0; i < 20; ++i) connect();
  auto session = connect();
  const Use after = UseOf(cluster, "worker", 0);
  std::printf("%d steps; worker/0: descriptors %d, threads %d, arenas %d, shared memory %lld KiB\n",
              number.load(), after.descriptors, after.threads, after.arenas,
              static_cast<long long>(after.shared_bytes >> 10));
  if (after.arenas == 0) GTEST_SKIP() << "this system gives shared memory no huge pages";
  EXPECT_EQ(after.arenas, 3) << "its own and those of the two that live";
  EXPECT_LE(after.descriptors, before.descriptors + 4);
  EXPECT_LE(after.threads, before.threads + 2);
  // Two steps at a time, each with a tensor of its own and two of others.
  EXPECT_LE(after.shared_bytes, before.shared_bytes + (int64_t{64} << 20));
}

// Both workers read the variable where it lies, on the parameter server, which goes on adding to
// it.
TEST(ReferenceCampaign, AVariableThatIsReadInPlaceIsNeverSeenHalfChanged) {
  constexpr int64_t kElements = int64_t{2} << 20;
  constexpr int kSteps = 150;
  TestCluster cluster;
  Graph graph = NewGraph();
  const Scope root(&graph), ps = root.WithDevice(kPs);
  const Output handle = VarHandle(ps, DT_FLOAT, Shape{kElements}, "", "v");
  const auto filled = [&](float number) {
    return Fill(ps, IntsConst(ps, {kElements}), Const(ps, number));
  };
  const Operation init = AssignVariable(ps, handle, filled(0.0f));
  const Operation add = AssignAddVariable(ps, handle, filled(1.0f));
  const Output value = ReadVariable(ps, handle);
  Outputs seen;
  for (const char* reader : {kWorker0, kWorker1}) {
    const Scope here = root.WithDevice(reader);
    const Output read = Identity(here, value);
    seen.push_back(Max(here, read, {0}));
    seen.push_back(Min(here, read, IntsConst(here, {0})));
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster.Connect(graph);
  ASSERT_TRUE(session->Run({}, {}, {init}).ok());
  std::atomic<bool> end{false};
  std::thread adds([&] {
    for (int i = 0; i < kSteps; ++i) EXPECT_TRUE(session->Run({}, {}, {add}).ok());
    end = true;
  });
  float last = 0;
  int looks = 0;
  while (!end) {
    const auto values = session->Run({}, seen);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) break;
    const float number = values->at(0).scalar<float>();
    for (const Tensor& one : *values) EXPECT_EQ(one.scalar<float>(), number);
    EXPECT_GE(number, last);
    last = number;
    ++looks;
  }
  adds.join();
  const auto values = session->Run({}, seen);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), static_cast<float>(kSteps));
  EXPECT_GT(looks, 3);
}

// Feeds and fetches of a client that takes part.
TEST(ReferenceCampaign, AClientThatSaysSoFeedsAndFetchesInPlace) {
  constexpr int64_t kElements = int64_t{2} << 20;
  TestCluster cluster;
  Graph graph = NewGraph();
  const Scope root(&graph), ps = root.WithDevice(kPs);
  const Output x = Placeholder(root, DT_FLOAT, {kElements});
  const Output negative = Neg(root.WithDevice(kWorker0), x);
  const Output handle = VarHandle(ps, DT_FLOAT, Shape{kElements}, "", "v");
  const Operation assign = AssignVariable(ps, handle, x);
  const Output value = ReadVariable(ps, handle);
  ASSERT_TRUE(root.ok()) << root.status();
  SessionOptions options;
  options.transport.lanes = "posix,cma,reference";
  auto session = cluster.Connect(graph, options);
  const auto filled = [](float number) {
    Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{kElements}).value();
    std::fill_n(tensor.data<float>(), kElements, number);
    return tensor;
  };
  const auto is_filled = [](const Tensor& tensor, float number) {
    const auto values = tensor.values<float>();
    return std::all_of(values.begin(), values.end(), [=](float one) { return one == number; });
  };
  std::vector<Tensor> kept;
  for (int step = 1; step <= 20; ++step) {
    const auto number = static_cast<float>(step);
    Tensor fed = filled(number);
    ASSERT_TRUE(session->Run({{x, fed}}, {}, {assign}).ok());
    const auto fetched = session->Run({{x, fed}}, {negative, value});
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    kept.insert(kept.end(), fetched->begin(), fetched->end());
    // Once the daemons have done with it, it is ours alone: the variable has a copy.
    for (const auto until = Clock::now() + 20s; !fed.unique() && Clock::now() < until;)
      std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(fed.unique());
    std::fill_n(fed.data<float>(), kElements, -5.0f);
    const auto again = session->Run({}, {value});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(is_filled(again->at(0), number));
  }
  const bool in_place = !kept[0].unique();
  for (const bool open : {true, false}) {
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t pair = i / 2;
      const auto number = static_cast<float>(pair + 1);
      EXPECT_TRUE(is_filled(kept[i], i % 2 == 0 ? -number : number)) << i;
    }
    if (open) session = nullptr;
  }
  if (!in_place) GTEST_SKIP() << "this system gives shared memory no huge pages";
}

bool TakeFlag(std::string_view argument) {
  const size_t equals = argument.find('=');
  if (!argument.starts_with("--") || equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(2, equals - 2), text = argument.substr(equals + 1);
  const auto number = [&text](auto* value) {
    const char* const end = text.data() + text.size();
    return std::from_chars(text.data(), end, *value).ptr == end && *value > 0;
  };
  return (name == "kills" && number(&kills)) || (name == "seed" && number(&seed));
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (monograph::TakeFlag(argv[i])) continue;
    std::fprintf(stderr, "%s: %s: use --kills=N --seed=N\n", argv[0], argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
