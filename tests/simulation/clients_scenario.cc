// Clients that come and go, some of them killed in the middle of what they do, also while daemons
// are slow to open their sessions. The daemons free what they had, and serve the next.
#include <thread>

#include "base/mutex.h"
#include "base/thread.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/host.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::seconds;

struct SharedCounts {
  Mutex mutex;
  Counts counts MG_GUARDED_BY(mutex);
};

void RunGuest(const DisturbedCluster& cluster, const CountingGraph& counting, int number,
              bool lives, SharedCounts* shared) {
  SessionOptions options;
  options.key = cluster.key();
  options.start_timeout = seconds(5);
  Result<std::unique_ptr<Session>> session =
      Session::Connect(cluster.spec(), counting.graph, options);
  if (!session.ok()) {
    if (lives) Fail("no session: " + session.status().ToString());
    return;
  }
  for (int step = 0; step < 3; ++step) {
    const int field = 3 * number + step;
    const auto& member = counting.members[Draw(counting.members.size())];
    {
      MutexLock lock(shared->mutex);
      shared->counts.Try(field);
    }
    const auto ran =
        (*session)->Run({{member.feed, counting.Of(field)}}, {counting.value}, {member.update});
    if (!ran.ok()) {
      if (lives) Fail("a step failed: " + ran.status().ToString());
      break;
    }
    MutexLock lock(shared->mutex);
    if (lives) shared->counts.Confirm(field);
    shared->counts.Check(ran->at(0), "a fetched value", /*before=*/true);
  }
  const Within time(kCloseEnds, "closing the session");
  (void)(*session)->Close();
}

}  // namespace

void RunClientsThatGo() {
  DisturbedCluster cluster(1);
  const CountingGraph counting(cluster.device(cluster.ps()),
                               {cluster.device(0), cluster.device(cluster.ps())});
  cluster.Keeps(counting.bytes());
  SharedCounts shared;
  HoldThreads(false);  // clients that live lose nobody
  {
    const auto first = MustConnect(cluster, counting.graph, seconds(5));
    if (const auto made = first->Run({}, {}, {counting.init}); !made.ok())
      Fail("the first step failed: " + made.status().ToString());
  }
  const bool all_go = Draw(2) == 0;
  HoldThreads(all_go);
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number) {
    const int host = cluster.network().AddHost("client-" + std::to_string(number));
    const bool lives = !all_go && Draw(2) == 0;
    threads.push_back(StartThread("client-" + std::to_string(number), [&, number, host, lives] {
      const OnHost there(host);
      RunGuest(cluster, counting, number, lives, &shared);
    }));
    if (lives) continue;
    threads.push_back(StartThread("killer-" + std::to_string(number), [&cluster, host] {
      std::this_thread::sleep_for(SomeTime(16));
      if (Draw(2) == 0) {
        cluster.network().Kill(host);
      } else {
        cluster.network().Crash(host);
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  HoldThreads(false);
  const auto last = MustConnect(cluster, counting.graph, seconds(5));
  const auto value = last->Run({}, {counting.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  MutexLock lock(shared.mutex);
  shared.counts.Check(value->at(0), "the variable");
}

}  // namespace monograph::simulation
