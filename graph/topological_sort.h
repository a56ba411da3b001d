// Kahn's algorithm over nodes 0 .. count-1 of a graph of any kind. The function
// for_each_target(node, visit) tells its edges: it calls visit(target) for each that leaves `node`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/names.h"

namespace monograph {

// Which of several nodes whose sources have all come is next.
enum class NextReady {
  kFirstIn,   // the one that has been ready for longest
  kLastIn,    // the one that became ready last: what follows from a node comes close behind it
  kSmallest,  // by number, so that nodes stay in the order in which they are where it fits
};

// Every edge's source before its target. Nodes that become ready together are in the order of
// their numbers, or in which for_each_target names them. What is in a cycle, or follows from one,
// is missing.
template <typename ForEachTarget>
std::vector<int32_t> TopologicalSort(size_t count, NextReady next,
                                     const ForEachTarget& for_each_target) {
  std::vector<uint32_t> missing(count);
  const auto missing_of = [&](int32_t node) -> uint32_t& {
    return missing[static_cast<size_t>(node)];
  };
  const auto size = static_cast<int32_t>(count);
  for (int32_t node = 0; node < size; ++node)
    for_each_target(node, [&](int32_t target) { ++missing_of(target); });
  std::vector<int32_t> order, ready;
  order.reserve(count);
  for (int32_t node = 0; node < size; ++node) {
    if (missing_of(node) == 0) ready.push_back(node);
  }
  if (next == NextReady::kFirstIn) {
    order.insert(order.end(), ready.begin(), ready.end());  // it is the queue, too
    for (size_t i = 0; i < order.size(); ++i) {
      for_each_target(order[i], [&](int32_t target) {
        if (--missing_of(target) == 0) order.push_back(target);
      });
    }
    return order;
  }
  const bool smallest = next == NextReady::kSmallest;  // a heap; else a stack
  if (!smallest) std::reverse(ready.begin(), ready.end());
  while (!ready.empty()) {
    if (smallest) std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const int32_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    const auto added = static_cast<ptrdiff_t>(ready.size());
    for_each_target(node, [&](int32_t target) {
      if (--missing_of(target) > 0) return;
      ready.push_back(target);
      if (smallest) std::push_heap(ready.begin(), ready.end(), std::greater<>());
    });
    if (!smallest) std::reverse(ready.begin() + added, ready.end());
  }
  return order;
}

// "'a' -> 'b' -> 'a'": a cycle among the nodes that `order` lacks, by the names that name_of(node)
// gives. REQUIRES: TopologicalSort made `order`, and nodes are missing.
template <typename ForEachTarget, typename NameOf>
std::string CycleText(size_t count, const std::vector<int32_t>& order,
                      const ForEachTarget& for_each_target, const NameOf& name_of) {
  constexpr size_t kMaxListed = 10;
  std::vector<bool> done(count);
  for (const int32_t node : order) done[static_cast<size_t>(node)] = true;
  // Each missing node has a missing source: from any of them the way back ends in a cycle.
  std::vector<int32_t> before(count, -1), path;
  for (int32_t node = 0; node < static_cast<int32_t>(count); ++node) {
    if (done[static_cast<size_t>(node)]) continue;
    for_each_target(node, [&](int32_t target) {
      if (before[static_cast<size_t>(target)] < 0) before[static_cast<size_t>(target)] = node;
    });
  }
  auto node = static_cast<int32_t>(std::find(done.begin(), done.end(), false) - done.begin());
  for (; !done[static_cast<size_t>(node)]; node = before[static_cast<size_t>(node)]) {
    path.push_back(node);
    done[static_cast<size_t>(node)] = true;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), node));
  std::reverse(path.begin(), path.end());
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string text;
  for (size_t i = 0; i < path.size() && i < kMaxListed; ++i)
    text += Quoted(name_of(path[i])) + " -> ";
  if (path.size() > kMaxListed) text += "... -> ";
  return text + Quoted(name_of(path[0]));
}

}  // namespace monograph
