#include "train/variable_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/temporary_folder.h"
#include "train/device_setter.h"
#include "train/moving_average.h"
#include "train/saver.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const std::vector<ModelVariable>& variables) {
  std::vector<std::string> names;
  for (const ModelVariable& variable : variables) names.push_back(variable.name);
  return names;
}

class VariableScopeTest : public ::testing::Test {
 protected:
  VariableScopeTest() : graph_(NewGraph()), scope_(&graph_), root_(scope_, &collections_) {}

  // Initialises all variables and computes `fetches`.
  std::vector<Tensor> Run(const Outputs& fetches) {
    const Operation init = GlobalVariablesInitializer(scope_, collections_);
    EXPECT_TRUE(scope_.ok()) << scope_.status();
    auto session = Session::Local(graph_);
    if (!scope_.ok() || !session.ok()) return {};
    const auto initialised = (*session)->Run({}, {}, {init});
    EXPECT_TRUE(initialised.ok()) << initialised.status();
    auto values = (*session)->Run({}, fetches);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? std::move(values).value() : std::vector<Tensor>(fetches.size());
  }
  std::string DeviceOf(const ModelVariable& variable) {
    return graph_.device(variable.handle.node()).ToString();
  }
  void ExpectFailure(Code code, const std::string& text) {
    EXPECT_EQ(scope_.status().code(), code) << scope_.status();
    EXPECT_THAT(std::string(scope_.status().message()), HasSubstr(text));
  }

  Graph graph_;
  Scope scope_;
  Collections collections_;
  VariableScope root_;
};

TEST_F(VariableScopeTest, NamesAreThoseOfTheScopesAndOpsGetNameScopesOfTheirOwn) {
  const VariableScope a = root_.Open("a"), b = a.Open("b");
  const ScopedVariable w = b.Get("w", {2, 3});
  EXPECT_EQ(w.name, "a/b/w");
  EXPECT_EQ(graph_.name(w.parts[0].handle.node()), "a/b/w");
  const VariableScope again = root_.Open("a");
  EXPECT_EQ(again.Get("v", {2}).name, "a/v");
  EXPECT_EQ(again.scope().prefix(), "a_1");
  EXPECT_EQ(again.name(), "a");
  EXPECT_TRUE(scope_.ok()) << scope_.status();
}

TEST_F(VariableScopeTest, AReusingScopeGivesTheSameVariableAndItsInnerScopesReuseToo) {
  const ScopedVariable w = root_.Open("fc").Open("inner").Get("w", {2});
  const VariableScope reusing = root_.Open("fc", {.reuse = Reuse::kTrue});
  const ScopedVariable again = reusing.Open("inner").Get("w", {2});
  EXPECT_EQ(again.parts[0].handle, w.parts[0].handle);
  const VariableScope either = root_.Open("fc", {.reuse = Reuse::kAutoReuse});
  EXPECT_EQ(either.Open("inner").Get("w", {2}).parts[0].handle, w.parts[0].handle);
  EXPECT_NE(either.Get("new", {2}).parts[0].handle, w.parts[0].handle);
  EXPECT_THAT(Names(GlobalVariables(collections_)), ElementsAre("fc/inner/w", "fc/new"));
  EXPECT_TRUE(scope_.ok()) << scope_.status();
}

TEST_F(VariableScopeTest, AVariableThatExistsIsNotMadeTwice) {
  root_.Open("fc").Get("w", {2});
  root_.Open("fc").Get("w", {2});
  ExpectFailure(Code::kAlreadyExists,
                "Variable fc/w already exists, disallowed. Did you mean to set reuse=True");
}

TEST_F(VariableScopeTest, AReusingScopeMakesNone) {
  root_.Open("fc", {.reuse = Reuse::kTrue}).Get("w", {2});
  ExpectFailure(Code::kNotFound, "Variable fc/w does not exist");
}

TEST_F(VariableScopeTest, AnotherShapeOfASharedVariableIsShownWithBoth) {
  const VariableScope fc = root_.Open("fc", {.reuse = Reuse::kAutoReuse});
  fc.Get("w", {2});
  fc.Get("w", {3});
  ExpectFailure(Code::kInvalidArgument,
                "Trying to share variable fc/w, but specified shape [3] and found shape [2].");
}

TEST_F(VariableScopeTest, AnotherTypeOfASharedVariableIsShownWithBoth) {
  const VariableScope fc = root_.Open("fc", {.reuse = Reuse::kAutoReuse});
  fc.Get("w", {2});
  fc.Get("w", {2}, {.dtype = DT_DOUBLE});
  ExpectFailure(Code::kInvalidArgument,
                "Trying to share variable fc/w, but specified dtype double and found dtype float.");
}

TEST_F(VariableScopeTest, DefaultsComeFromTheInnermostScopeThatSetsThem) {
  const VariableScope ones = root_.Open("ones", {.initializer = OnesInitializer()});
  const VariableScope twos = ones.Open("twos", {.initializer = ConstantInitializer(2)});
  const VariableScope plain = twos.Open("plain", {.dtype = DT_DOUBLE});
  const std::vector<Tensor> values =
      Run({ones.Get("a", {1}).value, twos.Get("b", {1}).value, plain.Get("c", {1}).value,
           plain.Get("d", {1}, {.initializer = ZerosInitializer()}).value,
           root_.Get("i", {1}, {.dtype = DT_INT32}).value, root_.Get("glorot", {3, 5}).value});
  ASSERT_EQ(values.size(), 6u);
  EXPECT_TRUE(BitEqual(values[0], Tensor::Vector<float>({1})));
  EXPECT_TRUE(BitEqual(values[1], Tensor::Vector<float>({2})));
  EXPECT_TRUE(BitEqual(values[2], Tensor::Vector<double>({2})));
  EXPECT_TRUE(BitEqual(values[3], Tensor::Vector<double>({0})));
  EXPECT_TRUE(BitEqual(values[4], Tensor::Vector<int32_t>({0})));
  const float limit = std::sqrt(6.0f / 8);
  float largest = 0;
  for (float value : values[5].values<float>()) largest = std::max(largest, std::fabs(value));
  EXPECT_LE(largest, limit);
  EXPECT_GT(largest, limit / 4);
}

TEST_F(VariableScopeTest, CollectionsHoldWhatWasPutInThemInOrder) {
  root_.Get("a", {1});
  root_.Get("frozen", {1}, {.trainable = false});
  root_.Get("mine", {1}, {.collections = {"my_collection"}});
  EXPECT_THAT(Names(GlobalVariables(collections_)), ElementsAre("a", "frozen"));
  EXPECT_THAT(Names(TrainableVariables(collections_)), ElementsAre("a", "mine"));
  EXPECT_THAT(Names(collections_.Get<ModelVariable>("my_collection")), ElementsAre("mine"));
  const Operation update = Const(scope_.WithOpName("update"), 1.0f);
  collections_.Add(GraphKeys::kUpdateOps, update);
  collections_.Add(GraphKeys::kQueueRunners, "input_queue");
  EXPECT_EQ(collections_.Get<Operation>(GraphKeys::kUpdateOps).at(0).id, update.id);
  EXPECT_THAT(collections_.Get<std::string>(GraphKeys::kQueueRunners), ElementsAre("input_queue"));
  EXPECT_TRUE(collections_.Get<Output>("none").empty());
  EXPECT_THAT(collections_.Names(), ElementsAre("my_collection", "queue_runners",
                                                "trainable_variables", "update_ops", "variables"));
  collections_.Clear("my_collection");
  EXPECT_TRUE(collections_.Items("my_collection").empty());
}

TEST_F(VariableScopeTest, TheInitializerOfAllVariablesHasSlotsAveragesAndTheGlobalStep) {
  const ScopedVariable w = root_.Get("w", {2}, {.initializer = ConstantInitializer(3)});
  const ScopedVariable local =
      root_.Get("local", {}, {.trainable = false, .collections = {GraphKeys::kLocalVariables}});
  const ModelVariable step = MakeGlobalStep(scope_);
  const std::vector<ModelVariable> trained = TrainableVariables(collections_);
  ExponentialMovingAverage averages(0.5, {.collections = &collections_}),
      slower(0.9, {.collections = &collections_, .name = "slower"});
  std::vector<Operation> unused;
  const Optimizer adam = Adam(0.1);
  const Operation update = adam.Minimize(scope_, ReduceMean(scope_, Square(scope_, w.value)),
                                         trained, &unused, {.global_step = &step})
                               .value();
  const Scope after = scope_.WithControlDependencies({update});
  const Operation train = Group(scope_, {averages.Apply(after, trained, &unused).value(),
                                         slower.Apply(after, trained, &unused).value()});
  EXPECT_THAT(Names(collections_.Get<ModelVariable>(GraphKeys::kMovingAverageVariables)),
              ElementsAre("w"));
  const Operation init = GlobalVariablesInitializer(scope_, collections_);
  const Output ready = VarIsInitialized(scope_, local.parts[0].handle);
  ASSERT_TRUE(scope_.ok()) << scope_.status();
  const auto session = Session::Local(graph_).value();
  ASSERT_TRUE(session->Run({}, {}, {init}).ok());
  const auto values = session->Run({}, {step.value, averages.Average(trained[0])->value,
                                        adam.slot(trained[0], "m")->value, ready});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<int64_t>(), 0);
  EXPECT_TRUE(BitEqual(values->at(1), Tensor::Vector<float>({3, 3})));
  EXPECT_TRUE(BitEqual(values->at(2), Tensor::Vector<float>({0, 0})));
  EXPECT_FALSE(values->at(3).scalar<bool>()) << "a local variable";
  const Status trains = session->Run({}, {}, {train}).status();
  EXPECT_TRUE(trains.ok()) << trains;
}

TEST_F(VariableScopeTest, TrainableVariablesCanBeTakenByScope) {
  root_.Open("encoder").Get("w", {1});
  root_.Open("decoder").Get("w", {1});
  EXPECT_THAT(Names(TrainableVariables(collections_, "decoder/")), ElementsAre("decoder/w"));
}

TEST_F(VariableScopeTest, PenaltiesOfNewVariablesAreAddedUpOnce) {
  const VariableScope fc = root_.Open("fc", {.reuse = Reuse::kAutoReuse,
                                             .initializer = ConstantInitializer(2),
                                             .regularizer = L2Regularizer(0.5),
                                             .partitioner = FixedSizePartitioner(2)});
  fc.Get("w", {3});
  fc.Get("w", {3});
  fc.Get("bias", {3}, {.regularizer = [](const Scope&, const Output&) { return Output(); }});
  EXPECT_EQ(collections_.Get<Output>(GraphKeys::kRegularizationLosses).size(), 2u);
  const std::vector<Tensor> values = Run({RegularizationLoss(scope_, collections_)});
  EXPECT_FLOAT_EQ(values[0].scalar<float>(), 0.5f * 3 * 4 / 2);
}

TEST_F(VariableScopeTest, WithoutPenaltiesTheirSumIsZero) {
  EXPECT_EQ(Run({RegularizationLoss(scope_, collections_)})[0].scalar<float>(), 0);
}

TEST_F(VariableScopeTest, APartitionedVariableReadsAsOneTensorAlongItsAxis) {
  const Tensor value = Tensor::FromValues<float>({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const ScopedVariable w = root_.Get(
      "w", {2, 5},
      {.initializer = ValueInitializer(value), .partitioner = FixedSizePartitioner(3, 1)});
  ASSERT_EQ(w.parts.size(), 3u);
  EXPECT_EQ(w.axis, 1);
  EXPECT_THAT(Names(w.parts), ElementsAre("w/part_0", "w/part_1", "w/part_2"));
  EXPECT_EQ(w.parts[0].shape, Shape({2, 2}));
  EXPECT_EQ(w.parts[2].shape, Shape({2, 1}));
  const std::vector<Tensor> values = Run({w.value, w.parts[1].value});
  EXPECT_TRUE(BitEqual(values[0], value));
  EXPECT_TRUE(BitEqual(values[1], Tensor::FromValues<float>({2, 2}, {2, 3, 7, 8})));
}

TEST_F(VariableScopeTest, PartsAreSpreadOverParameterServers) {
  ClusterSpec cluster = ClusterSpec::FromHosts({{"ps", "a:1,b:1"}, {"worker", "c:1"}}).value();
  const auto setter = ReplicaDeviceSetter(cluster, {.worker_device = "/job:worker/task:0"}).value();
  const VariableScope model = root_.WithDeviceFunction(setter);
  const ScopedVariable w =
      model.Get("w", {6, 2}, {.partitioner = MinMaxVariablePartitioner(8, 0, 16)});
  ASSERT_EQ(w.parts.size(), 3u);
  EXPECT_EQ(DeviceOf(w.parts[0]), "/job:ps/task:0");
  EXPECT_EQ(DeviceOf(w.parts[1]), "/job:ps/task:1");
  EXPECT_EQ(DeviceOf(w.parts[2]), "/job:ps/task:0");
  EXPECT_EQ(graph_.device(w.value.node()).ToString(), "/job:worker/task:0");
  for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
    if (!graph_.name(node).starts_with("w/part_1/Initializer")) continue;
    EXPECT_EQ(graph_.device(node).ToString(), "/job:ps/task:1") << graph_.name(node);
  }
}

TEST_F(VariableScopeTest, AThousandPartsAreOneVariable) {
  const auto begin = std::chrono::steady_clock::now();
  const ScopedVariable w =
      root_.Get("w", {1000, 2},
                {.initializer = OnesInitializer(), .partitioner = FixedSizePartitioner(1000)});
  EXPECT_EQ(w.value.shape().ToString(), "[1000,2]");
  const std::vector<ModelVariable> trained = TrainableVariables(collections_);
  const Output loss = ReduceSum(scope_, Square(scope_, w.value));
  std::vector<Operation> slots;
  const Operation train = Momentum(0.25, 0.5).Minimize(scope_, loss, trained, &slots).value();
  const Operation init = GlobalVariablesInitializer(scope_, collections_);
  Saver saver(scope_);
  ASSERT_TRUE(scope_.ok()) << scope_.status();
  const auto session = Session::Local(graph_).value();
  ASSERT_TRUE(session->Run({}, {}, {init}).ok());
  const Status status = session->Run({}, {}, {train}).status();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(session->Run({}, {loss}).value()[0].scalar<float>(), 500);
  const TemporaryFolder folder;
  const std::string path = saver.Save(session.get(), folder.File("m")).value();
  EXPECT_EQ(LoadVariable(path, "w").value().shape().ToString(), "[1000,2]");
  ASSERT_TRUE(session->Run({}, {}, {train}).ok());
  ASSERT_TRUE(saver.Restore(session.get(), path).ok());
  EXPECT_EQ(session->Run({}, {loss}).value()[0].scalar<float>(), 500);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60) << "seconds";
}

TEST_F(VariableScopeTest, APartitionerIsAskedAgainWhenAVariableIsReused) {
  const VariableScope fc = root_.Open("fc", {.reuse = Reuse::kAutoReuse});
  fc.Get("w", {6}, {.partitioner = FixedSizePartitioner(2)});
  fc.Get("w", {6}, {.partitioner = FixedSizePartitioner(2)});
  EXPECT_TRUE(scope_.ok());
  fc.Get("w", {6}, {.partitioner = FixedSizePartitioner(3)});
  ExpectFailure(Code::kInvalidArgument, "specified partitions [3] and found partitions [2]");
}

TEST_F(VariableScopeTest, AWholeAndAPartitionedVariableOfOneNameAreToldApart) {
  const VariableScope fc = root_.Open("fc", {.reuse = Reuse::kAutoReuse});
  fc.Get("w", {6});
  fc.Get("w", {6}, {.partitioner = FixedSizePartitioner(2)});
  ExpectFailure(Code::kInvalidArgument, "an unpartitioned version of the variable was found: fc/w");
}

TEST_F(VariableScopeTest, APartitionerThatMakesNoSenseIsRefused) {
  const auto fails = [](const Partitioner& partitioner, const char* text) {
    Graph graph = NewGraph();
    Collections collections;
    const Scope scope(&graph);
    VariableScope(scope, &collections).Get("w", {4, 4}, {.partitioner = partitioner});
    EXPECT_EQ(scope.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(scope.status().message()), HasSubstr(text));
  };
  using Parts = std::vector<int64_t>;
  const auto give = [](Parts parts) {
    return [parts](const Shape&, DType) -> Result<Parts> { return parts; };
  };
  fails(give({2}), "does not match the Variable's rank: [2] vs. [4,4]");
  fails(give({2, 0}), "zero partitions for some axes: [2, 0]");
  fails(give({2, 2}), "Can only slice a variable along one dimension");
  fails(give({5, 1}), "more partitions than the dimension allows");
  fails(FixedSizePartitioner(2, 2), "Cannot partition variable along axis 2");
  fails(FixedSizePartitioner(0), "num_shards is 0");
}

TEST(Partitioners, GiveTensorFlowsNumbersOfParts) {
  using Parts = std::vector<int64_t>;
  const auto parts = [](const Partitioner& partitioner, const Shape& shape,
                        DType dtype = DT_FLOAT) { return partitioner(shape, dtype).value(); };
  EXPECT_EQ(parts(FixedSizePartitioner(3), {2, 9}), (Parts{2, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(16), {1024, 1024}), (Parts{16, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(10), {1024, 1024}), (Parts{10, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100), {1024, 1024}), (Parts{16, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 1, 1), {4, 7}), (Parts{1, 7}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100), {4}), (Parts{1}));
  EXPECT_EQ(parts(VariableAxisSizePartitioner(16), {4, 2}), (Parts{2, 1}));
  EXPECT_EQ(parts(VariableAxisSizePartitioner(1), {4, 2}), (Parts{4, 1}));
  EXPECT_EQ(parts(VariableAxisSizePartitioner(16, 0, 3), {100, 2}), (Parts{3, 1}));
  // An element's size is that of its type, a string's an argument.
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 0, 1024), {1024, 3}, DT_HALF), (Parts{6, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 0, 1024), {1024, 3}, DT_BOOL), (Parts{3, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 0, 1024), {1024, 3}, DT_DOUBLE), (Parts{24, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 0, 1024), {1024, 3}, DT_STRING), (Parts{48, 1}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, 0, 1024, 5), {1024, 3}, DT_STRING),
            (Parts{15, 1}));
  EXPECT_EQ(parts(VariableAxisSizePartitioner(1000), {4097, 5}, DT_STRING), (Parts{342, 1}));
  EXPECT_EQ(parts(VariableAxisSizePartitioner(1000, 1, 2, 1), {5, 1000}, DT_STRING), (Parts{1, 2}));
  // From the last dimension.
  EXPECT_EQ(parts(FixedSizePartitioner(3, -1), {2, 9}), (Parts{1, 3}));
  EXPECT_EQ(parts(MinMaxVariablePartitioner(100, -2, 1), {4, 7}), (Parts{4, 1}));
  EXPECT_EQ(FixedSizePartitioner(3, -3)({2, 9}, DT_FLOAT).status().code(), Code::kInvalidArgument);
}

TEST_F(VariableScopeTest, TowersShareVariablesAndHaveNameScopesOfTheirOwn) {
  const VariableScope model = root_.Open("model", {.reuse = Reuse::kAutoReuse});
  std::vector<ScopedVariable> seen;
  for (int i = 0; i < 2; ++i) {
    const VariableScope tower = model.NameScope("tower_" + std::to_string(i));
    seen.push_back(tower.Get("w", {4}, {.partitioner = FixedSizePartitioner(2)}));
    EXPECT_TRUE(seen.back().value.name().starts_with("model/tower_" + std::to_string(i)));
  }
  EXPECT_EQ(seen[0].parts[1].handle, seen[1].parts[1].handle);
}

TEST(DeviceSetterOfACluster, CountsItsParameterServersAndKnowsItsWorkers) {
  const ClusterSpec cluster =
      ClusterSpec::FromHosts({{"ps", "a:1,b:1"}, {"worker", "c:1"}}).value();
  EXPECT_EQ(ReplicaDeviceSetter(cluster, {.worker_device = "/job:worker/task:3"}).status().code(),
            Code::kNotFound);
  EXPECT_TRUE(ReplicaDeviceSetter(cluster, {.ps_device = "/job:none"}).ok());
}

TEST(Initializers, VarianceScalingGivesTheVarianceThatItsModeAsksFor) {
  using Mode = VarianceScalingOptions::Mode;
  using Distribution = VarianceScalingOptions::Distribution;
  struct Case {
    VarianceScalingOptions options;
    double variance, most;  // most: no value is beyond so many deviations
  };
  // A 3x3 convolution from 20 channels to 60.
  const Case cases[] = {
      {{}, 1.0 / 180, 2.274},
      {{.scale = 2}, 2.0 / 180, 2.274},
      {{.mode = Mode::kFanOut}, 1.0 / 540, 2.274},
      {{.mode = Mode::kFanAvg, .distribution = Distribution::kUniform}, 1.0 / 360, 1.7321},
      {{.distribution = Distribution::kUntruncatedNormal}, 1.0 / 180, 6}};
  for (const Case& c : cases) {
    Graph graph = NewGraph();
    const Scope root = Scope(&graph).WithSeed(3);
    Collections collections;
    const ScopedVariable w =
        VariableScope(root, &collections)
            .Get("w", {3, 3, 20, 60}, {.initializer = VarianceScalingInitializer(c.options)});
    const auto session = Session::Local(graph).value();
    ASSERT_TRUE(session->Run({}, {}, {w.parts[0].initializer}).ok());
    const std::vector<Tensor> values = session->Run({}, {w.value}).value();
    double sum = 0, squares = 0, most = 0;
    for (const float value : values[0].values<float>()) {
      sum += value;
      squares += double{value} * value;
      most = std::max(most, std::abs(double{value}));
    }
    const double n = 3 * 3 * 20 * 60;
    EXPECT_NEAR(squares / n / c.variance, 1, 0.05);
    EXPECT_NEAR(sum / n / std::sqrt(c.variance), 0, 0.05);
    EXPECT_LE(most, c.most * std::sqrt(c.variance));
  }
}

}  // namespace
}  // namespace monograph
