// Joint collectives (graph/joint_collectives.h) over GPUs that are none: which are, that the range
// with them is captured and replayed by all members or by none, with the bits of CPUs, and what
// happens when a member cannot.
#include <gtest/gtest.h>
#include <monograph/monograph.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "client/registries.h"
#include "graph/joint_collectives.h"
#include "ops/elementwise/elementwise.h"
#include "ops/queue/queue.h"
#include "tests/client/collective_graphs.h"
#include "tests/gpu/fake/session_gpus.h"

namespace monograph::testing {
namespace {

using Call = RecordingDriver::Call;

class GpuJoint : public ::testing::Test {
 protected:
  void TearDown() override {
    session_ = nullptr;
    fake_gpus = {};
  }

  static std::unique_ptr<Session> Open(const Graph& graph, int cpus = 0) {
    SessionOptions options;
    if (cpus > 0) options.device_count = {{kCpu, cpus}, {kGpu, 0}};
    options.inter_op_parallelism_threads = 2;
    options.intra_op_parallelism_threads = 2;
    return Session::Local(graph, std::move(options)).value();
  }
  void OpenTowers(int ranks, double timeout = 60) {
    fake_gpus.count = ranks;
    for (int i = 0; i < ranks; ++i) fake_gpus.cards.push_back("card " + std::to_string(i));
    towers_ = std::make_unique<Towers>(ranks, "GPU", timeout);
    on_cpus_ = std::make_unique<Towers>(ranks, "CPU", timeout);
    ASSERT_TRUE(towers_->root.ok()) << towers_->root.status();
    session_ = Open(towers_->graph);
    cpus_ = Open(on_cpus_->graph, ranks + 1);
  }
  Status Step(float first, int64_t rows = 3, int64_t own = 1) {
    const auto values = session_->Run(towers_->Feeds(rows, first, own), towers_->all());
    if (!values.ok()) return values.status();
    const auto expected = cpus_->Run(on_cpus_->Feeds(rows, first, own), on_cpus_->all()).value();
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(BitEqual(values->at(i), expected[i])) << towers_->all()[i].name();
    return Status();
  }
  static std::vector<int64_t> JointLaunches() {
    std::vector<int64_t> launches;
    for (const auto& driver : FakeDrivers()) launches.push_back(driver->counts().joint_launches);
    return launches;
  }
  // Steps until the members replay.
  void Replay() {
    for (int step = 0; step < 3; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
    for (const int64_t launches : JointLaunches()) ASSERT_EQ(launches, 2);
  }

  std::unique_ptr<Towers> towers_, on_cpus_;
  std::unique_ptr<Session> session_, cpus_;
};

TEST_F(GpuJoint, AStepWithItsCollectivesIsCapturedOnceAndReplayedWithTheBitsOfCpus) {
  OpenTowers(3);
  for (int step = 0; step < 6; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
  for (const auto& driver : FakeDrivers()) {
    EXPECT_EQ(driver->counts().joint_launches, 5);
    EXPECT_EQ(driver->counts().joins, 1);
    EXPECT_EQ(driver->counts().exchanges, 2 * 2 * 2);  // launched node by node, and captured
  }
  ExpectNoRaces();
}

TEST_F(GpuJoint, StepsThatOverlapKeepTheirOrder) {
  OpenTowers(2);
  std::vector<std::future<void>> running;
  for (int thread = 0; thread < 3; ++thread) {
    running.push_back(std::async(std::launch::async, [&, thread] {
      for (int step = 0; step < 5; ++step)
        ASSERT_EQ(Step(static_cast<float>(thread * 5 + step)), Status());
    }));
  }
  for (auto& thread : running) thread.get();
  ExpectNoRaces();
}

// What only one member has to measure or to capture anew, all launch node by node, or capture.
TEST_F(GpuJoint, WhereOneMemberCannotReplayAllGoTheSameWay) {
  OpenTowers(2);
  Replay();
  ASSERT_EQ(Step(3, /*rows=*/3, /*own=*/2), Status());  // another shape on the first one
  EXPECT_EQ(JointLaunches(), (std::vector<int64_t>{2, 2}));
  for (int step = 4; step < 7; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
  EXPECT_EQ(JointLaunches(), (std::vector<int64_t>{5, 5}));
  // Each has a graph for what comes now, but not of one capture.
  for (int step = 7; step < 9; ++step) ASSERT_EQ(Step(static_cast<float>(step), 3, 2), Status());
  const auto before = FakeDrivers()[1]->counts();
  ASSERT_EQ(Step(9), Status());
  EXPECT_EQ(FakeDrivers()[1]->counts().joint_launches, before.joint_launches + 1);
  EXPECT_EQ(FakeDrivers()[1]->counts().exchanges, before.exchanges + 2 * 2);
  ExpectNoRaces();
}

TEST_F(GpuJoint, ACaptureThatOneMemberRefusesIsNoneForAll) {
  OpenTowers(2);
  FakeDrivers()[1]->RefuseCaptures(true);
  for (int step = 0; step < 4; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
  EXPECT_EQ(JointLaunches(), (std::vector<int64_t>{0, 0}));
  ExpectNoRaces();
}

TEST_F(GpuJoint, ALaunchThatOneMemberRefusesFailsTheStepAndTheNextOnesReplayAgain) {
  OpenTowers(2, /*timeout=*/5);
  Replay();
  FakeDrivers()[1]->RefuseAt(Call::kLaunch, 1);  // the first one is of the forward pass
  const Status status = Step(9);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("the call was refused"), std::string::npos) << status;
  for (int step = 0; step < 4; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
  EXPECT_GE(JointLaunches()[0], 5);
  ExpectNoRaces();
}

TEST_F(GpuJoint, AnExchangeThatIsRefusedFailsTheStepAndTheNextConnectsAnew) {
  for (const int64_t after : {0, 3}) {  // launched node by node, and in the capture
    SCOPED_TRACE(after);
    TearDown();
    OpenTowers(2, /*timeout=*/2);
    FakeDrivers()[1]->RefuseExchange(after + 1);
    Status failure;
    for (int step = 0; step < 2 && failure.ok(); ++step) failure = Step(static_cast<float>(step));
    EXPECT_FALSE(failure.ok());
    for (int step = 0; step < 4; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
    EXPECT_EQ(FakeDrivers()[0]->counts().joins, 2);
    ExpectNoRaces();
  }
}

TEST_F(GpuJoint, AnExchangeThatHangsEndsAtItsDeadline) {
  OpenTowers(2, /*timeout=*/0.5);
  Replay();
  FakeDrivers()[0]->HangExchanges();
  const Status status = Step(9);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  for (int step = 0; step < 3; ++step) ASSERT_EQ(Step(static_cast<float>(step)), Status());
  ExpectNoRaces();
}

TEST_F(GpuJoint, AGpuThatIsLostEndsTheStepOfTheOthers) {
  OpenTowers(2, /*timeout=*/2);
  Replay();
  FakeDrivers()[1]->LoseAt(Call::kLaunch, 1);
  const Status status = Step(9);
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
}

TEST_F(GpuJoint, EachCallThatIsRefusedFailsTheStepOrChangesNoBit) {
  for (const Call call : {Call::kAllocate, Call::kMakeEvent, Call::kRecord, Call::kWait,
                          Call::kBeginCapture, Call::kEndCapture, Call::kLaunch}) {
    bool refused = true;
    for (int64_t after = 0; refused && after < 40; ++after) {
      SCOPED_TRACE(std::to_string(static_cast<int>(call)) + ", " + std::to_string(after));
      TearDown();
      OpenTowers(2, /*timeout=*/0.5);
      FakeDrivers()[1]->RefuseAt(call, after);
      int failed = 0;
      bool lost = false;  // nothing tells any more when it is done
      for (int step = 0; step < 4; ++step) {
        const Status status = Step(static_cast<float>(step));
        failed += status.ok() ? 0 : 1;
        lost = lost || status.code() == Code::kUnavailable;
      }
      EXPECT_TRUE(failed <= 1 || lost) << failed;
      refused = failed > 0 || after < 4;
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_F(GpuJoint, ASumMayFeedTheQueueThatAnotherOneWaitsFor) {
  fake_gpus.count = 2;
  fake_gpus.cards = {"card 0", "card 1"};
  Graph graph = NewGraph();
  const Scope root(&graph), cpu = root.WithDevice("/device:CPU:0");
  const Output queue = FIFOQueue(cpu, {DT_FLOAT}, {.shapes = {PartialShape::Scalar()}});
  const auto summed = [&](const Outputs& x, int instance) {
    const CollectiveGroup group{.size = 2, .key = 1, .members = Gpus(2), .timeout_seconds = 5};
    Outputs sums;
    for (int rank = 0; rank < 2; ++rank) {
      const Scope place = root.WithDevice(Gpu(rank));
      const Output own = Add(place, x[static_cast<size_t>(rank)], x[static_cast<size_t>(rank)]);
      sums.push_back(MonographAllReduce(place, {own}, group, instance)[0]);
    }
    return sums;
  };
  const Output x = Placeholder(cpu, DT_FLOAT, {});
  const Outputs first = summed({x, x}, 1);
  const Operation enqueue = QueueEnqueueMany(cpu, queue, {Pack(cpu, first)});
  const Outputs second = summed({QueueDequeue(cpu, queue)[0], QueueDequeue(cpu, queue)[0]}, 2);
  session_ = Open(graph);
  for (const float fed : {1.0f, 2.0f, 3.0f, 4.0f}) {
    const auto values = session_->Run({{x, Tensor::Scalar(fed)}}, second, {enqueue});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), 16 * fed);
  }
  ExpectNoRaces();
}

// ---- which are joint

class JointCollectives : public ::testing::Test {
 protected:
  // An all-reduce of what `towers` gives, by rank; its nodes.
  std::vector<NodeId> AllReduce(const Outputs& values, int instance, int key = 1,
                                const std::vector<std::string>& members = {Gpu(0), Gpu(1)}) {
    const CollectiveGroup group{.size = static_cast<int>(members.size()),
                                .key = key,
                                .members = FullNames(members),
                                .timeout_seconds = 60};
    std::vector<NodeId> nodes;
    for (size_t rank = 0; rank < values.size(); ++rank) {
      nodes.push_back(MonographAllReduce(root_.WithDevice(group.members[rank]), {values[rank]},
                                         group, instance)[0]
                          .node());
    }
    return nodes;
  }
  static std::vector<std::string> FullNames(std::vector<std::string> names) {
    for (std::string& name : names) name = "/job:localhost/replica:0/task:0" + name;
    return names;
  }
  Scope On(int rank) { return root_.WithDevice(FullNames({Gpu(rank)})[0]); }
  Output OnHost(const Output& value) {
    return Neg(root_.WithDevice(FullNames({"/device:CPU:0"})[0]), value);
  }
  Output Sum(NodeId node) { return Output{&graph_, {node, 0}}; }
  std::vector<int64_t> PlaceOf(NodeId node) const {
    return graph_.attrs(node).GetOr<std::vector<int64_t>>(kJointPlace, {});
  }
  void ExpectPlaces(const std::vector<NodeId>& nodes, const std::vector<int64_t>& place) const {
    for (const NodeId node : nodes) EXPECT_EQ(PlaceOf(node), place) << graph_.name(node);
  }
  void Find() { ASSERT_EQ(FindJointCollectives(&graph_, feeds_), Status()); }

  using Place = std::vector<int64_t>;
  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  std::vector<Endpoint> feeds_;
  Output x_ = Const(root_.WithDevice(FullNames({"/device:CPU:0"})[0]), 1.0f);
  const Outputs towers_{Square(On(0), x_), Square(On(1), x_)};
};

TEST_F(JointCollectives, ComeInTheOrderOfTheirWaysFromTheBeginning) {
  const Outputs later{Square(On(0), towers_[0]), Square(On(1), towers_[1])};
  const auto second = AllReduce(later, 1), first = AllReduce(towers_, 2);
  Find();
  ExpectPlaces(first, Place{0, 2});
  ExpectPlaces(second, Place{1, 2});
}

TEST_F(JointCollectives, WaitForNoOtherMembersGpu) {
  const auto joint = AllReduce(towers_, 1);
  const auto by_host = AllReduce({OnHost(towers_[1]), towers_[1]}, 2);
  Find();
  ExpectPlaces(joint, Place{0, 1});
  ExpectPlaces(by_host, Place{});
}

TEST_F(JointCollectives, WaitForNothingBeforeWhatIsFed) {
  const Output fed = Square(On(0), x_);
  const auto joint = AllReduce({Neg(On(0), fed), Neg(On(1), fed)}, 1);
  Find();
  ExpectPlaces(joint, Place{});
  feeds_ = {fed.endpoint};
  Find();
  ExpectPlaces(joint, Place{0, 1});
}

TEST_F(JointCollectives, OfOneThatWaitsForAnotherTheLaterOneIs) {
  const auto first = AllReduce(towers_, 1);
  const auto second = AllReduce({Sum(first[0]), Sum(first[1])}, 2);
  const auto on_one_only = AllReduce({Sum(second[0]), towers_[1]}, 3);
  Find();
  ExpectPlaces(first, Place{});
  ExpectPlaces(second, Place{0, 1});
  ExpectPlaces(on_one_only, Place{});
}

TEST_F(JointCollectives, WaitForTheSameQueues) {
  const Scope cpu = root_.WithDevice(FullNames({"/device:CPU:0"})[0]);
  const Output queue = FIFOQueue(cpu, {DT_FLOAT}, {.shapes = {PartialShape::Scalar()}});
  const auto before = AllReduce(towers_, 1);
  QueueEnqueue(cpu, queue, {OnHost(Sum(before[0]))});
  const Output taken[]{Neg(On(0), QueueDequeue(cpu, queue)[0]),
                       Neg(On(1), QueueDequeue(cpu, queue)[0])};
  const auto behind = AllReduce({taken[0], taken[1]}, 2);
  Find();
  ExpectPlaces(before, Place{0, 1});
  ExpectPlaces(behind, Place{});
  const auto behind_too = AllReduce({Square(On(0), taken[0]), Square(On(1), taken[1])}, 3);
  Find();
  ExpectPlaces(before, Place{});
  ExpectPlaces(behind, Place{0, 2});
  ExpectPlaces(behind_too, Place{1, 2});
}

TEST_F(JointCollectives, HaveAllMembersAndOneListOnEachDevice) {
  const auto pair = AllReduce(towers_, 1), other_pair = AllReduce(towers_, 2);
  const auto three =
      AllReduce({towers_[0], towers_[1], Square(On(2), x_)}, 3, 2, {Gpu(0), Gpu(1), Gpu(2)});
  const auto lacks = AllReduce({towers_[0]}, 4);
  Find();
  ExpectPlaces(pair, Place{0, 2});
  ExpectPlaces(other_pair, Place{1, 2});
  ExpectPlaces(three, Place{});
  ExpectPlaces(lacks, Place{});
}

TEST_F(JointCollectives, HaveShapesThatAreKnownAndEqual) {
  const Output any = Placeholder(root_, DT_FLOAT, {-1});
  const auto unknown = AllReduce({Square(On(0), any), Square(On(1), any)}, 1);
  const auto differ =
      AllReduce({towers_[0], Const(On(1), Tensor::Allocate(DT_FLOAT, Shape{2}).value())}, 2);
  Find();
  ExpectPlaces(unknown, Place{});
  ExpectPlaces(differ, Place{});
}

}  // namespace
}  // namespace monograph::testing
