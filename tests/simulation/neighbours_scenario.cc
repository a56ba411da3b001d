// Two sessions beside each other on the same tasks. One of them loses its worker, by any of the
// ways in which one can: its steps end with that worker's name. The other one, which has no part
// there, notices nothing: none of its steps fails, and none waits. But where that worker is one of
// its tasks, too, and was killed in the middle of a write, the step under way may fail.
#include <atomic>
#include <thread>

#include "base/thread.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kToldAfter{5000}, kUnharmed{1000};
// What a step waits at its beginning while those that are left connect anew.
constexpr milliseconds kRenewal{1000};
constexpr int kNeighbourSteps = 12;

class Neighbours {
 public:
  Neighbours()
      : counting_(cluster_.device(cluster_.ps()), {cluster_.device(0), cluster_.device(1)}),
        others_(cluster_.device(cluster_.ps()), {cluster_.device(1)}, counting_.elements) {}
  void Run();

 private:
  void LoseWorker();
  // One update of field 1, or of nothing.
  static Status Step(Session& session, const CountingGraph& counting, int updates);

  DisturbedCluster cluster_{2};
  const CountingGraph counting_, others_;  // of the same variable
};

// Worker 0 is the one that is lost.
void Neighbours::LoseWorker() {
  const uint64_t kind = Draw(5);
  Network& network = cluster_.network();
  Note("worker 0 is lost in way " + std::to_string(kind));
  switch (kind) {
    case 0:
    case 1:
      return cluster_.Kill(0, kind == 0);
    case 2:
      return network.Isolate(cluster_.host(0));
    case 3:
      return network.Cut(cluster_.host(0), cluster_.host(cluster_.ps()));
    default:
      return network.CutOneWay(cluster_.host(0), cluster_.host(cluster_.ps()));
  }
}

Status Neighbours::Step(Session& session, const CountingGraph& counting, int updates) {
  const auto& member = counting.members[0];
  return session.Run({{member.feed, counting.Of(1, updates)}}, {member.sum}, {member.update})
      .status();
}

void Neighbours::Run() {
  cluster_.Keeps(counting_.bytes());
  const auto losing = MustConnect(cluster_, counting_.graph, seconds(10));
  // It may leave the other one's worker out.
  SessionOptions options;
  const bool apart = Draw(2) == 0;
  if (apart) options.device_filters = {"/job:ps", "/job:worker/task:1"};
  const auto other = MustConnect(cluster_, others_.graph, seconds(10), options);
  if (const auto made = other->Run({}, {}, {others_.init}); !made.ok())
    Fail("the first step failed: " + made.status().ToString());
  std::atomic<bool> lost = false;
  Clock::time_point lost_at;
  std::thread loser = StartThread("loser", [&] {
    Status status;
    for (int i = 0; i < 10'000 && status.ok(); ++i) {
      status = Step(*losing, counting_, 0);
      std::this_thread::sleep_for(milliseconds(1 + i));
    }
    const auto took = Clock::now() - lost_at;
    if (status.lost_task().find("/job:worker") == std::string::npos ||
        status.lost_task().find("task:0") == std::string::npos) {
      Fail("the loss of worker 0 is told as one of '" + status.lost_task() +
           "': " + status.ToString());
    }
    if (!lost || took > kToldAfter)
      Fail("worker 0 is told to be lost " + std::to_string(took.count()) +
           " ns after it was: " + status.ToString());
    lost = false;
  });
  std::thread trouble = StartThread("trouble", [&] {
    std::this_thread::sleep_for(microseconds(Draw(uint64_t{1} << (4 + Draw(16)))));
    lost_at = Clock::now();
    lost = true;
    LoseWorker();
  });
  int failed = 0;
  for (int i = 0; i < kNeighbourSteps; ++i) {
    const std::string what = "a step beside a session that loses its worker";
    const auto began = Clock::now();
    const Status status = [&] {
      const Within time(apart ? kUnharmed : kRunEnds, what);
      return Step(*other, others_, 1);
    }();
    if (status.ok() && Clock::now() - began > kUnharmed + kRenewal) Fail(what + " waits");
    if (!status.ok() && (apart || status.code() != Code::kUnavailable || ++failed > 1))
      Fail(what + " fails: " + status.ToString());
    std::this_thread::sleep_for(milliseconds(Draw(600)));
  }
  trouble.join();
  loser.join();
  const auto value = other->Run({}, {others_.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  const int64_t seen = (value->at(0).data<int64_t>()[0] >> 4) & 15;
  if (seen > kNeighbourSteps || seen < kNeighbourSteps - failed)
    Fail(std::to_string(seen) + " updates of " + std::to_string(kNeighbourSteps));
  (void)losing->Close();
  if (const Status closed = other->Close(); !closed.ok())
    Fail("closing failed: " + closed.ToString());
}

}  // namespace

void RunNeighbours() { Neighbours().Run(); }

}  // namespace monograph::simulation
