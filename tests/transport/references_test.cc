// Payloads that are read where they lie (transport/reference/references.h): between two transports
// of this process, and with processes that are killed.
#include "transport/reference/references.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/pool_allocator.h"
#include "base/shared_arena.h"
#include "tests/transport/hex.h"
#include "tests/transport/transport_peer.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kMiB = size_t{1} << 20;

// Keeps what comes by reference, and counts what comes as a copy.
class Reader : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t payload_bytes) override {
    Buffer buffer = Buffer::Allocate(HostAllocator(), payload_bytes);
    void* data = buffer.data();
    return {data, [this](const Status& status) { copies += status.ok() ? 1 : 1000; }, buffer};
  }
  void OnDelivered(std::string_view, Payload payload) override {
    if (payload.bytes > 0) {
      std::lock_guard lock(mutex_);
      payloads_.push_back(std::move(payload));
    }
    ++headers;
  }
  std::vector<Payload> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(payloads_, {});
  }

  std::atomic<int> copies{0}, headers{0};

 private:
  std::mutex mutex_;
  std::vector<Payload> payloads_;
};

Payload Filled(size_t bytes, int value) {
  Payload payload{Buffer::Allocate(HostAllocator(), bytes), 0, bytes};
  std::memset(payload.buffer.data(), value, bytes);
  return payload;
}

bool IsFilled(const Payload& payload, int value) {
  const auto* bytes = static_cast<const char*>(payload.data());
  for (size_t i = 0; i < payload.bytes; ++i)
    if (bytes[i] != static_cast<char>(value)) return false;
  return true;
}

bool Within(seconds time, const std::function<bool()>& ready) {
  for (const auto until = steady_clock::now() + time; !ready();) {
    if (steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

bool NothingIsLent() {
  return Within(seconds(10), [] { return References::Get().leases() == 0; });
}

std::unique_ptr<Transport> Make(MessageHandler* handler, bool by_reference = true) {
  auto made = MakeUcxTransport({.net_devices = "lo"}, handler, by_reference);
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(made).value();
}

void Shut(std::unique_ptr<Transport>& transport) {
  if (transport == nullptr) return;
  transport->Close();
  transport->Join();
  transport.reset();
}

class ReferencesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    a_ = Make(&at_a_);
    b_ = Make(&at_b_);
    b_of_a_ = a_->Connect(b_->address(), "/job:b").value();
    a_of_b_ = b_->Connect(a_->address(), "/job:a").value();
    if (SharedArena::Get() == nullptr)
      GTEST_SKIP() << "this system gives shared memory no huge pages";
  }
  void TearDown() override {
    Shut(a_);
    Shut(b_);
    at_b_.Take();
    EXPECT_TRUE(NothingIsLent());
  }
  Payload Received() {
    const int before = received_++;
    EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.headers > before; }));
    std::vector<Payload> payloads = at_b_.Take();
    EXPECT_EQ(payloads.size(), 1u);
    return payloads.empty() ? Payload() : payloads[0];
  }

  Reader at_a_, at_b_;
  std::unique_ptr<Transport> a_, b_;
  PeerId b_of_a_ = 0, a_of_b_ = 0;
  int received_ = 0;
};

TEST_F(ReferencesTest, ALargePayloadIsReadWhereItLies) {
  Payload sent = Filled(8 * kMiB, 1);
  a_->Send(b_of_a_, "m", sent, nullptr);
  const Payload received = Received();
  EXPECT_EQ(received.bytes, sent.bytes);
  EXPECT_TRUE(IsFilled(received, 1));
  EXPECT_NE(received.data(), sent.data());
  EXPECT_FALSE(received.buffer.unique()) << "nobody may compute in place there";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(received.data()) % kBufferAlignment, 0u);
  // The same memory: only a test may write to what it has lent.
  static_cast<char*>(sent.buffer.data())[5] = 7;
  EXPECT_EQ(static_cast<const char*>(received.data())[5], 7);
  EXPECT_EQ(at_b_.copies, 0);
  EXPECT_NE(b_->Describe(a_of_b_).find("read in place"), std::string::npos)
      << b_->Describe(a_of_b_);
}

TEST_F(ReferencesTest, APartOfABufferIsReadWhereItLiesIfItIsAligned) {
  const Payload sent = Filled(8 * kMiB, 1);
  a_->Send(b_of_a_, "m", {sent.buffer, 2 * kMiB, 3 * kMiB}, nullptr);
  EXPECT_EQ(Received().bytes, 3 * kMiB);
  a_->Send(b_of_a_, "m", {sent.buffer, 4, 3 * kMiB}, nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.copies == 1; }));
}

TEST_F(ReferencesTest, WritingToWhatWasReceivedIsRefusedByTheSystem) {
  a_->Send(b_of_a_, "m", Filled(8 * kMiB, 1), nullptr);
  const Payload received = Received();
  auto* const byte = static_cast<volatile char*>(const_cast<void*>(received.data()));
  EXPECT_DEATH(*byte = 1, "");
}

TEST_F(ReferencesTest, SmallPayloadsAndThoseFromElsewhereAreCopied) {
  a_->Send(b_of_a_, "m", Filled(kMiB / 2, 1), nullptr);
  std::vector<char> elsewhere(8 * kMiB);
  a_->Send(b_of_a_, "m",
           {Buffer::Wrap(elsewhere.data(), elsewhere.size(), nullptr), 0, elsewhere.size()},
           nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.copies == 2; }));
  EXPECT_EQ(at_b_.headers, 0);
}

// The maker fills all the memory that it is given with junk.
TEST_F(ReferencesTest, MemoryIsNotUsedAgainBeforeItsReaderIsDone) {
  for (int round = 0; round < 20; ++round) {
    Payload sent = Filled(8 * kMiB, 1);
    const void* const place = sent.buffer.data();
    a_->Send(b_of_a_, "m", std::move(sent), nullptr);
    sent = {};
    Payload received = Received();
    std::vector<Payload> junk;
    for (int i = 0; i < 8; ++i) {
      junk.push_back(Filled(8 * kMiB, 0x5a));
      EXPECT_NE(junk.back().buffer.data(), place);
    }
    EXPECT_TRUE(IsFilled(received, 1));
    junk.clear();
    received = {};
    ASSERT_TRUE(NothingIsLent());
    std::set<const void*> places;
    for (int i = 0; i < 9; ++i) {
      junk.push_back(Filled(8 * kMiB, 0x5a));
      places.insert(junk.back().buffer.data());
    }
    EXPECT_TRUE(places.contains(place)) << "it is not given back";
  }
}

TEST_F(ReferencesTest, WhatWasReceivedOutlivesTheTransports) {
  const int64_t before = HostPool().bytes_in_use();
  a_->Send(b_of_a_, "m", Filled(8 * kMiB, 3), nullptr);
  Payload received = Received();
  Shut(a_);
  Shut(b_);
  std::vector<Payload> junk;
  for (int i = 0; i < 8; ++i) junk.push_back(Filled(8 * kMiB, 0x5a));
  EXPECT_TRUE(IsFilled(received, 3));
  junk.clear();
  EXPECT_GE(HostPool().bytes_in_use(), before + static_cast<int64_t>(8 * kMiB))
      << "it is its maker's memory still";
  received = {};
  EXPECT_TRUE(NothingIsLent());
  EXPECT_LE(HostPool().bytes_in_use(), before + static_cast<int64_t>(kMiB));
}

TEST_F(ReferencesTest, WhatNobodyHasTakenComesBackAtADisconnect) {
  // b handles nothing meanwhile.
  std::atomic<bool> go_on{false};
  class Blocked : public Reader {
   public:
    explicit Blocked(std::atomic<bool>* until) : until_(until) {}
    void OnDelivered(std::string_view header, Payload payload) override {
      while (!*until_) std::this_thread::sleep_for(milliseconds(1));
      Reader::OnDelivered(header, std::move(payload));
    }

   private:
    std::atomic<bool>* const until_;
  } blocked(&go_on);
  auto c = Make(&blocked);
  const PeerId c_of_a = a_->Connect(c->address(), "/job:c").value();
  a_->Send(c_of_a, "block", {}, nullptr);
  for (int i = 0; i < 3; ++i) a_->Send(c_of_a, "m", Filled(8 * kMiB, 1), nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return References::Get().leases() == 3; }));
  a_->Disconnect(c_of_a);
  EXPECT_EQ(References::Get().leases(), 0);
  go_on = true;
  a_->Connect(c->address(), "/job:c").value();
  EXPECT_TRUE(Within(seconds(20), [&] { return blocked.headers >= 1; }));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(blocked.headers, 1) << "what was taken back is not delivered";
  Shut(c);
}

TEST_F(ReferencesTest, MoreThanTheTableHoldsAreCopied) {
  const Payload sent = Filled(2 * kMiB + 1, 1);
  const int count = static_cast<int>(LeaseTable::kSlots) + 8;
  for (int i = 0; i < count; ++i) a_->Send(b_of_a_, "m", sent, nullptr);
  EXPECT_TRUE(Within(seconds(60), [&] { return at_b_.copies + at_b_.headers == count; }));
  EXPECT_EQ(at_b_.copies, 8);
  at_b_.Take();
  ASSERT_TRUE(NothingIsLent());
  a_->Send(b_of_a_, "m", sent, nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.headers == count - 8 + 1; }));
}

TEST_F(ReferencesTest, ATransportThatDoesNotTakePartGetsCopies) {
  auto c = Make(&at_b_, false);
  const PeerId c_of_a = a_->Connect(c->address(), "/job:c").value();
  c->Connect(a_->address(), "/job:a").value();
  a_->Send(c_of_a, "m", Filled(8 * kMiB, 1), nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.copies == 1; }));
  EXPECT_EQ(c->Describe(0).find("read in place"), std::string::npos);
  Shut(c);
}

TEST_F(ReferencesTest, JunkIsNoReferenceAndNoAddress) {
  a_->Send(b_of_a_, "m", Filled(8 * kMiB, 1), nullptr);
  const Payload received = Received();
  References& references = References::Get();
  const uint64_t own = References::ProcessOf(references.address());
  for (const Reference& junk : {
           Reference{own + 1, 1, 0, 8, 0},               // of nobody
           Reference{own, 999, 0, 8, 0},                 // no such lease
           Reference{own, 1, 0, 8, LeaseTable::kSlots},  // no such place
           Reference{own, 1, UINT64_MAX, 8, 0},          // nowhere
           Reference{own, 1, 8, UINT64_MAX, 0},          // longer than all memory
       })
    EXPECT_FALSE(references.Take(junk).has_value());
  EXPECT_FALSE(references.Meet(""));
  EXPECT_FALSE(references.Meet(std::string(24, 'x'))) << "nobody listens there";
  std::string wrong = references.address();
  wrong.back() = static_cast<char>(wrong.back() ^ 1);
  EXPECT_TRUE(references.Meet(references.address()));
  EXPECT_FALSE(MeetMaker(DecodeReferenceAddress(wrong).value(), own + 1).has_value())
      << "another token";
  EXPECT_TRUE(IsFilled(received, 1));
}

TEST_F(ReferencesTest, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root starts processes of other users";
  const ReferenceAddress here = DecodeReferenceAddress(References::Get().address()).value();
  const auto meet_as = [&](uid_t user) {
    const pid_t child = fork();
    if (child == 0) {
      if (setresuid(user, user, user) != 0) _exit(2);
      _exit(MeetMaker(here, 12345 + user).has_value() ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(meet_as(65534), 0);
  EXPECT_EQ(meet_as(0), 1) << "the same, by the own user";
}

// ---- with other processes

class PeerProcess : public TransportPeer {
 public:
  explicit PeerProcess(const std::string& mode) : TransportPeer({mode, "reference", "-"}) {}
};

PeerId Meet(Transport& transport, PeerProcess& process) {
  const PeerId peer = transport.Connect(FromHex(process.ReadLine()), "/job:worker").value();
  process.WriteLine(ToHex(transport.address()));
  EXPECT_EQ(process.ReadLine(), "ready");
  return peer;
}

TEST_F(ReferencesTest, AKilledReadersLeasesEnd) {
  for (int round = 0; round < 5; ++round) {
    PeerProcess reader("keep");
    const PeerId peer = Meet(*a_, reader);
    for (int i = 0; i < 4; ++i) a_->Send(peer, "m", Filled(8 * kMiB, 1), nullptr);
    EXPECT_TRUE(Within(seconds(20), [&] { return at_a_.headers == 4 * (round + 1); }))
        << "it has answered";
    EXPECT_EQ(References::Get().leases(), 4);
    reader.Kill();
    EXPECT_TRUE(NothingIsLent());
    a_->Disconnect(peer);
  }
}

TEST_F(ReferencesTest, AStoppedReaderKeepsItsLeasesAndReadsWhatItWasSent) {
  PeerProcess reader("keep");
  const PeerId peer = Meet(*a_, reader);
  Payload sent = Filled(8 * kMiB, 1);
  const void* const place = sent.buffer.data();
  a_->Send(peer, "m", std::move(sent), nullptr);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_a_.headers == 1; }));
  reader.Stop();
  a_->Disconnect(peer);  // it is lost to this side, and lives
  std::vector<Payload> junk;
  for (int i = 0; i < 8; ++i) {
    junk.push_back(Filled(8 * kMiB, 0x5a));
    EXPECT_NE(junk.back().buffer.data(), place);
  }
  EXPECT_EQ(References::Get().leases(), 1);
  reader.Kill();
  EXPECT_TRUE(NothingIsLent());
}

TEST_F(ReferencesTest, AKilledMakersMemoryStaysUntilItsReadersAreDone) {
  PeerProcess maker("send");
  const PeerId peer = Meet(*b_, maker);
  EXPECT_TRUE(Within(seconds(20), [&] { return at_b_.headers >= 4; }));
  maker.Kill();
  std::this_thread::sleep_for(milliseconds(200));
  std::vector<Payload> received = at_b_.Take();
  EXPECT_GE(received.size(), 4u);
  for (const Payload& payload : received) EXPECT_TRUE(IsFilled(payload, 1));
  b_->Disconnect(peer);
}

}  // namespace
}  // namespace monograph
