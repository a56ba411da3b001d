// GroupUpdates in two phases. FindGroups goes through the nodes in topological order and groups
// updates that agree in device, op, type and coefficients, but only updates that wait for no other
// update: so no path leads from one member to another, and one node for all makes no cycle. On a
// CPU an update is a group of its own, with the cast of its gradient. Build
// then copies the graph in a topological order in which a group counts as one node.
#include "ops/rewrites/group_updates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "graph/topological_sort.h"
#include "ops/rewrites/rewrite.h"
#include "ops/training/formulas.h"

namespace monograph {
namespace {

using ops::training::UpdateInputs;

const UpdateInputs* InputsOf(std::string_view op) {
  static const auto updates = [] {
    std::map<std::string, UpdateInputs, std::less<>> all;
    ops::training::ForEachUpdate(
        [&]<template <typename> typename, const UpdateInputs & kInputs>(
            const char* name, std::initializer_list<const char*>) { all.emplace(name, kInputs); });
    return all;
  }();
  const auto found = updates.find(op);
  return found == updates.end() ? nullptr : &found->second;
}

bool WidensBfloat16(const Graph& graph, NodeId id) {
  return graph.is(id, "Cast") && graph.attrs(id).Get<DType>("SrcT") == DT_BFLOAT16;
}

class Grouper {
 public:
  explicit Grouper(const Graph& graph)
      : graph_(graph), consumers_(graph), leader_(static_cast<size_t>(graph.num_nodes())) {
    std::iota(leader_.begin(), leader_.end(), 0);
  }

  // True if there is anything to do.
  Result<bool> Find() {
    MG_RETURN_IF_ERROR(FindGroups());
    return !groups_.empty();
  }

  Result<Graph> Run() {
    Rewrite out(graph_);
    MG_RETURN_IF_ERROR(Build(&out));
    return out.Finish();
  }

 private:
  // Updates with equal keys make up a group: device, op, type, flag, coefficients.
  using Key = std::tuple<DeviceIndex, std::string, DType, bool, std::vector<Endpoint>>;

  static bool Flag(const Attrs& attrs, const UpdateInputs& inputs) {
    return inputs.flag != nullptr && attrs.GetOr<bool>(inputs.flag, inputs.flag_default);
  }
  std::vector<Endpoint> Coefficients(NodeId id, const UpdateInputs& inputs) const {
    std::vector<Endpoint> coefficients;
    for (int input : inputs.coefficients) {
      if (input > 0) coefficients.push_back(graph_.inputs(id)[static_cast<size_t>(input)]);
    }
    return coefficients;
  }

  Status FindGroups() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    std::vector<bool> behind(leader_.size());  // an update, or waits for one
    std::map<Key, std::vector<NodeId>> groups;
    std::vector<NodeId> alone;
    for (NodeId id : order) {
      bool waits = false;
      for (const Endpoint& input : graph_.inputs(id))
        waits = waits || behind[static_cast<size_t>(input.node)];
      for (NodeId control : graph_.control_inputs(id))
        waits = waits || behind[static_cast<size_t>(control)];
      const UpdateInputs* inputs = InputsOf(graph_.op(id).name());
      behind[static_cast<size_t>(id)] = waits || inputs != nullptr;
      if (inputs == nullptr || waits) continue;
      if (graph_.device(id).type != kGpu) {
        alone.push_back(id);
        continue;
      }
      const Attrs& attrs = graph_.attrs(id);
      groups[{graph_.device_index(id), graph_.op(id).name(), attrs.Get<DType>("T"),
              Flag(attrs, *inputs), Coefficients(id, *inputs)}]
          .push_back(id);
    }
    for (auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      const NodeId leader = members[0];
      for (NodeId member : members) leader_[static_cast<size_t>(member)] = leader;
      Group& group = groups_[leader];
      for (NodeId member : members) {
        const NodeId from = GradientOf(member).node;
        if (Leader(from) == from && IsSpared(from, leader)) {
          leader_[static_cast<size_t>(from)] = leader;
          group.casts.push_back(from);
        }
      }
      group.updates = std::move(members);
    }
    for (const NodeId id : alone) {
      const NodeId from = GradientOf(id).node;
      if (!WidensBfloat16(graph_, from) || !IsSpared(from, id)) continue;
      leader_[static_cast<size_t>(from)] = id;
      groups_[id] = {.updates = {id}, .casts = {from}};
    }
    return Status();
  }

  Endpoint GradientOf(NodeId update) const {
    const UpdateInputs& inputs = *InputsOf(graph_.op(update).name());
    return graph_.inputs(update)[static_cast<size_t>(inputs.gradient)];
  }

  // Whether the node is a cast from 16 bits to float that only the group's updates read, as their
  // gradients: the group's node widens those itself.
  bool IsSpared(NodeId id, NodeId leader) const {
    if (!graph_.is(id, "Cast") || graph_.device_index(id) != graph_.device_index(leader))
      return false;
    const DType from = graph_.attrs(id).Get<DType>("SrcT");
    if ((from != DT_HALF && from != DT_BFLOAT16) || graph_.dtype({id, 0}) != DT_FLOAT) return false;
    const auto edges = consumers_.of(id);
    return std::all_of(edges.begin(), edges.end(), [&](const OutEdge& edge) {
      return Leader(edge.target) == leader &&
             edge.input == InputsOf(graph_.op(edge.target).name())->gradient;
    });
  }

  // The nodes that become one node with `leader`: its group, or itself alone.
  std::vector<NodeId> Members(NodeId leader) const {
    const auto found = groups_.find(leader);
    if (found == groups_.end()) return {leader};
    std::vector<NodeId> members = found->second.updates;
    members.insert(members.end(), found->second.casts.begin(), found->second.casts.end());
    return members;
  }

  // Adds every node after all that it needs; a group counts as one node.
  Status Build(Rewrite* out) {
    const auto for_each_target = [this](NodeId id, const auto& visit) {
      if (Leader(id) != id) return;
      for (NodeId member : Members(id)) {
        for (const OutEdge& edge : consumers_.of(member)) {
          if (Leader(edge.target) != id) visit(Leader(edge.target));
        }
      }
    };
    for (NodeId id : TopologicalSort(leader_.size(), NextReady::kFirstIn, for_each_target)) {
      if (Leader(id) != id) continue;
      const std::vector<NodeId> members = Members(id);
      if (members.size() == 1) {
        out->Copy(id);
      } else {
        MG_RETURN_IF_ERROR(Add(members, out));
      }
    }
    return Status();
  }

  NodeId Leader(NodeId id) const { return leader_[static_cast<size_t>(id)]; }

  Status Add(const std::vector<NodeId>& members, Rewrite* out) {
    const NodeId leader = members[0];
    const std::vector<NodeId>& updates = groups_.at(leader).updates;
    const UpdateInputs& from = *InputsOf(graph_.op(leader).name());
    std::vector<Endpoint> inputs;
    for (NodeId id : updates) {
      for (int v = 0; v < from.variables; ++v)
        inputs.push_back(out->Map(graph_.inputs(id)[static_cast<size_t>(v)]));
    }
    const std::vector<Endpoint> coefficients = Coefficients(leader, from);
    for (const Endpoint& e : coefficients) inputs.push_back(out->Map(e));
    std::vector<DType> types;
    for (NodeId id : updates) {
      Endpoint gradient = GradientOf(id);
      if (Leader(gradient.node) == leader) gradient = graph_.inputs(gradient.node)[0];
      inputs.push_back(out->Map(gradient));
      types.push_back(graph_.dtype(gradient));
    }
    const auto count = static_cast<int64_t>(updates.size());
    const Attrs& attrs = graph_.attrs(leader);
    auto made =
        std::make_shared<const Attrs>(Attrs{{"update", std::string(graph_.op(leader).name())},
                                            {"flag", Flag(attrs, from)},
                                            {"V", count * from.variables},
                                            {"C", static_cast<int64_t>(coefficients.size())},
                                            {"N", count},
                                            {"G", std::move(types)},
                                            {"T", attrs.Get<DType>("T")}});
    MG_ASSIGN_OR_RETURN(const NodeId id,
                        out->Add(leader, "_MultiResourceApply", inputs, std::move(made), members));
    for (NodeId update : updates) out->Replace(update, id);
    return Status();
  }

  struct Group {
    std::vector<NodeId> updates, casts;  // casts of gradients, which the group's node does
  };

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<NodeId> leader_;      // of a node's group; itself if it has none
  std::map<NodeId, Group> groups_;  // by leader
};

}  // namespace

Result<Graph> GroupUpdates(Graph graph) {
  bool any = MentionsGpu(graph);
  for (NodeId id = 0; id < graph.num_nodes() && !any; ++id) any = WidensBfloat16(graph, id);
  if (any) {
    Grouper grouper(graph);
    MG_ASSIGN_OR_RETURN(const bool found, grouper.Find());
    if (found) return grouper.Run();
  }
  return graph;
}

}  // namespace monograph
