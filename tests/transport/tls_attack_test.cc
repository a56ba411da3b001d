// What strangers and broken peers can do to the TLS transport: each attack ends with a closed
// connection or one clear error, and honest peers go on.
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

#include "tests/conformance/transport/transport_suite.h"
#include "tests/transport/tls_intruder.h"
#include "transport/tls/tls_address.h"
#include "transport/tls/tls_transport.h"

namespace monograph {

// Its helpers are used here, its tests run elsewhere.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// The victim's deadlines: long where its peer is to keep them, on any machine, and short where the
// test waits until one is over.
constexpr milliseconds kAmple{20000}, kShort{400};

std::string Frame(uint8_t type, uint16_t header, uint32_t transfer, uint64_t payload,
                  const std::string& rest = {}) {
  std::string bytes;
  AppendFrame(
      {.type = type, .header_bytes = header, .transfer = transfer, .payload_bytes = payload},
      &bytes);
  return bytes + rest;
}

std::string Chunk(uint32_t transfer, uint32_t bytes, uint64_t offset, size_t sent) {
  std::array<char, TlsChunk::kPrefixBytes> prefix;
  EncodeChunk({.transfer = transfer, .bytes = bytes, .offset = offset}, prefix.data());
  return std::string(prefix.data(), prefix.size()) + std::string(sent, 'x');
}

// Whether it is true within ten seconds.
bool Becomes(const std::function<bool()>& condition) {
  const auto until = steady_clock::now() + seconds(10);
  while (!condition() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

class TlsAttack : public ::testing::Test {
 protected:
  void SetUp() override { Start(kAmple); }
  void Start(milliseconds patience) {
    Stop();
    listener_ = TlsListener::Start({.key = key_, .handshake_timeout = patience}).value();
    victim_ = MakeTlsTransport(listener_, {.patience = patience}, &at_victim_).value();
    instance_ = DecodeTlsAddress(victim_->address())->instance;
  }
  void TearDown() override {
    ExpectService();
    Stop();
  }
  void Stop() {
    if (victim_ == nullptr) return;
    victim_->Close();
    victim_->Join();
    victim_.reset();
  }

  // A new peer with the key is served.
  void ExpectService() {
    Recorder at_friend;
    const size_t before = at_victim_.count();
    auto made = MakeTlsTransport(TlsListener::Start({.key = key_}).value(), {}, &at_friend).value();
    const auto victim = made->Connect(victim_->address(), "victim");
    const auto back = victim_->Connect(made->address(), "friend");
    ASSERT_TRUE(victim.ok() && back.ok());
    made->Send(*victim, "large", MakePayload(300000, 1), nullptr);
    EXPECT_TRUE(at_victim_.WaitFor(before + 1));
    EXPECT_TRUE(PayloadIs(at_victim_.messages().back().payload, 300000, 1));
    victim_->Send(*back, "answer", {}, nullptr);
    EXPECT_TRUE(at_friend.WaitFor(1));
    made->Close();
    made->Join();
  }
  // The control stream and one bulk stream of a peer that has the key and instance `from`.
  struct Pair {
    std::unique_ptr<KeyHolder> control, bulk;
  };
  Pair Join(uint64_t from) {
    Pair pair;
    for (uint8_t index : {0, 1}) {
      auto& stream = index == 0 ? pair.control : pair.bulk;
      stream = std::make_unique<KeyHolder>(
          listener_->port(), key_,
          TlsHello{.to = instance_, .from = from, .index = index, .count = 2});
      EXPECT_TRUE(stream->welcome().ok()) << stream->welcome();
    }
    return pair;
  }
  // A peer announces a payload of 1,000 bytes, as transfer 1, and sends `chunks`: its connection is
  // closed.
  void ExpectTheEndAfter(const std::string& chunks) {
    const Pair pair = Join(2000 + ++next_);
    const size_t before = at_victim_.header_order().size();
    pair.control->Write(Frame(TlsFrame::kAnnounce, 4, 1, 1000, "good"));
    EXPECT_TRUE(Becomes([&] { return at_victim_.header_order().size() > before; }));
    pair.bulk->Write(chunks);
    EXPECT_TRUE(pair.control->IsClosed()) << "chunks " << next_;
    EXPECT_TRUE(pair.bulk->IsClosed()) << "chunks " << next_;
  }
  // The id by which the victim knows a peer that dials it.
  PeerId Know(uint64_t instance, const std::string& name) {
    return victim_->Connect(EncodeTlsAddress({.instance = instance}), name).value();
  }

  const control::Key key_ = control::GenerateKey().value();
  Recorder at_victim_;
  std::shared_ptr<TlsListener> listener_;
  std::unique_ptr<Transport> victim_;
  uint64_t instance_ = 0;
  uint64_t next_ = 0;
};

TEST_F(TlsAttack, JunkIsClosed) {
  Start(kShort);
  std::minstd_rand random(5);
  for (int i = 0; i < 100; ++i) {
    std::string junk(1 + random() % 3000, '\0');
    for (char& c : junk) c = static_cast<char>(random());
    if (i % 3 == 0) junk[0] = 0x16, junk.replace(1, 2, "\x03\x01");  // as a TLS record begins
    const Descriptor socket = Dial(listener_->port());
    WriteAll(socket.get(), junk);
    if (i % 2 == 0) shutdown(socket.get(), SHUT_WR);
    bool closed = false;
    ReadToEnd(socket.get(), &closed);
    EXPECT_TRUE(closed) << i;
  }
  // The count of the last one may follow its end.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (listener_->refused() < 100 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(listener_->refused(), 100u);
}

TEST_F(TlsAttack, MoreInputThanAHandshakeNeedsIsClosed) {
  // A ClientHello that goes on for ever: records of a handshake message of 100 KB.
  const Descriptor socket = Dial(listener_->port());
  std::string record("\x16\x03\x01\x40\x00\x01\x01\x86\xa0\x03\x03", 11);
  record.resize(5 + 0x4000, 'a');
  const auto start = steady_clock::now();
  for (int i = 0; i < 5; ++i) WriteAll(socket.get(), record);
  bool closed = false;
  ReadToEnd(socket.get(), &closed);
  EXPECT_TRUE(closed);
  EXPECT_LT(steady_clock::now() - start, kAmple);  // for its size, not by the deadline
}

TEST_F(TlsAttack, AnotherKeyIsRefusedAndNamed) {
  Recorder at_stranger;
  const auto other =
      TlsListener::Start({.bind_address = "", .key = control::GenerateKey().value()});
  auto stranger = MakeTlsTransport(*other, {}, &at_stranger).value();
  const PeerId victim = stranger->Connect(victim_->address(), "/job:ps/task:0").value();
  std::atomic<bool> ran{false};
  Status status;
  stranger->Send(victim, "m", {}, [&](const Status& result) {
    status = result;
    ran = true;
  });
  ASSERT_TRUE(stranger->DriveUntil([&] { return ran.load(); }, In(seconds(10))));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.lost_task(), "/job:ps/task:0");
  EXPECT_NE(status.message().find("--key_file"), std::string::npos) << status;
  stranger->Close();
  stranger->Join();
  EXPECT_EQ(at_victim_.count(), 0u);
}

TEST_F(TlsAttack, SidesWithAndWithoutAKeyRefuseEachOther) {
  Recorder at_stranger;
  auto stranger = MakeTlsTransport(TlsListener::Start({}).value(), {}, &at_stranger).value();
  const auto there = stranger->Connect(victim_->address(), "/job:ps/task:0");
  const auto back = victim_->Connect(stranger->address(), "/job:worker/task:0");
  for (const auto& result : {there, back}) {
    EXPECT_EQ(result.status().code(), Code::kFailedPrecondition);
    EXPECT_NE(result.status().message().find("--key_file"), std::string::npos) << result.status();
  }
  stranger->Close();
  stranger->Join();
  // The same without asking the address.
  const Descriptor socket = Dial(listener_->port());
  WriteAll(socket.get(), EncodeHello({.to = instance_, .from = 5, .index = 0, .count = 2}));
  bool closed = false;
  ReadToEnd(socket.get(), &closed);
  EXPECT_TRUE(closed);
}

TEST_F(TlsAttack, OtherTlsIsRefused) {
  const auto handshake = [&](int version, auto set_up) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, version);
    set_up(context);
    const Descriptor socket = Dial(listener_->port());
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, socket.get());
    const bool done = SSL_connect(ssl) == 1;
    // A TLS 1.3 client may believe that it is through before the server has refused it.
    char byte;
    const bool served = done && SSL_read(ssl, &byte, 1) == 1;
    SSL_free(ssl);
    SSL_CTX_free(context);
    return served || (done && version == TLS1_2_VERSION);
  };
  EXPECT_FALSE(handshake(TLS1_2_VERSION, [](SSL_CTX*) {}));
  EXPECT_FALSE(handshake(TLS1_2_VERSION, [](SSL_CTX* context) {
    SSL_CTX_set_cipher_list(context, "PSK");
    SSL_CTX_set_psk_client_callback(
        context, [](SSL*, const char*, char* identity, unsigned, unsigned char* key, unsigned) {
          std::strcpy(identity, "monograph");
          std::memset(key, 7, 32);
          return 32u;
        });
  }));
  EXPECT_FALSE(handshake(TLS1_3_VERSION, [](SSL_CTX*) {}));  // without a key
}

TEST_F(TlsAttack, AReplayIsRefused) {
  std::string recorded;
  {
    const Pair pair = Join(77);
    pair.control->Write(Frame(TlsFrame::kInline, 4, 0, 0, "real"));
    ASSERT_TRUE(at_victim_.WaitFor(1));
    recorded = pair.control->sent();
  }
  const uint64_t refused = listener_->refused();
  const Descriptor socket = Dial(listener_->port());
  WriteAll(socket.get(), recorded);
  bool closed = false;
  ReadToEnd(socket.get(), &closed);
  EXPECT_TRUE(closed);
  EXPECT_EQ(listener_->refused(), refused + 1);
  EXPECT_EQ(at_victim_.count(), 1u);
}

TEST_F(TlsAttack, HalfOpenConnectionsKeepNobodyOut) {
  Start(kShort);
  std::vector<Descriptor> held;
  for (int i = 0; i < 300; ++i) held.push_back(Dial(listener_->port()));
  ExpectService();
  // They end by the limit of one address, the others when their time is up.
  size_t closed_count = 0;
  for (const Descriptor& socket : held) {
    bool closed = false;
    ReadToEnd(socket.get(), &closed);
    closed_count += closed;
  }
  EXPECT_EQ(closed_count, held.size());
}

TEST_F(TlsAttack, AHelloThatBreaksTheRulesIsClosed) {
  const TlsHello good{.to = instance_, .from = 5, .index = 0, .count = 2};
  const auto with = [&](auto change) {
    std::string bytes = EncodeHello(good);
    change(bytes);
    return bytes;
  };
  for (const std::string& hello :
       {with([](std::string& b) { b[0] = 'X'; }), with([](std::string& b) { b[4] = 9; }),
        with([](std::string& b) { b[5] = 2; }), with([](std::string& b) { b[6] = 1; }),
        with([](std::string& b) { b[6] = 100; }), with([](std::string& b) { b[7] = 1; }),
        with([](std::string& b) { std::memset(b.data() + 16, 0, 8); })}) {
    KeyHolder stream(listener_->port(), key_, hello);
    EXPECT_FALSE(stream.welcome().ok());
    EXPECT_TRUE(stream.IsClosed());
  }
}

TEST_F(TlsAttack, AnUnknownInstanceIsRefusedWithAReason) {
  KeyHolder stream(listener_->port(), key_,
                   TlsHello{.to = instance_ + 1, .from = 5, .index = 0, .count = 2});
  EXPECT_EQ(stream.welcome().code(), Code::kNotFound);
  EXPECT_NE(stream.welcome().message().find("session"), std::string::npos) << stream.welcome();
  EXPECT_TRUE(stream.IsClosed());
}

// Who opens a part of a connection holds a socket no longer than others wait.
TEST_F(TlsAttack, AStreamWhoseOthersDoNotComeIsClosed) {
  Start(kShort);
  for (uint8_t index : {0, 1}) {
    KeyHolder stream(listener_->port(), key_,
                     TlsHello{.to = instance_, .from = 5u + index, .index = index, .count = 2});
    ASSERT_TRUE(stream.welcome().ok()) << stream.welcome();
    EXPECT_TRUE(stream.IsClosed());
  }
}

TEST_F(TlsAttack, AMalformedFrameEndsTheConnection) {
  const uint64_t huge = uint64_t{1} << 63;
  const std::vector<std::string> bad = {
      Frame(3, 0, 0, 0),
      Frame(0, 0, 0, 0),
      Frame(TlsFrame::kInline, 1025, 0, 0, std::string(1025, 'h')),
      Frame(TlsFrame::kInline, 0, 1, 0),
      Frame(TlsFrame::kInline, 0, 0, kMaxInlineBytes + 1),
      Frame(TlsFrame::kInline, 0, 0, huge),
      Frame(TlsFrame::kAnnounce, 0, 1, 0),
      Frame(TlsFrame::kAnnounce, 0, 1, kMaxPayloadBytes + 1),
      Frame(TlsFrame::kAnnounce, 0, 1, huge),
      Frame(TlsFrame::kAnnounce, 0, 2, 100),
      Frame(TlsFrame::kAnnounce, 0, 0, 100),
      std::string(1, '\1') + "\1" + std::string(14, '\0'),
      std::string(2000, '\xff'),
  };
  uint64_t from = 1000;
  for (const std::string& bytes : bad) {
    const Pair pair = Join(++from);
    // Both streams belong to the connection now: one that comes after its end waits for others.
    const PeerId peer = Know(from, "attacker");
    ASSERT_TRUE(Becomes([&] { return victim_->Describe(peer) != "tls (connecting)"; }));
    pair.control->Write(Frame(TlsFrame::kInline, 4, 0, 0, "good") + bytes);
    EXPECT_TRUE(pair.control->IsClosed()) << "frame " << from - 1001;
    EXPECT_TRUE(pair.bulk->IsClosed()) << "frame " << from - 1001;
  }
  EXPECT_EQ(at_victim_.count(), bad.size());  // what came before counts
}

TEST_F(TlsAttack, AMalformedChunkEndsTheConnection) {
  const std::vector<std::string> bad = {
      Chunk(1, 0, 0, 0),
      Chunk(1, 1001, 0, 0),
      Chunk(1, 1000, 1, 0),
      Chunk(1, 1, 1000, 0),
      Chunk(1, 1, UINT64_MAX, 0),
      Chunk(1, 600, 0, 600) + Chunk(1, 600, 400, 0),
      Chunk(1, 1000, 0, 1000) + Chunk(1, 1, 0, 1),
      Chunk(0, 10, 0, 0),
      Chunk(1 + kMaxAnnounced + 1, 10, 0, 0),
  };
  for (const std::string& bytes : bad) ExpectTheEndAfter(bytes);
  // Each announced payload has ended, well or not.
  EXPECT_TRUE(at_victim_.WaitFor(bad.size()));
}

TEST_F(TlsAttack, AChunkWhoseAnnouncementNeverComesEndsTheConnection) {
  Start(kShort);
  ExpectTheEndAfter(Chunk(2, 10, 0, 10));
  EXPECT_TRUE(at_victim_.WaitFor(1));
}

TEST_F(TlsAttack, ASecondSetOfStreamsIsTurnedAway) {
  const Pair pair = Join(5);
  pair.control->Write(Frame(TlsFrame::kInline, 5, 0, 0, "first"));
  ASSERT_TRUE(at_victim_.WaitFor(1));
  KeyHolder again(listener_->port(), key_,
                  TlsHello{.to = instance_, .from = 5, .index = 0, .count = 2});
  EXPECT_TRUE(again.IsClosed());
  pair.control->Write(Frame(TlsFrame::kInline, 6, 0, 0, "second"));
  EXPECT_TRUE(at_victim_.WaitFor(2));
}

TEST_F(TlsAttack, ACutPayloadFailsOnceAndNamesThePeer) {
  const PeerId id = Know(5, "/job:worker/task:1");
  Pair pair = Join(5);
  pair.control->Write(Frame(TlsFrame::kAnnounce, 1, 1, 1 << 20, "m"));
  pair.bulk->Write(Chunk(1, 1 << 19, 0, 1 << 18));
  pair.control->Write(Frame(TlsFrame::kInline, 5, 0, 0, "after"));
  ASSERT_TRUE(at_victim_.WaitFor(1));
  pair.bulk->Close();
  pair.control->Close();
  ASSERT_TRUE(at_victim_.WaitFor(2));
  const auto lost = at_victim_.messages()[1];
  EXPECT_EQ(lost.header, "m");
  EXPECT_EQ(lost.status.code(), Code::kUnavailable);
  EXPECT_EQ(lost.status.lost_task(), "/job:worker/task:1");
  // It stays lost.
  std::atomic<bool> ran{false};
  Status status;
  victim_->Send(id, "m", {}, [&](const Status& result) {
    status = result;
    ran = true;
  });
  ASSERT_TRUE(victim_->DriveUntil([&] { return ran.load(); }, In(seconds(5))));
  EXPECT_EQ(status.lost_task(), "/job:worker/task:1") << status;
  EXPECT_NE(victim_->Describe(id).find("lost"), std::string::npos) << victim_->Describe(id);
  EXPECT_EQ(at_victim_.count(), 2u);
}

TEST_F(TlsAttack, NothingIsWrittenToASinkAfterDisconnect) {
  const PeerId id = Know(5, "/job:worker/task:1");
  constexpr size_t kBytes = 1 << 20;
  std::vector<char> memory(kBytes, 'a');
  std::atomic<int> code{-1};
  at_victim_.set_on_message([&](std::string_view, size_t) {
    return PayloadSink{
        memory.data(), [&](const Status& status) { code = static_cast<int>(status.code()); }, {}};
  });
  const Pair pair = Join(5);
  pair.control->Write(Frame(TlsFrame::kAnnounce, 0, 1, kBytes));
  pair.bulk->Write(Chunk(1, kBytes, 0, kBytes / 2));
  ASSERT_TRUE(victim_->DriveUntil([&] { return memory[kBytes / 2 - 1] == 'x'; }, In(seconds(5))));
  const auto start = steady_clock::now();
  victim_->Disconnect(id);
  ASSERT_TRUE(victim_->DriveUntil([&] { return code >= 0; }, In(seconds(5))));
  EXPECT_LT(steady_clock::now() - start, milliseconds(250));
  EXPECT_EQ(code, static_cast<int>(Code::kCancelled));
  std::fill(memory.begin(), memory.end(), 'b');
  pair.bulk->Write(std::string(kBytes / 2, 'x'));
  EXPECT_TRUE(pair.control->IsClosed());
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 'b'), static_cast<ptrdiff_t>(kBytes));
  at_victim_.set_on_message(nullptr);
}

TEST_F(TlsAttack, APeerThatReadsNothingBlocksNobodyElse) {
  const PeerId id = Know(5, "/job:worker/task:1");
  const Pair pair = Join(5);
  Completions sent;
  const Payload payload = MakePayload(16 << 20, 1);
  for (int i = 0; i < 100; ++i) {
    victim_->Send(id, "large", payload, sent.Add());
    for (int j = 0; j < 20; ++j) victim_->Send(id, std::string(1000, 's'), {}, sent.Add());
  }
  const auto start = steady_clock::now();
  ExpectService();
  EXPECT_LT(steady_clock::now() - start, seconds(2));
  EXPECT_LT(sent.ran(), sent.added());
  const auto disconnected = steady_clock::now();
  victim_->Disconnect(id);
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_LT(steady_clock::now() - disconnected, milliseconds(250));
  EXPECT_EQ(sent.ok() + sent.with(Code::kCancelled), sent.added());
}

TEST_F(TlsAttack, APeerThatIsToDialAndDoesNotIsLost) {
  Start(kShort);
  const PeerId id = Know(5, "/job:worker/task:1");
  Completions sent;
  victim_->Send(id, "m", {}, sent.Add());
  victim_->Send(id, "m", MakePayload(100000, 1), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.with(Code::kUnavailable), 2);
}

TEST_F(TlsAttack, APortThatNobodyListensOnIsNamed) {
  uint16_t port;
  { port = TlsListener::Start({.key = key_}).value()->port(); }
  const auto id = victim_->Connect(
      EncodeTlsAddress({.instance = UINT64_MAX, .port = port, .name = "127.0.0.1"}), "/job:gone");
  // The victim has the smaller instance, so it dials.
  std::atomic<bool> ran{false};
  Status status;
  victim_->Send(*id, "m", {}, [&](const Status& result) {
    status = result;
    ran = true;
  });
  ASSERT_TRUE(victim_->DriveUntil([&] { return ran.load(); }, In(seconds(5))));
  EXPECT_EQ(status.lost_task(), "/job:gone");
  EXPECT_NE(status.message().find("127.0.0.1:" + std::to_string(port)), std::string::npos)
      << status;
}

TEST_F(TlsAttack, MemoryStaysFlat) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  const auto resident_kib = [] {
    std::ifstream file("/proc/self/statm");
    long pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
  };
  const auto attack = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Descriptor socket = Dial(listener_->port());
      WriteAll(socket.get(), std::string(2000, static_cast<char>(i)));
      if (i % 10 != 0) continue;
      const Pair pair = Join(10000 + next_++);
      pair.control->Write(Frame(TlsFrame::kAnnounce, 0, 1, 1 << 20) + Frame(3, 0, 0, 0));
      EXPECT_TRUE(pair.control->IsClosed());
    }
  };
  at_victim_.set_on_message([](std::string_view, size_t) { return PayloadSink{}; });
  attack(200);
  // The allocator's heap grows in the first rounds; with a leak it grows in all.
  constexpr long kLeak = 256;
  long least = std::numeric_limits<long>::max();
  for (int round = 0; round < 20 && least >= kLeak; ++round) {
    const long before = resident_kib();
    attack(600);
    least = std::min(least, resident_kib() - before);
  }
  EXPECT_LT(least, kLeak);
  at_victim_.set_on_message(nullptr);
}

}  // namespace
}  // namespace monograph
