// In the phases of Run: CollectWishes (requested devices; a call requests the task that its body
// names, a user of a resource the resource's device), CollectKernels (device types with a kernel,
// as bits), Unite (colocation groups, by union-find: each has one constraint and one set of types),
// Assign (the best device for each group; at last nodes without inputs join their consumers, and
// Shape, Size and Rank their inputs). Constraints are interned, and merging or choosing by them is
// remembered: a graph has many nodes and few requests. The last part writes the errors.
#include "graph/place.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "graph/function.h"

namespace monograph {
namespace {

constexpr std::string_view kClientJob = "client";
constexpr size_t kMaxListedDevices = 8;
constexpr size_t kMaxListedMembers = 100;
constexpr int kMaxCallDepth = 64;

// TensorFlow's order: accelerators before the host.
int TypePriority(std::string_view type) {
  if (type == "GPU") return 210;
  if (type == "CPU") return 70;
  return 100;
}

bool IsCall(const Graph& graph, NodeId node) {
  return graph.is(node, "PartitionedCall") || graph.is(node, "StatefulPartitionedCall");
}

const Function* Callee(const Graph& graph, NodeId node, const FunctionLibrary& library) {
  const AttrValue* value = graph.attrs(node).Find("f");
  const auto* name = value == nullptr ? nullptr : std::get_if<FunctionName>(value);
  return name == nullptr ? nullptr : library.Find(name->name);
}

bool IsMetadata(const Graph& graph, NodeId node) {
  return graph.is(node, "Shape") || graph.is(node, "Size") || graph.is(node, "Rank");
}

DeviceName TaskPart(const DeviceName& name) {
  DeviceName task;
  task.job = name.job;
  task.replica = name.replica;
  task.task = name.task;
  return task;
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string NodeText(const Graph& graph, NodeId node) {
  return Quoted(graph.name(node)) + " (" + graph.op(node).name() + ")";
}

std::string WishText(const DeviceName& wish) {
  return wish.empty() ? std::string("asks for no device") : "asks for '" + wish.ToString() + "'";
}

// The different devices that the bodies of functions request, relative to the call; bodies of calls
// within them are included.
class BodyWishes {
 public:
  explicit BodyWishes(const FunctionLibrary& library) : library_(library) {}

  const std::vector<DeviceName>& Of(const Function& function) { return Of(function, 0); }

  // Job, replica and task that `call` and its body request together; false if they contradict each
  // other.
  bool TaskWish(const Graph& graph, NodeId call, DeviceName* task) {
    const DeviceName& own = graph.device(call);
    *task = TaskPart(own);
    const Function* function = Callee(graph, call, library_);
    if (function == nullptr) return true;
    for (const DeviceName& wish : Of(*function)) {
      Result<DeviceName> merged = MergeConstraints(*task, TaskPart(MergeScope(wish, own)), false);
      if (!merged.ok()) return false;
      *task = *merged;
    }
    return true;
  }

  bool Spans(const Graph& graph, NodeId call) {
    DeviceName task;
    if (!TaskWish(graph, call, &task)) return true;
    DeviceName whole = MergeScope(graph.device(call), task);
    for (const Endpoint& input : graph.inputs(call)) {
      if (graph.dtype(input) != DT_RESOURCE) continue;
      Result<DeviceName> merged = MergeConstraints(whole, graph.device(input.node), false);
      if (!merged.ok()) return true;
      whole = *merged;
    }
    return false;
  }

 private:
  const std::vector<DeviceName>& Of(const Function& function, int depth) {
    auto found = wishes_.find(&function);
    if (found != wishes_.end()) return found->second;
    std::vector<DeviceName> wishes;
    auto add = [&](const DeviceName& wish) {
      if (!wish.empty() && std::find(wishes.begin(), wishes.end(), wish) == wishes.end()) {
        wishes.push_back(wish);
      }
    };
    const Graph& body = *function.body;
    std::vector<bool> seen(body.devices().size());
    for (NodeId node = 0; node < body.num_nodes(); ++node) {
      seen[static_cast<size_t>(body.device_index(node))] = true;
      if (depth >= kMaxCallDepth || !IsCall(body, node)) continue;
      if (const Function* inner = Callee(body, node, library_)) {
        const std::vector<DeviceName> inner_wishes = Of(*inner, depth + 1);
        for (const DeviceName& wish : inner_wishes) add(MergeScope(wish, body.device(node)));
      }
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i]) add(body.devices()[i]);
    }
    return wishes_[&function] = std::move(wishes);
  }

  const FunctionLibrary& library_;
  std::unordered_map<const Function*, std::vector<DeviceName>> wishes_;
};

struct PairHash {
  size_t operator()(uint64_t key) const { return (key * 0x9e3779b97f4a7c15ull) >> 17; }
};

uint64_t PairKey(int32_t a, uint32_t b) { return (static_cast<uint64_t>(a) << 32) | b; }

class Placer {
 public:
  Placer(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
         std::vector<PlacementNote>* notes)
      : graph_(*graph), options_(options), notes_(notes), body_wishes_(graph->functions()) {
    for (const DeviceInfo& device : devices)
      devices_.push_back({device.name, device.name.ToString()});
    std::sort(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) {
      const int pa = TypePriority(a.name.type), pb = TypePriority(b.name.type);
      return pa != pb ? pa > pb : a.text < b.text;
    });
    for (Device& device : devices_) {
      auto known = std::find(types_.begin(), types_.end(), device.name.type);
      device.type = static_cast<uint32_t>(known - types_.begin());
      if (known == types_.end()) types_.push_back(device.name.type);
    }
    all_types_ = types_.size() >= 32 ? ~0u : (1u << types_.size()) - 1;
  }

  Status Run() {
    if (devices_.empty()) return InvalidArgument("Cannot assign devices: there are no devices");
    if (types_.size() > 32)
      return InvalidArgument("Cannot assign devices: more than 32 types of devices");
    MG_RETURN_IF_ERROR(CollectWishes());
    MG_RETURN_IF_ERROR(CollectKernels());
    MG_RETURN_IF_ERROR(Unite());
    MG_RETURN_IF_ERROR(Assign());
    std::vector<DeviceIndex> interned(devices_.size(), -1);
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      const auto device = static_cast<size_t>(assigned_[Index(Find(node))]);
      if (interned[device] < 0) interned[device] = graph_.InternDevice(devices_[device].name);
      graph_.SetDevice(node, interned[device]);
    }
    if (notes_ != nullptr && options_.has_kernel) NoteBodies();
    return Status();
  }

 private:
  struct Device {
    DeviceName name;
    std::string text;
    uint32_t type = 0;
  };
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
      const std::string& type = graph_.device(call).type;
      const Function* function = type != "CPU" && IsCall(graph_, call)
                                     ? Callee(graph_, call, graph_.functions())
                                     : nullptr;
      if (function == nullptr || !told.insert(function).second) continue;
      const Graph& body = *function->body;
      NodeId first = -1;
      int others = -1;
      for (NodeId node = 0; node < body.num_nodes(); ++node) {
        if (!body.device(node).type.empty() || IsCall(body, node) ||
            options_.has_kernel(body, node, type) || !options_.has_kernel(body, node, "CPU"))
          continue;
        if (first < 0) first = node;
        ++others;
      }
      if (first < 0) continue;
      Note(call, NodeText(graph_, call) + " runs on " + graph_.device(call).ToString() + ", but " +
                     NodeText(body, first) +
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

  Status CollectWishes() {
    const size_t n = static_cast<size_t>(graph_.num_nodes());
    Intern(DeviceName());
    std::vector<int32_t> of_index;
    for (const DeviceName& device : graph_.devices()) of_index.push_back(Intern(device));
    wish_.resize(n);
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      wish_[Index(node)] = of_index[static_cast<size_t>(graph_.device_index(node))];
      if (IsCall(graph_, node)) {
        DeviceName task;
        if (!body_wishes_.TaskWish(graph_, node, &task)) {
          return InvalidArgument(
              "Cannot assign a device for operation " + std::string(graph_.name(node)) + ": " +
              NodeText(graph_, node) +
              " calls a function whose operations ask for devices of several tasks; inline "
              "the call before placing, or give its operations devices of one task");
        }
        wish_[Index(node)] = Intern(MergeScope(graph_.device(node), task));
      }
    }
    // A resource cannot move: its users go to its device, whatever device they request.
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      for (const Endpoint& input : graph_.inputs(node)) {
        if (graph_.dtype(input) != DT_RESOURCE) continue;
        resource_edges_.emplace_back(input.node, node);
        int32_t& wish = wish_[Index(node)];
        const int32_t owner = wish_[Index(input.node)];
        bool softly = false;
        const int32_t merged = Merge(owner, wish, &softly);
        if (merged >= 0 && !softly) continue;
        Note(node, "Ignoring device specification " + Spec(wish).ToString() + " for node " +
                       Quoted(graph_.name(node)) + " because it uses the resource of " +
                       Quoted(graph_.name(input.node)) + ", which asks for " +
                       Spec(owner).ToString());
        wish = owner;
      }
    }
    return Status();
  }

  Status CollectKernels() {
    node_types_.assign(wish_.size(), all_types_);
    if (!options_.has_kernel) return Status();
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      // The task that runs a call decides about its body. Transfers and arguments need no kernel.
      if (IsCall(graph_, node) || graph_.op(node).name().starts_with('_')) continue;
      uint32_t mask = 0;
      for (size_t type = 0; type < types_.size(); ++type) {
        if (options_.has_kernel(graph_, node, types_[type])) mask |= 1u << type;
      }
      if (mask == 0) {
        return InvalidArgument(
            "Cannot assign a device for operation " + std::string(graph_.name(node)) +
            ": No OpKernel was registered to support Op '" + graph_.op(node).name() +
            "' used by node " + Quoted(graph_.name(node)) + AttrText(node) +
            " on the device types of this cluster (" + TypesText(all_types_) + ")");
      }
      node_types_[Index(node)] = mask;
    }
    return Status();
  }

  Status Unite() {
    const size_t n = wish_.size();
    parent_.resize(n);
    for (size_t i = 0; i < n; ++i) parent_[i] = static_cast<NodeId>(i);
    size_.assign(n, 1);
    spec_ = wish_;
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
    return conflict_a_ < 0 ? Status() : ConflictError();
  }

  void Join(NodeId a, NodeId b, bool may_ignore) {
    NodeId root_a = Find(a), root_b = Find(b);
    if (root_a == root_b) return;
    bool softly = false;
    int32_t spec = Merge(spec_[Index(root_a)], spec_[Index(root_b)], &softly);
    const uint32_t types = types_of_[Index(root_a)] & types_of_[Index(root_b)];
    if (spec < 0 || types == 0) {
      if (may_ignore && options_.allow_soft_placement) {
        Note(b, "Ignoring the colocation of " + Quoted(graph_.name(b)) + " with " +
                    Quoted(graph_.name(a)) + ": one is to be on '" +
                    Spec(spec_[Index(root_b)]).ToString() + "', the other on '" +
                    Spec(spec_[Index(root_a)]).ToString() + "'");
        return;
      }
      if (conflict_a_ < 0) {
        conflict_a_ = a;
        conflict_b_ = b;
        conflict_specs_ = {spec_[Index(root_a)], spec_[Index(root_b)]};
        conflict_types_ = {types_of_[Index(root_a)], types_of_[Index(root_b)]};
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
    assigned_.assign(wish_.size(), -1);
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
    const Device& d = devices_[static_cast<size_t>(device)];
    return (types_of_[Index(root)] >> d.type & 1u) != 0 && Spec(spec_[Index(root)]).Matches(d.name);
  }

  int32_t BestMatch(const DeviceName& spec, uint32_t types) const {
    int32_t best = -1, best_rank = -1;
    for (size_t i = 0; i < devices_.size(); ++i) {
      const Device& device = devices_[i];
      if ((types >> device.type & 1u) == 0 || !spec.Matches(device.name)) continue;
      // If no job is requested, the default one comes first and the client's own last.
      int32_t rank = device.name.job == kClientJob ? 0 : 1;
      if (!options_.default_job.empty() && device.name.job == options_.default_job) rank = 2;
      if (rank > best_rank) {
        best = static_cast<int32_t>(i);
        best_rank = rank;
      }
    }
    return best;
  }

  Status AssignBest(NodeId root, NodeId node) {
    const int32_t spec = spec_[Index(root)];
    const uint32_t types = types_of_[Index(root)];
    auto [found, added] = choices_.try_emplace(PairKey(spec, types));
    Choice& choice = found->second;
    if (added) {
      choice.device = BestMatch(Spec(spec), types);
      if (choice.device < 0 && options_.allow_soft_placement) {
        choice.device = BestMatch(TaskPart(Spec(spec)), types);
        choice.softened = true;
      }
    }
    if (choice.device < 0) return UnplaceableError(root, node);
    if (choice.softened) {
      const std::string why =
          BestMatch(Spec(spec), all_types_) < 0
              ? MissingText(Spec(spec))
              : "there is no kernel for it there; its group has kernels for " + TypesText(types);
      Note(node, "Soft placement of " + NodeText(graph_, node) + " from '" + Spec(spec).ToString() +
                     "' to '" + devices_[static_cast<size_t>(choice.device)].text + "': " + why);
    }
    assigned_[Index(root)] = choice.device;
    return Status();
  }

  // ---- Error texts ----

  std::string TypesText(uint32_t mask) const {
    std::string text;
    for (size_t type = 0; type < types_.size(); ++type) {
      if ((mask >> type & 1u) != 0) text += (text.empty() ? "" : ", ") + types_[type];
    }
    return text.empty() ? "none" : text;
  }

  std::string AttrText(NodeId node) const {
    std::string text;
    for (const auto& [name, value] : graph_.attrs(node).values()) {
      if (!std::holds_alternative<DType>(value)) continue;
      text += (text.empty() ? " with " : ", ") + name + "=" +
              std::string(DTypeName(std::get<DType>(value)));
    }
    return text;
  }

  std::string DevicesText() const {
    std::vector<std::string> names;
    for (const Device& device : devices_) names.push_back(device.text);
    std::sort(names.begin(), names.end());
    std::string text = "[ ";
    for (size_t i = 0; i < names.size() && i < kMaxListedDevices; ++i)
      text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > kMaxListedDevices)
      text += ", ... " + std::to_string(names.size() - kMaxListedDevices) + " more";
    return text + " ]";
  }

  // Which part of `spec` no device has, and what there is instead.
  std::string MissingText(const DeviceName& spec) const {
    DeviceName prefix;
    auto values = [&](auto&& get) {
      std::set<std::string> all;
      std::set<int> numbers;
      for (const Device& device : devices_) {
        if (!prefix.Matches(device.name)) continue;
        if constexpr (std::is_same_v<decltype(get(device.name)), int>) {
          numbers.insert(get(device.name));
        } else {
          all.insert(get(device.name));
        }
      }
      std::string text;
      size_t count = 0;
      for (int number : numbers) {
        if (++count > 16) break;
        text += (text.empty() ? "" : ", ") + std::to_string(number);
      }
      for (const std::string& value : all) text += (text.empty() ? "" : ", ") + value;
      return numbers.size() > 16 ? text + ", ... up to " + std::to_string(*numbers.rbegin()) : text;
    };
    auto missing = [&] {
      return std::none_of(devices_.begin(), devices_.end(),
                          [&](const Device& device) { return prefix.Matches(device.name); });
    };
    const DeviceName open;
    prefix.job = spec.job;
    if (missing()) {
      prefix = open;
      return "there is no job '" + spec.job +
             "'; there are: " + values([](const DeviceName& d) { return d.job; });
    }
    DeviceName before = prefix;
    // Says that what `before` names has no `what`. `before` has the parts of the spec that do
    // exist, `owner` is what kind of thing they name, and `get` lists what exists instead.
    auto lacks = [&](const std::string& owner, const std::string& what, auto&& get) {
      prefix = before;
      const std::string there = values(get);
      const DeviceName where = TaskPart(before);
      if (where.empty()) return "no " + owner + " has a " + what + "; there are: " + there;
      const bool job = where.replica < 0 && where.task < 0;
      return (job ? "job '" + where.job : "'" + where.ToString()) + "' has no " + what +
             "; it has: " + there;
    };
    prefix.replica = spec.replica;
    if (missing()) {
      return lacks("job", "replica " + std::to_string(spec.replica),
                   [](const DeviceName& d) { return d.replica; });
    }
    before = prefix;
    prefix.task = spec.task;
    if (missing()) {
      return lacks("job", "task " + std::to_string(spec.task),
                   [](const DeviceName& d) { return d.task; });
    }
    before = prefix;
    prefix.type = spec.type;
    if (missing()) {
      return lacks("task", "device of type " + spec.type,
                   [](const DeviceName& d) { return d.type; });
    }
    before = prefix;
    prefix.id = spec.id;
    if (missing()) {
      const std::string type = spec.type.empty() ? "" : spec.type + ":";
      return lacks("task", "device " + type + std::to_string(spec.id),
                   [](const DeviceName& d) { return d.type + ":" + std::to_string(d.id); });
    }
    return "no device has all of it";
  }

  // The members of the group and what binds each to it; "" for a node by itself.
  std::string GroupText(NodeId root) {
    if (size_[Index(root)] == 1) return std::string();
    std::string text =
        "\nThe colocation group has " + std::to_string(size_[Index(root)]) + " operations:";
    size_t count = 0;
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      if (Find(node) != root) continue;
      if (++count > kMaxListedMembers) {
        text += "\n  ... and " +
                std::to_string(static_cast<size_t>(size_[Index(root)]) - kMaxListedMembers) +
                " more";
        break;
      }
      text += "\n  " + NodeText(graph_, node) + " " + WishText(graph_.device(node));
      if (const AttrValue* value = graph_.attrs(node).Find("_class")) {
        if (const auto* list = std::get_if<std::vector<std::string>>(value)) {
          for (const std::string& name : *list) {
            text += ", colocated by '" + name + "'";
          }
        }
      }
      for (const Endpoint& input : graph_.inputs(node)) {
        if (graph_.dtype(input) == DT_RESOURCE)
          text += ", uses the resource of " + Quoted(graph_.name(input.node));
      }
      if (node_types_[Index(node)] != all_types_)
        text += ", has kernels for " + TypesText(node_types_[Index(node)]);
    }
    return text;
  }

  Status ConflictError() {
    const std::string b(graph_.name(conflict_b_));
    std::string text = "Cannot assign a device for operation " + b + ": Cannot colocate nodes " +
                       NodeText(graph_, conflict_a_) + " and " + NodeText(graph_, conflict_b_) +
                       ": ";
    Result<DeviceName> merged =
        MergeConstraints(Spec(conflict_specs_[0]), Spec(conflict_specs_[1]), false);
    if (!merged.ok()) {
      text += merged.status().message() +
              ". Give all of the group one device, or remove the colocation between these two";
    } else {
      text += "the first has kernels for " + TypesText(conflict_types_[0]) +
              " only, the second for " + TypesText(conflict_types_[1]) +
              ". Remove the colocation between these two";
    }
    if (!options_.allow_soft_placement)
      text += ", or set allow_soft_placement if only the type or id differs";
    return InvalidArgument(text + "." + GroupText(Find(conflict_b_)));
  }

  Status UnplaceableError(NodeId root, NodeId node) {
    const DeviceName& spec = Spec(spec_[Index(root)]);
    // Name a member whose own request cannot be fulfilled, if there is one.
    NodeId culprit = node;
    bool alone = false;
    for (NodeId member = 0; member < graph_.num_nodes(); ++member) {
      if (Find(member) != root || wish_[Index(member)] == 0) continue;
      if (BestMatch(Spec(wish_[Index(member)]), all_types_) < 0) {
        culprit = member;
        alone = true;
        break;
      }
    }
    std::string text =
        "Cannot assign a device for operation " + std::string(graph_.name(culprit)) + ": ";
    if (alone || BestMatch(spec, all_types_) < 0) {
      const DeviceName& asked = alone ? Spec(wish_[Index(culprit)]) : spec;
      text +=
          std::string(graph_.name(culprit)) +
          (alone ? " was explicitly assigned to " : " must, with its group, go to ") +
          asked.ToString() + " but available devices are " + DevicesText() +
          ". Make sure the device specification refers to a valid device: " + MissingText(asked) +
          ".";
      if (!options_.allow_soft_placement &&
          BestMatch(TaskPart(asked), types_of_[Index(root)]) >= 0) {
        text +=
            " With allow_soft_placement it would run on '" +
            devices_[static_cast<size_t>(BestMatch(TaskPart(asked), types_of_[Index(root)]))].text +
            "'.";
      }
    } else {
      uint32_t asked = 0;
      for (const Device& device : devices_) {
        if (spec.Matches(device.name)) asked |= 1u << device.type;
      }
      for (NodeId member = 0; member < graph_.num_nodes(); ++member) {
        if (Find(member) == root && (node_types_[Index(member)] & asked) == 0) {
          culprit = member;
          break;
        }
      }
      text = "Cannot assign a device for operation " + std::string(graph_.name(culprit)) +
             ": Could not satisfy explicit device specification '" + spec.ToString() +
             "' because no supported kernel for " + TypesText(asked) +
             " devices is available. Op '" + graph_.op(culprit).name() + "'" + AttrText(culprit) +
             " has kernels for " + TypesText(node_types_[Index(culprit)]) +
             ". Ask for such a device" +
             (options_.allow_soft_placement ? "." : ", or set allow_soft_placement.");
    }
    return InvalidArgument(text + GroupText(root));
  }

  Graph& graph_;
  const PlaceOptions& options_;
  std::vector<PlacementNote>* notes_;
  BodyWishes body_wishes_;
  std::vector<Device> devices_;  // best first
  std::vector<std::string> types_;
  uint32_t all_types_ = 0;

  std::vector<DeviceName> specs_;  // constraints; 0 is "none"
  std::unordered_map<std::string, int32_t> spec_index_;
  std::unordered_map<uint64_t, std::pair<int32_t, bool>, PairHash> merges_;
  std::unordered_map<uint64_t, Choice, PairHash> choices_;

  std::vector<std::pair<NodeId, NodeId>> resource_edges_;
  std::vector<int32_t> wish_;         // per node: the requested device
  std::vector<uint32_t> node_types_;  // per node: types that have a kernel
  std::vector<NodeId> parent_;
  std::vector<int32_t> size_, spec_, assigned_;  // of a root
  std::vector<uint32_t> types_of_;

  NodeId conflict_a_ = -1, conflict_b_ = -1;
  std::array<int32_t, 2> conflict_specs_{};
  std::array<uint32_t, 2> conflict_types_{};
};

}  // namespace

Status Place(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
             std::vector<PlacementNote>* notes) {
  return Placer(graph, devices, options, notes).Run();
}

bool SpansTasks(const Graph& graph, NodeId call) {
  return IsCall(graph, call) && BodyWishes(graph.functions()).Spans(graph, call);
}

std::vector<NodeId> CallsThatSpanTasks(const Graph& graph) {
  std::vector<NodeId> calls;
  BodyWishes wishes(graph.functions());
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    if (IsCall(graph, node) && wishes.Spans(graph, node)) calls.push_back(node);
  }
  return calls;
}

}  // namespace monograph
