// Collectives between daemons: of one client, and of a client per worker.
#include <algorithm>
#include <future>

#include "client/registries.h"
#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/queue/queue.h"
#include "ops/slice/slice.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/all_reduce.h"

namespace monograph {
namespace {

std::string Worker(int i) { return "/job:worker/task:" + std::to_string(i); }
std::string FullTask(int i) { return "/job:worker/replica:0/task:" + std::to_string(i); }

Tensor Values(int64_t size, int rank, int step) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{size}).value();
  for (int64_t i = 0; i < size; ++i)
    tensor.data<float>()[i] = static_cast<float>((i * 31 + rank * 17 + step * 5) % 1013 + 1) /
                              static_cast<float>(3 + rank + i % 11);
  return tensor;
}

// One client's graph: its replica's gradients are fed.
struct Replica {
  Replica(int rank, const CollectiveGroup& group, const std::vector<int64_t>& sizes)
      : graph(NewGraph()), root(&graph) {
    const Scope place = root.WithDevice(Worker(rank));
    for (const int64_t size : sizes) gradients.push_back(Placeholder(place, DT_FLOAT, {size}));
    const AllReduceOptions options{
        .group = group, .first_bucket_bytes = 4000, .bucket_bytes = 3'000'000};
    sums = AllReduceGradients(place, gradients, options).value();
  }
  Result<std::vector<Tensor>> Run(Session& session, int rank, int step) {
    std::vector<Feed> feeds;
    for (const Output& gradient : gradients)
      feeds.emplace_back(gradient, Values(gradient.shape().elements(), rank, step));
    return session.Run(feeds, sums);
  }
  Graph graph;
  Scope root;
  Outputs gradients, sums;
};

const std::vector<int64_t> kSizes = {1, 700, 0, 40'000, 900'001, 5};

Tensor Expected(int64_t size, int ranks, int step) {
  Tensor sum = Values(size, 0, step);
  for (int rank = 1; rank < ranks; ++rank) {
    const Tensor next = Values(size, rank, step);
    for (int64_t i = 0; i < size; ++i) sum.data<float>()[i] += next.data<float>()[i];
  }
  return sum;
}

void ExpectSums(const Result<std::vector<Tensor>>& sums, int ranks, int step) {
  ASSERT_TRUE(sums.ok()) << sums.status();
  for (size_t i = 0; i < kSizes.size(); ++i)
    EXPECT_TRUE(SameBits(sums->at(i), Expected(kSizes[i], ranks, step)))
        << "size " << kSizes[i] << " step " << step;
}

// Runs fn(rank) for all ranks at once.
template <typename Fn>
void ForRanks(int ranks, Fn fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(fn, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(Collectives, OneClientSumsOverDaemonsWithTheBitsOfAddNOnAParameterServer) {
  TestCluster cluster({.ps = 1, .workers = 3});
  for (const bool given : {true, false}) {
    Graph graph = NewGraph();
    Scope root(&graph);
    CollectiveGroup group{.size = 3, .key = given ? 1 : 2};
    if (given) group.members = {Worker(0), Worker(1), Worker(2)};
    Outputs fetches, inputs;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      Outputs parts;
      for (int rank = 0; rank < 3; ++rank) {
        const Scope place = root.WithDevice(Worker(rank));
        inputs.push_back(Placeholder(place, DT_FLOAT, {kSizes[i]}));
        parts.push_back(Identity(place, inputs.back()));
        fetches.push_back(CollectiveReduce(place, parts.back(), group, static_cast<int>(i)));
      }
      fetches.push_back(AddN(root.WithDevice("/job:ps/task:0"), parts));
    }
    ASSERT_TRUE(root.ok()) << root.status();
    auto session = cluster.Connect(graph);
    for (int step = 0; step < 5; ++step) {
      std::vector<Feed> feeds;
      for (size_t i = 0; i < inputs.size(); ++i)
        feeds.emplace_back(inputs[i],
                           Values(inputs[i].shape().elements(), static_cast<int>(i % 3), step));
      auto values = session->Run(feeds, fetches);
      ASSERT_TRUE(values.ok()) << values.status();
      for (size_t i = 0; i < kSizes.size(); ++i) {
        for (size_t rank = 0; rank < 3; ++rank)
          EXPECT_TRUE(SameBits(values->at(4 * i + rank), values->at(4 * i + 3)))
              << "size " << kSizes[i] << " rank " << rank;
      }
    }
  }
}

TEST(Collectives, EveryTypeAndMergeOpOverDaemonsHasTheBitsOfTheOpsOnOneDevice) {
  TestCluster cluster({.ps = 0, .workers = 3});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope reference = root.WithDevice(Worker(0));
  const CollectiveGroup group{.size = 3, .key = 1, .members = {Worker(0), Worker(1), Worker(2)}};
  int instance = 1;
  Outputs fetches;  // the results of the three ranks, then what they should be
  const auto add = [&](DType dtype, int64_t size, const std::string& op) {
    Outputs parts, results;
    for (int rank = 0; rank < 3; ++rank) {
      const Scope place = root.WithDevice(Worker(rank));
      parts.push_back(Cast(place, Const(place, Values(size, rank, instance)), dtype));
      results.push_back(op == "AddN" ? MonographAllReduce(place, {parts.back()}, group, instance)[0]
                                     : CollectiveReduce(place, parts.back(), group, instance, op));
    }
    fetches.insert(fetches.end(), results.begin(), results.end());
    const auto merge = [&](const Output& x, const Output& y) {
      return op == "Mul"   ? Mul(reference, x, y)
             : op == "Max" ? Maximum(reference, x, y)
                           : Minimum(reference, x, y);
    };
    fetches.push_back(op == "Add" || op == "AddN" ? AddN(reference, parts)
                                                  : merge(merge(parts[0], parts[1]), parts[2]));
    ++instance;
  };
  for (const int64_t size : {1001, 90'000}) {
    for (const DType dtype : {DT_HALF, DT_BFLOAT16, DT_DOUBLE, DT_INT32, DT_INT64})
      add(dtype, size, "Add");
    add(DT_UINT8, size, "AddN");
    for (const char* op : {"Mul", "Max", "Min"}) add(DT_FLOAT, size, op);
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster.Connect(graph);
  const auto values = session->Run({}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t i = 0; i < values->size(); ++i)
    EXPECT_TRUE(SameBits(values->at(i), values->at(i - i % 4 + 3))) << "result " << i;
}

TEST(Collectives, AClientPerWorkerSumsInBucketsAndTakesTheFirstOnesValues) {
  TestCluster cluster({.ps = 0, .workers = 3});
  const CollectiveGroup group{.size = 3, .key = 4, .timeout_seconds = 60};
  ForRanks(3, [&](int rank) {
    Replica replica(rank, group, kSizes);
    const Scope place = replica.root.WithDevice(Worker(rank));
    const auto initial = BroadcastFromFirst(
        place, rank == 0,
        {Const(place, Values(100'000, rank, 0)), Const(place, static_cast<float>(rank))}, group,
        1000);
    ASSERT_TRUE(initial.ok()) << initial.status();
    auto session = cluster.Connect(replica.graph);
    const auto values = session->Run({}, *initial);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(SameBits(values->at(0), Values(100'000, 0, 0)));
    EXPECT_EQ(values->at(1).scalar<float>(), 0.0f);
    for (int step = 0; step < 10; ++step) ExpectSums(replica.Run(*session, rank, step), 3, step);
  });
}

TEST(Collectives, StepsInFlightOfSeveralClientsMeetInOrder) {
  constexpr int kRanks = 3, kSteps = 24, kInFlight = 4;
  TestCluster cluster({.ps = 0, .workers = kRanks});
  ForRanks(kRanks, [&](int rank) {
    Replica replica(rank, {.size = kRanks}, kSizes);
    auto session = cluster.Connect(replica.graph);
    const auto callable = session->MakeCallable(replica.gradients, replica.sums).value();
    std::vector<std::promise<Result<std::vector<Tensor>>>> made(kSteps);
    for (int step = 0; step < kSteps + kInFlight; ++step) {
      if (step < kSteps) {
        std::vector<Tensor> feeds;
        for (const Output& gradient : replica.gradients)
          feeds.push_back(Values(gradient.shape().elements(), rank, step));
        session->RunAsync(callable, feeds, [&, step](Result<std::vector<Tensor>> result) {
          made[static_cast<size_t>(step)].set_value(std::move(result));
        });
      }
      if (step >= kInFlight)
        ExpectSums(made[static_cast<size_t>(step - kInFlight)].get_future().get(), kRanks,
                   step - kInFlight);
    }
  });
}

TEST(Collectives, AClientThatDoesNotComeIsNamedAndTheNextStepWorks) {
  TestCluster cluster({.ps = 0, .workers = 2});
  Replica first(0, {.size = 2, .key = 4, .timeout_seconds = 0.5}, kSizes);
  Replica second(1, {.size = 2, .key = 4, .timeout_seconds = 20}, kSizes);
  auto a = cluster.Connect(first.graph), b = cluster.Connect(second.graph);
  ExpectError(first.Run(*a, 0, 0).status(), Code::kDeadlineExceeded,
              {"group 4", FullTask(1), "0.5 s"});
  // The other way round the leader itself does not come; and then both do.
  Replica hasty(1, {.size = 2, .key = 4, .timeout_seconds = 0.5}, kSizes);
  auto c = cluster.Connect(hasty.graph);
  ExpectError(hasty.Run(*c, 1, 0).status(), Code::kDeadlineExceeded, {"group 4", FullTask(0)});
  ASSERT_TRUE(c->Close().ok());
  Replica patient(0, {.size = 2, .key = 4, .timeout_seconds = 20}, kSizes);
  auto d = cluster.Connect(patient.graph);
  for (int step = 0; step < 3; ++step) {
    ForRanks(2, [&](int rank) {
      ExpectSums(rank == 0 ? patient.Run(*d, 0, step) : second.Run(*b, 1, step), 2, step);
    });
  }
  // Formed, and then one stays away.
  Replica late(0, {.size = 2, .key = 5, .timeout_seconds = 0.5}, kSizes);
  Replica other(1, {.size = 2, .key = 5, .timeout_seconds = 0.5}, kSizes);
  auto e = cluster.Connect(late.graph), f = cluster.Connect(other.graph);
  ForRanks(
      2, [&](int rank) { ExpectSums(rank == 0 ? late.Run(*e, 0, 1) : other.Run(*f, 1, 1), 2, 1); });
  ExpectError(late.Run(*e, 0, 2).status(), Code::kDeadlineExceeded,
              {"group 5", "instance", "rank 1", FullTask(1)});
  // Both start again: the round that failed is not mixed with the next one.
  ForRanks(
      2, [&](int rank) { ExpectSums(rank == 0 ? late.Run(*e, 0, 3) : other.Run(*f, 1, 3), 2, 3); });
}

TEST(Collectives, AKilledWorkerIsNamedToTheOneClientAndToTheOtherClients) {
  TestCluster cluster({.ps = 0, .workers = 3});
  // One client: the members wait for worker 2, whose input takes long.
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 3, .key = 1, .members = {Worker(0), Worker(1), Worker(2)}};
  const LongKernel slow(root, Worker(2));
  Outputs sums;
  for (int rank = 0; rank < 3; ++rank) {
    const Scope place = root.WithDevice(Worker(rank));
    const Scope after = rank == 2 ? place.WithControlDependencies({slow.sum}) : place;
    sums.push_back(
        CollectiveReduce(place, Identity(after, Const(place, Values(200'000, rank, 0))), group, 1));
  }
  auto session = cluster.Connect(graph);
  // A client per worker: worker 2's does not begin.
  const CollectiveGroup shared{.size = 2, .key = 7, .timeout_seconds = 60};
  Replica alone(1, shared, kSizes), absent(2, shared, kSizes);
  auto waiting = cluster.Connect(alone.graph);
  {
    auto partner = cluster.Connect(absent.graph);
    ForRanks(2, [&](int rank) {
      const auto sums_of = rank == 0 ? alone.Run(*waiting, 1, 0) : absent.Run(*partner, 2, 0);
      EXPECT_TRUE(sums_of.ok()) << sums_of.status();
    });
    Status one, other;
    std::thread in_graph([&] {
      one = session->Run({{slow.side, Tensor::Scalar<int32_t>(4000)}}, sums).status();
    });
    std::thread between([&] { other = alone.Run(*waiting, 1, 1).status(); });
    EXPECT_TRUE(cluster.WaitForStatus(
        "worker", 0, [](const auto& status) { return status.running_steps() > 0; }));
    EXPECT_TRUE(cluster.WaitForStatus(
        "worker", 1, [](const auto& status) { return status.running_steps() > 1; }));
    const auto killed = Clock::now();
    cluster.daemon("worker", 2).Signal(SIGKILL);
    in_graph.join();
    between.join();
    EXPECT_LT(Clock::now() - killed, 20s) << "long before the deadline of the group";
    ExpectError(one, Code::kUnavailable, {FullTask(2)});
    ExpectError(other, Code::kUnavailable, {FullTask(2)});
  }
  // The daemon comes back, and so does its client; the group forms anew.
  ASSERT_TRUE(cluster.daemon("worker", 2).Wait(20s).has_value());
  cluster.Start("worker", 2);
  waiting = cluster.Connect(alone.graph);
  auto partner = cluster.Connect(absent.graph);
  for (int step = 1; step < 3; ++step) {
    std::vector<Result<std::vector<Tensor>>> got(
        2, Result<std::vector<Tensor>>(Internal("did not run")));
    ForRanks(2, [&](int rank) {
      got[static_cast<size_t>(rank)] =
          rank == 0 ? alone.Run(*waiting, 1, step) : absent.Run(*partner, 2, step);
    });
    ASSERT_TRUE(got[0].ok()) << got[0].status();
    ASSERT_TRUE(got[1].ok()) << got[1].status();
    for (size_t i = 0; i < kSizes.size(); ++i) EXPECT_TRUE(SameBits(got[0]->at(i), got[1]->at(i)));
  }
}

TEST(Collectives, TheEndOfAMembersInputEndsTheOthersAfterTheSameStep) {
  constexpr int kElements[] = {8, 5};
  TestCluster cluster({.ps = 0, .workers = 2});
  ForRanks(2, [&](int rank) {
    Graph graph = NewGraph();
    const Scope root(&graph), place = root.WithDevice(Worker(rank));
    const Output queue = FIFOQueue(place, {DT_FLOAT}, {.shapes = {PartialShape::Scalar()}});
    const Output numbers = Placeholder(root, DT_FLOAT, {-1});
    const Operation put = QueueEnqueueMany(place, queue, {numbers}),
                    close = QueueClose(place, queue);
    const Output number = QueueDequeue(place, queue).at(0);
    Outputs inputs;
    for (const int64_t size : {1, 900'000})
      inputs.push_back(Fill(place, IntsConst(place, {size}), number));
    const Outputs sums =
        AllReduceGradients(place, inputs, {.group = {.size = 2, .key = 6}}).value();
    const Output last = Slice(place, sums[1], IntsConst(place, {899'999}), IntsConst(place, {1}));
    ASSERT_TRUE(root.ok()) << root.status();
    auto session = cluster.Connect(graph);
    Tensor values = Tensor::Allocate(DT_FLOAT, Shape{kElements[rank]}).value();
    for (int i = 0; i < kElements[rank]; ++i) values.data<float>()[i] = static_cast<float>(i + 1);
    ASSERT_TRUE(session->Run({{numbers, values}}, {}, {put}).ok());
    ASSERT_TRUE(session->Run({}, {}, {close}).ok());
    for (int step = 1; step <= 7; ++step) {
      const auto got = session->Run({}, {sums[0], last});
      if (step <= kElements[1]) {
        ASSERT_TRUE(got.ok()) << "rank " << rank << ", step " << step << ": " << got.status();
        EXPECT_EQ(*got->at(0).data<float>(), 2 * step);
        EXPECT_EQ(*got->at(1).data<float>(), 2 * step);
      } else if (rank == 0) {
        ExpectError(got.status(), Code::kOutOfRange,
                    {"group 6", "the data of " + FullTask(1), "insufficient elements"});
      } else {
        ExpectError(got.status(), Code::kOutOfRange, {"insufficient elements"});
      }
    }
  });
}

TEST(Collectives, AfterAnAbortedStepTheNextOneIsRight) {
  TestCluster cluster({.ps = 0, .workers = 2});
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 2, .key = 1, .members = {Worker(0), Worker(1)}};
  const Output wait = Placeholder(root.WithDevice(Worker(1)), DT_BOOL, {});
  const Operation check = Assert(root.WithDevice(Worker(1)), wait, {wait});
  Outputs inputs, sums;
  for (int rank = 0; rank < 2; ++rank) {
    const Scope place = root.WithDevice(Worker(rank));
    inputs.push_back(Placeholder(place, DT_FLOAT, {200'000}));
    const Scope after = rank == 1 ? place.WithControlDependencies({check}) : place;
    sums.push_back(CollectiveReduce(place, Identity(after, inputs.back()), group, 1));
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster.Connect(graph);
  for (int step = 0; step < 6; ++step) {
    auto values = session->Run({{inputs[0], Values(200'000, 0, step)},
                                {inputs[1], Values(200'000, 1, step)},
                                {wait, Tensor::Scalar<bool>(step % 2 != 0)}},
                               sums);
    if (step % 2 == 0) {
      ExpectError(values.status(), Code::kInvalidArgument, {"Assert"});
      continue;
    }
    ASSERT_TRUE(values.ok()) << values.status();
    for (const Tensor& sum : *values) EXPECT_TRUE(SameBits(sum, Expected(200'000, 2, step)));
  }
}

}  // namespace
}  // namespace monograph
