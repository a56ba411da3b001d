// Gradients that are rows: what they hold, that training with them is training, and lookups in
// tables that are cut into parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/registries.h"
#include "client/session.h"
#include "graph/gradients.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "train/embedding.h"
#include "train/replication.h"
#include "train/variable_scope.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 8, kColumns = 3;

Tensor Table() {
  Tensor table = Tensor::Allocate(DT_FLOAT, {kRows, kColumns}).value();
  for (int64_t i = 0; i < table.elements(); ++i)
    table.data<float>()[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  return table;
}

class SparseTrainingTest : public ::testing::Test {
 protected:
  SparseTrainingTest() : graph_(NewGraph()), root_(&graph_), variables_(root_, &collections_) {}

  ScopedVariable MakeTable(const std::string& name, const Partitioner& partitioner = {}) {
    return variables_.Get(name, {kRows, kColumns},
                          {.initializer = ValueInitializer(Table()), .partitioner = partitioner});
  }
  void Start() {
    initializers_.push_back(GlobalVariablesInitializer(root_, collections_));
    const Operation init = Group(root_, initializers_);
    ASSERT_TRUE(root_.ok()) << root_.status();
    auto session = Session::Local(graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(session).value();
    Run({}, {init});
  }
  std::vector<Tensor> Run(const Outputs& fetches, const std::vector<Operation>& targets = {},
                          const std::vector<Feed>& feeds = {}) {
    auto values = session_->Run(feeds, fetches, targets);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<Tensor>(fetches.size());
  }

  Graph graph_;
  Scope root_;
  Collections collections_;
  VariableScope variables_;
  std::vector<Operation> initializers_;
  std::unique_ptr<Session> session_;
};

std::vector<int64_t> Ints(const Tensor& tensor) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    values.push_back(tensor.dtype() == DT_INT32 ? tensor.data<int32_t>()[i]
                                                : tensor.data<int64_t>()[i]);
  return values;
}

void ExpectNear(const Tensor& got, const Tensor& expected, float tolerance) {
  ASSERT_EQ(got.shape(), expected.shape());
  for (int64_t i = 0; i < got.elements(); ++i)
    EXPECT_NEAR(got.data<float>()[i], expected.data<float>()[i], tolerance) << "element " << i;
}

TEST_F(SparseTrainingTest, RowsOfSeveralLookupsFollowEachOtherInOrder) {
  const ModelVariable table = MakeTable("table").parts[0];
  const Output first = ResourceGather(root_, table.handle, Const(root_, {3, 1}), DT_FLOAT);
  const Output second = Gather(root_, ReadVariable(root_, table.handle),
                               Const<int64_t>(root_, Shape{1, 3}, {1, 7, 1}));
  const Output loss =
      Add(root_, ReduceSum(root_, first), Mul(root_, ReduceSum(root_, second), Const(root_, 2.0f)));
  const auto gradients =
      AddSparseGradients(root_, Outputs{loss}, Outputs{table.handle, table.value});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const Gradient& rows = (*gradients)[0];
  ASSERT_TRUE(rows.sparse());
  EXPECT_FALSE((*gradients)[1].valid()) << "nothing uses that read";
  const Output dense = Densify(root_, rows, table.handle);
  EXPECT_EQ(dense.shape(), PartialShape({kRows, kColumns}));
  Start();
  const std::vector<Tensor> values = Run({rows.indices, rows.values, dense});
  EXPECT_THAT(Ints(values[0]), ElementsAre(3, 1, 1, 7, 1));
  EXPECT_EQ(values[1].shape(), Shape({5, kColumns}));
  EXPECT_EQ(values[1].data<float>()[0], 1);
  EXPECT_EQ(values[1].data<float>()[4 * kColumns], 2);
  EXPECT_EQ(values[2].data<float>()[1 * kColumns], 5);
  EXPECT_EQ(values[2].data<float>()[0], 0);
}

TEST_F(SparseTrainingTest, RowsAndAWholeGradientAddUpToAWholeGradient) {
  const ModelVariable table = MakeTable("table").parts[0];
  const Output rows = ResourceGather(root_, table.handle, Const(root_, {2, 2}), DT_FLOAT);
  const Output loss = Add(root_, ReduceSum(root_, rows), ReduceSum(root_, table.value));
  const auto gradients = AddSparseGradients(root_, Outputs{loss}, Outputs{table.handle});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_FALSE((*gradients)[0].sparse());
  Start();
  const Tensor whole = Run({(*gradients)[0].values})[0];
  EXPECT_EQ(whole.data<float>()[0], 1);
  EXPECT_EQ(whole.data<float>()[2 * kColumns], 3);
}

// ---- lookups in parts

class LookupTest : public SparseTrainingTest,
                   public ::testing::WithParamInterface<std::tuple<int, PartitionStrategy>> {
 protected:
  int parts() const { return std::get<0>(GetParam()); }
  PartitionStrategy strategy() const { return std::get<1>(GetParam()); }
  // The row of the whole table, parts one after the other, where `id` is.
  int64_t RowOf(int64_t id) const {
    if (strategy() == PartitionStrategy::kDiv) return id;
    const std::vector<PartRange> ranges = CutDimension(kRows, parts());
    return ranges[static_cast<size_t>(id % parts())].begin + id / parts();
  }
};

INSTANTIATE_TEST_SUITE_P(All, LookupTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 8),
                                            ::testing::Values(PartitionStrategy::kMod,
                                                              PartitionStrategy::kDiv)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) == PartitionStrategy::kMod ? "Mod"
                                                                                      : "Div");
                         });

TEST_P(LookupTest, GivesTheRowsOfAnyIdsWithGradientsPerPart) {
  const ScopedVariable table = MakeTable("table", FixedSizePartitioner(parts()));
  const Output ids = Placeholder(root_, DT_INT64, {2, -1});
  const Output rows = EmbeddingLookup(root_, table, ids, strategy());
  const auto pairs = ComputeGradients(root_, ReduceSum(root_, rows), table.parts);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  Outputs whole;
  for (const GradientAndVariable& pair : *pairs) {
    ASSERT_TRUE(pair.sparse());
    whole.push_back(Densify(root_, {pair.gradient, pair.indices}, pair.variable.handle));
  }
  const Output gradient = Concat(root_, whole, 0);
  Start();
  const std::vector<int64_t> wanted = {7, 0, 3, 3, 5, 6};
  const Tensor fed = Tensor::FromValues<int64_t>({2, 3}, wanted);
  const std::vector<Tensor> values = Run({rows, gradient}, {}, {{ids, fed}});
  ASSERT_EQ(values[0].shape(), Shape({2, 3, kColumns}));
  const Tensor all = Table();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float got = values[0].data<float>()[static_cast<int64_t>(i) * kColumns];
    EXPECT_EQ(got, all.data<float>()[RowOf(wanted[i]) * kColumns]) << "id " << wanted[i];
  }
  for (int64_t id = 0; id < kRows; ++id) {
    const auto count = std::count(wanted.begin(), wanted.end(), id);
    EXPECT_EQ(values[1].data<float>()[RowOf(id) * kColumns], static_cast<float>(count));
  }
  const Tensor none = Tensor::FromValues<int64_t>({2, 0}, std::vector<int64_t>());
  EXPECT_EQ(Run({rows}, {}, {{ids, none}})[0].shape(), Shape({2, 0, kColumns}));
  const auto beyond =
      session_->Run({{ids, Tensor::FromValues<int64_t>({2, 1}, {0, kRows})}}, {rows});
  EXPECT_EQ(beyond.status().code(), Code::kInvalidArgument) << beyond.status();
}

TEST_F(SparseTrainingTest, LookupsThatCannotWorkAreRefused) {
  const auto fails = [](auto build, const char* text) {
    Graph graph = NewGraph();
    const Scope scope(&graph);
    Collections collections;
    build(VariableScope(scope, &collections));
    EXPECT_EQ(scope.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(scope.status().message()), HasSubstr(text));
  };
  const auto lookup = [](const VariableScope& v, std::vector<ModelVariable> params) {
    EmbeddingLookup(v.scope(), params, Const(v.scope(), {0}));
  };
  fails([&](VariableScope v) { lookup(v, {}); }, "need at least one param");
  fails([&](VariableScope v) { lookup(v, v.Get("s", {}).parts); }, "'s' has no rows");
  fails(
      [&](VariableScope v) {
        lookup(v, {v.Get("a", {2, 3}).parts[0], v.Get("b", {2, 4}).parts[0]});
      },
      "its rows do not fit those of 'a'");
  fails(
      [&](VariableScope v) {
        lookup(v, {v.Get("a", {1, 3}).parts[0], v.Get("b", {3, 3}).parts[0]});
      },
      "variable 'a' has 1 rows; of 4 rows in 2 parts it must have 2");
  fails(
      [&](VariableScope v) {
        EmbeddingLookup(v.scope(), v.Get("a", {2, 4}, {.partitioner = FixedSizePartitioner(2, 1)}),
                        Const(v.scope(), {0}));
      },
      "cut along dimension 1");
}

// ---- training

struct Rule {
  const char* name;
  Optimizer (*make)();
};
class RuleTest : public SparseTrainingTest, public ::testing::WithParamInterface<Rule> {};

INSTANTIATE_TEST_SUITE_P(All, RuleTest,
                         ::testing::Values(Rule{"GradientDescent",
                                                [] { return GradientDescent(0.2); }},
                                           Rule{"Adagrad", [] { return Adagrad(0.3); }},
                                           Rule{"Adam", [] { return Adam(0.05); }}),
                         [](const auto& test) { return std::string(test.param.name); });

// Optimizers that leave rows without a gradient as they are, or move all rows.
TEST_P(RuleTest, TrainingByRowsInPartsIsTrainingTheWholeTable) {
  const ScopedVariable parts = MakeTable("parts", FixedSizePartitioner(3)),
                       whole = MakeTable("whole");
  const Output ids = Placeholder(root_, DT_INT32, {4});
  const Output target = Const(root_, 0.3f);
  const auto loss = [&](const Output& rows) {
    return ReduceMean(root_, SquaredDifference(root_, rows, target));
  };
  const auto by_rows = GetParam().make().Minimize(
      root_, loss(EmbeddingLookup(root_, parts, ids, PartitionStrategy::kDiv)), parts.parts,
      &initializers_);
  ASSERT_TRUE(by_rows.ok()) << by_rows.status();
  // The other one never sees rows: its gradient is made whole.
  const Output wholly = loss(Gather(root_, whole.value, ids));
  const auto gradient = AddGradients(root_, Outputs{wholly}, Outputs{whole.value});
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  const Operation by_table = GetParam().make().ApplyGradients(
      root_, std::vector<GradientAndVariable>{{(*gradient)[0], {}, whole.parts[0]}},
      &initializers_);
  Start();
  for (int step = 0; step < 6; ++step) {
    const Tensor batch = Tensor::Vector<int32_t>({step, 7 - step, step, 0});
    Run({}, {*by_rows, by_table}, {{ids, batch}});
  }
  const std::vector<Tensor> values = Run({parts.value, whole.value});
  ExpectNear(values[0], values[1], 1e-6f);
  EXPECT_FALSE(BitEqual(values[0], Table()));
}

// ---- Replicate

// A table trained by two replicas, cut into parts of two rows, for six steps.
struct ReplicatedTable {
  Tensor table;
  float evaluation = 0;
  std::vector<std::string> variables;
};
ReplicatedTable TrainReplicated(const Optimizer& optimizer, VariableUpdate update, bool lookup) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  const std::vector<std::string> devices = {"/device:CPU:0", "/device:CPU:1"};
  const Output ids = Placeholder(root, DT_INT32, {6});
  const ModelFn model = [&](Scope& tower, std::span<const Output> batch,
                            ModelVariables& variables) -> Result<Outputs> {
    const Initial initial = Initial::Value(Table());
    const Output rows =
        lookup ? variables.Lookup("table", {kRows, kColumns}, initial, batch[0])
               : Gather(tower, variables.Get("table", {kRows, kColumns}, initial), batch[0]);
    return Outputs{ReduceMean(tower, SquaredDifference(tower, rows, Const(tower, 0.3f)))};
  };
  ReplicateOptions options{.variable_update = update};
  if (update == VariableUpdate::kParameterServer) {
    options.variable_devices = devices;
    options.max_variable_bytes = 3 * kColumns * static_cast<int64_t>(sizeof(float));
  }
  const auto step = Replicate(root, devices, {ids}, model, optimizer, options);
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  Outputs values;
  ReplicatedTable result;
  for (const ModelVariable& variable : step->variables) {
    values.push_back(variable.value);
    result.variables.push_back(variable.name);
  }
  const Output whole = values.size() == 1 ? values[0] : Concat(root, values, 0);
  const auto evaluation = BuildEvaluation(root, devices[1], {Const(root, {0, 7, 4})}, model, *step);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  auto session = Session::Local(graph, {.device_count = {{kCpu, 2}}}).value();
  EXPECT_TRUE(session->Run({}, {}, {step->init}).ok());
  for (int i = 0; i < 6; ++i) {
    const Tensor batch = Tensor::Vector<int32_t>({i, 7 - i, i, 0, 0, 0});
    const auto ran = session->Run({{ids, batch}}, {}, {step->train});
    EXPECT_TRUE(ran.ok()) << ran.status();
  }
  const auto got = session->Run({}, {whole, (*evaluation)[0]});
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return result;
  result.table = (*got)[0];
  result.evaluation = (*got)[1].scalar<float>();
  return result;
}

TEST_P(RuleTest, ReplicasThatLookUpRowsTrainTheTableAsReplicasThatReadItAll) {
  const ReplicatedTable whole =
      TrainReplicated(GetParam().make(), VariableUpdate::kReplicated, false);
  ASSERT_TRUE(whole.table.valid());
  EXPECT_FALSE(BitEqual(whole.table, Table()));
  for (bool lookup : {true, false}) {
    const ReplicatedTable rows =
        TrainReplicated(GetParam().make(), VariableUpdate::kParameterServer, lookup);
    EXPECT_THAT(rows.variables, ElementsAre("table/part_0", "table/part_1", "table/part_2"));
    EXPECT_TRUE(BitEqual(rows.table, whole.table)) << "lookup: " << lookup;
    EXPECT_EQ(rows.evaluation, whole.evaluation);
  }
  const ReplicatedTable mirrored =
      TrainReplicated(GetParam().make(), VariableUpdate::kReplicated, true);
  EXPECT_TRUE(BitEqual(mirrored.table, whole.table));
}

TEST_F(SparseTrainingTest, AVariableThatIsReadAndLookedUpHasOneGradient) {
  const Output ids = Placeholder(root_, DT_INT32, {4});
  const ModelFn model = [&](Scope& tower, std::span<const Output> batch,
                            ModelVariables& variables) -> Result<Outputs> {
    const Initial initial = Initial::Value(Table());
    const Output rows = variables.Lookup("table", {kRows, kColumns}, initial, batch[0]);
    const Output whole = variables.Get("table", {kRows, kColumns}, initial);
    return Outputs{Add(tower, ReduceMean(tower, rows), ReduceSum(tower, whole))};
  };
  const auto step = Replicate(root_, {"/device:CPU:0"}, {ids}, model, GradientDescent(1));
  ASSERT_TRUE(step.ok()) << step.status();
  initializers_.push_back(step->init);
  Start();
  Run({}, {step->train}, {{ids, Tensor::Vector<int32_t>({5, 5, 5, 5})}});
  const Tensor table = Run({step->variables[0].value})[0];
  EXPECT_FLOAT_EQ(table.data<float>()[0], Table().data<float>()[0] - 1);
  EXPECT_FLOAT_EQ(table.data<float>()[5 * kColumns],
                  Table().data<float>()[5 * kColumns] - 1 - 1.0f / kColumns);
}

TEST_F(SparseTrainingTest, ReplicasAtTheirOwnPaceUpdateTheirRows) {
  const std::vector<std::string> devices = {"/device:CPU:0", "/device:CPU:0"};
  std::vector<Outputs> shards;
  for (int i = 0; i < 2; ++i) shards.push_back({Placeholder(root_, DT_INT32, {2})});
  const ModelFn model = [&](Scope& tower, std::span<const Output> batch,
                            ModelVariables& variables) -> Result<Outputs> {
    return Outputs{ReduceSum(
        tower, variables.Lookup("table", {kRows, kColumns}, Initial::Value(Table()), batch[0]))};
  };
  const auto step =
      ReplicateShards(root_, devices, shards, model, GradientDescent(1), {.async = true});
  ASSERT_TRUE(step.ok()) << step.status();
  initializers_.push_back(step->init);
  Start();
  Run({}, {step->towers[1].train}, {{shards[1][0], Tensor::Vector<int32_t>({6, 2})}});
  const Tensor table = Run({step->variables[0].value})[0], before = Table();
  for (int64_t row = 0; row < kRows; ++row) {
    const float change = row == 6 || row == 2 ? -1 : 0;
    EXPECT_FLOAT_EQ(table.data<float>()[row * kColumns],
                    before.data<float>()[row * kColumns] + change);
  }
}

TEST_F(SparseTrainingTest, AModelBuiltByHandGetsItsVariablesFromAScope) {
  ScopedModelVariables model(variables_.Open("model", {.partitioner = FixedSizePartitioner(2)}));
  const Output whole = model.Get("table", {kRows, kColumns}, Initial::Value(Table()));
  const Output rows =
      model.Lookup("table", {kRows, kColumns}, Initial::Value(Table()), Const(root_, {5, 0}));
  const Output again = model.Get("table", {kRows, kColumns}, Initial::Zeros());
  EXPECT_EQ(again, whole);
  EXPECT_THAT(GlobalVariables(collections_).at(1).name, "model/table/part_1");
  Start();
  const std::vector<Tensor> values = Run({whole, rows});
  EXPECT_TRUE(BitEqual(values[0], Table()));
  EXPECT_EQ(values[1].data<float>()[0], Table().data<float>()[5 * kColumns]);
}

}  // namespace
}  // namespace monograph
