// The TLS transport between honest peers: what the conformance suite does not ask for.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/conformance/transport/transport_suite.h"
#include "transport/tls/tls_address.h"
#include "transport/tls/tls_transport.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

struct LinkEnd {
  LinkEnd(const TlsListenerOptions& options, const TlsOptions& tls = {})
      : transport(MakeTlsTransport(TlsListener::Start(options).value(), tls, &recorder).value()) {}
  ~LinkEnd() {
    transport->Close();
    transport->Join();
  }
  Recorder recorder;
  std::unique_ptr<Transport> transport;
};

control::Key TestKey() { return control::GenerateKey().value(); }

TEST(TlsAddressTest, SurvivesTheWay) {
  const TlsAddress address{
      .tls = true, .instance = 77, .host = 5, .port = 2222, .name = "node1.example.org"};
  const auto decoded = DecodeTlsAddress(EncodeTlsAddress(address));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->instance, 77u);
  EXPECT_EQ(decoded->host, 5u);
  EXPECT_EQ(decoded->port, 2222);
  EXPECT_EQ(decoded->name, "node1.example.org");
  EXPECT_TRUE(decoded->tls);
}

TEST(TlsAddressTest, RefusesCutsAndFlips) {
  const std::string good = EncodeTlsAddress({.instance = 77, .port = 2222, .name = "node1"});
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_EQ(DecodeTlsAddress(good.substr(0, bytes)).status().code(), Code::kInvalidArgument);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(DecodeTlsAddress(flipped).status().code(), Code::kInvalidArgument) << bit;
  }
  for (const TlsAddress& bad : {TlsAddress{.instance = 0}, TlsAddress{.instance = 1, .port = 5},
                                TlsAddress{.instance = 1, .name = "node1"},
                                TlsAddress{.instance = 1, .port = 5, .name = "a b"}})
    EXPECT_EQ(DecodeTlsAddress(EncodeTlsAddress(bad)).status().code(), Code::kInvalidArgument);
}

TEST(TlsLinkTest, KeysChangeUnderwayWithoutLoss) {
  const control::Key key = TestKey();
  LinkEnd a({.key = key, .rekey_bytes = 100000}), b({.key = key, .rekey_bytes = 70000});
  const PeerId b_of_a = a.transport->Connect(b.transport->address(), "b").value();
  const PeerId a_of_b = b.transport->Connect(a.transport->address(), "a").value();
  Completions sent;
  for (uint32_t i = 0; i < 30; ++i) {
    a.transport->Send(b_of_a, "m", MakePayload(1 << 20, i), sent.Add());
    b.transport->Send(a_of_b, "m", MakePayload(10000, i), sent.Add());
  }
  ASSERT_TRUE(a.recorder.WaitFor(30) && b.recorder.WaitFor(30));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), sent.added());
  for (const auto& message : b.recorder.messages()) EXPECT_TRUE(message.status.ok());
  EXPECT_TRUE(PayloadIs(a.recorder.messages().back().payload, 10000, 29));
}

TEST(TlsLinkTest, ASideWithoutAListenerDials) {
  const control::Key key = TestKey();
  LinkEnd daemon({.key = key}), client({.bind_address = "", .key = key});
  const PeerId to_client = daemon.transport->Connect(client.transport->address(), "client").value();
  const PeerId to_daemon = client.transport->Connect(daemon.transport->address(), "daemon").value();
  daemon.transport->Send(to_client, "down", MakePayload(100000, 1), nullptr);
  client.transport->Send(to_daemon, "up", {}, nullptr);
  EXPECT_TRUE(client.recorder.WaitFor(1));
  EXPECT_TRUE(daemon.recorder.WaitFor(1));
  LinkEnd other({.bind_address = "", .key = key});
  const auto nobody = other.transport->Connect(client.transport->address(), "client");
  EXPECT_EQ(nobody.status().code(), Code::kFailedPrecondition);
}

TEST(TlsLinkTest, AHeaderOvertakesALargePayload) {
  const control::Key key = TestKey();
  LinkEnd a({.key = key}), b({.key = key});
  const PeerId b_of_a = a.transport->Connect(b.transport->address(), "b").value();
  ASSERT_TRUE(b.transport->Connect(a.transport->address(), "a").ok());
  std::atomic<int> arrived{0}, large_left{0};
  b.recorder.set_on_delivered([&](std::string_view, Payload) {
    if (large_left == 1) ++arrived;
  });
  Buffer sink = Buffer::Allocate(HostAllocator(), 256 << 20);
  b.recorder.set_on_message([&](std::string_view, size_t) {
    large_left = 1;
    return PayloadSink{sink.data(), [&](const Status&) { large_left = 2; }, sink};
  });
  const Payload payload{Buffer::Allocate(HostAllocator(), 256 << 20), 0, 256 << 20};
  Completions sent;
  a.transport->Send(b_of_a, "large", payload, sent.Add());
  for (int i = 0; i < 20; ++i) {
    a.transport->Send(b_of_a, "small", {}, sent.Add());
    a.transport->DriveUntil([] { return false; }, In(milliseconds(1)));
  }
  ASSERT_TRUE(sent.WaitForAll());
  ASSERT_TRUE(b.transport->DriveUntil([&] { return large_left == 2; }, In(seconds(20))));
  EXPECT_GE(arrived, 15);
}

TEST(TlsLinkTest, AMessageThatIsSentBeforeDisconnectArrives) {
  const control::Key key = TestKey();
  for (int round = 0; round < 20; ++round) {
    LinkEnd a({.key = key}), b({.key = key});
    const PeerId b_of_a = a.transport->Connect(b.transport->address(), "b").value();
    const PeerId a_of_b = b.transport->Connect(a.transport->address(), "a").value();
    b.transport->Send(a_of_b, "ready", {}, nullptr);
    ASSERT_TRUE(a.recorder.WaitFor(1));
    std::atomic<bool> gone{false};
    a.transport->Send(b_of_a, "last", MakePayload(10000, 1),
                      [&](const Status& status) { gone = status.ok(); });
    ASSERT_TRUE(a.transport->DriveUntil([&] { return gone.load(); }, In(seconds(5))));
    a.transport->Disconnect(b_of_a);
    EXPECT_TRUE(b.recorder.WaitFor(1)) << round;
  }
}

// The bytes are in the socket, and what the peer sends meanwhile must not cost it them.
TEST(TlsLinkTest, WhatIsSentBeforeDisconnectArrivesAtAPeerThatReadsSlowlyAndSends) {
  const control::Key key = TestKey();
  LinkEnd a({.key = key}), b({.key = key});
  const PeerId b_of_a = a.transport->Connect(b.transport->address(), "b").value();
  const PeerId a_of_b = b.transport->Connect(a.transport->address(), "a").value();
  constexpr int kPayloads = 20;
  std::atomic<int> whole{0}, lost{0};
  b.recorder.set_on_message([&](std::string_view, size_t bytes) {
    const Buffer into = Buffer::Allocate(HostAllocator(), bytes);
    return PayloadSink{into.data(),
                       [&](const Status& status) {
                         ++(status.ok() ? whole : lost);
                         b.transport->Send(a_of_b, "beat", {}, nullptr);
                         std::this_thread::sleep_for(milliseconds(80));
                       },
                       into};
  });
  Completions sent;
  for (uint32_t i = 0; i < kPayloads; ++i)
    a.transport->Send(b_of_a, "part", MakePayload(256 << 10, i), sent.Add());
  ASSERT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), kPayloads);
  EXPECT_LT(whole, kPayloads - 4);  // the rest is on its way
  a.transport->Disconnect(b_of_a);
  EXPECT_TRUE(b.transport->DriveUntil([&] { return whole + lost == kPayloads; }, In(seconds(20))));
  EXPECT_EQ(whole, kPayloads) << b.transport->Describe(a_of_b);
}

TEST(TlsListenerTest, NeedsAKeyWhereOthersReachIt) {
  const auto refused = TlsListener::Start({.bind_address = "0.0.0.0"});
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(refused.status().message().find("--key_file"), std::string::npos);
  const auto trusted = TlsListener::Start({.bind_address = "0.0.0.0", .trusted_network = true});
  ASSERT_TRUE(trusted.ok()) << trusted.status();
  EXPECT_NE((*trusted)->host(), "0.0.0.0");
  const auto taken = TlsListener::Start({.port = (*trusted)->port()});
  EXPECT_EQ(taken.status().code(), Code::kFailedPrecondition) << taken.status();
  EXPECT_EQ(TlsListener::Start({.bind_address = "no.such.host.invalid"}).status().code(),
            Code::kNotFound);
}

TEST(TlsListenerTest, RefusesNumbersOfStreamsThatItCannotHave) {
  Recorder recorder;
  const auto listener = TlsListener::Start({}).value();
  for (const int streams : {0, -1, 8}) {
    const auto made = MakeTlsTransport(listener, {.bulk_streams = streams}, &recorder);
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace monograph
