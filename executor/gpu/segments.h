// Segments: which nodes of a task's GPUs are launched together, and in which order.
//
// A GPU's kernels need no host between them; what does need it are copies, tensors from other tasks
// and nodes of the CPU: here all of these are "host" nodes. A segment is a set of nodes of one GPU
// that one thread launches in one go, as soon as every host node that any of them waits for is
// done. Nodes are put together as far as that makes nobody outside wait longer: a node joins those
// that need more host nodes than itself only if all that leaves the GPU behind it needs these, too.
// So segments cannot wait for each other in a cycle, not even through other tasks.
//
// Joint nodes (graph/joint_collectives.h) of a GPU are of one segment, which waits for what any of
// them waits for; what follows one of them follows the whole segment, and is not part of it.
//
// With control flow the nodes that direct it are host nodes. A segment's nodes are of one region
// (graph/control_flow.h): all run in the same iterations, or are dead together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace monograph {

struct SegmentNode {
  int32_t device = -1;  // the GPU that launches it; -1: a host node
  int64_t cost = 1;
  int32_t region = 0;           // of the control flow: only nodes of one region go together
  bool joint = false;           // none waits for another joint one, but for its order
  std::vector<int32_t> before;  // nodes that it waits for
};

struct NodeGroup {
  int32_t device = 0;
  std::vector<int32_t> nodes;  // in launch order
};

struct SegmentPlan {
  std::vector<NodeGroup> segments;
  std::vector<int32_t> segment_of;  // by node; -1 for host nodes
};

// REQUIRES: no cycle. The order within a segment is topological, the node with the longest path to
// the end first (among those that could come next), then the lower number: it depends on nothing
// else.
SegmentPlan PlanSegments(std::span<const SegmentNode> nodes);

// Cuts a launch order into stretches that are replayed as one graph and stretches that are not.
struct ReplayItem {
  bool replayable = false;
  bool leaves = false;  // something outside the device waits for it
  bool joint = false;
};
struct ReplayRange {
  int32_t begin = 0, end = 0;
  bool replay = false;
};
// A stretch of replayable nodes is cut behind a node that `leaves` once it holds `min_nodes`, so
// that what leaves early is not held back to the end; one with fewer than `min_nodes` in all is not
// replayed. Between joint nodes none is cut for what leaves.
std::vector<ReplayRange> PlanReplay(std::span<const ReplayItem> items, int32_t min_nodes);

}  // namespace monograph
