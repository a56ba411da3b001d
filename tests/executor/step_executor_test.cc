#include "executor/step/step_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "base/pool_allocator.h"
#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::Collector;
using testing::Gate;
using testing::kCpu0;
using testing::kCpu1;
using testing::RunStep;
using testing::TestTask;
using ByEdge = std::map<int32_t, float>;

// Waits until no tensor is left in the host pool: a thread that has just called done, or a late
// helper of a loop, may be about to let go of something. What is left after ten seconds.
int64_t BytesLeft() {
  auto* pool = static_cast<PoolAllocator*>(HostAllocator());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pool->bytes_in_use() != 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return pool->bytes_in_use();
}

// Every case with several thread counts, and with the starting thread computing or not. A case ends
// with the host pool as it was.
class StepExecutorTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  StepExecutorTest() : task_(std::make_unique<TestTask>(inter_op())), graph_(task_->NewGraph()) {
    EXPECT_EQ(BytesLeft(), 0) << "an earlier test left tensors behind";
  }
  ~StepExecutorTest() override {
    plan_.reset();
    graph_ = task_->NewGraph();
    task_.reset();
    EXPECT_EQ(BytesLeft(), 0) << "the step left tensors behind";
  }

  static int inter_op() { return std::get<0>(GetParam()); }
  static bool inline_all() { return std::get<1>(GetParam()); }

  const std::shared_ptr<const Plan>& Compile() {
    plan_ = task_->Compile(graph_).value();
    graph_ = task_->NewGraph();
    return plan_;
  }
  ByEdge Run(std::map<int32_t, float> feeds = {}) {
    auto values = RunStep(plan_, std::move(feeds), 1, inline_all());
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : ByEdge();
  }

  std::unique_ptr<TestTask> task_;
  Graph graph_;
  std::shared_ptr<const Plan> plan_;
};

INSTANTIATE_TEST_SUITE_P(Threads, StepExecutorTest,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) ? "_inline" : "");
                         });

TEST_P(StepExecutorTest, AnEmptyPlanIsDoneAtOnce) {
  Compile();
  EXPECT_TRUE(Run().empty());
}

TEST_P(StepExecutorTest, ADiamondComputesBothSides) {
  Builder b(&graph_);
  const Endpoint x = b.Const(3);
  const Endpoint left = b.Op("TInc", {x});
  const Endpoint right = b.Op("TIncSlow", {b.Op("TIncSlow", {x})});
  b.Send(7, b.Op("TAdd", {left, right}));
  Compile();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Run(), (ByEdge{{7, 9.0f}}));
}

TEST_P(StepExecutorTest, AWideGraphSumsAllBranches) {
  for (const char* op : {"TInc", "TIncSlow"}) {
    Builder b(&graph_);
    const Endpoint x = b.Const(1);
    std::vector<Endpoint> branches;
    for (int i = 0; i < 2000; ++i) branches.push_back(b.Op(op, {b.Op(op, {x})}));
    b.Send(0, b.Op("TSum", branches, {{"N", int64_t{2000}}}));
    Compile();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Run(), (ByEdge{{0, 6000.0f}}));
  }
}

TEST_P(StepExecutorTest, AChainOfAHundredThousandNodesNeedsNoDeepStack) {
  for (const char* op : {"TInc", "TIncSlow"}) {
    Builder b(&graph_);
    Endpoint x = b.Const(0);
    for (int i = 0; i < 100'000; ++i) x = b.Op(op, {x});
    b.Send(0, x);
    Compile();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(), (ByEdge{{0, 100'000.0f}}));
  }
}

TEST_P(StepExecutorTest, RandomGraphsGiveTheNumbersOfASequentialWalk) {
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    Builder b(&graph_);
    std::vector<Endpoint> nodes = {b.Recv(1000), b.Const(1)};
    std::vector<float> expected = {5, 1};
    std::map<int32_t, float> sums;
    for (int i = 0; i < 500; ++i) {
      const size_t p = random() % nodes.size(), q = random() % nodes.size();
      const bool add = random() % 2 == 0 && expected[p] + expected[q] < 1e5f;
      std::vector<NodeId> controls;
      if (random() % 4 == 0) controls.push_back(nodes[random() % nodes.size()].node);
      nodes.push_back(
          add ? b.Op("TAdd", {nodes[p], nodes[q]}, {}, controls)
              : b.Op(random() % 2 == 0 ? "TInc" : "TIncSlow", {nodes[p]}, {}, controls));
      expected.push_back(add ? expected[p] + expected[q] : expected[p] + 1);
      if (random() % 8 == 0) {
        b.Send(i, nodes.back());
        sums[i] = expected.back();
      }
    }
    Compile();
    for (int i = 0; i < 20; ++i) ASSERT_EQ(Run({{1000, 5.0f}}), sums);
  }
}

TEST_P(StepExecutorTest, ATensorIsWrittenInPlaceOnlyByItsLastReader) {
  Builder b(&graph_);
  // x is read by two nodes and sent: nobody may write it but the last. The chain of one reader each
  // runs in one buffer.
  const Endpoint x = b.Op("TInc", {b.Const(1)});
  b.Send(0, x);
  b.Send(1, b.Op("TInc", {x}));
  b.Send(2, b.Op("TInc", {x}));
  Endpoint chain = b.Op("TInc", {b.Const(10)});
  for (int i = 0; i < 9; ++i) chain = b.Op("TInc", {chain});
  b.Send(3, chain);
  Compile();
  for (int i = 0; i < 50; ++i) {
    testing::TakeInPlaceCount();
    EXPECT_EQ(Run(), (ByEdge{{0, 2.0f}, {1, 3.0f}, {2, 3.0f}, {3, 20.0f}}));
    EXPECT_GE(testing::TakeInPlaceCount(), 9);
  }
}

TEST_P(StepExecutorTest, AFedTensorThatTheCallerKeepsIsNotOverwritten) {
  Builder b(&graph_);
  b.Send(1, b.Op("TInc", {b.Recv(0)}));
  Compile();
  const Tensor fed = Tensor::Scalar(5.0f);
  Collector collector;
  auto step = StepExecutor::Prepare(plan_, 1, &collector, collector.done());
  step->Deliver(0, fed);
  step->Start(inline_all());
  EXPECT_TRUE(collector.Wait().ok());
  EXPECT_EQ(collector.Value(1), 6.0f);
  EXPECT_EQ(fed.scalar<float>(), 5.0f);
}

TEST_P(StepExecutorTest, OutputsWithoutReadersAndNodesWithSeveralOutputsWork) {
  Builder b(&graph_);
  const NodeId split = b.Add("TSplit", {b.Const(2)}, {{"N", int64_t{7}}});
  b.Send(0, b.Op("TAdd", {{split, 6}, {split, 2}}));
  b.Send(1, {split, 4});
  b.Send(2, {split, 4});
  b.Op("TInc", {b.Const(1)});
  Compile();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Run(), (ByEdge{{0, 4.0f}, {1, 2.0f}, {2, 2.0f}}));
}

TEST_P(StepExecutorTest, TensorsMayArriveBeforeAndAfterTheStart) {
  Builder b(&graph_);
  std::vector<Endpoint> received;
  std::map<int32_t, float> feeds;
  for (int32_t edge = 10; edge < 60; edge += 5) {
    received.push_back(b.Op("TIncSlow", {b.Recv(edge)}));
    feeds[edge] = static_cast<float>(edge);
  }
  b.Send(3, b.Op("TSum", received, {{"N", int64_t{10}}}));
  Compile();
  EXPECT_EQ(plan_->recv_edges().size(), 10u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Run(feeds), (ByEdge{{3, 335.0f}}));
}

TEST_P(StepExecutorTest, SeveralThreadsMayDeliverAtOnce) {
  Builder b(&graph_);
  std::vector<Endpoint> received;
  for (int32_t edge = 0; edge < 64; ++edge)
    received.push_back(b.Op(edge % 2 ? "TInc" : "TIncSlow", {b.Recv(edge)}));
  b.Send(100, b.Op("TSum", received, {{"N", int64_t{64}}}));
  Compile();
  for (int round = 0; round < 50; ++round) {
    Collector collector;
    auto step = StepExecutor::Prepare(plan_, 1, &collector, collector.done());
    std::vector<std::thread> threads;
    for (int32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int32_t edge = t; edge < 64; edge += 4) step->Deliver(edge, Tensor::Scalar(1.0f));
      });
    }
    step->Start(inline_all());
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(collector.Wait().ok());
    EXPECT_EQ(collector.Value(100), 128.0f);
    EXPECT_EQ(collector.done_count(), 1);
  }
}

TEST_P(StepExecutorTest, WhatComesTwiceLateOrUnknownIsCountedAndDropped) {
  Builder b(&graph_);
  b.Send(1, b.Op("TAdd", {b.Recv(0), b.Recv(2)}));
  Compile();
  Collector collector;
  auto step = StepExecutor::Prepare(plan_, 1, &collector, collector.done());
  step->Deliver(0, Tensor::Scalar(1.0f));
  step->Deliver(0, Tensor::Scalar(100.0f));
  step->Deliver(77, Tensor::Scalar(1.0f));
  step->Deliver(-1, Tensor::Scalar(1.0f));
  step->Start(inline_all());
  EXPECT_FALSE(collector.finished());
  step->Deliver(2, Tensor::Scalar(2.0f));
  EXPECT_TRUE(collector.Wait().ok());
  step->Deliver(2, Tensor::Scalar(2.0f));
  EXPECT_EQ(collector.Value(1), 3.0f);
  EXPECT_EQ(plan_->dropped_deliveries(), 4);
}

TEST_P(StepExecutorTest, ATensorOfAnotherTypeOrShapeFailsTheStep) {
  Builder b(&graph_);
  b.Send(1, b.Recv(0, {}, kCpu0, PartialShape{-1, 3}));
  Compile();
  for (const Tensor& wrong : {Tensor::FromValues<float>({1, 2}, {1, 2}),
                              Tensor::FromValues<int32_t>({1, 3}, {1, 2, 3})}) {
    Collector collector;
    auto step = StartStep(plan_, &collector, collector.done());
    step->Deliver(0, wrong);
    const Status status = collector.Wait();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("tensor 'edge_0' arrived as"), std::string::npos) << status;
    EXPECT_NE(status.message().find("expected is float[?,3]"), std::string::npos) << status;
  }
}

TEST_P(StepExecutorTest, ControlEdgesOrderAndCrossTasks) {
  Builder b(&graph_);
  const NodeId begin = b.RecvControl(5);
  const NodeId middle = b.Add("TNoOp", {}, {}, {begin});
  b.SendControl(6, {middle, begin});
  b.Send(7, b.Const(1, {middle}));
  Compile();
  ASSERT_EQ(plan_->recv_edges().size(), 1u);
  EXPECT_TRUE(plan_->recv_edges()[0].control);
  Collector collector;
  auto step = StartStep(plan_, &collector, collector.done());
  EXPECT_TRUE(collector.Take().empty());
  step->Deliver(5, Tensor());
  EXPECT_TRUE(collector.Wait().ok());
  const auto sent = collector.Take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent.at(6).valid());
}

TEST_P(StepExecutorTest, AFailingKernelNamesItselfAndEndsTheStepAndTheNextOneRuns) {
  Builder b(&graph_);
  const Endpoint go = b.Recv(0);
  const NodeId fail = b.Add("TFail", {}, {{"message", std::string("queue is empty")}}, {go.node});
  b.Send(1, b.Const(1, {fail}));
  std::vector<Endpoint> others;
  for (int i = 0; i < 100; ++i) others.push_back(b.Op("TIncSlow", {b.Op("TIncSlow", {go})}));
  b.Send(2, b.Op("TSum", others, {{"N", int64_t{100}}}));
  Compile();
  for (int i = 0; i < 20; ++i) {
    const auto values = RunStep(plan_, {{0, 1.0f}}, 1, inline_all());
    ASSERT_FALSE(values.ok());
    EXPECT_EQ(values.status().code(), Code::kOutOfRange);
    EXPECT_EQ(values.status().message(),
              std::string("node 'TFail' (TFail) on ") + kCpu0 + ": queue is empty");
    EXPECT_FALSE(values.status().derived());
  }
}

TEST_P(StepExecutorTest, AKernelThatForgetsItsOutputIsFoundOut) {
  Builder b(&graph_);
  b.Send(1, b.Op("TMissing", {b.Const(1)}));
  Compile();
  const auto values = RunStep(plan_, {}, 1, inline_all());
  EXPECT_EQ(values.status().code(), Code::kInternal);
  EXPECT_NE(values.status().message().find("output 0 is missing"), std::string::npos)
      << values.status();
}

TEST_P(StepExecutorTest, AbortMidStepWaitsForTheRunningKernelAndStartsNoOther) {
  Builder b(&graph_);
  const Endpoint blocked = b.Op("TBlock", {b.Recv(0)}, {{"gate", std::string("g")}});
  const Endpoint after = b.Op("TBlock", {blocked}, {{"gate", std::string("h")}});
  b.Send(1, after);
  const auto gate = task_->gate("g");
  const auto never = task_->gate("h");
  Compile();
  Collector collector;
  auto step = StartStep(plan_, &collector, collector.done());
  step->Deliver(0, Tensor::Scalar(1.0f));
  ASSERT_TRUE(gate->WaitForArrivals(1));
  step->Abort(Unavailable("peer is gone").AsDerived());
  step->Abort(Unavailable("worker 3 died"));
  step->Abort(Unavailable("a later reason"));
  EXPECT_FALSE(collector.finished());
  gate->Open();
  const Status status = collector.Wait();
  EXPECT_EQ(status, Unavailable("worker 3 died"));
  EXPECT_FALSE(status.derived());
  EXPECT_EQ(never->arrivals(), 0);
  EXPECT_EQ(collector.done_count(), 1);
  step->Abort(Internal("too late"));
  EXPECT_EQ(collector.done_count(), 1);
}

TEST_P(StepExecutorTest, AKernelThatGivesUpBecauseOfAnAbortSaysNothingOfItsCause) {
  Builder b(&graph_);
  b.Send(1, b.Op("TChange", {b.Recv(0)}, {{"gate", std::string("g")}}));
  const auto gate = task_->gate("g");
  Compile();
  Collector collector;
  auto step = StartStep(plan_, &collector, collector.done());
  step->Deliver(0, Tensor::Scalar(1.0f));
  ASSERT_TRUE(gate->WaitForArrivals(1));
  step->Abort(Unavailable("peer is gone").AsDerived());
  gate->Open();
  const Status status = collector.Wait();
  EXPECT_EQ(status, Unavailable("peer is gone"));
  EXPECT_TRUE(status.derived());
}

TEST_P(StepExecutorTest, AbortOfAWaitingStepEndsItWithThatStatus) {
  Builder b(&graph_);
  b.Send(1, b.Op("TAdd", {b.Recv(0), b.Recv(2)}));
  Compile();
  {
    Collector collector;
    auto step = StartStep(plan_, &collector, collector.done());
    step->Deliver(0, Tensor::Scalar(1.0f));
    step->Abort(Cancelled("client closed").AsDerived());
    const Status status = collector.Wait();
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_TRUE(status.derived());
    step->Deliver(2, Tensor::Scalar(1.0f));
    EXPECT_EQ(plan_->dropped_deliveries(), 1);
  }
  {  // before the start
    Collector collector;
    auto step = StepExecutor::Prepare(plan_, 2, &collector, collector.done());
    step->Deliver(0, Tensor::Scalar(1.0f));
    step->Abort(Cancelled("never mind"));
    EXPECT_TRUE(collector.finished());
    step->Start(inline_all());
    EXPECT_EQ(collector.done_count(), 1);
  }
  {  // dropped without a start
    Collector collector;
    auto step = StepExecutor::Prepare(plan_, 3, &collector, collector.done());
    step->Deliver(0, Tensor::Scalar(1.0f));
    step.reset();
    EXPECT_FALSE(collector.finished());
  }
  EXPECT_EQ(Run({{0, 1.0f}, {2, 2.0f}}), (ByEdge{{1, 3.0f}}));
}

TEST_P(StepExecutorTest, AbortRacesWithTheEndWithoutHarm) {
  Builder b(&graph_);
  std::vector<Endpoint> nodes;
  const Endpoint x = b.Recv(0);
  for (int i = 0; i < 50; ++i) nodes.push_back(b.Op("TIncSlow", {x}));
  b.Send(1, b.Op("TSum", nodes, {{"N", int64_t{50}}}));
  Compile();
  int completed = 0;
  for (int round = 0; round < 200; ++round) {
    Collector collector;
    auto step = StepExecutor::Prepare(plan_, 1, &collector, collector.done());
    std::thread aborter([&] {
      for (int spin = 0; spin < round * 20; ++spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      step->Abort(Aborted("stop"));
    });
    step->Start(inline_all());
    step->Deliver(0, Tensor::Scalar(1.0f));
    const Status status = collector.Wait();
    aborter.join();
    EXPECT_TRUE(status.ok() || status == Aborted("stop")) << status;
    completed += status.ok() ? 1 : 0;
    EXPECT_EQ(collector.done_count(), 1);
  }
  RecordProperty("completed", completed);
}

TEST_P(StepExecutorTest, SeveralStepsInFlightShareKernelsAndKeepTheirTensorsApart) {
  Builder b(&graph_);
  Endpoint x = b.Recv(0);
  for (int i = 0; i < 20; ++i) x = b.Op("TSerial", {b.Op(i % 2 ? "TInc" : "TIncSlow", {x})});
  b.Send(1, x);
  Compile();
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Collector>> collectors;
    std::vector<std::shared_ptr<Step>> steps;
    for (uint64_t s = 0; s < 16; ++s) {
      collectors.push_back(std::make_unique<Collector>());
      steps.push_back(
          StepExecutor::Prepare(plan_, s + 1, collectors[s].get(), collectors[s]->done()));
      steps.back()->Start();
    }
    for (size_t s = 16; s-- > 0;) steps[s]->Deliver(0, Tensor::Scalar(static_cast<float>(s)));
    for (size_t s = 0; s < 16; ++s) {
      EXPECT_TRUE(collectors[s]->Wait().ok());
      EXPECT_EQ(collectors[s]->Value(1), static_cast<float>(s) + 20);
    }
  }
}

TEST_P(StepExecutorTest, AnAsynchronousKernelContinuesTheStepWhenItIsDone) {
  Builder b(&graph_);
  const Endpoint x = b.Const(1);
  const Endpoint waits = b.Op("TGate", {b.Op("TInc", {x})}, {{"gate", std::string("g")}});
  const Endpoint at_once = b.Op("TGate", {x}, {{"gate", std::string("open")}});
  b.Send(0, b.Op("TAdd", {b.Op("TIncSlow", {waits}), b.Op("TInc", {at_once})}));
  task_->gate("open")->Open();
  const auto gate = task_->gate("g");
  Compile();
  {
    Collector collector;
    auto step = StepExecutor::Prepare(plan_, 1, &collector, collector.done());
    step->Start(inline_all());
    ASSERT_TRUE(gate->WaitForArrivals(1));
    EXPECT_FALSE(collector.finished());
    std::thread([&] { gate->Open(); }).join();
    EXPECT_TRUE(collector.Wait().ok());
    EXPECT_EQ(collector.Value(0), 5.0f);
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Run(), (ByEdge{{0, 5.0f}}));  // now both are open
}

TEST_P(StepExecutorTest, AbortCancelsAnAsynchronousKernel) {
  Builder b(&graph_);
  b.Send(0, b.Op("TGate", {b.Const(1)}, {{"gate", std::string("g")}}));
  const auto gate = task_->gate("g");
  Compile();
  for (int i = 1; i <= 20; ++i) {
    Collector collector;
    auto step = StartStep(plan_, &collector, collector.done());
    ASSERT_TRUE(gate->WaitForArrivals(i));
    step->Abort(Unavailable("gone"));
    EXPECT_EQ(collector.Wait(), Unavailable("gone"));
  }
  gate->Open();  // the kernels that were cancelled take no notice
  EXPECT_EQ(Run(), (ByEdge{{0, 1.0f}}));
}

TEST_P(StepExecutorTest, ALongChainOfAsynchronousKernelsThatAreReadyNeedsNoDeepStack) {
  Builder b(&graph_);
  task_->gate("g")->Open();
  Endpoint x = b.Const(1);
  for (int i = 0; i < 20'000; ++i) x = b.Op("TGate", {x}, {{"gate", std::string("g")}});
  b.Send(0, x);
  Compile();
  EXPECT_EQ(Run(), (ByEdge{{0, 1.0f}}));
}

// Two plans whose sinks deliver straight into each other, as tasks of one process do.
TEST_P(StepExecutorTest, TwoStepsThatPlayPingPongNeedNoDeepStack) {
  struct Relay : StepSink {
    std::shared_ptr<Step> to;
    void OnSend(uint64_t, const EdgeInfo& edge, Tensor tensor, uint64_t) override {
      to->Deliver(edge.id, std::move(tensor));
    }
  };
  constexpr int kRounds = 5000;
  Graph other = task_->NewGraph();
  Builder a(&graph_), b(&other);
  Endpoint x = a.Const(0);
  for (int i = 0; i < kRounds; ++i) {
    a.Send(2 * i, a.Op("TInc", {x}));
    b.Send(2 * i + 1, b.Op("TInc", {b.Recv(2 * i)}));
    x = a.Recv(2 * i + 1);
  }
  a.Op("TInc", {x});
  Compile();
  const auto other_plan = task_->Compile(other).value();
  Relay to_a, to_b;
  Collector end_a, end_b;
  to_a.to = StepExecutor::Prepare(plan_, 1, &to_b, end_a.done());
  to_b.to = StepExecutor::Prepare(other_plan, 1, &to_a, end_b.done());
  to_b.to->Start();
  to_a.to->Start();
  EXPECT_TRUE(end_a.Wait().ok());
  EXPECT_TRUE(end_b.Wait().ok());
}

TEST_P(StepExecutorTest, APairWithinThePlanIsLinked) {
  Builder b(&graph_);
  const Endpoint x = b.Op("TInc", {b.Const(1)});
  b.Send(0, x, 0, {}, kCpu0, kCpu1);
  const Endpoint y = b.Op("TInc", {b.Recv(0, {}, kCpu1, PartialShape(), kCpu0)}, {}, {}, kCpu1);
  b.Send(9, y, 0, {}, kCpu1);
  // A pair that also orders stays as a node.
  const NodeId first = b.Add("TNoOp");
  b.Send(1, x, 0, {first}, kCpu0, kCpu1);
  b.Send(10, b.Recv(1, {}, kCpu1, PartialShape(), kCpu0), 0, {}, kCpu1);
  b.SendControl(2, {first});
  b.Send(11, b.Const(4, {b.RecvControl(2, kCpu1)}));
  Compile();
  EXPECT_TRUE(plan_->recv_edges().empty());
  EXPECT_EQ(plan_->send_edges().size(), 3u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Run(), (ByEdge{{9, 3.0f}, {10, 2.0f}, {11, 4.0f}}));
}

TEST_P(StepExecutorTest, TheThreadThatStartsRunsNoExpensiveKernelUnlessItWantsTo) {
  Builder b(&graph_);
  const Endpoint blocked = b.Op("TBlock", {b.Const(1)}, {{"gate", std::string("g")}});
  b.Send(1, blocked);
  const auto gate = task_->gate("g");
  Compile();
  Collector collector;
  auto step = StartStep(plan_, &collector,
                        collector.done());  // returns although the kernel blocks
  ASSERT_TRUE(gate->WaitForArrivals(1));
  gate->Open();
  EXPECT_TRUE(collector.Wait().ok());
}

TEST_P(StepExecutorTest, ACheapKernelThatWouldWaitLeavesTheThreadThatDelivers) {
  Builder b(&graph_);
  const Endpoint first = b.Op("TInc", {b.Recv(0)});
  const Endpoint waited = b.Op("TWait", {first}, {{"gate", std::string("g")}});
  b.Send(1, b.Op("TInc", {waited}));
  b.Send(2, b.Op("TInc", {first}));
  const auto gate = task_->gate("g");
  Compile();
  Collector collector;
  auto step = StartStep(plan_, &collector, collector.done());
  step->Deliver(0, Tensor::Scalar(1.0f));  // returns although the kernel waits
  ASSERT_TRUE(gate->WaitForArrivals(1));
  EXPECT_FALSE(collector.finished());
  gate->Open();
  EXPECT_TRUE(collector.Wait().ok());
  EXPECT_EQ(collector.Value(1), 3.0f);
  EXPECT_EQ(collector.Value(2), 3.0f);
}

TEST_P(StepExecutorTest, TheTraceHoldsEveryNodeSendAndReceive) {
  Builder b(&graph_);
  const Endpoint x = b.Op("TIncSlow", {b.Recv(4)});
  b.Send(5, b.Op("TInc", {x}));
  Compile();
  StepTrace trace;
  ASSERT_TRUE(RunStep(plan_, {{4, 1.0f}}, 1, inline_all(), &trace).ok());
  const std::vector<TraceEvent> events = trace.Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].kind, TraceKind::kRecv);
  EXPECT_EQ(events[0].edge, 4);
  EXPECT_EQ(events[1].name, "TIncSlow");
  EXPECT_EQ(events[2].op, "TInc");
  EXPECT_EQ(events[3].kind, TraceKind::kSend);
  EXPECT_EQ(events[3].bytes, 4);
  for (const TraceEvent& event : events) {
    EXPECT_EQ(event.device, kCpu0);
    EXPECT_GT(event.start_ns, 0);
    EXPECT_GE(event.end_ns, event.start_ns);
  }
}

TEST_P(StepExecutorTest, TheTraceSaysWhichInputOfANodeCameLast) {
  Builder b(&graph_);
  const Endpoint quick = b.Recv(1), late = b.Op("TIncSlow", {b.Recv(2)});
  b.Send(3, b.Op("TAdd", {quick, late}));
  Compile();
  StepTrace trace;
  ASSERT_TRUE(RunStep(plan_, {{1, 1.0f}, {2, 1.0f}}, 1, inline_all(), &trace).ok());
  std::map<int32_t, const TraceEvent*> by_id;
  const std::vector<TraceEvent> events = trace.Events();
  for (const TraceEvent& event : events) by_id[event.id] = &event;
  ASSERT_EQ(by_id.size(), 5u);
  for (const TraceEvent& event : events) {
    const TraceEvent* before = event.after < 0 ? nullptr : by_id.at(event.after);
    ASSERT_EQ(before == nullptr, event.kind == TraceKind::kRecv) << event.name;
    if (event.op == "TIncSlow") {
      EXPECT_EQ(before->edge, 2);
    } else if (event.op == "TAdd") {
      EXPECT_EQ(before->op, "TIncSlow");
    } else if (event.kind == TraceKind::kSend) {
      EXPECT_EQ(before->op, "TAdd");
    }
  }
}

TEST(StepOfOneThread, RunsOneNodeAtATimeInTheSameOrder) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  std::mt19937 random(3);
  std::vector<Endpoint> nodes = {b.Const(1)};
  for (int i = 0; i < 300; ++i) {
    nodes.push_back(b.Op(i % 3 ? "TInc" : "TIncSlow", {nodes[random() % nodes.size()]}));
    if (i % 5 == 0) b.Send(i, nodes.back());
  }
  const auto plan = task.Compile(graph).value();
  struct Order : Collector {
    std::vector<int32_t> order;
    void OnSend(uint64_t, const EdgeInfo& edge, Tensor, uint64_t) override {
      order.push_back(edge.id);
    }
  };
  std::vector<int32_t> first;
  for (int i = 0; i < 40; ++i) {
    Order sink;
    auto step = StepExecutor::Prepare(plan, 1, &sink, sink.done());
    step->Start(/*inline_all=*/true);
    ASSERT_TRUE(sink.Wait().ok());
    if (i == 0) first = sink.order;
    EXPECT_EQ(sink.order, first);
  }
  EXPECT_EQ(first.size(), 60u);
}

TEST(StepOfOneThread, SendsTheUrgentTensorFirst) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Const(1);
  for (int32_t i = 0; i < 8; ++i) b.Send(i, b.Op("TInc", {x}), /*priority=*/(i * 5) % 8);
  const auto plan = task.Compile(graph).value();
  struct Order : Collector {
    std::vector<int32_t> priorities;
    void OnSend(uint64_t, const EdgeInfo& edge, Tensor, uint64_t) override {
      priorities.push_back(edge.priority);
    }
  } sink;
  StepExecutor::Prepare(plan, 1, &sink, sink.done())->Start(/*inline_all=*/true);
  ASSERT_TRUE(sink.Wait().ok());
  EXPECT_EQ(sink.priorities, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// The ops of a step of one thread that takes nothing from elsewhere, in the order in which they
// ran.
std::vector<std::string> OrderOfOps(const std::shared_ptr<const Plan>& plan) {
  StepTrace trace;
  EXPECT_TRUE(RunStep(plan, {}, 1, /*inline_all=*/true, &trace).ok());
  std::vector<TraceEvent> events = trace.Events();
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  std::vector<std::string> ops;
  for (const TraceEvent& event : events) ops.push_back(event.op);
  return ops;
}

// In a backward pass: a layer's large gradient leaves before the layers below are computed.
TEST(StepOfOneThread, WhatIsNeededSoonestElsewhereGoesFirstHoweverMuchWorkFollowsTheRest) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Const(1);
  Endpoint below = x;
  for (int i = 0; i < 50; ++i) below = b.Op("TIncSlow", {below});
  b.Send(1, below, /*priority=*/60);
  b.Send(2, b.Op("TInc", {x}), /*priority=*/3);
  const std::vector<std::string> ops = OrderOfOps(task.Compile(graph).value());
  ASSERT_EQ(ops.size(), 54u);
  EXPECT_EQ((std::vector<std::string>(ops.begin(), ops.begin() + 4)),
            (std::vector<std::string>{"TConst", "TInc", "_Send", "TIncSlow"}));
}

TEST(StepOfOneThread, AnAsynchronousKernelBeginsBeforeTheWorkThatCanGoOnMeanwhile) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  task.gate("g")->Open();
  const Endpoint x = b.Const(1);
  Endpoint rest = x;
  for (int i = 0; i < 50; ++i) rest = b.Op("TIncSlow", {rest});
  b.Op("TGate", {b.Op("TInc", {x})}, {{"gate", std::string("g")}});
  const std::vector<std::string> ops = OrderOfOps(task.Compile(graph).value());
  ASSERT_EQ(ops.size(), 53u);
  EXPECT_EQ((std::vector<std::string>(ops.begin(), ops.begin() + 4)),
            (std::vector<std::string>{"TConst", "TInc", "TGate", "TIncSlow"}));
}

}  // namespace
}  // namespace monograph
