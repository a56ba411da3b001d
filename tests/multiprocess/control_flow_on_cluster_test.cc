// Branches over a parameter server and two workers, whose tensors and signals may be dead, and
// loops on one of them.
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

}  // namespace
}  // namespace monograph
