// Queues in one process: order, waiting, closing, and what happens to a step that is cancelled
// while it waits.
#include "ops/queue/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/reader/reader.h"
#include "ops/variable/variable.h"
#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using namespace std::chrono_literals;
using Values = Result<std::vector<Tensor>>;

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() : graph_(NewGraph()), root_(&graph_) {
    number_ = Placeholder(root_.WithOpName("number"), DT_INT32, PartialShape::Scalar());
    numbers_ = Placeholder(root_.WithOpName("numbers"), DT_INT32, {-1});
  }
  ~QueueTest() override { EXPECT_TRUE(root_.ok()) << root_.status(); }

  Session& session() {
    if (session_ == nullptr) {
      EXPECT_TRUE(root_.ok()) << root_.status();
      session_ = Session::Local(graph_).value();
    }
    return *session_;
  }
  // A queue of int32 scalars named "q", and the operations on it that tests use.
  void MakeQueue(int64_t capacity = -1) {
    Use(FIFOQueue(root_.WithOpName("q"), {DT_INT32},
                  {.capacity = capacity, .shapes = {PartialShape::Scalar()}}));
  }
  void MakeShuffled(const RandomShuffleQueueOptions& options) {
    Use(RandomShuffleQueue(root_.WithOpName("q"), {DT_INT32}, options));
  }
  void Use(const Output& queue) {
    queue_ = queue;
    put_ = QueueEnqueue(root_, queue_, {number_});
    put_many_ = QueueEnqueueMany(root_, queue_, {numbers_});
    get_ = QueueDequeue(root_, queue_).at(0);
    count_ = Placeholder(root_, DT_INT32, PartialShape::Scalar());
    get_many_ = QueueDequeueMany(root_, queue_, count_).at(0);
    get_up_to_ = QueueDequeueUpTo(root_, queue_, count_).at(0);
    close_ = QueueClose(root_, queue_);
    close_now_ = QueueClose(root_, queue_, true);
    size_ = QueueSize(root_, queue_);
    closed_ = QueueIsClosed(root_, queue_);
  }

  Status Put(int value) {
    return session().Run({{number_, Tensor::Scalar(value)}}, {}, {put_}).status();
  }
  Status PutMany(std::vector<int32_t> values, std::chrono::milliseconds timeout = 20s) {
    return session()
        .Run({{numbers_,
               Tensor::FromValues<int32_t>({static_cast<int64_t>(values.size())}, values)}},
             {}, {put_many_}, {.timeout = timeout})
        .status();
  }
  Values Get() { return session().Run({}, {get_}, {}, {.timeout = 20s}); }
  Values GetMany(int n, std::chrono::milliseconds timeout = 20s) {
    return session().Run({{count_, Tensor::Scalar(n)}}, {get_many_}, {}, {.timeout = timeout});
  }
  Values GetUpTo(int n) {
    return session().Run({{count_, Tensor::Scalar(n)}}, {get_up_to_}, {}, {.timeout = 20s});
  }
  Status Close(bool cancel = false) {
    return session().Run({}, {}, {cancel ? close_now_ : close_}, {.timeout = 20s}).status();
  }
  int Size() { return session().Run({}, {size_}).value()[0].scalar<int32_t>(); }
  bool Closed() { return session().Run({}, {closed_}).value()[0].scalar<bool>(); }

  // A step that goes on by itself.
  std::future<Values> Async(const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                            const std::vector<Operation>& targets = {}) {
    std::vector<Output> fed;
    std::vector<Tensor> values;
    for (const auto& [output, value] : feeds) fed.push_back(output), values.push_back(value);
    auto promise = std::make_shared<std::promise<Values>>();
    session().RunAsync(session().MakeCallable(fed, fetches, targets).value(), values,
                       [promise](Values result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  // Does not end, and has had the time, also on a busy machine, to come to where it waits.
  static bool Waits(std::future<Values>& step) {
    return step.wait_for(300ms) == std::future_status::timeout;
  }
  static Values End(std::future<Values>& step) {
    if (step.wait_for(20s) != std::future_status::ready) return DeadlineExceeded("still waits");
    return step.get();
  }
  static std::string Text(const Values& values) {
    return values.ok() ? values->at(0).ToString(100) : values.status().ToString();
  }
  static void ExpectError(const Status& status, Code code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no '" << part << "' in " << status;
  }

  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
  Output number_, numbers_, count_, queue_, get_, get_many_, get_up_to_, size_, closed_;
  Operation put_, put_many_, close_, close_now_;
};

TEST_F(QueueTest, ElementsComeOutInTheOrderInWhichTheyWentIn) {
  MakeQueue();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(i).ok());
  ASSERT_TRUE(PutMany({3, 4}).ok());
  EXPECT_EQ(Size(), 5);
  EXPECT_EQ(Text(Get()), Tensor::Scalar(0).ToString());
  EXPECT_EQ(Text(GetMany(4)), Tensor::Vector<int32_t>({1, 2, 3, 4}).ToString());
  EXPECT_EQ(Size(), 0);
  EXPECT_EQ(Text(GetMany(0)), Tensor::FromValues<int32_t>({0}, {}).ToString());
}

TEST_F(QueueTest, DequeueingWaitsForAnElementAndFirstComeFirstServed) {
  MakeQueue();
  auto first = Async({}, {get_}), second = Async({}, {get_});
  EXPECT_TRUE(Waits(first));
  ASSERT_TRUE(PutMany({7, 8}).ok());
  EXPECT_EQ(Text(End(first)), Tensor::Scalar(7).ToString());
  EXPECT_EQ(Text(End(second)), Tensor::Scalar(8).ToString());
}

TEST_F(QueueTest, EnqueueingIntoAFullQueueWaitsForRoom) {
  MakeQueue(2);
  ASSERT_TRUE(PutMany({1, 2}).ok());
  auto put = Async({{number_, Tensor::Scalar(3)}}, {}, {put_});
  EXPECT_TRUE(Waits(put));
  EXPECT_EQ(Text(Get()), Tensor::Scalar(1).ToString());
  EXPECT_TRUE(End(put).ok());
  EXPECT_EQ(Text(GetMany(2)), Tensor::Vector<int32_t>({2, 3}).ToString());
}

TEST_F(QueueTest, MoreElementsThanTheCapacityPassThroughPieceByPiece) {
  MakeQueue(2);
  auto put = Async({{numbers_, Tensor::Vector<int32_t>({1, 2, 3, 4, 5})}}, {}, {put_many_});
  EXPECT_EQ(Text(GetMany(5)), Tensor::Vector<int32_t>({1, 2, 3, 4, 5}).ToString());
  EXPECT_TRUE(End(put).ok());
}

TEST_F(QueueTest, AClosedQueueGivesWhatIsLeftAndThenOutOfRange) {
  MakeQueue();
  ASSERT_TRUE(PutMany({1, 2, 3}).ok());
  EXPECT_FALSE(Closed());
  ASSERT_TRUE(Close().ok());
  EXPECT_TRUE(Closed());
  ExpectError(Put(4), Code::kCancelled, "FIFOQueue 'q' is closed.");
  ExpectError(Close(), Code::kCancelled, "FIFOQueue 'q' is already closed.");
  ExpectError(
      GetMany(4).status(), Code::kOutOfRange,
      "FIFOQueue 'q' is closed and has insufficient elements (requested 4, current size 3)");
  EXPECT_EQ(Text(Get()), Tensor::Scalar(1).ToString());
  EXPECT_EQ(Text(GetUpTo(5)), Tensor::Vector<int32_t>({2, 3}).ToString());
  ExpectError(GetUpTo(5).status(), Code::kOutOfRange, "(requested 5, current size 0)");
  ExpectError(
      Get().status(), Code::kOutOfRange,
      "FIFOQueue 'q' is closed and has insufficient elements (requested 1, current size 0)");
}

TEST_F(QueueTest, NoRowsAtAllWaitForNothing) {
  MakeQueue(1);
  ASSERT_TRUE(Put(1).ok());
  auto put = Async({{number_, Tensor::Scalar(2)}}, {}, {put_});
  EXPECT_TRUE(Waits(put));
  EXPECT_TRUE(PutMany({}).ok());
  EXPECT_EQ(Text(Get()), Tensor::Scalar(1).ToString());
  EXPECT_TRUE(End(put).ok());
  ASSERT_TRUE(Close().ok());
  EXPECT_TRUE(PutMany({}).ok());
}

TEST_F(QueueTest, AWaitThatClosingEndsLeavesWhatItHeldToTheNext) {
  MakeQueue();
  ASSERT_TRUE(PutMany({1, 2}).ok());
  auto many = Async({{count_, Tensor::Scalar(3)}}, {get_many_});
  EXPECT_TRUE(Waits(many));
  auto one = Async({}, {get_});
  EXPECT_TRUE(Waits(one));
  auto up_to = Async({{count_, Tensor::Scalar(5)}}, {get_up_to_});
  EXPECT_TRUE(Waits(up_to));
  ASSERT_TRUE(Close(true).ok());
  ExpectError(End(many).status(), Code::kOutOfRange, "(requested 3, current size 2)");
  EXPECT_EQ(Text(End(one)), Tensor::Scalar(1).ToString());
  EXPECT_EQ(Text(End(up_to)), Tensor::Vector<int32_t>({2}).ToString());
}

TEST_F(QueueTest, ClosingWakesThoseWhoWaitForElements) {
  MakeQueue();
  ASSERT_TRUE(PutMany({1, 2}).ok());
  auto many = Async({{count_, Tensor::Scalar(3)}}, {get_many_});
  auto up_to = Async({{count_, Tensor::Scalar(3)}}, {get_up_to_});
  EXPECT_TRUE(Waits(many));
  ASSERT_TRUE(Close().ok());
  ExpectError(End(many).status(), Code::kOutOfRange, "(requested 3, current size 2)");
  EXPECT_EQ(Text(End(up_to)), Tensor::Vector<int32_t>({1, 2}).ToString());
}

TEST_F(QueueTest, ClosingLetsThoseInWhoWaitForRoomUnlessItCancelsThem) {
  MakeQueue(1);
  ASSERT_TRUE(Put(1).ok());
  auto put = Async({{number_, Tensor::Scalar(2)}}, {}, {put_});
  EXPECT_TRUE(Waits(put));
  auto close = Async({}, {}, {close_});
  EXPECT_TRUE(Waits(close));
  auto late = Async({{number_, Tensor::Scalar(3)}}, {}, {put_});
  EXPECT_EQ(Text(GetMany(2)), Tensor::Vector<int32_t>({1, 2}).ToString());
  EXPECT_TRUE(End(put).ok());
  EXPECT_TRUE(End(close).ok());
  ExpectError(End(late).status(), Code::kCancelled, "FIFOQueue 'q' is closed.");
}

TEST_F(QueueTest, CancellingCloseFailsThoseWhoWaitForRoom) {
  MakeQueue(1);
  ASSERT_TRUE(Put(1).ok());
  auto put = Async({{number_, Tensor::Scalar(2)}}, {}, {put_});
  EXPECT_TRUE(Waits(put));
  ASSERT_TRUE(Close(true).ok());
  ExpectError(End(put).status(), Code::kCancelled, "Enqueue operation was cancelled");
  EXPECT_EQ(Text(Get()), Tensor::Scalar(1).ToString());
}

TEST_F(QueueTest, AStepThatWaitsHoldsUpNoOther) {
  MakeQueue();
  auto waiting = Async({}, {get_});
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(session().Run({}, {size_}, {}, {.timeout = 20s}).ok()) << "step " << i;
  }
  EXPECT_TRUE(Waits(waiting));
  ASSERT_TRUE(Put(1).ok());
  EXPECT_EQ(Text(End(waiting)), Tensor::Scalar(1).ToString());
}

TEST_F(QueueTest, AStepThatWaitsHoldsUpNoStepWhoseNumberIsGiven) {
  MakeQueue();
  for (uint64_t step = 1; step < 4; ++step) {
    auto waiting = Async({}, {get_});
    for (uint64_t i = 0; i < 100; ++i) {
      const uint64_t number = (100 * step + i) * 1025;
      ASSERT_TRUE(session().Run({}, {size_}, {}, {.timeout = 20s, .step = number}).ok()) << number;
    }
    // A row leaves nothing of its places free in which another step waits.
    ASSERT_TRUE(session()
                    .Run({}, {size_}, {},
                         {.timeout = 20s, .step = (100 * step + 99) * 1025 + 1, .steps = 99})
                    .ok());
    ASSERT_TRUE(Put(1).ok());
    EXPECT_TRUE(End(waiting).ok());
  }
}

TEST_F(QueueTest, AStepThatRunsOutOfTimeTakesNothingOut) {
  MakeQueue();
  ASSERT_TRUE(PutMany({1, 2}).ok());
  ExpectError(GetMany(3, 50ms).status(), Code::kDeadlineExceeded, "did not end within");
  EXPECT_EQ(Size(), 2);
  ASSERT_TRUE(Put(3).ok());
  EXPECT_EQ(Text(GetMany(3)), Tensor::Vector<int32_t>({1, 2, 3}).ToString());
}

TEST_F(QueueTest, AStepThatRunsOutOfTimePutsInNothingMore) {
  MakeQueue(2);
  ExpectError(PutMany({1, 2, 3}, 50ms), Code::kDeadlineExceeded, "did not end within");
  EXPECT_EQ(Text(GetMany(2)), Tensor::Vector<int32_t>({1, 2}).ToString());
  EXPECT_EQ(Size(), 0);
}

TEST_F(QueueTest, AStepThatRunsOutOfTimeNamesTheTaskTheNodeTheOpAndTheQueue) {
  MakeQueue(2);
  ASSERT_TRUE(Put(1).ok());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(GetMany(3, 100ms).status().message(),
            "step 2 did not end within 0.1 s; tasks still running: "
            "/job:localhost/replica:0/task:0 (node 'QueueDequeueManyV2' (QueueDequeueManyV2): "
            "FIFOQueue 'q' has insufficient elements (requested 3, current size 1))");
  // All that there is to know is known at once.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  ExpectError(PutMany({2, 3, 4}, 50ms), Code::kDeadlineExceeded,
              "node 'QueueEnqueueManyV2' (QueueEnqueueManyV2): FIFOQueue 'q' is full (capacity 2, "
              "current size 2)");
  ASSERT_TRUE(GetMany(2).ok());
  // Also of a row, of which the second step waits ...
  ASSERT_TRUE(Put(5).ok());
  const Status row = session().Run({}, {get_}, {}, {.timeout = 100ms, .steps = 4}).status();
  ExpectError(row, Code::kDeadlineExceeded,
              "tasks still running: /job:localhost/replica:0/task:0 (node 'QueueDequeueV2' "
              "(QueueDequeueV2): FIFOQueue 'q' has insufficient elements (requested 1, current "
              "size 0))");
  // ... and of a step that nobody waits for.
  std::promise<Status> ended;
  session().RunAsync(session().MakeCallable({}, {get_}).value(), {},
                     [&](const Values& result) { ended.set_value(result.status()); },
                     {.timeout = 100ms});
  ExpectError(ended.get_future().get(), Code::kDeadlineExceeded, "FIFOQueue 'q' has insufficient");
}

TEST_F(QueueTest, AStepThatRunsOutOfTimeNamesFewOfManyNodes) {
  MakeQueue();
  std::vector<Output> gets;
  for (int i = 0; i < 40; ++i)
    gets.push_back(QueueDequeue(root_.WithOpName(std::string(200, 'n')), queue_)[0]);
  const Status status = session().Run({}, gets, {}, {.timeout = 100ms}).status();
  ExpectError(status, Code::kDeadlineExceeded, "; and 37 more nodes)");
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_LT(status.message().size(), 1000u) << status;
}

// Readers, which take names of files from a queue.
class ReaderInSessionTest : public QueueTest {
 protected:
  ReaderInSessionTest() {
    files_ =
        FIFOQueue(root_.WithOpName("files"), {DT_STRING}, {.shapes = {PartialShape::Scalar()}});
    name_ = Placeholder(root_.WithOpName("name"), DT_STRING, PartialShape::Scalar());
    put_ = QueueEnqueue(root_, files_, {name_});
    reader_ = TextLineReader(root_.WithOpName("reader"));
  }
  Status PutFile(const std::string& name) {
    return session().Run({{name_, Tensor::String(name)}}, {}, {put_}).status();
  }

  const TemporaryFolder folder_;
  Output files_, name_, reader_;
};

TEST_F(ReaderInSessionTest, AStepThatRunsOutOfTimeWhileAnotherReadsTakesNoRecord) {
  const Output line = ReaderRead(root_, reader_, files_).value;
  auto first = Async({}, {line});
  ASSERT_TRUE(Waits(first));
  ExpectError(session().Run({}, {line}, {}, {.timeout = 100ms}).status(), Code::kDeadlineExceeded,
              "did not end within");
  ASSERT_TRUE(PutFile(folder_.Write("f", "one\ntwo\n")).ok());
  EXPECT_EQ(*End(first).value()[0].strings(), "one");
  const Values second = session().Run({}, {line}, {}, {.timeout = 20s});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*(*second)[0].strings(), "two");
}

TEST_F(ReaderInSessionTest, ThousandsWhoWaitForAReaderAreServedOneAfterTheOther) {
  constexpr int kCount = 20'000;
  std::vector<Operation> reads;
  std::string lines;
  for (int i = 0; i < kCount; ++i) {
    reads.push_back(ReaderRead(root_, reader_, files_).value);
    lines += "x\n";
  }
  const Operation all = Group(root_, reads);
  auto step = Async({}, {}, {all});
  ASSERT_TRUE(Waits(step));
  ASSERT_TRUE(PutFile(folder_.Write("f", lines)).ok());
  const Values end = End(step);
  EXPECT_TRUE(end.ok()) << end.status();
}

TEST_F(QueueTest, AFailureElsewhereInTheStepEndsItsWait) {
  MakeQueue();
  const Operation wrong = Assert(root_, Const(root_, false), {Const(root_, 1)});
  const auto values = session().Run({}, {get_}, {wrong}, {.timeout = 20s});
  EXPECT_EQ(values.status().code(), Code::kInvalidArgument) << values.status();
  ASSERT_TRUE(Put(1).ok());
  EXPECT_EQ(Size(), 1);
}

TEST_F(QueueTest, ClosingTheSessionEndsAWait) {
  MakeQueue();
  auto get = Async({}, {get_});
  EXPECT_TRUE(Waits(get));
  EXPECT_TRUE(session().Close().ok());
  EXPECT_EQ(End(get).status().code(), Code::kCancelled);
}

TEST_F(QueueTest, RemovingAQueueEndsAWait) {
  MakeQueue(1);
  auto get = Async({}, {get_});
  EXPECT_TRUE(Waits(get));
  ASSERT_TRUE(session().Reset().ok());
  ExpectError(End(get).status(), Code::kAborted, "FIFOQueue 'q' was removed");
  ASSERT_TRUE(Put(1).ok());
  auto put = Async({{number_, Tensor::Scalar(2)}}, {}, {put_});
  EXPECT_TRUE(Waits(put));
  const Operation destroy = DestroyResource(root_, queue_);
  ASSERT_TRUE(session().Run({}, {}, {destroy}).ok());
  ExpectError(End(put).status(), Code::kAborted, "FIFOQueue 'q' was removed");
  EXPECT_EQ(Size(), 0);
}

TEST_F(QueueTest, ElementsHaveSeveralComponentsOfAnyType) {
  const Output queue =
      FIFOQueue(root_, {DT_STRING, DT_FLOAT}, {.shapes = {PartialShape::Scalar(), {2}}});
  const Output name = Placeholder(root_, DT_STRING, PartialShape::Scalar());
  const Operation put = QueueEnqueue(root_, queue, {name, Const(root_, {1.0f, 2.0f})});
  const Outputs two = QueueDequeueMany(root_, queue, 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].shape().ToString(), "[2]");
  EXPECT_EQ(two[1].shape().ToString(), "[2,2]");
  for (const char* text : {"a", "b"})
    ASSERT_TRUE(session().Run({{name, Tensor::String(text)}}, {}, {put}).ok());
  const auto values = session().Run({}, two);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).strings()[1], "b");
  EXPECT_EQ(values->at(1).ToString(), Tensor::FromValues<float>({2, 2}, {1, 2, 1, 2}).ToString());
}

TEST_F(QueueTest, WhatDoesNotFitIsRefusedWithBothSides) {
  const Output queue = FIFOQueue(root_.WithOpName("pairs"), {DT_FLOAT, DT_INT32},
                                 {.shapes = {{2}, PartialShape::Scalar()}});
  const Output x = Placeholder(root_, DT_FLOAT), i = Placeholder(root_, DT_INT32);
  const auto run = [&](const Operation& target, Tensor x_value, Tensor i_value) {
    return session().Run({{x, std::move(x_value)}, {i, std::move(i_value)}}, {}, {target}).status();
  };
  const Operation put = QueueEnqueue(root_, queue, {x, i}),
                  swapped = QueueEnqueue(root_, queue, {i, x}),
                  both = QueueEnqueueMany(root_, queue, {x, i});
  const Operation one = QueueEnqueue(root_, queue, {x});
  const Tensor pair = Tensor::Vector<float>({1, 2}), three = Tensor::Vector<float>({1, 2, 3}),
               scalar = Tensor::Scalar(1);
  EXPECT_TRUE(run(put, pair, scalar).ok());
  ExpectError(run(put, three, scalar), Code::kInvalidArgument,
              "Shape mismatch in tuple component 0. Expected [2], got [3]");
  ExpectError(run(swapped, pair, scalar), Code::kInvalidArgument,
              "Type mismatch in tuple component 0. Expected float, got int32");
  ExpectError(session().Run({{x, pair}}, {}, {one}).status(), Code::kInvalidArgument,
              "Wrong number of components in tuple. Expected 2, got 1");
  ExpectError(run(both, Tensor::FromValues<float>({1, 2}, {1, 2}), Tensor::Vector<int32_t>({1, 2})),
              Code::kInvalidArgument,
              "All input tensors must have the same size in the 0th dimension. Component 1 has 2, "
              "and should have 1");
}

TEST_F(QueueTest, ManyElementsNeedShapesThatAreKnown) {
  const Output queue = FIFOQueue(root_.WithOpName("free"), {DT_INT32});
  const Operation put = QueueEnqueue(root_, queue, {numbers_});
  const Outputs one = QueueDequeue(root_, queue), many = QueueDequeueMany(root_, queue, 1);
  ASSERT_TRUE(session().Run({{numbers_, Tensor::Vector<int32_t>({1, 2})}}, {}, {put}).ok());
  ExpectError(
      session().Run({}, many).status(), Code::kInvalidArgument,
      "FIFOQueue's DequeueMany and DequeueUpTo require the components to have specified shapes");
  EXPECT_EQ(Text(session().Run({}, one)), Tensor::Vector<int32_t>({1, 2}).ToString());
}

TEST_F(QueueTest, TwoNodesThatDefineOneQueueDifferentlyAreShownBoth) {
  const Output a = FIFOQueue(root_, {DT_INT32}, {.capacity = 5, .shared_name = "shared"});
  const Output b = FIFOQueue(root_.WithOpName("other"), {DT_FLOAT}, {.shared_name = "shared"});
  const Output size_a = QueueSize(root_, a), size_b = QueueSize(root_, b);
  ASSERT_TRUE(session().Run({}, {size_a}).ok());
  const Status status = session().Run({}, {size_b}).status();
  ExpectError(status, Code::kFailedPrecondition, "'other' defines queue 'localhost/shared' as");
  ExpectError(status, Code::kFailedPrecondition, "FIFOQueue(component_types=[float]");
  ExpectError(status, Code::kFailedPrecondition, "FIFOQueue(component_types=[int32]");
  ExpectError(status, Code::kFailedPrecondition, "capacity=5");
}

TEST_F(QueueTest, AShuffledQueueKeepsSomeElementsWhileItIsOpen) {
  MakeShuffled({.queue = {.shapes = {PartialShape::Scalar()}}, .min_after_dequeue = 2, .seed = 7});
  ASSERT_TRUE(PutMany({0, 1, 2}).ok());
  ASSERT_TRUE(Get().ok());
  auto next = Async({}, {get_});
  EXPECT_TRUE(Waits(next));
  ASSERT_TRUE(Close().ok());
  EXPECT_TRUE(End(next).ok());
  EXPECT_TRUE(Get().ok());
  ExpectError(
      Get().status(), Code::kOutOfRange,
      "RandomShuffleQueue 'q' is closed and has insufficient elements (requested 1, current "
      "size 0)");
}

TEST_F(QueueTest, ASeedFixesTheOrderOfAShuffledQueue) {
  std::vector<int32_t> numbers(50);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  const auto order = [&](int64_t seed) {
    MakeShuffled({.queue = {.shapes = {PartialShape::Scalar()},
                            .shared_name = "q" + std::to_string(graph_.num_nodes())},
                  .seed = seed});
    EXPECT_TRUE(PutMany(numbers).ok());
    const Tensor taken = GetMany(50).value()[0];
    return std::vector<int32_t>(taken.values<int32_t>().begin(), taken.values<int32_t>().end());
  };
  const std::vector<int32_t> first = order(3), second = order(3), other = order(4);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_NE(first, numbers);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), numbers.begin()));
}

TEST_F(QueueTest, AShuffledQueueHasTensorFlowsOrder) {
  MakeShuffled({.queue = {.shapes = {PartialShape::Scalar()}}, .seed = 7, .seed2 = 11});
  const std::vector<int32_t> orders[]{// TensorFlow 2.21 gave these
                                      {3, 8, 9, 7, 5, 2, 0, 4, 6, 1},
                                      {2, 9, 7, 1, 3, 6, 8, 4, 0, 5}};
  for (const std::vector<int32_t>& order : orders) {
    ASSERT_TRUE(PutMany({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).ok());
    const Tensor taken = GetMany(10).value()[0];
    EXPECT_EQ(std::vector(taken.values<int32_t>().begin(), taken.values<int32_t>().end()), order);
  }
}

class BarrierTest : public QueueTest {
 protected:
  BarrierTest() {
    barrier_ = OpBuilder(root_.WithOpName("b"), "Barrier")
                   .Attr("component_types", types_)
                   .Attr("shapes", std::vector<PartialShape>(2, PartialShape::Scalar()))
                   .BuildOutput();
    keys_ = Placeholder(root_, DT_STRING, {-1});
    count_ = Placeholder(root_, DT_INT32, PartialShape::Scalar());
    for (int64_t i = 0; i < 2; ++i) {
      insert_[static_cast<size_t>(i)] = OpBuilder(root_, "BarrierInsertMany")
                                            .Input(barrier_)
                                            .Input(keys_)
                                            .Input(numbers_)
                                            .Attr("component_index", i)
                                            .Build();
    }
    const Operation take = OpBuilder(root_, "BarrierTakeMany")
                               .Input(barrier_)
                               .Input(count_)
                               .Attr("component_types", types_)
                               .Build();
    for (int i = 0; i < 4; ++i) take_.push_back(take.output(i));
    close_ = OpBuilder(root_, "BarrierClose").Input(barrier_).Build();
    close_now_ = OpBuilder(root_, "BarrierClose")
                     .Input(barrier_)
                     .Attr("cancel_pending_enqueues", true)
                     .Build();
    for (const char* size : {"BarrierReadySize", "BarrierIncompleteSize"})
      sizes_.push_back(OpBuilder(root_, size).Input(barrier_).BuildOutput());
  }

  Status Insert(size_t component, const std::vector<std::string>& keys,
                const std::vector<int32_t>& values) {
    const Shape shape{static_cast<int64_t>(keys.size())};
    Tensor texts = Tensor::Allocate(DT_STRING, shape).value();
    std::copy(keys.begin(), keys.end(), texts.strings());
    return session()
        .Run({{keys_, texts}, {numbers_, Tensor::FromValues<int32_t>(shape, values)}}, {},
             {insert_[component]})
        .status();
  }
  std::string Sizes() {
    const Values sizes = session().Run({}, sizes_);
    return sizes.ok() ? std::to_string(sizes->at(0).scalar<int32_t>()) + " and " +
                            std::to_string(sizes->at(1).scalar<int32_t>())
                      : sizes.status().ToString();
  }

  const std::vector<DType> types_{DT_INT32, DT_INT32};
  Output barrier_, keys_;
  std::array<Operation, 2> insert_;
  std::vector<Output> take_, sizes_;
};

TEST_F(BarrierTest, TakingWaitsForTheLastComponent) {
  ASSERT_TRUE(Insert(0, {"a", "b"}, {1, 2}).ok());
  ASSERT_TRUE(Insert(1, {"b"}, {20}).ok());
  auto two = Async({{count_, Tensor::Scalar(2)}}, take_);
  EXPECT_TRUE(Waits(two));
  ASSERT_TRUE(Insert(1, {"a"}, {10}).ok());
  const Values taken = End(two);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->at(1).strings()[0] + taken->at(1).strings()[1], "ba");
  EXPECT_EQ(taken->at(2).ToString(), Tensor::Vector<int32_t>({2, 1}).ToString());
  EXPECT_EQ(taken->at(3).ToString(), Tensor::Vector<int32_t>({20, 10}).ToString());
}

TEST_F(BarrierTest, AStepThatEndsWhileItWaitsTakesNothing) {
  ASSERT_TRUE(Insert(0, {"a", "b"}, {1, 2}).ok());
  ASSERT_TRUE(Insert(1, {"b"}, {20}).ok());
  const Values late = session().Run({{count_, Tensor::Scalar(2)}}, take_, {}, {.timeout = 100ms});
  ExpectError(late.status(), Code::kDeadlineExceeded,
              "Barrier 'b' has insufficient elements (requested 2, current size 1)");
  EXPECT_EQ(Sizes(), "1 and 1");
}

TEST_F(BarrierTest, AClosedBarrierEndsTheWaitWhenNothingMoreCanCome) {
  ASSERT_TRUE(Insert(0, {"a", "b", "c"}, {1, 2, 3}).ok());
  auto two = Async({{count_, Tensor::Scalar(2)}}, take_);
  auto three = Async({{count_, Tensor::Scalar(3)}}, take_);
  EXPECT_TRUE(Waits(two));
  ASSERT_TRUE(Close().ok());
  EXPECT_TRUE(Waits(two));
  ASSERT_TRUE(Insert(1, {"a", "b"}, {10, 20}).ok());
  EXPECT_TRUE(End(two).ok());
  EXPECT_TRUE(Waits(three));
  ASSERT_TRUE(Insert(1, {"c"}, {30}).ok());
  ExpectError(End(three).status(), Code::kOutOfRange,
              "Barrier 'b' is closed and has insufficient elements (requested 3, current size 1)");
  EXPECT_EQ(Sizes(), "1 and 0");
}

TEST_F(BarrierTest, CancellingEndsTheWaitAtOnce) {
  ASSERT_TRUE(Insert(0, {"a"}, {1}).ok());
  auto one = Async({{count_, Tensor::Scalar(1)}}, take_);
  EXPECT_TRUE(Waits(one));
  ASSERT_TRUE(Close().ok());
  EXPECT_TRUE(Waits(one));
  ASSERT_TRUE(Close(true).ok());
  ExpectError(End(one).status(), Code::kOutOfRange, "(requested 1, current size 0)");
  EXPECT_EQ(Sizes(), "0 and 0");
}

// The barrier is closed while components come and elements are taken.
TEST_F(BarrierTest, NothingIsLostWhereManyInsertAndTakeAtOnce) {
  constexpr int kGroups = 20, kKeys = 10;
  const auto keys_of = [](int group) {
    std::vector<std::string> keys;
    for (int i = 0; i < kKeys; ++i) keys.push_back(std::to_string(group) + "." + std::to_string(i));
    return keys;
  };
  const std::vector<int32_t> ones(kKeys, 1), twos(kKeys, 2);
  for (int group = 0; group < kGroups; ++group) ASSERT_TRUE(Insert(0, keys_of(group), ones).ok());
  std::vector<std::future<Values>> taken;
  std::vector<std::future<Status>> inserted;
  for (int group = 0; group < kGroups; ++group) {
    taken.push_back(Async({{count_, Tensor::Scalar(kKeys)}}, take_));
    inserted.push_back(
        std::async(std::launch::async, [&, group] { return Insert(1, keys_of(group), twos); }));
    if (group == kGroups / 2) {
      ASSERT_TRUE(Close().ok());
    }
  }
  for (std::future<Status>& step : inserted) EXPECT_TRUE(step.get().ok());
  std::set<std::string> all;
  for (std::future<Values>& step : taken) {
    const Values values = End(step);
    ASSERT_TRUE(values.ok()) << values.status();
    all.insert(values->at(1).strings(), values->at(1).strings() + kKeys);
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kGroups) * kKeys);
  auto more = Async({{count_, Tensor::Scalar(1)}}, take_);
  ExpectError(End(more).status(), Code::kOutOfRange, "(requested 1, total size 0)");
}

TEST_F(BarrierTest, ItMayNotBeDefinedTwice) {
  const Output other = OpBuilder(root_.WithOpName("other"), "Barrier")
                           .Attr("component_types", std::vector<DType>{DT_FLOAT})
                           .Attr("shapes", std::vector<PartialShape>{PartialShape::Scalar()})
                           .Attr("shared_name", "b")
                           .BuildOutput();
  const Output size = OpBuilder(root_, "BarrierReadySize").Input(other).BuildOutput();
  EXPECT_EQ(Sizes(), "0 and 0");
  ExpectError(session().Run({}, {size}).status(), Code::kFailedPrecondition,
              "'other' defines barrier 'localhost/b' as Barrier(component_types=[");
}

}  // namespace
}  // namespace monograph
