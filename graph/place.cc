// In the phases of Run: CollectRequests (requested devices; a call requests the task that its body
// names, a user of a resource the resource's device), CollectKernels (device types with a kernel,
// as bits), Unite (colocation groups, by union-find: each has one constraint and one set of types),
// Assign (the best device for each group; at last nodes without inputs join their consumers, and
// Shape, Size and Rank their inputs). Constraints are interned, and merging or choosing by them is
// remembered: a graph has many nodes and few requests.
#include "graph/place.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph/names.h"
#include "graph/op_source.h"
#include "graph/place/body_devices.h"
#include "graph/place/device_set.h"
#include "graph/place/errors.h"
#include "graph/placement_log.h"
#include "graph/references.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

using place::BodyDevices;
using place::DeviceSet;
using place::MissingText;
using place::Refusal;
using place::TaskPart;
using place::TypeMask;
using place::TypesText;

bool IsMetadata(const Graph& graph, NodeId node) {
  return graph.is(node, "Shape") || graph.is(node, "Size") || graph.is(node, "Rank");
}

struct PairHash {
  size_t operator()(uint64_t key) const { return (key * 0x9e3779b97f4a7c15ull) >> 17; }
};

uint64_t PairKey(int32_t a, uint32_t b) { return (static_cast<uint64_t>(a) << 32) | b; }

class Placer {
 public:
  Placer(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
         std::vector<PlacementNote>* notes)
      : graph_(*graph),
        options_(options),
        notes_(notes),
        body_devices_(graph->functions()),
        devices_(devices) {}

  Status Run() {
    if (devices_.devices().empty())
      return InvalidArgument("Cannot assign devices: there are no devices");
    if (devices_.types().size() > place::kMaxTypes)
      return InvalidArgument("Cannot assign devices: more than " +
                             std::to_string(place::kMaxTypes) + " types of devices");
    MG_RETURN_IF_ERROR(CollectRequests());
    MG_RETURN_IF_ERROR(CollectKernels());
    MG_RETURN_IF_ERROR(Unite());
    MG_RETURN_IF_ERROR(Assign());
    std::vector<DeviceIndex> interned(devices_.devices().size(), -1);
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      const int32_t device = assigned_[Index(Find(node))];
      DeviceIndex& index = interned[static_cast<size_t>(device)];
      if (index < 0) index = graph_.InternDevice(devices_.at(device).name);
      graph_.SetDevice(node, index);
    }
    if (notes_ != nullptr && options_.has_kernel) NoteBodies();
    return Status();
  }

 private:
  // The best device for a constraint and a set of types; -1 if there is none.
  struct Choice {
    int32_t device = -1;
    bool softened = false;
  };

  static size_t Index(NodeId node) { return static_cast<size_t>(node); }
  const DeviceName& Spec(int32_t spec) const { return specs_[static_cast<size_t>(spec)]; }

  NodeId Find(NodeId node) {
    while (parent_[Index(node)] != node) {
      parent_[Index(node)] = parent_[Index(parent_[Index(node)])];
      node = parent_[Index(node)];
    }
    return node;
  }

  // Notes, once for each function, which nodes of a body that is called on a GPU will run on the
  // CPU of that task. The task decides that itself, by the same rule.
  void NoteBodies() {
    std::set<const Function*> told;
    for (NodeId call = 0; call < graph_.num_nodes(); ++call) {
      const DeviceType type = graph_.device(call).type;
      const Function* function = type != kCpu ? Callee(graph_, call, graph_.functions()) : nullptr;
      if (function == nullptr || !told.insert(function).second) continue;
      const Graph& body = *function->body;
      NodeId first = -1;
      int others = -1;
      for (NodeId node = 0; node < body.num_nodes(); ++node) {
        if (!body.device(node).type.empty() || IsCall(body, node) ||
            options_.has_kernel(body, node, type) || !options_.has_kernel(body, node, kCpu))
          continue;
        if (first < 0) first = node;
        ++others;
      }
      if (first < 0) continue;
      Note(call, graph_.NodeText(call) + " runs on " + graph_.device(call).ToString() + ", but " +
                     body.NodeText(first) +
                     (others > 0 ? " and " + std::to_string(others) + " more of its nodes run"
                                 : " runs") +
                     " on the CPU of that task, the only device with a kernel for " +
                     (others > 0 ? "them" : "it") + "; other calls of " + Quoted(function->name) +
                     " do the same");
    }
  }

  void Note(NodeId node, std::string text) {
    if (notes_ != nullptr) notes_->push_back({node, std::move(text)});
  }

  int32_t Intern(const DeviceName& name) {
    auto [found, added] =
        spec_index_.try_emplace(name.ToString(), static_cast<int32_t>(specs_.size()));
    if (added) specs_.push_back(name);
    return found->second;
  }

  // The constraint that fulfils both, or -1. `softly`: type or id had to be dropped.
  int32_t Merge(int32_t a, int32_t b, bool* softly) {
    *softly = false;
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    auto [found, added] = merges_.try_emplace(PairKey(a, static_cast<uint32_t>(b)));
    if (added) {
      Result<DeviceName> merged = MergeConstraints(Spec(a), Spec(b), false);
      bool soft = false;
      if (!merged.ok() && options_.allow_soft_placement) {
        merged = MergeConstraints(Spec(a), Spec(b), true);
        soft = merged.ok();
      }
      const int32_t result = merged.ok() ? Intern(*merged) : -1;
      found->second = {result, soft};
    }
    *softly = found->second.second;
    return found->second.first;
  }

  // Must stay on its device: a resource, or a variant that a borrowed op makes or takes, or that
  // may hold tensors in a GPU's memory.
  bool Stays(Endpoint input, NodeId reader) const {
    const DType dtype = graph_.dtype(input);
    return dtype == DT_RESOURCE || (dtype == DT_VARIANT && (devices_.types().size() > 1 ||
                                                            IsBorrowed(graph_.op(input.node)) ||
                                                            IsBorrowed(graph_.op(reader))));
  }

  Status CollectRequests() {
    const size_t n = static_cast<size_t>(graph_.num_nodes());
    Intern(DeviceName());
    std::vector<int32_t> of_index;
    for (const DeviceName& device : graph_.devices()) of_index.push_back(Intern(device));
    requested_.resize(n);
    // In a local session all devices are the client's.
    DeviceName client;
    client.job = "client";
    const bool has_client = devices_.BestMatch(client, devices_.all_types()) >= 0;
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      requested_[Index(node)] = of_index[static_cast<size_t>(graph_.device_index(node))];
      if (has_client && graph_.op(node).in_client() && graph_.device(node).job.empty())
        requested_[Index(node)] = Intern(MergeScope(graph_.device(node), client));
      if (IsCall(graph_, node)) {
        DeviceName task;
        if (!body_devices_.TaskOf(graph_, node, &task)) {
          return InvalidArgument(
              "Cannot assign a device for operation " + std::string(graph_.name(node)) + ": " +
              graph_.NodeText(node) +
              " calls a function whose operations ask for devices of several tasks; inline "
              "the call before placing, or give its operations devices of one task");
        }
        requested_[Index(node)] = Intern(MergeScope(graph_.device(node), task));
      }
    }
    // A resource cannot move: its users go to its device, whatever device they request. Nor can
    // what is passed by reference, or another library's.
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      for (size_t i = 0; i < graph_.inputs(node).size(); ++i) {
        const Endpoint input = graph_.inputs(node)[i];
        if (!Stays(input, node) && !TakesReference(graph_, node, i)) continue;
        resource_edges_.emplace_back(input.node, node);
        int32_t& requested = requested_[Index(node)];
        const int32_t owner = requested_[Index(input.node)];
        bool softly = false;
        const int32_t merged = Merge(owner, requested, &softly);
        if (merged >= 0 && !softly) continue;
        Note(node, "Ignoring device specification " + Spec(requested).ToString() + " for node " +
                       Quoted(graph_.name(node)) + " because it uses the resource of " +
                       Quoted(graph_.name(input.node)) + ", which asks for " +
                       Spec(owner).ToString());
        requested = owner;
      }
    }
    return Status();
  }

  Status CollectKernels() {
    const std::vector<DeviceType>& types = devices_.types();
    node_types_.assign(requested_.size(), devices_.all_types());
    if (!options_.has_kernel) return Status();
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      // The task that runs a call decides about its body. What changes the flow of control needs no
      // kernel.
      if (IsCall(graph_, node) || graph_.op(node).flow() != FlowOp::kNone) continue;
      TypeMask mask = 0;
      for (size_t type = 0; type < types.size(); ++type) {
        if (options_.has_kernel(graph_, node, types[type])) mask |= TypeMask{1} << type;
      }
      // Nor do transfers and arguments.
      if (mask == 0 && graph_.op(node).name().starts_with('_')) continue;
      if (mask == 0) return place::NoKernelError(graph_, node, devices_);
      node_types_[Index(node)] = mask;
    }
    return Status();
  }

  Status Unite() {
    const size_t n = requested_.size();
    parent_.resize(n);
    for (size_t i = 0; i < n; ++i) parent_[i] = static_cast<NodeId>(i);
    size_.assign(n, 1);
    spec_ = requested_;
    types_of_ = node_types_;
    for (auto [owner, user] : resource_edges_) Join(owner, user, false);
    std::unordered_map<std::string_view, NodeId> classes;
    constexpr std::string_view kPrefix = "loc:@";
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      const AttrValue* value = graph_.attrs(node).Find("_class");
      const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
      if (list == nullptr) continue;
      for (const std::string& text : *list) {
        if (!std::string_view(text).starts_with(kPrefix)) continue;
        const std::string_view name = std::string_view(text).substr(kPrefix.size());
        // A class is named after a node. Where that node was pruned, the members still belong
        // together.
        auto [found, added] = classes.try_emplace(name, -1);
        if (added) {
          found->second = graph_.Find(name);
          if (found->second < 0) found->second = node;
        }
        Join(found->second, node, true);
      }
    }
    if (!conflict_) return Status();
    return RefusalOf(conflict_->b)
        .Conflict(conflict_->a, conflict_->b, conflict_->specs, conflict_->types);
  }

  void Join(NodeId a, NodeId b, bool may_ignore) {
    NodeId root_a = Find(a), root_b = Find(b);
    if (root_a == root_b) return;
    bool softly = false;
    int32_t spec = Merge(spec_[Index(root_a)], spec_[Index(root_b)], &softly);
    const TypeMask types = types_of_[Index(root_a)] & types_of_[Index(root_b)];
    if (spec < 0 || types == 0) {
      if (may_ignore && options_.allow_soft_placement) {
        Note(b, "Ignoring the colocation of " + Quoted(graph_.name(b)) + " with " +
                    Quoted(graph_.name(a)) + ": one is to be on '" +
                    Spec(spec_[Index(root_b)]).ToString() + "', the other on '" +
                    Spec(spec_[Index(root_a)]).ToString() + "'");
        return;
      }
      if (!conflict_) {
        conflict_ = {a,
                     b,
                     {Spec(spec_[Index(root_a)]), Spec(spec_[Index(root_b)])},
                     {types_of_[Index(root_a)], types_of_[Index(root_b)]}};
      }
      spec = std::max(spec, 0);  // go on, so that the error can name the whole group
    } else if (softly) {
      Note(b, "Colocation of " + Quoted(graph_.name(b)) + " with " + Quoted(graph_.name(a)) +
                  " drops device type or id: '" + Spec(spec_[Index(root_b)]).ToString() +
                  "' and '" + Spec(spec_[Index(root_a)]).ToString() + "' become '" +
                  Spec(spec).ToString() + "'");
    }
    if (size_[Index(root_a)] < size_[Index(root_b)]) std::swap(root_a, root_b);
    parent_[Index(root_b)] = root_a;
    size_[Index(root_a)] += size_[Index(root_b)];
    spec_[Index(root_a)] = spec;
    types_of_[Index(root_a)] = types;
  }

  Status Assign() {
    assigned_.assign(requested_.size(), -1);
    std::vector<NodeId> generators, metadata;
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      const NodeId root = Find(node);
      if (assigned_[Index(root)] >= 0) continue;
      if (size_[Index(root)] == 1) {
        if (graph_.inputs(node).empty() && graph_.num_outputs(node) == 1) {
          generators.push_back(node);
          continue;
        }
        if (graph_.inputs(node).size() == 1 && IsMetadata(graph_, node)) {
          metadata.push_back(node);
          continue;
        }
      }
      MG_RETURN_IF_ERROR(AssignBest(root, node));
    }
    if (!generators.empty()) {
      const OutEdges out(graph_);
      for (NodeId node : generators) {
        const int32_t device = CommonConsumerDevice(out.of(node));
        if (device >= 0 && Allowed(node, device)) {
          assigned_[Index(node)] = device;
        } else {
          MG_RETURN_IF_ERROR(AssignBest(node, node));
        }
      }
    }
    for (NodeId node : metadata) {
      NodeId source = graph_.inputs(node)[0].node;
      while (assigned_[Index(Find(source))] < 0)
        source = graph_.inputs(source)[0].node;  // that one is such a node, too
      const int32_t device = assigned_[Index(Find(source))];
      if (Allowed(node, device)) {
        assigned_[Index(node)] = device;
      } else {
        MG_RETURN_IF_ERROR(AssignBest(node, node));
      }
    }
    return Status();
  }

  // The one device of all consumers that have a device already; -1 if they have several, or none
  // has one.
  int32_t CommonConsumerDevice(std::span<const OutEdge> edges) {
    int32_t common = -1;
    for (const OutEdge& edge : edges) {
      const int32_t device = assigned_[Index(Find(edge.target))];
      if (device < 0) continue;
      if (common >= 0 && device != common) return -1;
      common = device;
    }
    return common;
  }

  bool Allowed(NodeId root, int32_t device) const {
    return devices_.Fits(devices_.at(device), Spec(spec_[Index(root)]), types_of_[Index(root)]);
  }

  Status AssignBest(NodeId root, NodeId node) {
    const int32_t spec = spec_[Index(root)];
    const TypeMask types = types_of_[Index(root)];
    auto [found, added] = choices_.try_emplace(PairKey(spec, types));
    Choice& choice = found->second;
    if (added) {
      choice.device = devices_.BestMatch(Spec(spec), types);
      if (choice.device < 0 && options_.allow_soft_placement) {
        choice.device = devices_.BestMatch(TaskPart(Spec(spec)), types);
        choice.softened = true;
      }
    }
    if (choice.device < 0) return RefusalOf(node).Unplaceable(Spec(spec), types);
    if (choice.softened) {
      const std::string why = devices_.BestMatch(Spec(spec), devices_.all_types()) < 0
                                  ? MissingText(devices_, Spec(spec))
                                  : "there is no kernel for it there; its group has kernels for " +
                                        TypesText(devices_, types);
      Note(node, "Soft placement of " + graph_.NodeText(node) + " from '" + Spec(spec).ToString() +
                     "' to '" + devices_.at(choice.device).text + "': " + why);
    }
    assigned_[Index(root)] = choice.device;
    return Status();
  }

  // What a refusal of the node's group is about.
  Refusal RefusalOf(NodeId node) {
    Refusal refusal{graph_, devices_, {}, options_.allow_soft_placement, options_.kernel_remark};
    for (NodeId member = 0; member < graph_.num_nodes(); ++member) {
      if (Find(member) == Find(node))
        refusal.members.push_back(
            {member, Spec(requested_[Index(member)]), node_types_[Index(member)]});
    }
    return refusal;
  }

  Graph& graph_;
  const PlaceOptions& options_;
  std::vector<PlacementNote>* notes_;
  BodyDevices body_devices_;
  const DeviceSet devices_;

  std::vector<DeviceName> specs_;  // constraints; 0 is "none"
  std::unordered_map<std::string, int32_t> spec_index_;
  std::unordered_map<uint64_t, std::pair<int32_t, bool>, PairHash> merges_;
  std::unordered_map<uint64_t, Choice, PairHash> choices_;

  std::vector<std::pair<NodeId, NodeId>> resource_edges_;
  std::vector<int32_t> requested_;    // per node: the requested device
  std::vector<TypeMask> node_types_;  // per node: types that have a kernel
  std::vector<NodeId> parent_;
  std::vector<int32_t> size_, spec_, assigned_;  // of a root
  std::vector<TypeMask> types_of_;

  // The first colocation that cannot be.
  struct Conflict {
    NodeId a, b;
    std::array<DeviceName, 2> specs;
    std::array<TypeMask, 2> types;
  };
  std::optional<Conflict> conflict_;
};

}  // namespace

Status Place(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
             std::vector<PlacementNote>* notes) {
  return Placer(graph, devices, options, notes).Run();
}

std::vector<NodeId> CallsThatSpanTasks(const Graph& graph) {
  std::vector<NodeId> calls;
  BodyDevices bodies(graph.functions());
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    if (IsFunctional(graph, node) || (IsCall(graph, node) && bodies.SpansTasks(graph, node)))
      calls.push_back(node);
  }
  return calls;
}

}  // namespace monograph
