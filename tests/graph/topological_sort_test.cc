#include "graph/topological_sort.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

using Order = std::vector<int32_t>;

// Targets by node.
using Edges = std::vector<std::vector<int32_t>>;

auto ForEachTarget(const Edges& edges) {
  return [&edges](int32_t node, const auto& visit) {
    for (const int32_t target : edges[static_cast<size_t>(node)]) visit(target);
  };
}

Order Sorted(const Edges& edges, NextReady next) {
  return TopologicalSort(edges.size(), next, ForEachTarget(edges));
}

std::string Cycle(const Edges& edges) {
  return CycleText(edges.size(), Sorted(edges, NextReady::kFirstIn), ForEachTarget(edges),
                   [](int32_t node) { return std::to_string(node); });
}

TEST(TopologicalSort, WhatIsReadyComesInTheOrderThatIsAskedFor) {
  // Two chains, 3 -> 1 -> 0 and 4 -> 2, and 5 behind both ends.
  const Edges edges = {{5}, {0}, {5}, {1}, {2}, {}};
  EXPECT_EQ(Sorted(edges, NextReady::kFirstIn), (Order{3, 4, 1, 2, 0, 5}));
  EXPECT_EQ(Sorted(edges, NextReady::kLastIn), (Order{3, 1, 0, 4, 2, 5}));
  EXPECT_EQ(Sorted(edges, NextReady::kSmallest), (Order{3, 1, 0, 4, 2, 5}));
}

TEST(TopologicalSort, OfNodesThatBecomeReadyTogetherTheFirstNamedIsFirst) {
  const Edges edges = {{4, 2, 3}, {}, {}, {}, {}};
  EXPECT_EQ(Sorted(edges, NextReady::kFirstIn), (Order{0, 1, 4, 2, 3}));
  EXPECT_EQ(Sorted(edges, NextReady::kLastIn), (Order{0, 4, 2, 3, 1}));
  EXPECT_EQ(Sorted(edges, NextReady::kSmallest), (Order{0, 1, 2, 3, 4}));
}

TEST(TopologicalSort, AnEdgeThatIsThereTwiceCountsTwice) {
  EXPECT_EQ(Sorted({{1, 1}, {}}, NextReady::kFirstIn), (Order{0, 1}));
}

TEST(TopologicalSort, WhatIsInACycleOrBehindOneIsMissingAndTheCycleIsNamed) {
  const Edges edges = {{1}, {3}, {1, 4}, {2}, {}};  // 1 -> 3 -> 2 -> 1, and 4 behind it
  for (const NextReady next : {NextReady::kFirstIn, NextReady::kLastIn, NextReady::kSmallest})
    EXPECT_EQ(Sorted(edges, next), Order{0});
  EXPECT_EQ(Cycle(edges), "'1' -> '3' -> '2' -> '1'");
  EXPECT_EQ(Cycle({{}, {1, 2}, {}}), "'1' -> '1'");
}

TEST(TopologicalSort, ALongCycleIsCutShort) {
  Edges edges(12);
  for (int32_t i = 0; i < 12; ++i) edges[static_cast<size_t>(i)] = {(i + 1) % 12};
  EXPECT_EQ(Cycle(edges),
            "'0' -> '1' -> '2' -> '3' -> '4' -> '5' -> '6' -> '7' -> '8' -> '9' -> ... -> '0'");
}

}  // namespace
}  // namespace monograph
