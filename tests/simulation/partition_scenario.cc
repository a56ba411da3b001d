// Links that are cut while a step runs, so that no task is lost to the client, or one only: a
// worker and the ps do not see each other any more. Each step that needs the link ends with an
// error that names one of the two, soon; after the heal a new session works at once.
#include <thread>

#include "base/device_name.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kNoticed{6'000};

// How a step may fail: not at all; by the loss of a task; or by that of a tensor whose sender is
// named, because a connection may break without anybody being lost.
enum class Fails { kNever, kByTask, kByTransfer };

void CutStep(DisturbedCluster& cluster, Session& session, const CountingGraph& counting, int worker,
             Counts* counts, int field, Fails fails) {
  const auto& member = counting.members[static_cast<size_t>(worker)];
  counts->Try(field);
  const Within time(kNoticed, "a step over a link that is cut");
  const auto ran = session.Run({{member.feed, counting.Of(field)}}, {member.sum}, {member.update});
  Note("step of field " + std::to_string(field) + ": " + ran.status().ToString());
  if (ran.ok()) return counts->Confirm(field);
  if (fails == Fails::kNever) Fail("a step failed: " + ran.status().ToString());
  DeviceName sender = DeviceName::Parse(cluster.device(worker)).value();
  sender.replica = 0;
  const bool by_transfer = fails == Fails::kByTransfer &&
                           ran.status().message().find(sender.TaskName()) != std::string::npos;
  if (ran.status().code() != Code::kUnavailable ||
      (ran.status().lost_task().empty() && !by_transfer))
    Fail("a cut link is told as " + ran.status().ToString());
}

}  // namespace

void RunPartition() {
  DisturbedCluster cluster(2);
  const int ps = cluster.host(cluster.ps()), worker = cluster.host(0);
  const CountingGraph counting(cluster.device(cluster.ps()),
                               {cluster.device(0), cluster.device(1)});
  cluster.Keeps(counting.bytes());
  Counts counts;
  HoldThreads(false);
  std::unique_ptr<Session> session = MustConnect(cluster, counting.graph, seconds(5));
  if (const auto made = session->Run({}, {}, {counting.init}); !made.ok())
    Fail("the first step failed: " + made.status().ToString());
  CutStep(cluster, *session, counting, 0, &counts, 0, Fails::kNever);
  // Whoever watches over links may have fallen asleep meanwhile.
  if (Draw(3) == 0) std::this_thread::sleep_for(milliseconds(Draw(8000)));
  HoldThreads(Draw(2) == 0);
  const uint64_t ways = Draw(4);
  std::thread cut([&cluster, ways, ps, worker] {
    std::this_thread::sleep_for(SomeTime(14));
    Note("cut");
    if (ways == 0) cluster.network().CutOneWay(ps, worker);
    if (ways == 1) cluster.network().CutOneWay(worker, ps);
    if (ways == 2) cluster.network().Cut(ps, worker);
    if (ways == 3) cluster.network().Break(ps, worker);
  });
  for (int step = 1; step < 4; ++step) {
    CutStep(cluster, *session, counting, 0, &counts, step,
            ways == 3 ? Fails::kByTransfer : Fails::kByTask);
    std::this_thread::sleep_for(SomeTime(12));
  }
  cut.join();
  // What does not need the link goes on.
  if (Draw(2) == 0) (void)session->Run({}, {counting.value});
  if (Draw(2) == 0) (void)session->Close();
  cluster.network().HealAll();
  HoldThreads(false);
  std::unique_ptr<Session> next = MustConnect(cluster, counting.graph, seconds(5));
  cluster.network().Replay(worker, ps);
  cluster.network().Replay(ps, worker);
  for (int step = 4; step < 7; ++step)
    CutStep(cluster, *next, counting, step % 2, &counts, step, Fails::kNever);
  const auto value = next->Run({}, {counting.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  counts.Check(value->at(0), "the variable");
  const Within time(kCloseEnds, "closing the sessions");
  (void)next->Close();
  (void)session->Close();
}

}  // namespace monograph::simulation
