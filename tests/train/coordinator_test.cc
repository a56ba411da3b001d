#include "train/coordinator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/queue/queue.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

using namespace std::chrono_literals;

TEST(Coordinator, TheFirstErrorStopsAllAndIsWhatJoinGives) {
  Coordinator coordinator;
  coordinator.Start("waits", [&] {
    EXPECT_TRUE(coordinator.WaitForStop(20s));
    return Aborted("later");
  });
  coordinator.Start("fails", [] { return Internal("first"); });
  EXPECT_EQ(coordinator.Join(), Internal("first"));
  EXPECT_TRUE(coordinator.ShouldStop());
  EXPECT_EQ(coordinator.status(), Internal("first"));
}

TEST(Coordinator, TheEndOfTheDataIsACleanStop) {
  Coordinator coordinator;
  coordinator.Start("reads", [] { return OutOfRange("no more data"); });
  coordinator.Start("waits", [&] {
    EXPECT_TRUE(coordinator.WaitForStop(20s));
    return Status();
  });
  EXPECT_TRUE(coordinator.Join().ok());
}

TEST(Coordinator, AThreadThatEndsWellStopsNobody) {
  Coordinator coordinator;
  coordinator.Start("short", [] { return Status(); });
  EXPECT_TRUE(coordinator.Join().ok());
  EXPECT_FALSE(coordinator.ShouldStop());
  EXPECT_FALSE(coordinator.WaitForStop(1ms));
}

TEST(Coordinator, JoinNamesThreadsThatDoNotStop) {
  std::promise<void> release;
  Coordinator coordinator;
  coordinator.Start("stubborn", [&] {
    release.get_future().wait();
    return Status();
  });
  coordinator.RequestStop();
  const Status status = coordinator.Join(20ms);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("threads still running after 20 ms: stubborn"), std::string::npos)
      << status;
  release.set_value();
  EXPECT_TRUE(coordinator.Join().ok());
}

class QueueRunnerTest : public ::testing::Test {
 protected:
  QueueRunnerTest() : graph_(NewGraph()), root_(&graph_) {
    counter_ = VarHandle(root_.WithOpName("counter"), DT_INT32, Shape());
    start_ = AssignVariable(root_, counter_, Const(root_, 0));
    queue_ = FIFOQueue(root_.WithOpName("q"), {DT_INT32},
                       {.capacity = 2, .shapes = {PartialShape::Scalar()}});
    get_ = QueueDequeue(root_, queue_)[0];
  }
  Session& session() {
    if (session_ == nullptr) {
      EXPECT_TRUE(root_.ok()) << root_.status();
      session_ = Session::Local(graph_).value();
      EXPECT_TRUE(session_->Run({}, {}, {start_}).ok());
    }
    return *session_;
  }
  Result<int> Get() {
    MG_ASSIGN_OR_RETURN(auto values, session().Run({}, {get_}, {}, {.timeout = 20s}));
    return values[0].scalar<int32_t>();
  }

  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
  Output counter_, queue_, get_;
  Operation start_;
};

TEST_F(QueueRunnerTest, FillsTheQueueUntilTheDataEndsAndThenClosesIt) {
  // The data: a queue that holds five numbers and is closed.
  const Output source = FIFOQueue(root_, {DT_INT32}, {.shapes = {PartialShape::Scalar()}});
  const Operation fill = QueueEnqueueMany(root_, source, {Const(root_, {1, 2, 3, 4, 5})});
  const Operation end = QueueClose(root_, source);
  std::vector<Operation> puts;
  for (int i = 0; i < 2; ++i)
    puts.push_back(QueueEnqueue(root_, queue_, QueueDequeue(root_, source)));
  const QueueRunner runner(puts, QueueClose(root_, queue_), QueueClose(root_, queue_, true));
  ASSERT_TRUE(session().Run({}, {}, {fill}).ok());
  ASSERT_TRUE(session().Run({}, {}, {end}).ok());
  Coordinator coordinator;
  runner.Start(&session(), &coordinator);
  int sum = 0;
  for (int i = 0; i < 5; ++i) sum += Get().value();
  EXPECT_EQ(sum, 15);
  EXPECT_EQ(Get().status().code(), Code::kOutOfRange);
  EXPECT_TRUE(coordinator.Join().ok());
  EXPECT_FALSE(coordinator.ShouldStop());
}

TEST_F(QueueRunnerTest, StopsWithTheCoordinatorAlsoWhileTheQueueIsFull) {
  const QueueRunner runner({QueueEnqueue(root_, queue_, {Const(root_, 7)})},
                           QueueClose(root_, queue_), QueueClose(root_, queue_, true));
  Coordinator coordinator;
  runner.Start(&session(), &coordinator);
  EXPECT_EQ(Get().value(), 7);
  coordinator.RequestStop();
  EXPECT_TRUE(coordinator.Join(20s).ok());
}

TEST_F(QueueRunnerTest, AnErrorStopsTheCoordinator) {
  const Operation wrong = Assert(root_, Const(root_, false), {Const(root_, 1)});
  const QueueRunner runner(
      {QueueEnqueue(root_.WithControlDependencies({wrong}), queue_, {Const(root_, 7)})},
      QueueClose(root_, queue_), QueueClose(root_, queue_, true));
  Coordinator coordinator;
  runner.Start(&session(), &coordinator);
  EXPECT_EQ(coordinator.Join(20s).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace monograph
