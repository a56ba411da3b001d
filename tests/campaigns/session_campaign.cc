// What a session leaves behind, and what it does to others, many times over: daemons that are
// killed while they send, sessions that are opened and closed.
//
//   session_campaign [--kills=200] [--sessions=1000] [--seed=1] [--lanes=posix]
//
// Daemons: ps/0, worker/0, and worker/1, which is the one that is killed. One session uses only the
// first two and runs all the time; other sessions move much to and from worker/1. Lanes `posix`
// send payloads through the queue in shared memory, so that a kill hits the middle of a write more
// often than where the receiver fetches them (`posix,cma`).
#include <dirent.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <random>
#include <thread>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

int kills = 12, sessions = 40;
unsigned seed = 1;
std::string lanes = "posix";

constexpr char kPs[] = "/job:ps/task:0", kWorker0[] = "/job:worker/task:0",
               kWorker1[] = "/job:worker/task:1";

int EntriesOf(const std::string& folder) {
  DIR* const open = opendir(folder.c_str());
  int count = 0;
  while (open != nullptr && readdir(open) != nullptr) ++count;
  if (open != nullptr) closedir(open);
  return count;
}

// What a daemon has of the system's.
struct Use {
  int64_t resident_kb = 0;
  int descriptors = 0, threads = 0, mappings = 0;
};

Use UseOf(TestCluster& cluster, const std::string& job, int task) {
  const std::string process = "/proc/" + std::to_string(cluster.daemon(job, task).pid()) + "/";
  return {.resident_kb = cluster.StatusOf(job, task).resident_bytes() / 1024,
          .descriptors = EntriesOf(process + "fd"),
          .threads = EntriesOf(process + "task"),
          .mappings = EntriesOf(process + "map_files")};
}

void Print(const char* what, const std::string& task, int count, const Use& before,
           const Use& after) {
  std::printf(
      "%s %d: %s: resident %+lld KB (%.2f KB each), descriptors %+d, threads %+d, mappings %+d\n",
      what, count, task.c_str(), static_cast<long long>(after.resident_kb - before.resident_kb),
      static_cast<double>(after.resident_kb - before.resident_kb) / count,
      after.descriptors - before.descriptors, after.threads - before.threads,
      after.mappings - before.mappings);
  std::fflush(stdout);
}

Tensor Ones(int64_t elements) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{elements}).value();
  std::fill_n(tensor.data<float>(), elements, 1.0f);
  return tensor;
}

SessionOptions Options() {
  SessionOptions options;
  options.transport.lanes = lanes;
  return options;
}

// Sums of what goes ps/0 -> worker/0 -> ps/0.
struct Steady {
  Steady() : graph(NewGraph()) {
    const Scope root(&graph);
    x = Placeholder(root, DT_FLOAT, {-1});
    sum = Sum(root.WithDevice(kPs), Neg(root.WithDevice(kWorker0), Neg(root.WithDevice(kPs), x)),
              {0});
    EXPECT_TRUE(root.ok()) << root.status();
  }
  Graph graph;
  Output x, sum;
};

// Much that worker/1 sends to both others and to the client, and gets from them, large and small.
struct Bulk {
  Bulk() : graph(NewGraph()) {
    const Scope root(&graph), far = root.WithDevice(kWorker1);
    x = Placeholder(root, DT_FLOAT, {-1});
    for (int i = 0; i < 6; ++i) {
      const Output sent = Neg(far, x);
      for (const char* near : {kPs, kWorker0}) {
        const Scope there = root.WithDevice(near);
        const Output small = Sum(far, Neg(there, sent), {0});
        sums.push_back(Neg(there, small));
      }
    }
    sums.push_back(Neg(far, x));
    const Output there = Neg(root.WithDevice(kWorker0), Neg(root.WithDevice(kPs), x));
    without_far = {Sum(root.WithDevice(kPs), there, {0}), there};
    EXPECT_TRUE(root.ok()) << root.status();
  }
  Status Run(Session& session, const Tensor& value) const {
    return session.Run({{x, value}}, sums).status();
  }
  Status RunWithoutFar(Session& session, const Tensor& value) const {
    const auto got = session.Run({{x, value}}, without_far);
    if (!got.ok()) return got.status();
    EXPECT_EQ(got->at(0).scalar<float>(), static_cast<float>(value.shape().elements()));
    EXPECT_TRUE(SameBits(got->at(1), value));
    return Status();
  }
  Graph graph;
  Output x;
  Outputs sums, without_far;
};

// Runs steps of the first two daemons until it is destroyed; none may fail.
class SteadyClient {
 public:
  explicit SteadyClient(TestCluster& cluster) {
    SessionOptions options = Options();
    options.device_filters = {"/job:ps", kWorker0};
    session_ = cluster.Connect(program_.graph, std::move(options));
    thread_ = std::thread([this] { Work(); });
  }
  ~SteadyClient() {
    end_ = true;
    thread_.join();
  }
  long steps() const { return steps_; }
  // Waits until it has run so many more; false after 10 s.
  bool GoesOn(long more) const {
    const long wanted = steps_ + more;
    for (const auto until = Clock::now() + 10s; Clock::now() < until && steps_ < wanted;)
      std::this_thread::sleep_for(1ms);
    return steps_ >= wanted;
  }
  std::chrono::milliseconds longest() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(longest_.load());
  }

 private:
  void Work() {
    const Tensor value = Ones(30'000);
    while (!end_) {
      const auto begin = Clock::now();
      const auto got = session_->Run({{program_.x, value}}, {program_.sum});
      longest_ = std::max(longest_.load(), Clock::now() - begin);
      ASSERT_TRUE(got.ok()) << "the steady session: " << got.status();
      ASSERT_EQ(got->at(0).scalar<float>(), 30'000.0f);
      ++steps_;
    }
  }

  const Steady program_;
  std::unique_ptr<Session> session_;
  std::atomic<long> steps_{0};
  std::atomic<bool> end_{false};
  std::atomic<Clock::duration> longest_{Clock::duration()};
  std::thread thread_;
};

class SessionCampaign : public ::testing::Test {
 protected:
  SessionCampaign() : cluster({.ps = 1, .workers = 2, .flags = {"--lanes=" + lanes}}) {}
  // A session that was opened at once, and its first step.
  std::unique_ptr<Session> MustWork() {
    auto session = cluster.Connect(bulk.graph, Options());
    const auto begin = Clock::now();
    const Status status = bulk.Run(*session, value);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LT(Clock::now() - begin, 10s);
    return session;
  }
  TestCluster cluster;
  const Bulk bulk;
  const Tensor value = Ones(250'000);
};

// Other sessions notice nothing. Of its own, a step that does not need it, and was under way, may
// fail; those after it do not.
TEST_F(SessionCampaign, AKilledSenderHarmsNobodyButItsOwnSteps) {
  std::mt19937 random(seed);
  SteadyClient steady(cluster);
  Use ps, worker;
  int held_up = 0;
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    auto session = MustWork();
    if (kill == kills / 4) {  // what is kept for later use is there
      ps = UseOf(cluster, "ps", 0);
      worker = UseOf(cluster, "worker", 0);
    }
    Status ended, beside;
    std::atomic<bool> lost{false};
    Clock::time_point last_of_beside;
    std::thread traffic([&] {
      while (ended.ok()) ended = bulk.Run(*session, value);
      lost = true;
    });
    std::thread living([&] {
      while (beside.ok() && !lost) beside = bulk.RunWithoutFar(*session, value);
      last_of_beside = Clock::now();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    cluster.daemon("worker", 1).Signal(SIGKILL);
    const auto killed = Clock::now();
    traffic.join();
    EXPECT_LT(Clock::now() - killed, 5s);
    ExpectError(ended, Code::kUnavailable, {"/job:worker/replica:0/task:1"});
    for (int step = 0; step < 10; ++step) {
      const auto begin = Clock::now();
      const Status after = bulk.RunWithoutFar(*session, value);
      EXPECT_TRUE(after.ok()) << "step " << step << " after the loss: " << after;
      EXPECT_LT(Clock::now() - begin, 2s);
    }
    living.join();
    EXPECT_LT(last_of_beside - killed, 3500ms) << beside;
    if (!beside.ok()) {
      ++held_up;
      EXPECT_EQ(beside.code(), Code::kUnavailable) << beside;
    }
    EXPECT_TRUE(steady.GoesOn(20)) << "after " << steady.steps() << " steps";
    const auto closing = Clock::now();
    session = nullptr;
    EXPECT_LT(Clock::now() - closing, 5s);
    cluster.Start("worker", 1);
  }
  auto session = MustWork();
  const int measured = kills - kills / 4;
  const Use ps_after = UseOf(cluster, "ps", 0), worker_after = UseOf(cluster, "worker", 0);
  Print("kills", "ps/0", measured, ps, ps_after);
  Print("kills", "worker/0", measured, worker, worker_after);
  std::printf(
      "steps of the same session that were under way, did not need the killed task and "
      "failed: %d of %d\n",
      held_up, kills);
  std::printf("steps of the other session: %ld, the longest took %lld ms\n", steady.steps(),
              static_cast<long long>(steady.longest().count()));
  for (const auto& [before, after] : {std::pair(ps, ps_after), std::pair(worker, worker_after)}) {
    EXPECT_LE(after.descriptors, before.descriptors + 4);
    EXPECT_LE(after.threads, before.threads + 2);
    // A payload of this test has 1 MB: none is kept for good.
    if (!kSanitized) {
      EXPECT_LE(after.resident_kb - before.resident_kb, 8'000 + 60 * measured);
    }
  }
}

TEST_F(SessionCampaign, SessionsThatAreOpenedAndClosedLeaveNothing) {
  SteadyClient steady(cluster);
  for (int i = 0; i < 5; ++i) MustWork();
  const Use before = UseOf(cluster, "worker", 0);
  const auto begin = Clock::now();
  for (int i = 0; i < sessions && !HasFailure(); ++i) {
    if (i % 10 == 0) {
      MustWork();
    } else {
      (void)cluster.Connect(bulk.graph, Options());
    }
  }
  const double took = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  const Use after = UseOf(cluster, "worker", 0);
  Print("sessions", "worker/0", sessions, before, after);
  std::printf("%.1f ms for a session\n", took / sessions);
  EXPECT_EQ(after.descriptors, before.descriptors);
  // A pool starts a thread when it first needs one.
  EXPECT_LE(after.threads, before.threads + 2);
  if (!kSanitized) {  // who keep what was freed
    EXPECT_LE(after.resident_kb - before.resident_kb, 4'000 + 3 * sessions);
  }
  EXPECT_TRUE(steady.GoesOn(20));
}

// The reason for which sessions once shared endpoints: UCX pairs the endpoints of two workers in
// the order in which they were made.
TEST_F(SessionCampaign, ASessionThatEndsInTheMiddleOfTransfersLeavesThoseOfAnotherOneAlone) {
  std::mt19937 random(seed);
  auto other = MustWork();
  for (int round = 0; round < std::max(10, kills / 4) && !HasFailure(); ++round) {
    auto session = MustWork();
    std::thread traffic([&] {
      while (bulk.Run(*session, value).ok()) {
      }
    });
    std::atomic<bool> closed{false};
    std::thread closer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      EXPECT_TRUE(session->Close().ok());
      closed = true;
    });
    while (!closed) {
      const Status status = bulk.Run(*other, value);
      ASSERT_TRUE(status.ok()) << status;
    }
    closer.join();
    traffic.join();
    std::swap(session, other);  // the newer one goes on next time
    other = MustWork();
  }
}

TEST_F(SessionCampaign, ATaskThatWasStoppedIsOfUseAgainAtOnce) {
  SteadyClient steady(cluster);
  for (int round = 0; round < 2; ++round) {
    auto session = MustWork();
    Status ended;
    std::thread traffic([&] {
      while (ended.ok()) ended = bulk.Run(*session, value);
    });
    cluster.daemon("worker", 1).Signal(SIGSTOP);
    traffic.join();  // by heartbeats
    ExpectError(ended, Code::kUnavailable, {"/job:worker/replica:0/task:1"});
    cluster.daemon("worker", 1).Signal(SIGCONT);
    MustWork();
    EXPECT_TRUE(steady.GoesOn(20));
  }
}

bool TakeFlag(std::string_view argument) {
  const size_t equals = argument.find('=');
  if (!argument.starts_with("--") || equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(2, equals - 2), text = argument.substr(equals + 1);
  const auto number = [&text](auto* value) {
    const char* const end = text.data() + text.size();
    return std::from_chars(text.data(), end, *value).ptr == end && *value > 0;
  };
  if (name == "lanes") lanes = text;
  return name == "lanes" || (name == "kills" && number(&kills)) ||
         (name == "sessions" && number(&sessions)) || (name == "seed" && number(&seed));
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (monograph::TakeFlag(argv[i])) continue;
    std::fprintf(stderr, "%s: %s: use --kills=N --sessions=N --seed=N --lanes=LANES\n", argv[0],
                 argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
