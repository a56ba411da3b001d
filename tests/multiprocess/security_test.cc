// Keys: who may talk to whom.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "base/descriptor.h"
#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tools/free_ports.h"

namespace monograph {
namespace {

// A key file as `monograph keygen` makes it.
std::string KeyFile(const TemporaryFolder& folder, const std::string& name) {
  ChildProcess keygen({MonographPath(), "keygen", folder.File(name)});
  const std::optional<Exit> exit = keygen.Wait(20s);
  EXPECT_TRUE(exit && exit->code == 0) << keygen.error();
  return folder.File(name);
}

TEST(Security, KeygenMakesAKeyThatOnlyItsOwnerReadsAndNeverOverwritesOne) {
  TemporaryFolder folder;
  const std::string path = KeyFile(folder, "cluster.key");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(control::ReadKeyFile(path).ok());
  ChildProcess again({MonographPath(), "keygen", path});
  EXPECT_EQ(again.Wait(20s)->code, 1);
  EXPECT_NE(again.error().find(path), std::string::npos) << again.error();
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ChildProcess open({ExecutorPath(), "--worker_hosts=127.0.0.1:1", "--job=worker", "--task=0",
                     "--key_file=" + path});
  EXPECT_EQ(open.Wait(20s)->code, 2);
  EXPECT_NE(open.error().find(path), std::string::npos) << open.error();
}

TEST(Security, ASessionWithTheClustersKeyRuns) {
  TemporaryFolder folder;
  TestCluster cluster({.key_file = KeyFile(folder, "cluster.key")});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {});
  const Output y = Identity(root.WithDevice("/job:worker/task:1"),
                            Identity(root.WithDevice("/job:ps/task:0"), x));
  auto session = cluster.Connect(graph);
  auto values = session->Run({{x, Tensor::Scalar(5.0f)}}, {y});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 5.0f);
}

TEST(Security, AWrongOrMissingKeyIsOneClearErrorOnBothSides) {
  TemporaryFolder folder;
  TestCluster cluster({.ps = 0, .workers = 1, .key_file = KeyFile(folder, "cluster.key")});
  Graph graph = NewGraph();
  SessionOptions wrong;
  wrong.key = control::GenerateKey().value();
  const auto begin = Clock::now();
  ExpectError(Session::Connect(cluster.spec(), graph, wrong).status(), Code::kUnauthenticated,
              {"/job:worker/replica:0/task:0", "key"});
  EXPECT_LT(Clock::now() - begin, 10s) << "waiting does not make a key right";
  ChildProcess& daemon = cluster.daemon("worker", 0);
  EXPECT_TRUE(daemon.WaitForError("refused a connection")) << daemon.error();
  const std::string once = daemon.error();
  EXPECT_NE(once.find("key"), std::string::npos) << once;
  EXPECT_EQ(once.find("refused a connection", once.find("refused a connection") + 1),
            std::string::npos)
      << "said twice: " << once;
  // No key at all.
  ExpectError(Session::Connect(cluster.spec(), graph).status(), Code::kUnauthenticated,
              {"/job:worker/replica:0/task:0", "--key_file"});
  // A key where the daemon has none.
  TestCluster open({.ps = 0, .workers = 1});
  ExpectError(Session::Connect(open.spec(), graph, wrong).status(), Code::kUnauthenticated,
              {"/job:worker/replica:0/task:0", "without a key"});
}

TEST(Security, AnAddressBeyondLoopbackWithoutAKeyIsRefusedAndSaysHowToGetOne) {
  const std::vector<int> ports = FreePorts(1).value();
  for (const std::string& bind : {std::string("--bind=0.0.0.0"), std::string()}) {
    std::vector<std::string> argv = {
        ExecutorPath(), "--job=worker", "--task=0",
        "--worker_hosts=" + std::string(bind.empty() ? "192.0.2.7:" : "127.0.0.1:") +
            std::to_string(ports[0])};
    if (!bind.empty()) argv.push_back(bind);
    ChildProcess daemon(argv);
    const std::optional<Exit> exit = daemon.Wait(20s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 1);
    for (const char* part : {"--key_file", "monograph keygen", "loopback"}) {
      EXPECT_NE(daemon.error().find(part), std::string::npos)
          << "no '" << part << "' in: " << daemon.error();
    }
  }
}

TEST(Security, ADaemonTakesItsKeyFromStandardInputAndEndsWithIt) {
  TemporaryFolder folder;
  const std::string key = KeyFile(folder, "cluster.key");
  const int port = FreePorts(1).value()[0];
  const std::string hosts = "127.0.0.1:" + std::to_string(port);
  // The shell holds the daemon's standard input until it is told to go on.
  const std::string fifo = folder.File("end");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ChildProcess shell({"sh", "-c",
                      "(cat \"$1\"; cat \"$2\") | exec \"$0\" --key_stdin --exit_on_stdin_end "
                      "--worker_hosts=\"$3\" --job=worker --task=0",
                      ExecutorPath(), key, fifo, hosts});
  control::ChannelOptions options;
  options.key = control::ReadKeyFile(key).value();
  options.timeout = 20s;
  auto channel = control::Channel::Connect(hosts, options);
  ASSERT_TRUE(channel.ok()) << channel.status() << shell.error();
  FILE* end = fopen(fifo.c_str(), "w");  // opened and closed: the end of input
  ASSERT_NE(end, nullptr);
  fclose(end);
  const std::optional<Exit> exit = shell.Wait(15s);
  ASSERT_TRUE(exit.has_value()) << shell.error();
  EXPECT_EQ(exit->code, 0) << shell.error();
}

// What the program says is a step of the change, and its refusal of one that does not follow.
void Change(const std::string& step, const std::string& path, int code, const std::string& part) {
  ChildProcess keygen({MonographPath(), "keygen", "--change=" + step, path});
  const std::optional<Exit> exit = keygen.Wait(20s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, code) << keygen.error();
  EXPECT_NE((keygen.output() + keygen.error()).find(part), std::string::npos)
      << keygen.output() << keygen.error();
}

// A job trains on while the key of its cluster is changed; so does one that begins in between.
TEST(Security, TheKeyOfARunningClusterIsChangedByKeygenWithoutAStop) {
  TemporaryFolder folder;
  const std::string path = KeyFile(folder, "cluster.key");
  const control::Key old = control::ReadKeyFile(path)->first;
  TestCluster cluster({.ps = 1, .workers = 1, .key_file = path});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {});
  const Output y = Identity(root.WithDevice("/job:worker/task:0"), x);
  const auto runs = [&](Session& session) {
    const auto values = session.Run({{x, Tensor::Scalar(5.0f)}}, {y});
    return values.ok() && values->at(0).scalar<float>() == 5.0f;
  };
  const auto first = cluster.Connect(graph);
  Change("swap", path, 2, "begin with --change=add");
  Change("drop", path, 2, "begin with --change=add");
  for (const char* step : {"add", "swap", "drop"}) {
    Change(step, path, 0, "copy it to every node");
    EXPECT_TRUE(runs(*cluster.Connect(graph))) << step;
    EXPECT_TRUE(runs(*first)) << step;
    if (std::string(step) == "add") Change("add", path, 2, "holds two keys");
  }
  SessionOptions stale;
  stale.key = old;
  ExpectError(Session::Connect(cluster.spec(), graph, stale).status(), Code::kUnauthenticated,
              {"/job:worker/replica:0/task:0", "keys"});
}

// With few descriptors idle connections keep nobody out, and a daemon takes as many as it may.
TEST(Security, IdleConnectionsToADaemonWithFewDescriptorsKeepNobodyOut) {
  const int port = FreePorts(1).value()[0];
  const std::string hosts = "--worker_hosts=127.0.0.1:" + std::to_string(port);
  ChildProcess daemon({"sh", "-c", "ulimit -Sn 32; ulimit -Hn 64; exec \"$@\"", "sh",
                       ExecutorPath(), hosts, "--job=worker", "--task=0"});
  ASSERT_TRUE(daemon.WaitForError("listens on")) << daemon.error();
  std::ifstream limits("/proc/" + std::to_string(daemon.pid()) + "/limits");
  std::string line;
  while (std::getline(limits, line) && !line.starts_with("Max open files")) {
  }
  std::istringstream words(line.substr(std::string("Max open files").size()));
  int soft = 0, hard = 0;
  words >> soft >> hard;
  EXPECT_EQ(soft, 64) << line;
  EXPECT_EQ(hard, 64) << line;
  std::vector<Descriptor> flood;
  for (int i = 0; i < 200; ++i) {
    flood.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    ASSERT_EQ(0, connect(flood.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof to));
  }
  for (int i = 0; i < 3; ++i) {
    ChildProcess status({MonographPath(), "status", hosts, "--start_timeout=3"});
    EXPECT_EQ(status.Wait(20s)->code, 0) << status.output() << status.error();
  }
  EXPECT_EQ(daemon.error().find("refused a connection", daemon.error().find("refused a") + 1),
            std::string::npos)
      << "more than one line: " << daemon.error();
}

}  // namespace
}  // namespace monograph
