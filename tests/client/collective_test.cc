// Collectives between the devices of one process, and gradients summed in buckets. Between
// processes: tests/multiprocess/collectives_test.cc; matching, deadlines and failures:
// tests/executor/collective_test.cc.
#include "ops/collective/collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "client/registries.h"
#include "client/session.h"
#include "graph/tower_function.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "train/all_reduce.h"

namespace monograph {
namespace {

std::string Device(int i) { return "/device:CPU:" + std::to_string(i); }

std::vector<std::string> Devices(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Device(i));
  return devices;
}

std::unique_ptr<Session> Local(const Graph& graph, int devices) {
  SessionOptions options;
  options.device_count = {{kCpu, devices}};
  options.inter_op_parallelism_threads = 2;
  options.intra_op_parallelism_threads = 2;
  return Session::Local(graph, std::move(options)).value();
}

// Values whose sum depends on the order of adding.
Output Input(const Scope& scope, DType dtype, const Shape& shape, int rank) {
  Tensor values = Tensor::Allocate(DT_FLOAT, shape).value();
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.data<float>()[i] = static_cast<float>((i * 7 + rank * 13) % 101 + 1) /
                              static_cast<float>(1 + rank * 3 + i % 5);
  return Cast(scope, Const(scope, std::move(values)), dtype);
}

void ExpectSame(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_TRUE(BitEqual(a, b)) << what;
}

class CollectiveSizes : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(CollectiveSizes, AnAllReduceHasTheBitsOfAddNInRankOrder) {
  const auto [ranks, given] = GetParam();
  Graph graph = NewGraph();
  Scope root(&graph);
  const std::vector<std::string> devices = Devices(ranks);
  CollectiveGroup group{.size = ranks, .key = 3, .timeout_seconds = 20};
  if (given) group.members = devices;
  struct Case {
    std::string what;
    Outputs sums;
    Output expected;
  };
  std::vector<Case> cases;
  int instance = 1;
  for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64}) {
    for (const int64_t size : {0, 1, 7, 1000, 300'001}) {
      if (size > 1000 && dtype != DT_FLOAT && dtype != DT_HALF) continue;
      Case one{std::string(DTypeName(dtype)) + " x " + std::to_string(size), {}, {}};
      Outputs inputs;
      for (int rank = 0; rank < ranks; ++rank) {
        const Scope place = root.WithDevice(devices[static_cast<size_t>(rank)]);
        inputs.push_back(Input(place, dtype, Shape{size}, rank));
        one.sums.push_back(CollectiveReduce(place, inputs.back(), group, instance));
      }
      one.expected = AddN(root.WithDevice(devices[0]), inputs);
      cases.push_back(one);
      ++instance;
    }
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = Local(graph, ranks);
  Outputs fetches;
  for (const Case& one : cases) {
    fetches.push_back(one.expected);
    fetches.insert(fetches.end(), one.sums.begin(), one.sums.end());
  }
  for (int step = 0; step < 3; ++step) {
    auto values = session->Run({}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    size_t at = 0;
    for (const Case& one : cases) {
      const Tensor& expected = values->at(at++);
      for (size_t rank = 0; rank < one.sums.size(); ++rank)
        ExpectSame(values->at(at++), expected, one.what + " at rank " + std::to_string(rank));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveSizes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5), ::testing::Bool()));

TEST(Collective, OtherMergeOpsAndMeans) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 3, .members = Devices(3)};
  Outputs mul, max, min, mean;
  for (int rank = 0; rank < 3; ++rank) {
    const Scope place = root.WithDevice(Device(rank));
    const Output x =
        Const(place, {1.0f + static_cast<float>(rank), 5.0f - static_cast<float>(rank)});
    mul.push_back(CollectiveReduce(place, x, group, 1, "Mul"));
    max.push_back(CollectiveReduce(place, x, group, 2, "Max"));
    min.push_back(CollectiveReduce(place, x, group, 3, "Min"));
    mean.push_back(CollectiveReduce(place, x, group, 4, "Add", "Div"));
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = Local(graph, 3);
  for (size_t rank = 0; rank < 3; ++rank) {
    // All members of each, since who is not fetched does not come.
    auto values = session->Run(
        {}, {mul[rank], max[rank], min[rank], mean[rank], mul[(rank + 1) % 3], max[(rank + 1) % 3],
             min[(rank + 1) % 3], mean[(rank + 1) % 3], mul[(rank + 2) % 3], max[(rank + 2) % 3],
             min[(rank + 2) % 3], mean[(rank + 2) % 3]});
    ASSERT_TRUE(values.ok()) << values.status();
    ExpectSame(values->at(0), Tensor::Vector<float>({6, 60}), "Mul");
    ExpectSame(values->at(1), Tensor::Vector<float>({3, 5}), "Max");
    ExpectSame(values->at(2), Tensor::Vector<float>({1, 3}), "Min");
    ExpectSame(values->at(3), Tensor::Vector<float>({2, 4}), "mean");
  }
}

TEST(Collective, AGatherJoinsRowsOfUnequalNumbersAndABroadcastReachesAll) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 3, .members = Devices(3)};
  const Scope a = root.WithDevice(Device(0)), b = root.WithDevice(Device(1)),
              c = root.WithDevice(Device(2));
  const Outputs fetches = {
      CollectiveGather(a, Const(a, Shape{1, 2}, {1.0f, 2.0f}), group, 1),
      CollectiveGather(b, Const(b, Shape{0, 2}, std::initializer_list<float>{}), group, 1),
      CollectiveGather(c, Const(c, Shape{2, 2}, {3.0f, 4.0f, 5.0f, 6.0f}), group, 1),
      CollectiveBroadcastRecv(a, DT_INT64, {2}, group, 2),
      CollectiveBroadcastSend(b, Const(b, {int64_t{7}, int64_t{8}}), group, 2),
      CollectiveBroadcastRecv(c, DT_INT64, {2}, group, 2),
  };
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(fetches[0].shape().ToString(), "[?,2]");
  auto session = Local(graph, 3);
  auto values = session->Run({}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t i = 0; i < 3; ++i)
    ExpectSame(values->at(i), Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}), "gather");
  for (size_t i = 3; i < 6; ++i)
    ExpectSame(values->at(i), Tensor::Vector<int64_t>({7, 8}), "broadcast");
}

TEST(Collective, AStepThatRunsOutOfTimeNamesTheMemberThatItWaitsFor) {
  Graph graph = NewGraph();
  Scope root(&graph);
  CollectiveGroup group{.size = 2, .key = 9, .timeout_seconds = 20};
  group.members = Devices(2);
  const Scope place = root.WithDevice(Device(0));
  const Output sum = CollectiveReduce(place.WithOpName("sum"), Const(place, 1.0f), group, 77);
  auto session = Local(graph, 2);
  const Status late =
      session->Run({}, {sum}, {}, {.timeout = std::chrono::milliseconds(100)}).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_NE(late.message().find("(node 'sum' (CollectiveReduceV2): collective "
                                "'CollectiveReduceV2' (group 9, instance 77) waits for rank 1 "
                                "(/job:localhost/replica:0/task:0/device:CPU:1))"),
            std::string::npos)
      << late;
}

TEST(Collective, AMemberThatDoesNotComeIsNamedAndTheNextStepWorks) {
  for (const bool given : {true, false}) {
    Graph graph = NewGraph();
    Scope root(&graph);
    CollectiveGroup group{.size = 2, .key = 9, .timeout_seconds = 0.3};
    if (given) group.members = Devices(2);
    Outputs sums;
    for (int rank = 0; rank < 2; ++rank) {
      const Scope place = root.WithDevice(Device(rank));
      sums.push_back(CollectiveReduce(place.WithOpName("sum"), Const(place, 1.0f), group, 77));
    }
    auto session = Local(graph, 2);
    auto values = session->Run({}, {sums[0]});
    ASSERT_FALSE(values.ok());
    EXPECT_EQ(values.status().code(), Code::kDeadlineExceeded) << values.status();
    EXPECT_NE(values.status().message().find("group 9"), std::string::npos) << values.status();
    if (given) {
      EXPECT_NE(values.status().message().find("instance 77"), std::string::npos)
          << values.status();
      EXPECT_NE(
          values.status().message().find("rank 1 (/job:localhost/replica:0/task:0/device:CPU:1)"),
          std::string::npos)
          << values.status();
    }
    values = session->Run({}, sums);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(1).scalar<float>(), 2.0f);
  }
}

TEST(Collective, InputsOfDifferentShapesAreRefused) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const CollectiveGroup group{.size = 2, .members = Devices(2)};
  const Scope a = root.WithDevice(Device(0)), b = root.WithDevice(Device(1));
  const Outputs sums = {CollectiveReduce(a, Const(a, {1.0f, 2.0f}), group, 1),
                        CollectiveReduce(b, Const(b, {1.0f, 2.0f, 3.0f}), group, 1)};
  auto session = Local(graph, 2);
  const auto values = session->Run({}, sums);
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), Code::kInvalidArgument) << values.status();
}

TEST(AllReduce, BucketsAreFilledInTheOrderOfTheBackwardPass) {
  Graph graph = NewGraph();
  Scope root(&graph);
  Outputs gradients;
  for (const int64_t size : {100, 10, 300, 5}) gradients.push_back(Zeros(root, Shape{size}));
  gradients.push_back(Zeros(root, Shape{5}, DT_DOUBLE));
  std::reverse(gradients.begin(), gradients.end());  // node order is now from last to first
  AllReduceOptions options{.group = {.size = 2}, .first_bucket_bytes = 500, .bucket_bytes = 1300};
  const auto buckets = BucketsOf(gradients, options);
  ASSERT_TRUE(buckets.ok()) << buckets.status();
  EXPECT_EQ(*buckets, (std::vector<std::vector<size_t>>{{4, 3}, {2, 1}, {0}}));
}

TEST(AllReduce, SumsGradientsOfAllReplicasInsideAndOutsideTheirBody) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const std::vector<std::string> devices = Devices(2);
  AllReduceOptions options{.group = {.size = 2, .key = 1, .members = devices},
                           .first_bucket_bytes = 64,
                           .bucket_bytes = 200};
  std::vector<std::vector<Output>> args(2);
  std::vector<Outputs> gradients(2);
  Outputs expected;
  for (int i = 0; i < 4; ++i) {
    for (int rank = 0; rank < 2; ++rank)
      args[static_cast<size_t>(rank)].push_back(
          Input(root.WithDevice(devices[static_cast<size_t>(rank)]), DT_FLOAT, Shape{10 + i, 3},
                rank + 2 * i));
    expected.push_back(Square(root, AddN(root, {args[0].back(), args[1].back()})));
  }
  auto tower = TowerFunction::Make(root, "tower", devices, args);
  ASSERT_TRUE(tower.ok()) << tower.status();
  Result<Outputs> sums = AllReduceGradients(tower->body(), tower->args(), options);
  ASSERT_TRUE(sums.ok()) << sums.status();
  for (Output& sum : *sums) sum = Square(tower->body(), sum);
  const auto inside = tower->Call(sums);
  ASSERT_TRUE(inside.ok()) << inside.status();
  options.group.key = 2;
  const auto outside = AllReduceReplicas(root, {args[0], args[1]}, options);
  ASSERT_TRUE(outside.ok()) << outside.status();
  Outputs fetches = expected;
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < 4; ++i) fetches.push_back(inside->results[i][rank]);
    for (size_t i = 0; i < 4; ++i) fetches.push_back(Square(root, outside->at(rank)[i]));
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = Local(graph, 2);
  const auto values = session->Run({}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t i = 4; i < values->size(); ++i)
    ExpectSame(values->at(i), values->at(i % 4), std::to_string(i));
}

TEST(AllReduce, KeepsRowsAsRowsWithTheBitsOfAddingThemInRankOrder) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const std::vector<std::string> devices = Devices(3);
  const AllReduceOptions options{.group = {.size = 3, .key = 1, .members = devices}};
  const std::vector<std::vector<int64_t>> indices = {{3, 1}, {}, {1, 0, 3}};
  std::vector<std::vector<Gradient>> gradients(3);
  Outputs whole;
  for (size_t rank = 0; rank < 3; ++rank) {
    const Scope place = root.WithDevice(devices[rank]);
    const auto rows = static_cast<int64_t>(indices[rank].size());
    const int seed = static_cast<int>(rank);
    const Gradient sparse{Input(place, DT_FLOAT, Shape{rows, 4}, seed),
                          Const(place, Tensor::FromValues<int64_t>({rows}, indices[rank]))};
    gradients[rank] = {{Input(place, DT_FLOAT, Shape{7}, seed)}, sparse};
    whole.push_back(UnsortedSegmentSum(root, sparse.values, sparse.indices, Const(root, 5)));
  }
  const auto sums = AllReduceReplicas(root, gradients, options);
  ASSERT_TRUE(sums.ok()) << sums.status();
  const Output expected = AddN(root, whole);
  Outputs fetches = {expected};
  for (size_t rank = 0; rank < 3; ++rank) {
    const Gradient& sum = sums->at(rank)[1];
    EXPECT_FALSE(sums->at(rank)[0].sparse());
    ASSERT_TRUE(sum.sparse());
    fetches.push_back(UnsortedSegmentSum(root, sum.values, sum.indices, Const(root, 5)));
    fetches.push_back(sum.indices);
  }
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = Local(graph, 3);
  const auto values = session->Run({}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t rank = 0; rank < 3; ++rank) {
    ExpectSame(values->at(1 + 2 * rank), values->at(0), std::to_string(rank));
    EXPECT_TRUE(BitEqual(values->at(2 + 2 * rank), Tensor::FromValues<int64_t>({3}, {3, 1, 0})));
  }
}

}  // namespace
}  // namespace monograph
