// Starting: daemons that are not up, wrong tasks, ports in use, other versions, bad cluster files,
// unknown flags.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tools/free_ports.h"
#include "transport/control/server.h"

namespace monograph {
namespace {

// Runs a program that must end by itself.
struct Ran {
  int code = -1;
  std::string error;
};
Ran RunDaemon(const std::vector<std::string>& flags,
              const ChildProcess::Environment& environment = {}) {
  std::vector<std::string> argv = {ExecutorPath()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  ChildProcess daemon(argv, environment);
  const std::optional<Exit> exit = daemon.Wait(20s);
  EXPECT_TRUE(exit.has_value()) << "it still runs; it said: " << daemon.error();
  return {exit && !exit->signalled ? exit->code : -1, daemon.error()};
}

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void ExpectOneError(const Ran& ran, std::initializer_list<std::string> parts, int code = 2) {
  EXPECT_EQ(ran.code, code) << ran.error;
  EXPECT_EQ(Lines(ran.error), 1) << ran.error;
  for (const std::string& part : parts)
    EXPECT_NE(ran.error.find(part), std::string::npos) << "no '" << part << "' in: " << ran.error;
}

TEST(Start, DaemonsThatAreNotUpAreListedAfterTheStartTimeoutAndSaidMeanwhile) {
  TestCluster cluster({.ps = 1, .workers = 2, .start = false});
  cluster.Start("worker", 0);
  Graph graph = NewGraph();
  SessionOptions options;
  options.start_timeout = 1500ms;
  const auto begin = Clock::now();
  ::testing::internal::CaptureStderr();
  const Status status = Session::Connect(cluster.spec(), graph, options).status();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto took = Clock::now() - begin;
  ExpectError(status, Code::kUnavailable,
              {"/job:ps/replica:0/task:0", cluster.address("ps", 0), "/job:worker/replica:0/task:1",
               cluster.address("worker", 1), "monograph-executor"});
  EXPECT_EQ(status.message().find("/job:worker/replica:0/task:0"), std::string::npos) << status;
  const std::string ps = "/job:ps/replica:0/task:0 at ";
  EXPECT_EQ(status.message().find(ps), status.message().rfind(ps)) << status;
  EXPECT_GE(took, 1500ms);
  EXPECT_LT(took, 20s);
  EXPECT_NE(said.find("waiting for"), std::string::npos) << said;
  EXPECT_NE(said.find("/job:ps/replica:0/task:0"), std::string::npos) << said;
}

TEST(Start, ADaemonThatComesUpWhileTheClientWaitsIsTaken) {
  TestCluster cluster({.ps = 0, .workers = 1, .start = false});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output one = Identity(root.WithDevice("/job:worker/task:0"), Const(root, 1.0f));
  SessionOptions options;
  options.start_timeout = 20s;
  ::testing::internal::CaptureStderr();
  Result<std::unique_ptr<Session>> session = Unavailable("not tried");
  std::thread client([&] { session = Session::Connect(cluster.spec(), graph, options); });
  cluster.Start("worker", 0);
  client.join();
  ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run({}, {one}).ok());
}

TEST(Start, AnotherTaskAtTheAddressIsNamed) {
  TestCluster cluster({.ps = 0, .workers = 2});
  ClusterSpec wrong;
  ASSERT_TRUE(wrong.AddTask("worker", 0, cluster.address("worker", 1)).ok());
  Graph graph = NewGraph();
  const auto begin = Clock::now();
  ExpectError(Session::Connect(wrong, graph).status(), Code::kFailedPrecondition,
              {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1",
               cluster.address("worker", 1)});
  EXPECT_LT(Clock::now() - begin, 10s) << "waiting does not make it another task";
}

TEST(Start, APortInUseIsOneClearError) {
  TestCluster cluster({.ps = 0, .workers = 1});
  cluster.StatusOf("worker", 0);  // it listens
  ExpectOneError(RunDaemon({"--cluster=" + cluster.json(), "--job=worker", "--task=0"}),
                 {cluster.address("worker", 0), "in use"}, 1);
}

TEST(Start, APortCanBeUsedAtOnceAfterSigterm) {
  TestCluster cluster({.ps = 0, .workers = 1});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output one = Identity(root.WithDevice("/job:worker/task:0"), Const(root, 1.0f));
  for (int i = 0; i < 3; ++i) {
    auto session = cluster.Connect(graph);
    ASSERT_TRUE(session->Run({}, {one}).ok());
    ::testing::internal::CaptureStderr();
    cluster.daemon("worker", 0).Signal(SIGTERM);
    const std::optional<Exit> exit = cluster.daemon("worker", 0).Wait(15s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_FALSE(exit->signalled);
    EXPECT_EQ(exit->code, 0);
    session = nullptr;
    ::testing::internal::GetCapturedStderr();
    cluster.Start("worker", 0);
  }
  auto session = cluster.Connect(graph);
  EXPECT_TRUE(session->Run({}, {one}).ok());
}

TEST(Start, ADaemonWhoseTerminalIsClosedEndsUnlessItRunsUnderNohup) {
  const std::string command = "exec " + ExecutorPath() + " --worker_hosts=127.0.0.1:" +
                              std::to_string(FreePorts(1).value()[0]) + " --job=worker";
  {
    ChildProcess daemon({"sh", "-c", command});
    ASSERT_TRUE(daemon.WaitForError("listens on")) << daemon.error();
    daemon.Signal(SIGHUP);
    const std::optional<Exit> exit = daemon.Wait(20s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 0) << daemon.error();
    EXPECT_NE(daemon.error().find("the terminal was closed (SIGHUP): draining"), std::string::npos)
        << daemon.error();
  }
  ChildProcess daemon({"sh", "-c", "trap '' HUP; " + command});
  ASSERT_TRUE(daemon.WaitForError("listens on")) << daemon.error();
  daemon.Signal(SIGHUP);
  EXPECT_FALSE(daemon.Wait(500ms).has_value());
}

TEST(Start, APeerOfAnotherVersionIsRefusedByBothSides) {
  // A daemon of another version.
  control::ServerOptions options;
  options.hello.software_version = "9.9.9";
  options.hello.task_name = "/job:worker/replica:0/task:0";
  auto server = control::Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  ClusterSpec spec;
  ASSERT_TRUE(spec.AddTask("worker", 0, (*server)->address()).ok());
  Graph graph = NewGraph();
  ExpectError(
      Session::Connect(spec, graph).status(), Code::kFailedPrecondition,
      {"/job:worker/replica:0/task:0", "9.9.9", control::SoftwareVersion(), "same version"});
  // A client of another version.
  TestCluster cluster({.ps = 0, .workers = 1});
  control::ChannelOptions client;
  client.hello.software_version = "9.9.9";
  client.timeout = 20s;
  ExpectError(control::Channel::Connect(cluster.address("worker", 0), client).status(),
              Code::kFailedPrecondition, {"9.9.9", control::SoftwareVersion()});
  EXPECT_TRUE(cluster.daemon("worker", 0).WaitForError("9.9.9"))
      << cluster.daemon("worker", 0).error();
  // One that knows other ops.
  client.hello.software_version = control::SoftwareVersion();
  client.hello.fingerprint = "other ops";
  EXPECT_EQ(control::Channel::Connect(cluster.address("worker", 0), client).status().code(),
            Code::kFailedPrecondition);
}

TEST(Start, ABadClusterFileIsNamedWithThePlace) {
  TemporaryFolder folder;
  const std::string broken =
      folder.Write("broken.json", "{\"worker\": [\"127.0.0.1:2222\",\n  oops]}\n");
  ExpectOneError(RunDaemon({"--cluster=" + broken, "--job=worker", "--task=0"}), {broken, "line 2"},
                 2);
  const std::string address =
      folder.Write("address.json", "{\"worker\": [\"127.0.0.1:2222\", \"nowhere\"]}");
  ExpectOneError(RunDaemon({"--cluster=" + address, "--job=worker", "--task=0"}),
                 {address, "nowhere", "worker"}, 2);
  ExpectOneError(RunDaemon({"--cluster=" + folder.File("none.json"), "--job=worker", "--task=0"}),
                 {folder.File("none.json")}, 2);
  const std::string good =
      folder.Write("good.json", "{\"worker\": [\"127.0.0.1:2222\"], \"ps\": [\"127.0.0.1:2223\"]}");
  ExpectOneError(RunDaemon({"--cluster=" + good, "--job=worker", "--task=3"}),
                 {"task 3 of job 'worker'", "worker/0"}, 2);
  ExpectOneError(RunDaemon({"--cluster=" + good}), {"--job"}, 2);
}

// A pipe may be one of a shell, --cluster=<(...), and has ten seconds.
TEST(Start, AClusterFileWithoutAnEndAndAPipeThatNobodyWritesAreOneClearErrorEach) {
  TemporaryFolder folder;
  const std::string pipe = folder.File("cluster.json");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectOneError(RunDaemon({"--cluster=/dev/zero", "--job=worker", "--task=0"}),
                 {"cannot read cluster file '/dev/zero': it has more bytes, at most "});
  ExpectOneError(RunDaemon({"--cluster=" + pipe, "--job=worker", "--task=0"}),
                 {"cannot read cluster file '" + pipe + "': it has not ended in time; who writes"});
}

TEST(Start, AnUnknownFlagGetsTheNearestName) {
  ExpectOneError(RunDaemon({"--clutser=x", "--job=worker", "--task=0"}),
                 {"--clutser", "--cluster"});
}

TEST(Start, ValuesThatMakeNoSenseAreRefusedByTheirFlags) {
  for (const std::string flag :
       {"--cpu_devices=0", "--cpu_devices=x", "--inter_op_parallelism_threads=-1", "--spin_us=-1",
        "--drain_seconds=-1", "--task=x", "--key_file=/nowhere/cluster.key"}) {
    const std::string name = flag.substr(2, flag.find('=') - 2);
    const std::string named = name == "key_file" ? "/nowhere/cluster.key" : name;
    ExpectOneError(RunDaemon({"--worker_hosts=localhost:1", "--job=worker", flag}), {named});
  }
}

TEST(Start, ADaemonOfAJobOfSeveralTasksMustBeToldWhichItIs) {
  const std::string cluster = "--worker_hosts=127.0.0.1:1,127.0.0.1:2";
  ExpectOneError(RunDaemon({cluster, "--job=worker"}),
                 {"--task is missing: job worker has 2 tasks", "MONOGRAPH_TASK"});
  ExpectOneError(RunDaemon({cluster, "--job=worker"}, {{"SLURM_PROCID", "2"}}),
                 {"SLURM_PROCID=2", "worker/1", "--task"});
  ExpectOneError(RunDaemon({cluster, "--job=worker"}, {{"MONOGRAPH_TASK", "one"}}), {"one"});
}

TEST(Start, ADaemonFindsItsClusterAndItsTaskInTheEnvironmentAndSaysFromWhere) {
  TestCluster cluster({.ps = 0, .workers = 2, .start = false});
  TemporaryFolder folder;
  for (const std::string& where : {cluster.json(), folder.Write("cluster.json", cluster.json())}) {
    for (const char* rank :
         {"MONOGRAPH_TASK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
      ChildProcess daemon({ExecutorPath(), "--job=worker"},
                          {{"MONOGRAPH_CLUSTER", where}, {rank, "1"}});
      EXPECT_TRUE(daemon.WaitForError("/job:worker/replica:0/task:1 listens on "))
          << daemon.error();
      EXPECT_NE(
          daemon.error().find("this is task 1 of job worker, from " + std::string(rank) + "=1"),
          std::string::npos)
          << daemon.error();
      daemon.Signal(SIGTERM);
      EXPECT_TRUE(daemon.Wait(20s).has_value());
    }
  }
}

TEST(Start, TwoDaemonsOfOneMpirunAreTwoTasks) {
  TestCluster cluster({.ps = 0, .workers = 2, .start = false});
  std::vector<std::unique_ptr<ChildProcess>> daemons;
  for (const char* rank : {"0", "1"}) {
    daemons.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{ExecutorPath(), "--cluster=" + cluster.json(), "--job=worker"},
        ChildProcess::Environment{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", rank}}));
  }
  Graph graph = NewGraph();
  EXPECT_TRUE(Session::Connect(cluster.spec(), graph).ok());
}

TEST(Start, ADaemonWithoutAClusterSaysHowToGiveOneAndThatTfConfigIsNotRead) {
  ExpectOneError(RunDaemon({"--job=worker"}), {"no cluster is given", "--cluster=FILE"});
  ExpectOneError(RunDaemon({"--job=worker"}, {{"TF_CONFIG", "{\"cluster\": {}}"}}),
                 {"no cluster is given", "TF_CONFIG is set, but is not read", "--cluster"});
}

TEST(Start, ALaneThatThisMachineLacksIsAnError) {
  const std::vector<int> ports = FreePorts(1).value();
  const Ran ran = RunDaemon({"--worker_hosts=127.0.0.1:" + std::to_string(ports[0]), "--job=worker",
                             "--task=0", "--lanes=rc_mlx5"});
  EXPECT_EQ(ran.code, 1) << ran.error;
  EXPECT_NE(ran.error.find("rc_mlx5"), std::string::npos) << ran.error;
  EXPECT_NE(ran.error.find("posix"), std::string::npos)
      << "it should say which there are: " << ran.error;
}

}  // namespace
}  // namespace monograph
