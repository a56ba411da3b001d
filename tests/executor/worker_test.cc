// Worker by itself: one task, whose own process is the client.
#include "executor/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "graph/scope.h"
#include "tests/executor/test_ops.h"

namespace monograph {
namespace {

constexpr char kTask[] = "/job:localhost/replica:0/task:0";
constexpr char kDevice[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr uint64_t kSession = 7;

class Client : public StepClient {
 public:
  bool OnFetch(uint64_t, int32_t, Tensor&) override { return false; }
  void OnStepDone(uint64_t, int, const Status& status) override { done_.set_value(status); }
  void OnStepFailed(uint64_t, const Status&) override {}
  Status Wait() {
    std::future<Status> done = done_.get_future();
    if (done.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
      return DeadlineExceeded("no end");
    done_ = std::promise<Status>();
    return done.get();
  }

 private:
  std::promise<Status> done_;
};

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::AddTestOps(&ops_, &kernels_);
    WorkerOptions options;
    options.task = DeviceName::Parse(kTask).value();
    options.ops = &ops_;
    options.kernels = &kernels_;
    worker_ = Worker::Create(std::move(options)).value();
    ASSERT_TRUE(worker_->CreateSession(kSession, {}, kSelf, 0, &client_).ok());
    // y = x + 1, where x comes from outside as edge 0 and has two elements.
    Graph graph(&ops_);
    Scope scope = Scope(&graph).WithDevice(kDevice);
    const Output x = OpBuilder(scope.WithOpName("x"), "_Recv")
                         .Attr("T", AttrValue(DT_FLOAT))
                         .Attr("edge_id", 0)
                         .Attr("send_device", kDevice)
                         .Attr("recv_device", kDevice)
                         .Attr("tensor_name", "x:0")
                         .Attr("shape", AttrValue(PartialShape({2})))
                         .BuildOutput();
    OpBuilder(scope.WithOpName("y"), "TInc").Input(x).Build();
    ASSERT_TRUE(scope.ok()) << scope.status();
    handle_ = worker_->RegisterGraph(kSession, std::move(graph)).value();
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  Client client_;
  std::unique_ptr<Worker> worker_;
  uint32_t handle_ = 0;
};

TEST_F(WorkerTest, ATensorMayComeBeforeItsStep) {
  worker_->PushTensor(kSession, kSelf, 1, 0, Tensor::Vector<float>({1, 2}));
  worker_->RunStep(kSession, kSelf, handle_, 1, false, true);
  const Status status = client_.Wait();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(WorkerTest, ATensorThatCameBeforeItsStepAndDoesNotFitFailsTheStepAndTheNextOneRuns) {
  worker_->PushTensor(kSession, kSelf, 1, 0, Tensor::Vector<float>({1, 2, 3}));
  worker_->RunStep(kSession, kSelf, handle_, 1, false, true);
  const Status status = client_.Wait();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("x:0"), std::string::npos) << status;
  worker_->PushTensor(kSession, kSelf, 2, 0, Tensor::Vector<float>({1, 2}));
  worker_->RunStep(kSession, kSelf, handle_, 2, false, true);
  EXPECT_TRUE(client_.Wait().ok());
}

}  // namespace
}  // namespace monograph
