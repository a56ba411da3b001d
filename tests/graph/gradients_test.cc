#include "graph/gradients.h"

#include <gtest/gtest.h>

#include "graph/function.h"
#include "tests/graph/pass_ops.h"

namespace monograph {
namespace {

#define EXPECT_SAYS(status, part) \
  EXPECT_TRUE((status).message().find(part) != std::string::npos) << (status).message()

Value Number(double x) { return {{}, {x}, {}}; }

class GradientsTest : public ::testing::Test {
 protected:
  Outputs Gradients(const Outputs& ys, const Outputs& xs, const Outputs& grad_ys = {},
                    const GradientOptions& options = {}) {
    EXPECT_TRUE(root_.ok()) << root_.status();
    Result<Outputs> result = AddGradients(root_, ys, xs, grad_ys, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : Outputs(xs.size());
  }
  double Compute(const Output& y, const std::map<std::string, double>& feeds) {
    std::map<std::string, Value> values;
    for (const auto& [name, x] : feeds) values[name] = Number(x);
    const Result<std::vector<Value>> result = Evaluate(graph_, values, {y});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].data[0] : 0;
  }

  Graph graph_{&PassOps()};
  Scope root_{&graph_};
};

TEST_F(GradientsTest, TheChainRuleGivesTheDerivative) {
  const Output x = Placeholder(root_.WithOpName("x"));
  const Output y = Op1(root_, "Square", Op2(root_, "Mul", x, Op1(root_, "Square", x)));  // x^6
  const Outputs dx = Gradients({y}, {x});
  EXPECT_DOUBLE_EQ(Compute(dx[0], {{"x", 2.0}}), 6 * 32.0);
}

TEST_F(GradientsTest, GradientsOfSeveralConsumersAreSummedInTheirOrder) {
  const Output x = Placeholder(root_.WithOpName("x")), w = Placeholder(root_.WithOpName("w"));
  const Output a = Op1(root_.WithOpName("a"), "Square", x),
               b = Op2(root_.WithOpName("b"), "Mul", x, w);
  const Output c = Op1(root_.WithOpName("c"), "Identity", x);
  const Output y = OpBuilder(root_, "Add").Input(Op2(root_, "Add", c, b)).Input(a).BuildOutput();
  const Outputs d = Gradients({y}, {x, w});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"x", 3.0}, {"w", 5.0}}), 6 + 5 + 1);
  EXPECT_DOUBLE_EQ(Compute(d[1], {{"x", 3.0}, {"w", 5.0}}), 3);
  ASSERT_TRUE(graph_.is(d[0].node(), "AddN"));
  EXPECT_EQ(graph_.name(d[0].node()), "gradients/AddN");
  const auto terms = graph_.inputs(d[0].node());
  ASSERT_EQ(terms.size(), 3u);
  EXPECT_TRUE(graph_.name(terms[0].node).starts_with("gradients/a_grad/"));
  EXPECT_TRUE(graph_.name(terms[1].node).starts_with("gradients/b_grad/"));
}

TEST_F(GradientsTest, SeveralYsAndGivenGradientsAddUp) {
  const Output x = Placeholder(root_.WithOpName("x")), g = Placeholder(root_.WithOpName("g"));
  const Output y = Op1(root_, "Square", x), z = Op1(root_, "Identity", x);
  const Outputs d = Gradients({y, z}, {x}, {g, Output()});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"x", 3.0}, {"g", 10.0}}), 61);
}

TEST_F(GradientsTest, XMayBeYItself) {
  const Output x = Placeholder(root_.WithOpName("x"));
  EXPECT_DOUBLE_EQ(Compute(Gradients({x}, {x})[0], {}), 1);
}

TEST_F(GradientsTest, AnIntermediateTensorMayBeX) {
  const Output x = Placeholder(root_.WithOpName("x"));
  const Output h = Op1(root_.WithOpName("h"), "Square", x);
  const Output y = Op1(root_, "Square", h);
  const Outputs d = Gradients({y}, {h, x});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"x", 2.0}}), 8);
  EXPECT_DOUBLE_EQ(Compute(d[1], {{"x", 2.0}}), 32);
}

TEST_F(GradientsTest, WhereYDoesNotDependOnXTheResultIsInvalid) {
  const Output x = Placeholder(root_), other = Placeholder(root_);
  const Output y = Op1(root_, "Square", x);
  const Output behind_stop = Op1(root_, "StopGradient", other);
  const Output z = Op2(root_, "Add", y, Op2(root_, "Mul", behind_stop, y));
  const Outputs d = Gradients({z}, {x, other, Placeholder(root_)});
  EXPECT_TRUE(d[0].valid());
  EXPECT_FALSE(d[1].valid());
  EXPECT_FALSE(d[2].valid());
}

TEST_F(GradientsTest, StopGradientsHoldATensorConstant) {
  const Output x = Placeholder(root_.WithOpName("x"));
  const Output h = Op1(root_, "Square", x);
  const Output y = Op2(root_, "Mul", h, x);
  const Outputs d = Gradients({y}, {x}, {}, {.stop_gradients = {h}});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"x", 3.0}}), 9);
}

TEST_F(GradientsTest, AReadOfAVariableMayBeX) {
  const Output w = Read(root_.WithOpName("w"), Variable(root_, "v"));
  const Outputs d = Gradients({Op1(root_, "Square", w)}, {w});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"w", 4.0}}), 8);
}

TEST_F(GradientsTest, AVariablesHandleStandsForEveryReadOfIt) {
  const Output v = Variable(root_.WithOpName("v"), "v"), x = Placeholder(root_.WithOpName("x"));
  const Output a = Read(root_.WithOpName("a"), v), b = Read(root_.WithOpName("b"), v);
  const Output y = Op2(root_, "Mul", Op2(root_, "Mul", a, b), x);
  const Outputs d = Gradients({y}, {v, a});
  EXPECT_DOUBLE_EQ(Compute(d[0], {{"a", 4.0}, {"b", 5.0}, {"x", 2.0}}), 2 * 5 + 2 * 4);
  EXPECT_DOUBLE_EQ(Compute(d[1], {{"a", 4.0}, {"b", 5.0}, {"x", 2.0}}), 2 * 5);
  EXPECT_FALSE(Gradients({y}, {Variable(root_, "other")})[0].valid());
}

TEST_F(GradientsTest, AVectorOfUnknownSizeGetsOnesOfItsShape) {
  const Output x = Placeholder(root_.WithOpName("x"), {-1});
  const Outputs d = Gradients({Op1(root_, "Square", x)}, {x});
  const auto result = Evaluate(graph_, {{"x", {{3}, {1, 2, 3}, {}}}}, {d[0]});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].data, (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(d[0].shape(), PartialShape({-1}));
}

TEST_F(GradientsTest, GradientNodesStayWithTheirForwardNode) {
  const Output x = Placeholder(root_.WithOpName("x"));
  const Output h = Op1(root_.WithOpName("tower_1/h").WithDevice("/job:worker/task:1"), "Square", x);
  Gradients({Op1(root_.WithOpName("y").WithDevice("/job:worker/task:0"), "Square", h)}, {x});
  int found = 0;
  for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
    if (!graph_.name(node).starts_with("gradients/tower_1/h_grad/")) continue;
    ++found;
    EXPECT_EQ(graph_.device(node).ToString(), "/job:worker/task:1") << graph_.name(node);
    EXPECT_EQ(graph_.attrs(node).Get<std::vector<std::string>>("_class"),
              std::vector<std::string>{"loc:@tower_1/h"});
  }
  EXPECT_EQ(found, 2);
}

TEST_F(GradientsTest, WithoutColocationGradientNodesAskForNothing) {
  const Output x = Placeholder(root_);
  const Output y = Op1(root_.WithOpName("y").WithDevice("/job:worker/task:1"), "Square", x);
  const int before = graph_.num_nodes();
  Gradients({y}, {x}, {}, {.colocate_with_forward = false});
  for (NodeId node = before; node < graph_.num_nodes(); ++node) {
    EXPECT_TRUE(graph_.device(node).empty());
    EXPECT_EQ(graph_.attrs(node).Find("_class"), nullptr);
  }
}

TEST_F(GradientsTest, AnOpWithoutAGradientIsNamedOnlyIfItMatters) {
  const Output x = Placeholder(root_);
  const Output opaque = Op1(root_.WithOpName("opaque"), "Exp2", x);
  const Status status =
      AddGradients(root_, Outputs{Op1(root_, "Square", opaque)}, Outputs{x}).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_SAYS(status, "node 'opaque' (Exp2) has no gradient");
  const Output z = Placeholder(root_);
  EXPECT_TRUE(AddGradients(root_, Outputs{Op2(root_, "Mul", z, opaque)}, Outputs{z}).ok());
}

TEST_F(GradientsTest, ACallBecomesWhatItRuns) {
  auto body = std::make_shared<Graph>(&PassOps());
  Scope scope(body.get());
  const Output a = OpBuilder(scope, "_Arg").Attr("T", DT_FLOAT).Attr("index", 0).BuildOutput();
  OpBuilder(scope, "_Retval").Input(Op1(scope, "Square", a)).Attr("index", 0).Build();
  ASSERT_TRUE(graph_.functions().Add(Function::Make("f", body).value()).ok());
  const Output x = Placeholder(root_);
  const Output y = OpBuilder(root_.WithOpName("c"), "PartitionedCall")
                       .Input(x)
                       .Attr("Tout", std::vector<DType>{DT_FLOAT})
                       .Attr("f", FunctionName{"f"})
                       .BuildOutput();
  const Outputs dx = Gradients({y}, {x});
  EXPECT_DOUBLE_EQ(Compute(dx[0], {{"Placeholder", 3.0}}), 6);
  EXPECT_EQ(graph_.Find("c"), y.node());
  EXPECT_TRUE(graph_.is(y.node(), "Identity"));
}

TEST_F(GradientsTest, MistakesInTheArgumentsAreNamed) {
  const Output x = Placeholder(root_.WithOpName("x"));
  EXPECT_SAYS(AddGradients(root_, Outputs{}, Outputs{x}).status(), "no ys");
  EXPECT_SAYS(AddGradients(root_, Outputs{x}, Outputs{Output()}).status(),
              "one of the xs is not a tensor");
  EXPECT_SAYS(
      AddGradients(root_, Outputs{Op1(root_.WithOpName("s"), "Shape", x)}, Outputs{x}).status(),
      "'s' of type int32 cannot be differentiated");
  EXPECT_SAYS(AddGradients(root_, Outputs{x}, Outputs{x}, Outputs{x, x}).status(),
              "1 ys but 2 grad_ys");
}

}  // namespace
}  // namespace monograph
