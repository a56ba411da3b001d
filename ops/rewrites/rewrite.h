// Rewrite: a graph made from another one, node by node, most of them copied and some replaced: what
// the passes of ops/ that fuse nodes share.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace monograph {

class Rewrite {
 public:
  explicit Rewrite(const Graph& from);  // outlives this

  // Of the new graph. REQUIRES: the old node was copied or replaced.
  Endpoint Map(Endpoint e) const {
    const auto i = static_cast<size_t>(e.node);
    return {mapped_[i], e.index + shift_[i]};
  }
  std::vector<Endpoint> Inputs(NodeId old) const;

  // A back edge of a loop may be open until Finish.
  void Copy(NodeId old) { Copy(old, Inputs(old)); }
  void Copy(NodeId old, std::span<const Endpoint> inputs);
  // A new node with the name (unless `name` is given) and the device of the old node `like`, behind
  // what the nodes `stands_for` (-1: none) had to wait for.
  Result<NodeId> Add(NodeId like, std::string_view op, std::span<const Endpoint> inputs,
                     std::shared_ptr<const Attrs> attrs, std::span<const NodeId> stands_for,
                     std::string_view name = {});
  // `made` gives, from its output `first` on, what `old` gave; shapes that are known beyond
  // inference (a feed's shape that a caller set) are not lost.
  void Replace(NodeId old, NodeId made, int first = 0);

  Graph Finish();

 private:
  std::vector<NodeId> Controls(std::span<const NodeId> nodes) const;

  const Graph& from_;
  Graph out_;
  std::vector<NodeId> mapped_;
  std::vector<int> shift_;     // of outputs
  std::vector<NodeId> loops_;  // old nodes that were copied before what their back edges come from
};

// Whether any node is on a GPU, or requests one.
bool MentionsGpu(const Graph& graph);

}  // namespace monograph
