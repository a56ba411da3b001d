// AddGradients through loops: each is compared with differences, and with what the loop is when it
// is written out.
#include <gtest/gtest.h>

#include <functional>

#include "client/registries.h"
#include "client/session.h"
#include "graph/gradients.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/tensor_array/tensor_array.h"
#include "ops/variable/variable.h"
#include "tests/client/gradient_fixture.h"

namespace monograph {
namespace {

class LoopGradients : public GradientTest {
 protected:
  // `body` of (i, values) `n` times; the values behind it.
  using Body = std::function<Outputs(const Scope&, const Output& i, const Outputs& values)>;
  static Outputs Repeat(const Scope& scope, const Output& n, const Outputs& start, const Body& body,
                        const WhileOptions& options = {}) {
    Outputs variables{Const(scope, 0)};
    variables.insert(variables.end(), start.begin(), start.end());
    Outputs end = While(
        scope, variables, [&](const Scope& s, const Outputs& v) { return Less(s, v[0], n); },
        [&](const Scope& s, const Outputs& v) {
          Outputs next{Add(s, v[0], Const(s, 1))};
          for (const Output& value : body(s, v[0], Outputs(v.begin() + 1, v.end())))
            next.push_back(value);
          return next;
        },
        options);
    if (!end.empty()) end.erase(end.begin());
    return end;
  }
  static Output AsDouble(const Scope& s, const Output& i) {
    return OpBuilder(s, "Cast").Input(i).Attr("DstT", DT_DOUBLE).BuildOutput();
  }
};

TEST_F(LoopGradients, OfALoopThatUsesWhatIsOutside) {
  const Output x = Feed("x"), w = Feed("w", {3}), n = Count("n");
  const Output y = Repeat(root_, n, {x}, [&](const Scope& s, const Output& i, const Outputs& v) {
    return Outputs{
        Add(s, Sin(s, Mul(s, v[0], v[0])), Sum(s, Mul(s, w, AsDouble(s, i)), Const(s, {0})))};
  })[0];
  for (const int count : {0, 1, 5}) {
    SCOPED_TRACE(count);
    Check(y, {x, w}, {Tensor::Scalar(0.7), Tensor::Vector<double>({0.1, -0.2, 0.3})},
          {{n, Tensor::Scalar<int32_t>(count)}});
  }
}

TEST_F(LoopGradients, OfVariablesThatDependOnEachOther) {
  const Output a = Feed("a", {2}), b = Feed("b", {2}), c = Feed("c", {2}), n = Count("n");
  const Outputs end =
      Repeat(root_, n, {a, b, c}, [&](const Scope& s, const Output&, const Outputs& v) {
        return Outputs{Mul(s, v[1], v[0]), Add(s, v[0], Tanh(s, v[1])), v[2]};
      });
  const std::vector<Tensor> at{Tensor::Vector<double>({0.5, -0.3}),
                               Tensor::Vector<double>({0.2, 0.9}), Tensor::Vector<double>({1, 2})};
  const Feeds thrice{{n, Tensor::Scalar<int32_t>(3)}};
  // Of one result, of another, and of those that a loop hands through.
  Check(end[0], {a, b}, {at[0], at[1]}, thrice);
  Check(end[1], {a, b}, {at[0], at[1]}, thrice);
  Check(Add(root_, end[0], Mul(root_, end[2], end[2])), {a, c}, {at[0], at[2]},
        {{n, Tensor::Scalar<int32_t>(3)}, {b, at[1]}});
}

TEST_F(LoopGradients, OfBranchesWithinALoop) {
  const Output x = Feed("x"), z = Feed("z"), n = Count("n");
  const Output y = Repeat(root_, n, {x}, [&](const Scope& s, const Output& i, const Outputs& v) {
    const Output odd = Equal(s, FloorMod(s, i, Const(s, 2)), Const(s, 1));
    return Cond(
        s, odd, [&](const Scope& t) { return Outputs{Mul(t, Sin(t, v[0]), z)}; },
        [&](const Scope& t) {
          return Cond(
              t, Less(t, i, Const(t, 3)),
              [&](const Scope& u) { return Outputs{Mul(u, Exp(u, Neg(u, v[0])), v[0])}; },
              [&](const Scope& u) { return Outputs{Add(u, v[0], Const(u, 0.25))}; });
        });
  })[0];
  for (const int count : {1, 2, 6})
    Check(y, {x, z}, {Tensor::Scalar(0.4), Tensor::Scalar(1.3)},
          {{n, Tensor::Scalar<int32_t>(count)}});
}

TEST_F(LoopGradients, OfALoopInALoopAndInABranch) {
  const Output x = Feed("x"), w = Feed("w"), n = Count("n");
  const Output y = Repeat(root_, n, {x}, [&](const Scope& s, const Output& i, const Outputs& v) {
    const Outputs inner = Repeat(
        s, Add(s, i, Const(s, 1)), {v[0]}, [&](const Scope& t, const Output& j, const Outputs& u) {
          return Outputs{Add(t, Sin(t, Mul(t, u[0], w)), Mul(t, AsDouble(t, j), v[0]))};
        });
    return Cond(
        s, Less(s, i, Const(s, 2)),
        [&](const Scope& t) {
          return Outputs{
              Mul(t, inner[0],
                  Repeat(t, i, {v[0]}, [&](const Scope& u, const Output&, const Outputs& k) {
                    return Outputs{Mul(u, k[0], k[0])};
                  })[0])};
        },
        [&](const Scope& t) { return Outputs{Tanh(t, inner[0])}; });
  })[0];
  for (const int count : {0, 1, 4})
    Check(y, {x, w}, {Tensor::Scalar(0.8), Tensor::Scalar(0.6)},
          {{n, Tensor::Scalar<int32_t>(count)}});
}

TEST_F(LoopGradients, OfALoopWithinABranchThatMayNotRun) {
  const Output x = Feed("x"), n = Count("n");
  const Output y = Cond(
      root_, Less(root_, n, Const(root_, 3)),
      [&](const Scope& s) {
        return Repeat(s, n, {x}, [&](const Scope& t, const Output&, const Outputs& v) {
          return Outputs{Sin(t, v[0])};
        });
      },
      [&](const Scope& s) { return Outputs{Mul(s, x, x)}; })[0];
  for (const int count : {0, 2, 3})
    Check(y, {x}, {Tensor::Scalar(0.8)}, {{n, Tensor::Scalar<int32_t>(count)}});
}

TEST_F(LoopGradients, OfTheGradient) {
  const Output x = Feed("x"), n = Count("n");
  const Output y = Repeat(root_, n, {x}, [&](const Scope& s, const Output&, const Outputs& v) {
    return Outputs{Sin(s, Mul(s, v[0], v[0]))};
  })[0];
  const auto first = AddGradients(root_, {{y}}, {{x}});
  ASSERT_TRUE(first.ok()) << first.status();
  Check(first->at(0), {x}, {Tensor::Scalar(0.8)}, {{n, Tensor::Scalar<int32_t>(3)}});
}

TEST_F(LoopGradients, OfAVariableWhoseShapeChanges) {
  const Output x = Feed("x", {2}), n = Count("n");
  WhileOptions options;
  options.shapes = {PartialShape::Scalar(), PartialShape{-1}};
  const Output y = Repeat(
      root_, n, {x},
      [&](const Scope& s, const Output&, const Outputs& v) {
        return Outputs{Concat(s, {v[0], Mul(s, v[0], v[0])}, 0)};
      },
      options)[0];
  Check(y, {x}, {Tensor::Vector<double>({0.5, -0.3})}, {{n, Tensor::Scalar<int32_t>(3)}});
}

TEST_F(LoopGradients, OfRowsOfATableThatEveryIterationTakes) {
  const Output table = Feed("table", {4, 2}), n = Count("n");
  const Output y =
      Repeat(root_, n, {Const(root_, 0.0)}, [&](const Scope& s, const Output& i, const Outputs& v) {
        const Output row = Gather(s, table, FloorMod(s, i, Const(s, 3)));
        return Outputs{Add(s, v[0], Sum(s, Mul(s, row, row), Const(s, {0})))};
      })[0];
  Check(y, {table}, {Tensor::FromValues<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
        {{n, Tensor::Scalar<int32_t>(5)}});
}

TEST_F(LoopGradients, OfArraysThatLoopsReadAndWrite) {
  const Output x = Feed("x", {4, 2}), w = Feed("w", {2});
  const Output n = Const(root_, 4), all = Const<int32_t>(root_, {0, 1, 2, 3});
  TensorArrayOptions options;
  options.element_shape = PartialShape{2};
  options.clear_after_read = false;
  const TensorArrayOutputs in = TensorArray(root_, n, DT_DOUBLE, options),
                           out = TensorArray(root_, n, DT_DOUBLE, options);
  const Output filled = TensorArrayScatter(root_, in.handle, all, x, in.flow);
  const Output flow = While(
      root_, {Const(root_, 0), w, out.flow},
      [&](const Scope& s, const Outputs& v) { return Less(s, v[0], n); },
      [&](const Scope& s, const Outputs& v) {
        const Output row = TensorArrayRead(s, in.handle, v[0], filled, DT_DOUBLE);
        const Output again = TensorArrayRead(s, in.handle, Const(s, 1), filled, DT_DOUBLE);
        const Output state = Tanh(s, Add(s, Mul(s, v[1], row), again));
        return Outputs{Add(s, v[0], Const(s, 1)), state,
                       TensorArrayWrite(s, out.handle, v[0], state, v[2])};
      })[2];
  const Output y = TensorArrayGather(root_, out.handle, all, flow, DT_DOUBLE, PartialShape{2});
  Check(Mul(root_, y, y), {x, w},
        {Tensor::FromValues<double>({4, 2}, {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8}),
         Tensor::Vector<double>({0.5, 0.25})});
}

TEST_F(LoopGradients, OfArraysThatAreSplitAndJoined) {
  const Output x = Feed("x", {3, 2});
  const TensorArrayOutputs parts = TensorArray(root_, Const(root_, 2), DT_DOUBLE);
  const Output split =
      TensorArraySplit(root_, parts.handle, x, Const<int64_t>(root_, {1, 2}), parts.flow);
  const TensorArrayConcatOutputs joined = TensorArrayConcat(root_, parts.handle, split, DT_DOUBLE);
  Check(Mul(root_, joined.value, joined.value), {x},
        {Tensor::FromValues<double>({3, 2}, {1, 2, 3, 4, 5, 6})});
}

TEST_F(LoopGradients, OfAVariableThatTheLoopReads) {
  const Output handle = VarHandle(root_.WithOpName("w"), DT_DOUBLE, PartialShape::Scalar());
  const Operation init = AssignVariable(root_, handle, Const(root_, 1.5));
  const Output n = Const(root_, 3);
  const Output y =
      Repeat(root_, n, {Const(root_, 2.0)}, [&](const Scope& s, const Output&, const Outputs& v) {
        return Outputs{Mul(s, v[0], ReadVariable(s, handle, DT_DOUBLE))};
      })[0];
  const auto gradients = AddGradients(root_, {{y}}, {{handle}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_TRUE(session().Run({}, {}, {init}).ok());
  // 2 w^3
  EXPECT_DOUBLE_EQ(Value(gradients->at(0), {}).scalar<double>(), 6 * 1.5 * 1.5);
}

TEST_F(LoopGradients, WhatIsInsideOfALoopHasNone) {
  const Output x = Feed("x"), n = Count("n");
  Output inside;
  const Output y = Repeat(root_, n, {x}, [&](const Scope& s, const Output&, const Outputs& v) {
    inside = Mul(s.WithOpName("inside"), v[0], v[0]);
    return Outputs{inside};
  })[0];
  for (const Status& status : {AddGradients(root_, {{inside}}, {{x}}).status(),
                               AddGradients(root_, {{y}}, {{inside}}).status()}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(
        status.message().find("is inside of loop 'while'; take what enters or leaves the loop"),
        std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace monograph
