// Collectives that go from GPU to GPU, over GPUs that are none: bits, order, races, and what
// happens when a member does not come, hangs, or is lost. The communicator is tests/executor/gpu's.
#include <gtest/gtest.h>
#include <monograph/monograph.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>

#include "client/registries.h"
#include "executor/worker/server.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/client/collective_graphs.h"
#include "tests/gpu/fake/session_gpus.h"
#include "transport/transports.h"

namespace monograph::testing {
namespace {

class GpuCollective : public ::testing::Test {
 protected:
  // What the next session's GPUs are like, until the test ends.
  static void Use(int count, bool linked = true) {
    fake_gpus.count = count;
    fake_gpus.cards.clear();
    for (int i = 0; i < count && linked; ++i)
      fake_gpus.cards.push_back("card " + std::to_string(i));
  }
  void TearDown() override {
    session_ = nullptr;
    fake_gpus = {};
  }

  // A graph that adds up one float of each.
  void AddSums(const std::vector<std::string>& devices, double timeout = 60) {
    x_ = Placeholder(root_, DT_FLOAT, {});
    sums_ = SumOf(root_, x_, devices, 1, 1, timeout);
    feeds_ = {{x_, Tensor::Scalar(1.0f)}};
  }
  void OpenSums(int gpus, double timeout = 60) {
    Use(gpus);
    AddSums(Gpus(gpus), timeout);
    session_ = Open(graph_);
  }
  Result<std::vector<Tensor>> Step() { return session_->Run(feeds_, sums_); }

  static std::unique_ptr<Session> Open(const Graph& graph, bool devices_are_cpus = false) {
    SessionOptions options;
    if (devices_are_cpus) options.device_count = {{kCpu, 5}, {kGpu, 0}};
    options.inter_op_parallelism_threads = 2;
    options.intra_op_parallelism_threads = 2;
    return Session::Local(graph, std::move(options)).value();
  }
  static int64_t Exchanges() {
    int64_t exchanges = 0;
    for (const auto& driver : FakeDrivers()) exchanges += driver->counts().exchanges;
    return exchanges;
  }

  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  Output x_;
  Outputs sums_;
  std::vector<Feed> feeds_;
  std::unique_ptr<Session> session_;
};

TEST_F(GpuCollective, EveryKindTypeAndSizeHasTheBitsOfCpus) {
  for (const int ranks : {2, 3, 4}) {
    Everything on_cpus(ranks, "CPU"), on_gpus(ranks, "GPU");
    ASSERT_TRUE(on_cpus.root.ok()) << on_cpus.root.status();
    ASSERT_TRUE(on_gpus.root.ok()) << on_gpus.root.status();
    const auto expected = Open(on_cpus.graph, true)->Run({}, on_cpus.fetches);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const bool linked : {true, false}) {
      Use(ranks, linked);
      const auto session = Open(on_gpus.graph);
      for (int step = 0; step < 3; ++step) {
        const auto values = session->Run({}, on_gpus.fetches);
        ASSERT_TRUE(values.ok()) << values.status();
        for (size_t i = 0; i < values->size(); ++i) {
          EXPECT_TRUE(BitEqual(values->at(i), expected->at(i)))
              << on_gpus.fetches[i].name() << " of " << ranks << " GPUs in step " << step;
        }
      }
      EXPECT_EQ(Exchanges() > 0, linked);
      for (const auto& driver : FakeDrivers()) EXPECT_EQ(driver->counts().joins, linked ? 1 : 0);
      ExpectNoRaces();
    }
  }
}

// ---- GPUs of several nodes

// Cards on nodes of so many.
std::vector<std::string> CardsOf(const std::vector<int>& nodes) {
  std::vector<std::string> cards;
  for (size_t node = 0; node < nodes.size(); ++node) {
    for (int card = 0; card < nodes[node]; ++card)
      cards.push_back("node " + std::to_string(node) + "/card " + std::to_string(card));
  }
  return cards;
}

// Bytes that go from GPUs on one node to those on others, by node. One session's, whose group has
// all GPUs in their order.
std::map<std::string, int64_t> BytesThatLeaveNodes() {
  const auto node = [](size_t gpu) {
    return fake_gpus.cards[gpu].substr(0, fake_gpus.cards[gpu].find('/'));
  };
  std::map<std::string, int64_t> bytes;
  for (size_t gpu = 0; gpu < FakeDrivers().size(); ++gpu) {
    for (const auto& [to, sent] : FakeDrivers()[gpu]->counts().sent)
      bytes[node(gpu)] += node(static_cast<size_t>(to)) == node(gpu) ? 0 : sent;
  }
  return bytes;
}

// All that goes from node to node: large enough, and of odd sizes.
struct AlongNodes {
  AlongNodes(int ranks, const std::string& type) : graph(NewGraph()), root(&graph) {
    CollectiveGroup group{.size = ranks, .key = 1, .members = {}, .timeout_seconds = 60};
    for (int i = 0; i < ranks; ++i)
      group.members.push_back("/device:" + type + ":" + std::to_string(i));
    int instance = 1;
    for (int rank = 0; rank < ranks; ++rank) {
      const Scope place = root.WithDevice(group.members[static_cast<size_t>(rank)]);
      instance = 1;
      for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16}) {
        for (const char* op : {"Add", "Mul", "Max", "Min"}) {
          fetches.push_back(
              CollectiveReduce(place, Input(place, dtype, {17'001}, rank), group, instance++, op));
        }
        fetches.push_back(CollectiveGather(place, Input(place, dtype, Shape{1'000 * rank, 5}, rank),
                                           group, instance++));
        for (int sender = 0; sender < ranks; ++sender) {
          if (dtype == DT_BFLOAT16) break;
          fetches.push_back(
              rank == sender ? CollectiveBroadcastSend(place, Input(place, dtype, {2'001, 9}, rank),
                                                       group, instance)
                             : CollectiveBroadcastRecv(place, dtype, {2'001, 9}, group, instance));
          ++instance;
        }
      }
      Outputs bucket;
      for (const int64_t size : {1, 0, 5000, 64, 70'001, 3})
        bucket.push_back(Input(place, DT_FLOAT, Shape{size}, rank));
      for (const Output& sum : MonographAllReduce(place, bucket, group, instance))
        fetches.push_back(Square(place, sum));
    }
  }
  Graph graph;
  Scope root;
  Outputs fetches;
};

TEST_F(GpuCollective, AlongNodesEveryKindAndTypeHasTheBitsOfCpus) {
  const std::vector<std::vector<std::string>> layouts = {
      CardsOf({3, 2}),
      CardsOf({1, 2, 1}),
      {"node 0/card 0", "node 1/card 0", "node 0/card 1", "node 1/card 1"},
  };
  for (const auto& cards : layouts) {
    const auto ranks = static_cast<int>(cards.size());
    AlongNodes on_cpus(ranks, "CPU"), on_gpus(ranks, "GPU");
    ASSERT_TRUE(on_gpus.root.ok()) << on_gpus.root.status();
    const auto expected = Open(on_cpus.graph, true)->Run({}, on_cpus.fetches);
    ASSERT_TRUE(expected.ok()) << expected.status();
    Use(ranks);
    fake_gpus.cards = cards;
    const auto session = Open(on_gpus.graph);
    const auto values = session->Run({}, on_gpus.fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < values->size(); ++i) {
      EXPECT_TRUE(BitEqual(values->at(i), expected->at(i)))
          << on_gpus.fetches[i].name() << " with " << cards.back();
    }
    ExpectNoRaces();
  }
}

// A large sum, which is cut into pieces; a small one, which is not worth the way along the nodes;
// and one of ranks that do not follow each other.
TEST_F(GpuCollective, OverNodesASumSendsTwiceItsBytesWhateverTheNumberOfGpus) {
  struct Case {
    std::vector<std::string> cards;
    int64_t elements;
    int64_t first, last;  // bytes that leave these nodes
    int64_t exchanges;    // of the first GPU
  };
  const int64_t large = 2 << 20;  // floats, in four pieces
  for (const Case& c : {
           Case{CardsOf({2, 2}), large, 4 * large, 4 * large, 4 + 3},
           Case{CardsOf({1, 2}), large, 4 * large, 4 * large, 4 + 1},
           Case{CardsOf({2, 2}), 64, 2 * 64 * 4, 2 * 64 * 4, 2},
           Case{{"a/0", "b/0", "a/1", "b/1"}, large, 8 * large, 8 * large, 2},
       }) {
    const auto ranks = static_cast<int>(c.cards.size());
    Graph graph = NewGraph();
    Scope root(&graph);
    const CollectiveGroup group{
        .size = ranks, .key = 1, .members = Gpus(ranks), .timeout_seconds = 60};
    const Output x = Placeholder(root, DT_FLOAT, {-1});
    Outputs ends;
    for (int rank = 0; rank < ranks; ++rank) {
      const Scope place = root.WithDevice(Gpu(rank));
      const Output own = Mul(place, x, Const(place, static_cast<float>(1 << rank)));
      ends.push_back(Max(place, CollectiveReduce(place, own, group, 1), {0}));
    }
    ASSERT_TRUE(root.ok()) << root.status();
    Use(ranks);
    fake_gpus.cards = c.cards;
    session_ = Open(graph);
    Tensor ones = Tensor::Allocate(DT_FLOAT, Shape{c.elements}).value();
    std::fill_n(ones.data<float>(), c.elements, 1.0f);
    const auto values = session_->Run({{x, ones}}, ends);
    ASSERT_TRUE(values.ok()) << values.status();
    for (const Tensor& value : *values)
      EXPECT_EQ(value.scalar<float>(), static_cast<float>((1 << ranks) - 1));
    const auto left = BytesThatLeaveNodes();
    EXPECT_EQ(left.begin()->second, c.first) << c.cards.back() << ", " << c.elements;
    EXPECT_EQ(left.rbegin()->second, c.last) << c.cards.back() << ", " << c.elements;
    EXPECT_EQ(FakeDrivers()[0]->counts().exchanges, c.exchanges) << c.cards.back();
    ExpectNoRaces();
  }
}

TEST_F(GpuCollective, SumsAlongNodesOfStepsThatOverlapDoNotWaitForEachOther) {
  x_ = Placeholder(root_, DT_FLOAT, {-1});
  const std::vector<std::vector<std::string>> groups = {
      Gpus(4), {Gpu(1), Gpu(2), Gpu(3)}, {Gpu(0), Gpu(1), Gpu(3)}};
  std::vector<float> factors;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto size = static_cast<int>(groups[g].size());
    const CollectiveGroup group{
        .size = size, .key = static_cast<int>(g + 1), .members = groups[g], .timeout_seconds = 60};
    for (const std::string& device : groups[g]) {
      const Scope place = root_.WithDevice(device);
      sums_.push_back(Max(place, CollectiveReduce(place, Square(place, x_), group, 1), {0}));
      factors.push_back(static_cast<float>(size));
    }
  }
  ASSERT_TRUE(root_.ok()) << root_.status();
  Use(4);
  fake_gpus.cards = CardsOf({2, 2});
  session_ = Open(graph_);
  const Callable callable = session_->MakeCallable({x_}, sums_).value();
  std::vector<std::future<void>> running;
  for (int thread = 0; thread < 3; ++thread) {
    running.push_back(std::async(std::launch::async, [&, thread] {
      for (int step = 0; step < 3; ++step) {
        const auto value = static_cast<float>(1 + thread * 3 + step);
        const std::vector<float> same(20'000, value);
        const std::vector<Tensor> feeds{Tensor::FromValues<float>(Shape{20'000}, same)};
        const auto values = session_->RunCallable(callable, feeds);
        ASSERT_TRUE(values.ok()) << values.status();
        for (size_t i = 0; i < factors.size(); ++i)
          EXPECT_EQ(values->at(i).scalar<float>(), factors[i] * value * value);
      }
    }));
  }
  for (auto& thread : running) thread.get();
  ExpectNoRaces();
}

TEST_F(GpuCollective, PartsOfOneCardGoThroughHostMemory) {
  Use(2);
  fake_gpus.cards = {"card 0", "card 0"};
  AddSums(Gpus(2));
  session_ = Open(graph_);
  const auto values = Step();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 4.0f);
  EXPECT_EQ(Exchanges(), 0);
}

TEST_F(GpuCollective, OverlappingGroupsInStepsThatOverlapDoNotWaitForEachOther) {
  Use(4);
  const OverlappingGroups groups(/*instances=*/6);
  ASSERT_TRUE(groups.root.ok()) << groups.root.status();
  const auto session = Open(groups.graph);
  groups.RunAtOnce(*session, /*threads=*/3, /*steps=*/5);
  ExpectNoRaces();
}

// One member of the second collective waits for the first one's result, the other one does not and
// may come before it comes to the first. The instances may differ in any bit.
TEST_F(GpuCollective, OneThatWaitsForAnothersResultOnOneMemberOnlyHoldsUpNone) {
  Use(2);
  for (const bool late_first : {false, true}) {
    for (const int other : {1 | 1 << 30, 2}) {
      Graph graph = NewGraph();
      Scope root(&graph);
      const Output x = Placeholder(root, DT_FLOAT, {-1});
      // Zeros that take a while.
      Output late = Sub(root, x, x);
      for (int i = 0; i < 100; ++i)
        late = Cumsum(root.WithDevice("/device:CPU:0"), late, Const(root, int32_t{0}));
      const CollectiveGroup group{.size = 2, .key = 1, .members = Gpus(2), .timeout_seconds = 60};
      const auto sum = [&](int rank, const Output& value, int instance) {
        return CollectiveReduce(root.WithDevice(Gpu(rank)),
                                Square(root.WithDevice(Gpu(rank)), value), group, instance);
      };
      const Output late_x = Add(root, x, late);
      const Output first0 = sum(0, late_first ? x : late_x, 1);
      const Output first1 = sum(1, late_first ? late_x : x, 1);
      const Outputs fetches{first1, sum(0, first0, other), sum(1, x, other)};
      ASSERT_TRUE(root.ok()) << root.status();
      const auto session = Open(graph);
      const std::vector<float> ones(10'000, 1.0f);
      const std::vector<Feed> feeds = {{x, Tensor::FromValues<float>(Shape{10'000}, ones)}};
      for (int step = 0; step < 3; ++step) {
        const auto values = session->Run(feeds, fetches);
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_EQ(values->at(0).values<float>()[9999], 2.0f);
        EXPECT_EQ(values->at(1).values<float>()[9999], 5.0f);
        EXPECT_TRUE(BitEqual(values->at(1), values->at(2)));
      }
      ExpectNoRaces();
    }
  }
}

TEST_F(GpuCollective, AMemberThatDoesNotComeIsNamedAndTheNextStepRuns) {
  OpenSums(3, /*timeout=*/0.5);
  ASSERT_TRUE(Step().ok());
  const auto missing = session_->Run(feeds_, {sums_[0], sums_[1]});
  EXPECT_EQ(missing.status().code(), Code::kDeadlineExceeded) << missing.status();
  EXPECT_NE(
      missing.status().message().find("rank 2 (/job:localhost/replica:0/task:0/device:GPU:2)"),
      std::string::npos)
      << missing.status();
  const auto values = Step();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(2).scalar<float>(), 6.0f);
  ExpectNoRaces();
}

TEST_F(GpuCollective, NoExchangeBeginsBeforeTheLastMemberHasJoined) {
  for (const size_t late : {0, 2}) {
    OpenSums(3);
    FakeDrivers()[late]->JoinLate();
    for (int step = 0; step < 2; ++step) {
      const auto values = Step();
      ASSERT_TRUE(values.ok()) << values.status();
    }
    EXPECT_GT(Exchanges(), 0);
    ExpectNoRaces();
    TearDown();
  }
}

TEST_F(GpuCollective, OneThatHangsOnTheGpuEndsAtItsDeadlineAndTheNextStepConnectsAnew) {
  OpenSums(2, /*timeout=*/0.5);
  ASSERT_TRUE(Step().ok());
  for (const size_t hung : {size_t{0}, size_t{1}}) {
    FakeDrivers()[hung]->HangExchanges();
    const Status status = Step().status();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    EXPECT_NE(status.message().find("collective 'CollectiveReduceV2' (group 1, instance 1)"),
              std::string::npos)
        << status;
    const auto values = Step();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), 4.0f);
  }
  for (const auto& driver : FakeDrivers()) EXPECT_EQ(driver->counts().joins, 3);
  ExpectNoRaces();
}

TEST_F(GpuCollective, TwoGroupsThatHangOnOneGpuAreEndedBesideEachOther) {
  Use(3);
  x_ = Placeholder(root_, DT_FLOAT, {});
  sums_ = SumOf(root_, x_, {Gpu(0), Gpu(1)}, 1, 1, /*timeout=*/2);
  for (const Output& sum : SumOf(root_, x_, {Gpu(0), Gpu(2)}, 1, 2, /*timeout=*/2))
    sums_.push_back(sum);
  feeds_ = {{x_, Tensor::Scalar(1.0f)}};
  session_ = Open(graph_);
  ASSERT_TRUE(Step().ok());
  FakeDrivers()[0]->HangExchanges();
  const Status status = Step().status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  const auto values = Step();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(3).scalar<float>(), 4.0f);
  ExpectNoRaces();
}

TEST_F(GpuCollective, AStepThatIsAbortedMeanwhileEndsAtOnceAndTheNextOneRuns) {
  OpenSums(2);
  ASSERT_TRUE(Step().ok());
  FakeDrivers()[1]->HangExchanges();
  const auto begin = std::chrono::steady_clock::now();
  const auto aborted =
      session_->Run(feeds_, sums_, {}, RunOptions{.timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(aborted.status().code(), Code::kDeadlineExceeded) << aborted.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  EXPECT_GT(FakeDrivers()[1]->counts().aborts, 0);
  const auto values = Step();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(1).scalar<float>(), 4.0f);
  ExpectNoRaces();
}

// The sum of one float goes from each to all, in two exchanges. That of many goes along the nodes:
// the GPUs of the first have four, that of the second two.
TEST_F(GpuCollective, AnyExchangeThatFailsIsTheStepsErrorAndTheNextStepRuns) {
  for (const bool along_nodes : {false, true}) {
    Use(3);
    if (along_nodes) fake_gpus.cards = CardsOf({2, 1});
    const int64_t elements = along_nodes ? 20'000 : 1;
    Graph graph = NewGraph();
    Scope root(&graph);
    x_ = Placeholder(root, DT_FLOAT, {-1});
    sums_ = SumOf(root, x_, Gpus(3), 1);
    const std::vector<float> ones(static_cast<size_t>(elements), 1.0f);
    feeds_ = {{x_, Tensor::FromValues<float>(Shape{elements}, ones)}};
    session_ = Open(graph);
    for (size_t gpu = 0; gpu < 3; ++gpu) {
      for (int64_t exchange = 0; exchange < (along_nodes && gpu < 2 ? 4 : 2); ++exchange) {
        FakeDrivers()[gpu]->RefuseExchange(exchange);
        const Status status = Step().status();
        EXPECT_EQ(status.code(), Code::kUnavailable) << status;
        EXPECT_NE(status.message().find("a member's card is gone"), std::string::npos) << status;
        EXPECT_NE(status.message().find("CollectiveReduceV2"), std::string::npos) << status;
        // The others have begun theirs, which a thread of the library's puts on the queue.
        for (const auto& driver : FakeDrivers())
          EXPECT_EQ(driver->counts().late, 0) << "the step ended before what it had begun";
        const auto values = Step();
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_EQ(values->at(gpu).values<float>().back(), 6.0f);
      }
    }
    ExpectNoRaces();
  }
}

TEST_F(GpuCollective, ALostContextInTheMiddleFailsTheStepAndHangsNone) {
  OpenSums(2);
  ASSERT_TRUE(Step().ok());
  FakeDrivers()[0]->HangExchanges();
  const int64_t before = FakeDrivers()[0]->counts().exchanges;
  auto running = std::async(std::launch::async, [&] { return Step().status(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (FakeDrivers()[0]->counts().exchanges == before &&
         std::chrono::steady_clock::now() < deadline &&
         running.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
  }
  FakeDrivers()[0]->Lose();
  const Status status = running.get();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_NE(status.message().find("is lost"), std::string::npos) << status;
  for (int step = 0; step < 3; ++step) EXPECT_EQ(Step().status().code(), Code::kUnavailable);
}

TEST_F(GpuCollective, MembersThatDifferAreAnErrorThatNamesOne) {
  Use(2);
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 2, .key = 1, .members = Gpus(2), .timeout_seconds = 20};
  const Scope first = root.WithDevice(Gpu(0)), second = root.WithDevice(Gpu(1));
  const Outputs sums = {
      CollectiveReduce(first, Input(first, DT_FLOAT, {4}, 0), group, 1),
      CollectiveReduce(second, Input(second, DT_FLOAT, {5}, 1), group, 1),
  };
  const Status status = Open(graph)->Run({}, sums).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("the members differ in operation, types or shapes"),
            std::string::npos)
      << status;
  const Outputs senders = {
      CollectiveBroadcastSend(first, Input(first, DT_FLOAT, {4}, 0), group, 2),
      CollectiveBroadcastSend(second, Input(second, DT_FLOAT, {4}, 1), group, 2),
  };
  const Status two = Open(graph)->Run({}, senders).status();
  EXPECT_EQ(two.code(), Code::kInvalidArgument) << two;
  EXPECT_NE(two.message().find("2 members send; one must"), std::string::npos) << two;
}

TEST_F(GpuCollective, ASteadyStepMakesNoCommunicatorsEventsOrMemory) {
  OpenSums(2);
  for (int step = 0; step < 8; ++step) ASSERT_TRUE(Step().ok());
  std::vector<RecordingDriver::Counts> before;
  for (const auto& driver : FakeDrivers()) before.push_back(driver->counts());
  for (int step = 0; step < 8; ++step) ASSERT_TRUE(Step().ok());
  for (size_t i = 0; i < before.size(); ++i) {
    const auto after = FakeDrivers()[i]->counts();
    EXPECT_EQ(after.joins, before[i].joins);
    EXPECT_LE(after.allocations, before[i].allocations + 2);  // events, of steps that end late
    EXPECT_EQ(after.exchanges, before[i].exchanges + 16);
  }
}

// Floats of which a sum in another order has other bits.
TEST_F(GpuCollective, SumsAreTheLibrarysOwnWhereAllMembersAllowAnyOrderAndElseInRankOrder) {
  const CollectiveGroup group{.size = 3, .key = 1, .members = Gpus(3), .timeout_seconds = 60};
  Outputs inputs;
  for (int rank = 0; rank < 3; ++rank)
    inputs.push_back(Input(root_.WithDevice(Gpu(rank)), DT_FLOAT, {5000}, rank));
  Outputs fetches{AddN(root_.WithDevice("/device:CPU:0"), inputs),
                  AddN(root_.WithDevice("/device:CPU:0"), {inputs[2], inputs[1], inputs[0]})};
  for (size_t rank = 0; rank < 3; ++rank)
    fetches.push_back(
        CollectiveReduce(root_.WithDevice(group.members[rank]), inputs[rank], group, 1));
  for (size_t rank = 0; rank < 3; ++rank) {
    fetches.push_back(
        CollectiveReduce(root_.WithDevice(group.members[rank]), inputs[rank], group, 2, "Max"));
  }
  ASSERT_TRUE(root_.ok()) << root_.status();
  for (const int allowed : {3, 2}) {
    Use(3);
    session_ = Open(graph_);
    for (int i = 0; i < allowed; ++i) FakeDrivers()[static_cast<size_t>(i)]->AllowAnyOrder();
    for (int step = 0; step < 2; ++step) {
      const auto values = session_->Run({}, fetches);
      ASSERT_TRUE(values.ok()) << values.status();
      ASSERT_FALSE(BitEqual(values->at(0), values->at(1)));
      for (size_t i = 2; i < 5; ++i)
        EXPECT_TRUE(BitEqual(values->at(i), values->at(allowed == 3 ? 1 : 0))) << i;
      for (size_t i = 6; i < 8; ++i) EXPECT_TRUE(BitEqual(values->at(i), values->at(5))) << i;
    }
    for (const auto& driver : FakeDrivers())
      EXPECT_EQ(driver->counts().all_reduces, allowed == 3 ? 2 : 0);
    ExpectNoRaces();
  }
}

// ---- GPUs of several daemons, all in this process

std::unique_ptr<Server> Daemon(int task) {
  Registries& registries = DefaultRegistries();
  ServerOptions options;
  options.worker.task = {.job = "worker", .replica = 0, .task = task};
  options.worker.ops = &registries.ops;
  options.worker.kernels = &registries.kernels;
  options.worker.gpu = GpuOptions();
  options.worker.make_transport = ChooseTransport({}, {.loopback = true}).value();
  return Server::Start(std::move(options)).value();
}

class GpuCollectiveOfTasks : public GpuCollective {
 protected:
  void SetUp() override {
    FakeDrivers().clear();
    Use(1);
    fake_gpus.tasks = true;
    fake_gpus.cards = {"card 0", "card 1"};
  }
  void Start() {
    for (int task = 0; task < 2; ++task) daemons_.push_back(Daemon(task));
    session_ = Session::Connect(ClusterSpec::FromHosts({{"worker", daemons_[0]->address() + "," +
                                                                       daemons_[1]->address()}})
                                    .value(),
                                graph_)
                   .value();
  }
  static std::vector<std::string> Members() {
    return {"/job:worker/task:0/device:GPU:0", "/job:worker/task:1/device:GPU:0"};
  }
  void TearDown() override {
    session_ = nullptr;
    daemons_.clear();
    GpuCollective::TearDown();
  }
  std::vector<std::unique_ptr<Server>> daemons_;
};

TEST_F(GpuCollectiveOfTasks, GpusOfTwoDaemonsSumAndPassOnWithoutHostMemory) {
  const CollectiveGroup group{.size = 2, .key = 1, .members = Members(), .timeout_seconds = 60};
  Outputs fetches;
  std::vector<Tensor> expected;
  int instance = 1;
  for (const int64_t size : {1, 3000}) {
    Outputs inputs;
    for (int rank = 0; rank < 2; ++rank) {
      const Scope place = root_.WithDevice(Members()[static_cast<size_t>(rank)]);
      inputs.push_back(Input(place, DT_FLOAT, Shape{size}, rank));
      fetches.push_back(CollectiveReduce(place, inputs.back(), group, instance));
      fetches.push_back(CollectiveGather(place, inputs.back(), group, instance + 1));
    }
    fetches.push_back(AddN(root_.WithDevice("/job:worker/task:0/device:CPU:0"), inputs));
    instance += 2;
  }
  ASSERT_TRUE(root_.ok()) << root_.status();
  Start();
  for (int step = 0; step < 5; ++step) {
    const auto values = session_->Run({}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < values->size(); i += 5) {
      EXPECT_TRUE(BitEqual(values->at(i), values->at(i + 4)));
      EXPECT_TRUE(BitEqual(values->at(i + 2), values->at(i + 4)));
      EXPECT_TRUE(BitEqual(values->at(i + 1), values->at(i + 3)));
    }
  }
  EXPECT_GT(Exchanges(), 0);
  ExpectNoRaces();
}

TEST_F(GpuCollectiveOfTasks, PartsOfOneCardInTwoDaemonsGoThroughHostMemory) {
  fake_gpus.cards = {"card 0", "card 0"};
  AddSums(Members());
  Start();
  const auto values = Step();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(1).scalar<float>(), 4.0f);
  EXPECT_EQ(Exchanges(), 0);
}

TEST_F(GpuCollectiveOfTasks, ADaemonThatGoesEndsWhatWaitsForItOnTheGpu) {
  AddSums(Members(), /*timeout=*/300);
  Start();
  ASSERT_TRUE(Step().ok());
  const auto& waiting = *FakeDrivers()[0];
  for (const auto& driver : FakeDrivers()) driver->HangExchanges();
  const int64_t before = waiting.counts().exchanges;
  auto running = std::async(std::launch::async, [&] { return Step().status(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (waiting.counts().exchanges < before + 2 && std::chrono::steady_clock::now() < deadline &&
         running.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
  }
  daemons_[1] = nullptr;
  ASSERT_EQ(running.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  const Status status = running.get();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_NE(status.message().find("/job:worker/replica:0/task:1"), std::string::npos) << status;
  // The other daemon's GPU is free again.
  const auto ended = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (waiting.counts().aborts == 0 && std::chrono::steady_clock::now() < ended)
    std::this_thread::yield();
  EXPECT_GT(waiting.counts().aborts, 0);
}

// ---- GPUs of several daemons, each driven by a client of its own, which find each other

class GpuCollectiveOfClients : public GpuCollective {
 protected:
  // A daemon on each of these cards; empty: without a link.
  void Start(std::vector<std::string> cards) {
    Stop();
    FakeDrivers().clear();
    Use(1);
    fake_gpus.tasks = true;
    fake_gpus.cards = std::move(cards);
    std::string addresses;
    for (size_t task = 0; task < fake_gpus.cards.size(); ++task) {
      daemons_.push_back(Daemon(static_cast<int>(task)));
      addresses += (task == 0 ? "" : ",") + daemons_.back()->address();
    }
    cluster_ = ClusterSpec::FromHosts({{"worker", addresses}}).value();
    clients_.resize(daemons_.size());
  }
  void Stop() {
    clients_.clear();
    daemons_.clear();
  }
  void TearDown() override {
    Stop();
    GpuCollective::TearDown();
  }

  struct Client {
    Graph graph = NewGraph();
    Scope root{&graph};
    Output x;
    Outputs fetches;
    std::unique_ptr<Session> session;

    Result<std::vector<Tensor>> Step(const RunOptions& options = {}) const {
      std::vector<Feed> feeds;
      if (x.valid()) feeds.push_back({x, Tensor::Scalar(1.0f)});
      return session->Run(feeds, fetches, {}, options);
    }
  };
  std::string Device(size_t client, const char* type = "GPU") const {
    return "/job:worker/task:" + std::to_string(client) + "/device:" + type + ":0";
  }
  // A client's graph: `build` adds to its fetches.
  template <typename Build>
  void Open(Build build) {
    for (size_t client = 0; client < clients_.size(); ++client) {
      clients_[client] = std::make_unique<Client>();
      Client& made = *clients_[client];
      build(&made, static_cast<int>(client));
      ASSERT_TRUE(made.root.ok()) << made.root.status();
      made.session = Session::Connect(cluster_, made.graph).value();
    }
  }
  // Each client's sum of one float.
  void OpenSums(double timeout) {
    Open([&](Client* client, int rank) {
      client->x = Placeholder(client->root, DT_FLOAT, {});
      const Scope place = client->root.WithDevice(Device(static_cast<size_t>(rank)));
      client->fetches.push_back(CollectiveReduce(
          place, Add(place, client->x, client->x),
          {.size = static_cast<int>(clients_.size()), .timeout_seconds = timeout}, 1));
    });
  }
  // A step of every client at once.
  std::vector<Result<std::vector<Tensor>>> Steps() {
    std::vector<std::future<Result<std::vector<Tensor>>>> running;
    for (const auto& client : clients_)
      running.push_back(std::async(std::launch::async, [&client] { return client->Step(); }));
    std::vector<Result<std::vector<Tensor>>> ended;
    for (auto& step : running) ended.push_back(step.get());
    return ended;
  }
  void ExpectSums() {
    for (const auto& values : Steps()) {
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ(values->at(0).scalar<float>(), 2.0f * static_cast<float>(clients_.size()));
    }
  }
  // Waits until `count` exchanges more than `before` have begun on the first GPU.
  static void AwaitExchanges(int64_t before, int64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (FakeDrivers()[0]->counts().exchanges < before + count &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  ClusterSpec cluster_;
  std::vector<std::unique_ptr<Server>> daemons_;
  std::vector<std::unique_ptr<Client>> clients_;
};

// What every client fetches: every kind, and types and sizes for each way through host memory.
void AddKinds(const Scope& place, int rank, int size, Outputs* fetches) {
  const CollectiveGroup group{.size = size, .key = 7, .timeout_seconds = 60};
  int instance = 1;
  for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64}) {
    for (const char* op : {"Add", "Max"}) {
      for (const int64_t elements : {0, 1, 70'001}) {
        fetches->push_back(CollectiveReduce(place, Input(place, dtype, Shape{elements}, rank),
                                            group, instance++, op));
      }
    }
    fetches->push_back(
        CollectiveReduce(place, Input(place, dtype, {5}, rank), group, instance++, "Add", "Div"));
    fetches->push_back(
        CollectiveGather(place, Input(place, dtype, Shape{3 * rank, 5}, rank), group, instance++));
    if (dtype == DT_BFLOAT16) continue;
    fetches->push_back(
        rank == 1 ? CollectiveBroadcastSend(place, Input(place, dtype, {40, 9}, 1), group, instance)
                  : CollectiveBroadcastRecv(place, dtype, {40, 9}, group, instance));
    ++instance;
  }
  Outputs bucket;
  for (const int64_t elements : {1, 0, 5000, 70'001})
    bucket.push_back(Input(place, DT_FLOAT, Shape{elements}, rank));
  for (const Output& sum : MonographAllReduce(place, bucket, group, instance))
    fetches->push_back(Square(place, sum));
  const CollectiveGroup alone{.size = 1, .key = 8};
  fetches->push_back(CollectiveGather(place, Input(place, DT_FLOAT, {4}, rank), alone, 1));
}

TEST_F(GpuCollectiveOfClients, WhicheverWayTheyGoTheyHaveTheBitsOfCpus) {
  std::vector<std::vector<Tensor>> expected;
  const std::vector<std::string> apart = {"card 0", "card 1", "card 2"};
  struct Way {
    const char* name;
    std::vector<std::string> cards;
    bool direct;
  };
  for (const Way& way : {Way{"CPUs", apart, false}, Way{"a card each", apart, true},
                         Way{"two nodes", CardsOf({2, 1}), true},
                         Way{"two on one card", {"card 0", "card 1", "card 1"}, false},
                         Way{"one has no link", {"card 0", "card 1", ""}, false},
                         Way{"nobody has one", {"", "", ""}, false}}) {
    SCOPED_TRACE(way.name);
    Start(way.cards);
    const bool on_cpus = expected.empty();
    Open([&](Client* client, int rank) {
      const auto task = static_cast<size_t>(rank);
      AddKinds(client->root.WithDevice(Device(task, on_cpus ? "CPU" : "GPU")), rank, 3,
               &client->fetches);
    });
    for (int step = 0; step < 3; ++step) {
      const auto ended = Steps();
      for (size_t client = 0; client < ended.size(); ++client) {
        ASSERT_TRUE(ended[client].ok()) << ended[client].status();
        if (on_cpus && step == 0) expected.push_back(*ended[client]);
        for (size_t i = 0; i < ended[client]->size(); ++i) {
          EXPECT_TRUE(BitEqual(ended[client]->at(i), expected[client][i]))
              << clients_[client]->fetches[i].name() << " of client " << client << " in step "
              << step;
        }
      }
    }
    EXPECT_EQ(Exchanges() > 0, way.direct);
    for (const auto& driver : FakeDrivers()) EXPECT_EQ(driver->counts().joins, way.direct ? 1 : 0);
    ExpectNoRaces();
  }
}

// One client that drives all, and says who meets only by their number.
TEST_F(GpuCollectiveOfClients, AGroupThatOneClientFindsGoesFromGpuToGpu) {
  Start({"card 0", "card 1"});
  x_ = Placeholder(root_, DT_FLOAT, {});
  for (size_t task = 0; task < 2; ++task) {
    const Scope place = root_.WithDevice(Device(task));
    sums_.push_back(CollectiveReduce(place, Add(place, x_, x_), {.size = 2, .key = 1}, 1));
  }
  session_ = Session::Connect(cluster_, graph_).value();
  for (int step = 0; step < 3; ++step) {
    const auto values = session_->Run({{x_, Tensor::Scalar(1.0f)}}, sums_);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), 4.0f);
    EXPECT_EQ(values->at(1).scalar<float>(), 4.0f);
  }
  EXPECT_GT(Exchanges(), 0);
  ExpectNoRaces();
}

TEST_F(GpuCollectiveOfClients, StepsThatOverlapMeetInTheOrderOfTheirNumbers) {
  Start({"card 0", "card 1"});
  OpenSums(/*timeout=*/60);
  constexpr int kSteps = 20;
  std::vector<std::future<void>> running;
  for (size_t c = 0; c < clients_.size(); ++c) {
    running.push_back(std::async(std::launch::async, [this, c] {
      const Client& client = *clients_[c];
      const Callable callable = client.session->MakeCallable({client.x}, client.fetches).value();
      std::vector<std::future<Result<std::vector<Tensor>>>> steps;
      for (int step = 0; step < kSteps; ++step) {
        auto ended = std::make_shared<std::promise<Result<std::vector<Tensor>>>>();
        steps.push_back(ended->get_future());
        const std::vector<Tensor> feeds{
            Tensor::Scalar(static_cast<float>(step * 10 + static_cast<int>(c)))};
        client.session->RunAsync(callable, feeds, [ended](Result<std::vector<Tensor>> values) {
          ended->set_value(std::move(values));
        });
      }
      for (int step = 0; step < kSteps; ++step) {
        const auto values = steps[static_cast<size_t>(step)].get();
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_EQ(values->at(0).scalar<float>(), 2.0f * static_cast<float>(step * 20 + 1));
      }
    }));
  }
  for (auto& client : running) client.get();
  EXPECT_GT(Exchanges(), 0);
  ExpectNoRaces();
}

TEST_F(GpuCollectiveOfClients, ADaemonThatGoesEndsTheOthersExchangeByNameAndTheNextGroupFormsAnew) {
  Start({"card 0", "card 1", "card 2"});
  OpenSums(/*timeout=*/300);
  ExpectSums();
  for (const auto& driver : FakeDrivers()) driver->HangExchanges();
  const int64_t before = FakeDrivers()[0]->counts().exchanges;
  auto steps = std::async(std::launch::async, [&] { return Steps(); });
  AwaitExchanges(before, 2);
  const auto lost = std::chrono::steady_clock::now();
  daemons_[2] = nullptr;
  const auto ended = steps.get();
  EXPECT_LT(std::chrono::steady_clock::now() - lost, std::chrono::seconds(3));
  for (size_t client = 0; client < ended.size(); ++client) {
    // It ends in order: the others hear first that its session is closed, or that it is lost.
    const Status status = ended[client].status();
    EXPECT_TRUE(status.code() == Code::kUnavailable ||
                (client != 2 && status.code() == Code::kAborted))
        << status;
    EXPECT_NE(status.message().find("/job:worker/replica:0/task:2"), std::string::npos) << status;
  }
  EXPECT_GT(FakeDrivers()[0]->counts().aborts, 0);
  // Others form a group of those that are there.
  Start({"card 0", "card 1"});
  OpenSums(/*timeout=*/60);
  ExpectSums();
}

TEST_F(GpuCollectiveOfClients, AStepThatOneClientAbortsEndsTheOthersExchangeAndTheNextStepsRun) {
  Start({"card 0", "card 1"});
  OpenSums(/*timeout=*/300);
  ExpectSums();
  for (int round = 0; round < 2; ++round) {
    for (const auto& driver : FakeDrivers()) driver->HangExchanges();
    auto other = std::async(std::launch::async, [&] { return clients_[0]->Step(); });
    const auto aborted = clients_[1]->Step({.timeout = std::chrono::milliseconds(500)});
    EXPECT_EQ(aborted.status().code(), Code::kDeadlineExceeded) << aborted.status();
    ASSERT_EQ(other.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    const Status status = other.get().status();
    EXPECT_EQ(status.code(), Code::kAborted) << status;
    EXPECT_NE(status.message().find("a step failed on /job:worker/replica:0/task:1"),
              std::string::npos)
        << status;
    ExpectSums();
  }
  ExpectNoRaces();
}

TEST_F(GpuCollectiveOfClients, AMemberThatDoesNotComeIsNamedAndTheNextStepsRun) {
  Start({"card 0", "card 1"});
  OpenSums(/*timeout=*/3);
  const Status missing = clients_[0]->Step().status();
  EXPECT_EQ(missing.code(), Code::kDeadlineExceeded) << missing;
  EXPECT_NE(missing.message().find("nobody came from /job:worker/replica:0/task:1"),
            std::string::npos)
      << missing;
  ExpectSums();
  const Status late = clients_[1]->Step().status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_NE(late.message().find("rank 0 (/job:worker/replica:0/task:0/device:GPU:0)"),
            std::string::npos)
      << late;
  ExpectSums();
}

TEST_F(GpuCollectiveOfClients, AClientThatGoesLeavesNobodyInAnExchange) {
  Start({"card 0", "card 1"});
  OpenSums(/*timeout=*/300);
  for (int round = 0; round < 10; ++round) {
    // Each goes as soon as it has its own result.
    std::vector<std::future<Status>> running;
    for (const auto& client : clients_) {
      running.push_back(std::async(std::launch::async, [&client] {
        const Status status = client->Step().status();
        client->session = nullptr;
        return status;
      }));
    }
    for (auto& step : running) {
      const Status status = step.get();
      EXPECT_TRUE(status.ok()) << status;
    }
    for (const auto& client : clients_)
      client->session = Session::Connect(cluster_, client->graph).value();
  }
  for (const auto& driver : FakeDrivers()) EXPECT_EQ(driver->counts().joins, 1);
}

}  // namespace
}  // namespace monograph::testing
