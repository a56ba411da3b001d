// The steps of a collective (exchange_plan.h), written from the view of one rank. Where two ranks
// send each other several things in one step, both list them by lane (a gather: by whose value it
// is), of which each has at most one for a pair and direction.
#include "executor/gpu/exchange_plan.h"

#include <algorithm>
#include <utility>

namespace monograph {
namespace {

// Where share `share` of `shares` begins.
int64_t ShareBegin(int64_t units, int share, int shares) { return units * share / shares; }

// By node, its first rank; then the number of ranks. REQUIRES: they come in runs.
NodeRanks RunsOf(std::span<const uint64_t> nodes) {
  NodeRanks first;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (rank == 0 || nodes[rank] != nodes[rank - 1]) first.push_back(static_cast<int>(rank));
  }
  first.push_back(static_cast<int>(nodes.size()));
  return first;
}

int WidestOf(const NodeRanks& first) {
  int widest = 0;
  for (size_t node = 0; node + 1 < first.size(); ++node)
    widest = std::max(widest, first[node + 1] - first[node]);
  return widest;
}

}  // namespace

NodeOrder NodeOrderOf(std::span<const uint64_t> nodes) {
  std::vector<uint64_t> sorted(nodes.begin(), nodes.end());
  std::sort(sorted.begin(), sorted.end());
  const auto count =
      static_cast<size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  if (count == 1) return NodeOrder::kOneNode;
  if (count == nodes.size()) return NodeOrder::kOneEach;
  return RunsOf(nodes).size() == count + 1 ? NodeOrder::kRuns : NodeOrder::kScattered;
}

NodeRanks ChooseNodes(std::span<const uint64_t> nodes, size_t bytes) {
  if (NodeOrderOf(nodes) == NodeOrder::kRuns) {
    NodeRanks runs = RunsOf(nodes);
    if (static_cast<size_t>(WidestOf(runs)) * bytes > kSmallNodeBytes) return runs;
  }
  return {0, static_cast<int>(nodes.size())};
}

int ChoosePieces(const NodeRanks& nodes, size_t bytes) {
  const auto count = static_cast<int>(nodes.size()) - 1;
  if (count == 1) return 1;
  const size_t fitting = bytes / static_cast<size_t>(WidestOf(nodes)) / kPieceBytesOfAGpu;
  const auto most = static_cast<size_t>(kPiecesPerStep * (2 * count - 1));
  return static_cast<int>(std::clamp<size_t>(fitting, 1, most));
}

ExchangePlan::ExchangePlan(Kind kind, NodeRanks nodes, int64_t units, int pieces, int sender)
    : kind_(kind), first_(std::move(nodes)), pieces_(pieces), sender_(sender) {
  std::vector<int64_t> cuts{0, units};
  for (size_t node = 0; node + 1 < first_.size(); ++node) {
    const int shares = first_[node + 1] - first_[node];
    for (int share = 1; share < shares; ++share) cuts.push_back(ShareBegin(units, share, shares));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Lane& lane = lanes_.emplace_back(Lane{{cuts[i], cuts[i + 1]}, {}});
    for (size_t node = 0; node + 1 < first_.size(); ++node) {
      const int shares = first_[node + 1] - first_[node];
      int share = 0;
      while (ShareBegin(units, share + 1, shares) <= lane.units.begin) ++share;
      lane.owners.push_back(first_[node] + share);
    }
  }
}

ExchangePlan ExchangePlan::Reduce(NodeRanks nodes, int64_t units, int pieces) {
  return {Kind::kReduce, std::move(nodes), units, pieces, -1};
}

ExchangePlan ExchangePlan::Broadcast(NodeRanks nodes, int64_t units, int pieces, int sender) {
  return {Kind::kBroadcast, std::move(nodes), units, pieces, sender};
}

ExchangePlan ExchangePlan::Gather(NodeRanks nodes) {
  return {Kind::kGather, std::move(nodes), 0, 1, -1};
}

int ExchangePlan::steps() const {
  switch (kind_) {
    case Kind::kReduce:
      return lanes_.empty() ? 0 : pieces_ + 2 * nodes() - 1;
    case Kind::kBroadcast:
      return lanes_.empty() ? 0 : pieces_ + nodes();
    case Kind::kGather:
      return nodes() == 1 ? 1 : 2;
  }
  return 0;
}

int ExchangePlan::NodeOf(int rank) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), rank) - first_.begin()) -
         1;
}

UnitRange ExchangePlan::Piece(const Lane& lane, int piece) const {
  if (piece < 0 || piece >= pieces_) return {};
  const int64_t units = lane.units.end - lane.units.begin;
  return {lane.units.begin + ShareBegin(units, piece, pieces_),
          lane.units.begin + ShareBegin(units, piece + 1, pieces_)};
}

template <typename Fn>
void ExchangePlan::ForMates(int rank, Fn fn) const {
  const auto node = static_cast<size_t>(NodeOf(rank));
  for (int mate = first_[node]; mate < first_[node + 1]; ++mate) {
    if (mate != rank) fn(mate);
  }
}

ExchangePlan::Step ExchangePlan::At(int step, int rank) const {
  Step todo;
  if (kind_ == Kind::kGather) AddGather(step, rank, &todo);
  for (const Lane& lane : lanes_) {
    if (kind_ == Kind::kReduce) AddReduce(lane, step, rank, &todo);
    if (kind_ == Kind::kBroadcast) AddBroadcast(lane, step, rank, &todo);
  }
  return todo;
}

// On node n, of H, piece p is added up in step p + n, goes on in the next, comes back as the sum in
// step p + 2 H - 2 - n, and goes on in the next.
void ExchangePlan::AddReduce(const Lane& lane, int step, int rank, Step* todo) const {
  const int node = NodeOf(rank), last = nodes() - 1;
  const auto n = static_cast<size_t>(node);
  const int owner = lane.owners[n];
  // The first node's only input needs no sum to be the sum of its inputs.
  const bool adds = node > 0 || first_[1] > 1;
  if (const UnitRange units = Piece(lane, step - node); !units.empty()) {
    if (rank != owner) {
      todo->sends.push_back({owner, units, Place::kInput});
    } else {
      ForMates(rank, [&](int mate) { todo->receives.push_back({mate, units, Place::kTerm}); });
      if (node > 0) todo->receives.push_back({lane.owners[n - 1], units, Place::kResult});
      if (adds) todo->sums.push_back({units, node > 0, first_[n], first_[n + 1]});
    }
  }
  if (const UnitRange units = Piece(lane, step - node - 1);
      rank == owner && node < last && !units.empty())
    todo->sends.push_back({lane.owners[n + 1], units, adds ? Place::kResult : Place::kInput});
  if (const UnitRange units = Piece(lane, step - (2 * last - node));
      rank == owner && node < last && !units.empty())
    todo->receives.push_back({lane.owners[n + 1], units, Place::kResult});
  const UnitRange sum = Piece(lane, step - (2 * last + 1 - node));
  if (sum.empty()) return;
  if (rank != owner) {
    todo->receives.push_back({owner, sum, Place::kResult});
    return;
  }
  ForMates(rank, [&](int mate) { todo->sends.push_back({mate, sum, Place::kResult}); });
  if (node > 0) todo->sends.push_back({lane.owners[n - 1], sum, Place::kResult});
}

// The owner on the sender's node has piece p after step p, that of the node k further on after step
// p + k; it passes it on in the next.
void ExchangePlan::AddBroadcast(const Lane& lane, int step, int rank, Step* todo) const {
  const int node = NodeOf(rank), start = NodeOf(sender_);
  const auto n = static_cast<size_t>(node);
  const int further = (node - start + nodes()) % nodes();
  const int owner = lane.owners[n];
  if (const UnitRange units = Piece(lane, step - further); !units.empty()) {
    const int dealt_to = lane.owners[static_cast<size_t>(start)];
    if (further > 0 && rank == owner) {
      const auto before = static_cast<size_t>((node + nodes() - 1) % nodes());
      todo->receives.push_back({lane.owners[before], units, Place::kResult});
    } else if (further == 0 && rank == sender_ && rank != dealt_to) {
      todo->sends.push_back({dealt_to, units, Place::kResult});
    } else if (further == 0 && rank == dealt_to && rank != sender_) {
      todo->receives.push_back({sender_, units, Place::kResult});
    }
  }
  const UnitRange units = Piece(lane, step - further - 1);
  if (units.empty()) return;
  if (rank == owner) {
    ForMates(rank, [&](int mate) {
      if (mate != sender_) todo->sends.push_back({mate, units, Place::kResult});
    });
    if (further + 1 < nodes())
      todo->sends.push_back({lane.owners[(n + 1) % lane.owners.size()], units, Place::kResult});
  } else if (rank != sender_) {
    todo->receives.push_back({owner, units, Place::kResult});
  }
}

void ExchangePlan::AddGather(int step, int rank, Step* todo) const {
  const int ranks = first_.back(), node = NodeOf(rank);
  // Who gets the value of `from` on node `to`, and passes it on there.
  const auto relay = [&](int from, int to) {
    const auto own = static_cast<size_t>(NodeOf(from)), other = static_cast<size_t>(to);
    return first_[other] + (from - first_[own]) * (first_[other + 1] - first_[other]) /
                               (first_[own + 1] - first_[own]);
  };
  for (int from = 0; from < ranks; ++from) {
    const UnitRange value{from, from + 1};
    const int home = NodeOf(from);
    const bool near = home == node;
    if (step == 0 && from == rank) {
      ForMates(rank, [&](int mate) { todo->sends.push_back({mate, value, Place::kResult}); });
      for (int other = 0; other < nodes(); ++other) {
        if (other != node) todo->sends.push_back({relay(rank, other), value, Place::kResult});
      }
    } else if (step == 0 && (near || relay(from, node) == rank)) {
      todo->receives.push_back({from, value, Place::kResult});
    } else if (step == 1 && !near && relay(from, node) == rank) {
      ForMates(rank, [&](int mate) { todo->sends.push_back({mate, value, Place::kResult}); });
    } else if (step == 1 && !near) {
      todo->receives.push_back({relay(from, node), value, Place::kResult});
    }
  }
}

}  // namespace monograph
