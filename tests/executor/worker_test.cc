// Worker by itself: one task, whose own process is the client.
#include "executor/worker/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "executor/worker/methods.h"
#include "executor/worker/step_message.h"
#include "executor/worker/worker.pb.h"
#include "graph/scope.h"
#include "tests/executor/step_reports.h"
#include "tests/executor/test_ops.h"
#include "tests/transport/inproc_transport.h"

namespace monograph {
namespace {

constexpr char kTask[] = "/job:localhost/replica:0/task:0";
constexpr char kDevice[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kClientDevice[] = "/job:client/replica:0/task:0/device:CPU:0";
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

// y = x + 1, where x comes from outside as edge 0 and has two elements.
Graph IncrementOfEdgeZero(const OpRegistry* ops, const char* from = kDevice) {
  Graph graph(ops);
  Scope scope = Scope(&graph).WithDevice(kDevice);
  const Output x = OpBuilder(scope.WithOpName("x"), "_Recv")
                       .Attr("T", AttrValue(DT_FLOAT))
                       .Attr("edge_id", 0)
                       .Attr("send_device", from)
                       .Attr("recv_device", kDevice)
                       .Attr("tensor_name", "x:0")
                       .Attr("shape", AttrValue(PartialShape({2})))
                       .BuildOutput();
  OpBuilder(scope.WithOpName("y"), "TInc").Input(x).Build();
  EXPECT_TRUE(scope.ok()) << scope.status();
  return graph;
}

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::AddTestOps(&ops_, &kernels_);
    WorkerOptions options;
    options.task = DeviceName::Parse(kTask).value();
    options.ops = &ops_;
    options.kernels = &kernels_;
    worker_ = Worker::Create(std::move(options)).value();
    ASSERT_TRUE(worker_->CreateSession(kSession, &client_).ok());
    ASSERT_TRUE(worker_->ConnectSession(kSession, {}, kSelf, 0).ok());
    handle_ = worker_->RegisterGraph(kSession, IncrementOfEdgeZero(&ops_)).value();
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  Client client_;
  std::unique_ptr<Worker> worker_;
  uint32_t handle_ = 0;
};

TEST_F(WorkerTest, ATensorMayComeBeforeItsStep) {
  worker_->SendTensor(kSession, kSelf, 1, 0, Tensor::Vector<float>({1, 2}));
  worker_->SendRunStep(kSession, kSelf, handle_, {1, 1}, false, true);
  const Status status = client_.Wait();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(WorkerTest, ATensorThatCameBeforeItsStepAndDoesNotFitFailsTheStepAndTheNextOneRuns) {
  worker_->SendTensor(kSession, kSelf, 1, 0, Tensor::Vector<float>({1, 2, 3}));
  worker_->SendRunStep(kSession, kSelf, handle_, {1, 1}, false, true);
  const Status status = client_.Wait();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("x:0"), std::string::npos) << status;
  worker_->SendTensor(kSession, kSelf, 2, 0, Tensor::Vector<float>({1, 2}));
  worker_->SendRunStep(kSession, kSelf, handle_, {2, 2}, false, true);
  EXPECT_TRUE(client_.Wait().ok());
}

TEST_F(WorkerTest, ADeregisteredGraphIsGoneAndItsHandleIsNotGivenAgain) {
  EXPECT_EQ(worker_->stats().graphs, 1);
  ASSERT_TRUE(worker_->DeregisterGraph(kSession, handle_).ok());
  EXPECT_EQ(worker_->stats().graphs, 0);
  EXPECT_EQ(worker_->DeregisterGraph(kSession, handle_).code(), Code::kNotFound);
  worker_->SendRunStep(kSession, kSelf, handle_, {1, 1}, false, true);
  EXPECT_EQ(client_.Wait().code(), Code::kAborted);
  EXPECT_NE(worker_->RegisterGraph(kSession, Graph(&ops_)).value(), handle_);
}

TEST_F(WorkerTest, ASessionIsOfUseFromItsConnectionToItsEnd) {
  constexpr uint64_t kOther = 8;
  EXPECT_EQ(worker_->ConnectSession(kOther, {}, kSelf, 0).code(), Code::kAborted);
  ASSERT_TRUE(worker_->CreateSession(kOther, &client_).ok());
  EXPECT_EQ(worker_->CreateSession(kOther).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(worker_->RegisterGraph(kOther, Graph(&ops_)).status().code(), Code::kAborted);
  EXPECT_EQ(worker_->stats().sessions, 2);
  ASSERT_TRUE(worker_->ConnectSession(kOther, {}, kSelf, 0).ok());
  EXPECT_TRUE(worker_->RegisterGraph(kOther, Graph(&ops_)).ok());
  EXPECT_EQ(worker_->ConnectSession(kOther, {}, kSelf, 0).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(worker_->CloseSession(kOther).ok());
  EXPECT_EQ(worker_->RegisterGraph(kOther, Graph(&ops_)).status().code(), Code::kAborted);
  // One that nobody connects.
  ASSERT_TRUE(worker_->CreateSession(kOther).ok());
  EXPECT_TRUE(worker_->CloseSession(kOther).ok());
  EXPECT_EQ(worker_->CloseSession(kOther).code(), Code::kNotFound);
}

// Closing a session waits two seconds for a kernel that cannot be cut (Worker::kCloseDeadline).
TEST(Clients, AreEndedBesideOthersWhoseKernelsCannotBeCut) {
  OpRegistry ops;
  KernelRegistry kernels;
  testing::AddTestOps(&ops, &kernels);
  constexpr int kStuck = 4;
  WorkerOptions options;
  options.task = DeviceName::Parse(kTask).value();
  options.ops = &ops;
  options.kernels = &kernels;
  options.inter_op_parallelism_threads = kStuck;
  const std::unique_ptr<Worker> worker = Worker::Create(std::move(options)).value();
  const auto gate = std::make_shared<testing::Gate>();
  ASSERT_TRUE(worker->resources()
                  .FindOrCreate<testing::Gate>("test", "gate", [&gate] { return gate; })
                  .ok());
  const auto stuck = [&ops] {
    Graph graph(&ops);
    testing::Builder build(&graph);
    build.Op("TBlock", {build.Op("TConst", {}, {{"value", Tensor::Scalar(1.f)}}, {}, kDevice)},
             {{"gate", std::string("gate")}}, {}, kDevice);
    return graph;
  };
  ControlMethods methods(worker.get(), &ops, "{}");
  const auto create = methods.Map().at("CreateSession").handler;
  std::vector<std::shared_ptr<const control::ConnectionInfo>> clients;
  for (uint64_t id = 1; id <= kStuck + 1; ++id) {
    const auto client = std::make_shared<control::ConnectionInfo>();
    client->id = id;
    clients.push_back(client);
    wire::CreateSessionRequest request;
    request.set_session(id);
    create({.connection = client, .method = "CreateSession", .deadline = {}},
           request.SerializeAsString(),
           [](const Result<std::string>& answer) { EXPECT_TRUE(answer.ok()) << answer.status(); });
    ASSERT_TRUE(worker->ConnectSession(id, {}, kSelf, 0).ok());
    // The last one waits for a tensor.
    const Result<uint32_t> handle =
        worker->RegisterGraph(id, id <= kStuck ? stuck() : IncrementOfEdgeZero(&ops));
    ASSERT_TRUE(handle.ok()) << handle.status();
    worker->SendRunStep(id, kSelf, *handle, {1, 1}, false, false);
  }
  ASSERT_TRUE(gate->WaitForArrivals(kStuck));
  ASSERT_EQ(worker->stats().running_steps, kStuck + 1);
  const auto gone = std::chrono::steady_clock::now();
  for (const auto& client : clients) methods.ClientGone(*client, Unavailable("it is gone"));
  while (worker->stats().running_steps > kStuck &&
         std::chrono::steady_clock::now() - gone < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(std::chrono::steady_clock::now() - gone, std::chrono::milliseconds(1500));
  gate->Open();
  methods.Join();
  EXPECT_EQ(worker->stats().sessions, 0);
}

// A worker with a data plane, and a client that is nothing but its end of that plane: it says what
// it likes.
class WorkerOnTheWire : public ::testing::Test, public MessageHandler {
 protected:
  void SetUp() override {
    testing::AddTestOps(&ops_, &kernels_);
    wire_ = MakeInprocTransport(this);
    WorkerOptions options;
    options.task = DeviceName::Parse(kTask).value();
    options.ops = &ops_;
    options.kernels = &kernels_;
    options.make_transport = [](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
      return MakeInprocTransport(handler);
    };
    worker_ = Worker::Create(std::move(options)).value();
    const PeerSpec client{kClient, wire_->address(), kClientIncarnation};
    peer_ = wire_->Connect(worker_->CreateSession(kSession).value(), kTask).value();
    ASSERT_TRUE(worker_->ConnectSession(kSession, {client}, 0, 0).ok());
    handle_ = worker_->RegisterGraph(kSession, IncrementOfEdgeZero(&ops_)).value();
  }
  void TearDown() override {
    worker_ = nullptr;
    wire_->Close();
    wire_->Join();
  }

  // The worker's reports.
  PayloadSink OnMessage(std::string_view, size_t) override { return {}; }
  void OnDelivered(std::string_view header, Payload) override {
    StepMessage message;
    EXPECT_TRUE(DecodeStepMessage(header, &message).ok());
    if (message.kind == StepMessageKind::kPing) return Answer(message);
    reports_.Ended(message.step, message.status);
  }
  Status WaitForStep(uint64_t step) { return reports_.WaitFor(step); }

  // Says of a step what `says_` has; nothing at all of those that it lacks.
  void Answer(const StepMessage& ping) {
    StepMessage pong = Message(StepMessageKind::kPong, ping.step);
    pong.body = kClient;
    {
      std::lock_guard lock(mutex_);
      if (!says_.contains(ping.step)) return;
      pong.id = static_cast<uint32_t>(says_[ping.step]);
    }
    SendHeader(Encoded(pong));
  }

  StepMessage Message(StepMessageKind kind, uint64_t step) {
    StepMessage message;
    message.kind = kind;
    message.session = kSession;
    message.incarnation = worker_->incarnation();
    message.step = step;
    return message;
  }
  void SendHeader(const std::string& header, const Tensor& tensor = Tensor()) {
    wire_->Send(peer_, header, tensor.valid() ? TensorPayload(tensor) : Payload(), nullptr);
  }
  static std::string Encoded(const StepMessage& message) {
    std::string header(kMaxHeaderBytes, '\0');
    header.resize(EncodeStepMessage(message, header.data()));
    return header;
  }
  void SendRun(uint64_t step) { SendRow(step, 1); }
  void SendRow(uint64_t first, uint32_t count) {
    StepMessage run = Message(StepMessageKind::kRunStep, first);
    run.id = handle_;
    run.count = count;
    run.stride = 1;
    SendHeader(Encoded(run));
  }
  std::string TensorHeader(uint64_t step, Shape shape) {
    StepMessage message = Message(StepMessageKind::kTensor, step);
    message.dtype = DT_FLOAT;
    message.shape = shape;
    return Encoded(message);
  }
  uint64_t dropped() { return worker_->stats().messages_dropped; }
  void ExpectAStepToRun(uint64_t step) {
    SendRun(step);
    SendHeader(TensorHeader(step, Shape{2}), Tensor::Vector<float>({1, 2}));
    EXPECT_TRUE(WaitForStep(step).ok()) << WaitForStep(step);
  }

  static constexpr char kClient[] = "/job:client/replica:0/task:0";
  static constexpr uint64_t kClientIncarnation = 11;
  OpRegistry ops_;
  KernelRegistry kernels_;
  std::unique_ptr<Transport> wire_;
  std::unique_ptr<Worker> worker_;
  PeerId peer_ = 0;
  uint32_t handle_ = 0;
  std::mutex mutex_;
  testing::StepReports reports_;
  std::map<uint64_t, PartState> says_;  // guarded by mutex_
};

TEST_F(WorkerOnTheWire, AMalformedTensorFailsItsStepSayingWhatIsWrong) {
  ExpectAStepToRun(1);
  SendRun(2);
  std::string header = TensorHeader(2, Shape{2});
  header[32] = 99;  // the type
  SendHeader(header, Tensor::Vector<float>({1, 2}));
  Status status = WaitForStep(2);
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_NE(status.message().find("type 99"), std::string::npos) << status;
  EXPECT_EQ(dropped(), 1u);
  SendRun(3);
  SendHeader(TensorHeader(3, Shape{2, 2}), Tensor::Vector<float>({1, 2}));
  status = WaitForStep(3);
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_NE(status.message().find("float[2,2]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("8 bytes"), std::string::npos) << status;
  ExpectAStepToRun(4);
}

TEST_F(WorkerOnTheWire, ReportsAndAbortsOfWhoMayNotGiveThemAreCountedAndIgnored) {
  SendRun(1);
  StepMessage abort = Message(StepMessageKind::kAbortStep, 1);
  abort.status = Cancelled("says a stranger");
  abort.id = 0;
  SendHeader(Encoded(abort));
  SendHeader(Encoded(Message(StepMessageKind::kStepDone, 1)));  // this task is nobody's client
  StepMessage other = Message(StepMessageKind::kAbortStep, 1);
  other.status = abort.status;
  other.id = kFromClient;
  ++other.session;
  SendHeader(Encoded(other));
  other.session = kSession;
  ++other.incarnation;
  SendHeader(Encoded(other));
  SendHeader(TensorHeader(1, Shape{2}), Tensor::Vector<float>({1, 2}));
  EXPECT_TRUE(WaitForStep(1).ok()) << WaitForStep(1);
  EXPECT_EQ(dropped(), 4u);
  abort.id = kFromClient;
  abort.step = 2;
  SendRun(2);
  SendHeader(Encoded(abort));
  EXPECT_EQ(WaitForStep(2).code(), Code::kCancelled);
}

TEST_F(WorkerOnTheWire, AStepBelongsToOneRowAtMostAndARowWhoseStepWasGivenUpEnds) {
  SendRow(StepId(1, 1), 3);  // ids 65, 66, 67
  SendRow(StepId(1, 2), 4);
  SendRun(StepId(1, 3));
  SendRow(StepId(1, 0), 2);
  ExpectAStepToRun(StepId(1, 4));
  EXPECT_EQ(dropped(), 3u);
  for (uint64_t slot = 1; slot <= 3; ++slot)
    SendHeader(TensorHeader(StepId(1, slot), Shape{2}), Tensor::Vector<float>({1, 2}));
  EXPECT_TRUE(WaitForStep(StepId(1, 3)).ok()) << WaitForStep(StepId(1, 3));

  SendRow(StepId(2, 1), 2);
  ExpectAStepToRun(StepId(3, 2));
  SendHeader(TensorHeader(StepId(2, 1), Shape{2}), Tensor::Vector<float>({1, 2}));
  const Status status = WaitForStep(StepId(2, 2));
  EXPECT_EQ(status.code(), Code::kAborted) << status;
  EXPECT_NE(status.message().find("step 3 took its slot"), std::string::npos) << status;
  ExpectAStepToRun(StepId(4, 2));
  // A step is reported a moment before it counts as over.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (worker_->stats().running_steps > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(worker_->stats().running_steps, 0);
}

TEST_F(WorkerOnTheWire, WhatEndedSessionsHaveMovedStillCounts) {
  ExpectAStepToRun(1);
  const TransportStats moved = worker_->transport_stats();
  EXPECT_EQ(moved.messages_received, 2u);
  EXPECT_EQ(moved.messages_sent, 1u);
  ASSERT_TRUE(worker_->CloseSession(kSession).ok());
  EXPECT_EQ(worker_->transport(kSession), nullptr);
  EXPECT_EQ(worker_->transport_stats().messages_received, moved.messages_received);
  EXPECT_EQ(worker_->transport_stats().bytes_received, moved.bytes_received);
}

TEST_F(WorkerOnTheWire, NothingOfASessionComesThroughTheDataPlaneOfAnotherOne) {
  const std::string address = worker_->CreateSession(kSession + 1).value();
  const PeerSpec client{"/job:client/replica:0/task:0", wire_->address(), kClientIncarnation};
  ASSERT_TRUE(worker_->ConnectSession(kSession + 1, {client}, 0, 0).ok());
  const PeerId other = wire_->Connect(address, kTask).value();
  SendRun(1);
  wire_->Send(other, TensorHeader(1, Shape{2}), TensorPayload(Tensor::Vector<float>({5, 6})),
              nullptr);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ASSERT_TRUE(wire_->DriveUntil([this] { return dropped() == 1; }, deadline));
  SendHeader(TensorHeader(1, Shape{2}), Tensor::Vector<float>({1, 2}));
  EXPECT_TRUE(WaitForStep(1).ok()) << WaitForStep(1);
}

TEST_F(WorkerOnTheWire, ATensorThatItsSenderHasSentAndThatNeverCameFailsItsStepWithItsName) {
  handle_ = worker_->RegisterGraph(kSession, IncrementOfEdgeZero(&ops_, kClientDevice)).value();
  says_ = {{0, PartState::kUnknown},
           {StepId(1, 1), PartState::kRunning},
           {StepId(2, 2), PartState::kOver}};
  const auto begin = std::chrono::steady_clock::now();
  SendRun(StepId(1, 1));
  SendRun(StepId(2, 2));
  const Status status = WaitForStep(StepId(2, 2));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  for (const char* part : {"'x:0' (edge 0) from /job:client/replica:0/task:0", "step 2"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  // The other one may still be made.
  SendHeader(TensorHeader(StepId(1, 1), Shape{2}), Tensor::Vector<float>({1, 2}));
  EXPECT_TRUE(WaitForStep(StepId(1, 1)).ok());
}

TEST_F(WorkerOnTheWire, ASilentPeerFailsTheStepsThatExchangeTensorsWithItAndThoseToCome) {
  const uint32_t alone = handle_;
  handle_ = worker_->RegisterGraph(kSession, IncrementOfEdgeZero(&ops_, kClientDevice)).value();
  const auto begin = std::chrono::steady_clock::now();
  SendRun(1);
  const auto failed = [&](uint64_t steps) {
    while (worker_->stats().steps_failed < steps &&
           std::chrono::steady_clock::now() < begin + std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return worker_->stats().steps_failed == steps;
  };
  ASSERT_TRUE(failed(1));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, std::chrono::seconds(2));
  EXPECT_LT(took, std::chrono::seconds(3));
  SendRun(2);  // refused
  handle_ = alone;
  SendRun(3);
  SendHeader(TensorHeader(3, Shape{2}), Tensor::Vector<float>({1, 2}));
  while (worker_->stats().steps_done < 1 &&
         std::chrono::steady_clock::now() < begin + std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(worker_->stats().steps_done, 1u) << "it needs nobody";
  EXPECT_EQ(worker_->stats().steps_failed, 1u);
}

TEST_F(WorkerOnTheWire, DamagedHeadersLeaveTheWorkerUsable) {
  std::mt19937 random(7);
  const std::string sound = TensorHeader(1, Shape{2});
  for (int i = 0; i < 5'000; ++i) {
    std::string header = sound;
    // Session, incarnation and step stay, so that all of it reaches the session.
    const size_t at = random() % 3 == 0 ? random() % 8 : 32 + random() % (header.size() - 32);
    header[at] = static_cast<char>(random());
    if (random() % 5 == 0) header.resize(32 + random() % (header.size() - 31));
    SendHeader(header, random() % 2 == 0 ? Tensor::Vector<float>({1, 2}) : Tensor());
  }
  SendRun(1);
  (void)WaitForStep(1);
  ExpectAStepToRun(2);
}

}  // namespace
}  // namespace monograph
