// Compiles a task's graph into a plan, after nodes on GPUs were lowered to a few (gpu/lower.h). In
// the phases of Compile: Classify (device and kind of each node; a _Send and its _Recv in the same
// plan are linked), Connect (predecessors, successors), Number (a first topological order),
// MakeKernels (kernels may change a node's kind), Rank (urgency), Renumber (the order in which one
// thread would run the nodes), Fill (flat arrays in that order). All searching and sorting is done
// here, once, so that a step only follows indices through memory that it reads in order.
#include "executor/plan/plan.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_map>

#include "executor/collective/collective.h"
#include "executor/gpu/lower.h"
#include "executor/node_construction.h"
#include "executor/plan/plan_data.h"
#include "executor/step/call_kernel.h"
#include "executor/thread_pools.h"
#include "graph/function.h"
#include "graph/structural_ops.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

class TaskNodeConstruction : public NodeConstruction, public CollectiveConstruction {
 public:
  TaskNodeConstruction(const Graph& graph, NodeId node, std::string_view device,
                       const CollectiveHome* collectives)
      : NodeConstruction(graph, node, device), collectives_(collectives) {}
  const CollectiveHome* collectives() const override { return collectives_; }

 private:
  const CollectiveHome* const collectives_;
};

}  // namespace

Result<const KernelRegistry::Entry*> FindTaskKernel(const Graph& graph, NodeId node,
                                                    DeviceType device_type,
                                                    const PlanOptions& options) {
  const std::string& op = graph.op(node).name();
  const KernelRegistry* gpu = options.gpu_kernels;
  const bool there = gpu != nullptr && gpu->HasOp(op, device_type);
  return (there ? gpu : options.kernels)->Find(op, device_type, graph.attrs(node));
}

Status CycleThroughTransfers(const Graph& graph) {
  MG_RETURN_IF_ERROR(graph.TopologicalOrder().status());  // names a cycle without them
  return InvalidArgument(
      "the nodes of this task wait for each other in a cycle through a _Send and its _Recv");
}

Result<std::unique_ptr<Kernel>> MakeTaskKernel(const Graph& graph, NodeId node,
                                               std::string_view device, const PlanOptions& options,
                                               const KernelRegistry::Entry& entry) {
  return entry.factory(TaskNodeConstruction(graph, node, device, options.collectives));
}

std::unique_ptr<StepState> PlanData::TakeState() const {
  {
    std::lock_guard lock(mutex);
    if (!free_states.empty()) {
      std::unique_ptr<StepState> state = std::move(free_states.back());
      free_states.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<StepState>();
  const auto count = static_cast<size_t>(num_nodes);
  state->pending = std::make_unique<uint32_t[]>(count);
  state->next = std::make_unique<int32_t[]>(count + 1);
  state->slots = std::make_unique<Tensor[]>(num_slots);
  state->received = std::make_unique<Tensor[]>(recv_edges.size());
  state->delivered = std::make_unique<std::atomic<uint8_t>[]>(recv_edges.size());
  for (const uint32_t outputs : frame_outputs) {
    state->frames.push_back(std::make_unique<StepState::AsyncFrame>());
    state->frames.back()->outputs.resize(outputs);
  }
  return state;
}

void PlanData::ReturnState(std::unique_ptr<StepState> state) const {
  std::lock_guard lock(mutex);
  free_states.push_back(std::move(state));
}

// Relaxed: an estimate, which any step may replace at any time.
void PlanData::SetCost(int32_t node, uint32_t ns) const {
  const auto i = static_cast<size_t>(node);
  nodes[i].cost_ns.store(ns, std::memory_order_relaxed);
  cost_bits[i].store(static_cast<uint8_t>(std::bit_width(ns)), std::memory_order_relaxed);
}

std::string PlanData::Describe(int32_t node) const {
  const auto i = static_cast<size_t>(node);
  return "node '" + names[i] + "' (" + std::string(ops[i]) + ") on " +
         devices[nodes[i].device]->name();
}

Plan::Plan(std::unique_ptr<PlanData> data) : data_(std::move(data)) {}
Plan::~Plan() = default;
std::span<const EdgeInfo> Plan::recv_edges() const { return data_->recv_edges; }
std::span<const EdgeInfo> Plan::send_edges() const { return data_->send_edges; }
int Plan::num_nodes() const { return data_->num_nodes; }
const std::string& Plan::step_container() const { return data_->step_container; }
int64_t Plan::dropped_deliveries() const { return data_->dropped.load(std::memory_order_relaxed); }

// Compiles one graph. Nodes are named by the graph's ids; Number and Renumber give them their
// numbers in the plan.
class PlanCompiler {
 public:
  // `outer` completes the devices of nodes. For a function's body (`is_body`) it is the device of
  // the call, and _Arg and _Retval are the edges of the plan.
  PlanCompiler(const Graph& graph, const PlanOptions& options, const DeviceName& outer,
               bool is_body)
      : graph_(graph),
        options_(options),
        outer_(outer),
        is_body_(is_body),
        plan_(std::make_unique<PlanData>()) {}

  // Compiles a graph with or without nodes on GPUs.
  static Result<std::shared_ptr<const Plan>> CompileAny(const Graph& graph,
                                                        const PlanOptions& options,
                                                        const DeviceName& outer, bool is_body) {
    if (!HasGpuNodes(graph, options, outer))
      return PlanCompiler(graph, options, outer, is_body).Compile();
    MG_ASSIGN_OR_RETURN(LoweredGraph lowered, LowerGpuNodes(graph, options, outer));
    PlanCompiler compiler(lowered.graph, options, outer, is_body);
    compiler.made_ = &lowered.kernels;
    return compiler.Compile();
  }

  Result<std::shared_ptr<const Plan>> Compile() {
    MG_RETURN_IF_ERROR(Classify());
    Connect();
    MG_RETURN_IF_ERROR(Number());
    MG_RETURN_IF_ERROR(MakeKernels());
    Rank();
    Renumber();
    MG_RETURN_IF_ERROR(Fill());
    return std::shared_ptr<const Plan>(new Plan(std::move(plan_)));
  }

 private:
  struct Item {
    NodeKind kind = NodeKind::kKernel;
    bool dropped = false;     // a half of a linked pair that needs no node in the plan
    NodeId linked_send = -1;  // of a _Recv whose _Send is here
    uint16_t device = 0;
    const KernelRegistry::Entry* entry = nullptr;
    std::unique_ptr<Kernel> kernel;
    std::vector<NodeId> before;  // distinct predecessors
    std::vector<NodeId> after;
    uint32_t slot = 0;  // first input slot
    uint32_t inputs = 0;
    int32_t number = -1;  // in the plan
    int64_t rank = 0;     // length of the longest path to the end, in cost units
    int32_t depth = 0;
    int32_t needed = 0;  // smallest depth at which work elsewhere needs what this leads to
  };
  Item& at(NodeId id) { return items_[static_cast<size_t>(id)]; }

  std::string Who(NodeId id) const {
    return "node " + graph_.NodeText(id) + " on " + FullDevice(id).ToString();
  }
  DeviceName FullDevice(NodeId id) const { return MergeScope(graph_.device(id), outer_); }
  bool IsSend(NodeId id) const { return monograph::IsSend(graph_, id); }
  bool IsRecv(NodeId id) const { return monograph::IsRecv(graph_, id); }
  bool IsControl(NodeId id) const { return graph_.attrs(id).GetOr<bool>("control", false); }

  // The edge of a _Send or _Recv, or of a body's _Retval or _Arg.
  EdgeInfo Edge(NodeId id) const {
    const Attrs& attrs = graph_.attrs(id);
    EdgeInfo edge;
    edge.name = graph_.name(id);
    if (IsArg(graph_, id) || IsRetval(graph_, id)) {
      edge.id = static_cast<int32_t>(attrs.Get<int64_t>("index"));
      edge.dtype = attrs.Get<DType>("T");
      if (IsArg(graph_, id)) edge.shape = graph_.shape({id, 0});
      return edge;
    }
    edge.id = static_cast<int32_t>(attrs.Get<int64_t>("edge_id"));
    edge.control = IsControl(id);
    edge.priority = static_cast<int32_t>(attrs.GetOr<int64_t>("priority", 0));
    edge.name = attrs.GetOr<std::string>("tensor_name", edge.name);
    edge.send_device = attrs.GetOr<std::string>("send_device", "");
    edge.recv_device = attrs.GetOr<std::string>("recv_device", "");
    if (edge.control) return edge;
    edge.dtype = IsSend(id) ? graph_.dtype(graph_.inputs(id)[0]) : graph_.dtype({id, 0});
    edge.shape = IsSend(id) ? graph_.shape(graph_.inputs(id)[0])
                            : attrs.GetOr<PartialShape>("shape", graph_.shape({id, 0}));
    return edge;
  }

  // Devices, kinds, kernels' entries; links the pairs that lie within the plan.
  Status Classify() {
    items_.resize(static_cast<size_t>(graph_.num_nodes()));
    std::unordered_map<int64_t, NodeId> sends, recvs;
    std::vector<bool> orders(items_.size(), false);  // has control consumers
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      Item& item = at(id);
      if (!graph_.op(id).known()) {
        return Unimplemented("op '" + graph_.op(id).name() + "' (node '" +
                             std::string(graph_.name(id)) + "') is not known here");
      }
      for (const NodeId source : graph_.control_inputs(id))
        orders[static_cast<size_t>(source)] = true;
      MG_ASSIGN_OR_RETURN(item.device, FindDevice(id));
      item.inputs = static_cast<uint32_t>(graph_.inputs(id).size());
      if (IsSend(id) || IsRecv(id)) {
        item.kind = IsSend(id) ? NodeKind::kSend : NodeKind::kRecv;
        auto& side = IsSend(id) ? sends : recvs;
        const auto [other, fresh] = side.emplace(graph_.attrs(id).Get<int64_t>("edge_id"), id);
        if (!fresh) {
          return InvalidArgument(Who(id) + ": edge " + std::to_string(other->first) +
                                 " is also that of node '" +
                                 std::string(graph_.name(other->second)) + "'");
        }
      } else if (IsArg(graph_, id) || IsRetval(graph_, id)) {
        if (!is_body_) return InvalidArgument(Who(id) + ": belongs into a function's body");
        item.kind = IsArg(graph_, id) ? NodeKind::kRecv : NodeKind::kSend;
      } else if ((IsCall(graph_, id) && options_.inline_functions == false) || IsMade(id)) {
        item.kind = NodeKind::kAsync;
      } else {
        const Device& device = *options_.devices[item.device];
        auto entry = FindTaskKernel(graph_, id, device.info().name.type, options_);
        if (!entry.ok()) return entry.status().WithContext(Who(id));
        item.entry = *entry;
      }
    }
    for (const auto& [edge, recv] : recvs) {
      const auto found = sends.find(edge);
      if (found == sends.end()) continue;
      const NodeId send = found->second;
      // A pair that only passes a tensor on is dropped; one with control edges stays as a node that
      // forwards.
      const bool orders_only = graph_.inputs(send).empty();
      const bool plain = graph_.control_inputs(send).empty() &&
                         graph_.control_inputs(recv).empty() && !orders_only;
      at(recv).linked_send = send;
      at(recv).kind = NodeKind::kForward;
      at(recv).dropped = plain;
      at(recv).inputs = orders_only ? 0 : 1;
      at(send).kind = NodeKind::kForward;
      at(send).dropped = !orders[static_cast<size_t>(send)];
      at(send).inputs = 0;
    }
    return Status();
  }

  Result<uint16_t> FindDevice(NodeId id) {
    const DeviceName wanted = FullDevice(id);
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
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      Item& item = at(id);
      if (item.dropped) continue;
      for (const Endpoint& e : InputsOf(id)) item.before.push_back(e.node);
      AddControls(id, &item.before);
      // A linked half inherits what the other half waits for.
      if (item.linked_send >= 0) AddControls(item.linked_send, &item.before);
      if (item.kind == NodeKind::kForward && item.linked_send < 0) {
        for (const Endpoint& e : graph_.inputs(id)) item.before.push_back(Source(e).node);
      }
      std::sort(item.before.begin(), item.before.end());
      item.before.erase(std::unique(item.before.begin(), item.before.end()), item.before.end());
      for (const NodeId source : item.before) at(source).after.push_back(id);
    }
  }
  void AddControls(NodeId id, std::vector<NodeId>* before) {
    for (const NodeId control : graph_.control_inputs(id))
      before->push_back(Source({control, 0}).node);
  }

  // What becomes ready last is next, so that a tensor is soon used; of what becomes ready together,
  // what comes first in the graph.
  Status Number() {
    order_ =
        TopologicalSort(items_.size(), NextReady::kLastIn, [this](NodeId id, const auto& visit) {
          for (const NodeId target : at(id).after) visit(target);
        });
    if (order_.size() < items_.size()) return CycleThroughTransfers(graph_);
    std::erase_if(order_, [this](NodeId id) { return at(id).dropped; });
    for (size_t i = 0; i < order_.size(); ++i) at(order_[i]).number = static_cast<int32_t>(i);
    return Status();
  }

  // Makes the kernels. They tell whether a node is asynchronous, trailing or serial.
  Status MakeKernels() {
    for (const NodeId id : order_) {
      Item& item = at(id);
      if (item.kind == NodeKind::kSend || item.kind == NodeKind::kRecv ||
          item.kind == NodeKind::kForward)
        continue;
      if (IsMade(id)) {
        item.kernel = std::move(made_->at(id));
      } else if (item.entry == nullptr) {
        auto body = CompileBody(id);
        if (!body.ok()) return body.status().WithContext(Who(id));
        item.kernel = MakeCallKernel(std::move(body).value());
      } else {
        auto made = MakeTaskKernel(graph_, id, options_.devices[item.device]->name(), options_,
                                   *item.entry);
        if (!made.ok()) return made.status().WithContext(Who(id));
        item.kernel = std::move(made).value();
      }
      if (const AsyncKernel* const async = item.kernel->AsAsync()) {
        item.kind = async->trails() && item.after.empty() ? NodeKind::kTrailing : NodeKind::kAsync;
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
      for (const NodeId target : item.after) {
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
    for (const NodeId id : order_) std::sort(at(id).after.begin(), at(id).after.end(), less_urgent);
    std::vector<NodeId> ready;
    for (const NodeId id : order_) {
      if (at(id).before.empty()) ready.push_back(id);
    }
    std::sort(ready.begin(), ready.end(), less_urgent);
    roots_ = ready;
    std::vector<size_t> missing(items_.size());
    for (const NodeId id : order_) missing[static_cast<size_t>(id)] = at(id).before.size();
    order_.clear();
    while (!ready.empty()) {
      const NodeId id = ready.back();
      ready.pop_back();
      order_.push_back(id);
      for (const NodeId target : at(id).after) {
        if (--missing[static_cast<size_t>(target)] == 0) ready.push_back(target);
      }
    }
    for (size_t i = 0; i < order_.size(); ++i) at(order_[i]).number = static_cast<int32_t>(i);
  }

  Status Fill() {
    plan_->devices = options_.devices;
    plan_->pools = options_.pools;
    plan_->resources = options_.resources;
    plan_->step_container = options_.step_container;
    plan_->sequential = options_.pools->inter_op() == 1;
    plan_->num_nodes = static_cast<int32_t>(order_.size());
    plan_->nodes = std::make_unique<PlanNode[]>(order_.size());
    plan_->cost_bits = std::make_unique<std::atomic<uint8_t>[]>(order_.size());
    for (const NodeId id : order_) {
      at(id).slot = plan_->num_slots;
      plan_->num_slots += at(id).inputs;
    }
    // Consumers of outputs, in the order in which they are likely to run, so that the last one
    // takes the tensor over.
    struct Use {
      int32_t output;
      uint32_t slot;
    };
    std::vector<std::vector<Use>> uses(items_.size());
    for (const NodeId id : order_) {
      uint32_t slot = at(id).slot;
      for (const Endpoint& e : InputsOf(id))
        uses[static_cast<size_t>(e.node)].push_back({e.index, slot++});
    }
    for (const NodeId id : order_) {
      Item& item = at(id);
      PlanNode& node = plan_->nodes[static_cast<size_t>(item.number)];
      node.kind = item.kind;
      node.device = item.device;
      node.first_input = item.slot;
      node.num_inputs = item.inputs;
      // A _Send has no outputs here, and what a linked _Send or a control _Recv puts out carries
      // nothing.
      const bool passes = item.kind != NodeKind::kForward || item.inputs > 0;
      node.num_outputs = passes ? static_cast<uint32_t>(graph_.num_outputs(id)) : 0;
      node.first_dtype = static_cast<uint32_t>(plan_->dtypes.size());
      for (uint32_t i = 0; i < node.num_outputs; ++i) {
        plan_->dtypes.push_back(graph_.dtype({id, static_cast<int32_t>(i)}));
      }
      plan_->max_outputs = std::max(plan_->max_outputs, node.num_outputs);
      plan_->names.emplace_back(graph_.name(id));
      plan_->ops.emplace_back(graph_.op(id).name());

      auto& out = uses[static_cast<size_t>(id)];
      std::stable_sort(out.begin(), out.end(),
                       [](const Use& a, const Use& b) { return a.output < b.output; });
      node.first_edge = static_cast<uint32_t>(plan_->edges.size());
      node.num_edges = static_cast<uint32_t>(out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        plan_->edges.push_back({.slot = out[i].slot,
                                .output = static_cast<uint16_t>(out[i].output),
                                .dtype = static_cast<uint8_t>(graph_.dtype({id, out[i].output})),
                                .last = i + 1 == out.size() || out[i + 1].output != out[i].output});
      }
      node.first_successor = static_cast<uint32_t>(plan_->successors.size());
      node.num_successors = static_cast<uint32_t>(item.after.size());
      for (const NodeId target : item.after) {
        plan_->successors.push_back(
            {.node = static_cast<uint32_t>(at(target).number) & 0x7fffffffu,
             .alone = at(target).before.size() == 1 && at(target).kind != NodeKind::kRecv});
      }
      // A _Recv also waits for its tensor and for the step to start.
      const bool recv = item.kind == NodeKind::kRecv;
      plan_->pending.push_back(static_cast<uint32_t>(item.before.size()) + (recv ? 2 : 0));

      if (item.kind == NodeKind::kRecv) {
        node.aux = static_cast<uint32_t>(plan_->recv_edges.size());
        plan_->recv_edges.push_back(Edge(id));
        plan_->recv_nodes.push_back(item.number);
      } else if (item.kind == NodeKind::kSend) {
        node.aux = static_cast<uint32_t>(plan_->send_edges.size());
        plan_->send_edges.push_back(Edge(id));
      } else if (item.kind != NodeKind::kForward) {
        AddKernel(&item, &node);
      }
    }
    for (const NodeId id : roots_) {
      if (at(id).kind != NodeKind::kRecv) plan_->roots.push_back(at(id).number);
    }
    plan_->serial_mutexes = std::make_unique<std::mutex[]>(serial_);
    if (!plan_->recv_edges.empty()) {
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
    return Status();
  }

  void AddKernel(Item* item, PlanNode* node) {
    node->kernel = item->kernel.get();
    if (item->kind == NodeKind::kAsync || item->kind == NodeKind::kTrailing) {
      plan_->trails = plan_->trails || item->kind == NodeKind::kTrailing;
      plan_->SetCost(item->number, 100);  // cheap: it only starts the work
      node->aux = static_cast<uint32_t>(plan_->frame_outputs.size());
      plan_->frame_outputs.push_back(node->num_outputs);
    } else {
      plan_->SetCost(item->number,
                     item->entry->def.cost == KernelCost::kCheap ? 100 : kUnknownCost);
      if (item->kind == NodeKind::kSerial) node->aux = serial_++;
    }
    plan_->kernels.push_back(std::move(item->kernel));
  }

  Result<std::shared_ptr<const Plan>> CompileBody(NodeId call) {
    const std::string& name = graph_.attrs(call).Get<FunctionName>("f").name;
    const Function* function = graph_.functions().Find(name);
    if (function == nullptr)
      return NotFound("function '" + name + "' is not in the graph's library");
    return CompileAny(*function->body, options_, FullDevice(call), true);
  }

  // Whether lowering has made the kernel of the node.
  bool IsMade(NodeId id) const { return made_ != nullptr && made_->contains(id); }

  const Graph& graph_;
  const PlanOptions& options_;
  const DeviceName outer_;
  const bool is_body_;
  std::unordered_map<NodeId, std::unique_ptr<Kernel>>* made_ = nullptr;
  std::unique_ptr<PlanData> plan_;
  std::vector<Item> items_;
  std::vector<NodeId> order_;
  std::vector<NodeId> roots_;  // the most urgent one last
  uint32_t serial_ = 0;        // serial kernels
};

Result<std::shared_ptr<const Plan>> CompilePlan(Graph graph, const PlanOptions& options) {
  MG_CHECK(options.kernels != nullptr && options.pools != nullptr && options.resources != nullptr);
  bool calls = false;
  for (NodeId id = 0; id < graph.num_nodes() && !calls; ++id) calls = IsCall(graph, id);
  if (calls && options.inline_functions) {
    MG_ASSIGN_OR_RETURN(graph, InlineFunctions(graph));
  }
  return PlanCompiler::CompileAny(graph, options, DeviceName(), false);
}

}  // namespace monograph
