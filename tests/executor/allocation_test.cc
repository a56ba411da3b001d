// A steady step allocates nothing from the heap, and touches no new page.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "executor/worker/peer_watch.h"
#include "executor/worker/worker.h"
#include "graph/scope.h"
#include "tests/executor/allocation_counter.h"
#include "tests/executor/test_ops.h"
#include "transport/transports.h"

namespace monograph {
namespace {

using testing::Builder;
using testing::TestTask;

// Keeps nothing and allocates nothing.
struct Sink : StepSink {
  std::atomic<int> sent{0};
  std::atomic<int> done{0};
  void OnSend(uint64_t, const EdgeInfo&, Tensor, uint64_t) override { sent.fetch_add(1); }
  void Wait(int count) {
    for (int now = done.load(); now < count; now = done.load()) done.wait(now);
  }
};

class AllocationTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, AllocationTest, ::testing::Values(1, 2, 4));

TEST_P(AllocationTest, ASteadyStepTakesNoHeapMemory) {
  TestTask task(GetParam());
  Graph graph = task.NewGraph();
  Builder b(&graph);
  task.gate("g")->Open();
  const Endpoint x = b.Recv(0);
  std::vector<Endpoint> nodes;
  for (int i = 0; i < 200; ++i) nodes.push_back(b.Op("TInc", {b.Op("TIncSlow", {x})}));
  const NodeId split = b.Add("TSplit", {nodes[0]}, {{"N", int64_t{9}}});
  nodes[0] = {split, 8};
  b.Send(1, b.Op("TSum", nodes, {{"N", int64_t{200}}}));
  const auto plan = task.Compile(graph).value();
  Sink sink;
  int steps = 0;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      auto step = StepExecutor::Prepare(plan, 1, &sink, [&sink](const Status& status) {
        MG_CHECK(status.ok());
        sink.done.fetch_add(1);
        sink.done.notify_all();
      });
      step->Start();
      step->Deliver(0, Tensor::Scalar(1.0f));
      sink.Wait(++steps);
    }
  };
  {
    // Every thread may still hold the memory of a step that it finishes when the next one begins.
    std::vector<std::shared_ptr<Step>> at_once;
    for (int i = 0; i < GetParam() + 2; ++i)
      at_once.push_back(StepExecutor::Prepare(plan, 1, &sink, nullptr));
  }
  run(200);
  const int64_t before = testing::Allocations();
  run(200);
  EXPECT_LE(testing::Allocations() - before, 12);  // one a step would be 200
  EXPECT_EQ(sink.sent.load(), 400);
}

constexpr bool kSanitized =  // their shadow memory faults
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

int64_t PageFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// A client and two tasks in this process, over UCX: x -> task 0 -> task 1 -> y.
class WorkersTest : public ::testing::TestWithParam<int64_t>, public StepClient {
 protected:
  static constexpr uint64_t kSession = 5;

  void SetUp() override {
    testing::AddTestOps(&ops_, &kernels_);
    client_ = Make("/job:client/replica:0/task:0");
    for (int i = 0; i < 2; ++i) tasks_[i] = Make(TaskName(i));
    const auto create = [](Worker& worker, StepClient* client) {
      return PeerSpec{worker.task(), worker.CreateSession(kSession, client).value(),
                      worker.incarnation()};
    };
    const PeerSpec client = create(*client_, this);
    const PeerSpec tasks[] = {create(*tasks_[0], nullptr), create(*tasks_[1], nullptr)};
    ASSERT_TRUE(client_->ConnectSession(kSession, {tasks[0], tasks[1]}, kSelf, 0).ok());
    for (int i = 0; i < 2; ++i)
      ASSERT_TRUE(tasks_[i]->ConnectSession(kSession, {tasks[1 - i], client}, 1, i).ok());
    const std::string devices[] = {client_->task() + "/device:CPU:0", TaskName(0) + "/device:CPU:0",
                                   TaskName(1) + "/device:CPU:0"};
    for (int i = 0; i < 2; ++i) {
      Graph graph(&ops_);
      Scope scope = Scope(&graph).WithDevice(devices[i + 1]);
      const auto edge = [&](const char* op, int64_t id) {
        return std::move(OpBuilder(scope, op)
                             .Attr("T", AttrValue(DT_FLOAT))
                             .Attr("edge_id", id)
                             .Attr("send_device", devices[id])
                             .Attr("recv_device", devices[(id + 1) % 3])
                             .Attr("tensor_name", "t"));
      };
      const Output x = edge("_Recv", i).Attr("shape", AttrValue(PartialShape({-1}))).BuildOutput();
      const Output y = OpBuilder(scope, "TInc").Input(x).BuildOutput();
      edge("_Send", i + 1).Input(y).Build();
      ASSERT_TRUE(scope.ok()) << scope.status();
      handles_[i] = tasks_[i]->RegisterGraph(kSession, std::move(graph)).value();
    }
  }
  void TearDown() override {
    client_ = nullptr;
    for (auto& task : tasks_) task = nullptr;
  }

  std::unique_ptr<Worker> Make(const std::string& task) {
    WorkerOptions options;
    options.task = DeviceName::Parse(task).value();
    options.ops = &ops_;
    options.kernels = &kernels_;
    options.make_transport = ChooseTransport({}, {.loopback = true}).value();
    return Worker::Create(std::move(options)).value();
  }
  static std::string TaskName(int i) { return "/job:worker/replica:0/task:" + std::to_string(i); }

  bool OnFetch(uint64_t, int32_t, Tensor& tensor) override {
    Tensor fetched = std::move(tensor);
    arrived_.fetch_add(1);
    return true;
  }
  void OnStepDone(uint64_t, int, const Status& status) override {
    if (!status.ok()) failed_.store(true);
    arrived_.fetch_add(1);
  }
  void OnStepFailed(uint64_t, const Status&) override { failed_.store(true); }

  void RunSteps(int count, const Tensor& x) {
    for (int i = 0; i < count; ++i) {
      ++step_;
      for (int task = 0; task < 2; ++task)
        client_->SendRunStep(kSession, task, handles_[task], {step_, step_}, false, false);
      client_->SendTensor(kSession, 0, step_, 0, x);
      const int64_t wanted = static_cast<int64_t>(3 * step_);  // a fetch, and two ends
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      ASSERT_TRUE(client_->transport(kSession)->DriveUntil(
          [this, wanted] { return failed_.load() || arrived_.load() >= wanted; }, deadline));
      ASSERT_FALSE(failed_.load());
    }
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  std::unique_ptr<Worker> client_, tasks_[2];
  uint32_t handles_[2] = {};
  uint64_t step_ = 0;
  std::atomic<int64_t> arrived_{0};
  std::atomic<bool> failed_{false};
};

// Within a message; by rendezvous.
INSTANTIATE_TEST_SUITE_P(Elements, WorkersTest, ::testing::Values(1, 1 << 18));

TEST_P(WorkersTest, ASteadyStepFromTaskToTaskTakesNoHeapMemory) {
  const Tensor x = Tensor::Allocate(DT_FLOAT, Shape{GetParam()}).value();
  for (int64_t i = 0; i < x.elements(); ++i) Tensor(x).data<float>()[i] = 1.0f;
  RunSteps(300, x);
  const int64_t before = testing::Allocations(), faults = PageFaults();
  const auto begin = std::chrono::steady_clock::now();
  int64_t least = INT64_MAX;
  for (int i = 0; i < 300; ++i) {
    const int64_t before_step = testing::Allocations();
    RunSteps(1, x);
    least = std::min(least, testing::Allocations() - before_step);
  }
  EXPECT_EQ(least, 0);
  // Records that are made late, because an earlier step's was still held, and what the three
  // watches take, some 25 each half second. One a step would be 300.
  const int64_t rounds = (std::chrono::steady_clock::now() - begin) / PeerWatch::kInterval;
  EXPECT_LE(testing::Allocations() - before, 100 + 40 * rounds);
  if (!kSanitized) {
    EXPECT_LE(PageFaults() - faults, 60);
  }
}

}  // namespace
}  // namespace monograph
