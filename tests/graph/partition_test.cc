#include "graph/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/function.h"
#include "tests/graph/pass_ops.h"

namespace monograph {
namespace {

const char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
const char kPsGpu[] = "/job:ps/replica:0/task:0/device:GPU:0";
const char kClient[] = "/job:client/replica:0/task:0/device:CPU:0";

std::string Worker(int task, const char* device = "CPU:0") {
  return "/job:worker/replica:0/task:" + std::to_string(task) + "/device:" + device;
}

#define EXPECT_SAYS(status, part) \
  EXPECT_TRUE((status).message().find(part) != std::string::npos) << (status).message()

class PartitionTest : public ::testing::Test {
 protected:
  PartitionedGraph Cut(std::vector<Endpoint> feeds = {}, std::vector<Endpoint> fetches = {}) {
    EXPECT_TRUE(root_.ok()) << root_.status();
    Result<PartitionedGraph> cut =
        PartitionGraph(graph_, {std::move(feeds), std::move(fetches), ParsedDevice(kClient)});
    EXPECT_TRUE(cut.ok()) << cut.status();
    if (!cut.ok()) return {};
    CheckTransfers(*cut);
    return std::move(cut).value();
  }

  // Every edge has its Send where it leaves and its Recv where it arrives, but for the client's
  // ends.
  static void CheckTransfers(const PartitionedGraph& cut) {
    std::multiset<int64_t> sends, recvs;
    for (const Partition& partition : cut.partitions) {
      const Graph& graph = partition.graph;
      for (NodeId node = 0; node < graph.num_nodes(); ++node) {
        EXPECT_EQ(graph.device(node).TaskName(), partition.task.TaskName());
        const bool send = graph.is(node, "_Send");
        if (!send && !graph.is(node, "_Recv")) continue;
        const int64_t id = graph.attrs(node).Get<int64_t>("edge_id");
        ASSERT_LT(static_cast<size_t>(id), cut.edges.size());
        const CrossEdge& edge = cut.edges[static_cast<size_t>(id)];
        (send ? sends : recvs).insert(id);
        EXPECT_EQ(graph.device(node), send ? edge.from : edge.to);
        EXPECT_EQ(graph.attrs(node).Get<std::string>("tensor_name"), edge.tensor_name);
        EXPECT_EQ(graph.attrs(node).Get<int64_t>("priority"), edge.priority);
        EXPECT_EQ(graph.attrs(node).Get<bool>("control"), edge.dtype == DT_INVALID);
        if (send) {
          EXPECT_EQ(graph.inputs(node).size(), edge.dtype == DT_INVALID ? 0u : 1u);
        }
      }
    }
    for (const CrossEdge& edge : cut.edges) {
      EXPECT_EQ(&edge - cut.edges.data(), edge.id);
      bool feed = false;
      for (const auto& list : cut.feed_edges)
        feed |= std::find(list.begin(), list.end(), edge.id) != list.end();
      const bool fetch = std::find(cut.fetch_edges.begin(), cut.fetch_edges.end(), edge.id) !=
                         cut.fetch_edges.end();
      EXPECT_EQ(sends.count(edge.id), feed ? 0u : 1u) << edge.tensor_name;
      EXPECT_EQ(recvs.count(edge.id), fetch ? 0u : 1u) << edge.tensor_name;
    }
  }

  static const Graph& Part(const PartitionedGraph& cut, const std::string& device) {
    for (const Partition& partition : cut.partitions) {
      if (partition.task.TaskName() == ParsedDevice(device).TaskName()) return partition.graph;
    }
    ADD_FAILURE() << "no partition of " << device;
    return cut.partitions.front().graph;
  }

  Scope On(const std::string& device) { return root_.WithDevice(device); }

  Graph graph_{&PassOps()};
  Scope root_{&graph_};
};

TEST_F(PartitionTest, AWeightReadByManyOpsOnEachWorkerCrossesOncePerWorker) {
  const Output w = Read(On(kPs), Variable(On(kPs), "w"));
  for (int worker = 0; worker < 3; ++worker) {
    for (int k = 0; k < 5; ++k) Op1(On(Worker(worker)), "Square", w);
  }
  const PartitionedGraph cut = Cut();
  ASSERT_EQ(cut.partitions.size(), 4u);
  EXPECT_EQ(cut.partitions[0].task.TaskName(), "/job:ps/replica:0/task:0");
  EXPECT_EQ(cut.partitions[3].task.TaskName(), "/job:worker/replica:0/task:2");
  ASSERT_EQ(cut.edges.size(), 3u);
  EXPECT_EQ(cut.edges[1].tensor_name, "ReadVariableOp:0");
  EXPECT_EQ(cut.edges[1].from.ToString(), kPs);
  EXPECT_EQ(cut.edges[1].to.ToString(), Worker(1));
  EXPECT_EQ(cut.edges[1].dtype, DT_FLOAT);
  EXPECT_EQ(Part(cut, Worker(1)).num_nodes(), 6);
  EXPECT_EQ(Part(cut, kPs).num_nodes(), 5);
}

TEST_F(PartitionTest, AConsumerOnAnotherDeviceOfTheTaskAddsOnePair) {
  const Output w = Placeholder(On(kPs));
  Op1(On(Worker(0, "GPU:0")), "Square", w);
  Op1(On(Worker(0, "GPU:0")), "Identity", w);
  Op1(On(Worker(0)), "Square", w);
  EXPECT_EQ(Cut().edges.size(), 2u);
}

TEST_F(PartitionTest, DevicesOfOneTaskExchangeThroughAPairInOnePartition) {
  const Output x = Placeholder(On(kPs));
  Op1(On(kPsGpu), "Square", x);
  const PartitionedGraph cut = Cut();
  ASSERT_EQ(cut.partitions.size(), 1u);
  ASSERT_EQ(cut.edges.size(), 1u);
  EXPECT_EQ(cut.partitions[0].graph.num_nodes(), 4);
}

TEST_F(PartitionTest, ControlEdgesFromOneDeviceAreGathered) {
  std::vector<Operation> assigns;
  for (int i = 0; i < 8; ++i) {
    assigns.push_back(OpBuilder(On(kPs), "AssignVariableOp")
                          .Input(Variable(On(kPs), "v" + std::to_string(i)))
                          .Input(Constant(On(kPs), Tensor::Scalar<float>(0)))
                          .Attr("dtype", DT_FLOAT)
                          .Build());
  }
  const Operation local = Group(On(Worker(0)), {});
  std::vector<Operation> all = assigns;
  all.push_back(local);
  const Operation first = Group(On(Worker(0)), all);
  const Operation second = Group(On(Worker(0)), assigns);
  Group(On(Worker(1)), assigns);
  const PartitionedGraph cut = Cut();
  ASSERT_EQ(cut.edges.size(), 2u);  // one for each worker
  EXPECT_EQ(cut.edges[0].dtype, DT_INVALID);
  EXPECT_EQ(cut.edges[0].tensor_name, "^AssignVariableOp and 7 more");
  const Graph& worker = Part(cut, Worker(0));
  const NodeId a = worker.Find(std::string(first.name())),
               b = worker.Find(std::string(second.name()));
  EXPECT_EQ(worker.control_inputs(a).size(), 2u);
  ASSERT_EQ(worker.control_inputs(b).size(), 1u);
  EXPECT_TRUE(worker.is(worker.control_inputs(b)[0], "_Recv"));
  const Graph& ps = Part(cut, kPs);
  for (NodeId node = 0; node < ps.num_nodes(); ++node) {
    if (ps.is(node, "_Send")) {
      EXPECT_EQ(ps.control_inputs(node).size(), 8u);
    }
  }
}

TEST_F(PartitionTest, AControlEdgeIsReusedByTheNextReaderInThatPartition) {
  const Operation init = Group(On(kPs), {});
  Group(On(Worker(0)), {init});
  Group(On(Worker(0)), {init});
  const PartitionedGraph cut = Cut();
  ASSERT_EQ(cut.edges.size(), 1u);
  EXPECT_EQ(cut.edges[0].tensor_name, "^NoOp");
}

TEST_F(PartitionTest, ATensorThatComesAnywayStandsForTheControlEdge) {
  const Output x = Placeholder(On(kPs));
  const Output y = Op1(On(Worker(0)), "Square", x);
  const Operation after = Group(On(Worker(0)), {x, y});
  const PartitionedGraph cut = Cut();
  EXPECT_EQ(cut.edges.size(), 1u);
  const Graph& worker = Part(cut, Worker(0));
  EXPECT_EQ(worker.control_inputs(worker.Find(after.name())).size(), 2u);
}

TEST_F(PartitionTest, AFeedGoesToEachDeviceThatReadsItAndItsNodeIsGone) {
  const Output x = Placeholder(On(kPs).WithOpName("x"), {-1, 3});
  Op1(On(Worker(0)), "Square", x);
  Op1(On(Worker(0)), "Identity", x);
  Op1(On(Worker(1)), "Square", x);
  const Output unused = Placeholder(On(kPs).WithOpName("unused"));
  const PartitionedGraph cut = Cut({x.endpoint, unused.endpoint});
  ASSERT_EQ(cut.partitions.size(), 2u);
  ASSERT_EQ(cut.feed_edges.size(), 2u);
  EXPECT_EQ(cut.feed_edges[0], (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(cut.feed_edges[1].empty());
  EXPECT_EQ(cut.edges[0].from.ToString(), kClient);
  EXPECT_EQ(cut.edges[0].shape, PartialShape({-1, 3}));
  EXPECT_EQ(Part(cut, Worker(0)).Find("x"), -1);
}

TEST_F(PartitionTest, FetchesLeaveByOneEdgePerTensor) {
  const Output x = Op1(On(Worker(0)), "Square", Placeholder(On(Worker(0))));
  Op1(On(kClient), "Identity", x);
  const PartitionedGraph cut = Cut({}, {x.endpoint, x.endpoint});
  ASSERT_EQ(cut.fetch_edges.size(), 2u);
  EXPECT_EQ(cut.fetch_edges[0], cut.fetch_edges[1]);
  const CrossEdge& fetch = cut.edges[static_cast<size_t>(cut.fetch_edges[0])];
  EXPECT_EQ(fetch.to.ToString(), kClient);
  EXPECT_EQ(fetch.tensor_name, "Square:0");
  EXPECT_EQ(cut.edges.size(), 2u);  // the client's own node receives by an edge of its own
  EXPECT_EQ(cut.partitions.size(), 2u);
}

TEST_F(PartitionTest, WhatIsFedCannotBeFetched) {
  const Output x = Placeholder(On(kPs).WithOpName("x"));
  const Status status =
      PartitionGraph(graph_, {{x.endpoint}, {x.endpoint}, ParsedDevice(kClient)}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "x is both fed and fetched.");
}

TEST_F(PartitionTest, AnUnplacedNodeAndAMovingResourceAreErrors) {
  const Output v = Variable(On(kPs), "v");
  Read(On(Worker(0)).WithOpName("away"), v);
  EXPECT_SAYS(PartitionGraph(graph_, {{}, {}, ParsedDevice(kClient)}).status(),
              "the resource 'v' on " + std::string(kPs) + " cannot move to node 'away'");
  Graph other(&PassOps());
  Scope scope(&other);
  Placeholder(scope.WithDevice("/job:ps").WithOpName("x"));
  EXPECT_SAYS(PartitionGraph(other, {{}, {}, ParsedDevice(kClient)}).status(),
              "node 'x' (Placeholder) is not placed");
}

TEST_F(PartitionTest, AVariantStaysInItsTask) {
  const Output v = OpBuilder(On(kPs).WithOpName("v"), "Placeholder")
                       .Attr("dtype", DT_VARIANT)
                       .Attr("shape", PartialShape())
                       .BuildOutput();
  const Output beside = Op1(On(kPs).WithOpName("beside"), "Identity", v);
  ASSERT_TRUE(PartitionGraph(graph_, {{}, {}, ParsedDevice(kClient)}).ok());
  EXPECT_SAYS(PartitionGraph(graph_, {{}, {beside.endpoint}, ParsedDevice(kClient)}).status(),
              "the variant 'beside' cannot be fetched");
  EXPECT_SAYS(PartitionGraph(graph_, {{v.endpoint}, {}, ParsedDevice(kClient)}).status(),
              "the variant 'v' cannot be fed");
  Op1(On(Worker(0)).WithOpName("away"), "Identity", v);
  EXPECT_SAYS(PartitionGraph(graph_, {{}, {}, ParsedDevice(kClient)}).status(),
              "the variant 'v' on " + std::string(kPs) + " cannot move to node 'away'");
}

TEST_F(PartitionTest, WhatTheReceiverNeedsFirstHasTheSmallerPriority) {
  const Output late = Placeholder(On(kPs).WithOpName("late")),
               early = Placeholder(On(kPs).WithOpName("early"));
  const Scope worker = On(Worker(0));
  Output h = Op2(worker, "Mul", Placeholder(worker), early);
  for (int i = 0; i < 3; ++i) h = Op1(worker, "Square", h);
  const Output y = Op2(worker, "Mul", h, late);
  Op1(On(kPs), "Identity", y);
  const PartitionedGraph cut = Cut();
  std::map<std::string, int32_t> priority;
  for (const CrossEdge& edge : cut.edges) priority[edge.tensor_name] = edge.priority;
  ASSERT_EQ(priority.size(), 3u);
  EXPECT_LT(priority["early:0"], priority["late:0"]);
  EXPECT_LT(priority["late:0"], priority["Mul_1:0"]);
}

TEST_F(PartitionTest, PrioritiesLookIntoCalls) {
  auto body = std::make_shared<Graph>(&PassOps());
  Scope scope(body.get());
  auto arg = [&](int i) {
    return OpBuilder(scope, "_Arg").Attr("T", DT_FLOAT).Attr("index", i).BuildOutput();
  };
  const Output late = arg(0), early = arg(1);
  Output h = Op2(scope, "Mul", early, early);
  const Output soon = h;
  for (int i = 0; i < 3; ++i) h = Op1(scope, "Square", h);
  const Output y = Op2(scope, "Mul", h, late);
  OpBuilder(scope, "_Retval").Input(y).Attr("index", 0).Build();
  OpBuilder(scope, "_Retval").Input(soon).Attr("index", 1).Build();
  ASSERT_TRUE(graph_.functions().Add(Function::Make("tower", body).value()).ok());
  auto unused = std::make_shared<Graph>(&PassOps());
  ASSERT_TRUE(graph_.functions().Add(Function::Make("unused", unused).value()).ok());

  const Output a = Placeholder(On(kPs).WithOpName("a")), b = Placeholder(On(kPs).WithOpName("b"));
  const Operation call = OpBuilder(On(Worker(0)), "PartitionedCall")
                             .Input(a)
                             .Input(b)
                             .Attr("Tout", std::vector<DType>{DT_FLOAT, DT_FLOAT})
                             .Attr("f", FunctionName{"tower"})
                             .Build();
  Op1(On(kPs), "Square", call.output(0));
  Op1(On(kPs), "Square", call.output(1));
  const PartitionedGraph cut = Cut();
  std::map<std::string, int32_t> priority;
  for (const CrossEdge& edge : cut.edges) priority[edge.tensor_name] = edge.priority;
  EXPECT_LT(priority["b:0"], priority["a:0"]);
  EXPECT_LT(priority["PartitionedCall:1"], priority["PartitionedCall:0"]);
  // Each task has the functions that it calls and no others.
  EXPECT_EQ(Part(cut, Worker(0)).functions().all().size(), 1u);
  EXPECT_TRUE(Part(cut, kPs).functions().empty());
}

}  // namespace
}  // namespace monograph
