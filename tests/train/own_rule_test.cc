// An optimizer's rule that is not the library's: trained with whole gradients and with rows, over
// replicas in every place that variables can have, and refused where it makes no sense.
#include "tests/train/own_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "train/replication.h"
#include "train/saver.h"

namespace monograph {
namespace {

constexpr int kSteps = 5;
constexpr float kRate = 0.125f, kDecay = 0.5f;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OwnRuleDocument, IsTheTestsRule) {
  const std::string source = TextOf(MG_SOURCE_ROOT "/tests/train/own_rule.h"), mark = "// [rule]\n";
  const size_t begin = source.find(mark) + mark.size();
  std::string rule = source.substr(begin, source.rfind(mark) - begin);
  rule.erase(rule.find("inline "), 7);
  EXPECT_LE(std::count(rule.begin(), rule.end(), '\n'), 20);
  EXPECT_NE(TextOf(MG_SOURCE_ROOT "/docs/training.md").find("```cpp\n" + rule + "```\n"),
            std::string::npos)
      << "docs/training.md lacks\n"
      << rule;
}

class OwnRule : public ::testing::Test {
 protected:
  OwnRule() : graph_(NewGraph()), root_(&graph_) {}

  ModelVariable Variable(const std::string& name, const std::vector<float>& values) {
    const ModelVariable made =
        MakeVariable(root_, name, Const(root_, Tensor::FromValues<float>({4}, values)));
    init_.push_back(made.initializer);
    return made;
  }
  // The values of `variable` after so many steps of `train`.
  std::vector<float> Train(const ModelVariable& variable, const Operation& train) {
    const Operation init = Group(root_, init_);
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto session = Session::Local(graph_).value();
    EXPECT_TRUE(session->Run({}, {}, {init}).ok());
    for (int step = 0; step < kSteps; ++step) {
      const auto done = session->Run({}, {}, {train});
      EXPECT_TRUE(done.ok()) << done.status();
    }
    const Tensor value = session->Run({}, {variable.value}).value()[0];
    return {value.data<float>(), value.data<float>() + value.elements()};
  }

  Graph graph_;
  Scope root_;
  std::vector<Operation> init_;
};

// The same by hand, of the loss sum(w * w) over the elements whose `used` is true.
std::vector<float> Expected(std::vector<float> w, const std::vector<bool>& used) {
  std::vector<float> momentum(w.size());
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < w.size(); ++i) {
      momentum[i] = momentum[i] * kDecay + (used[i] ? 2 * w[i] : 0);
      if (momentum[i] != 0) w[i] -= std::copysign(kRate, momentum[i]);
    }
  }
  return w;
}

TEST_F(OwnRule, TrainsAVariable) {
  const std::vector<float> initial = {1, -0.3f, 0.2f, 0};
  const ModelVariable w = Variable("w", initial);
  const Optimizer optimizer = SignMomentum(kRate, kDecay);
  const Output loss = ReduceSum(root_, Square(root_, w.value));
  const auto train = optimizer.Minimize(root_, loss, std::vector<ModelVariable>{w}, &init_);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(Train(w, *train), Expected(initial, {true, true, true, true}));
  EXPECT_EQ(optimizer.slot(w, "momentum")->name, "w/SignMomentum") << "as checkpoints have it";
  EXPECT_EQ(optimizer.slot_names(), std::vector<std::string>{"momentum"});
}

TEST_F(OwnRule, GetsRowsAsAWholeGradient) {
  const std::vector<float> initial = {1, -0.3f, 0.2f, 0.5f};
  const ModelVariable w = Variable("w", initial);
  const Output rows = ResourceGather(root_, w.handle, Const(root_, {3, 1}), DT_FLOAT);
  const auto train = SignMomentum(kRate, kDecay)
                         .Minimize(root_, ReduceSum(root_, Square(root_, rows)),
                                   std::vector<ModelVariable>{w}, &init_);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(Train(w, *train), Expected(initial, {false, true, false, true}));
}

Result<Outputs> Model(Scope& tower, std::span<const Output> batch, ModelVariables& variables) {
  Tensor initial = Tensor::Allocate(DT_FLOAT, {3, 2}).value();
  for (int64_t i = 0; i < 6; ++i) initial.data<float>()[i] = static_cast<float>(i) / 8 - 0.3f;
  const Output w = variables.Get("w", {3, 2}, Initial::Value(initial));
  return Outputs{ReduceMean(tower, Square(tower, MatMul(tower, batch[0], w)))};
}

// "w" after training over these replicas.
Tensor Replicated(const std::vector<std::string>& devices, const ReplicateOptions& options) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output batch = Placeholder(root, DT_FLOAT, {4, 3});
  const auto step = Replicate(root, devices, {batch}, Model, SignMomentum(kRate, kDecay), options);
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  auto session = Session::Local(graph, {.device_count = {{kCpu, 3}}}).value();
  EXPECT_TRUE(session->Run({}, {}, {step->init}).ok());
  Tensor rows = Tensor::Allocate(DT_FLOAT, {4, 3}).value();
  for (int64_t i = 0; i < 12; ++i) rows.data<float>()[i] = static_cast<float>(i % 5) - 1.5f;
  for (int i = 0; i < kSteps; ++i) {
    const auto done = session->Run({{batch, rows}}, {}, {step->train});
    EXPECT_TRUE(done.ok()) << done.status();
  }
  return session->Run({}, {step->variables[0].value}).value()[0];
}

TEST(OwnRuleReplicated, HasTheSameBitsWhereverVariablesAre) {
  const std::vector<std::string> two = {"/device:CPU:0", "/device:CPU:1"};
  const Tensor servers = Replicated(two, {.variable_devices = {"/device:CPU:2"}});
  const Tensor copies = Replicated(two, {.variable_update = VariableUpdate::kReplicated});
  const Tensor central = Replicated(two, {.variable_update = VariableUpdate::kCentral});
  ASSERT_EQ(servers.elements(), 6);
  ASSERT_EQ(copies.elements(), 6);
  ASSERT_EQ(central.elements(), 6);
  EXPECT_EQ(std::memcmp(servers.data<float>(), copies.data<float>(), 6 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(servers.data<float>(), central.data<float>(), 6 * sizeof(float)), 0);
  EXPECT_NE(servers.data<float>()[5], 5.0f / 8 - 0.3f) << "it trained";
}

TEST_F(OwnRule, IsRefusedIfItLacksSomething) {
  const ModelVariable w = Variable("w", {1, 2, 3, 4});
  const std::vector<GradientAndVariable> pairs = {{w.value, {}, w}};
  const auto nothing = [](const Scope&, const UpdateInputs&, const Output&) { return Operation(); };
  const std::pair<OptimizerRule, std::string> wrong[] = {
      {{.name = "", .rate = 1},
       "scope name '' is not valid; names are letters, digits and any of _ . - / >"},
      {{.name = "Mine", .rate = 1}, "optimizer 'Mine' has no function for dense gradients"},
      {{.name = "Mine", .rate = 1, .slots = {{"m"}, {"m"}}, .dense = nothing},
       "optimizer 'Mine' has slots or powers of the same name"},
      {{.name = "Mine", .rate = 1, .dense = nothing},
       "optimizer 'Mine' made no operation for variable 'w'"},
  };
  for (const auto& [rule, text] : wrong) {
    const Scope scope(&graph_);
    Optimizer(rule).ApplyGradients(scope, pairs, &init_);
    EXPECT_EQ(scope.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(scope.status().message(), text);
  }
}

}  // namespace
}  // namespace monograph
