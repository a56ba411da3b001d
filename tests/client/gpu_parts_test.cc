// Tensors that come to a task's GPU in parts, and leave it so: what the other task sees, which is
// nothing but its end of the data plane, and in which order. The GPU computes on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/registries.h"
#include "executor/gpu/copies.h"
#include "executor/worker/step_message.h"
#include "executor/worker/worker.h"
#include "graph/scope.h"
#include "ops/elementwise/elementwise.h"
#include "tests/executor/step_reports.h"
#include "tests/gpu/fake/session_gpus.h"
#include "tests/transport/inproc_transport.h"

namespace monograph::testing {
namespace {

constexpr char kTask[] = "/job:worker/replica:0/task:0";
constexpr char kOwnGpu[] = "/job:worker/replica:0/task:0/device:GPU:0";
constexpr char kOther[] = "/job:other/replica:0/task:0";
constexpr char kOtherGpu[] = "/job:other/replica:0/task:0/device:GPU:0";
constexpr uint64_t kSession = 7;
constexpr int64_t kElements = 1'000'003;  // four parts, the last one of which is not whole
constexpr size_t kBytes = 4 * kElements;
constexpr size_t kParts = 4;
const std::vector<size_t> kInAnyOrder = {2, 0, 3, 1};

bool WaitUntil(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return holds();
}

// A worker with a GPU that doubles what comes on edge 0, and sends it on edge 1.
class GpuParts : public ::testing::Test, public MessageHandler {
 protected:
  void SetUp() override {
    fake_gpus.count = 1;
    wire_ = MakeInprocTransport(this);
    WorkerOptions options;
    options.task = DeviceName::Parse(kTask).value();
    options.ops = &DefaultRegistries().ops;
    options.kernels = &DefaultRegistries().kernels;
    options.gpu.device_count = 1;
    options.make_transport = [](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
      return MakeInprocTransport(handler);
    };
    worker_ = Worker::Create(std::move(options)).value();
    ASSERT_EQ(FakeDrivers().size(), 1u);
    const PeerSpec client{"/job:client/replica:0/task:0", wire_->address(), 11};
    const PeerSpec other{kOther, wire_->address(), 11};
    peer_ = wire_->Connect(worker_->CreateSession(kSession).value(), kTask).value();
    ASSERT_TRUE(worker_->ConnectSession(kSession, {client, other}, 0, 0).ok());
    Graph graph = NewGraph();
    const Scope scope = Scope(&graph).WithDevice(kOwnGpu);
    const auto edge = [](OpBuilder builder, int64_t id, const char* from, const char* to) {
      builder.Attr("edge_id", id).Attr("send_device", from).Attr("recv_device", to);
      return builder;
    };
    const Output x = edge(OpBuilder(scope.WithOpName("x"), "_Recv"), 0, kOtherGpu, kOwnGpu)
                         .Attr("T", AttrValue(DT_FLOAT))
                         .Attr("tensor_name", "x:0")
                         .Attr("shape", AttrValue(PartialShape({kElements})))
                         .BuildOutput();
    edge(OpBuilder(scope.WithOpName("y"), "_Send"), 1, kOwnGpu, kOtherGpu)
        .Input(Add(scope, x, x))
        .Attr("tensor_name", "y:0")
        .Build();
    ASSERT_TRUE(scope.ok()) << scope.status();
    handle_ = worker_->RegisterGraph(kSession, std::move(graph)).value();
  }
  void TearDown() override {
    worker_ = nullptr;
    wire_->Close();
    wire_->Join();
    fake_gpus = {};
  }

  // What the worker sends.
  PayloadSink OnMessage(std::string_view, size_t) override { return {}; }
  void OnDelivered(std::string_view header, Payload payload) override {
    StepMessage message;
    EXPECT_TRUE(DecodeStepMessage(header, payload.bytes, &message).ok());
    if (message.kind == StepMessageKind::kTensor) {
      std::lock_guard lock(mutex_);
      EXPECT_EQ(message.flags, kPartFlag);
      std::vector<char>& to = came_[message.step];
      EXPECT_EQ(to.size(), message.offset);
      const auto* const from = static_cast<const char*>(payload.data());
      to.insert(to.end(), from, from + payload.bytes);
    } else if (message.kind == StepMessageKind::kStepDone) {
      reports_.Ended(message.step, message.status);
    }
  }
  Status WaitForStep(uint64_t step) { return reports_.WaitFor(step); }

  StepMessage Message(StepMessageKind kind, uint64_t step) {
    StepMessage message;
    message.kind = kind;
    message.session = kSession;
    message.incarnation = worker_->incarnation();
    message.step = step;
    return message;
  }
  void Send(const StepMessage& message, Payload payload = {}) {
    std::string header(kMaxHeaderBytes, '\0');
    header.resize(EncodeStepMessage(message, header.data()));
    wire_->Send(peer_, header, std::move(payload), nullptr);
  }
  void SendRun(uint64_t step) {
    StepMessage run = Message(StepMessageKind::kRunStep, step);
    run.id = handle_;
    Send(run);
    ASSERT_TRUE(WaitUntil([this] { return worker_->stats().running_steps > 0; }));
  }
  static Tensor Value(uint64_t step) {
    Tensor x = Tensor::Allocate(DT_FLOAT, Shape{kElements}).value();
    for (int64_t i = 0; i < kElements; ++i)
      x.data<float>()[i] = static_cast<float>(i % 1000 + static_cast<int64_t>(step));
    return x;
  }
  void SendParts(uint64_t step, std::span<const size_t> parts, Shape shape = Shape{kElements}) {
    const Tensor x = Value(step);
    for (const size_t part : parts) {
      StepMessage message = Message(StepMessageKind::kTensor, step);
      message.flags = kPartFlag;
      message.dtype = DT_FLOAT;
      message.shape = shape;
      message.offset = part * kTensorPart;
      Send(message, {x.buffer(), message.offset, std::min(kTensorPart, kBytes - message.offset)});
    }
  }
  void SendAbort(uint64_t step) {
    StepMessage abort = Message(StepMessageKind::kAbortStep, step);
    abort.id = kFromClient;
    abort.status = Cancelled("the client has had enough");
    Send(abort);
  }
  void ExpectTwice(uint64_t step) {
    const Status status = WaitForStep(step);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(WaitUntil([&] {
      std::lock_guard lock(mutex_);
      return came_[step].size() == kBytes;
    }));
    const Tensor x = Value(step);
    std::lock_guard lock(mutex_);
    for (int64_t i = 0; i < kElements; ++i) {
      float is;
      std::memcpy(&is, came_[step].data() + 4 * i, sizeof is);
      ASSERT_EQ(is, 2 * std::as_const(x).data<float>()[i]) << i;
    }
  }
  void ExpectAStepToRun(uint64_t step) {
    SendRun(step);
    SendParts(step, kInAnyOrder);
    ExpectTwice(step);
  }
  uint64_t dropped() { return worker_->stats().messages_dropped; }
  static RecordingDriver& gpu() { return *FakeDrivers()[0]; }
  static int64_t copies() { return gpu().counts().copies; }

  std::unique_ptr<Transport> wire_;
  std::unique_ptr<Worker> worker_;
  PeerId peer_ = 0;
  uint32_t handle_ = 0;
  std::mutex mutex_;
  StepReports reports_;
  std::map<uint64_t, std::vector<char>> came_;  // by step, on edge 1; guarded by mutex_
};

TEST_F(GpuParts, APartIsCopiedToTheGpuBeforeTheOthersHaveLeft) {
  for (uint64_t step = 1; step <= 5; ++step) {
    SendRun(step);
    const int64_t before = copies();
    for (const size_t part : kInAnyOrder) {
      const int64_t copied = copies();
      SendParts(step, {&part, 1});
      if (part == kInAnyOrder.back()) break;
      EXPECT_TRUE(WaitUntil([&] { return copies() == copied + 1; })) << part;
    }
    ExpectTwice(step);
    // And back, and what a graph copies within the GPU.
    EXPECT_LE(copies(), before + 2 * static_cast<int64_t>(kParts) + 2);
  }
  EXPECT_EQ(dropped(), 0u);
}

TEST_F(GpuParts, PartsThatComeBeforeTheirStepWaitForItOnTheHost) {
  for (uint64_t step = 1; step <= 3; ++step) {
    const std::span<const size_t> order = kInAnyOrder;
    const auto early = order.first(step + 1);  // at last all
    SendParts(step, early);
    SendRun(step);
    SendParts(step, order.subspan(step + 1));
    ExpectTwice(step);
  }
  EXPECT_EQ(dropped(), 0u);
}

TEST_F(GpuParts, APartThatComesTwiceIsDroppedAndOneOfAnotherTensorFailsTheStep) {
  SendRun(1);
  const std::vector<size_t> some = {2, 0};
  SendParts(1, some);
  SendParts(1, some);
  ASSERT_TRUE(WaitUntil([this] { return dropped() == 2; }));
  SendParts(1, std::vector<size_t>{3, 1});
  ExpectTwice(1);
  SendRun(2);
  SendParts(2, some);
  SendParts(2, std::vector<size_t>{1}, Shape{1, kElements});
  const Status status = WaitForStep(2);
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_NE(status.message().find("parts of tensors of several types or shapes"), std::string::npos)
      << status;
  ExpectAStepToRun(3);
}

TEST_F(GpuParts, AStepThatIsAbortedBetweenPartsEndsAndTheRestIsDropped) {
  gpu().Hold();  // one copy does not end before the step does
  SendRun(1);
  SendParts(1, std::vector<size_t>{1, 2});
  ASSERT_TRUE(WaitUntil([] { return copies() == 2; }));
  SendAbort(1);
  EXPECT_EQ(WaitForStep(1).code(), Code::kCancelled);
  SendParts(1, std::vector<size_t>{0, 3});
  EXPECT_TRUE(WaitUntil([this] { return dropped() == 2; }));
  gpu().Resume();
  ExpectAStepToRun(2);
}

TEST_F(GpuParts, ACopyOfAPartThatIsRefusedFailsTheStepWithTheTensorsName) {
  for (const int64_t refused : {0, 3}) {
    const auto step = static_cast<uint64_t>(refused + 1);
    gpu().RefuseAt(RecordingDriver::Call::kCopy, refused);
    SendRun(step);
    SendParts(step, kInAnyOrder);
    const Status status = WaitForStep(step);
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_NE(status.message().find("receiving 'x:0' (edge 0) from " + std::string(kOther)),
              std::string::npos)
        << status;
    ExpectAStepToRun(step + 1);
  }
}

TEST_F(GpuParts, ASessionEndsWhileACopyToAGpuDoesNot) {
  gpu().Hold();
  SendRun(1);
  SendParts(1, kInAnyOrder);
  ASSERT_TRUE(WaitUntil([] { return copies() == static_cast<int64_t>(kParts); }));
  EXPECT_TRUE(worker_->CloseSession(kSession).ok());
  gpu().Resume();
}

TEST_F(GpuParts, AGpuThatIsLostBetweenPartsFailsTheStep) {
  SendRun(1);
  SendParts(1, std::vector<size_t>{0, 1});
  ASSERT_TRUE(WaitUntil([] { return copies() == 2; }));
  gpu().Lose();
  SendParts(1, std::vector<size_t>{2, 3});
  const Status status = WaitForStep(1);
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
}

}  // namespace
}  // namespace monograph::testing
