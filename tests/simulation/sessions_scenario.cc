// Sessions one after another on daemons that live on. What each of them had is given back when it
// is closed, also where a step was given up: neither tensors nor the heap grow. The place of a step
// that was given up can be used again.
#include <thread>

#include "base/pool_allocator.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/heap.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The first ones make what is made once, and lists grow to their size.
constexpr int kFirst = 4, kMore = 6;
// A session's own record at a daemon has more than 8 KiB.
constexpr int64_t kMayStay = 2048;
constexpr seconds kSettled{5};

// Steps of a session of its own; the second one may have to be given up.
void RunSession(const DisturbedCluster& cluster, const CountingGraph& counting, bool first,
                bool gives_up, bool all_places) {
  const auto session = MustConnect(cluster, counting.graph, seconds(5));
  if (first && !session->Run({}, {}, {counting.init}).ok()) Fail("the first step failed");
  const auto& member = counting.members[0];
  for (int step = 0; step < 2; ++step) {
    RunOptions options;
    const bool late = gives_up && step == 1;
    if (late) options.timeout = milliseconds(1);
    const auto ran =
        session->Run({{member.feed, counting.Of(0, 0)}}, {member.sum}, {member.update}, options);
    if (!ran.ok() && !late) Fail("a step failed: " + ran.status().ToString());
  }
  if (all_places) {
    const auto ran = session->Run({{member.feed, counting.Of(0, 0)}}, {}, {member.update},
                                  {.steps = kAllPlaces});
    if (!ran.ok()) Fail("one of many steps failed: " + ran.status().ToString());
  }
  const Within time(seconds(1), "closing a session");
  if (const Status closed = session->Close(); !closed.ok())
    Fail("closing failed: " + closed.ToString());
}

}  // namespace

void RunSessions() {
  HoldThreads(false);
  DisturbedCluster cluster(1);
  const CountingGraph counting(cluster.device(cluster.ps()), {cluster.device(0)});
  const bool give_up = Draw(2) == 0;
  if (give_up) {
    const Link slow{.delay = milliseconds(2)};
    cluster.network().SetLink(0, cluster.host(Draw(2) == 0 ? 0 : cluster.ps()), slow);
  }
  int64_t heap = 0, tensors = 0;
  for (int i = 0; i < kFirst + kMore; ++i) {
    // The first session's lists have grown to their size.
    const bool all_places = give_up && (i == 0 || i + 1 == kFirst + kMore);
    RunSession(cluster, counting, i == 0, all_places || (give_up && Draw(2) == 0), all_places);
    if (i + 1 == kFirst) {
      cluster.Keeps(counting.bytes());
      std::this_thread::sleep_for(kSettled);
      heap = HeapBytes();
      tensors = HostPool().bytes_in_use();
    }
  }
  std::this_thread::sleep_for(kSettled);
  const int64_t more = HeapBytes() - heap, more_tensors = HostPool().bytes_in_use() - tensors;
  if (more > kMore * kMayStay || more_tensors > 0) {
    Fail(std::to_string(kMore) + " sessions leave " + std::to_string(more) +
         " bytes of the heap and " + std::to_string(more_tensors) + " bytes of tensors");
  }
}

}  // namespace monograph::simulation
