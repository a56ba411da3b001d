// Branches over a parameter server and two workers, whose tensors and signals may be dead, and
// loops on one of them and on several.
#include <csignal>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

class ControlFlowOnCluster : public ::testing::Test {
 protected:
  ControlFlowOnCluster() : graph_(NewGraph()), root_(&graph_) {}
  Scope On(const char* device) const { return root_.WithDevice(device); }
  Session& session(SessionOptions options = {}) {
    if (session_ == nullptr) {
      EXPECT_TRUE(root_.ok()) << root_.status();
      session_ = cluster_.Connect(graph_, std::move(options));
    }
    return *session_;
  }
  float Value(const Output& of, const Output& feed, float value) {
    const auto values = session().Run({{feed, Tensor::Scalar(value)}}, {of});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0).scalar<float>() : -1e9f;
  }
  // Negates `x` for as long as it is not 0.
  Output WhileNotZero(const char* device, const Output& x) {
    const Outputs end = While(
        On(device), {x},
        [](const Scope& s, const Outputs& v) { return NotEqual(s, v[0], Const(s, 0.0f)); },
        [](const Scope& s, const Outputs& v) { return Outputs{Neg(s, v[0])}; });
    return end.empty() ? Output() : end[0];
  }

  TestCluster cluster_;
  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
};

TEST_F(ControlFlowOnCluster, BranchesRunOnOtherTasksAndOnlyTheOneThatIsTaken) {
  const Scope ps = On(kPs), one = On(kWorker0), two = On(kWorker1);
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output counter = VarHandle(two, DT_FLOAT, {}, "", "counter");
  const Operation init = AssignVariable(two, counter, Const(two, 0.0f));
  const SwitchOutputs split = Switch(ps, x, Less(ps, x, Const(ps, 0.0f)));
  // A tensor that may be dead, to one worker; and a bare signal, to the other.
  const Output negated = Neg(one, split.output_true);
  const Output pivot = Identity(ps, split.output_false);
  const Operation count =
      AssignAddVariable(two.WithControlDependencies({pivot}), counter, Const(two, 1.0f));
  const Output seven = Const(two.WithControlDependencies({count}), 7.0f);
  const MergeOutputs merged = Merge(ps, {seven, negated});
  const Output y = Add(one, merged.output, Const(one, 100.0f));
  const Output counted = ReadVariable(two, counter);
  const Output dead = Neg(two.WithOpName("dead"), seven);
  ASSERT_TRUE(session().Run({}, {}, {init}).ok());
  EXPECT_EQ(Value(y, x, -5.0f), 105.0f);
  EXPECT_EQ(Value(y, x, 5.0f), 107.0f);
  EXPECT_EQ(Value(y, x, -6.0f), 106.0f);
  EXPECT_EQ(Value(counted, x, 0.0f), 1.0f);
  const Status status = session().Run({{x, Tensor::Scalar(-5.0f)}}, {dead}).status();
  ExpectError(status, Code::kInvalidArgument, {"The tensor returned for dead:0 was not valid"});
  EXPECT_EQ(Value(dead, x, 5.0f), -7.0f);
}

TEST_F(ControlFlowOnCluster, ALoopOnATaskIsFedByOthersAndFeedsThem) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs);
  const Output limit = Add(ps, x, Const(ps, 50.0f));
  const Outputs end = While(
      On(kWorker0), {x}, [&](const Scope& s, const Outputs& v) { return Less(s, v[0], limit); },
      [](const Scope& s, const Outputs& v) { return Outputs{Add(s, v[0], Const(s, 7.0f))}; });
  ASSERT_EQ(end.size(), 1u);
  const Output y = Neg(On(kWorker1), end[0]);
  EXPECT_EQ(Value(y, x, 1.0f), -57.0f);
  EXPECT_EQ(Value(y, x, 2.0f), -58.0f);
}

TEST_F(ControlFlowOnCluster, ALoopWithoutEndEndsWithItsTime) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output y = WhileNotZero(kWorker0, x);
  session({.operation_timeout = 1500ms});
  const Status status = session().Run({{x, Tensor::Scalar(1.0f)}}, {y}).status();
  ExpectError(status, Code::kDeadlineExceeded, {"did not end within"});
  EXPECT_EQ(Value(y, x, 0.0f), 0.0f) << "the next step runs";
}

TEST_F(ControlFlowOnCluster, ATaskThatIsKilledInALoopEndsTheStep) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output y = Neg(On(kPs), WhileNotZero(kWorker1, x));
  const Output other = Neg(On(kWorker0), x);
  EXPECT_EQ(Value(y, x, 0.0f), 0.0f);
  std::thread killer([this] {
    std::this_thread::sleep_for(300ms);
    cluster_.daemon("worker", 1).Signal(SIGKILL);
  });
  const Status status = session().Run({{x, Tensor::Scalar(1.0f)}}, {y}).status();
  killer.join();
  ExpectError(status, Code::kUnavailable, {"/job:worker/replica:0/task:1"});
  EXPECT_EQ(Value(other, x, 2.0f), -2.0f);
}

// The loop's variables are i, on the parameter server, and x, on a worker; `body` gives the next x.
Output LoopOnTwo(const Scope& ps, const Scope& worker, const Output& x, float count,
                 const std::function<Output(const Scope&, const Output& i, const Output& x)>& body,
                 int parallel_iterations = 10) {
  const Outputs end = While(
      ps, {Const(ps, 0.0f), Identity(worker, x)},
      [count](const Scope& s, const Outputs& v) { return Less(s, v[0], Const(s, count)); },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{Add(s, v[0], Const(s, 1.0f)), body(s, v[0], v[1])};
      },
      {.parallel_iterations = parallel_iterations});
  return end.empty() ? Output() : end[1];
}

TEST_F(ControlFlowOnCluster, ALoopRunsOnThreeTasks) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs), one = On(kWorker0), two = On(kWorker1);
  // x is on one worker, the next x is computed on the other from i, which is on ps.
  const Output y =
      LoopOnTwo(ps, one, x, 20.0f, [&](const Scope& s, const Output& i, const Output& v) {
        const Output doubled = Mul(s.WithDevice(kWorker1), v, Const(s.WithDevice(kWorker1), 2.0f));
        return Sub(s.WithDevice(kWorker0), doubled, i);
      });
  // 2^20 x - sum(2^(19-k) k)
  float expected = 3.0f;
  for (int i = 0; i < 20; ++i) expected = 2 * expected - static_cast<float>(i);
  for (int run = 0; run < 20; ++run) EXPECT_EQ(Value(y, x, 3.0f), expected);
  EXPECT_EQ(Value(Neg(two, y), x, 3.0f), -expected);
}

TEST_F(ControlFlowOnCluster, ThePredicateOfALoopIsComputedElsewhere) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs);
  const Outputs end = While(
      ps, {x},
      [](const Scope& s, const Outputs& v) {
        const Scope there = s.WithDevice(kWorker0);
        return Less(there, v[0], Const(there, 100.0f));
      },
      [](const Scope& s, const Outputs& v) {
        const Scope there = s.WithDevice(kWorker1);
        return Outputs{Mul(there, v[0], Const(there, 3.0f))};
      });
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(Value(end[0], x, 2.0f), 162.0f);
  EXPECT_EQ(Value(end[0], x, 200.0f), 200.0f) << "no iteration";
  EXPECT_EQ(Value(end[0], x, 1.0f), 243.0f);
}

TEST_F(ControlFlowOnCluster, LoopsOnSeveralTasksNest) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs), one = On(kWorker0);
  // Four times: as many times as i, x becomes 2 x + 1.
  const Output y =
      LoopOnTwo(ps, one, x, 4.0f, [](const Scope& s, const Output& i, const Output& v) {
        const Outputs inner = While(
            s, {Identity(s.WithDevice(kWorker1), i), v},
            [](const Scope& t, const Outputs& w) { return Less(t, Const(t, 0.0f), w[0]); },
            [](const Scope& t, const Outputs& w) {
              const Scope there = t.WithDevice(kWorker0), counts = t.WithDevice(kWorker1);
              const Output twice = Mul(t.WithDevice(kPs), w[1], Const(t.WithDevice(kPs), 2.0f));
              return Outputs{Sub(counts, w[0], Const(counts, 1.0f)),
                             Add(there, twice, Const(there, 1.0f))};
            });
        return inner.empty() ? Output() : inner[1];
      });
  for (int run = 0; run < 20; ++run) EXPECT_EQ(Value(y, x, 1.0f), 127.0f);
}

TEST_F(ControlFlowOnCluster, ABranchInALoopOnSeveralTasks) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs), one = On(kWorker0);
  const Output counter = VarHandle(On(kWorker1), DT_FLOAT, {}, "", "counter");
  const Operation init = AssignVariable(On(kWorker1), counter, Const(On(kWorker1), 0.0f));
  // In odd iterations 10 is added, and in the others worker 1 counts one more.
  const Output y =
      LoopOnTwo(ps, one, x, 7.0f, [&](const Scope& s, const Output& i, const Output& v) {
        const Output half = Floor(s, Mul(s, i, Const(s, 0.5f)));
        const Outputs taken = Cond(
            s, Less(s, Add(s, half, half), i),
            [&](const Scope& t) {
              return Outputs{Add(t.WithDevice(kWorker0), v, Const(t.WithDevice(kWorker0), 10.0f))};
            },
            [&](const Scope& t) {
              const Scope there = t.WithDevice(kWorker1);
              const Operation count = AssignAddVariable(there, counter, Const(there, 1.0f));
              return Outputs{Identity(t.WithDevice(kWorker0).WithControlDependencies({count}), v)};
            });
        return taken.empty() ? Output() : taken[0];
      });
  const Output counted = ReadVariable(On(kWorker1), counter);
  ASSERT_TRUE(session().Run({}, {}, {init}).ok());
  EXPECT_EQ(Value(y, x, 1.0f), 31.0f);
  EXPECT_EQ(Value(counted, x, 0.0f), 4.0f);
}

TEST_F(ControlFlowOnCluster, ALoopOnSeveralTasksInABranch) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Scope ps = On(kPs), one = On(kWorker0);
  const Outputs end = Cond(
      ps, Less(ps, x, Const(ps, 0.0f)), [&](const Scope& s) { return Outputs{Neg(s, x)}; },
      [&](const Scope& s) {
        return Outputs{LoopOnTwo(s, s.WithDevice(kWorker0), x, 5.0f,
                                 [](const Scope& t, const Output& i, const Output& v) {
                                   return Add(t.WithDevice(kWorker0), v, i);
                                 })};
      });
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(Value(end[0], x, 1.0f), 11.0f);
  EXPECT_EQ(Value(end[0], x, -1.0f), 1.0f) << "the loop is dead";
  EXPECT_EQ(Value(end[0], x, 2.0f), 12.0f);
}

TEST_F(ControlFlowOnCluster, AValueThatEntersALoopOnceGoesToOneTask) {
  const Scope ps = On(kPs), one = On(kWorker0);
  const Output enter = EnterLoop(ps, Const(ps, 1.0f), "loop");
  const Output x = Merge(ps, {enter, enter}).output;
  const Output sum = Add(one.WithOpName("sum"), x, enter);
  const Output limit = EnterLoop(ps, Const(ps, 5.0f), "loop", /*is_constant=*/true);
  const SwitchOutputs split = Switch(ps, x, LoopCond(ps, Less(ps, x, limit)));
  graph_.ReplaceInput(x.node(), 1, NextIteration(ps, Add(ps, split.output_true, sum)).endpoint);
  const Output end = ExitLoop(ps, split.output_false);
  ExpectError(session().Run({}, {end}).status(), Code::kInvalidArgument,
              {"'Enter'", "'sum' (Add", "enters loop 'loop'"});
}

TEST_F(ControlFlowOnCluster, ManyIterationsOfALoopOnTwoTasks) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const auto add = [](const Scope& s, const Output& i, const Output& v) {
    return Add(s.WithDevice(kWorker0), v, i);
  };
  const Output y = LoopOnTwo(On(kPs), On(kWorker0), x, 2000.0f, add);
  const Output one_by_one = LoopOnTwo(On(kPs), On(kWorker0), x, 300.0f, add, 1);
  EXPECT_EQ(Value(y, x, 0.0f), 1999000.0f);
  EXPECT_EQ(Value(one_by_one, x, 0.0f), 44850.0f);
}

TEST_F(ControlFlowOnCluster, ATaskThatIsKilledInALoopOnSeveralTasksEndsTheStep) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Outputs end = While(
      On(kPs), {x},
      [](const Scope& s, const Outputs& v) { return NotEqual(s, v[0], Const(s, 0.0f)); },
      [](const Scope& s, const Outputs& v) { return Outputs{Neg(s.WithDevice(kWorker1), v[0])}; });
  ASSERT_EQ(end.size(), 1u);
  const Output other = Neg(On(kWorker0), x);
  EXPECT_EQ(Value(end[0], x, 0.0f), 0.0f);
  std::thread killer([this] {
    std::this_thread::sleep_for(300ms);
    cluster_.daemon("worker", 1).Signal(SIGKILL);
  });
  const auto begin = Clock::now();
  const Status status = session().Run({{x, Tensor::Scalar(1.0f)}}, {end[0]}).status();
  killer.join();
  EXPECT_LT(Clock::now() - begin, 3300ms);
  ExpectError(status, Code::kUnavailable, {"/job:worker/replica:0/task:1"});
  EXPECT_EQ(Value(other, x, 2.0f), -2.0f);
}

TEST_F(ControlFlowOnCluster, ALoopWithoutEndOnSeveralTasksEndsWithItsTime) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Outputs end = While(
      On(kPs), {x},
      [](const Scope& s, const Outputs& v) { return NotEqual(s, v[0], Const(s, 0.0f)); },
      [](const Scope& s, const Outputs& v) { return Outputs{Neg(s.WithDevice(kWorker1), v[0])}; });
  ASSERT_EQ(end.size(), 1u);
  session({.operation_timeout = 1500ms});
  const Status status = session().Run({{x, Tensor::Scalar(1.0f)}}, {end[0]}).status();
  ExpectError(status, Code::kDeadlineExceeded, {"did not end within"});
  EXPECT_EQ(Value(end[0], x, 0.0f), 0.0f) << "the next step runs";
}

}  // namespace
}  // namespace monograph
