// The training curve on real daemons: bit-equal to two replicas in one process, over repeats,
// threads and lanes.
#include <algorithm>

#include "tests/multiprocess/cluster_fixture.h"
#include "tests/train/training_curve.h"

namespace monograph {
namespace {

using testing::Curve;
using testing::CurveOptions;
using testing::Difference;
using testing::TrainingCurve;

Curve Train(const CurveOptions& options) {
  Result<Curve> curve = TrainingCurve(options);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? std::move(curve).value() : Curve();
}

CurveOptions InOneProcess() {
  CurveOptions options;
  options.replicas = {"/device:CPU:0", "/device:CPU:1"};
  options.steps = 10;
  return options;
}

CurveOptions On(const TestCluster& cluster, const std::string& lanes = "") {
  CurveOptions options = InOneProcess();
  options.replicas = {"/job:worker/task:0", "/job:worker/task:1"};
  options.variable_devices = {"/job:ps/task:0"};
  options.cluster = cluster.spec();
  options.session.transport.lanes = lanes;
  if (lanes == "tcp") options.session.transport.trusted_network = {"127.0.0.0/8"};
  return options;
}

TEST(TrainingOnCluster, TwoDaemonsFollowTwoReplicasInOneProcessBitByBitAndSoDoRepeats) {
  TestCluster cluster;
  const Curve expected = Train(InOneProcess());
  ASSERT_EQ(expected.losses.size(), 10u);
  EXPECT_EQ(Difference(expected, Train(On(cluster))), "");
  EXPECT_EQ(Difference(expected, Train(On(cluster))), "");
}

TEST(TrainingOnCluster, DropoutAndABatchThatDoesNotDivideEvenlyKeepTheBits) {
  TestCluster cluster;
  CurveOptions here = InOneProcess(), there = On(cluster);
  for (CurveOptions* options : {&here, &there}) {
    options->batch_size = 25;
    options->dropout = 0.5;
    options->steps = 6;
  }
  EXPECT_EQ(Difference(Train(here), Train(there)), "");
}

TEST(TrainingOnCluster, InputReadInTheDaemonsGivesTheSameBitsAsInputFedByTheClient) {
  TestCluster cluster;
  CurveOptions here = InOneProcess(), there = On(cluster);
  there.executor_input = true;
  EXPECT_EQ(Difference(Train(here), Train(there)), "");
}

TEST(TrainingOnCluster, ThreadsDoNotChangeABit) {
  const Curve expected = Train(InOneProcess());
  for (const char* threads : {"1", "4"}) {
    TestCluster cluster({.flags = {std::string("--inter_op_parallelism_threads=") + threads,
                                   std::string("--intra_op_parallelism_threads=") + threads}});
    EXPECT_EQ(Difference(expected, Train(On(cluster))), "") << threads << " threads";
  }
}

class TrainingOverLanes : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingOverLanes, LanesDoNotChangeABit) {
  const std::string lanes = GetParam();
  std::vector<std::string> flags = {"--lanes=" + lanes};
  if (lanes == "tcp") flags.push_back("--trusted_network=127.0.0.0/8");
  TestCluster cluster({.flags = flags});
  EXPECT_EQ(Difference(Train(InOneProcess()), Train(On(cluster, lanes))), "");
}

INSTANTIATE_TEST_SUITE_P(Lanes, TrainingOverLanes, ::testing::Values("tcp", "posix,cma", "posix"),
                         [](const auto& lane) {
                           std::string name = lane.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

}  // namespace
}  // namespace monograph
