// AddGradients through If, Case, While, For and calls: each is compared with differences, and all
// but For with the same program of Cond and While.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "client/registries.h"
#include "graph/function.h"
#include "ops/cast/cast.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/random/random.h"
#include "ops/variable/variable.h"
#include "tests/client/gradient_fixture.h"

namespace monograph {
namespace {

using Types = std::vector<DType>;
constexpr DType kInt = DT_INT32, kDouble = DT_DOUBLE, kHandle = DT_RESOURCE;

class FunctionalGradients : public GradientTest {
 protected:
  using Build = std::function<Outputs(const Scope& scope, const Outputs& args)>;

  void Define(const char* name, const Types& args, const Build& build) {
    auto body = std::make_shared<Graph>(&graph_.registry());
    const Scope scope(body.get());
    Outputs given;
    for (const DType type : args) {
      given.push_back(OpBuilder(scope, "_Arg")
                          .Attr("T", type)
                          .Attr("index", static_cast<int64_t>(given.size()))
                          .Attr("_output_shapes", std::vector<PartialShape>{PartialShape()})
                          .BuildOutput());
    }
    int64_t index = 0;
    for (const Output& result : build(scope, given))
      OpBuilder(scope, "_Retval").Input(result).Attr("index", index++).Build();
    ASSERT_TRUE(scope.ok()) << scope.status();
    auto function = Function::Make(name, body);
    ASSERT_TRUE(function.ok()) << function.status();
    ASSERT_TRUE(graph_.functions().Add(std::move(*function)).ok());
  }

  static Operation If(const Scope& scope, const Output& pred, const Outputs& args, const char* yes,
                      const char* no, const char* op = "If") {
    return OpBuilder(scope, op)
        .Input(pred)
        .Inputs(args)
        .Attr("then_branch", FunctionName{yes})
        .Attr("else_branch", FunctionName{no})
        .Attr("Tout", Types{kDouble})
        .Build();
  }
  static Operation Loop(const Scope& scope, const Outputs& start, const char* cond,
                        const char* body, const char* op = "While") {
    return OpBuilder(scope, op)
        .Inputs(start)
        .Attr("cond", FunctionName{cond})
        .Attr("body", FunctionName{body})
        .Build();
  }
  static Operation Call(const Scope& scope, const Outputs& args, const char* function,
                        const char* op = "PartitionedCall") {
    return OpBuilder(scope, op)
        .Inputs(args)
        .Attr("f", FunctionName{function})
        .Attr("Tout", Types{kDouble})
        .Build();
  }
  // (i, y, x, n) -> (i + 1, y * x, x, n) as long as i < n.
  void DefinePower() {
    Define("below", {kInt, kDouble, kDouble, kInt},
           [](const Scope& s, const Outputs& v) { return Outputs{Less(s, v[0], v[3])}; });
    Define("times", {kInt, kDouble, kDouble, kInt}, [](const Scope& s, const Outputs& v) {
      return Outputs{Add(s, v[0], Const(s, 1)), Mul(s, v[1], v[2]), v[2], v[3]};
    });
  }
  Output Power(const Scope& scope, const Output& x, const Output& n) {
    return Loop(scope, {Const(root_, 0), Const(root_, 1.0), x, n}, "below", "times").output(1);
  }
  // The gradients of both are the same, bit by bit.
  void ExpectSame(const Output& y, const Output& other, const Outputs& xs, const Feeds& feeds) {
    const auto of_y = AddGradients(root_, {{y}}, xs), of_other = AddGradients(root_, {{other}}, xs);
    ASSERT_TRUE(of_y.ok()) << of_y.status();
    ASSERT_TRUE(of_other.ok()) << of_other.status();
    EXPECT_TRUE(BitEqual(Value(y, feeds), Value(other, feeds)));
    for (size_t i = 0; i < xs.size(); ++i)
      EXPECT_TRUE(BitEqual(Value(of_y->at(i), feeds), Value(of_other->at(i), feeds))) << i;
  }
  static Tensor Bool(bool value) { return Tensor::Scalar(value); }
  static Tensor Int(int value) { return Tensor::Scalar<int32_t>(value); }
};

void ExpectError(const Status& status, Code code, const char* text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
}

TEST_F(FunctionalGradients, OfAnIfGoToWhatTheTakenBranchReads) {
  Define("yes", {kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, Sin(s, v[0]), v[0])}; });
  Define("no", {kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, v[0], Exp(s, v[1]))}; });
  const Output x = Feed("x", {2}), z = Feed("z", {2});
  const Output pred = Placeholder(root_.WithOpName("pred"), DT_BOOL, {});
  const std::vector<Tensor> at{Tensor::Vector<double>({0.7, 2}), Tensor::Vector<double>({-1, 3})};
  const Output by_cond = Cond(
      root_, pred, [&](const Scope& s) { return Outputs{Mul(s, Sin(s, x), x)}; },
      [&](const Scope& s) { return Outputs{Mul(s, x, Exp(s, z))}; })[0];
  for (const char* op : {"If", "StatelessIf"}) {
    const Output y = If(root_, pred, {x, z}, "yes", "no", op).output(0);
    for (const bool taken : {true, false}) {
      SCOPED_TRACE(taken);
      Check(y, {x, z}, at, {{pred, Bool(taken)}});
      ExpectSame(y, by_cond, {x, z}, {{x, at[0]}, {z, at[1]}, {pred, Bool(taken)}});
    }
  }
}

TEST_F(FunctionalGradients, OfACaseAreThoseOfItsBranch) {
  Define("square", {kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, v[0], v[0])}; });
  Define("product", {kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, v[0], v[1])}; });
  Define("tanh", {kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Tanh(s, v[1])}; });
  const Output x = Feed("x"), z = Feed("z"), index = Count("index");
  for (const char* op : {"Case", "StatelessCase"}) {
    const Output y =
        OpBuilder(root_, op)
            .Input(index)
            .Inputs(Outputs{x, z})
            .Attr("branches", std::vector<FunctionName>{{"square"}, {"product"}, {"tanh"}})
            .Attr("Tout", Types{kDouble})
            .BuildOutput();
    for (int i = -1; i < 4; ++i) {
      SCOPED_TRACE(i);
      Check(y, {x, z}, {Tensor::Scalar(0.6), Tensor::Scalar(-0.4)}, {{index, Int(i)}});
    }
  }
}

TEST_F(FunctionalGradients, OfALoopThatRunsSoManyTimes) {
  DefinePower();
  const Output x = Feed("x"), n = Count("n");
  const Output y = Power(root_, x, n);
  const Output by_while = While(
      root_, {Const(root_, 0), Const(root_, 1.0)},
      [&](const Scope& s, const Outputs& v) { return Less(s, v[0], n); },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{Add(s, v[0], Const(s, 1)), Mul(s, v[1], x)};
      })[1];
  const auto gradient = AddGradients(root_, {{y}}, {{x}});
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  for (const int count : {0, 1, 5}) {
    SCOPED_TRACE(count);
    const Feeds feeds{{x, Tensor::Scalar(2.0)}, {n, Int(count)}};
    EXPECT_DOUBLE_EQ(Value(gradient->at(0), feeds).scalar<double>(),
                     count * std::pow(2, count - 1));
    ExpectSame(y, by_while, {x}, feeds);
  }
}

TEST_F(FunctionalGradients, OfAForThatCountsUpOrDown) {
  Define("step", {kInt, kDouble, kDouble}, [](const Scope& s, const Outputs& v) {
    return Outputs{Add(s, Mul(s, v[1], v[2]), Cast(s, v[0], DT_DOUBLE)), v[2]};
  });
  const Output y = Feed("y"), x = Feed("x");
  const Output start = Count("start"), limit = Count("limit"), delta = Count("delta");
  const Operation loop = OpBuilder(root_, "For")
                             .Input(start)
                             .Input(limit)
                             .Input(delta)
                             .Inputs(Outputs{y, x})
                             .Attr("body", FunctionName{"step"})
                             .Build();
  const Output product = Mul(root_, loop.output(0), loop.output(1));
  constexpr int kCounts[][3] = {{0, 4, 1}, {5, 0, -2}, {3, 3, 1}};
  for (const auto& [from, to, by] : kCounts) {
    SCOPED_TRACE(from);
    Check(product, {y, x}, {Tensor::Scalar(0.7), Tensor::Scalar(1.3)},
          {{start, Int(from)}, {limit, Int(to)}, {delta, Int(by)}});
  }
}

TEST_F(FunctionalGradients, OfALoopThatRunsAsItsValuesTell) {
  Define("small", {kDouble, kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Less(s, v[0], Const(s, 50.0))}; });
  Define("grow", {kDouble, kDouble, kDouble}, [](const Scope& s, const Outputs& v) {
    return Outputs{Add(s, Mul(s, v[0], v[1]), v[2]), v[1], Sqrt(s, v[2])};
  });
  const Output y = Feed("y"), x = Feed("x"), w = Feed("w");
  const Operation loop = Loop(root_, {y, x, w}, "small", "grow", "StatelessWhile");
  // Of all its results: x is one that the loop hands on.
  const Output sum = AddN(root_, {loop.output(0), Mul(root_, loop.output(1), loop.output(2))});
  for (const double start : {0.5, 60.0})
    Check(sum, {y, x, w}, {Tensor::Scalar(start), Tensor::Scalar(1.7), Tensor::Scalar(3.0)});
}

TEST_F(FunctionalGradients, OfLoopsAndBranchesInEachOther) {
  DefinePower();
  // x^i in even iterations, sin(y) * w in others; all of it if pred, else x * w.
  Define("power", {kInt, kDouble, kDouble, kDouble}, [](const Scope& s, const Outputs& v) {
    const Output power =
        Loop(s, {Const(s, 0), Const(s, 1.0), v[2], v[0]}, "below", "times").output(1);
    return Outputs{Add(s, power, v[1])};
  });
  Define("sine", {kInt, kDouble, kDouble, kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, Sin(s, v[1]), v[3])}; });
  Define("goes_on", {kInt, kDouble, kDouble, kDouble, kInt},
         [](const Scope& s, const Outputs& v) { return Outputs{Less(s, v[0], v[4])}; });
  Define("step", {kInt, kDouble, kDouble, kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    const Output even = Equal(s, FloorMod(s, v[0], Const(s, 2)), Const(s, 0));
    return Outputs{Add(s, v[0], Const(s, 1)),
                   If(s, even, {v[0], v[1], v[2], v[3]}, "power", "sine").output(0), v[2], v[3],
                   v[4]};
  });
  Define("loops", {kDouble, kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    return Outputs{Loop(s, {Const(s, 0), v[0], v[0], v[1], v[2]}, "goes_on", "step").output(1)};
  });
  Define("calls", {kDouble, kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    return Outputs{Call(s, v, "loops", "StatefulPartitionedCall").output(0)};
  });
  Define("product", {kDouble, kDouble, kInt},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, v[0], v[1])}; });
  const Output x = Feed("x"), w = Feed("w"), n = Count("n");
  const Output pred = Less(root_, n, Const(root_, 6));
  const Output y = If(root_, pred, {x, w, n}, "calls", "product").output(0);
  const Output by_hand = Cond(
      root_, pred,
      [&](const Scope& s) {
        return Outputs{While(
            s, {Const(s, 0), x}, [&](const Scope& t, const Outputs& v) { return Less(t, v[0], n); },
            [&](const Scope& t, const Outputs& v) {
              const Output even = Equal(t, FloorMod(t, v[0], Const(t, 2)), Const(t, 0));
              const Output next = Cond(
                  t, even,
                  [&](const Scope& u) {
                    const Outputs power = While(
                        u, {Const(u, 0), Const(u, 1.0)},
                        [&](const Scope& b, const Outputs& p) { return Less(b, p[0], v[0]); },
                        [&](const Scope& b, const Outputs& p) {
                          return Outputs{Add(b, p[0], Const(b, 1)), Mul(b, p[1], x)};
                        });
                    return Outputs{Add(u, power[1], v[1])};
                  },
                  [&](const Scope& u) { return Outputs{Mul(u, Sin(u, v[1]), w)}; })[0];
              return Outputs{Add(t, v[0], Const(t, 1)), next};
            })[1]};
      },
      [&](const Scope& s) { return Outputs{Mul(s, x, w)}; })[0];
  const std::vector<Tensor> at{Tensor::Scalar(0.8), Tensor::Scalar(0.6)};
  for (const int count : {0, 1, 5, 6}) {
    SCOPED_TRACE(count);
    Check(y, {x, w}, at, {{n, Int(count)}});
    const auto ours = AddGradients(root_, {{y}}, {{x, w}}),
               theirs = AddGradients(root_, {{by_hand}}, {{x, w}});
    ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
    const Feeds feeds{{x, at[0]}, {w, at[1]}, {n, Int(count)}};
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_DOUBLE_EQ(Value(ours->at(i), feeds).scalar<double>(),
                       Value(theirs->at(i), feeds).scalar<double>());
    }
  }
}

TEST_F(FunctionalGradients, OfVariablesThatBranchesAndLoopsRead) {
  // Multiplies by v, and in odd iterations by w, too.
  Define("below", {kInt, kDouble, kInt, kHandle, kHandle},
         [](const Scope& s, const Outputs& v) { return Outputs{Less(s, v[0], v[2])}; });
  Define("reads", {kDouble, kHandle}, [](const Scope& s, const Outputs& v) {
    return Outputs{Mul(s, v[0], ReadVariable(s, v[1], kDouble))};
  });
  Define("as_it_is", {kDouble, kHandle},
         [](const Scope&, const Outputs& v) { return Outputs{v[0]}; });
  Define("step", {kInt, kDouble, kInt, kHandle, kHandle}, [](const Scope& s, const Outputs& v) {
    const Output odd = Equal(s, FloorMod(s, v[0], Const(s, 2)), Const(s, 1));
    const Output product = Mul(s, v[1], ReadVariable(s, v[3], kDouble));
    return Outputs{Add(s, v[0], Const(s, 1)),
                   If(s, odd, {product, v[4]}, "reads", "as_it_is").output(0), v[2], v[3], v[4]};
  });
  const Output v = VarHandle(root_.WithOpName("v"), kDouble, PartialShape::Scalar());
  const Output w = VarHandle(root_.WithOpName("w"), kDouble, PartialShape::Scalar());
  const Operation init = AssignVariable(root_, v, Const(root_, 3.0)),
                  init_w = AssignVariable(root_, w, Const(root_, 2.0));
  const Output n = Count("n"), x = Feed("x");
  const Output y = Loop(root_, {Const(root_, 0), x, n, v, w}, "below", "step").output(1);
  const Output once =
      If(root_, Less(root_, n, Const(root_, 2)), {x, w}, "reads", "as_it_is").output(0);
  const auto gradients = AddGradients(root_, {{y}}, {{x, v, w}}),
             of_once = AddGradients(root_, {{once}}, {{w}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_TRUE(of_once.ok()) << of_once.status();
  ASSERT_TRUE(session().Run({}, {}, {init, init_w}).ok());
  // x v^n w^(n/2)
  for (const int count : {0, 1, 4}) {
    SCOPED_TRACE(count);
    const Feeds feeds{{n, Int(count)}, {x, Tensor::Scalar(5.0)}};
    const int half = count / 2;
    const double power = std::pow(3, count) * std::pow(2, half);
    EXPECT_DOUBLE_EQ(Value(y, feeds).scalar<double>(), 5 * power);
    EXPECT_DOUBLE_EQ(Value(gradients->at(0), feeds).scalar<double>(), power);
    EXPECT_DOUBLE_EQ(Value(gradients->at(1), feeds).scalar<double>(), 5 * power * count / 3);
    EXPECT_DOUBLE_EQ(Value(gradients->at(2), feeds).scalar<double>(), 5 * power * half / 2);
    EXPECT_DOUBLE_EQ(Value(of_once->at(0), feeds).scalar<double>(), count < 2 ? 5 : 0);
  }
}

TEST_F(FunctionalGradients, OfTheGradient) {
  DefinePower();
  Define("power", {kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    return Outputs{
        Loop(s, {Const(s, 0), Const(s, 1.0), Sin(s, v[0]), v[1]}, "below", "times").output(1)};
  });
  Define("square", {kDouble, kInt},
         [](const Scope& s, const Outputs& v) { return Outputs{Mul(s, v[0], v[0])}; });
  const Output x = Feed("x"), n = Count("n");
  const Output y = If(root_, Less(root_, n, Const(root_, 5)), {x, n}, "power", "square").output(0);
  const auto first = AddGradients(root_, {{y}}, {{x}});
  ASSERT_TRUE(first.ok()) << first.status();
  for (const int count : {0, 3, 5})
    Check(first->at(0), {x}, {Tensor::Scalar(0.8)}, {{n, Int(count)}});
}

TEST_F(FunctionalGradients, OfCallsAndOfWhatIsBetweenThem) {
  Define("sine", {kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Sin(s, Mul(s, v[0], v[0]))}; });
  const Output x = Feed("x", {3});
  const Output between = Call(root_, {x}, "sine").output(0);
  const Output y = Call(root_, {between}, "sine", "StatefulPartitionedCall").output(0);
  Check(y, {x}, {Tensor::Vector<double>({0.3, -1, 2})});
  // What a call gives may be x.
  const auto gradients = AddGradients(root_, {{y}}, {{between, x}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const Feeds feeds{{between, Tensor::Vector<double>({0, 1, 2})}};
  const Tensor of_between = Value(gradients->at(0), feeds);
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(of_between.data<double>()[i], 2 * i * std::cos(i * i), 1e-12);
}

TEST_F(FunctionalGradients, NothingIsComputedTwice) {
  Define("random", {kDouble, kHandle}, [](const Scope& s, const Outputs& v) {
    const Operation add = AssignAddVariable(s, v[1], Const(s, 1.0));
    const Scope then = s.WithControlDependencies({add});
    return Outputs{Mul(then, v[0], RandomUniform(s, Const<int32_t>(s, {4}), kDouble))};
  });
  Define("none", {kDouble, kHandle}, [](const Scope&, const Outputs& v) { return Outputs{v[0]}; });
  const Output x = Feed("x", {4}), pred = Placeholder(root_, DT_BOOL, {});
  const Output handle = VarHandle(root_.WithOpName("count"), kDouble, PartialShape::Scalar());
  const Operation init = AssignVariable(root_, handle, Const(root_, 0.0));
  const Output y = If(root_.WithOpName("choice"), pred, {x, handle}, "random", "none").output(0);
  const Output z = Mul(root_.WithOpName("z"), y, Const(root_, 2.0));
  const Output after = ReadVariable(root_.WithControlDependencies({y}), handle);
  const Tensor at = Tensor::Vector<double>({1, 2, 4, 8});
  const Feeds feeds{{x, at}, {pred, Bool(true)}};
  ASSERT_TRUE(session().Run({}, {}, {init}).ok());
  EXPECT_EQ(Value(after, feeds).scalar<double>(), 1);

  const auto gradients = AddGradients(root_, {{z}}, {{x}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(graph_.Find("choice"), y.node());
  EXPECT_EQ(y.name(), "choice");
  const auto values = session().Run(feeds, {y, z, gradients->at(0), after});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(3).scalar<double>(), 2);
  for (int i = 0; i < 4; ++i) {
    const double x_i = at.data<double>()[i], drawn = values->at(0).data<double>()[i] / x_i;
    EXPECT_EQ(values->at(1).data<double>()[i], 2 * drawn * x_i);
    EXPECT_EQ(values->at(2).data<double>()[i], 2 * drawn);
  }
  EXPECT_NE(values->at(2).data<double>()[0], values->at(2).data<double>()[1]);
}

TEST_F(FunctionalGradients, WhatIsOnNoPathStays) {
  DefinePower();
  const Output x = Feed("x"), n = Count("n");
  Define("cube", {kDouble}, [](const Scope& s, const Outputs& v) {
    return Outputs{Mul(s, Mul(s, v[0], v[0]), v[0])};
  });
  const Output stopped = Power(root_, StopGradient(root_, x), n);
  const Output held = Call(root_, {x}, "cube").output(0);
  const Output y = Mul(root_, x, Add(root_, stopped, held));
  GradientOptions options;
  options.stop_gradients = {held};
  const auto gradients = AddGradients(root_, {{y}}, {{x}}, {}, options);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_DOUBLE_EQ(
      Value(gradients->at(0), {{x, Tensor::Scalar(2.0)}, {n, Int(3)}}).scalar<double>(), 16);
  EXPECT_TRUE(graph_.is(held.node(), "PartitionedCall"));
}

// x^n by a function that calls itself n times.
TEST_F(FunctionalGradients, OfAFunctionThatCallsItselfGoAsDeepAsItDoes) {
  Define("power", {kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    return Outputs{If(s, Greater(s, v[1], Const(s, 0)), v, "power_step", "power_end").output(0)};
  });
  Define("power_step", {kDouble, kInt}, [](const Scope& s, const Outputs& v) {
    const Output less = Sub(s, v[1], Const(s, 1));
    return Outputs{Mul(s, v[0], Call(s, {v[0], less}, "power").output(0))};
  });
  Define("power_end", {kDouble, kInt},
         [](const Scope& s, const Outputs&) { return Outputs{Const(s, 1.0)}; });
  const Output x = Feed("x"), n = Count("n");
  const Output y = Call(root_.WithOpName("y"), {x, n}, "power").output(0);
  EXPECT_DOUBLE_EQ(Value(y, {{x, Tensor::Scalar(2.0)}, {n, Int(30)}}).scalar<double>(), 1 << 30);
  const auto deep = session().Run({{x, Tensor::Scalar(2.0)}, {n, Int(500)}}, {y});
  ExpectError(deep.status(), Code::kResourceExhausted,
              "function 'power' calls itself ('power' -> 'power_step' -> 'power') more than 40 "
              "times within itself");
  for (const int times : {0, 1, 5}) Check(y, {x}, {Tensor::Scalar(1.5)}, {{n, Int(times)}});
}

TEST_F(FunctionalGradients, WhereThereAreNoneTheErrorSaysWhy) {
  Define("has_none", {kDouble}, [](const Scope& s, const Outputs& v) {
    const auto cast = [&](const Output& from, DType to) {
      return OpBuilder(s, "Cast").Input(from).Attr("DstT", to).BuildOutput();
    };
    const Output x = cast(v[0], DT_FLOAT);
    const Output last =
        OpBuilder(s.WithOpName("last"), "LRNGrad").Inputs(Outputs{x, x, x}).BuildOutput();
    return Outputs{cast(last, kDouble)};
  });
  Define("same", {kDouble}, [](const Scope&, const Outputs& v) { return Outputs{v[0]}; });
  Define("again", {kDouble},
         [](const Scope& s, const Outputs& v) { return Outputs{Call(s, v, "again").output(0)}; });
  const Output x = Feed("x"), yes = Const(root_, Tensor::Scalar(true));
  const auto error = [&](const Output& y) { return AddGradients(root_, {{y}}, {{x}}).status(); };
  ExpectError(error(If(root_.WithOpName("choice"), yes, {x}, "has_none", "same").output(0)),
              Code::kUnimplemented, "node 'choice/then/last' (LRNGrad) has no gradient");
  ExpectError(error(If(root_, yes, {x}, "again", "same").output(0)), Code::kInvalidArgument,
              "a recursion ends where an If");
  ExpectError(error(If(root_, yes, {x}, "same", "nowhere").output(0)), Code::kInvalidArgument,
              "calls function 'nowhere', which the graph's library lacks");
  ExpectError(error(Call(root_, {x}, "nowhere").output(0)), Code::kInvalidArgument,
              "calls function 'nowhere', which the graph's library lacks");
}

}  // namespace
}  // namespace monograph
