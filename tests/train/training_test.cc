// Optimizers, learning rates, clipping and moving averages, against TensorFlow's numbers
// (tests/golden/training.json) and TensorFlow's names.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/registries.h"
#include "client/session.h"
#include "graph/gradients.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "train/clip.h"
#include "train/moving_average.h"
#include "train/optimizer.h"
#include "train/sync_replicas.h"
#include "train/tower_gradients.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

const Json& Golden() {
  static const Json* const golden = [] {
    std::ifstream file(MG_GOLDEN_TRAINING);
    return new Json(Json::parse(file));
  }();
  return *golden;
}

float Number(const Json& number) {
  if (!number.is_string()) return number.get<float>();
  return number == "nan" ? std::numeric_limits<float>::quiet_NaN()
                         : std::numeric_limits<float>::infinity();
}

Tensor Floats(const Json& numbers, const Shape& shape) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, shape).value();
  EXPECT_EQ(tensor.elements(), static_cast<int64_t>(numbers.size()));
  for (size_t i = 0; i < numbers.size(); ++i) tensor.data<float>()[i] = Number(numbers[i]);
  return tensor;
}
Tensor Floats(const Json& numbers) {
  return Floats(numbers, {static_cast<int64_t>(numbers.size())});
}

double At(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DT_INT64 ? static_cast<double>(tensor.data<int64_t>()[i])
                                    : static_cast<double>(tensor.data<float>()[i]);
}

void ExpectClose(const Tensor& got, const Json& expected, const std::string& what,
                 double rtol = 2e-5) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(expected.size())) << what;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double want = static_cast<double>(Number(expected[static_cast<size_t>(i)]));
    if (!std::isfinite(want)) {
      EXPECT_TRUE(std::isnan(want) ? std::isnan(At(got, i)) : At(got, i) == want)
          << what << ", element " << i;
    } else {
      EXPECT_NEAR(At(got, i), want, 1e-7 + rtol * std::fabs(want)) << what << ", element " << i;
    }
  }
}

void ExpectSays(const Status& status, Code code, std::initializer_list<const char*> parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const char* part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no '" << part << "' in " << status;
  }
}

class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest() : graph_(NewGraph()), root_(&graph_) {}

  ModelVariable Variable(const std::string& name, Tensor initial) {
    ModelVariable made = MakeVariable(root_, name, Const(root_, std::move(initial)));
    init_.push_back(made.initializer);
    return made;
  }
  // Opens a session over what was built and runs the initializers.
  void Start(SessionOptions options = {}) {
    const Operation init = Group(root_, init_);
    ASSERT_TRUE(root_.ok()) << root_.status();
    auto made = Session::Local(graph_, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status();
    session_ = std::move(made).value();
    Run({}, {}, {init});
  }
  std::vector<Tensor> Run(const std::vector<Feed>& feeds, const Outputs& fetches,
                          const std::vector<Operation>& targets = {}) {
    auto values = session_->Run(feeds, fetches, targets);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<Tensor>(fetches.size());
  }
  Tensor Value(const Output& output) { return Run({}, {output})[0]; }

  Graph graph_;
  Scope root_;
  std::vector<Operation> init_;
  std::unique_ptr<Session> session_;
};

// ---- optimizers

struct RuleCase {
  const char* name;
  Optimizer (*make)();
  bool sparse;
};

std::ostream& operator<<(std::ostream& out, const RuleCase& c) {
  return out << c.name << (c.sparse ? "Sparse" : "Dense");
}

std::vector<RuleCase> Cases() {
  std::vector<RuleCase> cases;
  for (bool sparse : {false, true}) {
    cases.insert(cases.end(),
                 {{"GradientDescent", [] { return GradientDescent(0.1); }, sparse},
                  {"Momentum", [] { return Momentum(0.1, 0.9); }, sparse},
                  {"Nesterov", [] { return Momentum(0.1, 0.9, true); }, sparse},
                  {"Adagrad", [] { return Adagrad(0.1); }, sparse},
                  {"AdagradFromOne", [] { return Adagrad(0.1, 1.0); }, sparse},
                  {"RMSProp", [] { return RMSProp(0.01); }, sparse},
                  {"RMSPropMomentum", [] { return RMSProp(0.01, 0.8, 0.5, 1e-3); }, sparse},
                  {"RMSPropCentered", [] { return RMSProp(0.01, 0.9, 0.5, 1e-2, true); }, sparse},
                  {"Adam", [] { return Adam(); }, sparse},
                  {"AdamOther", [] { return Adam(0.05, 0.8, 0.99, 1e-4); }, sparse}});
  }
  return cases;
}

class OptimizerTest : public TrainingTest, public ::testing::WithParamInterface<RuleCase> {};

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, ::testing::ValuesIn(Cases()),
                         ::testing::PrintToStringParamName());

TEST_P(OptimizerTest, GivesTensorFlowsVariablesAndSlotsUnderTensorFlowsNames) {
  const Json& golden = Golden()["optimizers"];
  const bool sparse = GetParam().sparse;
  const Shape rows{sparse ? 3 : 4, 3};
  const ModelVariable w = Variable("w", Floats(golden["w"], {4, 3}));
  const ModelVariable b = Variable("b", Floats(golden["b"]));
  const ModelVariable step = MakeGlobalStep(root_);
  init_.push_back(step.initializer);
  const Output dw = Placeholder(root_, DT_FLOAT, rows), db = Placeholder(root_, DT_FLOAT, {3});
  const Output indices = sparse ? Const(root_, {2, 0, 2}) : Output();
  // The scope of the call gives no prefix to slots.
  const Operation train = GetParam().make().ApplyGradients(
      root_.SubScope("train"), std::vector<GradientAndVariable>{{dw, indices, w}, {db, {}, b}},
      &init_, {.global_step = &step, .name = "train_op"});
  EXPECT_EQ(train.name(), "train/train_op");
  Start();
  for (size_t i = 0; i < golden["db"].size(); ++i) {
    const Json& gradient = golden[sparse ? "dw_rows" : "dw"][i];
    Run({{dw, Floats(gradient, rows)}, {db, Floats(golden["db"][i])}}, {}, {train});
  }
  for (const auto& [name, expected] :
       golden[GetParam().name][sparse ? "sparse" : "dense"].items()) {
    // The powers are in the scope of the call, as in TensorFlow.
    const std::string ours = name.ends_with("_power") ? "train/" + name : name;
    const NodeId node = graph_.Find(ours + "/Read");
    ASSERT_GE(node, 0) << "no variable " << ours;
    ExpectClose(Value({&graph_, {node, 0}}), expected, name);
  }
}

TEST_F(TrainingTest, SlotsAreFoundByTheirNames) {
  const ModelVariable w = Variable("w", Tensor::Vector<float>({1, 2}));
  const ModelVariable other = Variable("other", Tensor::Vector<float>({1, 2}));
  const Optimizer optimizer = RMSProp(0.1, 0.9, 0, 1e-10, true);
  EXPECT_EQ(optimizer.slot(w, "rms"), nullptr);
  const std::vector<GradientAndVariable> pairs = {{Const(root_, {1.0f, 1.0f}), {}, w}};
  optimizer.ApplyGradients(root_, pairs, &init_);
  EXPECT_EQ(optimizer.slot_names(), (std::vector<std::string>{"rms", "mg", "momentum"}));
  ASSERT_NE(optimizer.slot(w, "mg"), nullptr);
  EXPECT_EQ(optimizer.slot(w, "mg")->name, "w/RMSProp_1");
  EXPECT_EQ(optimizer.slot(w, "v"), nullptr);
  EXPECT_EQ(optimizer.slot(other, "rms"), nullptr);
  // A second update of the same variable, by another tower say, uses the same slots.
  const size_t initializers = init_.size();
  optimizer.ApplyGradients(root_, pairs, &init_);
  EXPECT_EQ(init_.size(), initializers);
  // The same optimizer in another graph starts anew.
  Graph second = NewGraph();
  const Scope scope(&second);
  const ModelVariable same_name = MakeVariable(scope, "w", Const(scope, {1.0f, 2.0f}));
  EXPECT_EQ(optimizer.slot(same_name, "rms"), nullptr);
}

TEST_F(TrainingTest, VariablesWithoutAGradientAreLeftAlone) {
  const ModelVariable used = Variable("used", Tensor::Vector<float>({1, 2}));
  const ModelVariable unused = Variable("unused", Tensor::Vector<float>({5, 6}));
  const Output loss = ReduceSum(root_, Square(root_, used.value));
  const Result<Operation> train =
      GradientDescent(0.25).Minimize(root_, loss, std::vector<ModelVariable>{used, unused}, &init_);
  ASSERT_TRUE(train.ok()) << train.status();
  Start();
  Run({}, {}, {*train});
  ExpectClose(Value(used.value), {0.5, 1}, "used");
  ExpectClose(Value(unused.value), {5, 6}, "unused");
}

TEST_F(TrainingTest, GatheringRowsGivesARowGradientAndTouchesThoseRowsOnly) {
  const ModelVariable table = Variable("table", Floats({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Output rows = ResourceGather(root_, table.handle, Const(root_, {2, 0, 2}), DT_FLOAT);
  const auto pairs = ComputeGradients(root_, ReduceSum(root_, rows), std::vector{table});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  ASSERT_TRUE((*pairs)[0].sparse());
  const Operation train = GradientDescent(1).ApplyGradients(root_, *pairs, &init_);
  Start();
  Run({}, {}, {train});
  ExpectClose(Value(table.value), {0, 1, 3, 4, 3, 4}, "table");
}

TEST_F(TrainingTest, NoGradientAtAllIsAnErrorThatNamesTheVariables) {
  const ModelVariable w = Variable("w", Tensor::Scalar(1.0f));
  Adam().ApplyGradients(root_, std::vector<GradientAndVariable>{{{}, {}, w}}, &init_);
  ExpectSays(root_.status(), Code::kInvalidArgument,
             {"No gradients provided for any variable: 'w'"});
}

TEST_F(TrainingTest, AnAccumulatorThatStartsAtZeroIsRefused) {
  const ModelVariable w = Variable("w", Tensor::Vector<float>({1, 2}));
  const Output none = Const(root_, {0.0f, 0.0f});
  Adagrad(0.1, 0).ApplyGradients(root_, std::vector<GradientAndVariable>{{none, {}, w}}, &init_);
  ExpectSays(root_.status(), Code::kInvalidArgument,
             {"initial_accumulator_value must be positive: 0"});
}

TEST_F(TrainingTest, AGradientOfAnotherTypeIsRefusedWithBothTypes) {
  const ModelVariable w = Variable("w", Tensor::Scalar(1.0f));
  Adam().ApplyGradients(root_, std::vector<GradientAndVariable>{{Const(root_, 1.0), {}, w}},
                        &init_);
  ExpectSays(root_.status(), Code::kInvalidArgument, {"'w'", "double", "float"});
}

TEST_F(TrainingTest, VariablesOfTwoTypesAreUpdatedTogether) {
  const ModelVariable single = Variable("single", Tensor::Scalar(1.0f));
  const ModelVariable wide = Variable("wide", Tensor::Scalar(1.0));
  const Output rate = Placeholder(root_, DT_FLOAT, PartialShape(Shape()));
  const Operation train =
      Adam(rate).ApplyGradients(root_,
                                std::vector<GradientAndVariable>{{Const(root_, 2.0f), {}, single},
                                                                 {Const(root_, 2.0), {}, wide}},
                                &init_);
  Start();
  for (int i = 0; i < 3; ++i) Run({{rate, Tensor::Scalar(0.1f)}}, {}, {train});
  const std::vector<Tensor> values = Run({}, {single.value, wide.value});
  EXPECT_NEAR(values[0].scalar<float>(), 0.7, 1e-5);
  EXPECT_NEAR(values[1].scalar<double>(), 0.7, 1e-5);
}

// ---- learning rates

TEST_F(TrainingTest, SchedulesGiveTensorFlowsRates) {
  const std::vector<std::pair<const char*, Schedule>> schedules = {
      {"ExponentialDecay", ExponentialDecay(0.1, 10, 0.9)},
      {"ExponentialDecayStaircase", ExponentialDecay(0.1, 10, 0.9, true)},
      {"NaturalExpDecay", NaturalExpDecay(0.1, 10, 0.9)},
      {"NaturalExpDecayStaircase", NaturalExpDecay(0.1, 10, 0.9, true)},
      {"InverseTimeDecay", InverseTimeDecay(0.1, 10, 0.9)},
      {"InverseTimeDecayStaircase", InverseTimeDecay(0.1, 10, 0.9, true)},
      {"PiecewiseConstant", PiecewiseConstant({5, 10, 20}, {1.0, 0.5, 0.25, 0.1})},
      {"PolynomialDecay", PolynomialDecay(0.1, 20)},
      {"PolynomialDecayPower", PolynomialDecay(0.1, 20, 0.01, 0.5)},
      {"PolynomialDecayCycle", PolynomialDecay(0.1, 7, 0.01, 2, true)},
      {"CosineDecay", CosineDecay(0.1, 20)},
      {"CosineDecayAlpha", CosineDecay(0.1, 20, 0.3)},
      {"CosineDecayRestarts", CosineDecayRestarts(0.1, 6)},
      {"CosineDecayRestartsEqual", CosineDecayRestarts(0.1, 6, 1, 0.9, 0.1)},
  };
  const Json& golden = Golden()["schedules"];
  EXPECT_EQ(schedules.size() + 1, golden.size());
  const Output step = Placeholder(root_, DT_INT64, PartialShape(Shape()));
  Outputs rates;
  for (const auto& [name, schedule] : schedules) rates.push_back(schedule(root_, step));
  Start();
  for (size_t i = 0; i < golden["steps"].size(); ++i) {
    const auto number = golden["steps"][i].get<int64_t>();
    const std::vector<Tensor> got = Run({{step, Tensor::Scalar(number)}}, rates);
    for (size_t k = 0; k < schedules.size(); ++k) {
      const char* name = schedules[k].first;
      // What is left of a difference of nearly equal numbers is rounded more coarsely.
      EXPECT_NEAR(got[k].scalar<float>(), Number(golden[name][i]), 1e-7 + 2e-5 * 0.1)
          << name << " at step " << number;
    }
  }
}

TEST_F(TrainingTest, AScheduleFollowsTheGlobalStepThatTheUpdateCounts) {
  const ModelVariable w = Variable("w", Tensor::Scalar(10.0f));
  const ModelVariable step = MakeGlobalStep(root_);
  init_.push_back(step.initializer);
  const Operation train =
      GradientDescent(PiecewiseConstant({0, 2}, {1, 0.5, 0.25}))
          .ApplyGradients(root_, std::vector<GradientAndVariable>{{Const(root_, 1.0f), {}, w}},
                          &init_, {.global_step = &step});
  Start();
  const float expected[] = {9, 8.5, 8, 7.75};
  for (int i = 0; i < 4; ++i) {
    Run({}, {}, {train});
    EXPECT_EQ(Value(w.value).scalar<float>(), expected[i]);
    EXPECT_EQ(Value(step.value).scalar<int64_t>(), i + 1);
  }
}

TEST_F(TrainingTest, TheCallerMayCountByItself) {
  const ModelVariable w = Variable("w", Tensor::Scalar(10.0f));
  const ModelVariable step = MakeGlobalStep(root_);
  init_.push_back(step.initializer);
  const Operation train =
      GradientDescent(PiecewiseConstant({0}, {1, 0.5}))
          .ApplyGradients(root_, std::vector<GradientAndVariable>{{Const(root_, 1.0f), {}, w}},
                          &init_, {.global_step = &step, .count = false});
  const Operation count = AssignAddVariable(root_, step.handle, Const(root_, int64_t{5}));
  Start();
  Run({}, {}, {train});
  EXPECT_EQ(Value(step.value).scalar<int64_t>(), 0);
  Run({}, {}, {count});
  Run({}, {}, {train});
  EXPECT_EQ(Value(w.value).scalar<float>(), 8.5f);
}

TEST_F(TrainingTest, AScheduleWithoutAGlobalStepSaysWhatToDo) {
  const ModelVariable w = Variable("w", Tensor::Scalar(10.0f));
  GradientDescent(ExponentialDecay(0.1, 10, 0.9))
      .ApplyGradients(root_, std::vector<GradientAndVariable>{{Const(root_, 1.0f), {}, w}}, &init_);
  ExpectSays(root_.status(), Code::kInvalidArgument, {"schedule", "global_step"});
}

TEST_F(TrainingTest, ParametersOfSchedulesAreChecked) {
  const Output step = Const(root_, int64_t{3});
  const auto status = [&](const Schedule& schedule) {
    const Scope scope(&graph_);
    schedule(scope, step);
    return scope.status();
  };
  ExpectSays(status(ExponentialDecay(0.1, 0, 0.9)), Code::kInvalidArgument,
             {"ExponentialDecay", "decay_steps"});
  ExpectSays(status(PiecewiseConstant({1, 2}, {1, 2})), Code::kInvalidArgument,
             {"PiecewiseConstant", "3 values, got 2"});
  ExpectSays(status(PiecewiseConstant({2, 2}, {1, 2, 3})), Code::kInvalidArgument,
             {"must increase"});
  ExpectSays(status(CosineDecayRestarts(0.1, 6, 0.5)), Code::kInvalidArgument, {"t_mul"});
}

// ---- clipping

TEST_F(TrainingTest, ClippingGivesTensorFlowsNumbers) {
  const Json& golden = Golden()["clipping"];
  const Output a = Const(root_, Floats(golden["a"], {3, 4})), b = Const(root_, Floats(golden["b"]));
  const Output infinite = Const(root_, Floats(golden["infinite"]));
  const Output zero = Zeros(root_, {2, 2});
  struct Expected {
    Output output;
    Json value;
    const char* what;
  };
  std::vector<Expected> all = {
      {ClipByValue(root_, b, -0.5, 1.5), golden["by_value"], "by_value"},
      {ClipByNorm(root_, a, 0.7), golden["by_norm"], "by_norm"},
      {ClipByNorm(root_, a, 100), golden["by_norm_short"], "by_norm_short"},
      {ClipByNorm(root_, zero, 1), golden["by_norm_zero"], "by_norm_zero"},
      {ClipByNorm(root_, a, 0.7, std::vector<int64_t>{1}), golden["by_norm_axis"], "by_norm_axis"},
      {GlobalNorm(root_, Outputs{a, b}), {golden["global_norm"]}, "global_norm"},
  };
  const auto add = [&](const Outputs& tensors, double norm, const char* what) {
    const ClippedByGlobalNorm clipped = ClipByGlobalNorm(root_, tensors, norm);
    all.push_back({clipped.norm, {golden[what]["norm"]}, what});
    for (size_t i = 0; i < tensors.size(); ++i) {
      all.push_back({clipped.tensors.at(i), golden[what]["clipped"][i], what});
    }
  };
  add({a, b}, 2, "by_global_norm");
  add({a, b}, 100, "by_global_norm_short");
  add({zero}, 1, "by_global_norm_zero");
  add({infinite, b}, 1, "by_global_norm_infinite");
  Start();
  for (const Expected& e : all) ExpectClose(Value(e.output), e.value, e.what);
}

TEST_F(TrainingTest, GradientsAreClippedBetweenComputingAndApplying) {
  const ModelVariable w = Variable("w", Tensor::Vector<float>({3, 4}));
  const ModelVariable unused = Variable("unused", Tensor::Scalar(1.0f));
  const Output loss = ReduceSum(root_, Square(root_, w.value));
  const auto pairs = ComputeGradients(root_, loss, std::vector<ModelVariable>{w, unused});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const ClippedGradients clipped = ClipByGlobalNorm(root_, *pairs, 1);
  EXPECT_FALSE(clipped.pairs[1].gradient.valid());
  const Operation train = GradientDescent(1).ApplyGradients(root_, clipped.pairs, &init_);
  Start();
  EXPECT_NEAR(Value(clipped.norm).scalar<float>(), 10, 1e-5);
  Run({}, {}, {train});
  ExpectClose(Value(w.value), {3 - 0.6, 4 - 0.8}, "w");
}

TEST_F(TrainingTest, ASparseGradientIsClippedRowByRow) {
  const ModelVariable w = Variable("w", Floats({1, 1, 1, 1, 1, 1}, {3, 2}));
  const std::vector<GradientAndVariable> pairs = {
      {Const(root_, Shape{2, 2}, {3.0f, 0.0f, 0.0f, 4.0f}), Const(root_, {2, 2}), w}};
  const ClippedGradients clipped = ClipByGlobalNorm(root_, pairs, 1);
  ASSERT_TRUE(clipped.pairs[0].sparse());
  const Operation train = GradientDescent(1).ApplyGradients(root_, clipped.pairs, &init_);
  Start();
  EXPECT_NEAR(Value(clipped.norm).scalar<float>(), 5, 1e-5);
  Run({}, {}, {train});
  ExpectClose(Value(w.value), {1, 1, 1, 1, 1 - 0.6, 1 - 0.8}, "w");
}

TEST_F(TrainingTest, LimitsOfClippingAreChecked) {
  const Output t = Const(root_, {1.0f, 2.0f});
  const auto status = [&](auto build) {
    const Scope scope(&graph_);
    build(scope);
    return scope.status();
  };
  ExpectSays(status([&](const Scope& s) { ClipByNorm(s, t, 0); }), Code::kInvalidArgument,
             {"clip_norm must be positive"});
  ExpectSays(status([&](const Scope& s) { ClipByValue(s, t, 2, 1); }), Code::kInvalidArgument,
             {"no range"});
  ExpectSays(status([&](const Scope& s) { GlobalNorm(s, Outputs{Output()}); }),
             Code::kInvalidArgument, {"no tensors"});
}

TEST_F(TrainingTest, RegularizersAddUpTheirPenalties) {
  const std::vector<ModelVariable> weights = {Variable("a", Tensor::Vector<float>({3, -4})),
                                              Variable("b", Tensor::Scalar(2.0f))};
  const Output l2 = ApplyRegularization(root_, L2Regularizer(0.5), weights);
  const Output l1 = ApplyRegularization(root_, L1Regularizer(0.5), weights);
  Start();
  EXPECT_FLOAT_EQ(Value(l2).scalar<float>(), 0.5f * (25 + 4) / 2);
  EXPECT_FLOAT_EQ(Value(l1).scalar<float>(), 0.5f * 9);
}

// ---- moving averages

class MovingAverageTest : public TrainingTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, MovingAverageTest,
                         ::testing::Values("plain", "num_updates", "zero_debias"),
                         [](const auto& test) { return test.param; });

TEST_P(MovingAverageTest, GivesTensorFlowsAverages) {
  const std::string& kind = GetParam();
  const Json& golden = Golden()["moving_averages"];
  const ModelVariable v = Variable("v", Floats(golden["start"]));
  const ModelVariable count = Variable("count", Tensor::Scalar(int64_t{0}));
  const Output fed = Placeholder(root_, DT_FLOAT, {3});
  const Output tensor = Mul(root_.WithOpName("tensor"), fed, Const(root_, 2.0f));
  const Scope after = root_.WithControlDependencies(
      {AssignVariable(root_, v.handle, fed),
       AssignAddVariable(root_, count.handle, Const(root_, int64_t{1}))});
  MovingAverageOptions options{.zero_debias = kind == "zero_debias"};
  if (kind == "num_updates") options.num_updates = count.value;  // read anew, behind the update
  ExponentialMovingAverage averages(0.9, options);
  const auto of_variable = averages.Apply(after, std::vector<ModelVariable>{v}, &init_);
  const auto of_tensor = averages.Apply(after, tensor, &init_);
  ASSERT_TRUE(of_variable.ok() && of_tensor.ok()) << of_variable.status() << of_tensor.status();
  EXPECT_EQ(averages.AverageName(v), golden[kind + "_names"][0].get<std::string>());
  EXPECT_EQ(averages.Average(v)->name, golden[kind + "_names"][0].get<std::string>());
  EXPECT_EQ(averages.Average(tensor)->name, golden[kind + "_names"][1].get<std::string>());
  Start();
  ExpectClose(Value(averages.Average(v)->value), golden["start"], "the start");
  for (size_t i = 0; i < golden["values"].size(); ++i) {
    Run({{fed, Floats(golden["values"][i])}}, {}, {*of_variable, *of_tensor});
    const std::vector<Tensor> got =
        Run({}, {averages.Average(v)->value, averages.Average(tensor)->value});
    ExpectClose(got[0], golden[kind][i][0], "the variable's at step " + std::to_string(i));
    ExpectClose(got[1], golden[kind][i][1], "the tensor's at step " + std::to_string(i));
  }
}

TEST_F(TrainingTest, AveragedVariablesKeepTheirNamesForEvaluation) {
  const ModelVariable v = Variable("v", Tensor::Scalar(1.0f));
  ExponentialMovingAverage averages(0.5);
  EXPECT_EQ(averages.Average(v), nullptr);
  const std::vector<ModelVariable> variables = {v};
  ExpectSays(averages.Averaged(variables).status(), Code::kInvalidArgument, {"'v'", "Apply"});
  const Operation update = AssignVariable(root_, v.handle, Const(root_, 3.0f));
  const auto averaged = averages.Apply(root_.WithControlDependencies({update}), variables, &init_);
  ASSERT_TRUE(averaged.ok()) << averaged.status();
  const Result<std::vector<ModelVariable>> shadows = averages.Averaged(variables);
  ASSERT_TRUE(shadows.ok()) << shadows.status();
  EXPECT_EQ((*shadows)[0].name, "v");
  Start();
  Run({}, {}, {*averaged});
  EXPECT_EQ(Value((*shadows)[0].value).scalar<float>(), 2);
}

TEST_F(TrainingTest, AnUpdateOfSyncReplicasMovesTheAveragesToo) {
  const ModelVariable w = MakeVariable(root_, "w", Const(root_, 1.0f));
  const ModelVariable global_step = MakeGlobalStep(root_);
  auto step =
      SyncReplicas(GradientDescent(1), {.replicas_to_aggregate = 1})
          .ApplyGradients(root_, std::vector<GradientAndVariable>{{Const(root_, -1.0f), {}, w}},
                          global_step);
  ASSERT_TRUE(step.ok()) << step.status();
  ExponentialMovingAverage averages(0.5);
  const auto averaged = averages.Apply(root_.WithControlDependencies({step->update}),
                                       std::vector<ModelVariable>{w}, &init_);
  ASSERT_TRUE(averaged.ok()) << averaged.status();
  step->update = *averaged;
  init_.push_back(step->init);
  Start();
  Run({}, {}, {step->local_init});
  auto runner = SyncReplicasRunner::Start(session_.get(), *step);
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (int i = 0; i < 3; ++i) Run({}, {}, {step->train});
  EXPECT_EQ(Value(w.value).scalar<float>(), 4);
  // Workers go on before the averages have moved.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  float average = 0;
  while (average != 3.125f && std::chrono::steady_clock::now() < deadline)
    average = Value(averages.Average(w)->value).scalar<float>();
  EXPECT_EQ(average, 3.125f);
  EXPECT_TRUE((*runner)->Close().ok());
}

// ---- gradients of towers

TEST_F(TrainingTest, GradientsOfTowersAreAveraged) {
  const ModelVariable w = Variable("w", Tensor::Vector<float>({0, 0}));
  const ModelVariable table = Variable("table", Floats({0, 0, 0}, {3, 1}));
  const ModelVariable rare = Variable("rare", Tensor::Scalar(0.0f));
  std::vector<std::vector<GradientAndVariable>> towers;
  for (int i = 0; i < 3; ++i) {
    const float g = static_cast<float>(i);
    towers.push_back({{Const(root_, {g, 2 * g}), {}, w},
                      {Const(root_, Shape{1, 1}, {g + 1}), Const(root_, {i == 2 ? 0 : 2}), table},
                      {i == 1 ? Const(root_, 6.0f) : Output(), {}, rare}});
  }
  const auto means = AverageGradients(root_, towers);
  ASSERT_TRUE(means.ok()) << means.status();
  ASSERT_TRUE((*means)[1].sparse());
  const Operation train = GradientDescent(1).ApplyGradients(root_, *means, &init_);
  Start();
  Run({}, {}, {train});
  ExpectClose(Value(w.value), {-1, -2}, "w");
  ExpectClose(Value(table.value), {-1, 0, -1}, "table");
  ExpectClose(Value(rare.value), {-2}, "rare");
}

TEST_F(TrainingTest, TowersMustShareTheirVariables) {
  const ModelVariable a = Variable("a", Tensor::Scalar(0.0f));
  const ModelVariable b = Variable("b", Tensor::Scalar(0.0f));
  const Output g = Const(root_, 1.0f);
  ExpectSays(AverageGradients(root_, {{{g, {}, a}}, {{g, {}, b}}}).status(), Code::kInvalidArgument,
             {"tower 1", "'b'", "'a'"});
  ExpectSays(AverageGradients(root_, {{{g, {}, a}}, {}}).status(), Code::kInvalidArgument,
             {"tower 1 has 0 gradients, tower 0 has 1"});
  ExpectSays(AverageGradients(root_, {}).status(), Code::kInvalidArgument, {"no towers"});
}

TEST(SigmoidCrossEntropy, IsExactFarFromZeroAndItsGradientAtZeroIsHalfMinusTheLabel) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Const(root, {-200.0f, -20.0f, 0.0f, 0.0f, 20.0f, 200.0f});
  const Output labels = Const(root, {0.0f, 1.0f, 0.0f, 1.0f, 1.0f, 0.0f});
  const Output loss = SigmoidCrossEntropyWithLogits(root.WithOpName("xent"), x, labels);
  const Result<Outputs> gradient =
      AddGradients(root, std::vector<Output>{loss}, std::vector<Output>{x});
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_EQ(loss.name(), "xent");
  const auto session = Session::Local(graph).value();
  const std::vector<Tensor> values = session->Run({}, {loss, (*gradient)[0]}).value();
  const double expected[] = {0, 20, std::log(2), std::log(2), std::exp(-20), 200};
  const double slopes[] = {0, -1, 0.5, -0.5, -std::exp(-20), 1};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(values[0].data<float>()[i], static_cast<float>(expected[i])) << i;
    EXPECT_NEAR(values[1].data<float>()[i], slopes[i], 1e-7) << i;
  }
  SigmoidCrossEntropyWithLogits(root, x, Const(root, {1.0f}));
  EXPECT_NE(root.status().message().find("logits [6] and labels [1] must have the same shape"),
            std::string::npos)
      << root.status();
}

}  // namespace
}  // namespace monograph
