// Small ops for tests of the executor, and helpers that build graphs of them and run plans.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "executor/device.h"
#include "executor/kernel.h"
#include "executor/plan/plan.h"
#include "executor/resource_manager.h"
#include "executor/step/step_executor.h"
#include "executor/thread_pools.h"
#include "graph/function.h"
#include "graph/graph.h"

namespace monograph::testing {

// All of float scalars or vectors.
//   TConst() -> y            attr value: tensor
//   TInc(x) -> y             x + 1, in place where it may; cheap
//   TIncSlow(x) -> y         the same, declared expensive
//   TAdd(a, b) -> y          cheap
//   TSum(xs: N * float) -> y
//   TSplit(x) -> y: N * float   N copies, each in memory of its own
//   TNoOp()
//   TFail()                  fails with attr message
//   TMissing(x) -> y         forgets its output
//   TGate(x) -> y            asynchronous: waits for Gate::Open under attr gate, then y = x
//   TBlock(x) -> y           blocks its thread until Gate::Open
//   TWait(x) -> y            the same, declared cheap: Busy on a thread that may not wait
//   TChange(x) -> y          as TBlock, and then begins a change, which an aborted step may not
//   TSerial(x) -> y          declared serial; fails if two threads meet in it
//   TDouble(x) -> y          has no kernel for T=double
//   TRefuse()                its kernel cannot be made
void AddTestOps(OpRegistry* ops, KernelRegistry* kernels);

// Which inputs TInc wrote in place, since the last call.
int64_t TakeInPlaceCount();

// What TGate and TBlock wait for. Lives in the resource manager as "test/<name>".
class Gate : public Resource {
 public:
  std::string DebugString() const override { return "gate"; }
  void Open();
  // Waits until `count` kernels have come to the gate; false after ten seconds.
  bool WaitForArrivals(int count);
  void Arrive();
  void Block();
  // Runs `fn` when open: on the opening thread, or at once.
  void WhenOpen(std::function<void()> fn);
  int arrivals();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrivals_ = 0;
  std::vector<std::function<void()>> waiting_;
};

// A task with devices CPU:0 and CPU:1, and everything a plan needs.
class TestTask {
 public:
  explicit TestTask(int inter_op, int intra_op = 1);
  ~TestTask();

  PlanOptions options();
  Graph NewGraph() { return Graph(&ops_); }
  Result<std::shared_ptr<const Plan>> Compile(const Graph& graph) {
    return CompilePlan(graph, options());
  }
  std::shared_ptr<Gate> gate(const std::string& name);

  OpRegistry& ops() { return ops_; }
  KernelRegistry& kernels() { return kernels_; }
  ResourceManager& resources() { return resources_; }
  ThreadPools& pools() { return *pools_; }

 private:
  OpRegistry ops_;
  KernelRegistry kernels_;
  ResourceManager resources_;
  std::unique_ptr<ThreadPools> pools_;
  std::vector<std::unique_ptr<Device>> devices_;
};

inline constexpr char kCpu0[] = "/job:test/replica:0/task:0/device:CPU:0";
inline constexpr char kCpu1[] = "/job:test/replica:0/task:0/device:CPU:1";
inline constexpr char kElsewhere[] = "/job:other/replica:0/task:0/device:CPU:0";

// Adds nodes; a mistake fails the test and ends the program.
class Builder {
 public:
  explicit Builder(Graph* graph) : graph_(graph) {}
  NodeId Add(std::string_view op, std::vector<Endpoint> inputs = {}, Attrs attrs = {},
             std::vector<NodeId> controls = {}, std::string_view device = kCpu0);
  Endpoint Op(std::string_view op, std::vector<Endpoint> inputs = {}, Attrs attrs = {},
              std::vector<NodeId> controls = {}, std::string_view device = kCpu0) {
    return {Add(op, std::move(inputs), std::move(attrs), std::move(controls), device), 0};
  }
  Endpoint Const(float value, std::vector<NodeId> controls = {}) {
    return Op("TConst", {}, {{"value", Tensor::Scalar(value)}}, std::move(controls));
  }
  NodeId Send(int64_t edge, Endpoint source, int64_t priority = 0,
              std::vector<NodeId> controls = {}, std::string_view device = kCpu0,
              std::string_view to = kElsewhere);
  Endpoint Recv(int64_t edge, std::vector<NodeId> controls = {}, std::string_view device = kCpu0,
                PartialShape shape = PartialShape(), std::string_view from = kElsewhere);
  NodeId SendControl(int64_t edge, std::vector<NodeId> controls, std::string_view device = kCpu0);
  NodeId RecvControl(int64_t edge, std::string_view device = kCpu0);

 private:
  Graph* graph_;
};

// Collects what a step sends, and waits for its end.
class Collector : public StepSink {
 public:
  void OnSend(uint64_t step_id, const EdgeInfo& edge, Tensor tensor, uint64_t iteration) override;
  Done done();
  // The step's status; fails the test and returns DeadlineExceeded after thirty seconds.
  Status Wait();
  bool finished();
  int done_count();
  std::map<int32_t, Tensor> Take();
  float Value(int32_t edge);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, Tensor> sent_;
  Status status_;
  int done_ = 0;
};

// Prepares and starts step 1 of the plan.
std::shared_ptr<Step> StartStep(const std::shared_ptr<const Plan>& plan, StepSink* sink, Done done);

// One step with feeds; the fetched scalars by edge.
Result<std::map<int32_t, float>> RunStep(const std::shared_ptr<const Plan>& plan,
                                         std::map<int32_t, float> feeds = {}, uint64_t step_id = 1,
                                         bool inline_all = false, StepTrace* trace = nullptr);

}  // namespace monograph::testing
