// What a task opens to others, and what junk that arrives there does to it: nothing.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tests/multiprocess/open_files.h"

namespace monograph {
namespace {

// Sends the packet to a port of this machine and waits until the other side closes, at most 1 s.
void SendTo(int port, const std::string& packet) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(send(fd, packet.data(), packet.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(packet.size()));
  char byte;
  while (recv(fd, &byte, 1, 0) > 0) {
  }
  close(fd);
}

// Sends datagrams of many lengths, none among them, to a socket in the abstract name space, as
// another user if this one is root. Returns how many were taken.
int FloodAsAnotherUser(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(255);
    static const char junk[4096] = {'j'};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    int taken = 0;
    for (int i = 0; i < 100; ++i) {
      for (const size_t length : {0, 1, 7, 4096}) {
        taken += sendto(fd, junk, length, 0, reinterpret_cast<const sockaddr*>(&address), size) ==
                 static_cast<ssize_t>(length);
      }
    }
    _exit(std::min(taken, 254));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Sockets : public ::testing::Test {
 protected:
  Sockets() : graph_(NewGraph()), root_(&graph_) {
    x_ = Placeholder(root_, DT_FLOAT, {});
    y_ = Identity(root_.WithDevice("/job:worker/task:1"),
                  Identity(root_.WithDevice("/job:ps/task:0"), x_));
  }
  void ExpectStep(Session& session) {
    const auto values = session.Run({{x_, Tensor::Scalar(5.0f)}}, {y_});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), 5.0f);
  }
  static std::vector<std::pair<std::string, int>> Tasks() {
    return {{"ps", 0}, {"worker", 0}, {"worker", 1}};
  }
  // The ports at which the process can be reached.
  static std::vector<int> Ports(pid_t pid) {
    std::vector<int> ports;
    for (const OpenSocket& socket : SocketsOf(pid)) {
      if ((socket.listens && socket.table != "unix") ||
          (socket.port != 0 && !socket.table.starts_with("tcp")))
        ports.push_back(socket.port);
    }
    return ports;
  }
  static int ControlPort(const TestCluster& cluster, const std::string& job, int task) {
    const std::string address = cluster.address(job, task);
    return std::stoi(address.substr(address.rfind(':') + 1));
  }

  Graph graph_;
  Scope root_;
  Output x_, y_;
};

// Where daemons of this host ask for tensors that they read in place.
bool IsForReaders(const OpenSocket& socket) {
  return socket.table == "unix" && socket.name.starts_with("@monograph-");
}

TEST_F(Sockets, OfATaskWithASessionAreTheControlPortAndThoseOfSharedMemory) {
  TestCluster cluster;
  const auto session = cluster.Connect(graph_);
  ExpectStep(*session);
  for (const auto& [job, task] : Tasks()) {
    const pid_t pid = cluster.daemon(job, task).pid();
    const std::vector<OpenSocket> sockets = SocketsOf(pid);
    EXPECT_EQ(Ports(pid), std::vector<int>{ControlPort(cluster, job, task)})
        << job << "/" << task << ":\n"
        << ToString(sockets);
    for (const OpenSocket& socket : sockets) {
      EXPECT_TRUE(socket.table == "tcp" ||
                  (socket.table == "unix" && (!socket.listens || IsForReaders(socket))))
          << ToString({socket});
    }
  }
  EXPECT_EQ(Ports(getpid()), std::vector<int>()) << "of the client:\n"
                                                 << ToString(SocketsOf(getpid()));
}

TEST_F(Sockets, TakeJunkFromAnybodyAndTheTaskGoesOn) {
  TestCluster cluster;
  const auto session = cluster.Connect(graph_);
  ExpectStep(*session);
  for (const auto& [job, task] : Tasks()) {
    ChildProcess& daemon = cluster.daemon(job, task);
    for (const int port : Ports(daemon.pid())) SendTo(port, KillingPacket());
    int datagrams = 0;
    for (const OpenSocket& socket : SocketsOf(daemon.pid())) {
      if (socket.table == "unix" && socket.name.starts_with("@"))
        datagrams += FloodAsAnotherUser(socket.name);
    }
    EXPECT_GT(datagrams, 0) << "who finds the wake-up socket can wake the process";
    EXPECT_FALSE(daemon.Wait(0ms).has_value()) << daemon.error();
  }
  ExpectStep(*session);
}

TEST_F(Sockets, SegmentsAreTheOwnersAloneAndHaveNoName) {
  TestCluster cluster;
  const auto session = cluster.Connect(graph_);
  ExpectStep(*session);
  std::vector<pid_t> pids = {getpid()};
  for (const auto& [job, task] : Tasks()) pids.push_back(cluster.daemon(job, task).pid());
  for (const pid_t pid : pids) {
    const std::vector<SharedSegment> segments = SegmentsOf(pid);
    EXPECT_FALSE(segments.empty()) << "no shared memory?";
    for (const SharedSegment& segment : segments) {
      EXPECT_EQ(segment.mode & 0177, 0u) << segment.name;
      EXPECT_EQ(segment.owner, geteuid()) << segment.name;
      EXPECT_FALSE(segment.linked) << segment.name;
    }
  }
}

TEST_F(Sockets, AreNotMoreWhenTheEnvironmentAsksUcxForTcp) {
  for (const char* lanes : {"tcp,posix,cma", "all"}) {
    TestCluster cluster({.start = false});
    std::vector<std::unique_ptr<ChildProcess>> daemons;
    for (const auto& [job, task] : Tasks()) {
      daemons.push_back(std::make_unique<ChildProcess>(
          std::vector<std::string>{ExecutorPath(), "--cluster=" + cluster.json(), "--job=" + job,
                                   "--task=" + std::to_string(task)},
          ChildProcess::Environment{{"UCX_TLS", lanes}, {"UCX_NET_DEVICES", "all"}}));
    }
    const auto session = cluster.Connect(graph_);
    ExpectStep(*session);
    for (size_t i = 0; i < daemons.size(); ++i) {
      const auto [job, task] = Tasks()[i];
      EXPECT_EQ(Ports(daemons[i]->pid()), std::vector<int>{ControlPort(cluster, job, task)});
      EXPECT_NE(daemons[i]->error().find("--trusted_network"), std::string::npos)
          << daemons[i]->error();
    }
  }
}

TEST_F(Sockets, OfTcpComeOnlyWithATrustedNetworkAndTheTaskSaysWhatThatMeans) {
  TestCluster refused({.start = false});
  ChildProcess daemon({ExecutorPath(), "--cluster=" + refused.json(), "--job=ps", "--lanes=tcp"});
  const std::optional<Exit> exit = daemon.Wait(20s);
  ASSERT_TRUE(exit.has_value()) << daemon.error();
  EXPECT_NE(exit->code, 0);
  EXPECT_NE(daemon.error().find("--trusted_network"), std::string::npos) << daemon.error();
  TestCluster cluster({.flags = {"--trusted_network=127.0.0.0/8"}});
  const auto session = cluster.Connect(graph_);
  ExpectStep(*session);
  EXPECT_EQ(Ports(cluster.daemon("ps", 0).pid()).size(), 2u);
  EXPECT_TRUE(cluster.daemon("ps", 0).WaitForError("everyone in 127.0.0.0/8"))
      << cluster.daemon("ps", 0).error();
}

TEST_F(Sockets, LanesThatDoNotMeetAreRefusedAtOnceWithWhatEachSideOffers) {
  TestCluster cluster;
  SessionOptions options;
  options.transport.lanes = "tcp";
  options.transport.trusted_network = {"127.0.0.0/8"};
  const auto begin = Clock::now();
  ExpectError(Session::Connect(cluster.spec(), graph_, options).status(), Code::kFailedPrecondition,
              {"/job:ps/replica:0/task:0", "this task offers tcp", "it offers cma,posix"});
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_F(Sockets, ATaskOfThisHostWhoseMemoryIsItsOwnIsMetByTlsAndTheSessionSaysWhy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root starts tasks of other users";
  const TemporaryFolder folder;
  const std::string key = folder.File("cluster.key");
  ChildProcess keygen({MonographPath(), "keygen", key});
  ASSERT_TRUE(keygen.Wait(20s).has_value());
  SessionOptions options;
  options.key = control::ReadKeyFile(key).value();
  for (const std::vector<std::string>& apart : std::vector<std::vector<std::string>>{
           {"setpriv", "--reuid=65534", "--clear-groups"},
           {"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}}) {
    // Others may not read this folder; who has changed his root may not mount.
    std::vector<std::string> try_it = apart;
    try_it.insert(try_it.end(), {ExecutorPath(), "--version"});
    ChildProcess may(try_it);
    const std::optional<Exit> exit = may.Wait(20s);
    if (!exit || exit->code != 0) continue;
    TestCluster cluster({.ps = 0, .workers = 1, .start = false});
    std::vector<std::string> argv = apart;
    argv.insert(argv.end(),
                {ExecutorPath(), "--key_stdin", "--cluster=" + cluster.json(), "--job=worker"});
    // The other user cannot read the key file.
    std::vector<std::string> shell = {"sh", "-c", "key=$1; shift; exec \"$@\" < \"$key\"", "sh",
                                      key};
    shell.insert(shell.end(), argv.begin(), argv.end());
    ChildProcess daemon(shell);
    Graph graph = NewGraph();
    Scope root(&graph);
    const Output x = Placeholder(root, DT_FLOAT, {});
    const Output y = Identity(root.WithDevice("/job:worker/task:0"), x);
    ::testing::internal::CaptureStderr();
    const auto session = Session::Connect(cluster.spec(), graph, options);
    const std::string lanes = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(session.ok()) << session.status() << daemon.error();
    const auto values = (*session)->Run({{x, Tensor::Scalar(5.0f)}}, {y});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_NE(lanes.find("tls 1.3 (same host, but another user, container or security label)"),
              std::string::npos)
        << lanes;
  }
}

}  // namespace
}  // namespace monograph
