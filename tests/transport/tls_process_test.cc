// The TLS transport between processes, and what a dead or stopped one does to it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "tests/conformance/transport/transport_suite.h"
#include "tests/temporary_folder.h"
#include "tests/transport/hex.h"
#include "tests/transport/transport_peer.h"
#include "transport/tls/tls_transport.h"

namespace monograph {

// Its helpers are used here, its tests run elsewhere.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class PeerProcess : public TransportPeer {
 public:
  PeerProcess(const std::string& mode, const std::string& key_file, const std::string& user = {})
      : TransportPeer(user.empty() ? std::vector{mode, std::string("tls"), key_file}
                                   : std::vector{mode, std::string("tls"), key_file, user}) {}
};

// Counts what comes, and how each sink completed.
class Counter : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t payload_bytes) override {
    ++sinks;
    Buffer buffer = Buffer::Allocate(HostAllocator(), payload_bytes);
    void* data = buffer.data();
    return {data,
            [this](const Status& status) {
              const bool named = !status.lost_task().empty();
              EXPECT_TRUE(status.ok() || status.code() == Code::kCancelled || named) << status;
              ++(status.ok() ? whole : lost);
            },
            buffer};
  }
  void OnDelivered(std::string_view, Payload) override { ++headers; }

  std::atomic<int> headers{0}, sinks{0}, whole{0}, lost{0};
};

class TlsProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(control::WriteKeyFile(key_file_, key_).ok());
    transport_ = MakeTlsTransport(TlsListener::Start({.key = key_}).value(), {}, &counter_).value();
  }
  void TearDown() override {
    transport_->Close();
    transport_->Join();
    EXPECT_EQ(counter_.sinks, counter_.whole + counter_.lost);
    EXPECT_EQ(sent_.ran(), sent_.added());
  }
  PeerId Meet(PeerProcess& process, const std::string& name) {
    const auto peer = transport_->Connect(FromHex(process.ReadLine()), name);
    EXPECT_TRUE(peer.ok()) << peer.status();
    process.WriteLine(ToHex(transport_->address()));
    EXPECT_EQ(process.ReadLine(), "ready");
    return peer.ok() ? *peer : 0;
  }

  const TemporaryFolder folder_;
  const control::Key key_ = control::GenerateKey().value();
  const std::string key_file_ = folder_.File("key");
  Counter counter_;
  Completions sent_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(TlsProcess, AKilledPeerIsNamedAtOnce) {
  for (const char* mode : {"echo", "send"}) {
    PeerProcess process(mode, key_file_);
    const PeerId peer = Meet(process, "/job:worker/task:0");
    if (strcmp(mode, "send") == 0) {
      ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.whole >= 5; }, In(seconds(20))));
    }
    const Payload payload = MakePayload(32 << 20, 1);
    for (int i = 0; i < 20; ++i) transport_->Send(peer, "m", payload, sent_.Add());
    process.Kill();
    const auto start = steady_clock::now();
    EXPECT_TRUE(sent_.WaitForAll());
    EXPECT_LT(steady_clock::now() - start, seconds(1)) << mode;
    EXPECT_GE(sent_.with(Code::kUnavailable), 1) << mode;
    std::atomic<bool> ran{false};
    std::string lost;
    transport_->Send(peer, "m", {}, [&](const Status& status) {
      lost = status.lost_task();
      ran = true;
    });
    ASSERT_TRUE(transport_->DriveUntil([&] { return ran.load(); }, In(seconds(5))));
    EXPECT_EQ(lost, "/job:worker/task:0") << mode;
    transport_->Disconnect(peer);
  }
}

TEST_F(TlsProcess, WithoutAKeyOnlyProcessesOfOneUserServeEachOther) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
  Counter counter;
  auto open = MakeTlsTransport(TlsListener::Start({}).value(), {}, &counter).value();
  for (const char* user : {"", "65534"}) {
    PeerProcess process("echo", "-", user);
    const auto peer = open->Connect(FromHex(process.ReadLine()), "/job:worker/task:0");
    ASSERT_TRUE(peer.ok()) << peer.status();
    process.WriteLine(ToHex(open->address()));
    EXPECT_EQ(process.ReadLine(), "ready");
    const int headers = counter.headers;
    std::atomic<bool> failed{false};
    open->Send(*peer, "m", {}, [&](const Status& status) { failed = !status.ok(); });
    const bool ended =
        open->DriveUntil([&] { return failed || counter.headers > headers; }, In(seconds(12)));
    EXPECT_TRUE(ended) << user;
    EXPECT_EQ(failed, *user != 0) << user;
    open->Disconnect(*peer);
  }
  open->Close();
  open->Join();
}

TEST_F(TlsProcess, AStoppedPeerDelaysNobodyElse) {
  PeerProcess stopped("send", key_file_), good("echo", key_file_);
  const PeerId to_stopped = Meet(stopped, "/job:worker/task:0");
  const PeerId to_good = Meet(good, "/job:worker/task:1");
  ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.whole >= 5; }, In(seconds(20))));
  stopped.Stop();
  const Payload payload = MakePayload(32 << 20, 1);
  Completions pending;
  for (int i = 0; i < 20; ++i) transport_->Send(to_stopped, "m", payload, pending.Add());
  for (int i = 1; i <= 100; ++i) {
    transport_->Send(to_good, "m", i % 10 == 0 ? MakePayload(1 << 20, 1) : Payload{}, sent_.Add());
    ASSERT_TRUE(transport_->DriveUntil([&] { return counter_.headers >= i; }, In(seconds(5))));
  }
  EXPECT_LT(pending.ran(), pending.added());
  const auto start = steady_clock::now();
  transport_->Disconnect(to_stopped);
  EXPECT_TRUE(pending.WaitForAll());
  EXPECT_LT(steady_clock::now() - start, milliseconds(500));
}

}  // namespace
}  // namespace monograph
