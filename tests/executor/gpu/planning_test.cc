// Planning for GPUs, without one: launch order, segments, replayed stretches, shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "executor/gpu/lifetimes.h"
#include "executor/gpu/segments.h"

namespace monograph {
namespace {

std::vector<SegmentNode> RandomNodes(std::mt19937& random, int count, int gpus) {
  std::vector<SegmentNode> nodes;
  for (int i = 0; i < count; ++i) {
    SegmentNode node{.device = static_cast<int32_t>(random() % static_cast<unsigned>(gpus + 1)) - 1,
                     .cost = 1 + static_cast<int64_t>(random() % 10)};
    std::set<int32_t> before;
    for (unsigned k = random() % 4; k > 0 && i > 0; --k)
      before.insert(static_cast<int32_t>(random() % static_cast<unsigned>(i)));
    node.before.assign(before.begin(), before.end());
    nodes.push_back(node);
  }
  return nodes;
}

// Host nodes that a node waits for, through anything.
std::vector<std::set<int32_t>> HostsBefore(const std::vector<SegmentNode>& nodes) {
  std::vector<std::set<int32_t>> hosts(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const int32_t source : nodes[i].before) {
      const auto s = static_cast<size_t>(source);
      hosts[i].insert(hosts[s].begin(), hosts[s].end());
      if (nodes[s].device < 0) hosts[i].insert(source);
    }
  }
  return hosts;
}

TEST(Segments, HoldEachNodeOnceAndInTopologicalOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto nodes = RandomNodes(random, 60, 2);
    const SegmentPlan plan = PlanSegments(nodes);
    std::vector<int> place(nodes.size(), -1);
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      for (size_t i = 0; i < plan.segments[s].nodes.size(); ++i) {
        const auto node = static_cast<size_t>(plan.segments[s].nodes[i]);
        ASSERT_EQ(place[node], -1);
        place[node] = static_cast<int>(i);
        ASSERT_EQ(plan.segment_of[node], static_cast<int32_t>(s));
        ASSERT_EQ(nodes[node].device, plan.segments[s].device);
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      ASSERT_EQ(place[i] >= 0, nodes[i].device >= 0);
      if (place[i] < 0) continue;
      for (const int32_t source : nodes[i].before) {
        if (plan.segment_of[static_cast<size_t>(source)] == plan.segment_of[i]) {
          ASSERT_LT(place[static_cast<size_t>(source)], place[i]);
        }
      }
    }
  }
}

TEST(Segments, MakeNobodyOutsideWaitForMoreThanBefore) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    auto nodes = RandomNodes(random, 40, 2);
    const auto before = HostsBefore(nodes);
    const SegmentPlan plan = PlanSegments(nodes);
    // Whoever is in a segment waits for all that the segment waits for.
    std::vector<std::set<int32_t>> waits(nodes.size());
    bool changed = true;
    for (int pass = 0; changed && pass < 100; ++pass) {
      changed = false;
      for (size_t i = 0; i < nodes.size(); ++i) {
        const auto add = [&](const std::set<int32_t>& more) {
          for (const int32_t host : more) changed = waits[i].insert(host).second || changed;
        };
        for (const int32_t source : nodes[i].before) {
          add(waits[static_cast<size_t>(source)]);
          if (nodes[static_cast<size_t>(source)].device < 0) add({source});
        }
        if (plan.segment_of[i] < 0) continue;
        for (const int32_t mate : plan.segments[static_cast<size_t>(plan.segment_of[i])].nodes)
          add(waits[static_cast<size_t>(mate)]);
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      ASSERT_FALSE(waits[i].contains(static_cast<int32_t>(i))) << "waits for itself";
      if (nodes[i].device < 0) {
        ASSERT_EQ(waits[i], before[i]) << "host node " << i;
      }
    }
  }
}

// Nodes 5 and 7 of a chain on one device are joint: 5 needs one feed, 7 both.
TEST(Segments, JointNodesWaitForAllThatAnyOfThemNeedsAndNothingBehindThemIsWithThem) {
  std::vector<SegmentNode> nodes(10);  // 0, 1: feeds
  for (size_t i = 2; i < nodes.size(); ++i) nodes[i].device = 0;
  nodes[2].before = {0};
  nodes[3].before = {2};
  nodes[4].before = {3, 1};
  nodes[5].before = {3};
  nodes[6].before = {4};
  nodes[7].before = {6, 5};  // 5: only its order
  nodes[8].before = {5};
  nodes[9].before = {8, 7};
  nodes[5].joint = nodes[7].joint = true;
  const SegmentPlan plan = PlanSegments(nodes);
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_EQ(plan.segments[0].nodes, (std::vector<int32_t>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(plan.segments[1].nodes, (std::vector<int32_t>{8, 9}));
  // What leaves before keeps what leads to it out, as ever.
  nodes.push_back({.device = -1, .before = {3}});
  const SegmentPlan leaves = PlanSegments(nodes);
  ASSERT_EQ(leaves.segments.size(), 3u);
  EXPECT_EQ(leaves.segment_of[2], leaves.segment_of[3]);
  EXPECT_EQ(leaves.segment_of[4], leaves.segment_of[5]);
  EXPECT_EQ(leaves.segment_of[5], leaves.segment_of[7]);
}

TEST(Segments, TakeTheLongestPathFirst) {
  // 0 feeds a short branch (1) and a long one (2, 3, 4); 5 joins them.
  std::vector<SegmentNode> nodes(6);
  for (auto& node : nodes) node.device = 0;
  nodes[1].before = nodes[2].before = {0};
  nodes[3].before = {2};
  nodes[4].before = {3};
  nodes[5].before = {1, 4};
  EXPECT_EQ(PlanSegments(nodes).segments[0].nodes, (std::vector<int32_t>{0, 2, 3, 1, 4, 5}));
}

TEST(Segments, AModelWithoutHostInBetweenIsOneSegment) {
  // Two feeds; the second one is only needed at the end, and nothing leaves before.
  std::vector<SegmentNode> nodes(8);
  for (int i = 2; i < 7; ++i) {
    nodes[static_cast<size_t>(i)].device = 0;
    nodes[static_cast<size_t>(i)].before = {i == 2 ? 0 : i - 1};
  }
  nodes[6].before.push_back(1);
  nodes[7].before = {6};
  EXPECT_EQ(PlanSegments(nodes).segments.size(), 1u);
  // If a tensor leaves half way, what leads to it does not wait for the second feed.
  nodes.push_back({.device = -1, .before = {4}});
  const SegmentPlan plan = PlanSegments(nodes);
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_EQ(plan.segment_of[4], plan.segment_of[2]);
  EXPECT_NE(plan.segment_of[5], plan.segment_of[4]);
  EXPECT_EQ(plan.segment_of[5], plan.segment_of[6]);
}

TEST(Segments, AreTheSameForTheSameGraph) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const auto nodes = RandomNodes(random, 80, 3);
    const SegmentPlan first = PlanSegments(nodes), second = PlanSegments(nodes);
    ASSERT_EQ(first.segments.size(), second.segments.size());
    for (size_t i = 0; i < first.segments.size(); ++i)
      ASSERT_EQ(first.segments[i].nodes, second.segments[i].nodes);
  }
}

TEST(Replay, CutsBehindWhatLeavesOnceThereIsEnough) {
  const auto ranges = [](const std::string& text) {
    // r: replayable; R: and it leaves; n: not replayable
    std::vector<ReplayItem> items;
    for (const char c : text) items.push_back({c != 'n', c == 'R'});
    std::string out;
    for (const ReplayRange& range : PlanReplay(items, 3)) {
      out += (out.empty() ? "" : " ") + std::to_string(range.begin) + "-" +
             std::to_string(range.end) + (range.replay ? "r" : "n");
    }
    return out;
  };
  EXPECT_EQ(ranges("rrrrrr"), "0-6r");
  EXPECT_EQ(ranges("rrRrrrRrrr"), "0-3r 3-7r 7-10r");
  EXPECT_EQ(ranges("RrRrrr"), "0-3r 3-6r");
  EXPECT_EQ(ranges("rrrnrrr"), "0-3r 3-4n 4-7r");
  EXPECT_EQ(ranges("rrnrrnrrrr"), "0-6n 6-10r");
  EXPECT_EQ(ranges("nn"), "0-2n");
  EXPECT_EQ(ranges(""), "");
}

bool Together(const Lifetime& a, const Lifetime& b) {
  return a.birth < b.death && b.birth < a.death;
}

TEST(MemoryPlanning, BlocksThatLiveAtTheSameTimeNeverOverlap) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> blocks;
    for (int i = 0; i < 100; ++i) {
      const auto birth = static_cast<int32_t>(random() % 100);
      blocks.push_back({random() % 5000, birth, birth + 1 + static_cast<int32_t>(random() % 20)});
    }
    const MemoryPlan plan = PlanMemory(blocks, 256);
    size_t most = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(plan.offsets[i] % 256, 0u);
      ASSERT_LE(plan.offsets[i] + blocks[i].bytes, plan.bytes);
      size_t live = 0;
      for (size_t j = 0; j < blocks.size(); ++j) {
        if (blocks[j].birth <= blocks[i].birth && blocks[i].birth < blocks[j].death)
          live += (std::max<size_t>(blocks[j].bytes, 1) + 255) / 256 * 256;
        if (i == j || !Together(blocks[i], blocks[j])) continue;
        ASSERT_TRUE(plan.offsets[i] + blocks[i].bytes <= plan.offsets[j] ||
                    plan.offsets[j] + blocks[j].bytes <= plan.offsets[i]);
      }
      most = std::max(most, live);
    }
    EXPECT_LE(plan.bytes, most * 3 / 2) << "far above what lives at once";
  }
}

TEST(MemoryPlanning, AChainNeedsNoMoreThanTwoOfItsBlocks) {
  std::vector<Lifetime> blocks;
  for (int32_t i = 0; i < 50; ++i) blocks.push_back({1024, i, i + 2});
  EXPECT_EQ(PlanMemory(blocks, 512).bytes, 2048u);
}

}  // namespace
}  // namespace monograph
