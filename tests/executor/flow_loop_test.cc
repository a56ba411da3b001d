// Plans with control flow: branches, dead nodes, loops in loops, a task's share of a loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include "executor/step/dead_tensor.h"
#include "executor/trace.h"
#include "graph/control_flow.h"
#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::Collector;
using testing::RunStep;
using testing::StartStep;
using testing::TestTask;
using Sent = std::map<int32_t, float>;

// By inter-op threads, whether the starting thread computes, and parallel_iterations.
class FlowLoopTest : public ::testing::TestWithParam<std::tuple<int, bool, int>> {
 protected:
  FlowLoopTest() : task_(std::get<0>(GetParam())), graph_(task_.NewGraph()), b_(&graph_) {}

  Result<Sent> Run(const Sent& feeds = {}) {
    auto plan = task_.Compile(graph_);
    if (!plan.ok()) return plan.status();
    Result<Sent> first = RunStep(*plan, feeds, 1, std::get<1>(GetParam()));
    // The plan's memory is used again.
    for (int i = 0; i < 20; ++i) {
      Result<Sent> again = RunStep(*plan, feeds, 1, std::get<1>(GetParam()));
      EXPECT_EQ(again.ok(), first.ok());
      if (first.ok() && again.ok()) {
        EXPECT_EQ(*again, *first);
      }
    }
    return first;
  }

  Endpoint Enter(Endpoint x, const char* frame, bool constant = false) {
    return b_.Op("TEnter", {x},
                 {{"frame_name", std::string(frame)},
                  {"is_constant", constant},
                  {"parallel_iterations", int64_t{std::get<2>(GetParam())}}});
  }
  // A loop variable: its Merge, which is closed by Close.
  struct Variable {
    Endpoint merge, stays, leaves;
  };
  Variable Begin(Endpoint x, const char* frame) {
    const Endpoint enter = Enter(x, frame);
    return {b_.Op("TMerge", {enter, enter}), {}, {}};
  }
  void Branch(Variable* variable, Endpoint goes_on) {
    const NodeId split = b_.Add("TSwitch", {variable->merge, goes_on});
    variable->leaves = b_.Op("TExit", {Endpoint{split, 0}});
    variable->stays = {split, 1};
  }
  void Close(const Variable& variable, Endpoint next) {
    graph_.ReplaceInput(variable.merge.node, 1, b_.Op("TNext", {next}));
  }
  // Counts from `x` on, in steps of one, until `limit` is reached.
  Endpoint Count(Endpoint x, Endpoint limit, const char* frame) {
    const Endpoint end = Enter(limit, frame, true);
    Variable i = Begin(x, frame);
    Branch(&i, b_.Op("TLoopCond", {b_.Op("TLess", {i.merge, end})}));
    Close(i, b_.Op("TInc", {i.stays}));
    return i.leaves;
  }

  TestTask task_;
  Graph graph_;
  Builder b_;
};

INSTANTIATE_TEST_SUITE_P(Threads, FlowLoopTest,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool(),
                                            ::testing::Values(1, 2, 32)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) ? "_inline_" : "_") +
                                  std::to_string(std::get<2>(tested.param));
                         });

TEST_P(FlowLoopTest, ABranchThatIsNotTakenDoesNotRun) {
  const Endpoint x = b_.Const(3);
  const NodeId split = b_.Add("TSwitch", {x, b_.Op("TLess", {x, b_.Recv(1)})});
  const Endpoint no = b_.Op("TIncSlow", {b_.Op("TInc", {Endpoint{split, 0}})});
  const Endpoint yes = b_.Op("TInc", {Endpoint{split, 1}});
  b_.Add("TFail", {}, {{"message", std::string("ran")}},
         {b_.Op("TInc", {Endpoint{split, 0}}).node});
  b_.Send(7, b_.Op("TMerge", {no, yes}));
  EXPECT_EQ(Run({{1, 5.0f}}).value(), (Sent{{7, 4.0f}}));
  EXPECT_EQ(Run({{1, 1.0f}}).status().code(), Code::kOutOfRange);
}

TEST_P(FlowLoopTest, AMergeWaitsForWhatItWaitsForAlsoIfThatIsDead) {
  const Endpoint x = b_.Const(3);
  const NodeId split = b_.Add("TSwitch", {x, b_.Op("TLess", {x, b_.Const(5)})});
  const Endpoint dead = b_.Op("TIncSlow", {Endpoint{split, 0}});
  b_.Send(7, b_.Op("TMerge", {Endpoint{split, 0}, Endpoint{split, 1}}, {}, {dead.node}));
  const NodeId trigger = b_.Add("TTrigger", {}, {}, {dead.node});
  b_.Send(8, b_.Const(2, {trigger}));
  EXPECT_EQ(Run().value(), (Sent{{7, 3.0f}, {8, 2.0f}}));
}

TEST_P(FlowLoopTest, ADeadTensorThatLeavesIsAnError) {
  const Endpoint x = b_.Const(3);
  const NodeId split = b_.Add("TSwitch", {x, b_.Op("TLess", {x, b_.Const(5)})});
  b_.Send(7, b_.Op("TInc", {Endpoint{split, 0}}));
  const Status status = Run().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("was not valid"), std::string::npos) << status;
}

TEST_P(FlowLoopTest, ALoopRunsUntilItsConditionFails) {
  b_.Send(7, b_.Op("TInc", {Count(b_.Const(0), b_.Recv(1), "loop")}));
  EXPECT_EQ(Run({{1, 1000.0f}}).value(), (Sent{{7, 1001.0f}}));
  EXPECT_EQ(Run({{1, 0.0f}}).value(), (Sent{{7, 1.0f}})) << "no iteration";
}

TEST_P(FlowLoopTest, ATraceSaysWhatANodeBehindALoopHasWaitedFor) {
  const Endpoint limit = b_.Const(3);
  const Endpoint begin = b_.Op("TIncSlow", {b_.Const(0)}, {}, {limit.node});
  const Endpoint count = Count(begin, limit, "loop");
  b_.Send(7, b_.Op("TIncSlow", {count}));
  const auto plan = task_.Compile(graph_).value();
  StepTrace trace;
  ASSERT_TRUE(RunStep(plan, {}, 1, std::get<1>(GetParam()), &trace).ok());
  const std::vector<TraceEvent> events = trace.Events();
  std::map<int32_t, const TraceEvent*> by_id;
  for (const TraceEvent& event : events) by_id[event.id] = &event;
  std::vector<std::string> way;  // backwards from what is sent
  for (const TraceEvent& event : events) {
    if (event.kind != TraceKind::kSend) continue;
    for (const TraceEvent* at = &event; at != nullptr;
         at = at->after < 0 ? nullptr : by_id.at(at->after))
      way.push_back(at->op);
  }
  EXPECT_EQ(way, (std::vector<std::string>{"_Send", "TIncSlow", "TLess", "TIncSlow", "TConst"}));
}

TEST_P(FlowLoopTest, ALoopWithinALoop) {
  // for (i = 0; i < 20; ++i) for (j = s; j < s + i; ++j); s = j
  const Endpoint end = Enter(b_.Const(20), "outer", true);
  Variable i = Begin(b_.Const(0), "outer"), sum = Begin(b_.Const(0), "outer");
  const Endpoint goes_on = b_.Op("TLoopCond", {b_.Op("TLess", {i.merge, end})});
  Branch(&i, goes_on);
  Branch(&sum, goes_on);
  const Endpoint limit = b_.Op("TAdd", {sum.stays, i.stays});
  Close(sum, Count(sum.stays, limit, "inner"));
  Close(i, b_.Op("TIncSlow", {i.stays}));
  b_.Send(7, sum.leaves);
  EXPECT_EQ(Run().value(), (Sent{{7, 190.0f}}));
}

TEST_P(FlowLoopTest, ALoopOnABranchThatIsNotTakenIsDead) {
  const Endpoint x = b_.Const(3);
  const NodeId split = b_.Add("TSwitch", {x, b_.Op("TLess", {x, b_.Recv(1)})});
  const Endpoint counted = Count(Endpoint{split, 1}, b_.Op("TInc", {Endpoint{split, 1}}), "loop");
  b_.Send(7, b_.Op("TMerge", {Endpoint{split, 0}, b_.Op("TInc", {counted})}));
  EXPECT_EQ(Run({{1, 5.0f}}).value(), (Sent{{7, 5.0f}}));
  EXPECT_EQ(Run({{1, 1.0f}}).value(), (Sent{{7, 3.0f}}));
}

TEST_P(FlowLoopTest, AnErrorInALoopEndsTheStep) {
  const Endpoint x = b_.Const(0);
  const Endpoint end = Enter(b_.Const(50), "loop", true),
                 middle = Enter(b_.Const(20), "loop", true);
  Variable i = Begin(x, "loop");
  Branch(&i, b_.Op("TLoopCond", {b_.Op("TLess", {i.merge, end})}));
  const NodeId split = b_.Add("TSwitch", {i.stays, b_.Op("TLess", {i.stays, middle})});
  b_.Add("TFail", {}, {{"message", std::string("twenty")}},
         {b_.Op("TInc", {Endpoint{split, 0}}).node});
  Close(i, b_.Op("TInc", {i.stays}));
  b_.Send(7, i.leaves);
  EXPECT_EQ(Run().status().code(), Code::kOutOfRange);
}

TEST_P(FlowLoopTest, ALoopWithoutEndIsAborted) {
  const Endpoint x = b_.Const(0);
  Variable i = Begin(x, "loop");
  Branch(&i, b_.Op("TLoopCond",
                   {b_.Op("TLess", {Enter(x, "loop", true), Enter(b_.Const(1), "loop", true)})}));
  Close(i, b_.Op("TGate", {i.stays}, {{"gate", std::string("gate")}}));
  b_.Send(7, i.leaves);
  auto plan = task_.Compile(graph_).value();
  task_.gate("gate");
  Collector collector;
  auto step = StartStep(plan, &collector, collector.done());
  EXPECT_TRUE(task_.gate("gate")->WaitForArrivals(1));
  step->Abort(Cancelled("enough"));
  EXPECT_EQ(collector.Wait().code(), Code::kCancelled);
}

TEST_P(FlowLoopTest, AsynchronousKernelsRunInLoops) {
  task_.gate("gate")->Open();
  const Endpoint end = Enter(b_.Const(100), "loop", true);
  Variable i = Begin(b_.Const(0), "loop");
  Branch(&i, b_.Op("TLoopCond", {b_.Op("TLess", {i.merge, end})}));
  Close(i, b_.Op("TInc", {i.stays}));
  b_.Send(7, i.leaves);
  b_.Op("TGate", {i.stays}, {{"gate", std::string("gate")}});
  EXPECT_EQ(Run().value(), (Sent{{7, 100.0f}}));
}

TEST_P(FlowLoopTest, PartsOfALoopThatDisagreeAreAnErrorAndNoHang) {
  const Endpoint x = b_.Const(0);
  Variable i = Begin(x, "loop"), j = Begin(x, "loop");
  Branch(&i, b_.Op("TLoopCond", {b_.Op("TLess", {i.merge, Enter(b_.Const(5), "loop", true)})}));
  Branch(&j, b_.Op("TLess", {j.merge, Enter(b_.Const(2), "loop", true)}));
  const Endpoint both = b_.Op("TAdd", {i.stays, j.stays});
  Close(i, b_.Op("TInc", {i.stays}));
  Close(j, b_.Op("TInc", {both}));
  b_.Send(7, i.leaves);
  EXPECT_EQ(Run().value(), (Sent{{7, 5.0f}}));
}

TEST_P(FlowLoopTest, WhatDoesNotEnterALoopIsRefused) {
  const Endpoint x = b_.Const(0);
  Variable i = Begin(x, "loop");
  b_.Op("TAdd", {i.merge, x});
  const Status status = task_.Compile(graph_).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("different frames"), std::string::npos) << status;
}

// ---- a task's share of a loop that spans tasks

// What a step has sent from a loop: by iteration the value, or -1 if it was dead.
class LoopSink : public StepSink {
 public:
  void OnSend(uint64_t, const EdgeInfo& edge, Tensor tensor, uint64_t iteration) override {
    EXPECT_TRUE(edge.in_loop);
    std::lock_guard lock(mutex_);
    const float value = IsDead(tensor) ? -1.0f : tensor.scalar<float>();
    EXPECT_TRUE(sent_.emplace(iteration, value).second) << "sent twice";
  }
  std::map<uint64_t, float> sent() {
    std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, float> sent_;
};

// As the partitioner makes it: the loop goes on while what edge 1 brings is less than 1, edge 2
// brings an x, and edge 3 takes x + 1 away.
class LoopShareTest : public FlowLoopTest {
 protected:
  LoopShareTest() {
    Variable control = Begin(b_.Const(0), "loop");
    const NodeId merge = control.merge.node;
    const Endpoint one = Enter(b_.Const(1), "loop", true);
    const Endpoint goes_on = b_.Op("TLess", {MayBeDead(b_.Recv(1, {merge}).node), one});
    const NodeId split = b_.Add("TSwitch", {control.merge, goes_on});
    Close(control, {split, 1});
    MayBeDead(b_.Send(3, b_.Op("TInc", {MayBeDead(b_.Recv(2, {merge}).node)})));
  }
  Endpoint MayBeDead(NodeId id) {
    Attrs attrs = graph_.attrs(id);
    attrs.Set(std::string(kMayBeDead), true);
    graph_.SetAttrs(id, std::make_shared<const Attrs>(std::move(attrs)));
    return {id, 0};
  }
  std::shared_ptr<Step> Prepare() {
    auto plan = task_.Compile(graph_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return StepExecutor::Prepare(*plan, 1, &sink_, collector_.done());
  }
  static Tensor GoesOn(bool on) { return Tensor::Scalar(on ? 0.0f : 2.0f); }

  LoopSink sink_;
  Collector collector_;
};

INSTANTIATE_TEST_SUITE_P(Threads, LoopShareTest,
                         ::testing::Combine(::testing::Values(1, 4), ::testing::Bool(),
                                            ::testing::Values(1, 3)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) ? "_inline_" : "_") +
                                  std::to_string(std::get<2>(tested.param));
                         });

TEST_P(LoopShareTest, TensorsOfItsIterationsMayComeInAnyOrder) {
  constexpr uint64_t kIterations = 50;
  std::map<uint64_t, float> expected;
  for (uint64_t i = 1; i <= kIterations; ++i)
    expected[i] = i < kIterations ? 10 * static_cast<float>(i) + 1 : -1.0f;
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::vector<std::pair<int32_t, uint64_t>> order;
    for (uint64_t i = 1; i <= kIterations; ++i) {
      order.emplace_back(1, i);
      order.emplace_back(2, i);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    LoopSink sink;
    Collector collector;
    const auto step =
        StepExecutor::Prepare(task_.Compile(graph_).value(), 1, &sink, collector.done());
    const auto deliver = [&](size_t first, size_t by) {
      for (size_t k = first; k < order.size(); k += by) {
        const auto [edge, i] = order[k];
        const Tensor x =
            i < kIterations ? Tensor::Scalar(10 * static_cast<float>(i)) : DeadTensor();
        step->Deliver(edge, edge == 1 ? GoesOn(i < kIterations) : x, i);
      }
    };
    std::thread other([&] { deliver(1, 2); });
    if (seed % 2 == 0) step->Start(std::get<1>(GetParam()));
    deliver(0, 2);
    if (seed % 2 == 1) step->Start(std::get<1>(GetParam()));
    other.join();
    EXPECT_EQ(collector.Wait(), Status());
    EXPECT_EQ(sink.sent(), expected);
  }
}

TEST_P(LoopShareTest, SoManyIterationsRunAtATime) {
  const auto most = static_cast<uint64_t>(std::get<2>(GetParam()));
  const auto step = Prepare();
  step->Start(std::get<1>(GetParam()));
  for (uint64_t i = 1; i <= 5; ++i) step->Deliver(1, GoesOn(i < 5), i);
  for (uint64_t i = 2; i <= 5; ++i) step->Deliver(2, Tensor::Scalar(1.0f), i);
  // The first iteration waits for its x, and so the one behind the last of `most` has not begun.
  const auto came = [&] { return sink_.sent().size(); };
  for (int waited = 0; came() < most - 1 && waited < 5000; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(came(), most - 1);
  const auto awaited = step->progress().awaited;
  ASSERT_EQ(awaited.size(), 1u);
  EXPECT_EQ(awaited[0]->id, 2);
  step->Deliver(2, Tensor::Scalar(1.0f), 1);
  EXPECT_EQ(collector_.Wait(), Status());
  EXPECT_EQ(came(), 5u);
}

TEST_P(LoopShareTest, WhatComesTwiceIsDroppedAndAnotherIterationIsAnError) {
  auto step = Prepare();
  step->Start(std::get<1>(GetParam()));
  step->Deliver(2, Tensor::Scalar(1.0f), 2);
  step->Deliver(2, Tensor::Scalar(7.0f), 2);
  EXPECT_EQ(step->progress().plan->dropped_deliveries(), 1);
  step->Deliver(2, Tensor::Scalar(7.0f));
  const Status status = collector_.Wait();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("'edge_2' arrived without an iteration"), std::string::npos)
      << status;
}

TEST_P(LoopShareTest, AnAbortEndsItWhileItWaits) {
  auto step = Prepare();
  step->Start(std::get<1>(GetParam()));
  for (uint64_t i = 1; i <= 3; ++i) step->Deliver(1, GoesOn(true), i);
  EXPECT_FALSE(collector_.finished());
  step->Abort(DeadlineExceeded("late").AsDerived());
  EXPECT_EQ(collector_.Wait().code(), Code::kDeadlineExceeded);
  EXPECT_NE(step->unfinished().find("'edge_2'"), std::string::npos) << step->unfinished();
  step->Deliver(2, Tensor::Scalar(1.0f), 1);
}

}  // namespace
}  // namespace monograph
