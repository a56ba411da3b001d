// TensorPlaces: where each tensor of a task with GPUs lies, in host memory or in a GPU's, and where
// each node wants what it reads. A kernel says that of its arguments; a linked _Recv has the tensor
// where its _Send got it; and what directs control flow (graph/control_flow.h) hands a tensor on
// where it lies, so that a loop's variable stays on its GPU. A variant is a host's object; its
// place is that of the tensors that it may hold. Private to the gpu folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"

namespace monograph {

// A place: host memory. Any other place is the index of a GPU among the plan's devices.
inline constexpr int32_t kHost = -1;

struct PlacedNode {
  int32_t gpu = kHost;          // the GPU that it is on, if any
  bool linked = false;          // a _Send whose _Recv is here
  FlowOp flow = FlowOp::kNone;  // of one on a GPU; on a CPU it is as any other node
  // Asked for on a GPU, may run on the CPU: it does if all that it reads lies on the host.
  bool on_host = false;
  std::vector<bool> host_inputs, host_outputs;  // as the kernel wants them
  std::vector<int32_t> places;                  // of the outputs

  // Whether the kernel has all that it reads and makes on the host.
  bool host_only() const {
    return std::ranges::all_of(host_inputs, std::identity()) &&
           std::ranges::all_of(host_outputs, std::identity());
  }
};

class TensorPlaces {
 public:
  // Of the nodes of `graph`, by id; `linked_sends`: by node, the _Send that a _Recv gets its tensor
  // from, or -1. All outlive it.
  TensorPlaces(const Graph& graph, const std::vector<NodeId>& linked_sends,
               std::vector<PlacedNode*> nodes)
      : graph_(graph), linked_sends_(linked_sends), nodes_(std::move(nodes)) {}

  // Sets PlacedNode::places, and `on_host` for good. `order`: topological, but for back edges.
  // Unimplemented names a NextIteration that hands one tensor to Merges on several devices.
  Status Find(const std::vector<NodeId>& order);
  int32_t Of(Endpoint e) const { return at(e.node).places[static_cast<size_t>(e.index)]; }
  // The place where the node needs its input.
  int32_t Wants(NodeId id, size_t input) const;

 private:
  PlacedNode& at(NodeId id) const { return *nodes_[static_cast<size_t>(id)]; }
  NodeId linked_send(NodeId id) const { return linked_sends_[static_cast<size_t>(id)]; }
  void FindLoopConstants();
  bool PlaceOutputs(NodeId id);
  int32_t PlaceOfFlow(NodeId id, int32_t output) const;

  const Graph& graph_;
  const std::vector<NodeId>& linked_sends_;
  const std::vector<PlacedNode*> nodes_;
  std::unordered_map<NodeId, NodeId> merge_of_;  // by NextIteration
  std::unordered_set<NodeId> for_gpu_;           // Enters of what lies on their GPU in the loop
};

}  // namespace monograph
