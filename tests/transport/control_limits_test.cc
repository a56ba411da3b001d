// What those get who have not shown yet who they are: few places, few descriptors, few log lines.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "base/descriptor.h"
#include "tests/transport/control_testing.h"
#include "transport/control/handshake_limiter.h"
#include "transport/control/refusal_log.h"
#include "transport/control/source_address.h"

namespace monograph::control {
namespace {

TEST(SourceAddressTest, IsTheHostOrForIpv6TheNetwork) {
  const std::map<std::string, std::string> sources = {
      {"127.0.0.1:40312", "127.0.0.1"},
      {"[::1]:40312", "::1"},
      {"[::ffff:10.0.0.7]:80", "10.0.0.7"},
      {"[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"},
      {"[fe80::1%eth0]:80", "fe80::/64"},
      {"[strange]:80", "[strange]"},
      {"strange", "strange"},
      {"", ""}};
  for (const auto& [peer, source] : sources) EXPECT_EQ(SourceAddress(peer), source) << peer;
}

// Which connections were ended, in order.
struct Ended {
  HandshakeLimiter::Close Of(uint64_t id) {
    return [this, id](const Status& why) {
      ids.push_back(id);
      last = why;
    };
  }
  std::vector<uint64_t> ids;
  Status last;
};

TEST(HandshakeLimiterTest, OneAddressPushesOutItsOwnOldest) {
  HandshakeLimiter limiter({.total = 10, .per_address = 2});
  Ended ended;
  limiter.Begin(1, "10.0.0.1:1", 5, ended.Of(1));
  for (uint64_t id = 2; id < 6; ++id)
    limiter.Begin(id, "10.0.0.2:" + std::to_string(id), 5, ended.Of(id));
  EXPECT_EQ(ended.ids, (std::vector<uint64_t>{2, 3}));
  EXPECT_TRUE(Contains(ended.last, "2 connections of 10.0.0.2")) << ended.last;
  limiter.End(4);
  limiter.End(4);
  limiter.End(99);
  limiter.Begin(6, "10.0.0.2:6", 5, ended.Of(6));
  EXPECT_EQ(ended.ids.size(), 2u);
  EXPECT_EQ(limiter.waiting(), 3u);
}

TEST(HandshakeLimiterTest, TheTotalIsKeptByWhoHasMost) {
  HandshakeLimiter limiter({.total = 4, .per_address = 4});
  Ended ended;
  limiter.Begin(1, "10.0.0.1:1", 5, ended.Of(1));
  for (uint64_t id = 2; id < 5; ++id) limiter.Begin(id, "10.0.0.2:1", 5, ended.Of(id));
  limiter.Begin(5, "10.0.0.3:1", 5, ended.Of(5));
  EXPECT_EQ(ended.ids, (std::vector<uint64_t>{2}));
  limiter.Begin(6, "10.0.0.4:1", 5, ended.Of(6));
  limiter.Begin(7, "10.0.0.5:1", 5, ended.Of(7));  // one each by now: the oldest
  EXPECT_EQ(ended.ids, (std::vector<uint64_t>{2, 3, 1}));
  limiter.EndAll(Cancelled("over"));
  EXPECT_EQ(ended.ids.size(), 7u);
  EXPECT_EQ(limiter.waiting(), 0u);
  EXPECT_FALSE(limiter.MakeRoom());
}

TEST(HandshakeLimiterTest, DescriptorsStayForOthers) {
  rlimit limit{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
  const int last = static_cast<int>(limit.rlim_cur) - 1;
  HandshakeLimiter limiter({.spare_descriptors = 10});
  Ended ended;
  const auto begin = [&](uint64_t id, int descriptor) {
    limiter.Begin(id, "10.0.0." + std::to_string(id) + ":1", descriptor, ended.Of(id));
  };
  for (uint64_t id = 1; id <= 8; ++id) begin(id, last - 10);
  EXPECT_TRUE(ended.ids.empty());
  begin(9, last - 9);
  EXPECT_EQ(ended.ids, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(Contains(ended.last, "RLIMIT_NOFILE")) << ended.last;
  // The numbers below are free again; that does not let the old number in.
  for (uint64_t id = 10; id < 20; ++id) begin(id, 5);
  EXPECT_EQ(limiter.waiting(), 4u);
  begin(20, last);
  EXPECT_EQ(limiter.waiting(), 2u);
  EXPECT_TRUE(limiter.MakeRoom());
  EXPECT_EQ(limiter.waiting(), 1u);
  EXPECT_EQ(ended.last.code(), Code::kResourceExhausted);
  limiter.End(20);
  for (uint64_t id = 21; id < 30; ++id) begin(id, 5);
  EXPECT_EQ(limiter.waiting(), 9u);
}

TEST(RefusalLogTest, AFloodIsTwoLinesPerAddressAndInterval) {
  std::vector<std::string> lines;
  RefusalLog log("control: here", [&](const std::string& line) { lines.push_back(line); });
  const RefusalLog::Clock::time_point begin;
  for (int i = 0; i < 1000; ++i) log.Add("10.0.0.1:" + std::to_string(i), Unavailable("no"), begin);
  log.Add("10.0.0.2:1", Unauthenticated("not you"), begin);
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "control: here refused a connection: UNAVAILABLE: no",
                       "control: here refused a connection: UNAUTHENTICATED: not you"}));
  EXPECT_EQ(log.due(), begin + RefusalLog::kInterval);
  log.Flush(begin + RefusalLog::kInterval - 1ms);
  EXPECT_EQ(lines.size(), 2u);
  log.Flush(begin + RefusalLog::kInterval);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2],
            "control: here refused 999 more connections of 10.0.0.1 within 10 s; the last: "
            "UNAVAILABLE: no");
  EXPECT_FALSE(log.due());
  log.Add("10.0.0.1:1", Unavailable("again"), begin + 2 * RefusalLog::kInterval);
  EXPECT_EQ(lines.back(), "control: here refused a connection: UNAVAILABLE: again");
}

TEST(RefusalLogTest, ManyAddressesShareALine) {
  std::vector<std::string> lines;
  RefusalLog log("control: here", [&](const std::string& line) { lines.push_back(line); });
  const RefusalLog::Clock::time_point begin;
  for (int i = 0; i < 1000; ++i)
    log.Add("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ":1",
            Unavailable("no"), begin);
  EXPECT_EQ(lines.size(), RefusalLog::kAddresses);
  // The next refusal tells it, too, if nobody has set a timer.
  log.Add("10.9.9.9:1", Unavailable("no"), begin + RefusalLog::kInterval);
  ASSERT_EQ(lines.size(), RefusalLog::kAddresses + 2);
  EXPECT_EQ(lines[RefusalLog::kAddresses],
            "control: here refused 992 connections of other addresses within 10 s; the last: "
            "UNAVAILABLE: no");
}

// A connection from one of 127.0.0.0/8, which is all loopback.
Descriptor ConnectFrom(const std::string& source, uint16_t port) {
  Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  EXPECT_EQ(1, inet_pton(AF_INET, source.c_str(), &address.sin_addr));
  EXPECT_EQ(0, bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(0, connect(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
  return made;
}

std::string SourceOf(int number) { return "127.0.1." + std::to_string(number); }

class FloodTest : public WithAndWithoutKey {};
INSTANTIATE_TEST_SUITE_P(, FloodTest, ::testing::Bool(),
                         [](const auto& with_key) { return with_key.param ? "Tls" : "Plain"; });

// Junk keeps connecting from several addresses while a client opens channels.
TEST_P(FloodTest, JunkFromManyAddressesKeepsNobodyOut) {
  TestServer server(server_options());
  const uint16_t port = server.server->port();
  std::atomic<bool> stop{false};
  std::atomic<int> floods{0};
  std::vector<std::thread> flooders;
  for (int source = 1; source <= 8; ++source) {
    flooders.emplace_back([&, source] {
      std::vector<Descriptor> held(100);
      for (size_t i = 0; !stop; ++i) {
        held[i % held.size()] = ConnectFrom(SourceOf(source), port);
        const std::string junk(i % 40, 'x');
        (void)!send(held[i % held.size()].get(), junk.data(), junk.size(), MSG_NOSIGNAL);
        ++floods;
        usleep(1000);
      }
    });
  }
  for (int i = 0; i < 20 || floods < 1000; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(MustConnect(server, client_options())->Call("Echo", "x", 5s).value(), "x");
    EXPECT_LT(Clock::now() - begin, 3s);
  }
  stop = true;
  for (std::thread& flooder : flooders) flooder.join();
}

// Idle connections hold what descriptors there are; those who come later get in all the same, and
// the server has some left.
TEST_P(FloodTest, IdleConnectionsLeaveDescriptorsToOthers) {
  TestServer server(server_options());
  auto before = MustConnect(server, client_options());
  // The test's own ends of the flood come first, so that the limit is the server's.
  std::vector<Descriptor> flood;
  for (int i = 0; i < 300; ++i) flood.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit old{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
  const Descriptor next(dup(STDERR_FILENO));
  const rlimit tight{static_cast<rlim_t>(next.get()) + 64, old.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &tight));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(server.server->port());
  for (size_t i = 0; i < flood.size(); ++i) {
    sockaddr_in from = to;
    from.sin_port = 0;
    inet_pton(AF_INET, SourceOf(static_cast<int>(i % 20)).c_str(), &from.sin_addr);
    EXPECT_EQ(0, bind(flood[i].get(), reinterpret_cast<sockaddr*>(&from), sizeof from));
    EXPECT_EQ(0, connect(flood[i].get(), reinterpret_cast<sockaddr*>(&to), sizeof to));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(MustConnect(server, client_options())->Call("Echo", "x", 5s).value(), "x");
    EXPECT_EQ(before->Call("Echo", "old", 5s).value(), "old");
  }
  EXPECT_GE(Descriptor(dup(STDERR_FILENO)).get(), 0);
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
}

// Where others of the process have taken every descriptor, an accept fails. The server does not
// spin, serves those whom it knows, and the next one when there is a descriptor again.
TEST_P(FloodTest, WithoutADescriptorCallersWaitAndKnownPeersAreServed) {
  TestServer server(server_options());
  auto before = MustConnect(server, client_options());
  EXPECT_EQ(before->Call("Echo", "x", 5s).value(), "x");
  const Descriptor caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit old{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
  std::vector<Descriptor> taken;
  const rlimit tight{256, old.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &tight));
  for (;;) {
    Descriptor one(dup(STDERR_FILENO));
    if (one.get() < 0) break;
    taken.push_back(std::move(one));
  }
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(server.server->port());
  EXPECT_EQ(0, connect(caller.get(), reinterpret_cast<sockaddr*>(&to), sizeof to));
  timespec cpu_begin{}, cpu_end{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_begin);
  const auto begin = Clock::now();
  while (Clock::now() - begin < 600ms) {
    EXPECT_EQ(before->Call("Echo", "known", 5s).value(), "known");
    std::this_thread::sleep_for(20ms);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_end);
  const double seconds = static_cast<double>(cpu_end.tv_sec - cpu_begin.tv_sec) +
                         1e-9 * static_cast<double>(cpu_end.tv_nsec - cpu_begin.tv_nsec);
  EXPECT_LT(seconds, 0.3);
  taken.clear();
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
  EXPECT_EQ(MustConnect(server, client_options())->Call("Echo", "new", 5s).value(), "new");
}

}  // namespace
}  // namespace monograph::control
