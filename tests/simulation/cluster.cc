#include "tests/simulation/cluster.h"

#include <thread>

#include "base/pool_allocator.h"
#include "base/thread.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A daemon whose clients have gone has freed everything by then: it hears of a machine that is
// gone after 2.5 s, and closing a session may take some seconds more.
constexpr seconds kFreed{20};
constexpr seconds kKept{60};
// A handshake of TLS takes a quarter of a millisecond, as much as a hundred decisions.
constexpr uint64_t kKeyOneIn = 16;

control::Key SomeKey() {
  control::Key key;
  for (uint8_t& byte : key.bytes) byte = static_cast<uint8_t>(Draw(256));
  return key;
}

}  // namespace

DisturbedCluster::DisturbedCluster(int workers)
    : has_key_(Draw(kKeyOneIn) == 0),
      network_({.seed = Draw(~uint64_t{0}),
                .window = size_t{16} << (10 + Draw(5)),
                .loopback = !has_key_}),
      cluster_(&network_, {{"worker", workers}, {"ps", 1}},
               has_key_ ? std::optional<control::KeyRing>(SomeKey()) : std::nullopt) {
  for (int i = 0; i < workers; ++i)
    tasks_.push_back({"worker-" + std::to_string(i), "/job:worker/task:" + std::to_string(i)});
  tasks_.push_back({"ps-0", "/job:ps/task:0"});
  if (const Status started = cluster_.Start(); !started.ok())
    Fail("the cluster does not start: " + started.ToString());
  bytes_before_ = HostPool().bytes_in_use();
}

DisturbedCluster::~DisturbedCluster() {
  network_.HealAll();
  for (int task = 0; task < tasks(); ++task) CheckIdle(task);
  // What came for collectives that never began is kept for their time.
  const Clock::time_point until = Clock::now() + kKept;
  while (HostPool().bytes_in_use() > bytes_before_ + bytes_kept_) {
    if (Clock::now() > until) {
      Fail("without sessions the daemons hold " +
           std::to_string(HostPool().bytes_in_use() - bytes_before_) + " bytes of tensors");
    }
    std::this_thread::sleep_for(milliseconds(500));
  }
}

void DisturbedCluster::CheckIdle(int task) const {
  const Clock::time_point until = Clock::now() + kFreed;
  while (server(task) != nullptr) {
    const WorkerStats stats = server(task)->worker().stats();
    if (stats.sessions + stats.graphs + stats.running_steps == 0 && stats.messages_leaving == 0)
      return;
    if (Clock::now() > until) {
      Fail(device(task) + " still has " + std::to_string(stats.sessions) + " sessions, " +
           std::to_string(stats.graphs) + " graphs, " + std::to_string(stats.running_steps) +
           " steps and " + std::to_string(stats.messages_leaving) + " messages that leave");
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
}

void DisturbedCluster::Kill(int task, bool told) {
  if (server(task) != nullptr) cluster_.Kill(of(task).name, /*whole_machine=*/!told);
}

void DisturbedCluster::Restart(int task) {
  if (server(task) != nullptr) return;
  if (const Status started = cluster_.Restart(of(task).name); !started.ok())
    Fail(device(task) + " does not start again: " + started.ToString());
  ++tasks_[static_cast<size_t>(task)].life;
}

void DisturbedCluster::Repair() {
  network_.HealAll();
  for (int a = 0; a <= tasks(); ++a) {
    for (int b = 0; b <= tasks(); ++b) {
      if (a != b) network_.SetLink(a, b, {});
    }
  }
  for (int task = 0; task < tasks(); ++task) Restart(task);
}

void DisturbedCluster::Disturb() {
  // Machine 0 is the client's.
  const auto some_host = [this] {
    return static_cast<int>(Draw(static_cast<uint64_t>(tasks()) + 1));
  };
  const int a = some_host();
  const int b = (a + 1 + static_cast<int>(Draw(static_cast<uint64_t>(tasks())))) % (tasks() + 1);
  const int task = static_cast<int>(Draw(static_cast<uint64_t>(tasks())));
  const std::string between = " " + std::to_string(a) + " and " + std::to_string(b);
  std::string what;
  switch (Draw(10)) {
    case 0:
      network_.Cut(a, b);
      what = "cut between" + between;
      break;
    case 1:
      network_.CutOneWay(a, b);
      what = "cut one way between" + between;
      break;
    case 2:
      network_.Break(a, b);
      what = "connections broken between" + between;
      break;
    case 3:
      network_.Isolate(host(task));
      what = device(task) + " isolated";
      break;
    case 4:
    case 5:
      Kill(task, true);
      what = device(task) + " killed";
      break;
    case 6:
      Kill(task, false);
      what = device(task) + " crashed";
      break;
    case 7:
      network_.Repeat(a, b);
      what = "all comes twice from" + between;
      break;
    case 8:
      network_.SetLink(a, b,
                       {.delay = milliseconds(Draw(1000)), .jitter = milliseconds(Draw(300))});
      what = "a slow link between" + between;
      break;
    default:
      network_.SetLink(
          a, b,
          {.delay = microseconds(50), .jitter = milliseconds(Draw(50)), .bytes_per_second = 1e4});
      what = "a narrow link between" + between;
      break;
  }
  Note(what);
}

Trouble::Trouble(DisturbedCluster* cluster)
    : thread_(StartThread("trouble", [cluster] {
        const uint64_t times = 1 + Draw(2);
        for (uint64_t i = 0; i < times; ++i) {
          std::this_thread::sleep_for(SomeTime(22));
          cluster->Disturb();
        }
        if (Draw(3) != 0) return;
        std::this_thread::sleep_for(milliseconds(Draw(4000)));
        Note("links heal");
        cluster->network().HealAll();
      })) {}

microseconds SomeTime(int bits) {
  return microseconds(Draw(uint64_t{1} << Draw(static_cast<uint64_t>(bits) + 1)));
}

std::unique_ptr<Session> MustConnect(const DisturbedCluster& cluster, const Graph& graph,
                                     seconds limit, const SessionOptions& options) {
  const Within time(limit, "connecting");
  SessionOptions with_key = options;
  with_key.key = cluster.key();
  Result<std::unique_ptr<Session>> session = Session::Connect(cluster.spec(), graph, with_key);
  if (!session.ok()) Fail("no session: " + session.status().ToString());
  return std::move(session).value();
}

Within::~Within() {
  const auto took = Clock::now() - began_;
  if (took <= limit_) return;
  Fail(what_ + " has taken " +
           std::to_string(std::chrono::duration_cast<milliseconds>(took).count()) +
           " ms; at most " + std::to_string(limit_.count()) + " are right",
       /*with_threads=*/true);
}

}  // namespace monograph::simulation
