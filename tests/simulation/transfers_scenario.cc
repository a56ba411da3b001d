// A connection between two tasks that breaks while a tensor is on its way, which the part that
// waits for it may not know: the client's word to begin comes to it later. Nobody is lost, so the
// step ends as soon as it is clear that no cause will be told, and the next session works. Before
// that a step may have been given up at its deadline, so long ago that whoever watches over
// deadlines has none to look for.
#include <thread>

#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The connection breaks after 50 ms. The client then asks both tasks for a heartbeat, which takes
// as long as its messages to the parameter server: both answer, so that no cause is to be expected.
constexpr milliseconds kBrokenOffEnds{200};

}  // namespace

void RunTransfers() {
  HoldThreads(false);
  DisturbedCluster cluster(1);
  const int ps = cluster.host(cluster.ps()), worker = cluster.host(0);
  const CountingGraph counting(cluster.device(cluster.ps()), {cluster.device(0)},
                               CountingGraph::kLong);
  cluster.Keeps(counting.bytes());
  Counts counts;
  std::unique_ptr<Session> session = MustConnect(cluster, counting.graph, seconds(5));
  const auto& member = counting.members[0];
  const auto step = [&](int field, const RunOptions& options = {}) {
    counts.Try(field);
    const auto ran =
        session->Run({{member.feed, counting.Of(field)}}, {}, {member.update}, options);
    if (ran.ok()) counts.Confirm(field);
    return ran.status();
  };
  if (!session->Run({}, {}, {counting.init}).ok() || !step(0).ok()) Fail("a step failed");
  if (Draw(2) == 0) {
    cluster.network().SetLink(0, worker, {.delay = milliseconds(5)});
    const Status status = step(3, {.timeout = milliseconds(1)});
    if (status.code() != Code::kDeadlineExceeded)
      Fail("a step that is late ends as " + status.ToString());
    cluster.network().SetLink(0, worker, {});
    std::this_thread::sleep_for(seconds(2));
  }
  // What the worker sends takes 100 ms; the connection breaks when half of it has come.
  cluster.network().SetLink(worker, ps, {.bytes_per_second = 1e5});
  const milliseconds late(Draw(2) == 0 ? 0 : 200);
  cluster.network().SetLink(0, ps, {.delay = late});
  std::thread breaks([&] {
    std::this_thread::sleep_for(milliseconds(50));
    Note("breaks");
    cluster.network().Break(worker, ps);
  });
  {
    const Within time(2 * late + kBrokenOffEnds, "a step whose transfer has broken off");
    if (const Status status = step(1); status.ok()) Fail("a lost tensor has come");
  }
  breaks.join();
  cluster.Repair();
  {
    const Within time(seconds(1), "closing the session");
    (void)session->Close();
  }
  session = MustConnect(cluster, counting.graph, seconds(5));
  if (const Status status = step(2); !status.ok()) Fail("a step failed: " + status.ToString());
  const auto value = session->Run({}, {counting.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  counts.Check(value->at(0), "the variable");
}

}  // namespace monograph::simulation
