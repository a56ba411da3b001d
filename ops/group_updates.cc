#include "ops/group_updates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "ops/training/formulas.h"

namespace monograph {
namespace {

using ops::training::UpdateInputs;

const UpdateInputs* InputsOf(std::string_view op) {
  static const std::map<std::string, UpdateInputs, std::less<>> updates = {
      {"ResourceApplyGradientDescent", ops::training::kGradientDescent},
      {"ResourceApplyMomentum", ops::training::kMomentum},
      {"ResourceApplyAdam", ops::training::kAdam},
      {"ResourceApplyAdagrad", ops::training::kAdagrad},
      {"ResourceApplyAdagradV2", ops::training::kAdagradV2},
      {"ResourceApplyRMSProp", ops::training::kRMSProp},
      {"ResourceApplyCenteredRMSProp", ops::training::kCenteredRMSProp},
  };
  const auto found = updates.find(op);
  return found == updates.end() ? nullptr : &found->second;
}

class Grouper {
 public:
  Grouper(const Graph& graph, std::span<const NodeId> keep)
      : graph_(graph), leader_(static_cast<size_t>(graph.num_nodes())), kept_(leader_.size()) {
    for (size_t i = 0; i < leader_.size(); ++i) leader_[i] = static_cast<NodeId>(i);
    for (NodeId id : keep) kept_[static_cast<size_t>(id)] = true;
  }

  // True if there is anything to do.
  Result<bool> Find() {
    MG_RETURN_IF_ERROR(FindGroups());
    return !groups_.empty();
  }

  Result<Graph> Run(std::vector<NodeId>* mapping) {
    Graph out(&graph_.registry());
    out.ShareFunctions(graph_.shared_functions());
    mapped_.assign(leader_.size(), -1);
    MG_RETURN_IF_ERROR(Build(&out));
    if (mapping != nullptr) *mapping = std::move(mapped_);
    return out;
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
    for (NodeId id : order) {
      bool waits = false;
      for (const Endpoint& input : graph_.inputs(id))
        waits = waits || behind[static_cast<size_t>(input.node)];
      for (NodeId control : graph_.control_inputs(id))
        waits = waits || behind[static_cast<size_t>(control)];
      const UpdateInputs* inputs = InputsOf(graph_.op(id).name());
      behind[static_cast<size_t>(id)] = waits || inputs != nullptr;
      if (inputs == nullptr || waits || kept_[static_cast<size_t>(id)] ||
          graph_.device(id).type != "GPU")
        continue;
      const Attrs& attrs = graph_.attrs(id);
      groups[{graph_.device_index(id), graph_.op(id).name(), attrs.Get<DType>("T"),
              Flag(attrs, *inputs), Coefficients(id, *inputs)}]
          .push_back(id);
    }
    for (auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      for (NodeId member : members) leader_[static_cast<size_t>(member)] = members[0];
      groups_[members[0]] = std::move(members);
    }
    return Status();
  }

  std::vector<NodeId> Members(NodeId leader) const {
    const auto group = groups_.find(leader);
    return group == groups_.end() ? std::vector<NodeId>{leader} : group->second;
  }

  // Every node after all that it needs, a group as one.
  Status Build(Graph* out) {
    const OutEdges consumers(graph_);
    std::vector<int> missing(leader_.size());
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      missing[static_cast<size_t>(Leader(id))] +=
          static_cast<int>(graph_.inputs(id).size() + graph_.control_inputs(id).size());
    }
    std::vector<NodeId> ready;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (Leader(id) == id && missing[static_cast<size_t>(id)] == 0) ready.push_back(id);
    }
    for (size_t at = 0; at < ready.size(); ++at) {
      const std::vector<NodeId> members = Members(ready[at]);
      MG_RETURN_IF_ERROR(members.size() == 1 ? Copy(members[0], out) : Add(members, out));
      for (NodeId member : members) {
        for (const OutEdge& edge : consumers.of(member)) {
          const NodeId next = Leader(edge.target);
          if (--missing[static_cast<size_t>(next)] == 0) ready.push_back(next);
        }
      }
    }
    return Status();
  }

  NodeId Leader(NodeId id) const { return leader_[static_cast<size_t>(id)]; }
  Endpoint Map(Endpoint e) const { return {mapped_[static_cast<size_t>(e.node)], e.index}; }
  std::vector<NodeId> Controls(const std::vector<NodeId>& nodes) const {
    std::vector<NodeId> controls;
    for (NodeId id : nodes) {
      for (NodeId control : graph_.control_inputs(id))
        controls.push_back(mapped_[static_cast<size_t>(control)]);
    }
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    return controls;
  }

  Status Copy(NodeId id, Graph* out) {
    std::vector<Endpoint> inputs;
    for (Endpoint e : graph_.inputs(id)) inputs.push_back(Map(e));
    mapped_[static_cast<size_t>(id)] =
        out->CopyNode(graph_, id, graph_.name(id), inputs, Controls({id}));
    return Status();
  }

  Status Add(const std::vector<NodeId>& members, Graph* out) {
    const NodeId leader = members[0];
    const UpdateInputs& from = *InputsOf(graph_.op(leader).name());
    std::vector<Endpoint> inputs;
    for (NodeId id : members) {
      for (int v = 0; v < from.variables; ++v)
        inputs.push_back(Map(graph_.inputs(id)[static_cast<size_t>(v)]));
    }
    const std::vector<Endpoint> coefficients = Coefficients(leader, from);
    for (const Endpoint& e : coefficients) inputs.push_back(Map(e));
    for (NodeId id : members)
      inputs.push_back(Map(graph_.inputs(id)[static_cast<size_t>(from.gradient)]));
    const auto count = static_cast<int64_t>(members.size());
    const Attrs& attrs = graph_.attrs(leader);
    auto made =
        std::make_shared<const Attrs>(Attrs{{"update", std::string(graph_.op(leader).name())},
                                            {"flag", Flag(attrs, from)},
                                            {"V", count * from.variables},
                                            {"C", static_cast<int64_t>(coefficients.size())},
                                            {"N", count},
                                            {"T", attrs.Get<DType>("T")}});
    const std::vector<NodeId> controls = Controls(members);
    const std::string device = graph_.device(leader).ToString();
    MG_ASSIGN_OR_RETURN(const NodeId id, out->AddNode({.name = graph_.name(leader),
                                                       .op = "_MultiResourceApply",
                                                       .inputs = inputs,
                                                       .control_inputs = controls,
                                                       .attrs = std::move(made),
                                                       .device = device}));
    for (NodeId member : members) mapped_[static_cast<size_t>(member)] = id;
    return Status();
  }

  const Graph& graph_;
  std::vector<NodeId> leader_;  // of a node's group; itself if it has none
  std::vector<bool> kept_;
  std::map<NodeId, std::vector<NodeId>> groups_;  // by leader
  std::vector<NodeId> mapped_;
};

}  // namespace

Result<Graph> GroupUpdates(Graph graph, std::span<const NodeId> keep,
                           std::vector<NodeId>* mapping) {
  const bool any_gpu = std::any_of(graph.devices().begin(), graph.devices().end(),
                                   [](const DeviceName& device) { return device.type == "GPU"; });
  Grouper grouper(graph, keep);
  bool found = false;
  if (any_gpu) {
    MG_ASSIGN_OR_RETURN(found, grouper.Find());
  }
  if (found) return grouper.Run(mapping);
  if (mapping != nullptr) {
    mapping->resize(static_cast<size_t>(graph.num_nodes()));
    std::iota(mapping->begin(), mapping->end(), 0);
  }
  return graph;
}

}  // namespace monograph
