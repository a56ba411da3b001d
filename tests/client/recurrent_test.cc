// Scan and DynamicRnn: what they compute and their gradients, against TensorFlow's numbers for
// the same network (tests/golden/graphs/recurrent_network).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "client/registries.h"
#include "client/session.h"
#include "graph/gradients.h"
#include "graph/graph_def.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/variable/variable.h"
#include "tests/client/session_fixture.h"
#include "tools/npy.h"

namespace monograph {
namespace {

class Recurrent : public LocalSessionTest {
 protected:
  Tensor Value(const Output& of, const std::vector<std::pair<Output, Tensor>>& feeds = {}) {
    const Result<std::vector<Tensor>> values = session().Run(feeds, {of});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0) : Tensor();
  }
};

TEST_F(Recurrent, ScanGivesTheValuesOfAllSteps) {
  const Output x = Placeholder(root_, DT_FLOAT, {-1, 2});
  const Outputs scanned = Scan(
      root_, {x}, {Const<float>(root_, {1, 1}), Const(root_, 0)},
      [](const Scope& s, const Outputs& v, const Outputs& rows) {
        return Outputs{Add(s, Mul(s, v[0], Const(s, 2.0f)), rows[0]), Add(s, v[1], Const(s, 1))};
      });
  const Outputs backwards = Scan(root_, {x}, {Const<float>(root_, {0, 0})},
                                 [](const Scope& s, const Outputs& v, const Outputs& rows) {
                                   return Outputs{Add(s, v[0], rows[0])};
                                 },
                                 {.reverse = true});
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(scanned[0].shape(), PartialShape({-1, 2}));
  const Tensor rows = Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(BitEqual(Value(scanned[0], {{x, rows}}),
                       Tensor::FromValues<float>({3, 2}, {3, 4, 9, 12, 23, 30})));
  EXPECT_TRUE(BitEqual(Value(scanned[1], {{x, rows}}), Tensor::Vector<int32_t>({1, 2, 3})));
  EXPECT_TRUE(BitEqual(Value(backwards[0], {{x, rows}}),
                       Tensor::FromValues<float>({3, 2}, {9, 12, 8, 10, 5, 6})));
  const Tensor none = Tensor::Allocate(DT_FLOAT, {0, 2}).value();
  EXPECT_EQ(Value(scanned[0], {{x, none}}).shape(), Shape({0, 2}));
}

TEST_F(Recurrent, AStepOfOtherValuesIsRefused) {
  const Output x = Const<float>(root_, {1, 2});
  Scan(root_, {x}, {Const(root_, 0.0f)},
       [](const Scope&, const Outputs&, const Outputs&) { return Outputs{}; });
  EXPECT_EQ(root_.status().code(), Code::kInvalidArgument);
  EXPECT_NE(root_.status().message().find("a step has 0 next values and 0 results; there are 1"),
            std::string::npos)
      << root_.status();
}

// An LSTM as in tests/golden/make_graphs.py.
CellOutputs Lstm(const Scope& s, const Output& kernel, const Output& bias, const Output& x,
                 const Outputs& state) {
  const Output gates = BiasAdd(s, MatMul(s, Concat(s, {x, state[1]}, 1), kernel), bias);
  const Outputs parts = Split(s, gates, 4, 1);
  const Output forget = Sigmoid(s, Add(s, parts[2], Const(s, 1.0f)));
  const Output c =
      Add(s, Mul(s, state[0], forget), Mul(s, Sigmoid(s, parts[0]), Tanh(s, parts[1])));
  const Output h = Mul(s, Tanh(s, c), Sigmoid(s, parts[3]));
  return {h, {c, h}};
}

TEST_F(Recurrent, AnLstmGivesTensorFlowsNumbersAndGradientsAndLearns) {
  const std::filesystem::path folder =
      std::filesystem::path(MG_GOLDEN_GRAPHS) / "recurrent_network";
  const auto read = [&](const std::string& file) {
    const Result<Tensor> tensor = ReadNpy((folder / file).string());
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? *tensor : Tensor();
  };
  // TensorFlow's graph has the values that the variables begin with.
  std::ifstream file(folder / "graph.pb", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const Result<Graph> theirs = ParseGraph(bytes, &DefaultRegistries().ops);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const Output x = Placeholder(root_, DT_FLOAT, {-1, -1, 3}),
               lengths = Placeholder(root_, DT_INT32, {-1}),
               target = Placeholder(root_, DT_FLOAT, {-1, 1});
  Outputs handles, values;
  std::vector<Operation> init;
  for (const auto& [name, constant] :
       {std::pair("kernel", "Const"), {"bias", "Const_1"}, {"out", "Const_2"}}) {
    const Tensor value = theirs->attrs(theirs->Find(constant)).Get<Tensor>("value");
    handles.push_back(VarHandle(root_.WithOpName(name), DT_FLOAT, value.shape()));
    init.push_back(AssignVariable(root_, handles.back(), Const(root_, value)));
    values.push_back(ReadVariable(root_, handles.back()));
  }
  const Output batch = Reshape(root_, Slice(root_, ShapeOf(root_, x), {0}, {1}), {1});
  const Output zeros = OpBuilder(root_, "Fill")
                           .Input(Concat(root_, {batch, Const<int32_t>(root_, {4})}, 0))
                           .Input(Const(root_, 0.0f))
                           .BuildOutput();
  if (root_.ok()) graph_.SetShape(zeros.endpoint, PartialShape{-1, 4});
  const DynamicRnnOutputs rnn =
      DynamicRnn(root_, x, {zeros, zeros},
                 [&](const Scope& s, const Output& row, const Outputs& state) {
                   return Lstm(s, values[0], values[1], row, state);
                 },
                 {.sequence_length = lengths});
  ASSERT_TRUE(root_.ok()) << root_.status();
  const Output loss = Mean(
      root_, Square(root_, Sub(root_, MatMul(root_, rnn.state[1], values[2]), target)), {0, 1});
  const auto slopes = AddGradients(root_, {{loss}}, {{x, values[0], values[1]}});
  ASSERT_TRUE(slopes.ok()) << slopes.status();
  ASSERT_TRUE(session().Run({}, {}, init).ok());

  const nlohmann::json script = nlohmann::json::parse(std::ifstream(folder / "steps.json"));
  const nlohmann::json& step = script["steps"][1];
  std::map<std::string, Tensor> feeds;
  for (const auto& [name, at] : step["feeds"].items()) feeds[name] = read(at.get<std::string>());
  const std::vector<std::pair<Output, Tensor>> fed{
      {x, feeds["x:0"]}, {lengths, feeds["lengths:0"]}, {target, feeds["target:0"]}};
  const Outputs fetches{rnn.outputs,   rnn.state[0],  rnn.state[1], loss,
                        slopes->at(0), slopes->at(1), slopes->at(2)};
  for (size_t i = 0; i < fetches.size(); ++i) {
    const Tensor got = Value(fetches[i], fed), wanted = read(step["expect"][i].get<std::string>());
    ASSERT_EQ(got.shape().ToString(), wanted.shape().ToString()) << i;
    for (int64_t e = 0; e < got.elements(); ++e)
      EXPECT_NEAR(got.data<float>()[e], wanted.data<float>()[e], 1e-5) << i << ", element " << e;
  }
  // It learns.
  std::vector<Operation> updates;
  for (size_t i = 0; i < 2; ++i) {
    updates.push_back(
        AssignSubVariable(root_, handles[i], Mul(root_, slopes->at(i + 1), Const(root_, 0.5f))));
  }
  const float before = Value(loss, fed).scalar<float>();
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(session().Run(fed, {}, updates).ok());
  EXPECT_LT(Value(loss, fed).scalar<float>(), before / 10);
}

}  // namespace
}  // namespace monograph
