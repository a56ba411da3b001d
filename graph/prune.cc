#include "graph/prune.h"

#include <set>
#include <string>

namespace monograph {

Result<Graph> Prune(const Graph& graph, std::span<const Endpoint> feeds,
                    std::span<const Endpoint> fetches, std::span<const NodeId> targets,
                    std::vector<NodeId>* mapping) {
  enum class Need : uint8_t { kNone, kFed, kRun };
  const std::set<Endpoint> fed(feeds.begin(), feeds.end());
  std::vector<Need> needs(static_cast<size_t>(graph.num_nodes()), Need::kNone);
  std::vector<NodeId> open;
  const auto need = [&](NodeId id, bool is_fed) {
    Need& now = needs[static_cast<size_t>(id)];
    if (is_fed) {
      if (now == Need::kNone) now = Need::kFed;
    } else if (now != Need::kRun) {
      now = Need::kRun;
      open.push_back(id);
    }
  };
  for (const Endpoint fetch : fetches) need(fetch.node, fed.contains(fetch));
  for (NodeId target : targets) need(target, false);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!graph.op(id).known()) {
      return graph.registry()
          .Require(graph.op(id).name())
          .status()
          .WithContext("node '" + std::string(graph.name(id)) + "', which this step needs");
    }
    for (const Endpoint input : graph.inputs(id)) need(input.node, fed.contains(input));
    // Who waits for a node waits for its first output's feed, as in TensorFlow.
    for (NodeId control : graph.control_inputs(id)) need(control, fed.contains({control, 0}));
  }

  std::vector<NodeId> ids(needs.size(), -1);
  int count = 0;
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i] != Need::kNone) ids[i] = count++;
  }
  Graph pruned(&graph.registry());
  pruned.Reserve(count);
  pruned.ShareFunctions(graph.shared_functions());
  std::vector<Endpoint> inputs;
  std::vector<NodeId> controls;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const Need state = needs[static_cast<size_t>(id)];
    if (state == Need::kNone) continue;
    inputs.clear();
    controls.clear();
    if (state == Need::kRun) {
      for (const Endpoint input : graph.inputs(id))
        inputs.push_back({ids[static_cast<size_t>(input.node)], input.index});
      for (NodeId control : graph.control_inputs(id))
        controls.push_back(ids[static_cast<size_t>(control)]);
    }
    pruned.CopyNode(graph, id, graph.name(id), inputs, controls);
  }
  MG_RETURN_IF_ERROR(pruned.TopologicalOrder().status());
  if (mapping != nullptr) *mapping = std::move(ids);
  return pruned;
}

}  // namespace monograph
