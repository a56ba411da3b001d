#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/transport/control_testing.h"
#include "transport/control/heartbeat.h"

extern char** environ;

namespace monograph::control {
namespace {

// A process of the program control_peer. Killed at the end, if it still runs.
class PeerProcess {
 public:
  explicit PeerProcess(std::vector<std::string> arguments) {
    int in[2], out[2];
    EXPECT_EQ(0, pipe2(in, O_CLOEXEC));
    EXPECT_EQ(0, pipe2(out, O_CLOEXEC));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), MG_CONTROL_PEER);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(0, posix_spawn(&pid_, MG_CONTROL_PEER, &actions, nullptr, argv.data(), environ));
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    char byte;
    while (read(out[0], &byte, 1) == 1 && byte != '\n') first_line_.push_back(byte);
    close(out[0]);
  }
  ~PeerProcess() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(input_);
  }
  void Signal(int number) { kill(pid_, number); }
  const std::string& first_line() const { return first_line_; }

 private:
  pid_t pid_ = 0;
  int input_ = -1;
  std::string first_line_;
};

struct Loss {
  std::string peer;
  Status why;
};

bool IsLost(const Loss& loss) { return !loss.why.ok(); }

HeartbeatOptions Quick() {
  HeartbeatOptions options;
  options.interval = 20ms;
  options.timeout = 2s;
  return options;
}

bool WaitForAnswers(const HeartbeatMonitor& monitor, uint64_t watch, uint64_t count) {
  const auto limit = Clock::now() + 10s;
  while (Clock::now() < limit) {
    const auto health = monitor.Health(watch);
    if (!health) return false;
    if (health->answers >= count) return true;
    std::this_thread::yield();
  }
  return false;
}

class HeartbeatTest : public WithAndWithoutKey {};

INSTANTIATE_TEST_SUITE_P(Security, HeartbeatTest, ::testing::Bool(), [](const auto& security) {
  return security.param ? "WithKey" : "WithoutKey";
});

TEST_P(HeartbeatTest, AnswersCarryProgressRoundTripAndClockOffset) {
  std::atomic<uint64_t> progress = 100;
  ServerOptions options = server_options();
  options.progress = [&] { return progress.load(); };
  TestServer server(options);
  auto channel = MustConnect(server, ClientOptions(key()));
  auto monitor = HeartbeatMonitor::Start(Quick());
  const uint64_t watch = monitor->Watch(*channel, nullptr);
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 3));
  const PeerHealth first = *monitor->Health(watch);
  EXPECT_EQ(first.progress, 100u);
  EXPECT_GT(first.round_trip.count(), 0);
  // Client and server share one clock here.
  EXPECT_LE(std::abs(first.clock_offset.count()), first.round_trip.count());
  progress = 200;
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, first.answers + 3));
  const PeerHealth second = *monitor->Health(watch);
  EXPECT_EQ(second.progress, 200u);
  EXPECT_GT(second.last_progress, first.last_progress);
}

TEST_P(HeartbeatTest, AnAnswerThatIsAskedForComesAtOnceAndTellsWhenItWasAskedFor) {
  TestServer server(server_options());
  auto channel = MustConnect(server, ClientOptions(key()));
  HeartbeatOptions rare;
  rare.interval = rare.timeout = 60s;
  auto monitor = HeartbeatMonitor::Start(rare);
  const uint64_t watch = monitor->Watch(*channel, nullptr);
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 1));
  const auto asked = Clock::now();
  EXPECT_LT(monitor->Health(watch)->asked, asked);
  monitor->Ask();
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 2));
  EXPECT_GE(monitor->Health(watch)->asked, asked);
  EXPECT_LE(monitor->Health(watch)->asked, monitor->Health(watch)->last_answer);
}

TEST_P(HeartbeatTest, BusyIoThreadsAndHandlersAreNoLoss) {
  ServerOptions options = server_options();
  options.handler_threads = 1;
  TestServer server(options);
  auto channel = MustConnect(server, ClientOptions(key()));
  HeartbeatOptions quick = Quick();
  quick.timeout = 1s;
  auto monitor = HeartbeatMonitor::Start(quick);
  Watched<Loss> lost;
  const uint64_t watch = monitor->Watch(*channel, [&](const std::string& peer, const Status& why) {
    lost.Set({peer, why});
  });
  channel->CallAsync("Block", "", 30s, [](Result<std::string>) {});
  Watched<bool> inside, leave;
  channel->CallAsync("EchoInline", "", 30s, [&](Result<std::string>) {
    inside.Set(true);
    leave.WaitFor([](bool value) { return value; });
  });
  ASSERT_TRUE(inside.WaitFor([](bool value) { return value; }));
  const auto begin = Clock::now();
  uint64_t answers = 0;
  // The io thread of the channel stands still for twice the timeout; the heartbeat goes on.
  while (Clock::now() < begin + 2 * quick.timeout)
    ASSERT_TRUE(WaitForAnswers(*monitor, watch, ++answers));
  EXPECT_GT(answers, 10u);
  leave.Set(true);
  EXPECT_TRUE(lost.Get().why.ok()) << lost.Get().why;
  EXPECT_EQ(channel->Call("EchoInline", "alive", 5s).value(), "alive");
}

TEST_P(HeartbeatTest, UnwatchLeavesTheChannelAlone) {
  ServerOptions options = server_options();
  options.silence_timeout = 1s;
  TestServer server(options);
  auto channel = MustConnect(server, ClientOptions(key()));
  auto monitor = HeartbeatMonitor::Start(Quick());
  const uint64_t watch =
      monitor->Watch(*channel, [](const std::string&, const Status& why) { ADD_FAILURE() << why; });
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 2));
  monitor->Unwatch(watch);
  monitor->Unwatch(watch);
  EXPECT_FALSE(monitor->Health(watch));
  monitor.reset();
  // Longer than the silence that the server allows a watched peer.
  EXPECT_FALSE(
      server.disconnected.WaitFor([](const auto& statuses) { return !statuses.empty(); }, 1500ms));
  EXPECT_EQ(channel->Call("Echo", "alive", 5s).value(), "alive");
}

TEST_P(HeartbeatTest, ClosingAWatchedChannelIsNoLoss) {
  TestServer server(server_options());
  auto channel = MustConnect(server, ClientOptions(key()));
  auto monitor = HeartbeatMonitor::Start(Quick());
  const uint64_t watch =
      monitor->Watch(*channel, [](const std::string&, const Status& why) { ADD_FAILURE() << why; });
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 1));
  channel.reset();
  EXPECT_EQ(server.WaitForDisconnect().code(), Code::kUnavailable);
  monitor.reset();
}

TEST_P(HeartbeatTest, AServerThatStopsIsReportedOnceWithItsReason) {
  auto server = std::make_unique<TestServer>(server_options());
  auto channel = MustConnect(*server, ClientOptions(key()));
  auto monitor = HeartbeatMonitor::Start(Quick());
  Watched<std::vector<Loss>> losses;
  const uint64_t watch = monitor->Watch(*channel, [&](const std::string& peer, const Status& why) {
    losses.Change([&](auto& all) { all.push_back({peer, why}); });
  });
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 1));
  server.reset();
  ASSERT_TRUE(losses.WaitFor([](const auto& all) { return !all.empty(); }));
  monitor.reset();
  ASSERT_EQ(losses.Get().size(), 1u);
  EXPECT_EQ(losses.Get()[0].peer, channel->peer_name());
  EXPECT_EQ(losses.Get()[0].why.code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(losses.Get()[0].why, "stops")) << losses.Get()[0].why;
}

// A server in a process of its own that is watched, and owes an answer.
class WatchedProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    auto connected = Channel::Connect("127.0.0.1:" + process_.first_line(), ClientOptions());
    ASSERT_TRUE(connected.ok()) << connected.status();
    channel_ = std::move(connected).value();
    const uint64_t watch =
        monitor_->Watch(*channel_, [this](const std::string& peer, const Status& why) {
          lost_.Set({peer, why});
        });
    ASSERT_TRUE(WaitForAnswers(*monitor_, watch, 1));
    channel_->CallAsync("Later", "", 30s,
                        [this](Result<std::string> result) { ended_.Set(result.status()); });
  }

  PeerProcess process_{{"server"}};
  Watched<Loss> lost_;
  Watched<Status> ended_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<HeartbeatMonitor> monitor_ = HeartbeatMonitor::Start();
};

TEST_F(WatchedProcess, AKilledServerIsReportedAtOnceAndItsCallsFailWithItsName) {
  ASSERT_TRUE(channel_->Call("Echo", "", 5s).ok());
  const auto begin = Clock::now();
  process_.Signal(SIGKILL);
  ASSERT_TRUE(lost_.WaitFor(IsLost));
  EXPECT_LT(Clock::now() - begin, 10s);  // 0.2 s on a machine with time
  EXPECT_FALSE(Contains(lost_.Get().why, "heartbeats"))
      << "not by its silence: " << lost_.Get().why;
  EXPECT_TRUE(lost_.Get().peer.rfind("/job:worker/replica:0/task:3 at ", 0) == 0)
      << lost_.Get().peer;
  ASSERT_TRUE(ended_.WaitFor([](const Status& status) { return !status.ok(); }));
  EXPECT_EQ(ended_.Get().code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(ended_.Get(), "/job:worker/replica:0/task:3")) << ended_.Get();
}

TEST_F(WatchedProcess, AStoppedServerIsReportedByItsSilenceAndItsCallsFail) {
  const auto begin = Clock::now();
  process_.Signal(SIGSTOP);
  ASSERT_TRUE(lost_.WaitFor(IsLost));
  const auto took = Clock::now() - begin;
  EXPECT_GT(took, 1900ms);
  EXPECT_LT(took, 10s);  // 3 s on a machine with time
  EXPECT_EQ(lost_.Get().why.code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(lost_.Get().why, "/job:worker/replica:0/task:3") &&
              Contains(lost_.Get().why, "2.5 s"))
      << lost_.Get().why;
  EXPECT_EQ(lost_.Get().why.lost_task(), "/job:worker/replica:0/task:3");
  ASSERT_TRUE(
      ended_.WaitFor([](const Status& status) { return status.code() == Code::kUnavailable; }));
}

TEST(HeartbeatProcesses, AServerStoppedForLessThanTheTimeoutIsNotLost) {
  PeerProcess process({"server"});
  auto channel = Channel::Connect("127.0.0.1:" + process.first_line(), ClientOptions());
  ASSERT_TRUE(channel.ok()) << channel.status();
  HeartbeatOptions options;
  options.interval = 20ms;
  auto monitor = HeartbeatMonitor::Start(options);
  const uint64_t watch = monitor->Watch(
      *channel.value(), [](const std::string&, const Status& why) { ADD_FAILURE() << why; });
  ASSERT_TRUE(WaitForAnswers(*monitor, watch, 1));
  process.Signal(SIGSTOP);
  Watched<Status> ended;
  channel.value()->CallAsync("Later", "", 300ms,
                             [&](Result<std::string> result) { ended.Set(result.status()); });
  ASSERT_TRUE(
      ended.WaitFor([](const Status& status) { return status.code() == Code::kDeadlineExceeded; }));
  const uint64_t before = monitor->Health(watch)->answers;
  process.Signal(SIGCONT);
  EXPECT_TRUE(WaitForAnswers(*monitor, watch, before + 5));
  EXPECT_TRUE(channel.value()->Call("Echo", "", 5s).ok());
}

TEST(HeartbeatProcesses, AKilledClientIsNoticedAtOnce) {
  TestServer server;
  PeerProcess process({"client", std::to_string(server.server->port())});
  ASSERT_EQ(process.first_line(), "ready");
  EXPECT_TRUE(server.disconnected.Get().empty());
  const auto begin = Clock::now();
  process.Signal(SIGKILL);
  EXPECT_EQ(server.WaitForDisconnect().code(), Code::kUnavailable);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST(HeartbeatProcesses, AStoppedClientIsNoticedByItsSilence) {
  ServerOptions options;
  options.silence_timeout = 700ms;
  TestServer server(options);
  PeerProcess process({"client", std::to_string(server.server->port())});
  ASSERT_EQ(process.first_line(), "ready");
  process.Signal(SIGSTOP);
  const Status why = server.WaitForDisconnect();
  EXPECT_EQ(why.code(), Code::kUnavailable);
  EXPECT_TRUE(Contains(why, "/job:client/replica:0/task:9") &&
              Contains(why, "no heartbeat for 0.7 s"))
      << why;
}

}  // namespace
}  // namespace monograph::control
