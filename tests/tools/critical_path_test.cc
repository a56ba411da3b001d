#include "tools/critical_path.h"

#include <gtest/gtest.h>

#include "executor/trace.h"

namespace monograph {
namespace {

using Kind = PathSegment::Kind;

TraceEvent Event(TraceKind kind, const char* name, const char* op, int start_us, int end_us, int id,
                 int after, int edge = -1) {
  return {kind, name, op, "cpu", 1, edge, 64, start_us * 1000, end_us * 1000, id, after};
}

// worker/0: read 0-10, long 12-50, short 12-20, send at 50 (after long)
// ps/0:     receives at 70, update 75-90; something that nobody waits for 0-30
std::vector<TaskTrace> TwoTasks() {
  return {{"/job:worker/replica:0/task:0",
           0,
           {Event(TraceKind::kNode, "read", "ReadVariableOp", 0, 10, 0, -1),
            Event(TraceKind::kNode, "short", "Relu", 12, 20, 1, 0),
            Event(TraceKind::kNode, "long", "MatMul", 12, 50, 2, 0),
            Event(TraceKind::kSend, "long:0", "_Send", 50, 51, 3, 2, 7)}},
          {"/job:ps/replica:0/task:0",
           0,
           {Event(TraceKind::kNode, "other", "NoOp", 0, 30, 0, -1),
            Event(TraceKind::kRecv, "long:0", "_Recv", 70, 70, 1, -1, 7),
            Event(TraceKind::kNode, "update", "ResourceApplyAdam", 75, 90, 2, 1)}}};
}

TEST(CriticalPath, FollowsTheLastInputOfEachNodeAndTheSendOfEachReceive) {
  const Result<CriticalPath> path = FindCriticalPath(ToChromeJson(TwoTasks()));
  ASSERT_TRUE(path.ok()) << path.status();
  struct Expected {
    Kind kind;
    const char *name, *op, *task;
    double start, us;
  };
  const std::vector<Expected> expected = {
      {Kind::kCompute, "read", "ReadVariableOp", "/job:worker/replica:0/task:0", 0, 10},
      {Kind::kWait, "long", "", "/job:worker/replica:0/task:0", 10, 2},
      {Kind::kCompute, "long", "MatMul", "/job:worker/replica:0/task:0", 12, 38},
      {Kind::kTransfer, "long:0", "_Recv", "/job:ps/replica:0/task:0", 50, 20},
      {Kind::kWait, "update", "", "/job:ps/replica:0/task:0", 70, 5},
      {Kind::kCompute, "update", "ResourceApplyAdam", "/job:ps/replica:0/task:0", 75, 15},
  };
  ASSERT_EQ(path->segments.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const PathSegment& segment = path->segments[i];
    EXPECT_EQ(segment.kind, expected[i].kind) << i;
    EXPECT_EQ(segment.name, expected[i].name) << i;
    EXPECT_EQ(segment.op, expected[i].op) << i;
    EXPECT_EQ(segment.task, expected[i].task) << i;
    EXPECT_NEAR(segment.start_us, expected[i].start, 1e-6) << i;
    EXPECT_NEAR(segment.us, expected[i].us, 1e-6) << i;
  }
  EXPECT_NEAR(path->total_us, 90, 1e-6);
  EXPECT_NEAR(path->compute_us, 63, 1e-6);
  EXPECT_NEAR(path->transfer_us, 20, 1e-6);
  EXPECT_NEAR(path->wait_us, 7, 1e-6);
}

TEST(CriticalPath, AReceiveWithoutASendIsAFeedThatWasOnItsWayFromTheStart) {
  std::vector<TaskTrace> tasks = {{"/job:a",
                                   0,
                                   {Event(TraceKind::kNode, "early", "NoOp", 0, 1, 0, -1),
                                    Event(TraceKind::kRecv, "x:0", "_Recv", 8, 8, 1, -1, 3),
                                    Event(TraceKind::kNode, "y", "Mul", 8, 20, 2, 1)}}};
  const CriticalPath path = FindCriticalPath(ToChromeJson(tasks)).value();
  ASSERT_EQ(path.segments.size(), 2u);
  EXPECT_EQ(path.segments[0].kind, Kind::kTransfer);
  EXPECT_NEAR(path.segments[0].us, 8, 1e-6);
  EXPECT_NEAR(path.total_us, 20, 1e-6);
}

TEST(CriticalPath, ANodeThatIsReadyWaitsForItsThread) {
  // "last" has its input at 10, but its thread is busy until 60 with a node of another chain.
  std::vector<TaskTrace> tasks = {{"/job:a",
                                   0,
                                   {Event(TraceKind::kNode, "first", "MatMul", 0, 10, 0, -1),
                                    Event(TraceKind::kNode, "other", "Conv2D", 12, 60, 1, -1),
                                    Event(TraceKind::kNode, "last", "Relu", 60, 70, 2, 0)}}};
  const CriticalPath path = FindCriticalPath(ToChromeJson(tasks)).value();
  ASSERT_EQ(path.segments.size(), 4u);
  EXPECT_EQ(path.segments[2].name, "other");
  EXPECT_NEAR(path.compute_us, 68, 1e-6);
  EXPECT_NEAR(path.wait_us, 2, 1e-6);
}

TEST(CriticalPath, AnOpThatWaitsForOthersIsWaiting) {
  std::vector<TaskTrace> tasks = {
      {"/job:a",
       0,
       {Event(TraceKind::kNode, "token", "QueueDequeueV2", 0, 30, 0, -1),
        Event(TraceKind::kNode, "gate", "MonographStepGateWait", 30, 50, 1, 0)}}};
  const CriticalPath path = FindCriticalPath(ToChromeJson(tasks)).value();
  EXPECT_NEAR(path.wait_us, 50, 1e-6);
  EXPECT_EQ(path.compute_us, 0);
}

TEST(CriticalPath, ClocksThatDifferDoNotMakeTimesNegative) {
  std::vector<TaskTrace> tasks = TwoTasks();
  tasks[1].clock_offset_ns = -40'000;  // the receive now lies before its send
  const CriticalPath path = FindCriticalPath(ToChromeJson(tasks)).value();
  double sum = 0;
  for (const PathSegment& segment : path.segments) {
    EXPECT_GT(segment.us, 0);
    sum += segment.us;
  }
  EXPECT_NEAR(sum, path.total_us, 1e-6);
}

TEST(CriticalPath, OtherTextIsRefused) {
  EXPECT_EQ(FindCriticalPath("x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(FindCriticalPath("{\"traceEvents\": [{}]}").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(FindCriticalPath(ToChromeJson({})).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace monograph
