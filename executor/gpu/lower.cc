// Lowering, in the phases of Run: Classify (executor/gpu/classify.h: the device and kernel of each
// node, and whether a collective goes from GPU to GPU), TaskOrder, PlaceOutputs (where each tensor
// is made: on the host or on a GPU), PlanCopies (one for each tensor and place where it is needed
// and not made), CheckJoint (collectives that are launched with other nodes), Group (nodes into
// segments: gpu/segments.h), Build (the new graph).
//
// With control flow (graph/control_flow.h): what directs it (Switch, Merge, ...) hands a tensor on
// where it lies, so that a loop's variable stays on its GPU; a Merge of tensors that lie in several
// places is on the GPU. Predicates go to the host. What computes shapes and counters, from and to
// the host's memory alone, is run there, so that a loop's counter and its comparison wait for no
// GPU. Which segment or copy made a tensor that comes through a Switch or a Merge is known at run
// time only: who reads it waits for all that may have (MayComeFrom).
#include "executor/gpu/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "executor/gpu/classify.h"
#include "executor/gpu/copies.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/joint_launch.h"
#include "executor/gpu/members.h"
#include "executor/gpu/places.h"
#include "executor/gpu/segment.h"
#include "executor/gpu/segments.h"
#include "executor/plan/task_graph.h"
#include "executor/plan/task_kernels.h"
#include "graph/control_flow.h"
#include "graph/joint_collectives.h"
#include "graph/structural_ops.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

std::unique_ptr<bool[]> Flags(const std::vector<bool>& from) {
  auto flags = std::make_unique<bool[]>(std::max<size_t>(1, from.size()));
  std::copy(from.begin(), from.end(), flags.get());
  return flags;
}

class Lowering {
 public:
  Lowering(const Graph& graph, const PlanOptions& options)
      : graph_(graph), options_(options), out_{Graph(&graph.registry()), {}} {}

  Result<LoweredGraph> Run() {
    out_.graph.ShareFunctions(graph_.shared_functions());  // borrowed ops call them
    MG_ASSIGN_OR_RETURN(linked_sends_, LinkedSends(graph_));
    if (HasControlFlow(graph_)) {
      MG_ASSIGN_OR_RETURN(flow_, FindControlFlow(graph_));
    }
    MG_ASSIGN_OR_RETURN(nodes_, Classify(graph_, options_, linked_sends_, flow_));
    for (const Info& node : nodes_) {
      // A lost device computes nothing any more: report that now, and not in the first step.
      if (node.gpu != kHost) MG_RETURN_IF_ERROR(Gpu(node.gpu)->health());
    }
    MG_ASSIGN_OR_RETURN(order_, TaskOrder(graph_, linked_sends_, NextReady::kFirstIn));
    MG_RETURN_IF_ERROR(PlaceOutputs());
    MG_RETURN_IF_ERROR(PlanCopies());
    MG_RETURN_IF_ERROR(CheckJoint());
    Group();
    MG_RETURN_IF_ERROR(Build());
    return std::move(out_);
  }

 private:
  using Info = ClassifiedNode;
  // The copy of a tensor to a place where it was not made.
  struct Copy {
    Endpoint from;
    int32_t to;
    std::shared_ptr<Inbound> inbound;  // of one to a GPU
    NodeId id = -1;                    // in the new graph
  };
  // Numbers for PlanSegments: first the nodes of graph_, then the copies.
  size_t CopyNode(size_t copy) const { return nodes_.size() + copy; }
  Info& at(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const std::string& DeviceOf(int32_t gpu) const {
    return options_.devices[static_cast<size_t>(gpu)]->name();
  }
  GpuDevice* Gpu(int32_t gpu) const { return options_.devices[static_cast<size_t>(gpu)]->gpu(); }
  std::string Who(NodeId id) const { return NodeAndDevice(graph_, id); }

  bool has_flow() const { return !flow_.frames.empty(); }

  static std::unique_ptr<CollectiveKernel> TakeCollective(std::unique_ptr<Kernel>* kernel) {
    return std::unique_ptr<CollectiveKernel>(static_cast<CollectiveKernel*>(kernel->release()));
  }

  // The _Send that a _Recv gets its tensor from; -1: it comes from elsewhere, or it is no _Recv.
  NodeId linked_send(NodeId id) const { return linked_sends_[static_cast<size_t>(id)]; }

  int32_t PlaceOf(Endpoint e) const { return places_->Of(e); }
  int32_t Wants(NodeId id, size_t input) const { return places_->Wants(id, input); }

  Status PlaceOutputs() {
    std::vector<PlacedNode*> nodes;
    for (Info& node : nodes_) nodes.push_back(&node);
    places_ = std::make_unique<TensorPlaces>(graph_, linked_sends_, std::move(nodes));
    MG_RETURN_IF_ERROR(places_->Find(order_));
    for (Info& node : nodes_) {
      if (!node.on_host) continue;
      node.gpu = kHost;
      node.kernel.reset();
      node.launched = false;
    }
    return Status();
  }

  Status PlanCopies() {
    for (const NodeId id : order_) {
      for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
        const Endpoint from = graph_.inputs(id)[i];
        const int32_t to = Wants(id, i);
        if (to == PlaceOf(from)) continue;
        if (graph_.dtype(from) == DT_VARIANT) {
          return Unimplemented(
              "the variant '" + graph_.TensorName(from) + "' of " + Who(from.node) +
              " cannot move to " + Who(id) +
              ": it may hold tensors in another memory; let both be on one device");
        }
        // Between two GPUs this is one copy; without peer access the driver finds another way.
        if (!copy_of_.emplace(std::pair(from, to), copies_.size()).second) continue;
        copies_.push_back({from, to});
        if (to == kHost) continue;
        copies_.back().inbound = std::make_shared<Inbound>();
        copies_.back().inbound->queue = PlaceOf(from) == kHost ? Queue::kToDevice : Queue::kPeer;
      }
    }
    return Status();
  }

  // The endpoint's copy at `to`, or -1.
  int64_t FindCopy(Endpoint from, int32_t to) const {
    const auto found = copy_of_.find({from, to});
    return found == copy_of_.end() ? -1 : static_cast<int64_t>(found->second);
  }

  // Whether places of joint collectives are as graph/joint_collectives.h says, as far as this task
  // can tell. REQUIRES: order_.
  Status CheckJoint() {
    std::map<int32_t, std::vector<NodeId>> joint;  // by GPU and place
    std::vector<bool> behind(nodes_.size(), false);
    const auto is_behind = [&](NodeId source) {
      return behind[static_cast<size_t>(source)] || at(source).place >= 0;
    };
    for (const NodeId id : order_) {
      bool waits = linked_send(id) >= 0 && is_behind(linked_send(id));
      for (const Endpoint& e : graph_.inputs(id)) waits = waits || is_behind(e.node);
      for (const NodeId control : graph_.control_inputs(id)) waits = waits || is_behind(control);
      behind[static_cast<size_t>(id)] = waits;
      if (at(id).place < 0) continue;
      const auto count = graph_.attrs(id).Get<std::vector<int64_t>>(kJointPlace)[1];
      auto& list = joint[at(id).gpu];
      if (list.empty())
        list.assign(static_cast<size_t>(std::clamp<int64_t>(count, 1, 1 << 20)), -1);
      const bool fits = at(id).place < static_cast<int64_t>(list.size()) &&
                        count == static_cast<int64_t>(list.size()) &&
                        list[static_cast<size_t>(at(id).place)] < 0;
      if (waits || !fits) {
        return InvalidArgument(Who(id) + ": " + std::string(kJointPlace) +
                               (waits ? " of a node that waits for another one with it"
                                      : " that another node has, or beyond their number"));
      }
      list[static_cast<size_t>(at(id).place)] = id;
    }
    for (const auto& [gpu, list] : joint) {
      if (std::ranges::count(list, -1) > 0)
        return InvalidArgument(DeviceOf(gpu) + ": " + std::string(kJointPlace) + " lacks places");
      const auto members = [&](NodeId id) {
        return graph_.attrs(id).GetOr<std::vector<std::string>>("members", {});
      };
      for (size_t place = 0; place < list.size(); ++place) {
        if (members(list[place]) != members(list[0]))
          return InvalidArgument(Who(list[place]) + ": other members than " + Who(list[0]));
        joint_before_[list[place]] = place == 0 ? -1 : list[place - 1];
      }
    }
    return Status();
  }

  void Group() {
    std::vector<SegmentNode> nodes(nodes_.size() + copies_.size());
    const auto number = [](size_t i) { return static_cast<int32_t>(i); };
    for (const NodeId id : order_) {
      SegmentNode& node = nodes[static_cast<size_t>(id)];
      if (at(id).launched) {
        node.device = at(id).gpu;
        node.cost = at(id).entry->def.cost == KernelCost::kExpensive ? 10 : 1;
        if (has_flow()) node.region = flow_.region[static_cast<size_t>(id)];
      }
      for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
        const Endpoint from = graph_.inputs(id)[i];
        if (graph_.IsBackEdge(from.node, id)) continue;
        const int64_t copy = FindCopy(from, Wants(id, i));
        node.before.push_back(copy < 0 ? from.node : number(CopyNode(static_cast<size_t>(copy))));
      }
      for (const NodeId control : graph_.control_inputs(id)) node.before.push_back(control);
      if (linked_send(id) >= 0) node.before.push_back(linked_send(id));
      if (const auto before = joint_before_.find(id); before != joint_before_.end()) {
        node.joint = true;
        if (before->second >= 0) node.before.push_back(before->second);
      }
    }
    for (size_t i = 0; i < copies_.size(); ++i)
      nodes[CopyNode(i)].before.push_back(copies_[i].from.node);
    plan_ = PlanSegments(nodes);
    waits_ = std::move(nodes);
  }

  // ---- the new graph

  struct Made {
    NodeId id = -1;
    SegmentSpec spec;
    std::map<Endpoint, int32_t> exits;  // of the old graph, to output
    Segment* kernel = nullptr;
  };

  int32_t SegmentOf(NodeId id) const { return plan_.segment_of[static_cast<size_t>(id)]; }

  // Adds old nodes, copies and segments to the new graph, each once and after what it waits for.
  Status Build() {
    made_.resize(plan_.segments.size());
    new_ids_.assign(nodes_.size(), -1);
    FindExits();
    const size_t count = nodes_.size() + copies_.size();
    const auto unit = [&](size_t node) {
      const int32_t segment = node < nodes_.size() ? SegmentOf(static_cast<NodeId>(node)) : -1;
      return segment >= 0 ? count + static_cast<size_t>(segment) : node;
    };
    std::vector<std::vector<int32_t>> after(count + made_.size());
    std::vector<bool> is_unit(after.size(), false);
    for (size_t node = 0; node < count; ++node) {
      is_unit[unit(node)] = true;
      for (const int32_t source : waits_[node].before) {
        const size_t from = unit(static_cast<size_t>(source));
        if (from != unit(node)) after[from].push_back(static_cast<int32_t>(unit(node)));
      }
    }
    const std::vector<int32_t> order =
        TopologicalSort(after.size(), NextReady::kLastIn, [&](int32_t from, const auto& visit) {
          for (const int32_t to : after[static_cast<size_t>(from)]) visit(to);
        });
    MG_CHECK(order.size() == after.size());  // segments do not wait for each other in a cycle
    for (const int32_t next : order) {
      const auto i = static_cast<size_t>(next);
      if (is_unit[i]) MG_RETURN_IF_ERROR(AddUnit(i));
    }
    for (NodeId id = 0; has_flow() && id < graph_.num_nodes(); ++id) {
      for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
        const Endpoint from = graph_.inputs(id)[i];
        if (graph_.IsBackEdge(from.node, id))
          out_.graph.ReplaceInput(MappedNode(id), static_cast<int>(i), Mapped(from));
      }
    }
    return Status();
  }

  Status AddUnit(size_t unit) {
    const size_t count = nodes_.size() + copies_.size();
    if (unit < nodes_.size()) return CopyOld(static_cast<NodeId>(unit));
    if (unit < count) return AddCopy(&copies_[unit - nodes_.size()]);
    return AddSegment(unit - count);
  }

  // Finds the outputs that are used outside their segment. A copy waits for an event of its own
  // (`awaited`).
  void FindExits() {
    const auto leave = [&](Endpoint e, bool awaited) {
      const int32_t segment = SegmentOf(e.node);
      if (segment < 0) return;
      Made& made = made_[static_cast<size_t>(segment)];
      const auto [exit, fresh] = made.exits.emplace(e, static_cast<int32_t>(made.exits.size()));
      if (fresh) {
        made.spec.awaited_exits.push_back(false);
        made.spec.host_exits.push_back(PlaceOf(e) == kHost || graph_.dtype(e) == DT_VARIANT);
      }
      if (awaited && PlaceOf(e) != kHost)
        made.spec.awaited_exits[static_cast<size_t>(exit->second)] = true;
    };
    for (const NodeId id : order_) {
      for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
        const Endpoint from = graph_.inputs(id)[i];
        if (FindCopy(from, Wants(id, i)) < 0 &&
            (SegmentOf(id) < 0 || SegmentOf(id) != SegmentOf(from.node)))
          leave(from, false);
      }
    }
    for (const Copy& copy : copies_) leave(MadeAt(copy.from), true);
  }

  // The endpoint at which the tensor of `e` is computed, behind linked _Sends and _Recvs.
  Endpoint MadeAt(Endpoint e) {
    while (linked_send(e.node) >= 0 && !graph_.inputs(linked_send(e.node)).empty())
      e = graph_.inputs(linked_send(e.node))[0];
    return e;
  }

  // What may have made a tensor that comes through control flow: these copies; beside them segments
  // and collectives, which the host knows to be issued, or there, when the tensor comes.
  Result<std::vector<std::shared_ptr<const Inbound>>> MayComeFrom(Endpoint e) {
    std::vector<std::shared_ptr<const Inbound>> inbounds;
    std::set<Endpoint> seen{e};
    std::vector<Endpoint> left{e};
    while (!left.empty()) {
      const Endpoint from = MadeAt(left.back());
      left.pop_back();
      const Info& node = at(from.node);
      if (node.flow == FlowOp::kNone) {
        MG_RETURN_IF_ERROR(CheckCopyable(from));
        continue;
      }
      // A Merge's tensor is one of its inputs; the others hand on their first.
      const size_t count = node.flow == FlowOp::kMerge ? graph_.inputs(from.node).size() : 1;
      for (size_t i = 0; i < count; ++i) {
        const Endpoint input = graph_.inputs(from.node)[i];
        if (const int64_t copy = FindCopy(input, Wants(from.node, i)); copy >= 0) {
          inbounds.push_back(copies_[static_cast<size_t>(copy)].inbound);
        } else if (seen.insert(input).second) {
          left.push_back(input);
        }
      }
    }
    return inbounds;
  }
  Status CheckCopyable(Endpoint made) {
    const Info& node = at(made.node);
    if (PlaceOf(made) == kHost || node.launched || node.direct) return Status();
    return Unimplemented(Who(made.node) +
                         ": what an asynchronous kernel leaves in a GPU's memory cannot be copied "
                         "from there; let a node of that GPU take it first");
  }
  // Adds the copies that a reader on the GPU waits for.
  Status AddInbounds(NodeId id, size_t input, std::vector<std::shared_ptr<const Inbound>>* to) {
    const Endpoint from = graph_.inputs(id)[input];
    const int32_t place = Wants(id, input);
    if (const int64_t copy = FindCopy(from, place); copy >= 0) {
      if (place != kHost) to->push_back(copies_[static_cast<size_t>(copy)].inbound);
    } else if (place != kHost && at(MadeAt(from).node).flow != FlowOp::kNone) {
      MG_ASSIGN_OR_RETURN(const auto inbounds, MayComeFrom(from));
      to->insert(to->end(), inbounds.begin(), inbounds.end());
    }
    return Status();
  }

  // An endpoint of the old graph in the new one.
  Endpoint Mapped(Endpoint e) {
    const int32_t segment = SegmentOf(e.node);
    if (segment < 0) return {new_ids_[static_cast<size_t>(e.node)], e.index};
    const Made& made = made_[static_cast<size_t>(segment)];
    return {made.id, made.exits.at(e)};
  }
  NodeId MappedNode(NodeId id) const {
    const int32_t segment = SegmentOf(id);
    return segment < 0 ? new_ids_[static_cast<size_t>(id)] : made_[static_cast<size_t>(segment)].id;
  }
  Endpoint MappedInput(NodeId id, size_t input) {
    const Endpoint from = graph_.inputs(id)[input];
    const int64_t copy = FindCopy(from, Wants(id, input));
    return copy < 0 ? Mapped(from) : Endpoint{copies_[static_cast<size_t>(copy)].id, 0};
  }

  Status CopyOld(NodeId id) {
    std::vector<Endpoint> inputs;
    for (size_t i = 0; i < graph_.inputs(id).size(); ++i) inputs.push_back(MappedInput(id, i));
    std::vector<NodeId> controls;
    for (const NodeId control : graph_.control_inputs(id)) controls.push_back(MappedNode(control));
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    const NodeId copy = out_.graph.CopyNode(graph_, id, graph_.name(id), inputs, controls);
    new_ids_[static_cast<size_t>(id)] = copy;
    Info& node = at(id);
    if (node.on_host) out_.graph.SetDevice(copy, out_.graph.InternDevice(FirstCpu(options_)));
    if (node.direct) {
      std::vector<std::shared_ptr<const Inbound>> inbounds;
      for (size_t i = 0; i < inputs.size(); ++i) MG_RETURN_IF_ERROR(AddInbounds(id, i, &inbounds));
      const std::string* owner = Gpu(node.gpu)->memory().Intern("node " + graph_.NodeText(id));
      out_.kernels[copy] = MakeMemberKernel(
          Gpu(node.gpu), TakeCollective(&node.kernel), std::move(node.merge), std::move(inbounds),
          {Flags(node.host_inputs), Flags(node.host_outputs)}, owner);
    } else if (node.gpu != kHost && node.kernel != nullptr) {  // an asynchronous kernel
      out_.kernels[copy] = MakeLaunched(Gpu(node.gpu), std::move(node.kernel),
                                        {Flags(node.host_inputs), Flags(node.host_outputs)});
    }
    return Status();
  }

  Result<NodeId> Add(const std::string& name, std::string_view op,
                     const std::vector<Endpoint>& inputs, const std::vector<NodeId>& controls,
                     Attrs attrs, int32_t gpu) {
    std::string unique;  // nor is it that of a node that has yet to be copied
    do unique = out_.graph.ReserveName(name);
    while (graph_.Find(unique) >= 0);
    return out_.graph.AddNode({.name = unique,
                               .op = op,
                               .inputs = inputs,
                               .control_inputs = controls,
                               .attrs = std::make_shared<const Attrs>(std::move(attrs)),
                               .device = DeviceOf(gpu)});
  }

  Status AddCopy(Copy* copy) {
    const int32_t from = PlaceOf(copy->from);
    const int32_t gpu = copy->to == kHost ? from : copy->to;
    const std::string name = graph_.TensorName(copy->from);
    MG_ASSIGN_OR_RETURN(copy->id,
                        Add("gpu/copy", kGpuCopyOp, {Mapped(copy->from)}, {},
                            Attrs{{"T", graph_.dtype(copy->from)}, {"tensor_name", name}}, gpu));
    out_.graph.SetShape({copy->id, 0}, graph_.shape(copy->from));
    TensorReady ready;
    if (from != kHost) {
      const Endpoint source = MadeAt(copy->from);
      const int32_t segment = SegmentOf(source.node);
      if (at(source.node).flow != FlowOp::kNone) {
        ready.after_segments = true;
        MG_ASSIGN_OR_RETURN(ready.inbounds, MayComeFrom(source));
      } else if (segment >= 0) {
        const Made& made = made_[static_cast<size_t>(segment)];
        ready.event = made.kernel->exit_event(static_cast<uint32_t>(made.exits.at(source)));
      } else {
        MG_RETURN_IF_ERROR(CheckCopyable(source));
      }
    }
    if (copy->to == kHost) {
      const std::string* what = Gpu(from)->memory().Intern("'" + name + "' (copied to the host)");
      out_.kernels[copy->id] = MakeCopyToHost(Gpu(from), what, std::move(ready));
      return Status();
    }
    const std::string* owner = Gpu(copy->to)->memory().Intern("'" + name + "' (copied here)");
    out_.kernels[copy->id] =
        from == kHost
            ? MakeCopyToDevice(Gpu(copy->to), owner, options_.pools, copy->inbound)
            : MakeCopyFromPeer(Gpu(copy->to), owner, Gpu(from), std::move(ready), copy->inbound);
    return Status();
  }

  Status AddSegment(size_t index) {
    Made& made = made_[index];
    SegmentSpec& spec = made.spec;
    const NodeGroup& group = plan_.segments[index];
    spec.device = Gpu(group.device);
    spec.order = static_cast<int32_t>(index);
    spec.what = LateNames(group);
    std::map<NodeId, uint32_t> item_of;
    for (const int32_t id : group.nodes) {
      item_of[id] = static_cast<uint32_t>(spec.items.size());
      spec.items.push_back(MakeItem(id, &spec.slots));
    }
    std::vector<Endpoint> inputs;
    std::map<Endpoint, size_t> entries;
    std::vector<NodeId> controls;
    for (const int32_t id : group.nodes) {
      const SegmentItem& item = spec.items[item_of[id]];
      for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
        const Endpoint from = graph_.inputs(id)[i];
        const uint32_t slot = item.first_input + static_cast<uint32_t>(i);
        if (FindCopy(from, Wants(id, i)) < 0 &&
            SegmentOf(from.node) == static_cast<int32_t>(index)) {
          spec.items[item_of[from.node]].uses.push_back({static_cast<uint32_t>(from.index), slot});
          continue;
        }
        const Endpoint mapped = MappedInput(id, i);
        const auto [entry, fresh] = entries.emplace(mapped, inputs.size());
        if (fresh) {
          inputs.push_back(mapped);
          spec.entries.emplace_back();
          spec.host_entries.push_back(at(id).host_inputs[i]);
          MG_RETURN_IF_ERROR(AddInbounds(id, i, &spec.inbounds));
        }
        spec.entries[entry->second].push_back(slot);
      }
      for (const NodeId control : graph_.control_inputs(id)) {
        if (SegmentOf(control) != static_cast<int32_t>(index))
          controls.push_back(MappedNode(control));
      }
    }
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    for (SegmentItem& item : spec.items) {
      std::stable_sort(item.uses.begin(), item.uses.end(),
                       [](const auto& a, const auto& b) { return a.output < b.output; });
    }
    std::vector<Endpoint> leaving(made.exits.size());
    for (const auto& [e, exit] : made.exits) {
      leaving[static_cast<size_t>(exit)] = e;
      spec.items[item_of[e.node]].exits.emplace_back(static_cast<uint32_t>(e.index),
                                                     static_cast<uint32_t>(exit));
    }
    std::vector<DType> input_types, output_types;
    for (const Endpoint& e : inputs) input_types.push_back(out_.graph.dtype(e));
    for (const Endpoint& e : leaving) output_types.push_back(graph_.dtype(e));
    MG_ASSIGN_OR_RETURN(made.id,
                        Add("gpu/segment", kGpuSegmentOp, inputs, controls,
                            Attrs{{"Tin", input_types}, {"Tout", output_types}}, group.device));
    for (size_t i = 0; i < leaving.size(); ++i)
      out_.graph.SetShape({made.id, static_cast<int32_t>(i)}, graph_.shape(leaving[i]));
    const auto joint = std::ranges::count_if(
        spec.items, [](const SegmentItem& item) { return item.collective != nullptr; });
    if (joint > 0) {
      LogInfo(DeviceOf(group.device) + " launches " +
              std::to_string(static_cast<ptrdiff_t>(spec.items.size()) - joint) + " nodes and " +
              std::to_string(joint) + (joint == 1 ? " collective" : " collectives") +
              " with the other members'");
    }
    MG_ASSIGN_OR_RETURN(auto kernel, Segment::Make(std::move(spec)));
    made.kernel = kernel.get();
    out_.kernels[made.id] = std::move(kernel);
    MG_ASSIGN_OR_RETURN(const NodeId fence,
                        Add("gpu/fence", kGpuFenceOp, {}, {made.id}, {}, group.device));
    out_.kernels[fence] = MakeFence(Gpu(group.device), LateNames(group));
    return Status();
  }

  // The name in an error that the GPU reports later: any of these nodes may have caused it.
  std::string LateNames(const NodeGroup& group) const {
    const auto name = [&](int32_t id) { return "node " + graph_.NodeText(id); };
    const size_t count = group.nodes.size();
    if (count == 1) return name(group.nodes[0]);
    return "one of the " + std::to_string(count) + " nodes from " + name(group.nodes.front()) +
           " to " + name(group.nodes.back()) + " (--gpu_launch_blocking says which)";
  }

  SegmentItem MakeItem(NodeId id, uint32_t* slots) {
    Info& node = at(id);
    SegmentItem item;
    if (node.place >= 0) {
      item.collective = std::make_shared<JointCollective>(
          JointCollective{TakeCollective(&node.kernel), std::move(node.merge)});
    }
    item.kernel = std::move(node.kernel);
    item.name = graph_.name(id);
    item.op = graph_.op(id).name();
    item.who = Who(id);
    item.owner = Gpu(node.gpu)->memory().Intern("node " + graph_.NodeText(id));
    item.first_input = *slots;
    *slots += static_cast<uint32_t>(node.host_inputs.size());
    bool resources = false, objects = false;  // strings and variants, which the host makes
    const auto look = [&](DType dtype) {
      resources = resources || dtype == DT_RESOURCE;
      objects = objects || (dtype != DT_RESOURCE && !IsPlainData(dtype));
    };
    for (const Endpoint& e : graph_.inputs(id)) {
      item.inputs.push_back(graph_.dtype(e));
      look(item.inputs.back());
    }
    for (int32_t i = 0; i < graph_.num_outputs(id); ++i) {
      item.outputs.push_back(graph_.dtype({id, i}));
      look(item.outputs.back());
    }
    item.host_inputs = Flags(node.host_inputs);
    item.host_outputs = Flags(node.host_outputs);
    item.reads_only = graph_.op(id).reads_only();
    // Of the ops with state only those on variables can be replayed.
    item.replayable = node.place >= 0 || (node.entry->def.replayable && !objects &&
                                          (!graph_.op(id).stateful() || resources));
    return item;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  LoweredGraph out_;
  std::vector<Info> nodes_;
  std::vector<NodeId> linked_sends_;
  std::vector<NodeId> order_;
  std::vector<Copy> copies_;
  std::map<std::pair<Endpoint, int32_t>, size_t> copy_of_;
  std::vector<SegmentNode> waits_;
  SegmentPlan plan_;
  std::vector<Made> made_;
  std::vector<NodeId> new_ids_;
  std::map<NodeId, NodeId> joint_before_;  // the joint collective of the place before; -1: none
  ControlFlow flow_;                       // empty if there is none
  std::unique_ptr<TensorPlaces> places_;
};

}  // namespace

bool HasGpuNodes(const Graph& graph, const PlanOptions& options) {
  const bool gpus = std::any_of(options.devices.begin(), options.devices.end(),
                                [](Device* device) { return device->gpu() != nullptr; });
  if (!gpus) return false;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const DeviceName& name = graph.device(id);
    for (Device* device : options.devices) {
      if (device->gpu() != nullptr && device->info().name == name) return true;
    }
  }
  return false;
}

Result<LoweredGraph> LowerGpuNodes(const Graph& graph, const PlanOptions& options) {
  return Lowering(graph, options).Run();
}

}  // namespace monograph
