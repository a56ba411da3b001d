#include "ops/rewrites/rewrite.h"

#include <algorithm>
#include <string>

namespace monograph {

Rewrite::Rewrite(const Graph& from)
    : from_(from),
      out_(&from.registry()),
      mapped_(static_cast<size_t>(from.num_nodes()), -1),
      shift_(mapped_.size()) {
  out_.ShareFunctions(from.shared_functions());
}

std::vector<Endpoint> Rewrite::Inputs(NodeId old) const {
  std::vector<Endpoint> inputs;
  for (Endpoint e : from_.inputs(old)) inputs.push_back(Map(e));
  return inputs;
}

Graph Rewrite::Finish() {
  for (const NodeId old : loops_) {
    const std::vector<Endpoint> inputs = Inputs(old);
    for (size_t i = 0; i < inputs.size(); ++i)
      out_.ReplaceInput(Map({old, 0}).node, static_cast<int>(i), inputs[i]);
  }
  return std::move(out_);
}

std::vector<NodeId> Rewrite::Controls(std::span<const NodeId> nodes) const {
  std::vector<NodeId> controls;
  for (NodeId id : nodes) {
    if (id < 0) continue;
    for (NodeId control : from_.control_inputs(id))
      controls.push_back(mapped_[static_cast<size_t>(control)]);
  }
  std::sort(controls.begin(), controls.end());
  controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
  return controls;
}

void Rewrite::Copy(NodeId old, std::span<const Endpoint> inputs) {
  const bool open = std::ranges::any_of(inputs, [](const Endpoint& e) { return !e.valid(); });
  if (open) loops_.push_back(old);
  mapped_[static_cast<size_t>(old)] =
      out_.CopyNode(from_, old, from_.name(old), inputs, Controls({&old, 1}));
}

Result<NodeId> Rewrite::Add(NodeId like, std::string_view op, std::span<const Endpoint> inputs,
                            std::shared_ptr<const Attrs> attrs, std::span<const NodeId> stands_for,
                            std::string_view name) {
  const std::vector<NodeId> controls = Controls(stands_for);
  const std::string device = from_.device(like).ToString();
  return out_.AddNode({.name = name.empty() ? from_.name(like) : name,
                       .op = op,
                       .inputs = inputs,
                       .control_inputs = controls,
                       .attrs = std::move(attrs),
                       .device = device});
}

void Rewrite::Replace(NodeId old, NodeId made, int first) {
  mapped_[static_cast<size_t>(old)] = made;
  shift_[static_cast<size_t>(old)] = first;
  for (int i = 0; i < from_.num_outputs(old); ++i)
    out_.SetShape({made, first + i}, from_.shape({old, i}));
}

bool MentionsGpu(const Graph& graph) {
  return std::any_of(graph.devices().begin(), graph.devices().end(),
                     [](const DeviceName& device) { return device.type == kGpu; });
}

}  // namespace monograph
