// The UCX transport between processes, and what a dead or stopped one does to it.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "tests/transport/hex.h"
#include "tests/transport/transport_peer.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

steady_clock::time_point In(milliseconds time) { return steady_clock::now() + time; }

class PeerProcess : public TransportPeer {
 public:
  PeerProcess(const std::string& mode, const TransportOptions& options)
      : TransportPeer({mode, "ucx", options.lanes.empty() ? "-" : options.lanes}) {}
};

// Counts what comes; every sink's completion.
class Counter : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t payload_bytes) override {
    ++sinks;
    Buffer buffer = Buffer::Allocate(HostAllocator(), payload_bytes);
    void* data = buffer.data();
    return {data, [this](const Status& status) { ++(status.ok() ? whole : lost); }, buffer};
  }
  void OnDelivered(std::string_view, Payload) override { ++headers; }

  std::atomic<int> headers{0}, sinks{0}, whole{0}, lost{0};
};

TransportOptions OnLoopback(std::string lanes) {
  TransportOptions options{.lanes = std::move(lanes), .net_devices = "lo"};
  if (options.lanes == "tcp") options.trusted_network = {"127.0.0.0/8"};
  return options;
}

struct Lanes {
  std::string name;
  TransportOptions options;
};

class UcxProcess : public ::testing::TestWithParam<Lanes> {
 protected:
  void SetUp() override {
    auto made = MakeUcxTransport(GetParam().options, &counter_);
    ASSERT_TRUE(made.ok()) << made.status();
    transport_ = std::move(made).value();
  }
  void TearDown() override {
    if (transport_ == nullptr) return;
    transport_->Close();
    const auto start = steady_clock::now();
    transport_->Join();
    EXPECT_LT(steady_clock::now() - start, seconds(10));
    EXPECT_EQ(counter_.sinks, counter_.whole + counter_.lost);
    EXPECT_EQ(added_, ok_ + cancelled_ + failed_);
  }
  PeerId Meet(PeerProcess& process) {
    auto peer = transport_->Connect(FromHex(process.ReadLine()), "/job:worker/task:0");
    EXPECT_TRUE(peer.ok()) << peer.status();
    process.WriteLine(ToHex(transport_->address()));
    EXPECT_EQ(process.ReadLine(), "ready");
    return peer.ok() ? *peer : 0;
  }
  Done Count() {
    ++added_;
    return [this](const Status& status) {
      ++(status.ok() ? ok_ : status.code() == Code::kCancelled ? cancelled_ : failed_);
    };
  }
  void SendMuch(PeerId peer) {
    Payload payload{Buffer::Allocate(HostAllocator(), 4 << 20), 0, 4 << 20};
    memset(payload.buffer.data(), 7, payload.bytes);
    for (int i = 0; i < 40; ++i) transport_->Send(peer, "large", payload, Count());
    for (int i = 0; i < 1000; ++i) transport_->Send(peer, "header", {}, Count());
  }
  bool AllDone(milliseconds within) {
    return transport_->DriveUntil([this] { return added_ == ok_ + cancelled_ + failed_; },
                                  In(within));
  }
  void ExpectEcho(PeerProcess& process) {
    const PeerId peer = Meet(process);
    const int before = counter_.headers;
    transport_->Send(peer, "hello", {}, nullptr);
    Payload payload{Buffer::Allocate(HostAllocator(), 3 << 20), 0, 3 << 20};
    memset(payload.buffer.data(), 7, payload.bytes);
    transport_->Send(peer, "large", payload, Count());
    EXPECT_TRUE(
        transport_->DriveUntil([&] { return counter_.headers >= before + 2; }, In(seconds(20))));
  }

  Counter counter_;
  std::unique_ptr<Transport> transport_;
  std::atomic<int> added_{0}, ok_{0}, cancelled_{0}, failed_{0};
};

TEST_P(UcxProcess, TalksToAnotherProcess) {
  PeerProcess process("echo", GetParam().options);
  ExpectEcho(process);
  EXPECT_TRUE(AllDone(seconds(20)));
  EXPECT_EQ(ok_, added_);
}

TEST_P(UcxProcess, CancelsWhatAKilledPeerNeverTook) {
  auto process = std::make_unique<PeerProcess>("echo", GetParam().options);
  const PeerId peer = Meet(*process);
  transport_->Send(peer, "hello", {}, nullptr);
  ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.headers == 1; }, In(seconds(20))));
  process->Stop();
  SendMuch(peer);
  process->Kill();
  transport_->DriveUntil([] { return false; }, In(milliseconds(100)));
  transport_->Disconnect(peer);
  EXPECT_TRUE(AllDone(seconds(3))) << added_ << " sent, " << ok_ << " ok, " << cancelled_
                                   << " cancelled, " << failed_ << " failed";
  EXPECT_GT(cancelled_ + failed_, 0);
  PeerProcess next("echo", GetParam().options);
  ExpectEcho(next);
}

TEST_P(UcxProcess, CancelsWhatAStoppedPeerDoesNotTake) {
  PeerProcess process("echo", GetParam().options);
  const PeerId peer = Meet(process);
  transport_->Send(peer, "hello", {}, nullptr);
  ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.headers == 1; }, In(seconds(20))));
  process.Stop();
  SendMuch(peer);
  transport_->Disconnect(peer);
  EXPECT_TRUE(AllDone(seconds(3))) << added_ << " sent, " << ok_ << " ok, " << cancelled_
                                   << " cancelled, " << failed_ << " failed";
  EXPECT_GT(cancelled_, 0);
  process.Signal(SIGCONT);
  PeerProcess next("echo", GetParam().options);
  ExpectEcho(next);
}

TEST_P(UcxProcess, CompletesTheSinksOfAKilledSender) {
  auto process = std::make_unique<PeerProcess>("send", GetParam().options);
  const PeerId peer = Meet(*process);
  ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.whole > 3; }, In(seconds(20))));
  process->Kill();
  transport_->DriveUntil([] { return false; }, In(milliseconds(50)));
  transport_->Disconnect(peer);
  EXPECT_TRUE(transport_->DriveUntil(
      [&] { return counter_.sinks == counter_.whole + counter_.lost; }, In(seconds(3))))
      << counter_.sinks << " sinks, " << counter_.whole << " whole, " << counter_.lost << " lost";
  // It may have been killed in the middle of a write, which blocks this transport's queue, and no
  // other one's.
  auto made = MakeUcxTransport(GetParam().options, &counter_);
  ASSERT_TRUE(made.ok()) << made.status();
  transport_.swap(*made);
  (*made)->Close();
  (*made)->Join();
  PeerProcess next("echo", GetParam().options);
  ExpectEcho(next);
}

TEST_P(UcxProcess, CompletesTheSinksOfAStoppedSender) {
  PeerProcess process("send", GetParam().options);
  const PeerId peer = Meet(process);
  ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.whole > 3; }, In(seconds(20))));
  process.Stop();
  transport_->Disconnect(peer);
  EXPECT_TRUE(transport_->DriveUntil(
      [&] { return counter_.sinks == counter_.whole + counter_.lost; }, In(seconds(3))))
      << counter_.sinks << " sinks, " << counter_.whole << " whole, " << counter_.lost << " lost";
}

TEST_P(UcxProcess, ClosesInBoundedTimeWithADeadPeer) {
  auto process = std::make_unique<PeerProcess>("echo", GetParam().options);
  const PeerId peer = Meet(*process);
  process->Stop();
  SendMuch(peer);
  process->Kill();
  // TearDown closes, and checks that every completion has run.
}

INSTANTIATE_TEST_SUITE_P(Lanes, UcxProcess,
                         ::testing::Values(Lanes{"by_default", OnLoopback("")},
                                           Lanes{"shared_memory", OnLoopback("posix,cma")},
                                           Lanes{"shared_memory_without_cma", OnLoopback("posix")},
                                           Lanes{"tcp", OnLoopback("tcp")}),
                         [](const auto& tested) { return tested.param.name; });

// A sender that is killed is in the middle of a write to the queue in shared memory every fourth
// time; that then takes nothing more from anybody.
TEST(UcxRenew, LetsTheOthersGoOnAfterASenderWasKilledInTheMiddleOfAWrite) {
  const TransportOptions options = OnLoopback("posix");
  Counter counter;
  auto transport = MakeUcxTransport(options, &counter).value();
  PeerProcess echo("echo", options);
  const std::string address = FromHex(echo.ReadLine());
  const PeerId other = transport->Connect(address, "other").value();
  echo.WriteLine(ToHex(transport->address()));
  ASSERT_EQ(echo.ReadLine(), "ready");
  const auto answers = [&](milliseconds within) {
    const int before = counter.headers;
    transport->Send(other, "hello", {}, nullptr);
    return transport->DriveUntil([&] { return counter.headers > before; }, In(within));
  };
  ASSERT_TRUE(answers(seconds(20)));
  int blocked = 0;
  for (int round = 0; round < 40 && blocked < 2; ++round) {
    PeerProcess sender("send", options);
    const PeerId lost = transport->Connect(FromHex(sender.ReadLine()), "sender").value();
    sender.WriteLine(ToHex(transport->address()));
    ASSERT_EQ(sender.ReadLine(), "ready");
    const int whole = counter.whole;
    ASSERT_TRUE(transport->DriveUntil([&] { return counter.whole > whole; }, In(seconds(20))));
    sender.Kill();
    transport->Disconnect(lost);
    if (!answers(milliseconds(200))) ++blocked;
    const std::string old = transport->address();
    const auto renewed = transport->Renew(lost);
    ASSERT_TRUE(renewed.ok()) << renewed.status();
    EXPECT_NE(*renewed, old);
    EXPECT_EQ(*renewed, transport->address());
    EXPECT_EQ(transport->Renew(lost).value(), *renewed);  // once for each that is lost
    ASSERT_TRUE(transport->Reconnect(other, address).ok());
    echo.WriteLine(ToHex(*renewed));
    ASSERT_EQ(echo.ReadLine(), "ready");
    EXPECT_TRUE(answers(seconds(20))) << "round " << round;
  }
  RecordProperty("blocked", blocked);
  transport->Close();
  transport->Join();
}

TEST(UcxOptions, NameTheLanesOfThisMachineWhenOneIsAbsent) {
  Counter counter;
  const auto made = MakeUcxTransport(OnLoopback("posix,warp"), &counter);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_NE(made.status().message().find("'warp'"), std::string::npos) << made.status();
  EXPECT_NE(made.status().message().find("posix"), std::string::npos) << made.status();
}

TEST(UcxOptions, RefuseANetworkDeviceThatIsAbsent) {
  Counter counter;
  const auto made = MakeUcxTransport({.net_devices = "nowhere0"}, &counter);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("nowhere0"), std::string::npos) << made.status();
}

TEST(UcxOptions, LeaveTheSignalsOfCrashesToTheProgram) {
  Counter counter;
  auto made = MakeUcxTransport(OnLoopback(""), &counter);
  ASSERT_TRUE(made.ok()) << made.status();
  struct sigaction action;
  sigaction(SIGSEGV, nullptr, &action);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(action.sa_handler, SIG_DFL);
#endif
  (*made)->Close();
  (*made)->Join();
}

TEST(UcxConnect, SaysWhenTwoTransportsShareNoLane) {
  Counter counter;
  auto tcp = MakeUcxTransport(OnLoopback("tcp"), &counter);
  auto shm = MakeUcxTransport(OnLoopback("posix,cma"), &counter);
  ASSERT_TRUE(tcp.ok() && shm.ok());
  const auto peer = (*tcp)->Connect((*shm)->address(), "/job:worker/task:4");
  ASSERT_FALSE(peer.ok());
  EXPECT_NE(peer.status().message().find("/job:worker/task:4"), std::string::npos) << peer.status();
  for (auto* transport : {tcp->get(), shm->get()}) {
    transport->Close();
    transport->Join();
  }
}

}  // namespace
}  // namespace monograph
