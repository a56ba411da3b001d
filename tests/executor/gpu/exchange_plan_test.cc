// Plans of exchanges between GPUs, played without any: who ends up with what, in which order it was
// added up, and how much left each node.
#include "executor/gpu/exchange_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace monograph {
namespace {

using Place = ExchangePlan::Place;
using Move = ExchangePlan::Move;

// Which ranks' inputs a value is the sum of, in the order of additions; empty: nothing yet.
using Value = std::vector<int>;

struct Played {
  std::vector<std::vector<Value>> results;  // by rank and unit
  std::vector<int64_t> left, entered;       // units, by node
};

NodeRanks Nodes(const std::vector<int>& sizes) {
  NodeRanks first{0};
  for (const int size : sizes) first.push_back(first.back() + size);
  return first;
}

size_t NodeOf(const NodeRanks& first, int rank) {
  size_t node = 0;
  while (first[node + 1] <= rank) ++node;
  return node;
}

// Does all ranks' steps, one after the other. `results`: at the beginning.
Played Play(const ExchangePlan& plan, const NodeRanks& first,
            std::vector<std::vector<Value>> results) {
  const int ranks = first.back();
  Played played{std::move(results), std::vector<int64_t>(first.size() - 1),
                std::vector<int64_t>(first.size() - 1)};
  for (int s = 0; s < plan.steps(); ++s) {
    struct Parcel {
      UnitRange units;
      std::vector<Value> values;
    };
    std::map<std::pair<int, int>, std::vector<Parcel>> sent;  // by sender and receiver
    std::vector<ExchangePlan::Step> steps;
    for (int rank = 0; rank < ranks; ++rank) {
      steps.push_back(plan.At(s, rank));
      for (const Move& move : steps.back().sends) {
        EXPECT_NE(move.rank, rank);
        EXPECT_FALSE(move.units.empty());
        Parcel parcel{move.units, {}};
        for (int64_t unit = move.units.begin; unit < move.units.end; ++unit) {
          parcel.values.push_back(
              move.place == Place::kInput
                  ? Value{rank}
                  : played.results[static_cast<size_t>(rank)][static_cast<size_t>(unit)]);
        }
        sent[{rank, move.rank}].push_back(std::move(parcel));
        const size_t from = NodeOf(first, rank), to = NodeOf(first, move.rank);
        if (from == to) continue;
        played.left[from] += move.units.end - move.units.begin;
        played.entered[to] += move.units.end - move.units.begin;
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const ExchangePlan::Step& step = steps[static_cast<size_t>(rank)];
      auto& result = played.results[static_cast<size_t>(rank)];
      std::map<std::pair<int, int64_t>, Value> terms;  // by rank and unit
      for (const Move& move : step.receives) {
        auto& parcels = sent[{move.rank, rank}];
        if (parcels.empty() || !(parcels.front().units == move.units)) {
          ADD_FAILURE() << "in step " << s << " rank " << rank << " receives of " << move.rank
                        << " what is not sent next";
          return played;
        }
        for (int64_t unit = move.units.begin; unit < move.units.end; ++unit) {
          const auto index = static_cast<size_t>(unit - move.units.begin);
          Value& to = move.place == Place::kTerm ? terms[{move.rank, unit}]
                                                 : result[static_cast<size_t>(unit)];
          to = parcels.front().values[index];
          EXPECT_FALSE(to.empty()) << "step " << s << ", rank " << rank;
        }
        parcels.erase(parcels.begin());
      }
      for (const ExchangePlan::Sum& sum : step.sums) {
        EXPECT_GE(sum.end - sum.begin + (sum.continues ? 1 : 0), 2);
        for (int64_t unit = sum.units.begin; unit < sum.units.end; ++unit) {
          Value& to = result[static_cast<size_t>(unit)];
          if (!sum.continues) to.clear();
          for (int from = sum.begin; from < sum.end; ++from) {
            const Value term = from == rank ? Value{rank} : terms[{from, unit}];
            to.insert(to.end(), term.begin(), term.end());
          }
        }
      }
    }
    for (const auto& [pair, parcels] : sent)
      EXPECT_TRUE(parcels.empty()) << "what " << pair.first << " sends " << pair.second;
  }
  return played;
}

struct Layout {
  std::vector<int> sizes;
  int64_t units;
  int pieces;
};
// Every way to lie on nodes meets every way to be cut.
template <typename Fn>
void ForLayouts(Fn fn) {
  const std::vector<std::vector<int>> layouts = {
      {2},          {5},       {2, 2},       {3, 2},       {2, 3},      {1, 2},
      {4, 1},       {1, 1, 4}, {1, 3, 1, 2}, {4, 4, 4},    {8, 6, 3},   {1, 1},
      {8, 8, 8, 8}, {2, 1, 1}, {1, 5, 2},    {7, 5, 3, 2}, {16, 16, 15}};
  for (const auto& sizes : layouts) {
    for (const int64_t units : {0, 1, 2, 3, 7, 60, 100}) {
      for (const int pieces : {1, 2, 5}) {
        std::string name =
            std::to_string(units) + " units in " + std::to_string(pieces) + " pieces on nodes of";
        for (const int size : sizes) name += " " + std::to_string(size);
        SCOPED_TRACE(name);
        fn(Layout{sizes, units, pieces});
      }
    }
  }
}

TEST(ExchangePlan, ASumIsMadeInRankOrderAndTwiceItsBytesLeaveANode) {
  ForLayouts([](const Layout& layout) {
    const NodeRanks first = Nodes(layout.sizes);
    const auto ranks = static_cast<size_t>(first.back());
    const auto units = static_cast<size_t>(layout.units);
    const auto plan = ExchangePlan::Reduce(first, layout.units, layout.pieces);
    const Played played =
        Play(plan, first, std::vector<std::vector<Value>>(ranks, std::vector<Value>(units)));
    Value all;
    for (int rank = 0; rank < first.back(); ++rank) all.push_back(rank);
    for (const auto& result : played.results) {
      for (const Value& value : result) ASSERT_EQ(value, all);
    }
    const size_t nodes = layout.sizes.size();
    for (size_t node = 0; node < nodes; ++node) {
      const int64_t ways = (node > 0 ? 1 : 0) + (node + 1 < nodes ? 1 : 0);
      EXPECT_EQ(played.left[node], ways * layout.units);
      EXPECT_EQ(played.entered[node], ways * layout.units);
    }
    EXPECT_EQ(plan.steps(), units == 0 ? 0 : layout.pieces + 2 * static_cast<int>(nodes) - 1);
  });
}

TEST(ExchangePlan, ABroadcastLeavesEachNodeOnceButTheLast) {
  ForLayouts([](const Layout& layout) {
    const NodeRanks first = Nodes(layout.sizes);
    const auto units = static_cast<size_t>(layout.units);
    for (const int sender : {0, first.back() / 2, first.back() - 1}) {
      std::vector<std::vector<Value>> begin(static_cast<size_t>(first.back()),
                                            std::vector<Value>(units));
      begin[static_cast<size_t>(sender)].assign(units, Value{sender});
      const Played played =
          Play(ExchangePlan::Broadcast(first, layout.units, layout.pieces, sender), first, begin);
      for (const auto& result : played.results) {
        for (const Value& value : result) ASSERT_EQ(value, Value{sender});
      }
      const size_t nodes = layout.sizes.size(), start = NodeOf(first, sender);
      for (size_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(played.left[node], (node + 1) % nodes == start ? 0 : layout.units);
        EXPECT_EQ(played.entered[node], node == start ? 0 : layout.units);
      }
    }
  });
}

TEST(ExchangePlan, AGatherSendsEachValueOnceToEachOtherNode) {
  ForLayouts([](const Layout& layout) {
    if (layout.units != 1 || layout.pieces != 1) return;  // it has neither
    const NodeRanks first = Nodes(layout.sizes);
    const auto ranks = static_cast<size_t>(first.back());
    std::vector<std::vector<Value>> begin(ranks, std::vector<Value>(ranks));
    for (int rank = 0; rank < first.back(); ++rank)
      begin[static_cast<size_t>(rank)][static_cast<size_t>(rank)] = {rank};
    const Played played = Play(ExchangePlan::Gather(first), first, begin);
    for (const auto& result : played.results) {
      for (size_t unit = 0; unit < ranks; ++unit)
        ASSERT_EQ(result[unit], Value{static_cast<int>(unit)});
    }
    for (size_t node = 0; node < layout.sizes.size(); ++node) {
      EXPECT_EQ(played.left[node],
                layout.sizes[node] * static_cast<int64_t>(layout.sizes.size() - 1));
      EXPECT_EQ(played.entered[node], first.back() - layout.sizes[node]);
    }
  });
}

// What a GPU adds up and sends is the same for all of its node, but for what cuts round.
TEST(ExchangePlan, TheGpusOfANodeHaveEqualShares) {
  const NodeRanks first = Nodes({3, 2});
  const auto plan = ExchangePlan::Reduce(first, 6000, 4);
  for (int rank = 0; rank < 5; ++rank) {
    int64_t summed = 0;
    for (int s = 0; s < plan.steps(); ++s) {
      for (const ExchangePlan::Sum& sum : plan.At(s, rank).sums)
        summed += sum.units.end - sum.units.begin;
    }
    EXPECT_EQ(summed, rank < 3 ? 2000 : 3000);
  }
}

TEST(ExchangePlan, GoesAlongNodesWhoseRanksComeInRunsIfItIsLarge) {
  using Numbers = std::vector<uint64_t>;
  const size_t large = 1 << 20;
  EXPECT_EQ(NodeOrderOf(Numbers{7, 7, 7}), NodeOrder::kOneNode);
  EXPECT_EQ(NodeOrderOf(Numbers{7, 3, 5}), NodeOrder::kOneEach);
  EXPECT_EQ(NodeOrderOf(Numbers{7, 7, 3}), NodeOrder::kRuns);
  EXPECT_EQ(NodeOrderOf(Numbers{7, 3, 7}), NodeOrder::kScattered);
  EXPECT_EQ(ChooseNodes(Numbers{7, 7, 7}, large), (NodeRanks{0, 3}));
  EXPECT_EQ(ChooseNodes(Numbers{7, 3, 5}, large), (NodeRanks{0, 3}));
  EXPECT_EQ(ChooseNodes(Numbers{7, 3, 7}, large), (NodeRanks{0, 3}));
  EXPECT_EQ(ChooseNodes(Numbers{7, 7, 3, 5, 5, 5}, large), (NodeRanks{0, 2, 3, 6}));
  EXPECT_EQ(ChooseNodes(Numbers{7, 7, 3, 5, 5, 5}, 1000), (NodeRanks{0, 6}));
}

TEST(ExchangePlan, PiecesAreSoMany) {
  EXPECT_EQ(ChoosePieces({0, 8}, size_t{1} << 30), 1);
  EXPECT_EQ(ChoosePieces({0, 8, 16}, 1 << 20), 1);
  EXPECT_EQ(ChoosePieces({0, 8, 16}, 40 << 20), 5);
  EXPECT_EQ(ChoosePieces({0, 8, 16}, size_t{1} << 30), 12);
  EXPECT_EQ(ChoosePieces({0, 8, 16, 20}, size_t{1} << 30), 20);
}

}  // namespace
}  // namespace monograph
