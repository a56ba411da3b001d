// PlanSegments: a topological order; forwards, the set of host nodes that each node waits for
// (needs); backwards, the set that its segment may wait for without delaying anybody (joins): what
// all its consumers have in common; a segment for each device and set; and in each segment list
// scheduling by the longest path to the end. Sets are rows of bits, one for each host node that
// feeds a GPU directly, so that a union or an intersection is a few instructions. The joint nodes
// of a device have a bit together, which is in the needs of what follows, and wait for the union of
// what they need. PlanReplay then cuts the order of one segment.
#include "executor/gpu/segments.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

// Sets of host nodes, one row of bits per node.
class Sets {
 public:
  Sets(size_t rows, size_t bits) : words_((bits + 63) / 64), data_(rows * words_) {}
  std::span<uint64_t> of(size_t row) { return {data_.data() + row * words_, words_}; }
  void Unite(size_t row, size_t other) {
    for (size_t i = 0; i < words_; ++i) of(row)[i] |= of(other)[i];
  }
  void Intersect(size_t row, std::span<const uint64_t> other) {
    for (size_t i = 0; i < words_; ++i) of(row)[i] &= other[i];
  }
  void Add(size_t row, size_t bit) { of(row)[bit / 64] |= uint64_t{1} << (bit % 64); }

 private:
  const size_t words_;
  std::vector<uint64_t> data_;
};

}  // namespace

SegmentPlan PlanSegments(std::span<const SegmentNode> nodes) {
  const size_t count = nodes.size();
  const auto at = [](int32_t node) { return static_cast<size_t>(node); };
  std::vector<std::vector<int32_t>> after(count);
  for (size_t i = 0; i < count; ++i) {
    for (const int32_t source : nodes[i].before)
      after[at(source)].push_back(static_cast<int32_t>(i));
  }
  const std::vector<int32_t> order =
      TopologicalSort(count, NextReady::kFirstIn, [&](int32_t node, const auto& visit) {
        for (const int32_t target : after[at(node)]) visit(target);
      });
  MG_CHECK(order.size() == count);

  // Only host nodes that feed a GPU directly need a bit: what they wait for is in their own set.
  std::vector<int32_t> bit(count, -1);
  size_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    if (nodes[i].device >= 0) continue;
    const bool feeds = std::any_of(after[i].begin(), after[i].end(),
                                   [&](int32_t n) { return nodes[at(n)].device >= 0; });
    if (feeds) bit[i] = static_cast<int32_t>(bits++);
  }
  // The joint nodes of a device are a host node to all that follows them.
  std::map<int32_t, int32_t> joint_bit;
  for (size_t i = 0; i < count; ++i) {
    if (!nodes[i].joint) continue;
    const auto [known, fresh] = joint_bit.emplace(nodes[i].device, static_cast<int32_t>(bits));
    if (fresh) ++bits;
    bit[i] = known->second;
  }
  // needs: the host nodes that a node itself waits for. joins: those that its segment waits for.
  Sets needs(count, bits), joins(count, bits);
  const auto find_needs = [&] {
    for (const int32_t node : order) {
      for (const int32_t source : nodes[at(node)].before) {
        const bool only_order = nodes[at(node)].joint && nodes[at(source)].joint &&
                                nodes[at(node)].device == nodes[at(source)].device;
        if (only_order) continue;
        needs.Unite(at(node), at(source));
        if (bit[at(source)] >= 0) needs.Add(at(node), static_cast<size_t>(bit[at(source)]));
      }
    }
  };
  find_needs();
  if (!joint_bit.empty()) {
    // What any joint node needs all of them do, and so does what follows.
    std::map<int32_t, size_t> first;
    for (size_t i = 0; i < count; ++i) {
      if (!nodes[i].joint) continue;
      needs.Unite(first.emplace(nodes[i].device, i).first->second, i);
    }
    for (size_t i = 0; i < count; ++i) {
      if (nodes[i].joint) needs.Unite(i, first.at(nodes[i].device));
    }
    find_needs();
  }
  std::vector<int64_t> rank(count);
  for (size_t i = count; i-- > 0;) {
    const size_t node = at(order[i]);
    int64_t longest = 0;
    bool first = true;
    for (const int32_t target : after[node]) {
      longest = std::max(longest, rank[at(target)]);
      if (nodes[node].device < 0 || nodes[node].joint) continue;
      auto& row = nodes[at(target)].device >= 0 ? joins : needs;
      if (first) {
        std::ranges::copy(row.of(at(target)), joins.of(node).begin());
      } else {
        joins.Intersect(node, row.of(at(target)));
      }
      first = false;
    }
    if (first) std::ranges::copy(needs.of(node), joins.of(node).begin());
    rank[node] = longest + nodes[node].cost;
  }

  // One segment per device, region and set. Nodes of one set in several regions make no cycle,
  // either: a kernel's region has the conditions of all that it reads, and more.
  SegmentPlan plan;
  plan.segment_of.assign(count, -1);
  std::map<std::tuple<int32_t, int32_t, std::vector<uint64_t>>, int32_t> found;
  for (const int32_t node : order) {
    if (nodes[at(node)].device < 0) continue;
    const auto row = joins.of(at(node));
    const auto [it, fresh] =
        found.emplace(std::tuple(nodes[at(node)].device, nodes[at(node)].region,
                                 std::vector<uint64_t>(row.begin(), row.end())),
                      static_cast<int32_t>(plan.segments.size()));
    if (fresh) plan.segments.push_back({.device = nodes[at(node)].device});
    plan.segment_of[at(node)] = it->second;
  }

  // List scheduling within each.
  const auto later = [&](int32_t a, int32_t b) {
    return rank[at(a)] != rank[at(b)] ? rank[at(a)] < rank[at(b)] : a > b;
  };
  std::vector<std::priority_queue<int32_t, std::vector<int32_t>, decltype(later)>> ready(
      plan.segments.size(),
      std::priority_queue<int32_t, std::vector<int32_t>, decltype(later)>(later));
  const auto inside = [&](int32_t a, int32_t b) {
    return plan.segment_of[at(a)] >= 0 && plan.segment_of[at(a)] == plan.segment_of[at(b)];
  };
  std::vector<size_t> missing(count);  // sources within the segment that did not come yet
  for (const int32_t node : order) {
    missing[at(node)] = static_cast<size_t>(
        std::count_if(nodes[at(node)].before.begin(), nodes[at(node)].before.end(),
                      [&](int32_t source) { return inside(source, node); }));
    const int32_t segment = plan.segment_of[at(node)];
    if (segment >= 0 && missing[at(node)] == 0) ready[at(segment)].push(node);
  }
  for (size_t segment = 0; segment < plan.segments.size(); ++segment) {
    auto& list = plan.segments[segment].nodes;
    while (!ready[segment].empty()) {
      const int32_t node = ready[segment].top();
      ready[segment].pop();
      list.push_back(node);
      for (const int32_t target : after[at(node)]) {
        if (inside(node, target) && --missing[at(target)] == 0) ready[segment].push(target);
      }
    }
  }
  return plan;
}

std::vector<ReplayRange> PlanReplay(std::span<const ReplayItem> items, int32_t min_nodes) {
  std::vector<ReplayRange> ranges;
  const auto end = static_cast<int32_t>(items.size());
  int32_t first_joint = end, last_joint = -1;
  for (int32_t i = 0; i < end; ++i) {
    if (!items[static_cast<size_t>(i)].joint) continue;
    first_joint = std::min(first_joint, i);
    last_joint = i;
  }
  for (int32_t i = 0; i < end;) {
    ReplayRange range{i, i, items[static_cast<size_t>(i)].replayable};
    while (range.end < end && items[static_cast<size_t>(range.end)].replayable == range.replay) {
      const bool leaves = items[static_cast<size_t>(range.end)].leaves &&
                          (range.end < first_joint || range.end >= last_joint);
      ++range.end;
      if (range.replay && leaves && range.end - range.begin >= min_nodes) break;
    }
    if (range.replay && range.end - range.begin < min_nodes) range.replay = false;
    i = range.end;
    if (!range.replay && !ranges.empty() && !ranges.back().replay) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace monograph
