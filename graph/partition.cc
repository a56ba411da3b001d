// The phases of Run: ReadRequest, ColocateLoops (devices of Switches and their like in loops),
// FindTasks (a partition for each task with nodes), FindEdges (one edge per tensor and destination
// device, with the priority of its first reader; NeedControlLoop where it is in a loop),
// DescribeEdges, Build (copies nodes, adds _Send and _Recv at an edge's first use, and
// CloseControlLoop), ShareFunctions. All edges are found before any is built, since a _Send carries
// its edge's final priority.
#include "graph/partition.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "graph/control_flow.h"
#include "graph/function.h"

namespace monograph {
namespace {

// Depths in a function: where each argument is first read, and where each result is computed. So
// the transfers of a call are ordered as if it were inlined: weights of early layers go first,
// gradients of late layers come first.
struct CallTiming {
  std::vector<int32_t> arg_need, result_ready;
};

// The depth of every node (the longest path to it), with calls as deep as their bodies.
class Depths {
 public:
  Depths(const Graph& graph, const FunctionLibrary& library,
         std::map<const Function*, CallTiming>* timings, int depth)
      : graph_(graph), library_(library), timings_(timings), depth_(depth) {
    start_.assign(static_cast<size_t>(graph.num_nodes()), 0);
  }

  void Visit(NodeId node) {
    int32_t start = 0;
    for (const Endpoint& input : graph_.inputs(node)) start = std::max(start, Ready(input));
    for (NodeId source : graph_.control_inputs(node))
      start = std::max(start, start_[Index(source)] + 1);
    start_[Index(node)] = start;
  }
  // The depth from which the output can be read.
  int32_t Ready(Endpoint e) {
    const int32_t start = start_[Index(e.node)];
    const CallTiming* timing = TimingOf(e.node);
    if (timing == nullptr || Index(e.index) >= timing->result_ready.size()) return start + 1;
    return start + timing->result_ready[Index(e.index)];
  }
  // The depth at which the node reads that input.
  int32_t Need(NodeId node, size_t input) {
    const CallTiming* timing = TimingOf(node);
    if (timing == nullptr || input >= timing->arg_need.size()) return start_[Index(node)];
    return start_[Index(node)] + timing->arg_need[input];
  }
  int32_t start(NodeId node) const { return start_[Index(node)]; }

 private:
  template <typename T>
  static size_t Index(T i) {
    return static_cast<size_t>(i);
  }

  const CallTiming* TimingOf(NodeId node) {
    const Function* function = Callee(graph_, node, library_);
    if (function == nullptr || depth_ >= kMaxCallDepth) return nullptr;
    auto found = timings_->find(function);
    if (found != timings_->end()) return &found->second;
    return &timings_->insert_or_assign(function, Compute(*function)).first->second;
  }

  CallTiming Compute(const Function& function) {
    CallTiming timing;
    timing.arg_need.assign(function.args.size(), INT32_MAX);
    const Graph& body = *function.body;
    Result<std::vector<NodeId>> order = body.TopologicalOrder();
    if (!order.ok()) return timing;
    Depths depths(body, library_, timings_, depth_ + 1);
    std::vector<int32_t> arg_of(static_cast<size_t>(body.num_nodes()), -1);
    for (size_t i = 0; i < function.args.size(); ++i)
      arg_of[Index(function.args[i])] = static_cast<int32_t>(i);
    int32_t last = 0;
    for (NodeId node : *order) {
      depths.Visit(node);
      last = std::max(last, depths.start(node));
      const auto inputs = body.inputs(node);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const int32_t arg = arg_of[Index(inputs[i].node)];
        if (arg < 0) continue;
        int32_t& need = timing.arg_need[Index(arg)];
        need = std::min(need, depths.Need(node, i));
      }
    }
    for (int32_t& need : timing.arg_need) need = std::min(need, last);
    for (NodeId result : function.results) {
      timing.result_ready.push_back(std::max(1, depths.Ready(body.inputs(result)[0])));
    }
    return timing;
  }

  const Graph& graph_;
  const FunctionLibrary& library_;
  std::map<const Function*, CallTiming>* timings_;
  int depth_;
  std::vector<int32_t> start_;
};

struct EdgeKey {
  Endpoint source;
  DeviceIndex to;
  friend bool operator==(const EdgeKey&, const EdgeKey&) = default;
};
struct EdgeKeyHash {
  size_t operator()(const EdgeKey& key) const {
    uint64_t h = static_cast<uint64_t>(static_cast<uint32_t>(key.source.node)) << 32 |
                 static_cast<uint32_t>(key.source.index);
    h = (h ^ static_cast<uint64_t>(static_cast<uint32_t>(key.to)) * 0x9e3779b97f4a7c15ull) *
        0xff51afd7ed558ccdull;
    return h ^ h >> 32;
  }
};

// One edge while it is being built; the public CrossEdge has the same id.
struct Edge {
  Endpoint source;               // of data
  std::vector<NodeId> controls;  // of a control edge
  // Indices of the graph; unused are `from` of a feed and `to` of a fetch, which are the client.
  DeviceIndex from = 0, to = 0;
  int32_t priority = INT32_MAX;
  bool feed = false, fetch = false;
  int32_t frame = 0;  // the loop that its tensor belongs to
  NodeId recv = -1;   // in the destination's partition, once made
};

// The control loop of a task that takes part in another task's loop, as in TensorFlow: an Enter, a
// Merge, a Switch and a NextIteration of its own, which goes on as long as the loop's predicate,
// which is sent to it, is true. The loop's _Recvs there wait for its Merge, so that they run in
// each iteration.
struct ControlLoop {
  int32_t frame = 0;
  DeviceIndex device = 0;
  Endpoint predicate;  // of the loop; in the whole graph
  int32_t edge = -1;   // brings it; -1: it is on that device
  NodeId merge = -1;   // in the task's partition, once made
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const PartitionRequest& request)
      : graph_(graph), request_(request), depths_(graph, graph.functions(), &timings_, 0) {}

  Result<PartitionedGraph> Run() {
    MG_RETURN_IF_ERROR(ReadRequest());
    MG_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    if (graph_.has_flow_ops()) {
      MG_ASSIGN_OR_RETURN(flow_, FindControlFlow(graph_));
      if (flow_.frames.size() > 1) ColocateLoops();
    }
    MG_RETURN_IF_ERROR(FindTasks());
    MG_RETURN_IF_ERROR(FindEdges());
    MG_RETURN_IF_ERROR(DescribeEdges());
    MG_RETURN_IF_ERROR(Build());
    ShareFunctions();
    return std::move(out_);
  }

 private:
  template <typename T>
  static size_t Index(T i) {
    return static_cast<size_t>(i);
  }

  DeviceIndex DeviceOf(NodeId node) const {
    return moved_.empty() ? graph_.device_index(node) : moved_[Index(node)];
  }
  bool IsFed(Endpoint e) const { return fed_node_[Index(e.node)] && feed_of_.contains({e, 0}); }
  std::string_view DeviceText(DeviceIndex device) const { return device_texts_[Index(device)]; }

  Status ReadRequest() {
    if (!request_.client.full()) {
      return InvalidArgument("the client's device '" + request_.client.ToString() +
                             "' is not a full device name");
    }
    fed_node_.assign(Index(graph_.num_nodes()), false);
    dropped_.assign(Index(graph_.num_nodes()), false);
    for (size_t i = 0; i < request_.feeds.size(); ++i) {
      const Endpoint feed = request_.feeds[i];
      if (!feed.valid()) continue;
      if (!feed_of_.try_emplace({feed, 0}, static_cast<int32_t>(i)).second) {
        return InvalidArgument(graph_.TensorName(feed) + " is fed twice");
      }
      fed_node_[Index(feed.node)] = true;
      dropped_[Index(feed.node)] = true;
    }
    for (const Endpoint& fetch : request_.fetches) {
      if (IsFed(fetch))
        return InvalidArgument(graph_.TensorName(fetch) + " is both fed and fetched.");
      dropped_[Index(fetch.node)] = false;
    }
    // A fed node stays only if another of its outputs is read.
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      for (const Endpoint& input : graph_.inputs(node)) {
        if (dropped_[Index(input.node)] && !IsFed(input)) dropped_[Index(input.node)] = false;
      }
    }
    out_.feed_edges.resize(request_.feeds.size());
    out_.fetch_edges.reserve(request_.fetches.size());
    return Status();
  }

  // Nodes that only move values in loops go where TensorFlow puts them: Switch and Exit to their
  // input's device, Enter and NextIteration to their first reader's.
  void ColocateLoops() {
    moved_.resize(Index(graph_.num_nodes()));
    std::vector<NodeId> reader(moved_.size(), -1);
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      moved_[Index(node)] = graph_.device_index(node);
      for (const Endpoint& input : graph_.inputs(node)) {
        if (NodeId& first = reader[Index(input.node)]; first < 0) first = node;
      }
    }
    for (size_t i = order_.size(); i-- > 0;) {
      const NodeId node = order_[i], target = reader[Index(node)];
      const FlowOp kind = Kind(node);
      if ((kind == FlowOp::kEnter || kind == FlowOp::kNextIteration) && target >= 0 &&
          graph_.dtype({node, 0}) != DT_RESOURCE && !graph_.is(node, "RefEnter"))
        moved_[Index(node)] = moved_[Index(target)];
    }
    for (const NodeId node : order_) {
      const FlowOp kind = Kind(node);
      if (flow_.frame[Index(node)] > 0 && (kind == FlowOp::kSwitch || kind == FlowOp::kExit))
        moved_[Index(node)] = moved_[Index(graph_.inputs(node)[0].node)];
    }
  }
  // A node that is fed has lost its inputs, and is as any other one.
  FlowOp Kind(NodeId node) const {
    return graph_.inputs(node).empty() ? FlowOp::kNone : graph_.op(node).flow();
  }

  Status FindTasks() {
    const size_t devices = graph_.devices().size();
    for (const DeviceName& device : graph_.devices()) device_texts_.push_back(device.ToString());
    client_text_ = request_.client.ToString();
    std::vector<bool> used(devices);
    std::vector<int> count(devices);
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      if (dropped_[Index(node)]) continue;
      const DeviceIndex device = DeviceOf(node);
      if (const DeviceName& name = graph_.devices()[Index(device)];
          !used[Index(device)] && !name.full()) {
        return InvalidArgument(fmt::format("node {} is not placed: its device is '{}'",
                                           graph_.NodeText(node), name.ToString()));
      }
      used[Index(device)] = true;
      ++count[Index(device)];
    }
    std::map<std::string, size_t> tasks;
    for (size_t i = 0; i < devices; ++i) {
      if (used[i]) tasks.emplace(graph_.devices()[i].TaskName(), 0);
    }
    for (auto& [name, index] : tasks) {
      index = out_.partitions.size();
      MG_ASSIGN_OR_RETURN(const DeviceName task, DeviceName::Parse(name));
      out_.partitions.push_back({task, Graph(&graph_.registry())});
    }
    task_of_.assign(devices, 0);
    std::vector<int> sizes(out_.partitions.size());
    for (size_t i = 0; i < devices; ++i) {
      if (!used[i]) continue;
      task_of_[i] = tasks.at(graph_.devices()[i].TaskName());
      sizes[task_of_[i]] += count[i];
    }
    for (size_t task = 0; task < sizes.size(); ++task)
      out_.partitions[task].graph.Reserve(sizes[task] + sizes[task] / 8);
    return Status();
  }

  int32_t DataEdge(Endpoint source, DeviceIndex to, int32_t priority) {
    auto [found, added] =
        data_edges_.try_emplace({source, to}, static_cast<int32_t>(edges_.size()));
    if (added) {
      Edge edge;
      edge.source = source;
      edge.to = to;
      edge.feed = IsFed(source);
      edge.from = edge.feed ? 0 : DeviceOf(source.node);
      if (edge.feed) out_.feed_edges[Index(feed_of_.at({source, 0}))].push_back(found->second);
      edges_.push_back(std::move(edge));
    }
    Edge& edge = edges_[Index(found->second)];
    edge.priority = std::min(edge.priority, priority);
    return found->second;
  }

  // One control edge from all of `sources`, which are on one device; sorted.
  int32_t ControlEdge(const std::vector<NodeId>& sources, DeviceIndex to, int32_t priority) {
    std::vector<NodeId> key = sources;
    key.push_back(to);
    auto [found, added] =
        control_edges_.try_emplace(std::move(key), static_cast<int32_t>(edges_.size()));
    if (added) {
      Edge edge;
      edge.controls = sources;
      edge.from = DeviceOf(sources[0]);
      edge.to = to;
      edges_.push_back(std::move(edge));
    }
    Edge& edge = edges_[Index(found->second)];
    edge.priority = std::min(edge.priority, priority);
    return found->second;
  }

  // Gives every crossing input its edge, in the order in which Build comes to them, and every edge
  // the priority of its first reader.
  // Goes through the inputs in the same order as Build, which takes the edges from a plain list.
  Status FindEdges() {
    std::vector<NodeId> remote;
    for (NodeId node : order_) {
      depths_.Visit(node);
      if (dropped_[Index(node)]) continue;
      const DeviceIndex device = DeviceOf(node);
      const auto inputs = graph_.inputs(node);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const bool fed = IsFed(inputs[i]);
        if (!fed && DeviceOf(inputs[i].node) == device) continue;
        if (!fed && graph_.dtype(inputs[i]) == DT_RESOURCE) {
          return InvalidArgument(
              fmt::format("the resource '{}' on {} cannot move to node '{}' on {}",
                          graph_.TensorName(inputs[i]), DeviceNameOf(inputs[i].node),
                          graph_.name(node), DeviceNameOf(node)));
        }
        if (graph_.dtype(inputs[i]) == DT_VARIANT)
          MG_RETURN_IF_ERROR(CheckStays(inputs[i], node, fed));
        const int32_t edge = DataEdge(inputs[i], device, depths_.Need(node, i));
        crossings_.push_back(edge);
        if (!fed && FrameOfOutputs(inputs[i].node) > 0)
          MG_RETURN_IF_ERROR(CrossesInLoop(edge, inputs[i].node, node));
      }
      remote.clear();
      for (NodeId source : graph_.control_inputs(node)) {
        if (dropped_[Index(source)] || DeviceOf(source) == device) continue;
        remote.push_back(source);
      }
      if (remote.empty()) continue;
      // A tensor of the source that is sent to this device anyway serves as its control edge.
      std::erase_if(remote, [&](NodeId source) {
        auto found = data_edges_.find({{source, 0}, device});
        // The tensor of a Switch may be dead although the Switch has run.
        if (graph_.op(source).flow() == FlowOp::kSwitch) return false;
        if (found == data_edges_.end() || edges_[Index(found->second)].feed) return false;
        Edge& edge = edges_[Index(found->second)];
        edge.priority = std::min(edge.priority, depths_.start(node));
        control_crossings_.emplace_back(node, found->second);
        return true;
      });
      std::sort(remote.begin(), remote.end(), [&](NodeId a, NodeId b) {
        const DeviceIndex da = DeviceOf(a), db = DeviceOf(b);
        return da != db ? da < db : a < b;
      });
      for (size_t begin = 0; begin < remote.size();) {
        size_t end = begin + 1;
        const DeviceIndex from = DeviceOf(remote[begin]);
        while (end < remote.size() && DeviceOf(remote[end]) == from) ++end;
        const std::vector<NodeId> sources(remote.begin() + static_cast<ptrdiff_t>(begin),
                                          remote.begin() + static_cast<ptrdiff_t>(end));
        const int32_t edge = ControlEdge(sources, device, depths_.start(node));
        control_crossings_.emplace_back(node, edge);
        if (FrameOfOutputs(sources[0]) > 0)
          MG_RETURN_IF_ERROR(CrossesInLoop(edge, sources[0], node));
        begin = end;
      }
    }
    std::unordered_map<EdgeKey, int32_t, EdgeKeyHash> fetched;
    for (const Endpoint& fetch : request_.fetches) {
      if (graph_.dtype(fetch) == DT_RESOURCE) {
        return InvalidArgument("the resource '" + graph_.TensorName(fetch) + "' cannot be fetched");
      }
      if (graph_.dtype(fetch) == DT_VARIANT) {
        return InvalidArgument("the variant '" + graph_.TensorName(fetch) +
                               "' cannot be fetched; fetch what is read from it");
      }
      if (const int32_t frame = FrameOfOutputs(fetch.node); frame > 0) {
        return InvalidArgument("Operation " + std::string(graph_.name(fetch.node)) +
                               " has been marked as not fetchable: '" + graph_.TensorName(fetch) +
                               "' is inside of " + flow_.FrameText(frame) +
                               ", which computes it many times; fetch what leaves the loop");
      }
      auto [found, added] = fetched.try_emplace({fetch, 0}, static_cast<int32_t>(edges_.size()));
      if (added) {
        Edge edge;
        edge.source = fetch;
        edge.from = DeviceOf(fetch.node);
        edge.fetch = true;
        edge.priority = depths_.Ready(fetch);
        edges_.push_back(std::move(edge));
      }
      out_.fetch_edges.push_back(found->second);
    }
    return Status();
  }

  int32_t FrameOfOutputs(NodeId node) const {
    return flow_.frames.empty() ? 0 : flow_.FrameOfOutputs(graph_, node);
  }
  const std::string& DeviceNameOf(NodeId node) const {
    return device_texts_[Index(DeviceOf(node))];
  }

  // A variant has no form in which it could be sent to another task.
  Status CheckStays(Endpoint variant, NodeId reader, bool fed) const {
    if (fed) {
      return InvalidArgument("the variant '" + graph_.TensorName(variant) + "' cannot be fed");
    }
    if (task_of_[Index(DeviceOf(variant.node))] == task_of_[Index(DeviceOf(reader))])
      return Status();
    return Unimplemented(
        fmt::format("the variant '{}' on {} cannot move to node '{}' on {}, which is another task",
                    graph_.TensorName(variant), DeviceNameOf(variant.node), graph_.name(reader),
                    DeviceNameOf(reader)));
  }

  // The edge brings something of a loop from `source` to `target`, in each iteration.
  Status CrossesInLoop(int32_t edge, NodeId source, NodeId target) {
    const int32_t frame = FrameOfOutputs(source);
    const DeviceIndex to = DeviceOf(target);
    edges_[Index(edge)].frame = frame;
    const bool one_task = task_of_[Index(DeviceOf(source))] == task_of_[Index(to)];
    const FlowOp kind = Kind(source);
    const bool once = kind == FlowOp::kEnter && !one_task &&
                      !graph_.attrs(source).GetOr<bool>("is_constant", false);
    if (kind == FlowOp::kNextIteration || once) {
      return InvalidArgument(fmt::format(
          "node {} on {} feeds node {} on {}: a value that enters {}, or its next iteration, is "
          "read by the nodes of one task",
          graph_.NodeText(source), DeviceNameOf(source), graph_.NodeText(target),
          DeviceNameOf(target), flow_.FrameText(frame)));
    }
    return one_task ? Status() : NeedControlLoop(frame, to);
  }

  // The task of the device takes part in the loop.
  Status NeedControlLoop(int32_t frame, DeviceIndex device) {
    for (; frame > 0; frame = flow_.frames[Index(frame)].parent) {
      const auto [found, added] =
          control_loop_of_.try_emplace({frame, task_of_[Index(device)]}, control_loops_.size());
      if (!added) return Status();
      ControlLoop loop{.frame = frame, .device = device};
      MG_ASSIGN_OR_RETURN(loop.predicate, PredicateOf(frame));
      if (DeviceOf(loop.predicate.node) != device) {
        loop.edge = DataEdge(loop.predicate, device, 0);
        edges_[Index(loop.edge)].frame = frame;
      }
      control_loops_.push_back(loop);
    }
    return Status();
  }

  // The loop's predicate: input 1 of a Switch that feeds an Exit.
  Result<Endpoint> PredicateOf(int32_t frame) const {
    for (const NodeId node : order_) {
      if (flow_.frame[Index(node)] != frame || Kind(node) != FlowOp::kExit) continue;
      const NodeId branch = graph_.inputs(node)[0].node;
      if (Kind(branch) == FlowOp::kSwitch) return graph_.inputs(branch)[1];
    }
    return InvalidArgument(flow_.FrameText(frame) +
                           " spans tasks, and has no Exit behind a Switch, whose predicate would "
                           "say when it ends");
  }

  // Whether the edge may bring no tensor, since a Switch has gone the other way.
  bool MayBeDead(const Edge& edge) const {
    if (flow_.region.empty() || edge.feed || edge.fetch) return false;
    if (edge.controls.empty()) {
      return flow_.region[Index(edge.source.node)] != 0 ||
             graph_.op(edge.source.node).flow() == FlowOp::kSwitch;
    }
    return std::any_of(edge.controls.begin(), edge.controls.end(),
                       [&](NodeId source) { return flow_.region[Index(source)] != 0; });
  }

  Status DescribeEdges() {
    out_.edges.reserve(edges_.size());
    for (const Edge& edge : edges_) {
      CrossEdge& cross = out_.edges.emplace_back();
      cross.id = static_cast<int32_t>(out_.edges.size()) - 1;
      cross.from = edge.feed ? request_.client : graph_.devices()[Index(edge.from)];
      cross.to = edge.fetch ? request_.client : graph_.devices()[Index(edge.to)];
      cross.priority = edge.priority;
      if (edge.controls.empty()) {
        cross.tensor_name = graph_.TensorName(edge.source);
        if (edge.source.index == 0) cross.tensor_name += ":0";
        cross.dtype = graph_.dtype(edge.source);
        cross.shape = graph_.shape(edge.source);
      } else {
        cross.tensor_name = "^" + std::string(graph_.name(edge.controls[0]));
        if (edge.controls.size() > 1)
          cross.tensor_name += " and " + std::to_string(edge.controls.size() - 1) + " more";
        cross.dtype = DT_INVALID;
        cross.shape = PartialShape({0});
      }
    }
    return Status();
  }

  // Attributes of a _Send (with its number of inputs) or a _Recv (with its shape), set in the order
  // in which Attrs keeps them: none has to be moved.
  Attrs TransferAttrs(const Edge& edge, const CrossEdge& cross, bool send) const {
    const bool control = cross.dtype == DT_INVALID;
    Attrs attrs;
    if (send) attrs.Set("N", static_cast<int64_t>(control ? 0 : 1));
    attrs.Set("T", control ? DT_FLOAT : cross.dtype);
    if (MayBeDead(edge)) attrs.Set(std::string(kMayBeDead), true);
    attrs.Set("control", control);
    attrs.Set("edge_id", static_cast<int64_t>(cross.id));
    attrs.Set("priority", static_cast<int64_t>(cross.priority));
    attrs.Set("recv_device", edge.fetch ? client_text_ : std::string(DeviceText(edge.to)));
    attrs.Set("send_device", edge.feed ? client_text_ : std::string(DeviceText(edge.from)));
    if (!send) attrs.Set("shape", cross.shape);
    attrs.Set("tensor_name", cross.tensor_name);
    return attrs;
  }

  std::string TransferName(const char* kind, const CrossEdge& cross, const Edge& edge) const {
    const NodeId source = edge.controls.empty() ? edge.source.node : edge.controls[0];
    return std::string(kind)
        .append(graph_.name(source))
        .append("/")
        .append(std::to_string(cross.id));
  }

  Result<NodeId> AddSend(const Edge& edge, const CrossEdge& cross) {
    const std::string name = TransferName("_send/", cross, edge);
    Graph& graph = out_.partitions[task_of_[Index(edge.from)]].graph;
    Endpoint input;
    std::vector<NodeId> controls;
    NodeSpec spec;
    spec.name = name;
    spec.op = "_Send";
    spec.attrs = std::make_shared<const Attrs>(TransferAttrs(edge, cross, true));
    spec.device = DeviceText(edge.from);
    if (edge.controls.empty()) {
      input = {local_[Index(edge.source.node)], edge.source.index};
      spec.inputs = {&input, 1};
    } else {
      for (NodeId source : edge.controls) controls.push_back(local_[Index(source)]);
      spec.control_inputs = controls;
    }
    return graph.AddNode(spec);
  }

  // `before`: what it waits for; -1: nothing.
  Result<NodeId> AddRecv(const Edge& edge, const CrossEdge& cross, NodeId before) {
    const std::string name = TransferName("_recv/", cross, edge);
    NodeSpec spec;
    spec.name = name;
    spec.op = "_Recv";
    spec.attrs = std::make_shared<const Attrs>(TransferAttrs(edge, cross, false));
    spec.device = DeviceText(edge.to);
    if (before >= 0) spec.control_inputs = {&before, 1};
    return out_.partitions[task_of_[Index(edge.to)]].graph.AddNode(spec);
  }

  // The receiving node of an edge; makes both ends at the first use. Sources come before readers,
  // so they are there.
  Result<NodeId> Recv(int32_t id) {
    Edge& edge = edges_[Index(id)];
    if (edge.recv < 0) {
      const CrossEdge& cross = out_.edges[Index(id)];
      NodeId send = -1, before = -1;
      if (!edge.feed) {
        MG_ASSIGN_OR_RETURN(send, AddSend(edge, cross));
      }
      if (edge.frame > 0) {  // puts the _Recv into the loop
        const size_t task = task_of_[Index(edge.to)];
        before = send;
        if (task_of_[Index(edge.from)] != task) {
          MG_ASSIGN_OR_RETURN(before, ControlMerge(edge.frame, task));
        }
      }
      MG_ASSIGN_OR_RETURN(edge.recv, AddRecv(edge, cross, before));
    }
    return edge.recv;
  }

  Result<NodeId> AddFlowNode(const ControlLoop& loop, const char* op,
                             std::span<const Endpoint> inputs, Attrs attrs) {
    NodeSpec spec;
    const std::string name =
        fmt::format("_control_loop/{}/{}", flow_.frames[Index(loop.frame)].name, op);
    Graph& graph = out_.partitions[task_of_[Index(loop.device)]].graph;
    const std::string unique = graph.UniqueName(name);
    spec.name = unique;
    spec.op = op;
    spec.inputs = inputs;
    spec.attrs = std::make_shared<const Attrs>(std::move(attrs));
    spec.device = DeviceText(loop.device);
    return graph.AddNode(spec);
  }

  // The Merge of the task's control loop; makes it, and what leads into it, at the first use.
  Result<NodeId> ControlMerge(int32_t frame, size_t task) {
    ControlLoop& loop = control_loops_[control_loop_of_.at({frame, task})];
    if (loop.merge >= 0) return loop.merge;
    const LoopFrame& of = flow_.frames[Index(frame)];
    Endpoint start;
    if (of.parent > 0) {
      MG_ASSIGN_OR_RETURN(start.node, ControlMerge(of.parent, task));
    } else {
      MG_ASSIGN_OR_RETURN(
          start.node,
          AddFlowNode(loop, "Const", {}, {{"dtype", DT_BOOL}, {"value", Tensor::Scalar(true)}}));
    }
    start.index = 0;
    Endpoint enters[2];
    MG_ASSIGN_OR_RETURN(enters[0].node,
                        AddFlowNode(loop, "Enter", {&start, 1},
                                    {{"frame_name", of.name},
                                     {"is_constant", false},
                                     {"parallel_iterations", of.parallel_iterations}}));
    enters[0].index = 0;
    enters[1] = enters[0];  // until CloseControlLoop
    MG_ASSIGN_OR_RETURN(loop.merge, AddFlowNode(loop, "Merge", enters, {}));
    return loop.merge;
  }

  Status CloseControlLoop(const ControlLoop& loop) {
    const size_t task = task_of_[Index(loop.device)];
    Endpoint inputs[2] = {{loop.merge, 0},
                          {local_[Index(loop.predicate.node)], loop.predicate.index}};
    if (loop.edge >= 0) {
      MG_ASSIGN_OR_RETURN(inputs[1].node, Recv(loop.edge));
      inputs[1].index = 0;
    }
    MG_ASSIGN_OR_RETURN(const NodeId branch, AddFlowNode(loop, "Switch", inputs, {}));
    const Endpoint goes_on{branch, 1};
    MG_ASSIGN_OR_RETURN(const NodeId next, AddFlowNode(loop, "NextIteration", {&goes_on, 1}, {}));
    out_.partitions[task].graph.ReplaceInput(loop.merge, 1, {next, 0});
    return Status();
  }

  Status Build() {
    local_.assign(Index(graph_.num_nodes()), -1);
    std::vector<Endpoint> inputs;
    std::vector<NodeId> controls;
    size_t crossing = 0, control_crossing = 0;
    for (NodeId node : order_) {
      if (dropped_[Index(node)]) continue;
      const DeviceIndex device = DeviceOf(node);
      inputs.clear();
      controls.clear();
      for (const Endpoint& input : graph_.inputs(node)) {
        if (!IsFed(input) && DeviceOf(input.node) == device) {
          if (graph_.IsBackEdge(input.node, node))
            loops_.push_back({node, static_cast<int>(inputs.size()), input});
          inputs.push_back({local_[Index(input.node)], input.index});
        } else {
          MG_ASSIGN_OR_RETURN(const NodeId recv, Recv(crossings_[crossing++]));
          inputs.push_back({recv, 0});
        }
      }
      for (NodeId source : graph_.control_inputs(node)) {
        if (!dropped_[Index(source)] && DeviceOf(source) == device)
          controls.push_back(local_[Index(source)]);
      }
      while (control_crossing < control_crossings_.size() &&
             control_crossings_[control_crossing].first == node) {
        MG_ASSIGN_OR_RETURN(const NodeId recv, Recv(control_crossings_[control_crossing++].second));
        if (std::find(controls.begin(), controls.end(), recv) == controls.end())
          controls.push_back(recv);
      }
      Graph& graph = out_.partitions[task_of_[Index(device)]].graph;
      local_[Index(node)] = graph.CopyNode(graph_, node, graph_.name(node), inputs, controls);
      if (device != graph_.device_index(node))
        graph.SetDevice(local_[Index(node)], graph.InternDevice(graph_.devices()[Index(device)]));
    }
    for (const ControlLoop& loop : control_loops_) MG_RETURN_IF_ERROR(CloseControlLoop(loop));
    for (const auto& [merge, input, source] : loops_) {
      out_.partitions[task_of_[Index(DeviceOf(merge))]].graph.ReplaceInput(
          local_[Index(merge)], input, {local_[Index(source.node)], source.index});
    }
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (edges_[i].fetch) MG_RETURN_IF_ERROR(AddSend(edges_[i], out_.edges[i]).status());
    }
    return Status();
  }

  void AddReachable(const Graph& body, std::set<std::string, std::less<>>* names) const {
    for (NodeId node = 0; node < body.num_nodes(); ++node) {
      for (const Function* function : FunctionsOf(body, node, graph_.functions())) {
        if (names->insert(function->name).second) AddReachable(*function->body, names);
      }
    }
  }

  // Each task gets the functions that it calls, and no others.
  void ShareFunctions() {
    if (graph_.functions().empty()) return;
    for (Partition& partition : out_.partitions) {
      std::set<std::string, std::less<>> names;
      AddReachable(partition.graph, &names);
      auto library = std::make_shared<FunctionLibrary>();
      for (const std::string& name : names)
        MG_CHECK(library->Add(*graph_.functions().Find(name)).ok());
      partition.graph.ShareFunctions(std::move(library));
    }
  }

  const Graph& graph_;
  const PartitionRequest& request_;
  std::map<const Function*, CallTiming> timings_;
  Depths depths_;
  PartitionedGraph out_;
  std::vector<NodeId> order_;

  std::vector<bool> fed_node_, dropped_;
  std::unordered_map<EdgeKey, int32_t, EdgeKeyHash> feed_of_;  // by {feed, 0}
  std::vector<std::string> device_texts_;
  std::string client_text_;
  std::vector<size_t> task_of_;  // by DeviceIndex

  std::vector<Edge> edges_;
  std::unordered_map<EdgeKey, int32_t, EdgeKeyHash> data_edges_;
  std::map<std::vector<NodeId>, int32_t> control_edges_;
  std::vector<int32_t> crossings_;  // edges of crossing inputs, in order
  // Edges of crossing control inputs, in order.
  std::vector<std::pair<NodeId, int32_t>> control_crossings_;

  std::vector<NodeId> local_;  // id in its partition

  ControlFlow flow_;                // of a graph that has any; else empty
  std::vector<DeviceIndex> moved_;  // by node, in a graph with loops: its device
  std::vector<ControlLoop> control_loops_;
  std::map<std::pair<int32_t, size_t>, size_t> control_loop_of_;  // by loop and task
  struct BackEdge {
    NodeId merge;
    int input;
    Endpoint source;
  };
  std::vector<BackEdge> loops_;
};

}  // namespace

Result<PartitionedGraph> PartitionGraph(const Graph& graph, const PartitionRequest& request) {
  return Partitioner(graph, request).Run();
}

}  // namespace monograph
