// Several hosts: three network namespaces joined by veth pairs and a bridge, a daemon in each, the
// client in the first, non-loopback addresses, a key, UCX over TCP.
#include <algorithm>
#include <future>
#include <thread>

#include "client/registries.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tests/multiprocess/network.h"
#include "tests/train/training_curve.h"

namespace monograph {
namespace {

using testing::Curve;
using testing::CurveOptions;
using testing::TrainingCurve;

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
    for (int host = 0; host < network_->hosts(); ++host) {
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
  ASSERT_EQ(network_->SetCable(2, false), "");
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
  ASSERT_EQ(network_->SetCable(2, true), "");
  auto again = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(again.ok()) << again.status() << Said();
  EXPECT_TRUE((*again)->Run({{x, value}}, {alive}).ok());
}

TEST_F(ThreeHosts, ADeviceWhoseCableIsCutIsALossThatTheHealMends) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output y = Neg(root.WithDevice("/job:ps/task:0"), Const(root, 2.0f));
  ASSERT_TRUE(root.ok()) << root.status();
  ClusterSpec here;
  ASSERT_TRUE(here.AddTask("ps", 0, spec_.Address("ps", 0).value()).ok());
  const auto run = [&] {
    auto session = Session::Connect(here, graph, Options());
    return session.ok() ? (*session)->Run({}, {y}).status() : session.status();
  };
  ASSERT_TRUE(run().ok()) << Said();
  ASSERT_EQ(network_->SetCable(0, false), "");
  EXPECT_EQ(run().code(), Code::kUnavailable);
  // The system tells of a carrier up to a second late.
  std::future<Status> plugged = std::async(std::launch::async, run);
  std::this_thread::sleep_for(300ms);
  ASSERT_EQ(network_->SetCable(0, true), "");
  const Status healed = plugged.get();
  EXPECT_TRUE(healed.ok()) << healed;
  const Status again = run();
  EXPECT_TRUE(again.ok()) << again;
}

TEST_F(ThreeHosts, ARouteOrAFirewallThatRefusesIsALossThatItsEndMends) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output y = Neg(root.WithDevice("/job:worker/task:0"), Const(root, 2.0f));
  ASSERT_TRUE(root.ok()) << root.status();
  const auto run = [&](std::chrono::milliseconds start_timeout) {
    SessionOptions options = Options();
    options.start_timeout = start_timeout;
    auto session = Session::Connect(spec_, graph, options);
    return session.ok() ? (*session)->Run({}, {y}).status() : session.status();
  };
  ASSERT_TRUE(run(20s).ok()) << Said();
  for (const std::string kind : {"unreachable", "prohibit", "blackhole"}) {
    const auto route = [&](const std::string& change) {
      ChildProcess ip({"ip", "route", change, kind, Network::Address(1) + "/32"});
      const auto exit = ip.Wait(20s);
      EXPECT_TRUE(exit && exit->code == 0) << ip.error();
    };
    route("add");
    const Status refused = run(500ms);
    EXPECT_EQ(refused.code(), Code::kUnavailable) << kind << ": " << refused;
    route("del");
    EXPECT_TRUE(run(20s).ok()) << Said();
  }
}

TEST_F(ThreeHosts, MeetByUcxThoughTheSystemKnowsOfNoWayForAMomentAfterAHeal) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output y = Neg(root.WithDevice("/job:worker/task:1"),
                       Neg(root.WithDevice("/job:worker/task:0"), Const(root, 2.0f)));
  ASSERT_TRUE(root.ok()) << root.status();
  const auto run = [&] {
    auto session = Session::Connect(spec_, graph, Options());
    return session.ok() ? (*session)->Run({}, {y}).status() : session.status();
  };
  ASSERT_TRUE(run().ok()) << Said();  // all are up
  const auto route = [](const char* what, int from, int to) {
    ChildProcess ip({"ip", "-n", Network::Name(from), "route", what, "unreachable",
                     Network::Address(to) + "/32"});
    const auto exit = ip.Wait(20s);
    EXPECT_TRUE(exit && exit->code == 0) << ip.error();
  };
  route("add", 1, 2);
  route("add", 2, 1);
  std::thread heal([&] {
    std::this_thread::sleep_for(700ms);
    route("del", 1, 2);
    route("del", 2, 1);
  });
  const Status met = run();
  heal.join();
  EXPECT_TRUE(met.ok()) << met << Said();
}

TEST_F(ThreeHosts, TwoWorkersThatDoNotReachEachOtherAreNamedAndAfterTheHealTheNextJobRuns) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {64, 64});
  const Output there = Neg(root.WithDevice("/job:worker/task:0"), x);
  const Output sum = Sum(root.WithDevice("/job:worker/task:1"), there, {0, 1});
  const Output alone = Sum(root.WithDevice("/job:worker/task:1"), x, {0, 1});
  ASSERT_TRUE(root.ok()) << root.status();
  Tensor value = Tensor::Allocate(DT_FLOAT, Shape{64, 64}).value();
  std::fill_n(value.data<float>(), 64 * 64, 1.0f);
  auto session = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  ASSERT_TRUE((*session)->Run({{x, value}}, {sum}).ok());
  for (const int host : {1, 2}) ASSERT_EQ(network_->SetIsolated(host, true), "");
  const auto begin = Clock::now();
  const Status status = (*session)->Run({{x, value}}, {sum}, {}, {.timeout = 20s}).status();
  EXPECT_LT(Clock::now() - begin, 3s);
  ExpectError(status, Code::kUnavailable,
              {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1", "cannot reach",
               "the client reaches both"});
  EXPECT_EQ(status.lost_task(), "/job:worker/replica:0/task:1");
  // At once, from now on; what needs only one of the two goes on.
  const auto again = Clock::now();
  ExpectError((*session)->Run({{x, value}}, {sum}, {}, {.timeout = 20s}).status(),
              Code::kUnavailable, {"cannot reach", "the client reaches both"});
  EXPECT_LT(Clock::now() - again, 1s);
  const auto one = (*session)->Run({{x, value}}, {alone}, {}, {.timeout = 20s});
  EXPECT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE((*session)->Close().ok());
  for (const int host : {1, 2}) ASSERT_EQ(network_->SetIsolated(host, false), "");
  const auto healed = Clock::now();
  auto next = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(next.ok()) << next.status() << Said();
  const auto values = (*next)->Run({{x, value}}, {sum}, {}, {.timeout = 20s});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -64.0f * 64.0f);
  EXPECT_LT(Clock::now() - healed, 3s);
}

TEST_F(ThreeHosts, AnAllReduceOfTwoWorkersThatDoNotReachEachOtherEndsWithBothNames) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {100'000});
  const CollectiveGroup group{.size = 2, .members = {"/job:worker/task:0", "/job:worker/task:1"}};
  Outputs sums;
  for (const std::string& member : group.members) {
    const Scope place = root.WithDevice(member);
    sums.push_back(CollectiveReduce(place, Neg(place, x), group, 1));
  }
  ASSERT_TRUE(root.ok()) << root.status();
  Tensor value = Tensor::Allocate(DT_FLOAT, Shape{100'000}).value();
  std::fill_n(value.data<float>(), 100'000, 1.0f);
  auto session = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(session.ok()) << session.status() << Said();
  const std::vector<Operation> reduced = {sums[0], sums[1]};
  ASSERT_TRUE((*session)->Run({{x, value}}, {}, reduced).ok());
  for (const int host : {1, 2}) ASSERT_EQ(network_->SetIsolated(host, true), "");
  const auto begin = Clock::now();
  const Status status = (*session)->Run({{x, value}}, {}, reduced, {.timeout = 20s}).status();
  EXPECT_LT(Clock::now() - begin, 3s);
  ExpectError(status, Code::kUnavailable,
              {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1", "cannot reach",
               "the client reaches both"});
  EXPECT_TRUE((*session)->Close().ok());
  for (const int host : {1, 2}) ASSERT_EQ(network_->SetIsolated(host, false), "");
  auto next = Session::Connect(spec_, graph, Options());
  ASSERT_TRUE(next.ok()) << next.status() << Said();
  const Status again = (*next)->Run({{x, value}}, {}, reduced, {.timeout = 20s}).status();
  EXPECT_TRUE(again.ok()) << again;
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
