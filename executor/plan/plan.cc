// Compiles a task's graph into a plan, so that a step only follows indices through memory that it
// reads in order. The phases of Compile: Order (topological), Classify (device and kind of each
// node), LinkPairs (a _Send and its _Recv in the same plan), Connect (predecessors, successors),
// MakeKernels (may change a node's kind), Rank (urgency), Renumber (as one thread would run them;
// with control flow frame by frame), Fill (flat arrays, and a FlowPlan if there is control flow).
#include "executor/plan/plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "base/byte_size.h"
#include "base/hash.h"
#include "base/pool_allocator.h"
#include "executor/borrowed.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/lower.h"
#include "executor/gpu/transfers.h"
#include "executor/plan/flow_plan.h"
#include "executor/plan/plan_data.h"
#include "executor/plan/task_graph.h"
#include "executor/plan/task_kernels.h"
#include "executor/thread_pools.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"
#include "graph/topological_sort.h"

namespace monograph {

Plan::Plan(std::unique_ptr<PlanData> data) : data_(std::move(data)) {}
Plan::~Plan() = default;
std::span<const EdgeInfo> Plan::recv_edges() const { return data_->recv_edges; }
std::span<const EdgeInfo> Plan::send_edges() const { return data_->send_edges; }
const EdgeInfo* Plan::FindRecvEdge(int32_t id) const {
  const int32_t index = data_->RecvIndex(id);
  return index < 0 ? nullptr : &data_->recv_edges[static_cast<size_t>(index)];
}
int Plan::num_nodes() const { return data_->num_nodes; }
// Relaxed: a counter.
int64_t Plan::dropped_deliveries() const { return data_->dropped.load(std::memory_order_relaxed); }

// Compiles one graph. Nodes are named by the graph's ids; Renumber gives them their numbers in the
// plan.
class PlanCompiler {
 public:
  using MadeKernels = std::unordered_map<NodeId, std::unique_ptr<Kernel>>;

  // Takes kernels from `made` (may be null), by node; makes those of the other nodes.
  PlanCompiler(const Graph& graph, const PlanOptions& options, MadeKernels* made,
               const GpuEdges* transfers = nullptr)
      : graph_(graph),
        options_(options),
        made_(made),
        transfers_(transfers),
        plan_(std::make_unique<PlanData>()) {}

  Result<std::shared_ptr<const Plan>> Compile() {
    MG_RETURN_IF_ERROR(Order());
    MG_RETURN_IF_ERROR(FindFrames());
    MG_RETURN_IF_ERROR(Classify());
    LinkPairs();
    Connect();
    MG_RETURN_IF_ERROR(MakeKernels());
    Rank();
    Renumber();
    Fill();
    return std::shared_ptr<const Plan>(new Plan(std::move(plan_)));
  }

 private:
  struct Item {
    NodeKind kind = NodeKind::kKernel;
    bool resources = false;   // some input is a resource
    bool dropped = false;     // a half of a linked pair that needs no node in the plan
    NodeId linked_send = -1;  // of a _Recv whose _Send is here
    uint16_t device = 0;
    const KernelRegistry::Entry* entry = nullptr;
    std::unique_ptr<Kernel> kernel;
    std::vector<NodeId> before;  // distinct predecessors
    uint32_t slot = 0;           // first input slot
    uint32_t inputs = 0;
    int32_t frame = 0;    // of the control flow
    int32_t number = -1;  // in the plan
    int64_t rank = 0;     // length of the longest path to the end, in cost units
    int32_t depth = 0;
    int32_t needed = 0;  // smallest depth at which work elsewhere needs what this leads to
  };
  Item& at(NodeId id) { return items_[static_cast<size_t>(id)]; }
  std::vector<NodeId>& after(NodeId id) { return after_[static_cast<size_t>(id)]; }

  std::string Who(NodeId id) const { return NodeAndDevice(graph_, id); }
  bool IsSend(NodeId id) const { return monograph::IsSend(graph_, id); }
  bool IsRecv(NodeId id) const { return monograph::IsRecv(graph_, id); }
  bool IsControl(NodeId id) const { return graph_.attrs(id).GetOr<bool>("control", false); }

  // The edge of a _Send or _Recv.
  EdgeInfo Edge(NodeId id) const {
    const Attrs& attrs = graph_.attrs(id);
    EdgeInfo edge;
    edge.id = static_cast<int32_t>(attrs.Get<int64_t>("edge_id"));
    edge.control = IsControl(id);
    edge.may_be_dead = attrs.GetOr<bool>(kMayBeDead, false);
    edge.in_loop = items_[static_cast<size_t>(id)].frame != 0;
    edge.priority = static_cast<int32_t>(attrs.GetOr<int64_t>("priority", 0));
    edge.name = attrs.GetOr<std::string>("tensor_name", std::string(graph_.name(id)));
    edge.send_device = attrs.GetOr<std::string>("send_device", "");
    edge.recv_device = attrs.GetOr<std::string>("recv_device", "");
    if (edge.control) return edge;
    if (transfers_ != nullptr) {
      if (const auto transfer = transfers_->find(id); transfer != transfers_->end()) {
        edge.gpu = transfer->second.gpu;
        edge.in_parts = transfer->second.in_parts;
        if (IsRecv(id)) {
          edge.gpu_owner = edge.gpu->gpu()->memory().Intern("'" + edge.name + "' (came here)");
        }
      }
    }
    edge.dtype = IsSend(id) ? graph_.dtype(graph_.inputs(id)[0]) : graph_.dtype({id, 0});
    edge.shape = IsSend(id) ? graph_.shape(graph_.inputs(id)[0])
                            : attrs.GetOr<PartialShape>("shape", graph_.shape({id, 0}));
    return edge;
  }

  // Ties are broken by the nodes' order in the graph, so that the result is always the same.
  Status Order() {
    items_.resize(static_cast<size_t>(graph_.num_nodes()));
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> linked_sends, LinkedSends(graph_));
    MG_ASSIGN_OR_RETURN(order_, TaskOrder(graph_, linked_sends, NextReady::kLastIn));
    for (NodeId id = 0; id < graph_.num_nodes(); ++id)
      at(id).linked_send = linked_sends[static_cast<size_t>(id)];
    return Status();
  }

  // The loops, and which nodes are in which.
  Status FindFrames() {
    if (!HasControlFlow(graph_)) return Status();
    MG_ASSIGN_OR_RETURN(control_flow_, FindControlFlow(graph_));
    plan_->flow = std::make_unique<FlowPlan>();
    for (const LoopFrame& loop : control_flow_.frames) {
      FlowFrame frame;
      frame.parallel_iterations = std::max<int64_t>(1, loop.parallel_iterations);
      frame.name_hash = Fnv1a(loop.name);
      if (loop.parent >= 0) {
        std::vector<int32_t>& siblings = flow_frame(loop.parent).children;
        frame.child = static_cast<int32_t>(siblings.size());
        siblings.push_back(static_cast<int32_t>(plan_->flow->frames.size()));
      }
      plan_->flow->frames.push_back(std::move(frame));
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id)
      at(id).frame = control_flow_.frame[static_cast<size_t>(id)];
    return Status();
  }
  FlowFrame& flow_frame(int32_t frame) { return plan_->flow->frames[static_cast<size_t>(frame)]; }

  // The kind of a node that changes the flow of control. The executor runs it without a kernel.
  Status ClassifyFlow(NodeId id, FlowOp flow) {
    Item& item = at(id);
    switch (flow) {
      case FlowOp::kSwitch:
        item.kind = NodeKind::kSwitch;
        break;
      case FlowOp::kMerge:
        item.kind = NodeKind::kMerge;
        if (item.inputs <= kMostMergeInputs &&
            graph_.control_inputs(id).size() <= kMostMergeControls)
          break;
        return Unimplemented(Who(id) + ": a Merge has at most " + std::to_string(kMostMergeInputs) +
                             " inputs, and waits for at most " +
                             std::to_string(kMostMergeControls) + " nodes");
      case FlowOp::kEnter:
        item.kind = NodeKind::kEnter;
        break;
      case FlowOp::kExit:
        item.kind = NodeKind::kExit;
        break;
      case FlowOp::kNextIteration:
        item.kind = NodeKind::kNextIteration;
        break;
      case FlowOp::kLoopCond:
      case FlowOp::kTrigger:
      case FlowOp::kNone:
        item.kind = NodeKind::kForward;
    }
    return Status();
  }

  // Devices, kinds, kernels' entries.
  Status Classify() {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      Item& item = at(id);
      if (!graph_.op(id).known()) {
        return Unimplemented("op '" + graph_.op(id).name() + "' (node '" +
                             std::string(graph_.name(id)) + "') is not known here");
      }
      MG_ASSIGN_OR_RETURN(item.device, FindDevice(id));
      item.inputs = static_cast<uint32_t>(graph_.inputs(id).size());
      for (const Endpoint& e : graph_.inputs(id))
        item.resources = item.resources || graph_.dtype(e) == DT_RESOURCE;
      MG_RETURN_IF_ERROR(CheckSizes(id));
      if (IsSend(id) || IsRecv(id)) {
        item.kind = IsSend(id) ? NodeKind::kSend : NodeKind::kRecv;
      } else if (IsArg(graph_, id) || IsRetval(graph_, id)) {
        return InvalidArgument(Who(id) + ": belongs into a function's body");
      } else if (IsMade(id)) {
        item.kind = NodeKind::kAsync;
      } else if (const FlowOp flow = graph_.op(id).flow(); flow != FlowOp::kNone) {
        MG_RETURN_IF_ERROR(ClassifyFlow(id, flow));
      } else {
        const Device& device = *options_.devices[item.device];
        auto entry = FindTaskKernel(graph_, id, device.info().name.type, options_);
        if (!entry.ok()) return entry.status().WithContext(Who(id));
        item.entry = *entry;
      }
    }
    return Status();
  }

  // Refuses an output that could never be in memory. Of several outputs, one that nobody reads may
  // never be made.
  Status CheckSizes(NodeId id) {
    Device* const device = options_.devices[items_[static_cast<size_t>(id)].device];
    if (device->gpu() != nullptr || IsSend(id) || (IsRecv(id) && IsControl(id))) return Status();
    for (int32_t i = 0; i < graph_.num_outputs(id); ++i) {
      const DType dtype = graph_.dtype({id, i});
      const PartialShape shape =
          IsRecv(id) ? graph_.attrs(id).GetOr<PartialShape>("shape", graph_.shape({id, i}))
                     : graph_.shape({id, i});
      if (!shape.fully_known() || !IsPlainData(dtype)) continue;
      const double bytes =
          static_cast<double>(shape.elements()) * static_cast<double>(DTypeSize(dtype));
      if (bytes <= static_cast<double>(HostPool().limit())) continue;
      if (graph_.num_outputs(id) > 1 && !IsRead({id, i})) continue;
      return ResourceExhausted(Who(id) + ": its output " + std::to_string(i) + ", " +
                               std::string(DTypeName(dtype)) + shape.ToString() + ", has " +
                               BytesText(static_cast<int64_t>(std::min(bytes, 0x1p62))) +
                               ", more than the " + BytesText(HostPool().limit()) +
                               " that this process may take (--memory_limit)");
    }
    return Status();
  }
  // Looks through the graph once, if it is called at all.
  bool IsRead(Endpoint output) {
    if (!read_) {
      read_.emplace();
      for (NodeId id = 0; id < graph_.num_nodes(); ++id)
        read_->insert(graph_.inputs(id).begin(), graph_.inputs(id).end());
    }
    return read_->contains(output);
  }

  // Links each _Recv with its _Send in this plan, and takes what is dropped out of the order.
  void LinkPairs() {
    std::vector<bool> orders(items_.size(), false);  // has control consumers
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      for (const NodeId source : graph_.control_inputs(id))
        if (source != at(id).linked_send) orders[static_cast<size_t>(source)] = true;
    }
    for (NodeId recv = 0; recv < graph_.num_nodes(); ++recv) {
      const NodeId send = at(recv).linked_send;
      if (send < 0) continue;
      // A pair that only passes a tensor on is dropped; one with control edges stays as a node that
      // forwards.
      const bool orders_only = graph_.inputs(send).empty();
      const bool plain =
          graph_.control_inputs(send).empty() && WaitsForSendAlone(recv) && !orders_only;
      at(recv).kind = NodeKind::kForward;
      at(recv).dropped = plain;
      at(recv).inputs = orders_only ? 0 : 1;
      at(send).kind = NodeKind::kForward;
      at(send).dropped = !orders[static_cast<size_t>(send)];
      at(send).inputs = 0;
    }
    std::erase_if(order_, [this](NodeId id) { return at(id).dropped; });
    SetNumbers();
  }

  // In a loop a _Recv waits for its _Send, which says that it is in the loop.
  bool WaitsForSendAlone(NodeId recv) {
    return std::ranges::all_of(graph_.control_inputs(recv),
                               [&](NodeId control) { return control == at(recv).linked_send; });
  }

  void SetNumbers() {
    for (size_t i = 0; i < order_.size(); ++i) at(order_[i]).number = static_cast<int32_t>(i);
  }

  Result<uint16_t> FindDevice(NodeId id) {
    const DeviceName& wanted = graph_.device(id);
    const auto& devices = options_.devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i]->info().name == wanted) return static_cast<uint16_t>(i);
    }
    std::string names;
    for (const Device* device : devices) names += (names.empty() ? "" : ", ") + device->name();
    return InvalidArgument(Who(id) + ": this task has no such device; it has: " + names);
  }

  // Where a tensor really comes from: a dropped _Recv's is its _Send's input.
  Endpoint Source(Endpoint e) {
    while (at(e.node).dropped && at(e.node).linked_send >= 0)
      e = graph_.inputs(at(e.node).linked_send)[0];
    return e;
  }
  std::vector<Endpoint> InputsOf(NodeId id) {
    std::vector<Endpoint> inputs;
    if (at(id).inputs == 0) return inputs;
    const NodeId from = at(id).linked_send >= 0 ? at(id).linked_send : id;
    for (const Endpoint& e : graph_.inputs(from)) inputs.push_back(Source(e));
    return inputs;
  }

  // Predecessors, successors, input slots.
  void Connect() {
    after_.resize(items_.size());
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      Item& item = at(id);
      if (item.dropped) continue;
      for (const Endpoint& e : InputsOf(id)) {
        if (!graph_.IsBackEdge(e.node, id)) item.before.push_back(e.node);
      }
      AddControls(id, &item.before);
      // A linked half inherits what the other half waits for.
      if (item.linked_send >= 0) AddControls(item.linked_send, &item.before);
      if (item.kind == NodeKind::kForward && item.linked_send < 0) {
        for (const Endpoint& e : graph_.inputs(id)) item.before.push_back(Source(e).node);
      }
      std::sort(item.before.begin(), item.before.end());
      item.before.erase(std::unique(item.before.begin(), item.before.end()), item.before.end());
      for (const NodeId source : item.before) after(source).push_back(id);
    }
  }
  void AddControls(NodeId id, std::vector<NodeId>* before) {
    for (const NodeId control : graph_.control_inputs(id))
      if (control != at(id).linked_send) before->push_back(Source({control, 0}).node);
  }

  // Makes the kernels. They tell whether a node is asynchronous, trailing or serial.
  Status MakeKernels() {
    for (const NodeId id : order_) {
      Item& item = at(id);
      if (item.entry == nullptr && !IsMade(id)) continue;
      if (IsMade(id)) {
        item.kernel = std::move(made_->at(id));
      } else {
        auto made = MakeTaskKernel(graph_, id, options_.devices[item.device]->name(), options_,
                                   *item.entry);
        if (!made.ok()) return made.status().WithContext(Who(id));
        item.kernel = std::move(made).value();
      }
      if (const AsyncKernel* const async = item.kernel->AsAsync()) {
        // With control flow an iteration, too, waits for it.
        const bool trails = async->trails() && after(id).empty() && plan_->flow == nullptr;
        item.kind = trails ? NodeKind::kTrailing : NodeKind::kAsync;
      } else if (item.entry != nullptr && item.entry->def.serial) {
        item.kind = NodeKind::kSerial;
      }
    }
    return Status();
  }

  // Finds what the executor runs first: what leads to the work elsewhere that is needed soonest (a
  // send, or an asynchronous kernel: this task goes on meanwhile), then what has the longest path
  // to the end. For one thread this is Lawler's rule for jobs with precedence and tails.
  void Rank() {
    // Depths in the whole graph, as far as this task knows them: an edge's priority is the depth of
    // its first reader.
    for (const NodeId id : order_) {
      Item& item = at(id);
      item.needed = INT32_MAX;
      if (item.kind == NodeKind::kRecv) item.depth = Edge(id).priority;
      for (const NodeId source : item.before)
        item.depth = std::max(item.depth, at(source).depth + 1);
    }
    for (size_t i = order_.size(); i-- > 0;) {
      Item& item = at(order_[i]);
      if (item.kind == NodeKind::kSend) item.needed = Edge(order_[i]).priority;
      if (item.kind == NodeKind::kAsync) item.needed = item.depth;
      int64_t longest = 0;
      for (const NodeId target : after(order_[i])) {
        item.needed = std::min(item.needed, at(target).needed);
        longest = std::max(longest, at(target).rank);
      }
      const bool expensive =
          item.entry != nullptr && item.entry->def.cost == KernelCost::kExpensive;
      item.rank = longest + (expensive ? 10 : 1);
    }
  }

  bool LessUrgent(NodeId a, NodeId b) {
    const Item &left = at(a), &right = at(b);
    if (left.needed != right.needed) return left.needed > right.needed;
    return left.rank != right.rank ? left.rank < right.rank : left.number > right.number;
  }

  // Numbers nodes in the order in which one thread runs them, so that a step walks through the
  // plan's memory and its own.
  void Renumber() {
    const auto less_urgent = [this](NodeId a, NodeId b) { return LessUrgent(a, b); };
    for (const NodeId id : order_) {
      std::sort(after(id).begin(), after(id).end(), less_urgent);
      if (at(id).before.empty()) roots_.push_back(id);
    }
    std::sort(roots_.begin(), roots_.end(), less_urgent);
    // One more node, which the roots wait for, so that these are taken by urgency, too.
    const auto start = static_cast<NodeId>(items_.size());
    order_ =
        TopologicalSort(items_.size() + 1, NextReady::kLastIn, [&](NodeId id, const auto& visit) {
          const std::vector<NodeId>& targets = id == start ? roots_ : after(id);
          for (size_t i = targets.size(); i-- > 0;) visit(targets[i]);
        });
    std::erase_if(order_, [&](NodeId id) { return id == start || at(id).dropped; });
    if (plan_->flow != nullptr) {
      std::stable_sort(order_.begin(), order_.end(),
                       [this](NodeId a, NodeId b) { return at(a).frame < at(b).frame; });
    }
    SetNumbers();
  }

  // ---- the plan's flat arrays

  // A consumer of an output.
  struct Use {
    int32_t output;
    uint32_t slot;
  };

  void Fill() {
    plan_->devices = options_.devices;
    plan_->pools = options_.pools;
    plan_->resources = options_.resources;
    plan_->session = options_.session;
    plan_->memory = options_.memory;
    plan_->num_nodes = static_cast<int32_t>(order_.size());
    plan_->nodes = std::make_unique<PlanNode[]>(order_.size());
    plan_->cost_bits = std::make_unique<std::atomic<uint8_t>[]>(order_.size());
    std::vector<std::vector<Use>> uses = AssignSlots();
    if (plan_->flow != nullptr) FillFrames();
    for (const NodeId id : order_) FillNode(id, &uses[static_cast<size_t>(id)]);
    for (const NodeId id : roots_) {
      if (at(id).kind != NodeKind::kRecv) plan_->roots.push_back(at(id).number);
    }
    plan_->serial_mutexes = std::make_unique<Mutex[]>(serial_);
    IndexRecvEdges();
  }

  // Gives every input its slot. Returns, by node, the consumers of its outputs, in the order in
  // which they are likely to run, so that the last one takes the tensor over.
  std::vector<std::vector<Use>> AssignSlots() {
    std::vector<std::vector<Use>> uses(items_.size());
    for (const NodeId id : order_) {
      uint32_t& slots =
          plan_->flow == nullptr ? plan_->num_slots : flow_frame(at(id).frame).num_slots;
      at(id).slot = slots;
      for (const Endpoint& e : InputsOf(id))
        uses[static_cast<size_t>(e.node)].push_back({e.index, slots++});
    }
    return uses;
  }

  // Which nodes each frame has, and what its iterations need to know of them.
  void FillFrames() {
    size_t most_inputs = 0;
    for (const NodeId id : order_) {
      const Item& item = at(id);
      FlowFrame& frame = flow_frame(item.frame);
      if (frame.num_nodes++ == 0) frame.first_node = item.number;
      if (item.kind == NodeKind::kEnter) ++flow_frame(Entered(id)).enters;
      if (item.kind == NodeKind::kExit) frame.exits.push_back(item.number);
      if (item.kind != NodeKind::kMerge) continue;
      frame.merges.push_back({item.slot, item.inputs});
      most_inputs = std::max<size_t>(most_inputs, item.inputs);
    }
    for (size_t i = 0; i < most_inputs; ++i)
      plan_->flow->value_index.push_back(Tensor::Scalar(static_cast<int32_t>(i)));
  }
  int32_t Entered(NodeId id) const { return control_flow_.entered[static_cast<size_t>(id)]; }

  void FillNode(NodeId id, std::vector<Use>* uses) {
    Item& item = at(id);
    PlanNode& node = plan_->nodes[static_cast<size_t>(item.number)];
    node.kind = item.kind;
    node.device = item.device;
    node.first_input = item.slot;
    node.num_inputs = item.inputs;
    plan_->names.emplace_back(graph_.name(id));
    const std::string& op = graph_.op(id).name();
    const bool borrowed = at(id).entry != nullptr && at(id).entry == BorrowedKernel();
    plan_->ops.push_back(borrowed ? BorrowedName(op) : op);
    AddOutputs(id, &node);
    AddEdges(id, uses, &node);
    if (plan_->flow == nullptr) {
      AddSuccessors(id, &node);
    } else {
      AddFlowSuccessors(id, &node);
    }
    // A _Recv also waits for its tensor and for the step to start; one in a loop asks for its
    // tensor when it runs.
    const bool recv = item.kind == NodeKind::kRecv;
    const uint32_t more = recv && item.frame == 0 ? 2 : 0;
    plan_->pending.push_back(item.kind == NodeKind::kMerge
                                 ? MergeWord(id)
                                 : static_cast<uint32_t>(item.before.size()) + more);
    if (recv) {
      node.aux = static_cast<uint32_t>(plan_->recv_edges.size());
      plan_->recv_edges.push_back(Edge(id));
      plan_->recv_nodes.push_back(item.number);
    } else if (item.kind == NodeKind::kSend) {
      node.aux = static_cast<uint32_t>(plan_->send_edges.size());
      plan_->send_edges.push_back(Edge(id));
    } else if (item.kind == NodeKind::kEnter) {
      node.aux = EnterAux(Entered(id), graph_.attrs(id).GetOr<bool>("is_constant", false));
    } else if (item.kind == NodeKind::kExit) {
      const std::vector<int32_t>& exits = flow_frame(item.frame).exits;
      node.aux = static_cast<uint32_t>(std::ranges::find(exits, item.number) - exits.begin());
    } else if (item.kernel != nullptr) {
      AddKernel(&item, &node);
    }
  }

  // What a Merge waits for: see flow_plan.h. What a loop's next iteration brings comes to another
  // iteration than what enters the loop.
  uint32_t MergeWord(NodeId id) {
    uint32_t inputs = 0;
    for (const Endpoint& e : InputsOf(id)) inputs += graph_.IsBackEdge(e.node, id) ? 0 : 1;
    return static_cast<uint32_t>(ControlsOf(id).size()) * kMergeControl + inputs;
  }
  std::vector<NodeId> ControlsOf(NodeId id) {
    std::vector<NodeId> controls;
    AddControls(id, &controls);
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    return controls;
  }

  void AddFlowSuccessors(NodeId id, PlanNode* node) {
    std::vector<FlowSuccessor>& successors = plan_->flow->successors;
    node->first_successor = static_cast<uint32_t>(successors.size());
    std::vector<NodeId> targets = after(id);
    if (at(id).kind == NodeKind::kNextIteration) AddBackTargets(id, &targets);
    for (const NodeId target : targets) {
      const Item& to = at(target);
      FlowSuccessor successor{.node = static_cast<uint32_t>(to.number)};
      if (to.kind == NodeKind::kMerge) {
        AddToMerge(id, target, successor);
        continue;
      }
      const bool alone = to.before.size() == 1 && to.kind != NodeKind::kRecv;
      successor.kind = graph_.op(target).flow() == FlowOp::kTrigger ? FlowSuccessor::kTriggered
                       : alone                                      ? FlowSuccessor::kAlone
                                                                    : FlowSuccessor::kCounted;
      if (at(id).kind == NodeKind::kSwitch) {
        for (const Endpoint& e : InputsOf(target)) {
          if (e.node == id) successor.outputs |= static_cast<uint8_t>(1 << e.index);
        }
      }
      successors.push_back(successor);
    }
    node->num_successors = static_cast<uint32_t>(successors.size()) - node->first_successor;
  }
  void AddToMerge(NodeId id, NodeId merge, FlowSuccessor successor) {
    std::vector<FlowSuccessor>& successors = plan_->flow->successors;
    successor.kind = FlowSuccessor::kMergeWaits;
    if (std::ranges::count(ControlsOf(merge), id) > 0) successors.push_back(successor);
    successor.kind = FlowSuccessor::kMergeInput;
    for (const Endpoint& e : InputsOf(merge)) {
      if (e.node == id) {
        successor.outputs =
            at(id).kind == NodeKind::kSwitch ? static_cast<uint8_t>(1 << e.index) : 0;
        successors.push_back(successor);
      }
      ++successor.input;
    }
  }
  // The Merges that read what a NextIteration puts out.
  void AddBackTargets(NodeId id, std::vector<NodeId>* targets) {
    if (!back_targets_) {
      back_targets_.emplace();
      for (const NodeId merge : order_) {
        if (at(merge).kind != NodeKind::kMerge) continue;
        for (const Endpoint& e : InputsOf(merge)) {
          std::vector<NodeId>& of = (*back_targets_)[e.node];
          if (graph_.IsBackEdge(e.node, merge) && (of.empty() || of.back() != merge))
            of.push_back(merge);
        }
      }
    }
    const std::vector<NodeId>& own = (*back_targets_)[id];
    targets->insert(targets->end(), own.begin(), own.end());
  }

  void AddOutputs(NodeId id, PlanNode* node) {
    // A _Send has no outputs here, and what a linked _Send or a control _Recv puts out carries
    // nothing.
    const bool passes = node->kind != NodeKind::kForward || node->num_inputs > 0;
    node->num_outputs = passes ? static_cast<uint32_t>(graph_.num_outputs(id)) : 0;
    node->first_dtype = static_cast<uint32_t>(plan_->dtypes.size());
    for (uint32_t i = 0; i < node->num_outputs; ++i)
      plan_->dtypes.push_back(graph_.dtype({id, static_cast<int32_t>(i)}));
    plan_->max_outputs = std::max(plan_->max_outputs, node->num_outputs);
  }

  void AddEdges(NodeId id, std::vector<Use>* uses, PlanNode* node) {
    std::stable_sort(uses->begin(), uses->end(),
                     [](const Use& a, const Use& b) { return a.output < b.output; });
    node->first_edge = static_cast<uint32_t>(plan_->edges.size());
    node->num_edges = static_cast<uint32_t>(uses->size());
    for (size_t i = 0; i < uses->size(); ++i) {
      const Use& use = (*uses)[i];
      plan_->edges.push_back(
          {.slot = use.slot,
           .output = static_cast<uint16_t>(use.output),
           .dtype = static_cast<uint8_t>(graph_.dtype({id, use.output})),
           .last = i + 1 == uses->size() || (*uses)[i + 1].output != use.output});
    }
  }

  void AddSuccessors(NodeId id, PlanNode* node) {
    node->first_successor = static_cast<uint32_t>(plan_->successors.size());
    node->num_successors = static_cast<uint32_t>(after(id).size());
    for (const NodeId target : after(id)) {
      plan_->successors.push_back(
          {.node = static_cast<uint32_t>(at(target).number) & 0x7fffffffu,
           .alone = at(target).before.size() == 1 && at(target).kind != NodeKind::kRecv});
    }
  }

  void AddKernel(Item* item, PlanNode* node) {
    node->kernel = item->kernel.get();
    const std::span own(plan_->dtypes.data() + node->first_dtype, node->num_outputs);
    node->strings = std::find(own.begin(), own.end(), DT_STRING) != own.end();
    if (item->kind == NodeKind::kAsync || item->kind == NodeKind::kTrailing) {
      plan_->trails = plan_->trails || item->kind == NodeKind::kTrailing;
      plan_->SetCost(item->number, 100);  // cheap: it only starts the work
      if (plan_->flow == nullptr) {
        node->aux = static_cast<uint32_t>(plan_->frame_outputs.size());
        plan_->frame_outputs.push_back(node->num_outputs);
      } else {
        std::vector<FlowFrame::Async>& kernels = flow_frame(item->frame).async;
        node->aux = static_cast<uint32_t>(kernels.size());
        kernels.push_back({item->number, node->num_outputs});
      }
    } else {
      plan_->SetCost(item->number,
                     item->entry->def.cost == KernelCost::kCheap ? 100 : kUnknownCost);
      if (item->kind == NodeKind::kSerial) node->aux = serial_++;
      node->resumable = item->kind == NodeKind::kKernel && !item->resources;
      if (item->kind == NodeKind::kKernel && node->strings) node->kind = NodeKind::kStrings;
    }
    plan_->kernels.push_back(std::move(item->kernel));
  }

  void IndexRecvEdges() {
    if (plan_->recv_edges.empty()) return;
    int32_t first = INT32_MAX, last = INT32_MIN;
    for (const EdgeInfo& edge : plan_->recv_edges) {
      first = std::min(first, edge.id);
      last = std::max(last, edge.id);
    }
    plan_->first_recv_id = first;
    plan_->recv_of_id.assign(static_cast<size_t>(last) - static_cast<size_t>(first) + 1, -1);
    for (size_t i = 0; i < plan_->recv_edges.size(); ++i) {
      plan_->recv_of_id[static_cast<size_t>(plan_->recv_edges[i].id - first)] =
          static_cast<int32_t>(i);
    }
  }

  // Whether lowering has made the kernel of the node.
  bool IsMade(NodeId id) const { return made_ != nullptr && made_->contains(id); }

  const Graph& graph_;
  const PlanOptions& options_;
  MadeKernels* const made_;
  const GpuEdges* const transfers_;  // may be null
  std::unique_ptr<PlanData> plan_;
  std::vector<Item> items_;
  std::vector<std::vector<NodeId>> after_;  // by node: its successors
  std::vector<NodeId> order_;
  std::vector<NodeId> roots_;               // the most urgent one last
  std::optional<std::set<Endpoint>> read_;  // see IsRead
  uint32_t serial_ = 0;                     // serial kernels
  ControlFlow control_flow_;                // empty if there is none
  std::optional<std::unordered_map<NodeId, std::vector<NodeId>>> back_targets_;
};

Result<std::shared_ptr<const Plan>> CompilePlan(const Graph& graph, const PlanOptions& options) {
  MG_CHECK(options.kernels != nullptr && options.pools != nullptr && options.resources != nullptr);
  if (!HasGpuNodes(graph, options)) return PlanCompiler(graph, options, nullptr).Compile();
  MG_ASSIGN_OR_RETURN(LoweredGraph lowered, LowerGpuNodes(graph, options));
  MG_ASSIGN_OR_RETURN(const GpuEdges transfers, FindGpuEdges(&lowered, options));
  return PlanCompiler(lowered.graph, options, &lowered.kernels, &transfers).Compile();
}

}  // namespace monograph
