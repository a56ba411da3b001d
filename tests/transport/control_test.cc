#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/transport/control_testing.h"
#include "transport/control/channel.h"
#include "transport/control/host_port.h"
#include "transport/control/server.h"
#include "transport/control/tls.h"

namespace monograph::control {
namespace {

// A bare TCP connection to a server, for peers that do not behave.
class RawSocket {
 public:
  explicit RawSocket(uint16_t port) : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(0, connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address));
    timeval limit{10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~RawSocket() { close(descriptor_); }
  void Send(const std::string& bytes) {
    (void)!send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Everything until the server closes; false if it does not within 10 s.
  bool ReadToEnd(std::string* bytes = nullptr) {
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(descriptor_, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
      if (bytes != nullptr) bytes->append(buffer, static_cast<size_t>(got));
    }
  }
  int descriptor() const { return descriptor_; }
  std::string ReadExactly(size_t count) {
    std::string bytes(count, '\0');
    EXPECT_EQ(static_cast<ssize_t>(count), recv(descriptor_, bytes.data(), count, MSG_WAITALL));
    return bytes;
  }

 private:
  const int descriptor_;
};

std::string PreambleOf(Security security) {
  Preamble preamble;
  preamble.security = security;
  preamble.software_version = SoftwareVersion();
  return EncodePreamble(preamble);
}

class ControlTest : public WithAndWithoutKey {};

INSTANTIATE_TEST_SUITE_P(Security, ControlTest, ::testing::Bool(), [](const auto& security) {
  return security.param ? "WithKey" : "WithoutKey";
});

TEST_P(ControlTest, ACallReturnsWhatItsHandlerAnswers) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  EXPECT_EQ(channel->Call("Echo", "hello", 5s).value(), "hello");
  EXPECT_EQ(channel->Call("EchoInline", "", 5s).value(), "");
  EXPECT_EQ(channel->peer().task_name, "/job:worker/replica:0/task:1");
  EXPECT_EQ(channel->peer().incarnation, ProcessIncarnation());
  EXPECT_EQ(channel->peer_name(), "/job:worker/replica:0/task:1 at " + server.server->address());
  EXPECT_TRUE(server.connected.WaitFor([](const auto& names) {
    return names.size() == 1 &&
           names[0].rfind("/job:client/replica:0/task:0 at 127.0.0.1:", 0) == 0;
  }));
}

TEST_P(ControlTest, AFailureOfAHandlerArrivesWithCodeMessageDerivedMarkAndLostTask) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  const Status status = channel->Call("Fail", "", 5s).status();
  EXPECT_EQ(status, NotFound("no such thing, /job:client/replica:0/task:0"));
  EXPECT_TRUE(status.derived());
  EXPECT_EQ(status.lost_task(), "");
  const Status lost = channel->Call("FailForALostTask", "", 5s).status();
  EXPECT_EQ(lost, Unavailable("it is gone"));
  EXPECT_EQ(lost.lost_task(), "/job:ps/replica:0/task:0");
  EXPECT_TRUE(channel->status().ok());
}

TEST_P(ControlTest, AMethodThatDoesNotExistAndAHandlerWithoutAnAnswerAreErrorsOfThatCallOnly) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  const Status unknown = channel->Call("Ecko", "", 5s).status();
  EXPECT_EQ(unknown.code(), Code::kUnimplemented);
  EXPECT_TRUE(Contains(unknown, "'Ecko'") && Contains(unknown, "EchoInline")) << unknown;
  const Status forgotten = channel->Call("Forget", "", 5s).status();
  EXPECT_EQ(forgotten.code(), Code::kInternal);
  EXPECT_EQ(channel->Call("Echo", "still here", 5s).value(), "still here");
}

TEST_P(ControlTest, LargeBodiesOfManySizesArriveUnchanged) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  for (const size_t size : {1, 100, 16383, 16384, 16385, 1 << 20, (1 << 20) + 1, 40 << 20}) {
    std::string body(size, '\0');
    for (size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 2654435761u >> 13);
    auto answer = channel->Call("Echo", body, 30s);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer.value() == body) << size;
  }
}

TEST_P(ControlTest, CallsOfManyThreadsAndChannelsRunAtTheSameTime) {
  TestServer server(server_options());
  auto first = MustConnect(server, client_options());
  auto second = MustConnect(server, client_options());
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string text = std::to_string(t) + "/" + std::to_string(i);
        Channel& channel = (t + i) % 2 == 0 ? *first : *second;
        auto answer = channel.Call(i % 3 == 0 ? "EchoInline" : "Echo", text, 10s);
        if (answer.ok() && answer.value() == text) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

TEST_P(ControlTest, ACallWithoutAnAnswerEndsAtItsDeadlineAndTheLateAnswerIsDropped) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  const Status status = channel->Call("Later", "", 60ms).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(Contains(status, "'Later'") && Contains(status, "/job:worker/replica:0/task:1") &&
              Contains(status, "0.06 s"))
      << status;
  ASSERT_TRUE(server.later.WaitFor([](const auto& replies) { return replies.size() == 1; }));
  server.later.Get()[0](std::string("too late"));
  EXPECT_EQ(channel->Call("Echo", "next", 5s).value(), "next");
}

TEST_P(ControlTest, AHandlerMayAnswerLaterFromAnotherThreadAndOnlyItsFirstAnswerCounts) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  Watched<std::string> answer;
  channel->CallAsync("Later", "", 10s,
                     [&](Result<std::string> result) { answer.Set(result.value()); });
  ASSERT_TRUE(server.later.WaitFor([](const auto& replies) { return replies.size() == 1; }));
  Reply reply = server.later.Get()[0];
  std::thread([reply] {
    reply(std::string("first"));
    reply(std::string("second"));
  }).join();
  EXPECT_TRUE(answer.WaitFor([](const std::string& text) { return text == "first"; }));
}

TEST_P(ControlTest, BlockedHandlersDoNotHoldUpInlineOnes) {
  ServerOptions options = server_options();
  options.handler_threads = 2;
  TestServer server(options);
  auto channel = MustConnect(server, client_options());
  Watched<int> done;
  for (int i = 0; i < 8; ++i) {
    channel->CallAsync("Block", "", 10s, [&](Result<std::string> result) {
      if (result.ok()) done.Change([](int& count) { ++count; });
    });
  }
  EXPECT_EQ(channel->Call("EchoInline", "quick", 5s).value(), "quick");
  EXPECT_EQ(done.Get(), 0);
  server.unblock.Set(true);
  EXPECT_TRUE(done.WaitFor([](int count) { return count == 8; }));
}

TEST_P(ControlTest, CloseCompletesPendingCallsWithCancelled) {
  TestServer server(server_options());
  ChannelOptions options = client_options();
  std::atomic<bool> lost = false;
  options.on_lost = [&](const Status&) { lost = true; };
  auto channel = MustConnect(server, options);
  Watched<Status> ended;
  channel->CallAsync("Later", "", 10s,
                     [&](Result<std::string> result) { ended.Set(result.status()); });
  ASSERT_TRUE(server.later.WaitFor([](const auto& replies) { return replies.size() == 1; }));
  channel->Close();
  EXPECT_TRUE(ended.WaitFor([](const Status& status) { return status.code() == Code::kCancelled; }))
      << ended.Get();
  EXPECT_EQ(channel->Call("Echo", "", 5s).status().code(), Code::kCancelled);
  channel->Close();
  EXPECT_EQ(server.WaitForDisconnect().code(), Code::kUnavailable);
  server.later.Get()[0](std::string("nobody listens"));
  channel.reset();
  EXPECT_FALSE(lost);
}

TEST_P(ControlTest, AChannelMayBeDestroyedWhileCallsArePendingAndInACallback) {
  TestServer server(server_options());
  auto channel = MustConnect(server, client_options());
  int completed = 0;
  for (int i = 0; i < 10; ++i)
    channel->CallAsync("Later", "", 10s, [&](Result<std::string>) { ++completed; });
  channel.reset();
  EXPECT_EQ(completed, 10);

  auto shared = std::make_shared<std::unique_ptr<Channel>>(MustConnect(server, client_options()));
  Watched<bool> destroyed;
  (*shared)->CallAsync("Echo", "", 10s, [shared, &destroyed](Result<std::string>) {
    shared->reset();
    destroyed.Set(true);
  });
  EXPECT_TRUE(destroyed.WaitFor([](bool value) { return value; }));
}

TEST_P(ControlTest, AServerThatStopsCompletesPendingCallsWithUnavailableNamingIt) {
  auto server = std::make_unique<TestServer>(server_options());
  ChannelOptions options = client_options();
  Watched<Status> lost, ended;
  options.on_lost = [&](const Status& why) { lost.Set(why); };
  auto channel = MustConnect(*server, options);
  channel->CallAsync("Later", "", 10s,
                     [&](Result<std::string> result) { ended.Set(result.status()); });
  ASSERT_TRUE(server->later.WaitFor([](const auto& replies) { return replies.size() == 1; }));
  Reply reply = server->later.Get()[0];
  const auto begin = Clock::now();
  server->server->Stop();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(server->WaitForDisconnect().code(), Code::kCancelled);
  server.reset();
  reply(std::string("after the server's end"));
  ASSERT_TRUE(ended.WaitFor([](const Status& status) { return !status.ok(); }));
  EXPECT_EQ(ended.Get().code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(ended.Get(), "'Later'") &&
              Contains(ended.Get(), "/job:worker/replica:0/task:1 at 127.0.0.1:") &&
              Contains(ended.Get(), "stops"))
      << ended.Get();
  EXPECT_EQ(ended.Get().lost_task(), "/job:worker/replica:0/task:1");
  ASSERT_TRUE(
      lost.WaitFor([](const Status& status) { return status.code() == Code::kUnavailable; }));
  EXPECT_EQ(lost.Get().lost_task(), "/job:worker/replica:0/task:1");
  EXPECT_EQ(channel->Call("Echo", "", 5s).status().code(), Code::kUnavailable);
}

TEST_P(ControlTest, ThePortCanBeUsedAgainAtOnce) {
  ServerOptions options = server_options();
  for (int i = 0; i < 3; ++i) {
    TestServer server(options);
    options.port = server.server->port();
    auto channel = MustConnect(server, client_options());
    EXPECT_TRUE(channel->Call("Echo", "", 5s).ok());
    server.server->Stop();
  }
}

TEST_P(ControlTest, ConnectWaitsForADaemonThatComesUpLaterAndSaysWhatItWaitsFor) {
  ServerOptions options = server_options();
  {
    TestServer probe(options);
    options.port = probe.server->port();
  }
  Watched<std::string> waiting;
  ChannelOptions client = client_options();
  client.expected_task = "/job:worker/replica:0/task:1";
  client.report_after = 20ms;
  client.timeout = 10s;
  client.on_waiting = [&](const std::string& line) { waiting.Set(line); };
  Watched<int> connected;
  std::unique_ptr<Channel> channel;
  Channel::ConnectAsync("127.0.0.1:" + std::to_string(options.port), client, [&](auto result) {
    if (result.ok()) channel = std::move(result).value();
    connected.Set(1);
  });
  ASSERT_TRUE(waiting.WaitFor([](const std::string& line) { return !line.empty(); }));
  EXPECT_NE(waiting.Get().find("waiting for /job:worker/replica:0/task:1 at 127.0.0.1:"),
            std::string::npos)
      << waiting.Get();
  EXPECT_NE(waiting.Get().find("refused"), std::string::npos) << waiting.Get();
  TestServer server(options);
  ASSERT_TRUE(connected.WaitFor([](int value) { return value == 1; }));
  ASSERT_NE(channel, nullptr);
  EXPECT_EQ(channel->Call("Echo", "up", 5s).value(), "up");
}

TEST_P(ControlTest, AnotherSoftwareVersionIsRefusedOnBothSides) {
  ServerOptions options = server_options();
  options.hello.software_version = "2.0.0";
  TestServer server(options);
  ChannelOptions client = client_options();
  client.hello.software_version = "1.0.0";
  const Status status = Channel::Connect(server.server->address(), client).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "1.0.0") && Contains(status, "2.0.0") &&
              Contains(status, "install the same version"))
      << status;
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(refused, "1.0.0") && Contains(refused, "2.0.0")) << refused;
}

TEST_P(ControlTest, AnotherProtocolVersionIsRefusedOnBothSides) {
  TestServer server(server_options());
  ChannelOptions client = client_options();
  client.hello.protocol_version = kProtocolVersion + 1;
  const Status status = Channel::Connect(server.server->address(), client).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "control protocol 1") && Contains(status, "control protocol 2"))
      << status;
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(refused, "control protocol 1") && Contains(refused, "control protocol 2"))
      << refused;
}

TEST_P(ControlTest, OtherOpsAreRefusedOnBothSides) {
  ServerOptions options = server_options();
  options.hello.fingerprint = "one";
  TestServer server(options);
  ChannelOptions client = client_options();
  client.hello.fingerprint = "two";
  const Status status = Channel::Connect(server.server->address(), client).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "op registry")) << status;
  EXPECT_EQ(server.WaitForRefusal().code(), Code::kFailedPrecondition);
}

TEST_P(ControlTest, AnotherTaskThanExpectedIsNamed) {
  TestServer server(server_options());
  ChannelOptions client = client_options();
  client.expected_task = "/job:ps/replica:0/task:0";
  const Status status = Channel::Connect(server.server->address(), client).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "/job:ps/replica:0/task:0") &&
              Contains(status, "/job:worker/replica:0/task:1"))
      << status;
}

TEST_P(ControlTest, WhatAcceptSaysIsToldToThePeer) {
  TestServer server(server_options(), [](const Hello& hello) {
    return ResourceExhausted("no room for " + hello.task_name);
  });
  const Status status = Channel::Connect(server.server->address(), client_options()).status();
  EXPECT_EQ(status, ResourceExhausted(server.server->address() +
                                      ": no room for /job:client/replica:0/task:0"));
}

TEST_P(ControlTest, JunkIsClosedAndReportedOnceAndNothingElseHappens) {
  TestServer server(server_options());
  auto good = MustConnect(server, client_options());
  Preamble keyed;
  keyed.security = GetParam() ? Security::kTls : Security::kPlain;
  keyed.software_version = SoftwareVersion();
  const std::string preamble = EncodePreamble(keyed);
  std::string bad_security = preamble;
  bad_security[6] = 9;
  std::string huge_frame("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  std::string first_frame_is_call;
  {
    Frame call;
    call.text = "Echo";
    first_frame_is_call = EncodeHead(call);
  }
  std::string bad_hello;
  {
    Frame hello;
    hello.type = FrameType::kHello;
    hello.body = std::string(100, '\xee');
    bad_hello = EncodeHead(hello) + hello.body;
  }
  const std::vector<std::string> junk = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'x'),
      std::string(100000, '\0'),
      std::string(64, '\xff'),
      bad_security,
      preamble + huge_frame,
      preamble + first_frame_is_call,
      preamble + bad_hello,
      preamble + std::string(5000, 'j'),
  };
  for (size_t i = 0; i < junk.size(); ++i) {
    RawSocket raw(server.server->port());
    raw.Send(junk[i]);
    EXPECT_TRUE(raw.ReadToEnd()) << i;
    ASSERT_TRUE(server.refused.WaitFor([&](const auto& statuses) {
      return statuses.size() == i + 1;
    })) << i;
    const Status why = server.refused.Get().back();
    EXPECT_TRUE(Contains(why, "127.0.0.1:")) << why;
    EXPECT_NE(why.code(), Code::kDeadlineExceeded) << i << " " << why;
  }
  EXPECT_EQ(good->Call("Echo", "fine", 5s).value(), "fine");
  EXPECT_EQ(server.refused.Get().size(), junk.size());
  EXPECT_TRUE(server.connected.WaitFor([](const auto& names) { return names.size() == 1; }));
  EXPECT_TRUE(server.disconnected.Get().empty());
}

TEST_P(ControlTest, APeerThatIsTooSlowWithItsHandshakeIsClosed) {
  ServerOptions options = server_options();
  options.handshake_timeout = 150ms;
  TestServer server(options);
  const std::string preamble = PreambleOf(Security::kPlain);
  for (const size_t sent : {0, 1, 10}) {
    RawSocket raw(server.server->port());
    raw.Send(preamble.substr(0, sent));
    EXPECT_TRUE(raw.ReadToEnd());
  }
  ASSERT_TRUE(server.refused.WaitFor([](const auto& statuses) { return statuses.size() == 3; }));
  for (const Status& why : server.refused.Get()) {
    EXPECT_EQ(why.code(), Code::kDeadlineExceeded) << why;
    EXPECT_TRUE(Contains(why, "0.15 s")) << why;
  }
}

TEST_P(ControlTest, TooManyUnfinishedHandshakesPushOutTheOldestAndGoodPeersStillGetIn) {
  ServerOptions options = server_options();
  options.handshakes.total = 4;
  TestServer server(options);
  std::vector<std::unique_ptr<RawSocket>> raws;
  for (int i = 0; i < 12; ++i) raws.push_back(std::make_unique<RawSocket>(server.server->port()));
  EXPECT_TRUE(MustConnect(server, client_options())->Call("Echo", "", 5s).ok());
  EXPECT_TRUE(server.refused.WaitFor([](const auto& statuses) { return statuses.size() >= 8; }));
}

// Frames of a peer that has completed the handshake and then breaks the protocol.
TEST(ControlPlain, AnEstablishedPeerThatBreaksTheProtocolIsClosedAndOthersAreNot) {
  ServerOptions options;
  options.max_body_bytes = 1 << 20;
  TestServer server(options);
  auto good = MustConnect(server);
  Hello hello;
  hello.task_name = "/job:evil/replica:0/task:0";
  Frame first;
  first.type = FrameType::kHello;
  first.body = EncodeHello(hello);
  Frame pong;
  pong.type = FrameType::kPong;
  std::string too_large_body = std::string("\x14\0\0\0\x01\0\x10\0", 8);  // 2^20 + 1 bytes
  std::string unknown_type = EncodeHead(pong);
  unknown_type[kFramePrefixBytes] = 99;
  std::string lost_task_cut_off = EncodeHead(pong);
  lost_task_cut_off[kFramePrefixBytes + 1] = 2;
  size_t expected = 0;
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\x7f\0\0\0\0", 8), std::string("\x10\0\0\0\xff\xff\xff\x7f", 8),
        too_large_body, std::string("\x03\0\0\0\0\0\0\0abc", 11), unknown_type, lost_task_cut_off,
        EncodeHead(pong)}) {
    RawSocket raw(server.server->port());
    raw.Send(PreambleOf(Security::kPlain));
    raw.ReadExactly(kPreambleBytes);
    raw.Send(EncodeHead(first) + first.body + bytes);
    EXPECT_TRUE(raw.ReadToEnd());
    TestServer::ExpectBrokenProtocol(server.disconnected, ++expected);
  }
  EXPECT_EQ(good->Call("Echo", "fine", 5s).value(), "fine");
}

// The same inside a TLS connection of somebody who has the key.
TEST(ControlKey, AKeyHolderThatBreaksTheProtocolIsClosedAndOthersAreNot) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  auto good = MustConnect(server, ClientOptions(KeyOf(1)));
  auto tls = TlsContext::Make(KeyOf(1), /*server=*/false);
  ASSERT_TRUE(tls.ok()) << tls.status();
  Frame call;
  call.text = "Echo";
  size_t expected = 0;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(16000, '\0'), EncodeHead(call),
        std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)}) {
    RawSocket raw(server.server->port());
    raw.Send(PreambleOf(Security::kTls));
    raw.ReadExactly(kPreambleBytes);
    SSL* ssl = SSL_new(tls.value()->native());
    SSL_set_fd(ssl, raw.descriptor());
    ASSERT_EQ(1, SSL_connect(ssl));
    EXPECT_TRUE(TlsContext::CheckPeer(ssl).ok());
    EXPECT_EQ(static_cast<int>(bytes.size()),
              SSL_write(ssl, bytes.data(), static_cast<int>(bytes.size())));
    EXPECT_TRUE(raw.ReadToEnd());
    SSL_free(ssl);
    TestServer::ExpectBrokenProtocol(server.refused, ++expected);
  }
  EXPECT_EQ(good->Call("Echo", "fine", 5s).value(), "fine");
}

// A TLS client that offers no pre-shared key gets nowhere, whatever else it offers.
TEST(ControlKey, TlsWithoutTheKeyIsRefused) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  RawSocket raw(server.server->port());
  raw.Send(PreambleOf(Security::kTls));
  raw.ReadExactly(kPreambleBytes);
  SSL_set_fd(ssl, raw.descriptor());
  EXPECT_NE(1, SSL_connect(ssl));
  EXPECT_EQ(server.WaitForRefusal().code(), Code::kUnauthenticated);
  SSL_free(ssl);
  SSL_CTX_free(context);
}

TEST(ControlPlain, AHostThatDoesNotExistIsNamedWithinTheDeadline) {
  ChannelOptions options = ClientOptions();
  options.timeout = 500ms;
  const auto begin = Clock::now();
  const Status status = Channel::Connect("no-such-host.invalid:2222", options).status();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_TRUE(status.code() == Code::kNotFound || status.code() == Code::kUnavailable) << status;
  EXPECT_TRUE(Contains(status, "no-such-host.invalid")) << status;
}

TEST(ControlPlain, ARequestAboveTheLimitIsAnErrorOfThatCallOnly) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  TestServer server(options);
  ChannelOptions client = ClientOptions();
  client.max_body_bytes = 1000;
  auto channel = MustConnect(server, client);
  EXPECT_EQ(channel->Call("Echo", std::string(1001, 'x'), 5s).status().code(),
            Code::kResourceExhausted);
  EXPECT_TRUE(channel->Call("Echo", std::string(1000, 'x'), 5s).ok());
}

TEST(ControlPlain, APortInUseIsNamed) {
  TestServer server;
  ServerOptions options;
  options.port = server.server->port();
  const Status status = Server::Start(options, {}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, server.server->address() + ": address already in use") &&
              Contains(status, "choose another port"))
      << status;
}

TEST(ControlPlain, AnAddressThatOthersReachNeedsAKey) {
  ServerOptions options;
  options.bind_address = "0.0.0.0";
  const Status status = Server::Start(options, {}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "monograph keygen") && Contains(status, "--key_file")) << status;
  options.key = KeyOf(1);
  EXPECT_TRUE(Server::Start(options, {}).ok());
}

TEST(ControlPlain, AddressesAndHostsThatMakeNoSenseAreExplained) {
  for (const char* text : {"", "host", "host:", ":80", "host:0", "host:65536", "host:12x", "a b:80",
                           "::1:80", "host:-1"}) {
    const Status status = Channel::Connect(text, ClientOptions()).status();
    EXPECT_EQ(status, InvalidArgument(std::string(text) + ": Could not interpret \"" + text +
                                      "\" as a host-port pair."));
  }
  EXPECT_EQ(ParseHostPort("[::1]:80").value().host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:80").value().ToString(), "[::1]:80");
  EXPECT_EQ(ParseHostPort("node1:2222").value().port, 2222);
  ServerOptions options;
  options.bind_address = "300.1.2.3.4.invalid";
  const Status bind = Server::Start(options, {}).status();
  EXPECT_FALSE(bind.ok());
  EXPECT_TRUE(Contains(bind, "300.1.2.3.4.invalid")) << bind;
}

TEST(ControlPlain, ConnectGivesUpAtItsDeadlineNamingWhatIsMissing) {
  uint16_t port = 0;
  {
    TestServer probe;
    port = probe.server->port();
  }
  ChannelOptions options = ClientOptions();
  options.timeout = 200ms;
  options.expected_task = "/job:worker/replica:0/task:7";
  const auto begin = Clock::now();
  const Status status = Channel::Connect("127.0.0.1:" + std::to_string(port), options).status();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(status, "/job:worker/replica:0/task:7") && Contains(status, "0.2 s") &&
              Contains(status, "refused"))
      << status;
}

// The connection is there when its time is over: the io thread was busy meanwhile. What the attempt
// had is gone when its timer's handler runs, which AddressSanitizer sees.
TEST(ControlPlain, AConnectionThatOpensAsItsTimeEndsIsGivenUp) {
  const TestServer server;
  ChannelOptions soon = ClientOptions();
  soon.timeout = 50ms;
  Watched<Code> given_up;
  // Begun on the io thread, the second ends, and keeps that busy, once the first has begun to
  // connect.
  Channel::ConnectAsync("no address", ClientOptions(), [&](const auto&) {
    Channel::ConnectAsync(server.server->address(), soon,
                          [&](const auto& result) { given_up.Set(result.status().code()); });
    Channel::ConnectAsync("no address", ClientOptions(),
                          // Holds the io thread, beyond the first one's time: it waits for nothing.
                          [](const auto&) { std::this_thread::sleep_for(200ms); });
  });
  EXPECT_TRUE(given_up.WaitFor([](Code code) { return code == Code::kUnavailable; }));
}

TEST(ControlPlain, SomethingElseThatListensIsNamedAsSuch) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(0, bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address));
  ASSERT_EQ(0, listen(listener, 8));
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::thread other([listener] {
    const int peer = accept(listener, nullptr, nullptr);
    const std::string greeting = "SSH-2.0-OpenSSH_9.2\r\n";
    (void)!write(peer, greeting.data(), greeting.size());
    char byte;
    while (read(peer, &byte, 1) > 0) {
    }
    close(peer);
  });
  const Status status =
      Channel::Connect("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), ClientOptions())
          .status();
  other.join();
  close(listener);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "no Monograph daemon") && Contains(status, "SSH-2.0")) << status;
}

TEST(ControlKey, AWrongKeyIsOneClearErrorOnBothSides) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  const auto begin = Clock::now();
  const Status status =
      Channel::Connect(server.server->address(), ClientOptions(KeyOf(2))).status();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(status, "the keys of") && Contains(status, "differ") &&
              Contains(status, KeyId(KeyOf(2))))
      << status;
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(refused, "the keys of") && Contains(refused, "differ") &&
              Contains(refused, KeyId(KeyOf(1))))
      << refused;
  EXPECT_TRUE(MustConnect(server, ClientOptions(KeyOf(1)))->Call("Echo", "", 5s).ok());
  EXPECT_EQ(server.refused.Get().size(), 1u);
}

TEST(ControlKey, AClientWithoutAKeyIsToldThatTheServerHasOne) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  const Status status = Channel::Connect(server.server->address(), ClientOptions()).status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(status, "--key_file") && Contains(status, "started with a key")) << status;
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(refused, "does not speak TLS")) << refused;
}

TEST(ControlKey, AClientWithAKeyIsToldThatTheServerHasNone) {
  TestServer server;
  const Status status =
      Channel::Connect(server.server->address(), ClientOptions(KeyOf(1))).status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(status, "does not speak TLS") && Contains(status, "--key_file")) << status;
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kUnauthenticated);
  EXPECT_TRUE(Contains(refused, "started with a key")) << refused;
}

TEST(ControlKey, WithAKeyNothingReadableTravels) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  // A listener between client and server that keeps a copy of what passes.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(0, bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address));
  ASSERT_EQ(0, listen(listener, 8));
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::string up, down;
  std::thread relay([&] {
    const int client = accept(listener, nullptr, nullptr);
    const int onward = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = address;
    to.sin_port = htons(server.server->port());
    EXPECT_EQ(0, connect(onward, reinterpret_cast<sockaddr*>(&to), sizeof to));
    auto pump = [](int from, int into, std::string* copy) {
      char buffer[4096];
      for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0;) {
        copy->append(buffer, static_cast<size_t>(got));
        if (send(into, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) break;
      }
      shutdown(into, SHUT_WR);
    };
    std::thread back(pump, onward, client, &down);
    pump(client, onward, &up);
    back.join();
    close(client);
    close(onward);
  });
  auto channel = Channel::Connect("127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                                  ClientOptions(KeyOf(1)));
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(channel.value()->Call("Echo", "a secret of ours", 5s).value(), "a secret of ours");
  channel.value().reset();
  relay.join();
  close(listener);
  EXPECT_GT(up.size(), 100u);
  for (const std::string& bytes : {up, down}) {
    EXPECT_EQ(bytes.find("secret"), std::string::npos);
    EXPECT_EQ(bytes.find("/job:"), std::string::npos);
    EXPECT_EQ(bytes.find("Echo"), std::string::npos);
  }
}

}  // namespace
}  // namespace monograph::control
