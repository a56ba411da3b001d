// Collectives: two or three workers sum their feeds, driven by one client or by a client each,
// while something may be lost. A sum is right or there is none, and every step ends, soon where it
// is only the link between two workers that is cut.
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

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSums = 3;
// Members with clients of their own wait so long for one that never begins, and then for what the
// abort takes. Where one client has them all it knows better.
constexpr double kTimeoutSeconds = 5, kTimeoutTogether = 100;
// What happens meanwhile: nothing, anything, the link between two workers is cut, which they notice
// before their connection ends, or the first client is content with one sum and goes.
enum class Loss { kNone, kAny, kLink, kMember };
constexpr milliseconds kLinkNoticed{6'000};

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

// Cuts the link between the first two workers, in one direction or both, soon.
void CutSoon(DisturbedCluster* cluster) {
  std::this_thread::sleep_for(SomeTime(12));
  Note("cut");
  if (Draw(2) == 0) {
    cluster->network().CutOneWay(cluster->host(0), cluster->host(1));
  } else {
    cluster->network().Cut(cluster->host(0), cluster->host(1));
  }
}

// Steps of one client with the members of these ranks. Where nothing is lost none may fail.
void RunMembers(DisturbedCluster* cluster, int members, const std::vector<int>& ranks, Loss loss) {
  const bool must = loss == Loss::kNone;
  const SumGraph sums(*cluster, members, ranks);
  SessionOptions options;
  options.key = cluster->key();
  options.start_timeout = seconds(10);
  Result<std::unique_ptr<Session>> session = [&] {
    const Within time(kCloseEnds, "connecting");
    return Session::Connect(cluster->spec(), sums.graph, options);
  }();
  if (!session.ok()) {
    if (loss == Loss::kNone || loss == Loss::kLink)
      Fail("no session: " + session.status().ToString());
    return;
  }
  std::thread cut;
  if (loss == Loss::kLink) cut = StartThread("cut", [cluster] { CutSoon(cluster); });
  const int steps = loss == Loss::kMember && ranks.front() == 0 ? 1 : kSums;
  for (int step = 0; step < steps; ++step) {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < ranks.size(); ++i)
      feeds.emplace_back(sums.feeds[i], FeedOf(ranks[i], step));
    const Within time(loss == Loss::kLink ? kLinkNoticed : kRunEnds, "a step of a collective");
    const auto ran = (*session)->Run(feeds, sums.sums);
    Note("sum " + std::to_string(step) + ": " + ran.status().ToString());
    if (!ran.ok()) {
      if (must) Fail("a sum failed: " + ran.status().ToString());
      break;  // other clients count their steps by themselves
    }
    for (const Tensor& sum : *ran) CheckSum(sum, members, step);
  }
  if (cut.joinable()) cut.join();
  const Within time(kCloseEnds, "closing the session");
  (void)(*session)->Close();
}

// All members, by one client or by one each.
void RunClients(DisturbedCluster* cluster, int members, bool together, Loss loss) {
  HoldThreads(loss != Loss::kNone);
  std::optional<Trouble> trouble;
  if (loss == Loss::kAny) trouble.emplace(cluster);
  if (together) {
    std::vector<int> ranks;
    for (int rank = 0; rank < members; ++rank) ranks.push_back(rank);
    return RunMembers(cluster, members, ranks, loss);
  }
  std::vector<std::thread> clients;
  for (int rank = 0; rank < members; ++rank) {
    clients.push_back(StartThread("client-" + std::to_string(rank),
                                  [=] { RunMembers(cluster, members, {rank}, loss); }));
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace

void RunAllReduce() {
  const int members = 2 + static_cast<int>(Draw(2));
  DisturbedCluster cluster(members);
  const bool together = Draw(2) == 0;
  Loss loss = Draw(6) == 0 ? Loss::kNone : Loss::kAny;
  if (loss == Loss::kAny && Draw(3) == 0) loss = together ? Loss::kLink : Loss::kMember;
  RunClients(&cluster, members, together, loss);
  cluster.Repair();
  RunClients(&cluster, members, together, Loss::kNone);
}

}  // namespace monograph::simulation
