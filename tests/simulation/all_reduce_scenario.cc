// Collectives: two to four workers sum their feeds, driven by one client or by a client each, while
// something may be lost. A sum is right or there is none, and every step ends.
#include <optional>
#include <thread>

#include "base/thread.h"
#include "client/registries.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::seconds;

constexpr int kSums = 3;
// Members with clients of their own wait so long for one that never begins, and then for what the
// abort takes. Where one client has them all it knows better.
constexpr double kTimeoutSeconds = 5, kTimeoutTogether = 100;

// What member `rank` adds in a step: its own bit.
Tensor FeedOf(int rank, int step) {
  Tensor tensor = Tensor::Allocate(DT_INT64, Shape{5}).value();
  for (int i = 0; i < 5; ++i)
    tensor.data<int64_t>()[i] = (int64_t{1} << (8 * rank)) * (step + 1) + (i << 6);
  return tensor;
}

void CheckSum(const Tensor& sum, int members, int step) {
  for (int i = 0; i < 5; ++i) {
    int64_t right = 0;
    for (int rank = 0; rank < members; ++rank) right += FeedOf(rank, step).data<int64_t>()[i];
    if (sum.data<int64_t>()[i] != right)
      Fail("a wrong sum in step " + std::to_string(step) + ": " + sum.ToString());
  }
}

struct SumGraph {
  // Of the members of these ranks; all of them if `together`.
  SumGraph(const DisturbedCluster& cluster, int members, const std::vector<int>& ranks)
      : graph(NewGraph()) {
    const Scope root(&graph);
    const bool together = static_cast<int>(ranks.size()) == members;
    CollectiveGroup group{.size = members,
                          .key = 1,
                          .timeout_seconds = together ? kTimeoutTogether : kTimeoutSeconds};
    if (together) {
      for (int rank = 0; rank < members; ++rank) group.members.push_back(cluster.device(rank));
    }
    for (const int rank : ranks) {
      const Scope place = root.WithDevice(cluster.device(rank));
      feeds.push_back(Placeholder(place, DT_INT64, Shape{5}));
      sums.push_back(CollectiveReduce(place, feeds.back(), group, 1));
    }
    if (!root.ok()) Fail("the graph of sums is wrong: " + root.status().ToString());
  }

  Graph graph;
  std::vector<Output> feeds, sums;
};

// Steps of one client with the members of these ranks. With `must` none may fail.
void RunMembers(const DisturbedCluster& cluster, int members, const std::vector<int>& ranks,
                bool must) {
  const SumGraph sums(cluster, members, ranks);
  SessionOptions options;
  options.start_timeout = seconds(10);
  Result<std::unique_ptr<Session>> session = [&] {
    const Within time(kCloseEnds, "connecting");
    return Session::Connect(cluster.spec(), sums.graph, options);
  }();
  if (!session.ok()) {
    if (must) Fail("no session: " + session.status().ToString());
    return;
  }
  for (int step = 0; step < kSums; ++step) {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < ranks.size(); ++i)
      feeds.emplace_back(sums.feeds[i], FeedOf(ranks[i], step));
    const Within time(kRunEnds, "a step of a collective");
    const auto ran = (*session)->Run(feeds, sums.sums);
    Note("sum " + std::to_string(step) + ": " + ran.status().ToString());
    if (!ran.ok()) {
      if (must) Fail("a sum failed: " + ran.status().ToString());
      break;  // other clients count their steps by themselves
    }
    for (const Tensor& sum : *ran) CheckSum(sum, members, step);
  }
  const Within time(kCloseEnds, "closing the session");
  (void)(*session)->Close();
}

// All members, by one client or by one each.
void RunClients(DisturbedCluster* cluster, int members, bool together, bool disturbed) {
  HoldThreads(disturbed);
  std::optional<Trouble> trouble;
  if (disturbed) trouble.emplace(cluster);
  if (together) {
    std::vector<int> ranks;
    for (int rank = 0; rank < members; ++rank) ranks.push_back(rank);
    return RunMembers(*cluster, members, ranks, !disturbed);
  }
  std::vector<std::thread> clients;
  for (int rank = 0; rank < members; ++rank) {
    clients.push_back(StartThread("client-" + std::to_string(rank),
                                  [=] { RunMembers(*cluster, members, {rank}, !disturbed); }));
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace

void RunAllReduce() {
  const int members = 2 + static_cast<int>(Draw(2));
  DisturbedCluster cluster(members);
  const bool together = Draw(2) == 0;
  RunClients(&cluster, members, together, Draw(6) != 0);
  cluster.Repair();
  RunClients(&cluster, members, together, false);
}

}  // namespace monograph::simulation
