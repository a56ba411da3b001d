// Several hosts: three network namespaces joined by veth pairs and a bridge, a daemon in each, the
// client in the first, non-loopback addresses, a key, UCX over TCP.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>

#include "client/registries.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tests/train/training_curve.h"

namespace monograph {
namespace {

using testing::Curve;
using testing::CurveOptions;
using testing::TrainingCurve;

// Runs a command; its error text, empty if it went well.
std::string Run(const std::vector<std::string>& argv) {
  ChildProcess process(argv);
  const std::optional<Exit> exit = process.Wait(20s);
  if (exit && !exit->signalled && exit->code == 0) return "";
  std::string command;
  for (const std::string& word : argv) command += word + " ";
  return command + "failed: " + process.error();
}

// Hosts 0, 1, 2 with addresses 10.86.0.1, .2, .3, and a switch between them. This process moves
// into host 0.
class Network {
 public:
  static constexpr int kHosts = 3;

  ~Network() {
    if (home_ >= 0) setns(home_, CLONE_NEWNET);
    // Where they were made: in the mount namespace that this process had at first. Their links go
    // along.
    for (const std::string& name : made_) {
      std::vector<std::string> command = {"ip", "netns", "del", name};
      if (own_mounts_) {
        command.insert(command.begin(), {"nsenter", "--mount=/proc/" + std::to_string(getpid()) +
                                                        "/fd/" + std::to_string(mounts_)});
      }
      EXPECT_EQ(Run(command), "");
    }
    close(home_);
    close(mounts_);
  }

  // Why this machine cannot; empty: made.
  std::string Make() {
    mounts_ = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (geteuid() != 0) return "network namespaces need root";
    if (std::string why = Run({"nsenter", "--version"}); !why.empty()) return why;
    if (std::string why = Run({"ip", "-V"}); !why.empty()) return why;
    for (int i = 0; i <= kHosts; ++i) {
      const std::string name = Name(i);
      if (std::string why = Run({"ip", "netns", "add", name}); !why.empty()) return why;
      made_.push_back(name);
      if (std::string why = Run({"ip", "-n", name, "link", "set", "lo", "up"}); !why.empty())
        return why;
    }
    const std::string hub = Name(kHosts);
    if (std::string why = Run({"ip", "-n", hub, "link", "add", "br0", "type", "bridge"});
        !why.empty())
      return why;
    if (std::string why = Run({"ip", "-n", hub, "link", "set", "br0", "up"}); !why.empty())
      return why;
    for (int i = 0; i < kHosts; ++i) {
      const std::string port = "port" + std::to_string(i);
      for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
               {"ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0",
                "netns", Name(i)},
               {"ip", "-n", hub, "link", "set", port, "master", "br0", "up"},
               {"ip", "-n", Name(i), "addr", "add", Address(i) + "/24", "dev", "eth0"},
               {"ip", "-n", Name(i), "link", "set", "eth0", "up"}}) {
        if (std::string why = Run(command); !why.empty()) return why;
      }
    }
    home_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const int there = open(("/run/netns/" + Name(0)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool moved = there >= 0 && setns(there, CLONE_NEWNET) == 0;
    if (there >= 0) close(there);
    if (!moved) return "cannot enter a network namespace";
    // UCX finds network devices in /sys, which shows those of the namespace that mounted it.
    own_mounts_ = unshare(CLONE_NEWNS) == 0;
    if (!own_mounts_ || mount("", "/", "none", MS_SLAVE | MS_REC, nullptr) != 0)
      return "cannot make a mount namespace";
    umount2("/sys", MNT_DETACH);
    return mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 ? "" : "cannot mount /sys";
  }
  static std::string Name(int host) {
    return "mg" + std::to_string(getpid()) + "-" + std::to_string(host);
  }
  static std::string Trusted() { return "10.86.0.0/24"; }
  static std::string Address(int host) { return "10.86.0." + std::to_string(host + 1); }
  // Since the start, by the host's cable, with what TCP adds.
  static int64_t BytesSent(int host) {
    ChildProcess reader(
        {"ip", "netns", "exec", Name(host), "cat", "/sys/class/net/eth0/statistics/tx_bytes"});
    EXPECT_TRUE(reader.Wait(20s).has_value()) << reader.error();
    return std::atoll(reader.output().c_str());
  }
  // The cable between the host and the switch.
  void SetCable(int host, bool plugged) const {
    EXPECT_EQ(Run({"ip", "-n", Name(kHosts), "link", "set", "port" + std::to_string(host),
                   plugged ? "up" : "down"}),
              "");
  }

 private:
  std::vector<std::string> made_;
  int home_ = -1, mounts_ = -1;  // the namespaces that this process had at first
  bool own_mounts_ = false;      // it has left the second
};

class ThreeHosts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    network_ = new Network;
    why_not_ = network_->Make();
  }
  static void TearDownTestSuite() { delete network_; }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    ChildProcess keygen({MonographPath(), "keygen", folder_.File("cluster.key")});
    ASSERT_TRUE(keygen.Wait(20s).has_value());
    key_ = control::ReadKeyFile(folder_.File("cluster.key")).value();
    // A daemon on each host: ps, worker 0, worker 1.
    ASSERT_TRUE(spec_.AddTask("ps", 0, Network::Address(0) + ":4700").ok());
    ASSERT_TRUE(spec_.AddTask("worker", 0, Network::Address(1) + ":4700").ok());
    ASSERT_TRUE(spec_.AddTask("worker", 1, Network::Address(2) + ":4700").ok());
    for (int host = 0; host < Network::kHosts; ++host) {
      daemons_.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
          "ip", "netns", "exec", Network::Name(host), ExecutorPath(), "--cluster=" + spec_.ToJson(),
          host == 0 ? "--job=ps" : "--job=worker", "--task=" + std::to_string(host == 2 ? 1 : 0),
          "--key_file=" + folder_.File("cluster.key"), "--trusted_network=" + Network::Trusted()}));
    }
  }
  SessionOptions Options() const {
    SessionOptions options;
    options.key = key_;
    options.transport.trusted_network = {Network::Trusted()};
    return options;
  }
  std::string Said() const {
    std::string text;
    for (const auto& daemon : daemons_) text += daemon->error() + "\n";
    return text;
  }

  static Network* network_;
  static std::string why_not_;
  TemporaryFolder folder_;
  std::optional<control::KeyRing> key_;
  ClusterSpec spec_;
  std::vector<std::unique_ptr<ChildProcess>> daemons_;
};
Network* ThreeHosts::network_ = nullptr;
std::string ThreeHosts::why_not_;

TEST_F(ThreeHosts, TrainWithTheBitsOfOneProcessOverTcp) {
  CurveOptions here;
  here.replicas = {"/device:CPU:0", "/device:CPU:1"};
  here.steps = 6;
  CurveOptions there = here;
  there.replicas = {"/job:worker/task:0", "/job:worker/task:1"};
  there.variable_devices = {"/job:ps/task:0"};
  there.cluster = spec_;
  there.session = Options();
  const Result<Curve> expected = TrainingCurve(here);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ::testing::internal::CaptureStderr();
  const Result<Curve> curve = TrainingCurve(there);
  const std::string lanes = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(curve.ok()) << curve.status() << Said();
  EXPECT_EQ(testing::Difference(*expected, *curve), "");
  EXPECT_NE(lanes.find("data plane: tcp("), std::string::npos) << lanes;
  EXPECT_NE(lanes.find(" between client/0, ps/0 | worker/0 | worker/1"), std::string::npos)
      << lanes;
}

TEST_F(ThreeHosts, AHostThatIsCutOffInAStepIsNamedWithinThreeSecondsAndTheOthersStayUsable) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {256, 256});
  const Scope far = root.WithDevice("/job:worker/task:1");
  Output product = Identity(far, x);
  for (int i = 0; i < 4000; ++i) product = MatMul(far, product, x);
  const Output cut = Sum(root.WithDevice("/job:worker/task:0"), product, {0, 1});
  const Output alive =
      Sum(root.WithDevice("/job:ps/task:0"), Neg(root.WithDevice("/job:worker/task:0"), x), {0, 1});
  ASSERT_TRUE(root.ok()) << root.status();
  Tensor value = Tensor::Allocate(DT_FLOAT, Shape{256, 256}).value();
  std::fill_n(value.data<float>(), 256 * 256, 0.0f);
  value.data<float>()[0] = 1.0f;
  auto session = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  ASSERT_TRUE((*session)->Run({{x, value}}, {alive}).ok());
  auto callable = (*session)->MakeCallable({x}, {cut});
  ASSERT_TRUE(callable.ok()) << callable.status();

  control::ChannelOptions probe_options;
  probe_options.key = key_;
  auto probe = control::Channel::Connect(Network::Address(2) + ":4700", probe_options);
  ASSERT_TRUE(probe.ok()) << probe.status();
  std::promise<std::pair<Status, Clock::time_point>> ended;
  (*session)->RunAsync(*callable, std::span(&value, 1),
                       [&](const Result<std::vector<Tensor>>& result) {
                         ended.set_value({result.status(), Clock::now()});
                       });
  for (wire::StatusResponse status; status.running_steps() == 0;) {
    const Result<std::string> bytes = (*probe)->Call("Status", "", 10s);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_TRUE(status.ParseFromString(*bytes));
  }
  const auto begin = Clock::now();
  network_->SetCable(2, false);
  std::future<std::pair<Status, Clock::time_point>> future = ended.get_future();
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  const auto [status, at] = future.get();
  ExpectError(status, Code::kUnavailable, {"/job:worker/replica:0/task:1"});
  EXPECT_LT(at - begin, 3s);
  auto values = (*session)->Run({{x, value}}, {alive});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -1.0f);
  const auto closing = Clock::now();
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_LT(Clock::now() - closing, 10s);
  // Mended, the host serves a new session.
  network_->SetCable(2, true);
  auto again = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(again.ok()) << again.status() << Said();
  EXPECT_TRUE((*again)->Run({{x, value}}, {alive}).ok());
}

TEST_F(ThreeHosts, FourRanksOnTwoOfThemSumWithTheBitsOfAddNAndSendEachByteOnceEachWay) {
  ClusterSpec spec;
  for (int rank = 0; rank < 4; ++rank) {
    const int host = 1 + rank / 2;
    ASSERT_TRUE(
        spec.AddTask("rank", rank, Network::Address(host) + ":" + std::to_string(4710 + rank))
            .ok());
  }
  for (int rank = 0; rank < 4; ++rank) {
    daemons_.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
        "ip", "netns", "exec", Network::Name(1 + rank / 2), ExecutorPath(),
        "--cluster=" + spec.ToJson(), "--job=rank", "--task=" + std::to_string(rank),
        "--key_file=" + folder_.File("cluster.key"), "--trusted_network=" + Network::Trusted()}));
  }
  constexpr int64_t kSize = 1'000'003, kBytes = 4 * kSize;
  Graph graph = NewGraph();
  Scope root(&graph);
  CollectiveGroup group{.size = 4};
  for (int rank = 0; rank < 4; ++rank)
    group.members.push_back("/job:rank/task:" + std::to_string(rank));
  Outputs parts, sums;
  for (int rank = 0; rank < 4; ++rank) {
    const Scope place = root.WithDevice(group.members[static_cast<size_t>(rank)]);
    // Made where they are summed: the wire carries sums alone.
    const Output ones = Fill(place, IntsConst(place, {kSize}), Const(place, 1.0f / 3.0f));
    parts.push_back(Mul(place, ones, Const(place, 1.0f + 0.37f * static_cast<float>(rank))));
    sums.push_back(CollectiveReduce(place, parts.back(), group, 1));
  }
  std::vector<Operation> reduced;
  for (const Output& sum : sums) reduced.push_back(sum);
  const Output expected = AddN(root.WithDevice(group.members[0]), parts);
  ASSERT_TRUE(root.ok()) << root.status();
  ::testing::internal::CaptureStderr();
  auto session = Session::Connect(spec, graph, Options());
  const std::string lanes = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  // Tasks of one host share memory, whatever their addresses.
  EXPECT_NE(lanes.find("data plane: shm("), std::string::npos) << lanes;
  EXPECT_NE(lanes.find("data plane: tcp("), std::string::npos) << lanes;
  EXPECT_NE(lanes.find("among rank/0-1"), std::string::npos) << lanes;
  for (int step = 0; step < 3; ++step) {
    auto values = (*session)->Run({}, {sums[0], sums[1], sums[2], sums[3], expected});
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t rank = 0; rank < 4; ++rank)
      EXPECT_TRUE(BitEqual(values->at(rank), values->at(4))) << rank;
  }
  // What left host 1 by its cable: prefixes; and host 2: sums.
  ASSERT_TRUE((*session)->Run({}, {}, reduced).ok());
  const auto sent = [&](int host) { return network_->BytesSent(host); };
  const int64_t before[] = {sent(1), sent(2)};
  ASSERT_TRUE((*session)->Run({}, {}, reduced, {.steps = 10}).ok());
  for (const int host : {1, 2}) {
    const int64_t bytes = (sent(host) - before[host - 1]) / 10;
    EXPECT_GE(bytes, kBytes) << "host " << host;
    EXPECT_LT(bytes, kBytes * 5 / 4) << "host " << host;
  }
}

}  // namespace
}  // namespace monograph
