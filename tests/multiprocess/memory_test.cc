// What a daemon may take of memory, what it says when that is too little, and what is said of one
// that the system kills for lack of it.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/queue/queue.h"
#include "ops/reduce/reduce.h"
#include "ops/string/string.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// `count` matrices with a fed side, which must all be there at once, and the first element of their
// sum.
struct ManyMatrices {
  ManyMatrices(const Scope& root, int count) {
    side = Placeholder(root.WithOpName("side"), DT_INT32, {});
    const Scope there = root.WithDevice(kWorker0);
    std::vector<Output> all;
    for (int i = 0; i < count; ++i)
      all.push_back(Fill(there.WithOpName("many"), Pack(there, {side, side}),
                         Const(there, static_cast<float>(i))));
    sum = Sum(there, AddN(there, all), {0, 1});
  }
  Output side, sum;
};

Status RunWith(Session& session, const ManyMatrices& matrices, int32_t side) {
  return session.Run({{matrices.side, Tensor::Scalar<int32_t>(side)}}, {matrices.sum}).status();
}

TEST(Memory, AnOutputThatCanNeverBeIsRefusedWithItsGraph) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=1GiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  const Output big =
      Fill(there.WithOpName("big"), Const(there, {1 << 20, 1 << 20}), Const(there, 1.0f));
  const Output small = Neg(there, Const(there, {1.0f, 2.0f}));
  auto session = cluster.Connect(graph);
  ExpectError(session->Run({}, {big}).status(), Code::kResourceExhausted,
              {"node 'big' (Fill)", "/job:worker/replica:0/task:0", "[1048576,1048576]", "4.0 TiB",
               "1.0 GiB", "--memory_limit"});
  EXPECT_TRUE(session->Run({}, {small}).ok());
}

TEST(Memory, WhatIsTooLargeWhenItsSizeIsFedIsRefusedAndSaysWhoHoldsTheRest) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=512MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  const Output weights = VarHandle(there.WithOpName("weights"), DT_FLOAT, {4096, 4096});
  const Operation init =
      AssignVariable(there, weights, Fill(there, Const(there, {4096, 4096}), Const(there, 3.0f)));
  const Output read = Sum(there, ReadVariable(there, weights), {0, 1});
  const ManyMatrices matrices(root, 2);
  auto session = cluster.Connect(graph);
  ASSERT_TRUE(session->Run({}, {}, {init}).ok());
  ExpectError(RunWith(*session, matrices, 1 << 20), Code::kResourceExhausted,
              {"node 'many", "(Fill)", "/job:worker/replica:0/task:0", "float[1048576,1048576]",
               "4.0 TiB are more than the", "of 512.0 MiB (--memory_limit)",
               "held by: variable 'weights' (66.0 MiB)"});
  ASSERT_TRUE(RunWith(*session, matrices, 1024).ok());
  EXPECT_TRUE(session->Run({}, {read}).ok());  // the variable is there still
}

TEST(Memory, TensorsThatAreTooLargeTogetherAreRefusedAndTheNextStepRuns) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=512MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const ManyMatrices matrices(root, 20);
  auto session = cluster.Connect(graph);
  // 20 times 32 MiB; the limit is never passed, and nothing else in the daemon fails.
  for (int i = 0; i < 5; ++i) {
    ExpectError(RunWith(*session, matrices, 2896), Code::kResourceExhausted,
                {"node 'many", "held by: session "});
    EXPECT_TRUE(RunWith(*session, matrices, 256).ok());
  }
  EXPECT_LT(cluster.StatusOf("worker", 0).resident_bytes(), int64_t{700} << 20);
}

TEST(Memory, AGreedySessionLeavesOthersTheirPart) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=512MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const ManyMatrices matrices(root, 14);  // of 32 MiB: 448 MiB
  auto greedy = cluster.Connect(graph);
  const Status alone = RunWith(*greedy, matrices, 2896);
  EXPECT_TRUE(alone.ok()) << alone;
  auto other = cluster.Connect(graph);
  ExpectError(RunWith(*greedy, matrices, 2896), Code::kResourceExhausted,
              {"while other sessions are open session ", "three quarters of 512.0 MiB"});
  EXPECT_TRUE(RunWith(*other, matrices, 256).ok());
  ASSERT_TRUE(other->Close().ok());
  const Status again = RunWith(*greedy, matrices, 2896);
  EXPECT_TRUE(again.ok()) << again;
}

// What is fed goes into a queue on the worker, as one element or as rows.
struct GrowingQueue {
  GrowingQueue(const Scope& root, DType dtype, const PartialShape& shape, bool rows) {
    const Scope there = root.WithDevice(kWorker0);
    value = Placeholder(root, dtype, rows ? PartialShape{-1} : shape);
    const Output queue = FIFOQueue(there.WithOpName("growing"), {dtype},
                                   {.shapes = {rows ? PartialShape::Scalar() : shape}});
    put = rows ? QueueEnqueueMany(there, queue, {value}) : QueueEnqueue(there, queue, {value});
    size = QueueSize(there, queue);
  }
  Output value, size;
  Operation put;
};

// Puts until there is no room; how often it went well.
int PutAll(Session& session, const GrowingQueue& queue, const Tensor& value, Status* refused) {
  for (int puts = 0; puts < 100000; ++puts) {
    *refused = session.Run({{queue.value, value}}, {}, {queue.put}).status();
    if (!refused->ok()) return puts;
  }
  return -1;
}

TEST(Memory, AQueueOfSmallTensorsTakesTheMemoryAndGivesItBackForTensorsOfOtherSizes) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=256MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const GrowingQueue queue(root, DT_FLOAT, {1 << 17}, false);  // elements of 512 KiB
  const ManyMatrices matrices(root, 4);
  auto session = cluster.Connect(graph);
  const Tensor value = Tensor::Allocate(DT_FLOAT, Shape{1 << 17}).value();
  Status refused;
  const int puts = PutAll(*session, queue, value, &refused);
  ExpectError(refused, Code::kResourceExhausted,
              {"/job:worker/replica:0/task:0", "--memory_limit"});
  EXPECT_GT(puts, 300);
  EXPECT_FALSE(RunWith(*session, matrices, 2896).ok());
  ASSERT_TRUE(session->Reset().ok());
  const Status matrices_fit = RunWith(*session, matrices, 2896);
  EXPECT_TRUE(matrices_fit.ok()) << matrices_fit;
}

TEST(Memory, AQueueOfScalarsIsBoundedByItsPlaces) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=256MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const GrowingQueue queue(root, DT_INT8, {}, true);
  const ManyMatrices matrices(root, 2);
  auto session = cluster.Connect(graph);
  const Tensor rows = Tensor::Allocate(DT_INT8, Shape{300000}).value();
  Status refused;
  EXPECT_GT(PutAll(*session, queue, rows, &refused), 2);
  ExpectError(refused, Code::kResourceExhausted,
              {"FIFOQueue 'growing' has no room for 300000 more elements", "--memory_limit"});
  EXPECT_LT(cluster.StatusOf("worker", 0).resident_bytes(), int64_t{450} << 20);
  // Far more at once than there could be: refused before they are made.
  const Tensor many = Tensor::Allocate(DT_INT8, Shape{100 << 20}).value();
  ExpectError(session->Run({{queue.value, many}}, {}, {queue.put}).status(),
              Code::kResourceExhausted, {"--memory_limit"});
  EXPECT_TRUE(cluster.Connect(graph)->Run({}, {queue.size}).ok());
  // Others have room once the queue is gone.
  ASSERT_TRUE(session->Reset().ok());
  const Status fits = RunWith(*cluster.Connect(graph), matrices, 2048);
  EXPECT_TRUE(fits.ok()) << fits;
}

// A fed string, and it 2^joins times behind itself.
struct JoinedStrings {
  JoinedStrings(const Scope& root, int joins) {
    const Scope there = root.WithDevice(kWorker0);
    given = Placeholder(root, DT_STRING, {});
    joined = given;
    for (int i = 0; i < joins; ++i) {
      joined =
          StringJoin(there.WithOpName("join" + std::to_string(i)), Outputs{joined, joined}, "");
    }
    joined = OpBuilder(there, "StringLength").Input(joined).BuildOutput();
  }
  Output given, joined;
};

Status RunWith(Session& session, const JoinedStrings& strings, size_t size) {
  return session.Run({{strings.given, Tensor::String(std::string(size, 'a'))}}, {strings.joined})
      .status();
}

TEST(Memory, StringsThatDoubleAreRefusedBeforeTheyPassTheLimitAndTheNextStepRuns) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=256MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const JoinedStrings strings(root, 40);  // a tebibyte for each byte
  const JoinedStrings few(root, 4);
  auto session = cluster.Connect(graph);
  for (int i = 0; i < 5; ++i) {
    ExpectError(RunWith(*session, strings, 1000), Code::kResourceExhausted,
                {"node 'join", "(StringJoin)", "/job:worker/replica:0/task:0", "of 256.0 MiB",
                 "--memory_limit", "held by: session "});
    const Status fits = RunWith(*session, few, size_t{4} << 20);
    EXPECT_TRUE(fits.ok()) << fits;
  }
  EXPECT_LT(cluster.StatusOf("worker", 0).resident_bytes(), int64_t{450} << 20);
}

TEST(Memory, AQueueAndAVariableOfStringsCountAndGiveTheirRoomBack) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=256MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  const GrowingQueue queue(root, DT_STRING, {}, false);
  const JoinedStrings strings(root, 5);
  const Output variable = VarHandle(there.WithOpName("text"), DT_STRING, {});
  const Output value = Placeholder(root, DT_STRING, {});
  const Operation assign = AssignVariable(there, variable, value);
  const auto text = [](size_t mebibytes) {
    return Tensor::String(std::string(mebibytes << 20, 'a'));
  };
  auto session = cluster.Connect(graph);
  constexpr size_t kFits = size_t{4} << 20;  // 128 MiB when joined, 192 MiB with what is joined
  const auto expect_no_room = [&] {
    ExpectError(RunWith(*session, strings, kFits), Code::kResourceExhausted,
                {"node 'join", "(StringJoin)", "--memory_limit"});
  };
  ASSERT_TRUE(RunWith(*session, strings, kFits).ok());
  ASSERT_TRUE(session->Run({{value, text(100)}}, {}, {assign}).ok());
  expect_no_room();
  ASSERT_TRUE(session->Run({{value, text(1)}}, {}, {assign}).ok());
  const Status fits = RunWith(*session, strings, kFits);
  EXPECT_TRUE(fits.ok()) << fits;
  Status refused;
  const int puts = PutAll(*session, queue, text(8), &refused);
  ExpectError(refused, Code::kResourceExhausted,
              {"/job:worker/replica:0/task:0", "--memory_limit"});
  EXPECT_GT(puts, 10);
  EXPECT_LT(puts, 32);
  expect_no_room();
  EXPECT_LT(cluster.StatusOf("worker", 0).resident_bytes(), int64_t{450} << 20);
  ASSERT_TRUE(session->Reset().ok());
  const Status again = RunWith(*session, strings, kFits);
  EXPECT_TRUE(again.ok()) << again;
}

TEST(Memory, AGraphWhoseTensorsAreTooLargeTogetherIsRefusedAtOnce) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=512MiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  std::vector<Output> all;
  for (int i = 0; i < 20; ++i)
    all.push_back(Fill(there, Const(there, {2896, 2896}), Const(there, static_cast<float>(i))));
  const Output sum = AddN(there.WithOpName("sum"), all);
  // Each of two variables would fit.
  std::vector<Operation> inits, updates;
  for (int i = 0; i < 2; ++i) {
    const Output w = VarHandle(there.WithOpName("w" + std::to_string(i)), DT_FLOAT, {9000, 9000});
    const Output value =
        Fill(there, Const(there, {9000, 9000}), Const(there, static_cast<float>(i)));
    inits.push_back(AssignVariable(there, w, value));
  }
  const Output small = Neg(there, Const(there, {1.0f, 2.0f}));
  auto session = cluster.Connect(graph, {.optimizer = {.level = 0}});
  ExpectError(session->Run({}, {sum}).status(), Code::kResourceExhausted,
              {"node 'sum' (AddN)", "its inputs and its output", "639.9 MiB",
               "more than the 512.0 MiB", "--memory_limit"});
  ExpectError(
      session->Run({}, {}, inits).status(), Code::kResourceExhausted,
      {"the 2 variables that the graph updates", "'w1', 'w0'", "618.0 MiB", "--memory_limit"});
  EXPECT_TRUE(session->Run({}, {}, {inits[0]}).ok());
  EXPECT_TRUE(session->Run({}, {small}).ok());
  EXPECT_EQ(cluster.StatusOf("worker", 0).graphs(), 2);
}

TEST(Memory, TheLimitIsAFlagWithUnits) {
  for (const auto& [value, why] :
       {std::pair("12 apples", "is not a number of bytes, such as 12GiB"),
        std::pair("1M", "must be at least 64.0 MiB, not 1M")}) {
    ChildProcess daemon({ExecutorPath(), "--memory_limit=" + std::string(value)});
    EXPECT_EQ(daemon.Wait(20s)->code, 2);
    EXPECT_NE(daemon.error().find("--memory_limit: "), std::string::npos) << daemon.error();
    EXPECT_NE(daemon.error().find(why), std::string::npos) << daemon.error();
  }
}

// A control group with a limit on memory; closed if this machine or user can make none.
class LimitedGroup {
 public:
  explicit LimitedGroup(int64_t bytes) {
    const std::string name = "/monograph-test-" + std::to_string(getpid());
    for (const auto& [root, limit] : {std::pair("/sys/fs/cgroup/memory", "/memory.limit_in_bytes"),
                                      std::pair("/sys/fs/cgroup", "/memory.max")}) {
      folder_ = root + name;
      if (mkdir(folder_.c_str(), 0755) != 0) continue;
      if (std::ofstream(folder_ + limit) << bytes << std::flush) return;
      rmdir(folder_.c_str());
    }
    folder_.clear();
  }
  ~LimitedGroup() {
    // Until the last process has left.
    for (int i = 0; !folder_.empty() && rmdir(folder_.c_str()) != 0 && i < 1000; ++i) usleep(10000);
  }
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;
  bool open() const { return !folder_.empty(); }
  std::string procs() const { return folder_ + "/cgroup.procs"; }
  bool Add(pid_t pid) const {
    return static_cast<bool>(std::ofstream(procs()) << pid << std::flush);
  }

 private:
  std::string folder_;
};

TEST(Memory, ADaemonThatTheSystemKillsForLackOfMemoryIsToldAsSuch) {
  const LimitedGroup group(int64_t{300} << 20);
  if (!group.open()) GTEST_SKIP() << "this user can make no control group with a limit";
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=4GiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const ManyMatrices matrices(root, 20);
  auto session = cluster.Connect(graph);
  ASSERT_TRUE(group.Add(cluster.daemon("worker", 0).pid()));
  // Blocks below the size from which the system is asked for what it has.
  ExpectError(RunWith(*session, matrices, 2896), Code::kUnavailable,
              {"lost /job:worker/replica:0/task:0", "killed by the system for lack of memory"});
}

TEST(Memory, TheLauncherTellsThatTheSystemHasKilledADaemonForLackOfMemory) {
  const LimitedGroup group(int64_t{300} << 20);
  if (!group.open()) GTEST_SKIP() << "this user can make no control group with a limit";
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  std::vector<Output> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(Fill(there, Const(there, {2896, 2896}), Const(there, static_cast<float>(i))));
  }
  const Output sum = Sum(there.WithOpName("sum"), AddN(there, all), {0, 1});
  ASSERT_TRUE(sum.valid()) << root.status();
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteGraph(graph, folder.File("graph.pb")).ok());
  // All of it is in the group; the daemon is the one that goes.
  ChildProcess launch({"sh", "-c",
                       "echo $$ > " + group.procs() + " && exec " + MonographPath() +
                           " launch --ps=0 --workers=1 --restarts=0 "
                           "--executor_flags=--memory_limit=4GiB -- " +
                           MonographPath() + " run " + folder.File("graph.pb") +
                           " --fetches=sum:0"});
  ASSERT_TRUE(launch.Wait(60s).has_value()) << launch.error();
  EXPECT_NE(
      launch.error().find(
          "daemon worker/0 ended before the program: killed by the system for lack of memory"),
      std::string::npos)
      << launch.error();
}

// The system's count of what it has killed for lack of memory, as programs in a mount namespace
// read it: a file of ours. It stands for the system where no control group can be made.
class CountedKills {
 public:
  CountedKills() { Count(3); }
  // Why this machine cannot; empty: it can.
  std::string WhyNot() const {
    if (geteuid() != 0) return "mount namespaces need root";
    ChildProcess tried(Under({"true"}));
    const std::optional<Exit> exit = tried.Wait(20s);
    return exit && exit->code == 0 ? "" : tried.error();
  }
  std::vector<std::string> Under(std::vector<std::string> argv) const {
    argv.insert(argv.begin(), {"unshare", "--mount", "sh", "-c",
                               "mount --bind \"$0\" /proc/vmstat && exec \"$@\"", file()});
    return argv;
  }
  void Count(int kills) const { std::ofstream(file()) << "oom_kill " << kills << "\n"; }
  std::string file() const { return folder_.File("vmstat"); }

 private:
  TemporaryFolder folder_;
};

// A graph whose 'get:0' waits for an element that never comes.
std::string WriteWaitingGraph(const TemporaryFolder& folder) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope there = root.WithDevice(kWorker0);
  const Output queue =
      FIFOQueue(there, {DT_INT32}, {.capacity = 4, .shapes = {PartialShape::Scalar()}});
  EXPECT_TRUE(QueueDequeue(there.WithOpName("get"), queue)[0].valid()) << root.status();
  EXPECT_TRUE(WriteGraph(graph, folder.File("graph.pb")).ok());
  return folder.File("graph.pb");
}

TEST(Memory, ADaemonThatIsKilledWhenTheSystemCountsAKillIsToldAsSuch) {
  const CountedKills counted;
  if (const std::string why = counted.WhyNot(); !why.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const std::string graph = WriteWaitingGraph(folder);
  for (const bool counts : {true, false}) {
    TestCluster cluster({.ps = 0, .workers = 1});
    ChildProcess client(counted.Under(
        {MonographPath(), "run", graph, "--fetches=get:0", "--cluster=" + cluster.json()}));
    ASSERT_TRUE(cluster.WaitForStatus("worker", 0, [](const auto& status) {
      return status.running_steps() > 0;
    })) << client.error();
    if (counts) counted.Count(4);
    cluster.daemon("worker", 0).Signal(SIGKILL);
    ASSERT_TRUE(client.Wait(20s).has_value()) << client.error();
    const std::string said = client.error();
    EXPECT_NE(said.find("lost /job:worker/replica:0/task:0"), std::string::npos) << said;
    EXPECT_EQ(
        said.find("killed by the system for lack of memory, as it seems") != std::string::npos,
        counts)
        << said;
  }
}

TEST(Memory, TheLauncherTellsOfADaemonThatIsKilledWhenTheSystemCountsAKill) {
  for (const bool counts : {true, false}) {
    const CountedKills counted;
    if (const std::string why = counted.WhyNot(); !why.empty()) GTEST_SKIP() << why;
    // The program kills the launcher's other child.
    ChildProcess launch(counted.Under(
        {MonographPath(), "launch", "--ps=0", "--workers=1", "--restarts=0", "--", "sh", "-c",
         (counts ? "echo oom_kill 4 > " + counted.file() + "; " : std::string()) +
             "for child in $(cat /proc/$PPID/task/$PPID/children); do "
             "test $child = $$ || kill -KILL $child; done; sleep 60"}));
    ASSERT_TRUE(launch.Wait(60s).has_value()) << launch.error();
    const std::string said = launch.error();
    EXPECT_NE(said.find("daemon worker/0 ended before the program: "), std::string::npos) << said;
    EXPECT_EQ(said.find("ended before the program: killed by the system for lack of memory") !=
                  std::string::npos,
              counts)
        << said;
  }
}

TEST(Memory, ADaemonAsksTheSystemBeforeItTakesMuch) {
  const LimitedGroup group(int64_t{300} << 20);
  if (!group.open()) GTEST_SKIP() << "this user can make no control group with a limit";
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--memory_limit=4GiB"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const ManyMatrices matrices(root, 2);
  auto session = cluster.Connect(graph);
  ASSERT_TRUE(group.Add(cluster.daemon("worker", 0).pid()));
  ExpectError(
      RunWith(*session, matrices, 16384), Code::kResourceExhausted,
      {"1.0 GiB are within the limit of 4.0 GiB (--memory_limit), but the system has only"});
  EXPECT_TRUE(RunWith(*session, matrices, 1024).ok());
}

}  // namespace
}  // namespace monograph
