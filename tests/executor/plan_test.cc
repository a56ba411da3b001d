#include "executor/plan/plan.h"

#include <gtest/gtest.h>

#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::kCpu0;
using testing::TestTask;

bool Contains(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

TEST(CompilePlan, NamesNodeOpDeviceAndWhatIsRegisteredWhereAKernelIsMissing) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Op("_Recv", {},
                          {{"edge_id", int64_t{0}},
                           {"send_device", std::string()},
                           {"recv_device", std::string()},
                           {"tensor_name", std::string("x")},
                           {"T", DT_DOUBLE}});
  b.Op("TDouble", {x});
  const Status status = task.Compile(graph).status();
  EXPECT_EQ(status,
            NotFound(std::string("node 'TDouble' (TDouble) on ") + kCpu0 +
                     ": op 'TDouble' has no CPU kernel for T=double; registered: CPU T=float"));
}

TEST(CompilePlan, SaysWhenAnOpHasNoKernelAtAll) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder(&graph).Add("TNowhere");
  const Status status = task.Compile(graph).status();
  EXPECT_TRUE(Contains(status, "op 'TNowhere' has no kernel on any device")) << status;
}

TEST(CompilePlan, PassesOnWhyAKernelRefusesItsNode) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder(&graph).Add("TRefuse");
  EXPECT_EQ(task.Compile(graph).status(),
            InvalidArgument(std::string("node 'TRefuse' (TRefuse) on ") + kCpu0 +
                            ": strides must be positive"));
}

TEST(CompilePlan, NamesADeviceThatTheTaskLacksAndThoseItHas) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder(&graph).Add("TNoOp", {}, {}, {}, "/job:test/replica:0/task:0/device:CPU:7");
  const Status status = task.Compile(graph).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(Contains(status, "node 'TNoOp' (TNoOp) on /job:test/replica:0/task:0/device:CPU:7"))
      << status;
  EXPECT_TRUE(Contains(status, kCpu0)) << status;
}

TEST(CompilePlan, RefusesTwoSendsOfOneEdge) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(3, b.Const(1));
  b.Send(3, b.Const(1));
  EXPECT_TRUE(Contains(task.Compile(graph).status(), "edge 3 is also that of node '_Send'"));
}

TEST(CompilePlan, NamesACycleThroughALinkedPair) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(0, b.Op("TInc", {b.Recv(0)}));
  EXPECT_EQ(task.Compile(graph).status(),
            InvalidArgument("the nodes of this task wait for each other in a cycle: "
                            "'_Recv' -> 'TInc' -> '_Send' -> '_Recv'"));
}

TEST(CompilePlan, NamesACycleOfNothingButALinkedPair) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  b.Send(0, b.Recv(0));
  EXPECT_EQ(task.Compile(graph).status(),
            InvalidArgument("the nodes of this task wait for each other in a cycle: "
                            "'_Recv' -> '_Send' -> '_Recv'"));
}

TEST(CompilePlan, TellsTheEdgesThatCrossTheTask) {
  TestTask task(1);
  Graph graph = task.NewGraph();
  Builder b(&graph);
  const Endpoint x = b.Recv(12, {}, kCpu0, PartialShape{-1, 4});
  b.Send(40, b.Op("TInc", {x}), /*priority=*/3);
  const auto plan = task.Compile(graph).value();
  ASSERT_EQ(plan->recv_edges().size(), 1u);
  const EdgeInfo& in = plan->recv_edges()[0];
  EXPECT_EQ(in.id, 12);
  EXPECT_EQ(in.dtype, DT_FLOAT);
  EXPECT_EQ(in.shape.ToString(), "[?,4]");
  EXPECT_EQ(in.name, "edge_12");
  EXPECT_EQ(in.send_device, testing::kElsewhere);
  ASSERT_EQ(plan->send_edges().size(), 1u);
  EXPECT_EQ(plan->send_edges()[0].id, 40);
  EXPECT_EQ(plan->send_edges()[0].priority, 3);
}

}  // namespace
}  // namespace monograph
