// Tasks on hosts of their own: by TLS without further ado, by UCX's TCP in a trusted network, from
// which strangers are kept. Network namespaces; a daemon on each of three hosts, the client on a
// fourth.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/multiprocess/mnist_jobs.h"
#include "tests/multiprocess/network.h"
#include "tests/multiprocess/open_files.h"
#include "train/saver.h"

namespace monograph {
namespace {

using Values = std::map<std::string, Tensor>;

// Sends the packet from a host to a port of an address. False if nobody answered within a second.
bool SendFrom(int host, const std::string& to, int port, const std::string& packet) {
  const std::string space = "/run/netns/" + Network::Name(host);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, to.c_str(), &address.sin_addr);
  const pid_t child = fork();
  if (child == 0) {
    const int there = open(space.c_str(), O_RDONLY | O_CLOEXEC);
    if (there < 0 || setns(there, CLONE_NEWNET) != 0) _exit(2);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const timeval limit{.tv_sec = 1, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(1);
    if (send(fd, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) _exit(1);
    char byte;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 2) << "cannot enter host " << host;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Hosts : public ::testing::Test {
 protected:
  static constexpr int kHosts = 4;

  static void SetUpTestSuite() {
    network_ = new Network(kHosts);
    why_not_ = network_->Make();
  }
  static void TearDownTestSuite() { delete network_; }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    ChildProcess keygen({MonographPath(), "keygen", key_file()});
    ASSERT_TRUE(keygen.Wait(20s).has_value());
    ASSERT_TRUE(spec_.AddTask("ps", 0, Network::Address(1) + ":4700").ok());
    ASSERT_TRUE(spec_.AddTask("worker", 0, Network::Address(2) + ":4700").ok());
    ASSERT_TRUE(spec_.AddTask("worker", 1, Network::Address(3) + ":4700").ok());
  }
  void StartDaemons(const std::vector<std::string>& flags = {}) {
    for (int host = 1; host < kHosts; ++host) {
      std::vector<std::string> argv = {ExecutorPath(),
                                       "--cluster=" + spec_.ToJson(),
                                       host == 1 ? "--job=ps" : "--job=worker",
                                       "--task=" + std::to_string(host == 3 ? 1 : 0),
                                       "--cpu_devices=2",
                                       "--key_file=" + key_file()};
      argv.insert(argv.end(), flags.begin(), flags.end());
      daemons_.push_back(std::make_unique<ChildProcess>(Network::On(host, argv)));
    }
  }
  ChildProcess& daemon(int host) { return *daemons_[static_cast<size_t>(host - 1)]; }
  std::string key_file() const { return folder_.File("cluster.key"); }
  std::string Said() const {
    std::string text;
    for (const auto& daemon : daemons_) text += daemon->error() + "\n";
    return text;
  }

  // A feed that every daemon hands on to the next one.
  struct Chain {
    Chain() : graph(NewGraph()), root(&graph) {
      x = Placeholder(root, DT_FLOAT, {1000});
      y = x;
      for (const char* task : {"/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"})
        y = Neg(root.WithDevice(task), y);
      fed = Tensor::Allocate(DT_FLOAT, Shape{1000}).value();
      std::fill_n(fed.data<float>(), 1000, 2.5f);
    }
    void ExpectStep(Session& session) {
      const auto values = session.Run({{x, fed}}, {y}, {}, {.timeout = 20s});
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ(values->at(0).data<float>()[999], -2.5f);
    }
    Graph graph;
    Scope root;
    Output x, y;
    Tensor fed;
  };
  SessionOptions Options() const {
    SessionOptions options;
    options.key = control::ReadKeyFile(key_file()).value();
    return options;
  }

  // What a job of the mode ends with; each client on the host of its worker.
  Values Train(const JobMode& mode, const std::string& cluster, bool on_hosts) {
    const TemporaryFolder dir;
    std::vector<std::unique_ptr<ChildProcess>> clients;
    for (int rank = 0; rank < mode.clients; ++rank) {
      std::vector<std::string> argv = {MG_MNIST_REPLICA,
                                       "--data_name=synthetic",
                                       "--fc=16",
                                       "--batch_size=20",
                                       "--num_warmup_batches=0",
                                       "--num_batches=10",
                                       "--replication=between_graph",
                                       "--cluster=" + cluster,
                                       "--train_dir=" + dir.path(),
                                       "--task_index=" + std::to_string(rank)};
      argv.insert(argv.end(), mode.flags.begin(), mode.flags.end());
      if (on_hosts) {
        argv.push_back("--key_file=" + key_file());
        argv = Network::On(mode.clients == 1 ? 0 : 2 + rank, argv);
      }
      clients.push_back(std::make_unique<ChildProcess>(argv));
    }
    for (const auto& client : clients)
      EXPECT_TRUE(Succeeds(*client)) << mode.name << ": " << client->error() << Said();
    if (on_hosts) {
      EXPECT_NE(clients[0]->error().find("data plane: tls 1.3 "), std::string::npos)
          << clients[0]->error();
    }
    Values values;
    const auto latest = LatestCheckpoint(dir.path());
    EXPECT_TRUE(latest.ok() && *latest) << mode.name;
    if (!latest.ok() || !*latest) return values;
    for (const SavedVariable& variable : ListVariables(**latest).value())
      values[variable.name] = LoadVariable(**latest, variable.name).value();
    return values;
  }

  static Network* network_;
  static std::string why_not_;
  TemporaryFolder folder_;
  ClusterSpec spec_;
  std::vector<std::unique_ptr<ChildProcess>> daemons_;
};
Network* Hosts::network_ = nullptr;
std::string Hosts::why_not_;

TEST_F(Hosts, TrainByTlsInEveryModeAndInStepWithTheBitsOfOneHost) {
  StartDaemons();
  const std::vector<JobMode> in_step = {
      {"in_graph", {"--replication=in_graph"}, 1, 1},
      {"in_graph replicated", {"--replication=in_graph", "--variable_update=replicated"}, 1, 1},
      {"in_graph central", {"--replication=in_graph", "--variable_update=central"}, 1, 1},
      {"between_graph sync", {"--sync"}, 1, 2},
      {"between_graph replicated", {"--variable_update=replicated"}, 1, 2}};
  for (const JobMode& mode : in_step) {
    TestCluster here({.ps = 1, .workers = 2, .flags = {"--cpu_devices=2"}});
    const Values expected = Train(mode, here.json(), false);
    const Values values = Train(mode, spec_.ToJson(), true);
    ASSERT_EQ(values.size(), expected.size()) << mode.name;
    ASSERT_GT(values.size(), 4u) << mode.name;
    for (const auto& [name, value] : expected) {
      ASSERT_TRUE(values.contains(name)) << mode.name << ": " << name;
      EXPECT_TRUE(SameBits(value, values.at(name))) << mode.name << ": " << name;
    }
  }
  for (const JobMode& mode :
       {JobMode{"in_graph async", {"--replication=in_graph", "--async"}, 1, 1},
        JobMode{"between_graph async", {}, 1, 2},
        JobMode{"hybrid", {"--replication=hybrid", "--replicas_per_worker=2"}, 1, 2}})
    EXPECT_GT(Train(mode, spec_.ToJson(), true).size(), 4u) << mode.name;
}

TEST_F(Hosts, GoOnWhenALinkWasAwayForAMoment) {
  StartDaemons();
  const ChildProcess client(Network::On(
      0, {MG_MNIST_REPLICA, "--data_name=synthetic", "--fc=16", "--batch_size=20",
          "--num_warmup_batches=0", "--num_batches=1000000", "--display_every=1",
          "--replication=in_graph", "--cluster=" + spec_.ToJson(), "--key_file=" + key_file()}));
  ASSERT_TRUE(client.WaitForOutput("step ", 60s)) << client.error() << Said();
  for (int host = 0; host < kHosts; ++host) {
    ASSERT_EQ(network_->SetCable(host, false), "");
    std::this_thread::sleep_for(800ms);
    ASSERT_EQ(network_->SetCable(host, true), "");
    EXPECT_TRUE(client.WaitForMoreOutput("step ", 3s)) << host << client.error() << Said();
  }
}

// The client that ends first closes its session while the other's last sum is on its way, for some
// two seconds.
TEST_F(Hosts, TheLastSumOfAJobCrossesASlowLinkThoughAClientHasEnded) {
  StartDaemons();
  ASSERT_EQ(network_->SetRate(2, "16mbit"), "");
  std::vector<std::unique_ptr<ChildProcess>> clients;
  for (int rank = 0; rank < 2; ++rank) {
    clients.push_back(std::make_unique<ChildProcess>(Network::On(
        2 + rank, {MG_MNIST_REPLICA, "--data_name=synthetic", "--fc=256", "--batch_size=20",
                   "--num_warmup_batches=0", "--num_batches=2", "--replication=between_graph",
                   "--variable_update=replicated", "--cluster=" + spec_.ToJson(),
                   "--key_file=" + key_file(), "--task_index=" + std::to_string(rank)})));
  }
  for (const auto& client : clients) EXPECT_TRUE(Succeeds(*client)) << client->error() << Said();
  EXPECT_EQ(network_->SetRate(2, ""), "");
}

TEST_F(Hosts, MeetThoughTheSystemKnowsOfNoWayForAMomentAfterAHeal) {
  StartDaemons();
  const auto route = [](const char* what, int from, int to) {
    ChildProcess ip({"ip", "-n", Network::Name(from), "route", what, "unreachable",
                     Network::Address(to) + "/32"});
    const auto exit = ip.Wait(20s);
    EXPECT_TRUE(exit && exit->code == 0) << ip.error();
  };
  Chain chain;
  ASSERT_TRUE(chain.root.ok()) << chain.root.status();
  chain.ExpectStep(*Session::Connect(spec_, chain.graph, Options()).value());  // all are up
  route("add", 2, 3);
  route("add", 3, 2);
  std::thread heal([&] {
    std::this_thread::sleep_for(700ms);
    route("del", 2, 3);
    route("del", 3, 2);
  });
  auto session = Session::Connect(spec_, chain.graph, Options());
  if (session.ok()) chain.ExpectStep(**session);
  heal.join();
  EXPECT_TRUE(session.ok()) << session.status() << Said();
}

TEST_F(Hosts, HaveAPortForCallsAndOneForDataAndTakeJunkAtBoth) {
  StartDaemons();
  Chain chain;
  const auto session = Session::Connect(spec_, chain.graph, Options());
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  chain.ExpectStep(**session);
  for (int host = 1; host < kHosts; ++host) {
    std::vector<int> ports;
    for (const OpenSocket& socket : SocketsOf(daemon(host).pid())) {
      if (socket.listens && socket.port != 0) ports.push_back(socket.port);
    }
    EXPECT_EQ(ports.size(), 2u) << ToString(SocketsOf(daemon(host).pid()));
    for (const int port : ports)
      EXPECT_TRUE(SendFrom(0, Network::Address(host), port, KillingPacket()));
    EXPECT_FALSE(daemon(host).Wait(0ms).has_value()) << daemon(host).error();
  }
  chain.ExpectStep(**session);
}

TEST_F(Hosts, InATrustedNetworkTakeNothingFromOtherHostsNorFromOtherUsersOfTheirOwn) {
  // Hosts 1 to 3 are 10.86.0.2 to .4: the client's, .1, is outside.
  StartDaemons({"--trusted_network=10.86.0.2/31,10.86.0.4/32"});
  Chain chain;
  ::testing::internal::CaptureStderr();
  const auto session = Session::Connect(spec_, chain.graph, Options());
  const std::string lanes = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  EXPECT_NE(lanes.find("data plane: tcp(eth0)"), std::string::npos) << lanes;
  EXPECT_NE(lanes.find("data plane: tls 1.3 "), std::string::npos) << lanes;
  chain.ExpectStep(**session);
  for (int host = 1; host < kHosts; ++host) {
    EXPECT_TRUE(daemon(host).WaitForError("everyone in 10.86.0.2/31, 10.86.0.4/32"))
        << daemon(host).error();
    int silent = 0, ports = 0;
    for (const OpenSocket& socket : SocketsOf(daemon(host).pid())) {
      if (!socket.listens || socket.port == 0) continue;
      ++ports;
      const bool outside = SendFrom(0, Network::Address(host), socket.port, KillingPacket());
      const bool inside = SendFrom(host, Network::Address(host), socket.port, KillingPacket());
      EXPECT_EQ(outside, inside);
      silent += !outside;
    }
    EXPECT_EQ(ports, 3) << ToString(SocketsOf(daemon(host).pid()));
    EXPECT_EQ(silent, 1) << "UCX's port answers nobody";
    EXPECT_FALSE(daemon(host).Wait(0ms).has_value()) << daemon(host).error();
  }
  chain.ExpectStep(**session);
}

}  // namespace
}  // namespace monograph
