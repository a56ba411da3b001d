// Branches and loops in sessions: what they compute, what a dead tensor is to those who ask for it,
// and that all passes between a graph and its steps keep them.
#include "ops/control_flow/control_flow.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "client/registries.h"
#include "client/session.h"
#include "graph/control_flow.h"
#include "graph/function.h"
#include "graph/gradients.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/stack/stack.h"
#include "ops/variable/variable.h"
#include "tests/client/session_fixture.h"

namespace monograph {
namespace {

// A loop variable that is `merge` in each iteration, `stays` where the loop goes on, and `leaves`
// it.
struct LoopVariable {
  Output enter, merge, stays, leaves;
};

class ControlFlowTest : public LocalSessionTest {
 protected:
  Output Feed(const char* name) { return Placeholder(root_.WithOpName(name), DT_FLOAT, {}); }
  float Value(const Output& of, const std::vector<std::pair<Output, float>>& feeds) {
    const Result<std::vector<Tensor>> values = Run(of, feeds);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0).scalar<float>() : -1e9f;
  }
  Result<std::vector<Tensor>> Run(const Output& of,
                                  const std::vector<std::pair<Output, float>>& feeds) {
    std::vector<std::pair<Output, Tensor>> tensors;
    for (const auto& [feed, value] : feeds) tensors.emplace_back(feed, Tensor::Scalar(value));
    return session().Run(tensors, {of});
  }
  static void ExpectError(const Status& status, Code code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }

  static LoopVariable Begin(const Scope& scope, const Output& x, const char* frame) {
    const Output enter = EnterLoop(scope, x, frame);
    return {enter, Merge(scope, {enter, enter}).output, {}, {}};
  }
  static void Branch(const Scope& scope, const Output& goes_on, LoopVariable* variable) {
    const SwitchOutputs split = Switch(scope, variable->merge, goes_on);
    variable->leaves = ExitLoop(scope, split.output_false);
    variable->stays = Identity(scope, split.output_true);
  }
  static void Close(const Scope& scope, const LoopVariable& variable, const Output& next) {
    const Output back = NextIteration(scope, next);
    if (back.valid()) scope.graph()->ReplaceInput(variable.merge.node(), 1, back.endpoint);
  }
  // x doubled until it is not less than `limit`.
  static Output DoubleUntil(const Scope& scope, const Output& x, const Output& limit,
                            const char* frame) {
    LoopVariable value = Begin(scope, x, frame);
    const Output end = EnterLoop(scope, limit, frame, /*is_constant=*/true);
    Branch(scope, LoopCond(scope, Less(scope, value.merge, end)), &value);
    const Output two = Const(scope.WithControlDependencies({value.stays}), 2.0f);
    Close(scope, value, Mul(scope, value.stays, two));
    return value.leaves;
  }
  // x * 10 if it is less than `limit`, else x - 1.
  static Output TenfoldIfLess(const Scope& scope, const Output& x, const Output& limit) {
    const SwitchOutputs split = Switch(scope, x, Less(scope, x, limit));
    const Scope yes = scope.WithControlDependencies({Identity(scope, split.output_true)}),
                no = scope.WithControlDependencies({Identity(scope, split.output_false)});
    return Merge(scope, {Sub(scope, split.output_false, Const(no, 1.0f)),
                         Mul(scope, split.output_true, Const(yes, 10.0f))})
        .output;
  }
};

TEST_F(ControlFlowTest, ABranchIsTakenByItsPredicate) {
  const Output x = Feed("x"), y = TenfoldIfLess(root_, x, Const(root_, 3.0f));
  EXPECT_EQ(Value(y, {{x, 2.0f}}), 20.0f);
  EXPECT_EQ(Value(y, {{x, 7.0f}}), 6.0f);
}

TEST_F(ControlFlowTest, WhatIsOnTheOtherBranchHasNoEffect) {
  const Output w = VarHandle(root_.WithOpName("w"), DT_FLOAT, {});
  const Operation init = AssignVariable(root_, w, Const(root_, 1.0f));
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(root_, x, Less(root_, x, Const(root_, 0.0f)));
  const Operation add = AssignAddVariable(root_, w, split.output_true);
  const Output value = ReadVariable(root_, w);
  ASSERT_TRUE(session().Run({}, {}, {init}).ok());
  for (const float by : {-2.0f, 5.0f, -3.0f})
    ASSERT_TRUE(session().Run({{x, Tensor::Scalar(by)}}, {}, {add}).ok());
  EXPECT_EQ(Value(value, {}), -4.0f);
}

TEST_F(ControlFlowTest, ADeadTensorCannotBeFetched) {
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(root_, x, Less(root_, x, Const(root_, 0.0f)));
  const Output negative = Neg(root_.WithOpName("negative"), split.output_true);
  EXPECT_EQ(Value(negative, {{x, -2.0f}}), 2.0f);
  ExpectError(Run(negative, {{x, 2.0f}}).status(), Code::kInvalidArgument,
              "The tensor returned for negative:0 was not valid");
  EXPECT_EQ(Value(negative, {{x, -3.0f}}), 3.0f) << "the next step runs";
}

TEST_F(ControlFlowTest, ALoopRunsUntilItsConditionFails) {
  const Output x = Feed("x"), limit = Feed("limit"), y = DoubleUntil(root_, x, limit, "loop");
  EXPECT_EQ(Value(y, {{x, 3.0f}, {limit, 1000.0f}}), 1536.0f);
  EXPECT_EQ(Value(y, {{x, 3.0f}, {limit, 2.0f}}), 3.0f) << "no iteration";
}

TEST_F(ControlFlowTest, LoopsAndBranchesNest) {
  // While less than 1000: doubled until at least 100, then times 10 if less than 150, else less 1.
  const Output x = Feed("x");
  LoopVariable value = Begin(root_, x, "outer");
  const auto inside = [&](float constant) {
    return EnterLoop(root_, Const(root_, constant), "outer", /*is_constant=*/true);
  };
  const Output end = inside(1000.0f);
  Branch(root_, LoopCond(root_, Less(root_, value.merge, end)), &value);
  const Output doubled = DoubleUntil(root_, value.stays, inside(100.0f), "inner");
  Close(root_, value, TenfoldIfLess(root_, doubled, inside(150.0f)));
  EXPECT_EQ(Value(value.leaves, {{x, 4.0f}}), 1280.0f);
  EXPECT_EQ(Value(value.leaves, {{x, 2000.0f}}), 2000.0f);
}

TEST_F(ControlFlowTest, ALoopRunsOnTwoDevices) {
  const Scope one = root_.WithDevice("/device:CPU:0"), two = root_.WithDevice("/device:CPU:1");
  const Output x = Feed("x");
  // While i counts to 5 on one device, y is doubled until it is i^2, and then i less: on the other.
  const Outputs end = While(
      one, {Const(one, 0.0f), x},
      [&](const Scope& s, const Outputs& v) {
        const Output limit = Const(s.WithDevice("/device:CPU:1"), 5.0f);
        return Less(s, v[0], limit);
      },
      [&](const Scope& s, const Outputs& v) {
        const Scope there = s.WithDevice("/device:CPU:1");
        const Outputs inner = While(
            there, {v[1]},
            [&](const Scope& t, const Outputs& w) { return Less(t, w[0], Mul(t, v[0], v[0])); },
            [&](const Scope& t, const Outputs& w) {
              return Outputs{Add(t.WithDevice("/device:CPU:0"), w[0], w[0])};
            });
        return Outputs{Add(s, v[0], Const(s, 1.0f)), Sub(there, inner[0], v[0])};
      });
  ASSERT_EQ(end.size(), 2u);
  session({.device_count = {{kCpu, 2}}});
  EXPECT_EQ(Value(end[1], {{x, 3.0f}}), 22.0f);
  EXPECT_EQ(Value(Neg(two, end[1]), {{x, 3.0f}}), -22.0f);
}

TEST_F(ControlFlowTest, ALoopWithoutEndEndsWithItsTime) {
  const Output x = Feed("x");
  LoopVariable value = Begin(root_, x, "for_ever");
  const Output end = EnterLoop(root_, Const(root_, 1.0f), "for_ever", /*is_constant=*/true);
  Branch(root_, LoopCond(root_, Less(root_, value.merge, end)), &value);
  Close(root_, value, Neg(root_, value.stays));
  session({.operation_timeout = std::chrono::milliseconds(1500)});
  const auto begin = std::chrono::steady_clock::now();
  ExpectError(Run(value.leaves, {{x, 0.0f}}).status(), Code::kDeadlineExceeded,
              "did not end within");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_EQ(Value(value.leaves, {{x, 1.0f}}), 1.0f);
}

TEST_F(ControlFlowTest, WhatLeavesALoopMayBeFedAndWhatIsInsideMayNotBeFetched) {
  const Output x = Feed("x"), y = DoubleUntil(root_, x, Const(root_, 10.0f), "loop");
  const Output z = Neg(root_, y);
  EXPECT_EQ(Value(z, {{y, 5.0f}}), -5.0f);
  EXPECT_EQ(Value(z, {{x, 3.0f}}), -12.0f);
  const Output inside{&graph_, graph_.inputs(y.node())[0]};
  ExpectError(Run(inside, {{x, 3.0f}}).status(), Code::kInvalidArgument,
              "is inside of loop 'loop'");
}

TEST_F(ControlFlowTest, OneSideOfASwitchMayBeFed) {
  const Output x = Feed("x"), pred = Placeholder(root_.WithOpName("pred"), DT_BOOL, {});
  const SwitchOutputs split = Switch(root_, x, pred);
  const Output y = Neg(root_, split.output_true);
  const auto values = session().Run({{split.output_true, Tensor::Scalar(4.0f)}}, {y});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -4.0f);
}

TEST_F(ControlFlowTest, AGraphWithLoopsIsTheSameAfterItWasWrittenAndRead) {
  const Output x = Feed("x");
  const Output y = DoubleUntil(root_.WithOpName("result"), x, Const(root_, 10.0f), "loop");
  const std::string name = y.name();
  auto read = ParseGraph(SerializeGraph(graph_), &graph_.registry());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(SerializeGraph(*read).size(), SerializeGraph(graph_).size());
  auto local = Session::Local(*read, {});
  ASSERT_TRUE(local.ok()) << local.status();
  const auto values = local.value()->RunByName({{"x:0", Tensor::Scalar(3.0f)}}, {name});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 12.0f);
}

TEST_F(ControlFlowTest, EveryLevelOfOptimisationGivesTheSame) {
  const Output x = Feed("x"), y = DoubleUntil(root_, x, Const(root_, 10.0f), "loop");
  const Output same = TenfoldIfLess(root_, y, Add(root_, Const(root_, 6.0f), Const(root_, 7.0f)));
  const Output sum = Add(root_, TenfoldIfLess(root_, y, Const(root_, 13.0f)), same);
  for (const int level : {0, 1, 2}) {
    auto local = Session::Local(graph_, {.optimizer = {.level = level}});
    ASSERT_TRUE(local.ok()) << local.status();
    const auto values = local.value()->Run({{x, Tensor::Scalar(3.0f)}}, {sum});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), 240.0f);
  }
}

TEST_F(ControlFlowTest, ABranchMaySpanDevices) {
  const Scope other = root_.WithDevice("/cpu:1"), here = root_.WithDevice("/cpu:0");
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(here, x, Less(here, x, Const(here, 0.0f)));
  const Output far = Neg(other, split.output_true);
  const Output constant =
      Const(other.WithControlDependencies({Identity(here, split.output_false)}), 3.0f);
  const Output y = Merge(here, {constant, far}).output;
  session({.device_count = {{kCpu, 2}}});
  EXPECT_EQ(Value(y, {{x, -5.0f}}), 5.0f);
  EXPECT_EQ(Value(y, {{x, 5.0f}}), 3.0f);
}

TEST_F(ControlFlowTest, PartsOfALoopThatDisagreeAreAnErrorAndNoHang) {
  const Output x = Feed("x");
  LoopVariable i = Begin(root_, x, "loop"), j = Begin(root_, x, "loop");
  const auto limit = [&](float value) {
    return EnterLoop(root_, Const(root_, value), "loop", /*is_constant=*/true);
  };
  Branch(root_, LoopCond(root_, Less(root_, i.merge, limit(9.0f))), &i);
  Branch(root_, Less(root_, j.merge, limit(2.0f)), &j);
  Close(root_, i, Add(root_, i.stays, j.stays));
  Close(root_, j, Add(root_, j.stays, j.stays));
  const auto values = Run(i.leaves, {{x, 1.0f}});
  if (!values.ok()) {
    EXPECT_EQ(values.status().code(), Code::kInvalidArgument) << values.status();
  }
}

// ---- gradients

TEST_F(ControlFlowTest, GradientsGoThroughTheBranchThatWasTaken) {
  // x^2 if it is less than 3, else 5 x; and x.
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(root_, x, Less(root_, x, Const(root_, 3.0f)));
  const Output y = Add(root_,
                       Merge(root_, {Mul(root_, split.output_false, Const(root_, 5.0f)),
                                     Square(root_, split.output_true)})
                           .output,
                       x);
  const auto gradients = AddGradients(root_, {{y}}, {{x}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(Value(gradients->at(0), {{x, 2.0f}}), 5.0f);
  EXPECT_EQ(Value(gradients->at(0), {{x, 4.0f}}), 6.0f);
}

TEST_F(ControlFlowTest, ABranchWithoutXHasGradientZero) {
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(root_, x, Less(root_, x, Const(root_, 3.0f)));
  const Output constant =
      Const(root_.WithControlDependencies({Identity(root_, split.output_false)}), 7.0f);
  const Output y = Merge(root_, {constant, Square(root_, split.output_true)}).output;
  const auto gradients = AddGradients(root_, {{y}}, {{x}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(Value(gradients->at(0), {{x, 2.0f}}), 4.0f);
  EXPECT_EQ(Value(gradients->at(0), {{x, 4.0f}}), 0.0f);
}

// ---- stacks

TEST_F(ControlFlowTest, AStackGivesBackLastFirstAndGoesWithItsStep) {
  const Output x = Feed("x");
  const Output stack = Stack(root_.WithOpName("s"), DT_FLOAT, Const(root_, -1));
  const Output first = StackPush(root_, stack, x);
  const Scope then = root_.WithControlDependencies({first});
  const Output second = StackPush(then, stack, Neg(root_, x));
  const Output popped = StackPop(root_.WithControlDependencies({second}), stack, DT_FLOAT);
  const Output again = StackPop(root_.WithControlDependencies({popped}), stack, DT_FLOAT);
  const Output more = StackPop(root_.WithControlDependencies({again}), stack, DT_FLOAT);
  EXPECT_EQ(Value(Add(root_, popped, Mul(root_, again, Const(root_, 10.0f))), {{x, 2.0f}}), 18.0f);
  ExpectError(Run(more, {{x, 2.0f}}).status(), Code::kInvalidArgument,
              "Stack[s] is empty when calling Pop().");
  const Operation closed = StackClose(root_.WithControlDependencies({first}), stack);
  const Output late = StackPush(root_.WithControlDependencies({closed}), stack, x);
  ExpectError(Run(late, {{x, 2.0f}}).status(), Code::kInvalidArgument,
              "Stack[s] has already been closed.");
  const Output small = Stack(root_.WithOpName("small"), DT_FLOAT, Const(root_, 0));
  ExpectError(Run(StackPush(root_, small, x), {{x, 2.0f}}).status(), Code::kInvalidArgument,
              "Stack[small] overflowed its max_size (0)");
}

// ---- functions

class ControlFlowInFunctions : public ControlFlowTest {
 protected:
  // A function x -> build(x).
  template <typename Build>
  void Define(const char* name, Build build) {
    auto body = std::make_shared<Graph>(&graph_.registry());
    const Scope scope(body.get());
    const Output x =
        OpBuilder(scope.WithOpName("x"), "_Arg").Attr("T", DT_FLOAT).Attr("index", 0).BuildOutput();
    OpBuilder(scope, "_Retval").Input(build(scope, x)).Attr("index", 0).Build();
    ASSERT_TRUE(scope.ok()) << scope.status();
    auto function = Function::Make(name, body);
    ASSERT_TRUE(function.ok()) << function.status();
    ASSERT_TRUE(graph_.functions().Add(std::move(*function)).ok());
  }
  static Operation Call(const Scope& scope, const char* function, const Output& x) {
    return OpBuilder(scope, "StatefulPartitionedCall")
        .Input(x)
        .Attr("f", FunctionName{function})
        .Attr("Tout", std::vector<DType>{DT_FLOAT})
        .Build();
  }
  // Adds x to the variable "w".
  static Operation AddToVariable(const Scope& scope, const Output& x) {
    return AssignAddVariable(scope, VarHandle(scope, DT_FLOAT, {}, "", "w"), x);
  }
  float Variable() {
    return Value(ReadVariable(root_, VarHandle(root_, DT_FLOAT, {}, "", "w")), {});
  }
  void Initialise() {
    init_ = AssignVariable(root_, VarHandle(root_, DT_FLOAT, {}, "", "w"), Const(root_, 0.0f));
    ASSERT_TRUE(session().Run({}, {}, {init_}).ok());
  }
  Operation init_;
};

TEST_F(ControlFlowInFunctions, ACallOnABranchRunsWithItsBranch) {
  Define("effect", [](const Scope& s, const Output& x) {
    const Operation add = AddToVariable(s, Const(s, 1.0f));
    return Add(s, x, Const(s.WithControlDependencies({add}), 100.0f));
  });
  const Output x = Feed("x");
  const SwitchOutputs split = Switch(root_, x, Less(root_, x, Const(root_, 0.0f)));
  const Operation call = Call(root_, "effect", split.output_true);
  const Output y = Merge(root_, {split.output_false, call.output(0)}).output;
  Initialise();
  EXPECT_EQ(Value(y, {{x, -1.0f}}), 99.0f);
  EXPECT_EQ(Value(y, {{x, 2.0f}}), 2.0f);
  EXPECT_EQ(Variable(), 1.0f);
}

TEST_F(ControlFlowInFunctions, ACallInALoopRunsInEveryIteration) {
  Define("effect", [](const Scope& s, const Output& x) {
    const Operation add = AddToVariable(s, Const(s, 1.0f));
    return Add(s, x, Const(s.WithControlDependencies({add}), 1.0f));
  });
  const Output x = Feed("x");
  LoopVariable value = Begin(root_, x, "loop");
  const Output end = EnterLoop(root_, Const(root_, 10.0f), "loop", /*is_constant=*/true);
  Branch(root_, LoopCond(root_, Less(root_, value.merge, end)), &value);
  Close(root_, value, Call(root_, "effect", value.stays).output(0));
  Initialise();
  EXPECT_EQ(Value(value.leaves, {{x, 3.0f}}), 10.0f);
  EXPECT_EQ(Variable(), 7.0f);
}

TEST_F(ControlFlowInFunctions, TwoCallsOfALoopAreTwoLoops) {
  Define("loop", [](const Scope& s, const Output& x) {
    return DoubleUntil(s, x, Const(s, 100.0f), "loop");
  });
  const Output x = Feed("x");
  const Output y =
      Add(root_, Call(root_, "loop", x).output(0), Call(root_, "loop", Add(root_, x, x)).output(0));
  EXPECT_EQ(Value(y, {{x, 60.0f}}), 240.0f);
}

TEST_F(ControlFlowInFunctions, WhoWaitsForACallWaitsForItsLoopsAndNotForItsDeadBranches) {
  // Adds 1 to the variable until x is 10, and 1000 if x is negative.
  Define("effects", [](const Scope& s, const Output& x) {
    LoopVariable value = Begin(s, x, "loop");
    const Output end = EnterLoop(s, Const(s, 10.0f), "loop", /*is_constant=*/true);
    Branch(s, LoopCond(s, Less(s, value.merge, end)), &value);
    const Output one = Const(s.WithControlDependencies({value.stays}), 1.0f);
    // The handle is a constant of the loop.
    const Output handle = EnterLoop(s, VarHandle(s, DT_FLOAT, {}, "", "w"), "loop", true);
    const Operation add = AssignAddVariable(s, handle, one);
    Close(s, value, Add(s.WithControlDependencies({add}), value.stays, one));
    const SwitchOutputs split = Switch(s, x, Less(s, x, Const(s, 0.0f)));
    const Output thousand =
        Const(s.WithControlDependencies({Identity(s, split.output_true)}), 1000.0f);
    AddToVariable(s, thousand);
    return value.leaves;
  });
  const Output x = Feed("x");
  const Operation call = Call(root_, "effects", x);
  const Output w =
      ReadVariable(root_.WithControlDependencies({call}), VarHandle(root_, DT_FLOAT, {}, "", "w"));
  Initialise();
  EXPECT_EQ(Value(w, {{x, 4.0f}}), 6.0f);
  EXPECT_EQ(Value(w, {{x, -2.0f}}), 1018.0f);
  EXPECT_EQ(Value(w, {{x, 20.0f}}), 1018.0f);
}

// ---- control flow by functions

class FunctionalControlFlow : public ControlFlowInFunctions {
 protected:
  static Operation If(const Scope& scope, const Output& pred, const Output& x, const char* yes,
                      const char* no) {
    return OpBuilder(scope, "If")
        .Input(pred)
        .Inputs(Outputs{x})
        .Attr("then_branch", FunctionName{yes})
        .Attr("else_branch", FunctionName{no})
        .Attr("Tout", std::vector<DType>{DT_FLOAT})
        .Build();
  }
  static Output Loop(const Scope& scope, const Output& x, const char* cond, const char* body) {
    return OpBuilder(scope, "While")
        .Inputs(Outputs{x})
        .Attr("cond", FunctionName{cond})
        .Attr("body", FunctionName{body})
        .BuildOutput();
  }
  // "plus": x + 1 and counts in the variable; "times": x * 10; "small": x < 20.
  void DefineSome() {
    Define("plus", [](const Scope& s, const Output& x) {
      const Operation add = AddToVariable(s, Const(s, 1.0f));
      return Add(s, x, Const(s.WithControlDependencies({add}), 1.0f));
    });
    Define("times", [](const Scope& s, const Output& x) { return Mul(s, x, Const(s, 10.0f)); });
    Define("small", [](const Scope& s, const Output& x) { return Less(s, x, Const(s, 20.0f)); });
  }
};

TEST_F(FunctionalControlFlow, AnIfRunsOneOfItsBranches) {
  DefineSome();
  const Output x = Feed("x"), pred = Less(root_, x, Const(root_, 3.0f));
  const Operation choice = If(root_, pred, x, "plus", "times");
  const Output w = ReadVariable(root_.WithControlDependencies({choice}),
                                VarHandle(root_, DT_FLOAT, {}, "", "w"));
  // A number is true if it is not zero.
  const Output by_number = If(root_, x, x, "times", "plus").output(0);
  Initialise();
  EXPECT_EQ(Value(choice.output(0), {{x, 2.0f}}), 3.0f);
  EXPECT_EQ(Value(choice.output(0), {{x, 4.0f}}), 40.0f);
  EXPECT_EQ(Value(w, {{x, 2.0f}}), 2.0f);
  EXPECT_EQ(Value(w, {{x, 4.0f}}), 2.0f);
  EXPECT_EQ(Value(by_number, {{x, 0.0f}}), 1.0f);
  EXPECT_EQ(Value(by_number, {{x, 0.5f}}), 5.0f);
}

TEST_F(FunctionalControlFlow, AWhileRunsItsBodyAsLongAsItsConditionHolds) {
  DefineSome();
  const Output x = Feed("x"), y = Loop(root_, x, "small", "plus");
  const Output w =
      ReadVariable(root_.WithControlDependencies({y}), VarHandle(root_, DT_FLOAT, {}, "", "w"));
  Initialise();
  EXPECT_EQ(Value(y, {{x, 15.5f}}), 20.5f);
  EXPECT_EQ(Value(y, {{x, 25.0f}}), 25.0f);
  EXPECT_EQ(Value(w, {{x, 18.0f}}), 7.0f);
}

TEST_F(FunctionalControlFlow, TheyNestInFunctionsAndInEachOther) {
  DefineSome();
  // In a loop: x + 1 if x < 5, else x * 10; all in a function that a branch calls.
  Define("less_than_5", [](const Scope& s, const Output& x) {
    return If(s, Less(s, x, Const(s, 5.0f)), x, "plus", "times").output(0);
  });
  Define("loop",
         [](const Scope& s, const Output& x) { return Loop(s, x, "small", "less_than_5"); });
  Define("calls", [](const Scope& s, const Output& x) { return Call(s, "loop", x).output(0); });
  const Output x = Feed("x");
  const Operation choice = If(root_, Less(root_, x, Const(root_, 100.0f)), x, "calls", "times");
  const Output w = ReadVariable(root_.WithControlDependencies({choice}),
                                VarHandle(root_, DT_FLOAT, {}, "", "w"));
  Initialise();
  EXPECT_EQ(Value(choice.output(0), {{x, 2.0f}}), 50.0f);
  EXPECT_EQ(Value(choice.output(0), {{x, 200.0f}}), 2000.0f);
  EXPECT_EQ(Value(w, {{x, 3.0f}}), 5.0f);
}

TEST_F(FunctionalControlFlow, ACaseRunsTheBranchOfItsIndexAndTheLastForAllOthers) {
  DefineSome();
  Define("minus", [](const Scope& s, const Output& x) { return Neg(s, x); });
  const Output x = Feed("x"), index = Placeholder(root_.WithOpName("index"), DT_INT32, {});
  const Output y = OpBuilder(root_, "Case")
                       .Input(index)
                       .Inputs(Outputs{x})
                       .Attr("branches", std::vector<FunctionName>{{"plus"}, {"times"}, {"minus"}})
                       .Attr("Tout", std::vector<DType>{DT_FLOAT})
                       .BuildOutput();
  Initialise();
  const float expected[] = {-4.0f, 5.0f, 40.0f, -4.0f, -4.0f};
  for (int i = -1; i < 4; ++i) {
    const auto values =
        session().Run({{x, Tensor::Scalar(4.0f)}, {index, Tensor::Scalar<int32_t>(i)}}, {y});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<float>(), expected[i + 1]) << i;
  }
}

TEST_F(FunctionalControlFlow, ABranchOfAnotherTypeIsRefused) {
  DefineSome();
  const Output x = Feed("x");
  const Output y = If(root_, Less(root_, x, x), x, "plus", "small").output(0);
  Result<std::unique_ptr<Session>> local = Session::Local(graph_, {});
  const Status status =
      local.ok() ? local.value()->Run({{x, Tensor::Scalar(1.0f)}}, {y}).status() : local.status();
  ExpectError(status, Code::kInvalidArgument,
              "calls function 'small', whose result 0 is of type bool, not float");
}

// Nodes of a function that take one type would read another's bytes.
TEST_F(FunctionalControlFlow, AFunctionThatTakesOrGivesAnotherTypeIsRefused) {
  DefineSome();
  const Output yes = Const(root_, Tensor::Scalar(true)), number = Const(root_, 1);
  const auto expect = [](const Output& result, const char* text) {
    ExpectError(
        InlineFunctions(*result.graph, [&](NodeId id) { return id == result.node(); }).status(),
        Code::kInvalidArgument, text);
  };
  const char kArgument[] = "calls function 'times', whose argument 0 is of type float, not int32";
  expect(If(root_, yes, number, "times", "times").output(0), kArgument);
  expect(Loop(root_, number, "small", "times"),
         "calls function 'small', whose argument 0 is of type float, not int32");
  const auto one_of = [&](const Output& x, DType type) {
    return OpBuilder(root_, "Case")
        .Input(Const(root_, 0))
        .Inputs(Outputs{x})
        .Attr("branches", std::vector<FunctionName>{FunctionName{"times"}})
        .Attr("Tout", std::vector<DType>{type})
        .BuildOutput();
  };
  expect(one_of(number, DT_FLOAT), kArgument);
  expect(one_of(Feed("x"), DT_DOUBLE),
         "calls function 'times', whose result 0 is of type float, not double");
}

TEST_F(FunctionalControlFlow, ACaseMayHaveMoreBranchesThanAStackHasRoomFor) {
  DefineSome();
  const std::vector<FunctionName> branches(20'000, FunctionName{"times"});
  OpBuilder(root_, "Case")
      .Input(Const(root_, 0))
      .Inputs(Outputs{Feed("x")})
      .Attr("branches", branches)
      .Attr("Tout", std::vector<DType>{DT_FLOAT})
      .Build();
  ASSERT_TRUE(root_.ok()) << root_.status();
  const auto flat = InlineFunctions(graph_);
  EXPECT_TRUE(flat.ok()) << flat.status();
}

TEST_F(ControlFlowTest, ConditionsOfBranchesInBranchesAreBounded) {
  Output x = Feed("x");
  for (int i = 0; i < 6000; ++i) {
    const Output side = OpBuilder(root_, "Placeholder")
                            .Attr("dtype", DT_BOOL)
                            .Attr("shape", PartialShape{})
                            .BuildOutput();
    x = Switch(root_, x, side).output_true;
  }
  ASSERT_TRUE(root_.ok()) << root_.status();
  ExpectError(FindControlFlow(graph_).status(), Code::kInvalidArgument,
              "so many branches lie in each other");
}

TEST_F(FunctionalControlFlow, ALoopWhoseBodyIsNotThereIsRefused) {
  DefineSome();
  const Output x = Feed("x"), y = Loop(root_, x, "small", "nowhere");
  Result<std::unique_ptr<Session>> local = Session::Local(graph_, {});
  const Status status =
      local.ok() ? local.value()->Run({{x, Tensor::Scalar(1.0f)}}, {y}).status() : local.status();
  ExpectError(status, Code::kInvalidArgument, "calls function 'nowhere'");
}

// ---- Cond, Case and While

TEST_F(ControlFlowTest, CondBuildsWhatABranchUsesOfTheGraphIntoIt) {
  const Output x = Feed("x"), z = Feed("z");
  const Outputs y = Cond(
      root_, Less(root_, x, z),
      [&](const Scope& s) {
        return Outputs{Add(s, x, Const(s, 1.0f)), z};
      },
      [&](const Scope& s) {
        return Outputs{Const(s, -1.0f), Mul(s, x, z)};
      });
  ASSERT_EQ(y.size(), 2u) << root_.status();
  EXPECT_EQ(Value(y[0], {{x, 2.0f}, {z, 3.0f}}), 3.0f);
  EXPECT_EQ(Value(y[1], {{x, 2.0f}, {z, 3.0f}}), 3.0f);
  EXPECT_EQ(Value(y[0], {{x, 4.0f}, {z, 3.0f}}), -1.0f);
  EXPECT_EQ(Value(y[1], {{x, 4.0f}, {z, 3.0f}}), 12.0f);
}

TEST_F(ControlFlowTest, CaseBuildsTheBranchOfItsIndexAndTheLastForAllOthersWithGradients) {
  const Output x = Feed("x"), index = Placeholder(root_.WithOpName("index"), DT_INT32, {});
  const Outputs y = Case(root_, index,
                         {[&](const Scope& s) { return Outputs{Mul(s, x, x)}; },
                          [&](const Scope& s) { return Outputs{Add(s, x, Const(s, 1.0f))}; },
                          [&](const Scope& s) { return Outputs{Neg(s, x)}; }});
  ASSERT_EQ(y.size(), 1u) << root_.status();
  const Result<Outputs> slope = AddGradients(root_, y, Outputs{x});
  ASSERT_TRUE(slope.ok()) << slope.status();
  const float values[] = {-3, 9, 4, -3, -3}, slopes[] = {-1, 6, 1, -1, -1};
  for (int i = -1; i < 4; ++i) {
    const auto got = session().Run({{x, Tensor::Scalar(3.0f)}, {index, Tensor::Scalar(i)}},
                                   {y[0], slope->at(0)});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->at(0).scalar<float>(), values[i + 1]) << i;
    EXPECT_EQ(got->at(1).scalar<float>(), slopes[i + 1]) << i;
  }
  const Scope bad = root_.SubScope("bad");
  EXPECT_TRUE(Case(bad, index, {}).empty());
  ExpectError(bad.status(), Code::kInvalidArgument, "Case: there is no branch");
}

TEST_F(ControlFlowTest, WhileBuildsLoopsInLoopsAndInBranches) {
  // The sum of i * j for i < n, j < i, where i * j is less than z.
  const Output n = Feed("n"), z = Feed("z");
  const auto zero = Const(root_, 0.0f);
  const Outputs end = While(
      root_, {zero, zero}, [&](const Scope& s, const Outputs& v) { return Less(s, v[0], n); },
      [&](const Scope& s, const Outputs& v) {
        const Output i = v[0];
        const Outputs inner = While(
            s, {Const(s, 0.0f), v[1]},
            [&](const Scope& t, const Outputs& w) { return Less(t, w[0], i); },
            [&](const Scope& t, const Outputs& w) {
              const Output product = Mul(t, i, w[0]);
              const Outputs sum = Cond(
                  t, Less(t, product, z),
                  [&](const Scope& u) { return Outputs{Add(u, w[1], product)}; },
                  [&](const Scope&) { return Outputs{w[1]}; });
              return Outputs{Add(t, w[0], Const(t, 1.0f)), sum[0]};
            });
        return Outputs{Add(s, i, Const(s, 1.0f)), inner[1]};
      });
  ASSERT_EQ(end.size(), 2u) << root_.status();
  float expected = 0;
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < i; ++j) expected += i * j < 15 ? static_cast<float>(i * j) : 0.0f;
  EXPECT_EQ(Value(end[1], {{n, 7.0f}, {z, 15.0f}}), expected);
  EXPECT_EQ(Value(end[1], {{n, 0.0f}, {z, 15.0f}}), 0.0f);
}

TEST_F(ControlFlowTest, ALoopWaitsForWhatItsScopeWaitsFor) {
  const Output w = VarHandle(root_.WithOpName("w"), DT_FLOAT, {});
  const Operation assign = AssignVariable(root_, w, Const(root_, 5.0f));
  const Outputs end = While(
      root_.WithControlDependencies({assign}), {Const(root_, 0.0f)},
      [&](const Scope& s, const Outputs& v) { return Less(s, v[0], ReadVariable(s, w)); },
      [&](const Scope& s, const Outputs& v) { return Outputs{Add(s, v[0], Const(s, 2.0f))}; });
  ASSERT_EQ(end.size(), 1u) << root_.status();
  EXPECT_EQ(Value(end[0], {}), 6.0f);
}

TEST_F(ControlFlowTest, AVariableOfALoopKeepsTypeAndShape) {
  const auto error = [](const Output& start, const std::function<Output(const Scope&)>& next,
                        const WhileOptions& options = {}) {
    Scope scope(start.graph);
    While(
        scope, {start},
        [](const Scope& s, const Outputs&) { return Const(s, Tensor::Scalar(false)); },
        [&](const Scope& s, const Outputs&) { return Outputs{next(s)}; }, options);
    return scope.status().message();
  };
  const Output x = Const(root_, {1.0f, 2.0f});
  EXPECT_NE(error(x, [](const Scope& s) { return Const(s, 3); }).find("variable 0 is float"),
            std::string::npos);
  const auto three = [](const Scope& s) { return Const(s, {1.0f, 2.0f, 3.0f}); };
  EXPECT_NE(error(x, three).find("enters the loop with shape [2], but has shape [3] after one"),
            std::string::npos);
  EXPECT_EQ(error(x, three, {.shapes = {PartialShape({-1})}}), "");
}

TEST_F(ControlFlowTest, GradientsOfCondGoToWhatItsBranchesUse) {
  const Output x = Feed("x"), z = Feed("z");
  const Outputs y = Cond(
      root_, Less(root_, x, z), [&](const Scope& s) { return Outputs{Mul(s, x, Mul(s, x, z))}; },
      [&](const Scope&) { return Outputs{z}; });
  ASSERT_EQ(y.size(), 1u) << root_.status();
  const auto gradients = AddGradients(root_, {{y[0]}}, {{x, z}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(Value(gradients->at(0), {{x, 2.0f}, {z, 3.0f}}), 12.0f);
  EXPECT_EQ(Value(gradients->at(1), {{x, 2.0f}, {z, 3.0f}}), 4.0f);
  EXPECT_EQ(Value(gradients->at(0), {{x, 5.0f}, {z, 3.0f}}), 0.0f);
  EXPECT_EQ(Value(gradients->at(1), {{x, 5.0f}, {z, 3.0f}}), 1.0f);
}

// ---- GraphDefs

class ControlFlowOfGraphDefs : public ControlFlowTest {
 protected:
  // x, less = x < 10, and `nodes`; what a step says that fetches `fetch`.
  std::string ErrorOf(const std::string& nodes, const std::string& fetch) {
    GraphDef def;
    const std::string text = R"(
      versions { producer: 27 }
      node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
      node { name: "ten" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
             attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 10 tensor_shape {} } } } }
      node { name: "less" op: "Less" input: "x" input: "ten"
             attr { key: "T" value { type: DT_FLOAT } } }
      node { name: "loop" op: "Enter" input: "x" attr { key: "T" value { type: DT_FLOAT } }
             attr { key: "frame_name" value { s: "loop" } } }
    )" + nodes;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def)) << text;
    auto graph = GraphFromDef(def, &graph_.registry());
    if (!graph.ok()) return graph.status().ToString();
    auto local = Session::Local(*graph, {});
    EXPECT_TRUE(local.ok()) << local.status();
    const auto values = local.value()->RunByName({{"x:0", Tensor::Scalar(3.0f)}}, {fetch});
    return values.status().ToString();
  }
  static std::string Node(const std::string& name, const std::string& op,
                          const std::vector<std::string>& inputs, const std::string& attrs = "") {
    std::string text = "node { name: '" + name + "' op: '" + op + "' ";
    for (const std::string& input : inputs) text += "input: '" + input + "' ";
    return text + "attr { key: 'T' value { type: DT_FLOAT } } " + attrs + "}\n";
  }
  static std::string MergeNode(const std::string& name, const std::vector<std::string>& inputs) {
    return Node(name, "Merge", inputs,
                "attr { key: 'N' value { i: " + std::to_string(inputs.size()) + " } }");
  }
};

TEST_F(ControlFlowOfGraphDefs, ALoopMayStandInAnyOrder) {
  EXPECT_EQ(
      ErrorOf(
          Node("out", "Exit", {"split"}) + Node("split", "Switch", {"merge", "on"}) +
              "node { name: 'on' op: 'LoopCond' input: 'small' }" +
              Node("small", "Less", {"merge", "end"}) + Node("next", "NextIteration", {"more"}) +
              Node("more", "AddV2", {"split:1", "split:1"}) + MergeNode("merge", {"loop", "next"}) +
              Node("end", "Enter", {"ten"},
                   "attr { key: 'frame_name' value { s: 'loop' } } "
                   "attr { key: 'is_constant' value { b: true } }"),
          "out:0"),
      "OK");
}

TEST_F(ControlFlowOfGraphDefs, ACycleThatIsNoLoopIsRefused) {
  const std::string error =
      ErrorOf(MergeNode("merge", {"loop", "more"}) + Node("more", "Neg", {"merge"}), "more:0");
  EXPECT_NE(error.find("the graph has a cycle: "), std::string::npos) << error;
}

TEST_F(ControlFlowOfGraphDefs, ALoopThatNothingEntersIsRefused) {
  const std::string error =
      ErrorOf(MergeNode("merge", {"next"}) + Node("next", "NextIteration", {"merge"}), "merge:0");
  EXPECT_EQ(error,
            "INVALID_ARGUMENT: node 'merge' (Merge): nothing enters this loop, all inputs come "
            "from it");
}

TEST_F(ControlFlowOfGraphDefs, AnExitOutsideOfALoopIsRefused) {
  const std::string error = ErrorOf(Node("out", "Exit", {"x"}), "out:0");
  EXPECT_NE(error.find("'out' (Exit)"), std::string::npos) << error;
  EXPECT_NE(error.find("is in no loop"), std::string::npos) << error;
}

TEST_F(ControlFlowOfGraphDefs, InputsFromDifferentFramesAreRefused) {
  const std::string error =
      ErrorOf(Node("sum", "AddV2", {"loop", "x"}) + Node("out", "Exit", {"sum"}), "out:0");
  EXPECT_NE(error.find("'sum' (AddV2) has inputs from different frames: 'loop' comes from loop "
                       "'loop', 'x' from no loop"),
            std::string::npos)
      << error;
}

TEST_F(ControlFlowOfGraphDefs, OneLoopEnteredFromTwoIsRefused) {
  const std::string error =
      ErrorOf(Node("inner", "Enter", {"loop"}, "attr { key: 'frame_name' value { s: 'loop' } }") +
                  Node("in", "Exit", {"inner"}) + Node("out", "Exit", {"in"}),
              "out:0");
  EXPECT_NE(error.find("loops of one name are one loop"), std::string::npos) << error;
}

TEST_F(ControlFlowOfGraphDefs, ABackEdgeOfAnotherTypeIsRefused) {
  const std::string error = ErrorOf(
      MergeNode("merge", {"loop", "next"}) +
          "node { name: 'next' op: 'NextIteration' input: 'inner' attr { key: 'T' value { type: "
          "DT_BOOL } } } node { name: 'inner' op: 'Enter' input: 'less' attr { key: 'T' value { "
          "type: DT_BOOL } } attr { key: 'frame_name' value { s: 'loop' } } }",
      "merge:0");
  EXPECT_NE(error.find("node 'merge' (Merge): input 1 must be float"), std::string::npos) << error;
}

TEST_F(ControlFlowOfGraphDefs, APredicateThatIsNoScalarIsRefused) {
  const std::string vector =
      "node { name: 'yes' op: 'Const' attr { key: 'dtype' value { type: DT_BOOL } } attr { key: "
      "'value' value { tensor { dtype: DT_BOOL bool_val: true tensor_shape { dim { size: 2 } } } } "
      "} }";
  const std::string error = ErrorOf(vector + Node("split", "Switch", {"x", "yes"}), "split:1");
  EXPECT_EQ(error.find("INVALID_ARGUMENT"), 0u) << error;
  EXPECT_NE(error.find("'split'"), std::string::npos) << error;
}

TEST_F(ControlFlowOfGraphDefs, AnUnknownOpInABranchOrALoopFailsTheStepsThatNeedIt) {
  const std::string nodes = R"(
    node { name: 'made' op: 'Mystery' }
    node { name: 'branch' op: 'StatelessIf' input: 'less' input: 'x'
           attr { key: 'Tcond' value { type: DT_BOOL } }
           attr { key: 'Tin' value { list { type: DT_FLOAT } } }
           attr { key: 'Tout' value { list { type: DT_FLOAT } } }
           attr { key: 'then_branch' value { func { name: 'asks' } } }
           attr { key: 'else_branch' value { func { name: 'same' } } } }
    node { name: 'while' op: 'StatelessWhile' input: 'less' input: 'made'
           attr { key: 'T' value { list { type: [DT_BOOL, DT_FLOAT] } } }
           attr { key: 'cond' value { func { name: 'first' } } }
           attr { key: 'body' value { func { name: 'ends' } } } }
    library {
      function { signature { name: 'same' input_arg { name: 'a' type: DT_FLOAT }
                             output_arg { name: 'y' type: DT_FLOAT } }
                 ret { key: 'y' value: 'a' } }
      function { signature { name: 'asks' input_arg { name: 'a' type: DT_FLOAT }
                             output_arg { name: 'y' type: DT_FLOAT } }
                 node_def { name: 'q' op: 'Riddle' input: 'a' } ret { key: 'y' value: 'q:o:0' } }
      function { signature { name: 'first' input_arg { name: 'on' type: DT_BOOL }
                             input_arg { name: 'a' type: DT_FLOAT }
                             output_arg { name: 'y' type: DT_BOOL } }
                 ret { key: 'y' value: 'on' } }
      function { signature { name: 'ends' input_arg { name: 'on' type: DT_BOOL }
                             input_arg { name: 'a' type: DT_FLOAT }
                             output_arg { name: 'no' type: DT_BOOL }
                             output_arg { name: 'y' type: DT_FLOAT } }
                 node_def { name: 'not' op: 'LogicalNot' input: 'on' }
                 node_def { name: 'minus' op: 'Neg' input: 'a'
                            attr { key: 'T' value { type: DT_FLOAT } } }
                 ret { key: 'no' value: 'not:y:0' } ret { key: 'y' value: 'minus:y:0' } }
    })";
  EXPECT_EQ(ErrorOf(nodes, "less:0"), "OK");
  const std::string branch = ErrorOf(nodes, "branch:0"), loop = ErrorOf(nodes, "while:1");
  EXPECT_NE(branch.find("op 'Riddle' is not registered"), std::string::npos) << branch;
  EXPECT_NE(loop.find("op 'Mystery' is not registered"), std::string::npos) << loop;
}

TEST_F(ControlFlowOfGraphDefs, FormsForReferencesAreThoseForValues) {
  EXPECT_EQ(
      ErrorOf(Node("split", "RefSwitch", {"x", "less"}) +
                  Node("out", "RefMerge", {"split", "split:1"}, "attr { key: 'N' value { i: 2 } }"),
              "out:0"),
      "OK");
}

}  // namespace
}  // namespace monograph
