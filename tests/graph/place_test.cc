#include "graph/place.h"

#include <gtest/gtest.h>

#include "graph/function.h"
#include "graph/placement_log.h"
#include "tests/graph/pass_ops.h"

namespace monograph {
namespace {

using ::testing::Test;

std::vector<DeviceInfo> Devices(std::initializer_list<const char*> names) {
  std::vector<DeviceInfo> devices;
  for (const char* name : names) devices.push_back({.name = ParsedDevice(name)});
  return devices;
}

const char kPsCpu[] = "/job:ps/replica:0/task:0/device:CPU:0";
const char kWorker0[] = "/job:worker/replica:0/task:0/device:CPU:0";
const char kWorker1[] = "/job:worker/replica:0/task:1/device:CPU:0";
const char kClientCpu[] = "/job:client/replica:0/task:0/device:CPU:0";

std::vector<DeviceInfo> CpuCluster() { return Devices({kClientCpu, kPsCpu, kWorker0, kWorker1}); }
std::vector<DeviceInfo> GpuCluster() {
  return Devices(
      {"/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:GPU:0",
       "/job:worker/replica:0/task:2/device:GPU:0", "/job:worker/replica:0/task:10/device:GPU:0",
       "/job:worker/replica:0/task:10/device:CPU:0"});
}

class PlaceTest : public Test {
 protected:
  Status Run(const std::vector<DeviceInfo>& devices, const PlaceOptions& options = {}) {
    EXPECT_TRUE(root_.ok()) << root_.status();
    notes_.clear();
    return Place(&graph_, devices, options, &notes_);
  }
  std::string On(const Operation& operation) const {
    return graph_.device(operation.id).ToString();
  }
  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  Graph graph_{&PassOps()};
  Scope root_{&graph_};
  std::vector<PlacementNote> notes_;
};

#define EXPECT_SAYS(status, part) \
  EXPECT_TRUE((status).message().find(part) != std::string::npos) << (status).message()

TEST_F(PlaceTest, ANodeWithoutARequestedDeviceGoesToTheFirstGpuInStringOrder) {
  const Output x = Placeholder(root_);
  const Output y = Op2(root_, "Add", x, x);
  ASSERT_TRUE(Run(GpuCluster()).ok());
  EXPECT_EQ(On(y), "/job:worker/replica:0/task:0/device:GPU:0");

  Graph other(&PassOps());
  Scope scope(&other);
  const Output z = Op2(scope, "Add", Placeholder(scope), Placeholder(scope));
  ASSERT_TRUE(Place(&other,
                    Devices({"/job:worker/replica:0/task:2/device:GPU:0",
                             "/job:worker/replica:0/task:10/device:GPU:0"}),
                    {}, nullptr)
                  .ok());
  EXPECT_EQ(other.device(z.node()).ToString(), "/job:worker/replica:0/task:10/device:GPU:0");
}

TEST_F(PlaceTest, TheClientsOwnDeviceTakesUnpinnedNodesOnlyIfThereIsNoOther) {
  const Output y = Op2(root_, "Add", Placeholder(root_), Placeholder(root_));
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(y), kPsCpu);

  Graph alone(&PassOps());
  Scope scope(&alone);
  const Output z = Op1(scope, "Identity", Placeholder(scope));
  ASSERT_TRUE(Place(&alone, Devices({kClientCpu}), {}, nullptr).ok());
  EXPECT_EQ(alone.device(z.node()).ToString(), kClientCpu);
}

TEST_F(PlaceTest, APartialRequestIsCompletedAndAFullOneIsKept) {
  const Output x = Placeholder(root_.WithDevice("/job:worker/task:1"));
  const Output y = Op1(root_.WithDevice(kWorker0), "Identity", x);
  const Output z = Op1(root_.WithDevice("/job:client"), "Identity", y);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(x), kWorker1);
  EXPECT_EQ(On(y), kWorker0);
  EXPECT_EQ(On(z), kClientCpu);
}

TEST_F(PlaceTest, AConstUsedOnlyByAPinnedNodeFollowsIt) {
  const Output c = Constant(root_, Tensor::Scalar<float>(1));
  const Output shared = Constant(root_, Tensor::Scalar<float>(2));
  const Output x = Op2(root_.WithDevice("/job:worker/task:1"), "Add", c, shared);
  const Output y = Op1(root_.WithDevice("/job:worker/task:0"), "Identity", shared);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(x), kWorker1);
  EXPECT_EQ(On(y), kWorker0);
  EXPECT_EQ(On(c), kWorker1);
  EXPECT_EQ(On(shared), kPsCpu);
}

TEST_F(PlaceTest, AShapeFollowsItsInputAlsoThroughAnotherShape) {
  const Output x =
      Op1(root_.WithDevice("/job:worker/task:1"), "Identity", Placeholder(root_, {2, 3}));
  const Output shape = Op1(root_, "Shape", x);
  const Output of_shape = Op1(root_, "Shape", shape);
  const Output pinned = Op1(root_.WithDevice("/job:ps"), "Shape", x);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(shape), kWorker1);
  EXPECT_EQ(On(of_shape), kWorker1);
  EXPECT_EQ(On(pinned), kPsCpu);
}

TEST_F(PlaceTest, WhoUsesAResourceGoesToIt) {
  const Output v = Variable(root_.WithDevice("/job:ps"), "v");
  const Output read = Read(root_, v);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(v), kPsCpu);
  EXPECT_EQ(On(read), kPsCpu);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(PlaceTest, ARequestAgainstTheResourceIsIgnoredWithANote) {
  const Output v = Variable(root_.WithDevice("/job:ps"), "v");
  const Output read = Read(root_.WithDevice("/job:worker/task:1"), v);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(read), kPsCpu);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0].node, read.node());
  EXPECT_TRUE(Has(notes_[0].text, "'ReadVariableOp'")) << notes_[0].text;
  EXPECT_TRUE(Has(notes_[0].text, "/job:worker/task:1")) << notes_[0].text;
  EXPECT_TRUE(Has(notes_[0].text, "'v'")) << notes_[0].text;
}

TEST_F(PlaceTest, AColocationGroupSharesTheRequestedDeviceOfAnyMember) {
  const Output a = Op1(root_.WithOpName("a"), "Identity", Placeholder(root_));
  const Output b = Op1(root_.ColocateWith(a).WithOpName("b"), "Identity", Placeholder(root_));
  const Output c = Op1(root_.ColocateWith(b).WithDevice("/task:1/job:worker"), "Identity", b);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(a), On(b));
  EXPECT_EQ(On(a), On(c));
}

TEST_F(PlaceTest, MembersOfAClassStayTogetherAfterItsNodeWasPrunedAway) {
  const std::vector<std::string> gone = {"loc:@gone"};
  const Output a = Op1(root_.WithAttr("_class", gone).WithDevice("/job:worker/task:1"), "Identity",
                       Placeholder(root_));
  const Output b = Op1(root_.WithAttr("_class", gone), "Identity", a);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(b), kWorker1);
}

TEST_F(PlaceTest, AConflictNamesTheWholeGroupAndWhoAskedForWhat) {
  const std::vector<std::string> group = {"loc:@a"};
  Op1(root_.WithOpName("a").WithDevice("/job:ps"), "Identity", Placeholder(root_));
  Op1(root_.WithOpName("quiet").WithAttr("_class", group), "Identity", Placeholder(root_));
  Op1(root_.WithOpName("b").WithAttr("_class", group).WithDevice("/job:worker"), "Identity",
      Placeholder(root_));
  Op1(root_.WithOpName("later").WithAttr("_class", group), "Identity", Placeholder(root_));
  const Status status = Run(CpuCluster());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_SAYS(status,
              "Cannot assign a device for operation b: Cannot colocate nodes 'a' (Identity) and "
              "'b' (Identity)");
  EXPECT_SAYS(status, "Cannot merge devices with incompatible jobs: '/job:ps' and '/job:worker'");
  EXPECT_SAYS(status, "group has 4 operations");
  EXPECT_SAYS(status, "'a' (Identity) asks for '/job:ps'");
  EXPECT_SAYS(status, "'b' (Identity) asks for '/job:worker', colocated by 'loc:@a'");
  EXPECT_SAYS(status, "'quiet' (Identity) asks for no device");
  EXPECT_SAYS(status, "'later' (Identity)");
}

TEST_F(PlaceTest, SoftPlacementIgnoresAColocationThatCannotBe) {
  const Output a = Op1(root_.WithOpName("a").WithDevice("/job:ps"), "Identity", Placeholder(root_));
  const Output b = Op1(root_.WithOpName("b")
                           .WithAttr("_class", std::vector<std::string>{"loc:@a"})
                           .WithDevice("/job:worker"),
                       "Identity", a);
  ASSERT_TRUE(Run(CpuCluster(), {.allow_soft_placement = true}).ok());
  EXPECT_EQ(On(a), kPsCpu);
  EXPECT_EQ(On(b), kWorker0);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(Has(notes_[0].text, "Ignoring the colocation of 'b' with 'a'")) << notes_[0].text;
}

TEST_F(PlaceTest, ADeviceThatDoesNotExistIsNamedWithWhatThereIs) {
  const struct {
    const char* requested;
    const char* says;
  } kCases[] = {
      {"/job:wrker", "there is no job 'wrker'; there are: client, ps, worker"},
      {"/job:worker/replica:3", "job 'worker' has no replica 3; it has: 0."},
      {"/replica:3", ": no job has a replica 3; there are: 0."},
      {"/job:worker/task:7", "job 'worker' has no task 7; it has: 0, 1."},
      {"/task:7", ": no job has a task 7; there are: 0, 1."},
      {"/job:worker/task:1/device:GPU:0",
       "'/job:worker/task:1' has no device of type GPU; it has: CPU."},
      {"/job:worker/device:GPU:0", "job 'worker' has no device of type GPU; it has: CPU."},
      {"/device:GPU:0", ": no task has a device of type GPU; there are: CPU."},
      {"/job:worker/task:1/device:CPU:3", "has no device CPU:3; it has: CPU:0."},
      {"/device:CPU:3", ": no task has a device CPU:3; there are: CPU:0."},
  };
  for (const auto& [requested, says] : kCases) {
    Graph graph(&PassOps());
    Scope root(&graph);
    const Output far =
        Op1(root.WithOpName("far").WithDevice(requested), "Identity", Placeholder(root));
    Op1(root.ColocateWith(far), "Identity", far);
    const Status status = Place(&graph, CpuCluster(), {}, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_SAYS(status,
                "Cannot assign a device for operation far: far was explicitly assigned to " +
                    ParsedDevice(requested).ToString() + " but available devices are [ ");
    EXPECT_SAYS(status, says);
    EXPECT_SAYS(status, kPsCpu);
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << "its group says no more";
  }
}

TEST_F(PlaceTest, ALongListOfDevicesIsCutShort) {
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < 64; ++i) {
    devices.push_back({.name = ParsedDevice("/job:worker/replica:0/task:" + std::to_string(i) +
                                            "/device:CPU:0")});
  }
  Op1(root_.WithDevice("/job:worker/task:64"), "Identity", Placeholder(root_));
  const Status status = Run(devices);
  EXPECT_SAYS(status, "... 56 more ]");
  EXPECT_LT(status.message().size(), 900u);
}

TEST_F(PlaceTest, SoftPlacementDropsTypeAndIdButNeverTheTask) {
  const Output gpu =
      Op1(root_.WithDevice("/job:worker/task:1/device:GPU:0"), "Identity", Placeholder(root_));
  const Output id =
      Op1(root_.WithDevice("/job:worker/task:0/device:CPU:5"), "Identity", Placeholder(root_));
  ASSERT_TRUE(Run(CpuCluster(), {.allow_soft_placement = true}).ok());
  EXPECT_EQ(On(gpu), kWorker1);
  EXPECT_EQ(On(id), kWorker0);
  ASSERT_GE(notes_.size(), 2u);
  EXPECT_TRUE(Has(notes_[0].text, "Soft placement of 'Identity' (Identity) from"))
      << notes_[0].text;
  EXPECT_TRUE(Has(notes_[0].text, "has no device of type GPU")) << notes_[0].text;

  Graph other(&PassOps());
  Scope scope(&other);
  Op1(scope.WithDevice("/job:worker/task:9"), "Identity", Placeholder(scope));
  EXPECT_EQ(Place(&other, CpuCluster(), {.allow_soft_placement = true}, nullptr).code(),
            Code::kInvalidArgument);
}

TEST_F(PlaceTest, NodesGoWhereTheyHaveAKernel) {
  PlaceOptions options;
  options.has_kernel = [](const Graph& graph, NodeId node, DeviceType type) {
    return type == kCpu || !graph.is(node, "Square");
  };
  const Output free = Op1(root_, "Square", Placeholder(root_));
  ASSERT_TRUE(Run(GpuCluster(), options).ok());
  EXPECT_EQ(On(free), "/job:worker/replica:0/task:0/device:CPU:0");

  Graph other(&PassOps());
  Scope scope(&other);
  const Output pinned =
      Op1(scope.WithOpName("sq").WithDevice("/task:10/device:GPU:0"), "Square", Placeholder(scope));
  const Status status = Place(&other, GpuCluster(), options, nullptr);
  EXPECT_SAYS(
      status,
      "Cannot assign a device for operation sq: Could not satisfy explicit device specification "
      "'/task:10/device:GPU:0' because no supported kernel for GPU devices is available");
  EXPECT_SAYS(status, "has kernels for CPU");
  options.allow_soft_placement = true;
  ASSERT_TRUE(Place(&other, GpuCluster(), options, &notes_).ok());
  EXPECT_EQ(other.device(pinned.node()).ToString(), "/job:worker/replica:0/task:10/device:CPU:0");
}

TEST_F(PlaceTest, AnOpWithoutAnyKernelIsNamed) {
  PlaceOptions options;
  options.has_kernel = [](const Graph& graph, NodeId node, DeviceType) {
    return !graph.is(node, "Square");
  };
  Op1(root_, "Square", Placeholder(root_));
  EXPECT_SAYS(
      Run(CpuCluster(), options),
      "No OpKernel was registered to support Op 'Square' used by node 'Square' with T=float");
}

// ---- Calls ----

// A function y = Square(x), whose Square requests the device.
void AddSquareFunction(Graph* graph, const std::string& name, const std::string& device) {
  auto body = std::make_shared<Graph>(&PassOps());
  Scope scope(body.get());
  const Output x =
      OpBuilder(scope.WithOpName("x"), "_Arg").Attr("T", DT_FLOAT).Attr("index", 0).BuildOutput();
  const Output y = Op1(scope.WithDevice(device).WithOpName("deep/Square"), "Square", x);
  OpBuilder(scope.WithOpName("y"), "_Retval").Input(y).Attr("index", 0).Build();
  ASSERT_TRUE(scope.ok()) << scope.status();
  ASSERT_TRUE(graph->functions().Add(Function::Make(name, body).value()).ok());
}

Output Call(const Scope& scope, const std::string& function, const Output& x) {
  return OpBuilder(scope, "PartitionedCall")
      .Input(x)
      .Attr("Tout", std::vector<DType>{DT_FLOAT})
      .Attr("f", FunctionName{function})
      .BuildOutput();
}

TEST_F(PlaceTest, WhatABodyOnAGpuLeavesToTheCpuIsNoted) {
  PlaceOptions options;
  options.has_kernel = [](const Graph& graph, NodeId node, DeviceType type) {
    return type == kCpu || !graph.is(node, "Square");
  };
  AddSquareFunction(&graph_, "free", "");
  AddSquareFunction(&graph_, "asks", "/device:CPU:0");
  for (const char* function : {"free", "free", "asks"}) {
    Call(root_.WithDevice("/task:10/device:GPU:0").WithOpName("call"), function,
         Placeholder(root_));
  }
  ASSERT_TRUE(root_.ok()) << root_.status();
  ASSERT_TRUE(Place(&graph_, GpuCluster(), options, &notes_).ok());
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(Has(notes_[0].text,
                  "'call' (PartitionedCall) runs on /job:worker/replica:0/task:10/device:GPU:0, "
                  "but 'deep/Square' (Square) runs on the CPU of that task, the only device with a "
                  "kernel for it; other calls of 'free' do the same"))
      << notes_[0].text;
}

TEST_F(PlaceTest, ACallIsPlacedAsOneNodeAndPrintedAsItsBody) {
  AddSquareFunction(&graph_, "f", "/device:CPU:0");
  const Output call =
      Call(root_.WithOpName("tower_1").WithDevice("/job:worker/task:1"), "f", Placeholder(root_));
  EXPECT_TRUE(CallsThatSpanTasks(graph_).empty());
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(call), kWorker1);
  EXPECT_EQ(FormatPlacement(graph_, PlacementLog::kFull, notes_),
            std::string("Placeholder: (Placeholder): ") + kWorker1 +
                "\ntower_1/deep/Square: (Square): " + kWorker1 + "\n");
}

TEST_F(PlaceTest, ACallWhoseBodyAsksForOneTaskGoesThere) {
  AddSquareFunction(&graph_, "f", "/job:worker/task:1");
  const Output call = Call(root_, "f", Placeholder(root_));
  EXPECT_TRUE(CallsThatSpanTasks(graph_).empty());
  ASSERT_TRUE(Run(CpuCluster()).ok());
  EXPECT_EQ(On(call), kWorker1);
}

TEST_F(PlaceTest, ACallThatSpansTasksIsFoundAndNotPlaced) {
  AddSquareFunction(&graph_, "f", "/job:ps");
  const Output call =
      Call(root_.WithOpName("c").WithDevice("/job:worker/task:1"), "f", Placeholder(root_));
  Call(root_.WithDevice("/job:ps/task:0"), "f", Placeholder(root_));
  EXPECT_EQ(CallsThatSpanTasks(graph_), std::vector<NodeId>{call.node()});
  EXPECT_SAYS(Run(CpuCluster()),
              "Cannot assign a device for operation c: 'c' (PartitionedCall) calls a function");
}

TEST_F(PlaceTest, ACallWithAResourceOfAnotherTaskSpansTasks) {
  auto body = std::make_shared<Graph>(&PassOps());
  Scope scope(body.get());
  const Output v = OpBuilder(scope, "_Arg").Attr("T", DT_RESOURCE).Attr("index", 0).BuildOutput();
  OpBuilder(scope, "_Retval").Input(Read(scope, v)).Attr("index", 0).Build();
  ASSERT_TRUE(graph_.functions().Add(Function::Make("reads", body).value()).ok());
  const Output on_ps = Variable(root_.WithDevice("/job:ps"), "v");
  const Output away = Call(root_.WithDevice("/job:worker/task:0"), "reads", on_ps);
  Call(root_, "reads", on_ps);
  EXPECT_EQ(CallsThatSpanTasks(graph_), std::vector<NodeId>{away.node()});
}

// ---- Texts ----

TEST_F(PlaceTest, TheSummaryCountsOpsVariablesAndWhatMoves) {
  const Output v = Variable(root_.WithDevice("/job:ps"), "v", {256, 1024});
  const Output read = Read(root_, v);
  graph_.SetShape(read.endpoint, {256, 1024});
  Op1(root_.WithDevice("/job:worker/task:0"), "Identity", read);
  Op1(root_.WithDevice("/job:worker/task:0"), "Square", read);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  const std::string text =
      FormatPlacement(graph_, PlacementLog::kSummary, {{read.node(), "a note"}});
  EXPECT_TRUE(Has(text, "Placement of 4 operations on 2 devices:\n")) << text;
  EXPECT_TRUE(
      Has(text, std::string(kPsCpu) +
                    ": 2 operations (1 ReadVariableOp, 1 VarHandleOp), 1 variable of 1.0 MiB\n"))
      << text;
  EXPECT_TRUE(Has(text, std::string(kPsCpu) + " -> " + kWorker0 + ": 1 tensor, 1.0 MiB\n")) << text;
  EXPECT_TRUE(Has(text, "  a note\n")) << text;
}

TEST_F(PlaceTest, JsonAndDotNameEveryNodeAndDevice) {
  const Output x = Placeholder(root_.WithOpName("x"));
  Op1(root_.WithOpName("y").WithDevice("/job:worker/task:1"), "Square", x);
  ASSERT_TRUE(Run(CpuCluster()).ok());
  const std::string json = FormatPlacement(graph_, PlacementLog::kJson, {});
  EXPECT_TRUE(Has(
      json, std::string("{\"name\": \"y\", \"op\": \"Square\", \"device\": \"") + kWorker1 + "\"}"))
      << json;
  const std::string dot = FormatPlacement(graph_, PlacementLog::kDot, {});
  EXPECT_TRUE(Has(dot, kWorker1)) << dot;
  EXPECT_TRUE(Has(dot, "n0 -> n1;")) << dot;
  EXPECT_EQ(FormatPlacement(graph_, PlacementLog::kNone, {}), "");
}

TEST(PlacementLogTest, NamesOfTheLogAreParsed) {
  EXPECT_EQ(*ParsePlacementLog("true"), PlacementLog::kFull);
  EXPECT_EQ(*ParsePlacementLog("full"), PlacementLog::kFull);
  EXPECT_EQ(*ParsePlacementLog("summary"), PlacementLog::kSummary);
  EXPECT_EQ(*ParsePlacementLog(""), PlacementLog::kNone);
  EXPECT_SAYS(ParsePlacementLog("ful").status(), "'ful' is none of: full, summary");
}

}  // namespace
}  // namespace monograph
