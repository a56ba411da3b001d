// Conditional accumulators and the step gate in one process.
#include "ops/accumulator/accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"

namespace monograph {
namespace {

using namespace std::chrono_literals;
using Values = Result<std::vector<Tensor>>;
using Reduction = ConditionalAccumulatorOptions::Reduction;

class AccumulatorTest : public ::testing::Test {
 protected:
  AccumulatorTest() : graph_(NewGraph()), root_(&graph_) {
    step_ = Placeholder(root_.WithOpName("step"), DT_INT64, PartialShape::Scalar());
    gradient_ = Placeholder(root_.WithOpName("gradient"), DT_FLOAT, {-1});
  }
  void MakeAccumulator(Reduction reduction, int ranks = 0) {
    accumulator_ =
        ConditionalAccumulator(root_.WithOpName("acc"), DT_FLOAT, {-1}, {.reduction = reduction});
    for (int rank = 0; rank < ranks; ++rank)
      puts_.push_back(AccumulatorApplyGradient(root_, accumulator_, step_, gradient_, rank));
    if (ranks == 0)
      puts_.push_back(AccumulatorApplyGradient(root_, accumulator_, step_, gradient_));
    required_ = Placeholder(root_, DT_INT32, PartialShape::Scalar());
    take_ = AccumulatorTakeGradient(root_, accumulator_, required_);
    count_ = AccumulatorNumAccumulated(root_, accumulator_);
    ranks_ = AccumulatorRanks(root_, accumulator_);
    set_step_ = AccumulatorSetGlobalStep(root_, accumulator_, step_);
    EXPECT_TRUE(root_.ok()) << root_.status();
  }
  Session& session() {
    if (session_ == nullptr) session_ = Session::Local(graph_).value();
    return *session_;
  }
  Status Put(int64_t step, Tensor gradient, size_t which = 0) {
    return session()
        .Run({{step_, Tensor::Scalar(step)}, {gradient_, std::move(gradient)}}, {}, {puts_[which]})
        .status();
  }
  Values Take(int required, std::chrono::milliseconds timeout = 20s) {
    return session().Run({{required_, Tensor::Scalar(required)}}, {take_}, {},
                         {.timeout = timeout});
  }
  int Count() { return session().Run({}, {count_}).value()[0].scalar<int32_t>(); }
  static std::string Text(const Values& values) {
    return values.ok() ? values->at(0).ToString(100) : values.status().ToString();
  }
  static Tensor Floats(std::initializer_list<float> values) {
    return Tensor::Vector<float>(values);
  }

  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
  Output step_, gradient_, accumulator_, required_, take_, count_, ranks_;
  std::vector<Operation> puts_;
  Operation set_step_;
};

TEST_F(AccumulatorTest, GivesTheMeanOfAllThatHasComeOnceEnoughHasCome) {
  MakeAccumulator(Reduction::kMean);
  for (float x : {1.0f, 2.0f, 6.0f}) ASSERT_TRUE(Put(0, Floats({x, 10 * x})).ok());
  EXPECT_EQ(Count(), 3);
  EXPECT_EQ(Text(Take(2)), Floats({3, 30}).ToString());
  EXPECT_EQ(Count(), 0);
}

TEST_F(AccumulatorTest, CanAddInsteadOfAveraging) {
  MakeAccumulator(Reduction::kSum);
  for (float x : {1.0f, 2.0f, 6.0f}) ASSERT_TRUE(Put(0, Floats({x})).ok());
  EXPECT_EQ(Text(Take(3)), Floats({9}).ToString());
}

TEST_F(AccumulatorTest, StaleGradientsAreDroppedWithoutAnError) {
  MakeAccumulator(Reduction::kMean);
  ASSERT_TRUE(Put(0, Floats({1})).ok());
  ASSERT_TRUE(Take(1).ok());
  ASSERT_TRUE(Put(0, Floats({100})).ok());
  EXPECT_EQ(Count(), 0);
  ASSERT_TRUE(Put(1, Floats({3})).ok());
  EXPECT_EQ(Text(Take(1)), Floats({3}).ToString());
  ASSERT_TRUE(session().Run({{step_, Tensor::Scalar(int64_t{10})}}, {}, {set_step_}).ok());
  ASSERT_TRUE(Put(9, Floats({100})).ok());
  EXPECT_EQ(Count(), 0);
  ASSERT_TRUE(Put(10, Floats({4})).ok());
  EXPECT_EQ(Count(), 1);
}

TEST_F(AccumulatorTest, TakingWaitsAndAnEndedStepTakesNothing) {
  MakeAccumulator(Reduction::kSum);
  ASSERT_TRUE(Put(0, Floats({1})).ok());
  const Status late = Take(2, 50ms).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_NE(late.message().find("(ResourceAccumulatorTakeGradient): accumulator '"),
            std::string::npos)
      << late;
  EXPECT_NE(late.message().find("' has 1 of 2 gradients)"), std::string::npos) << late;
  EXPECT_EQ(Count(), 1);
  std::promise<Values> taken;
  session().RunAsync(session().MakeCallable({required_}, {take_}).value(),
                     std::array{Tensor::Scalar(2)},
                     [&](Values result) { taken.set_value(std::move(result)); });
  auto future = taken.get_future();
  EXPECT_EQ(future.wait_for(30ms), std::future_status::timeout);
  ASSERT_TRUE(Put(0, Floats({5})).ok());
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(Text(future.get()), Floats({6}).ToString());
}

TEST_F(AccumulatorTest, WithRanksTheSumHasTheBitsOfAddNWhateverTheOrderOfArrival) {
  MakeAccumulator(Reduction::kSum, 3);
  // Floats whose sum depends on the order.
  const std::array<Tensor, 3> gradients = {Floats({1e8f, 0.1f, 3e-8f}), Floats({1.0f, 0.7f, 1.0f}),
                                           Floats({-1e8f, 1e7f, -1.0f})};
  Outputs terms;
  for (const Tensor& gradient : gradients) terms.push_back(Const(root_, gradient));
  const Output in_order = AddN(root_, terms);
  const Tensor expected = session().Run({}, {in_order}).value()[0];
  std::array<size_t, 3> order = {0, 1, 2};
  int64_t step = 0;
  do {
    for (size_t rank : order) ASSERT_TRUE(Put(step, gradients[rank], rank).ok());
    ++step;
    const auto taken = Take(3);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_TRUE(BitEqual(taken->at(0), expected)) << taken->at(0).ToString();
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(step, 6);
}

// Accumulators of rows of a [5, 2] variable.
class SparseAccumulatorTest : public ::testing::Test {
 protected:
  explicit SparseAccumulatorTest() : graph_(NewGraph()), root_(&graph_) {
    step_ = Placeholder(root_, DT_INT64, PartialShape::Scalar());
    rows_ = {Placeholder(root_, DT_FLOAT, {-1, 2}), Placeholder(root_, DT_INT64, {-1})};
  }
  void MakeAccumulator(Reduction reduction, int ranks) {
    accumulator_ = SparseConditionalAccumulator(root_.WithOpName("acc"), DT_FLOAT, {5, 2}, DT_INT64,
                                                {.reduction = reduction});
    for (int rank = 0; rank < std::max(ranks, 1); ++rank)
      puts_.push_back(SparseAccumulatorApplyGradient(root_, accumulator_, step_, rows_,
                                                     ranks == 0 ? -1 : rank));
    required_ = Placeholder(root_, DT_INT32, PartialShape::Scalar());
    taken_ = SparseAccumulatorTakeGradient(root_, accumulator_, required_);
    count_ = AccumulatorNumAccumulated(root_, accumulator_);
    EXPECT_TRUE(root_.ok()) << root_.status();
    EXPECT_EQ(taken_.values.shape().ToString(), PartialShape({-1, 2}).ToString());
    session_ = Session::Local(graph_).value();
  }
  Status Put(int64_t step, const std::vector<int64_t>& indices, const std::vector<float>& values,
             size_t which = 0) {
    const auto n = static_cast<int64_t>(indices.size());
    return session_
        ->Run({{step_, Tensor::Scalar(step)},
               {rows_.values, Tensor::FromValues<float>({n, 2}, values)},
               {rows_.indices, Tensor::FromValues<int64_t>({n}, indices)}},
              {}, {puts_[which]})
        .status();
  }
  std::string Take(int required) {
    const auto taken =
        session_->Run({{required_, Tensor::Scalar(required)}}, {taken_.indices, taken_.values});
    return taken.ok() ? taken->at(0).ToString(100) + taken->at(1).ToString(100)
                      : taken.status().ToString();
  }
  static std::string Text(const std::vector<int64_t>& indices, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(indices.size());
    return Tensor::FromValues<int64_t>({n}, indices).ToString(100) +
           Tensor::FromValues<float>({n, 2}, values).ToString(100);
  }
  int Count() { return session_->Run({}, {count_}).value()[0].scalar<int32_t>(); }

  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
  Output step_, accumulator_, required_, count_;
  Gradient rows_, taken_;
  std::vector<Operation> puts_;
};

TEST_F(SparseAccumulatorTest, KeepsRowsApartInTheOrderOfRanksWhoeverComesFirst) {
  MakeAccumulator(Reduction::kSum, 3);
  ASSERT_TRUE(Put(0, {4}, {7, 8}, 2).ok());
  ASSERT_TRUE(Put(0, {}, {}, 1).ok());
  EXPECT_EQ(Count(), 2);
  ASSERT_TRUE(Put(0, {1, 4}, {1, 2, 3, 4}, 0).ok());
  EXPECT_EQ(Take(3), Text({1, 4, 4}, {1, 2, 3, 4, 7, 8}));
  EXPECT_EQ(Count(), 0);
}

TEST_F(SparseAccumulatorTest, DividesByTheNumberOfGradientsAsWholeOnesDo) {
  MakeAccumulator(Reduction::kMean, 0);
  ASSERT_TRUE(Put(0, {0}, {2, 4}).ok());
  ASSERT_TRUE(Put(0, {3}, {6, 8}).ok());
  EXPECT_EQ(Take(2), Text({0, 3}, {1, 2, 3, 4}));
}

TEST_F(SparseAccumulatorTest, DropsStaleRowsWithoutAnError) {
  MakeAccumulator(Reduction::kSum, 0);
  ASSERT_TRUE(Put(0, {0}, {1, 1}).ok());
  EXPECT_EQ(Take(1), Text({0}, {1, 1}));
  ASSERT_TRUE(Put(0, {2}, {9, 9}).ok());
  EXPECT_EQ(Count(), 0);
  ASSERT_TRUE(Put(1, {3}, {2, 2}).ok());
  EXPECT_EQ(Take(1), Text({3}, {2, 2}));
}

TEST_F(SparseAccumulatorTest, RowsThatTheVariableDoesNotHaveAreRefusedByNumber) {
  MakeAccumulator(Reduction::kSum, 0);
  const Status status = Put(0, {1, 5}, {1, 2, 3, 4});
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("indices[1] = 5 is not in [0, 5)"), std::string::npos) << status;
  EXPECT_EQ(Count(), 0);
}

TEST(HostileAccumulatorTest, RowsOfAnotherLengthAreRefusedWhereItsShapeIsUnknown) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Gradient rows = {Placeholder(root, DT_FLOAT), Placeholder(root, DT_INT64)};
  const Output accumulator =
      SparseConditionalAccumulator(root.WithOpName("acc"), DT_FLOAT, PartialShape(), DT_INT64);
  const Operation put =
      SparseAccumulatorApplyGradient(root, accumulator, Const(root, int64_t{0}), rows);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph).value();
  const auto put_rows = [&](int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(2 * columns));
    return session
        ->Run({{rows.values, Tensor::FromValues<float>({2, columns}, values)},
               {rows.indices, Tensor::Vector<int64_t>({0, 1})}},
              {}, {put})
        .status();
  };
  ASSERT_TRUE(put_rows(3).ok());
  const Status status = put_rows(5);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("expected [2,3], got [2,5]"), std::string::npos) << status;
}

TEST(HostileAccumulatorTest, NoNumberIsRefusedWhereOneIsWanted) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output longs = Placeholder(root, DT_INT64), ints = Placeholder(root, DT_INT32),
               texts = Placeholder(root, DT_STRING);
  const Output accumulator = ConditionalAccumulator(root.WithOpName("acc"), DT_FLOAT, {1});
  const Output gate = StepGate(root.WithOpName("gate"), "gate");
  const Output gradient = Const(root, Tensor::Vector<float>({1}));
  const std::vector<Operation> nodes = {
      AccumulatorApplyGradient(root, accumulator, longs, gradient),
      AccumulatorTakeGradient(root, accumulator, ints),
      AccumulatorSetGlobalStep(root, accumulator, longs),
      StepGateSet(root, gate, longs),
      StepGateWait(root, gate, longs),
      StepGateClose(root, gate, ints, texts),
      StepGateClose(root, gate, Const(root, int32_t{3}), texts)};
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph).value();
  for (const Operation& node : nodes) {
    const Status status = session
                              ->Run({{longs, Tensor::Vector<int64_t>({})},
                                     {ints, Tensor::Vector<int32_t>({})},
                                     {texts, Tensor::Allocate(DT_STRING, {0}).value()}},
                                    {}, {node})
                              .status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << node.name() << ": " << status;
  }
}

TEST_F(SparseAccumulatorTest, OpsOnWholeGradientsAreToldThatItHoldsRows) {
  MakeAccumulator(Reduction::kSum, 0);
  Scope root(&graph_);
  const Operation whole = AccumulatorApplyGradient(
      root, accumulator_, step_,
      Const(root, Tensor::FromValues<float>({5, 2}, std::vector<float>(10))));
  ASSERT_TRUE(root.ok()) << root.status();
  const Status status = session_->Run({{step_, Tensor::Scalar(int64_t{0})}}, {}, {whole}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("holds rows of float with indices of int64"), std::string::npos)
      << status;
}

TEST_F(AccumulatorTest, ARankCountsOnceAndTheFirstOnesCount) {
  MakeAccumulator(Reduction::kMean, 4);
  ASSERT_TRUE(Put(0, Floats({100}), 2).ok());
  ASSERT_TRUE(Put(0, Floats({2}), 2).ok());  // instead of 100
  EXPECT_EQ(Count(), 1);
  ASSERT_TRUE(Put(0, Floats({4}), 0).ok());
  ASSERT_TRUE(Put(0, Floats({50}), 3).ok());
  EXPECT_EQ(Text(session().Run({}, {ranks_})), Tensor::Vector<int64_t>({0, 2, 3}).ToString());
  EXPECT_EQ(Text(Take(2)), Floats({3}).ToString());  // of ranks 2 and 0
  EXPECT_EQ(Count(), 0);
}

TEST_F(AccumulatorTest, WithRanksAGradientOfAStepThatIsStillToComeIsDropped) {
  MakeAccumulator(Reduction::kSum, 2);
  ASSERT_TRUE(session().Run({{step_, Tensor::Scalar(int64_t{10})}}, {}, {set_step_}).ok());
  ASSERT_TRUE(Put(12, Floats({100}), 1).ok());  // of a run that has gone back from there
  EXPECT_EQ(Count(), 0);
  ASSERT_TRUE(Put(10, Floats({4}), 1).ok());
  EXPECT_EQ(Count(), 1);
}

TEST_F(AccumulatorTest, AGradientOfAnotherShapeIsRefused) {
  MakeAccumulator(Reduction::kMean);
  ASSERT_TRUE(Put(0, Floats({1, 2})).ok());
  const Status status = Put(0, Floats({1}));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("Shape mismatch: expected [2], got [1]"), std::string::npos)
      << status;
  EXPECT_EQ(Take(0).status().code(), Code::kInvalidArgument);
}

TEST_F(AccumulatorTest, TheStepGateLetsThroughWhoIsBehindIt) {
  const Output gate = StepGate(root_, "gate");
  const Output wait = StepGateWait(root_, gate, step_), now = StepGateStep(root_, gate);
  const Operation set = StepGateSet(root_, gate, step_),
                  restart = StepGateSet(root_, gate, step_, true);
  const Operation end =
      StepGateClose(root_, gate, Const(root_, static_cast<int32_t>(Code::kOutOfRange)),
                    Const(root_, "no more data"));
  ASSERT_TRUE(root_.ok()) << root_.status();
  const auto run = [&](const std::vector<Output>& fetches, const std::vector<Operation>& targets,
                       int64_t step) {
    return session().Run({{step_, Tensor::Scalar(step)}}, fetches, targets, {.timeout = 20s});
  };
  EXPECT_EQ(session().Run({}, {now}).value()[0].scalar<int64_t>(), -1);
  const auto late = [&](int64_t step) {
    return session().Run({{step_, Tensor::Scalar(step)}}, {wait}, {}, {.timeout = 50ms}).status();
  };
  EXPECT_NE(late(0).message().find("'gate' has not started)"), std::string::npos) << late(0);
  ASSERT_TRUE(run({}, {set}, 3).ok());
  EXPECT_NE(late(3).message().find("'gate' is still at step 3)"), std::string::npos) << late(3);
  EXPECT_EQ(Text(run({wait}, {}, 2)), Tensor::Scalar(int64_t{3}).ToString());
  std::promise<Values> passed;
  session().RunAsync(session().MakeCallable({step_}, {wait}).value(),
                     std::array{Tensor::Scalar(int64_t{3})},
                     [&](Values result) { passed.set_value(std::move(result)); });
  auto future = passed.get_future();
  EXPECT_EQ(future.wait_for(30ms), std::future_status::timeout);
  ASSERT_TRUE(run({}, {set}, 5).ok());
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(Text(future.get()), Tensor::Scalar(int64_t{5}).ToString());
  ASSERT_TRUE(run({}, {restart}, 1).ok());
  EXPECT_EQ(run({wait}, {}, 5).status().code(), Code::kAborted);
  ASSERT_TRUE(session().Run({}, {}, {end}).ok());
  // Who is behind catches up first: that step has been made.
  EXPECT_EQ(Text(run({wait}, {}, 0)), Tensor::Scalar(int64_t{1}).ToString());
  const Status ended = run({wait}, {}, 1).status();
  EXPECT_EQ(ended.code(), Code::kOutOfRange);
  EXPECT_NE(ended.message().find("no more data"), std::string::npos) << ended;
  EXPECT_EQ(session().Run({}, {now}).value()[0].scalar<int64_t>(), -1);
}

}  // namespace
}  // namespace monograph
