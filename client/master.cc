// Preparing a signature: find the tensors by name, place the whole graph (once, again only if it
// has grown), prune to what the signature needs, optimise, partition by device, and register the
// partitions with their tasks. The result is kept by signature, so that a later Run of the same
// feeds and fetches only looks it up. Placement covers the whole graph, not the pruned one: a node
// must have the same device in every signature.
#include "client/master.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "executor/worker/worker.pb.h"
#include "graph/function.h"
#include "graph/graph_def.h"
#include "graph/place.h"
#include "graph/prune.h"

namespace monograph {
namespace {

constexpr std::chrono::seconds kRegisterTimeout(120), kDeregisterTimeout(10);

}  // namespace

Master::Master(const Graph& graph, uint64_t session, Worker* worker, ClusterConnection* cluster,
               Options options)
    : graph_(graph),
      session_(session),
      worker_(worker),
      cluster_(cluster),
      options_(std::move(options)) {
  devices_ = worker_->devices();
  if (cluster_ != nullptr) {
    for (const RemoteTask& task : cluster_->tasks())
      devices_.insert(devices_.end(), task.devices.begin(), task.devices.end());
  }
}

Status Master::PlaceGraph() {
  if (placed_nodes_ == graph_.num_nodes()) return Status();
  // A copy of the user's graph, with those calls inlined whose bodies request devices of several
  // tasks.
  const std::vector<NodeId> spanning = CallsThatSpanTasks(graph_);
  const auto spans = [&spanning](NodeId call) {
    return std::binary_search(spanning.begin(), spanning.end(), call);
  };
  InlineMap map;
  MG_ASSIGN_OR_RETURN(Graph placed,
                      InlineFunctions(graph_, spans, spanning.empty() ? nullptr : &map));
  const bool first = placed_ == nullptr;
  if (!first) {
    // Nodes that were placed before keep their devices.
    for (NodeId node = 0; node < placed.num_nodes(); ++node) {
      const NodeId before = placed_->Find(placed.name(node));
      if (before >= 0) placed.SetDevice(node, placed.InternDevice(placed_->device(before)));
    }
  }
  PlaceOptions options;
  options.allow_soft_placement = options_.allow_soft_placement;
  if (options_.has_kernel) {
    options.has_kernel = [this](const Graph& graph, NodeId node, DeviceType type) {
      return options_.has_kernel(graph.op(node).name(), graph.attrs(node), type);
    };
  }
  std::vector<PlacementNote> notes;
  MG_RETURN_IF_ERROR(Place(&placed, devices_, options, &notes));
  if (options_.log_device_placement != PlacementLog::kNone &&
      (first || placed.num_nodes() > placed_->num_nodes())) {
    options_.placement_sink(FormatPlacement(placed, options_.log_device_placement, notes));
  }
  placed_ = std::make_unique<Graph>(std::move(placed));
  placed_nodes_ = graph_.num_nodes();
  inlined_.clear();
  for (const NodeId call : spanning) {
    const auto id = static_cast<size_t>(call);
    inlined_[std::string(graph_.name(call))] = {std::move(map.outputs[id]),
                                                std::move(map.done[id])};
  }
  return Status();
}

Result<Endpoint> Master::FindTensor(const std::string& name) const {
  const size_t colon = name.rfind(':');
  const auto call = inlined_.find(name.substr(0, colon));
  if (call == inlined_.end()) return placed_->FindOutput(name);
  const size_t index =
      colon == std::string::npos ? 0 : std::strtoul(name.c_str() + colon + 1, nullptr, 10);
  if (index >= call->second.outputs.size()) {
    return NotFound("there is no tensor '" + name + "': node '" + call->first + "' has " +
                    std::to_string(call->second.outputs.size()) +
                    (call->second.outputs.size() == 1 ? " output" : " outputs"));
  }
  return call->second.outputs[index];
}

Result<std::vector<NodeId>> Master::FindTarget(const std::string& name) const {
  if (const auto call = inlined_.find(name); call != inlined_.end()) return call->second.done;
  const NodeId node = placed_->Find(name);
  if (node >= 0) return std::vector<NodeId>{node};
  // The error of FindOutput lists similar names.
  const Result<Endpoint> tensor = placed_->FindOutput(name);
  if (!tensor.ok()) return tensor.status().WithContext("operation to run");
  return InvalidArgument("operation to run: '" + name +
                         "' is a tensor; an operation is named by its node, '" +
                         std::string(placed_->name(tensor->node)) + "'");
}

Result<PartitionedGraph> Master::Cut(const Signature& signature, std::vector<int>* fetch_index,
                                     std::vector<int>* fetch_of_feed,
                                     std::vector<PreparedStep::FeedInfo>* feeds) {
  MG_RETURN_IF_ERROR(PlaceGraph());
  std::vector<Endpoint> fed, fetched, distinct;
  std::vector<NodeId> targets;
  for (const std::string& name : signature.feeds) {
    MG_ASSIGN_OR_RETURN(const Endpoint endpoint, FindTensor(name));
    if (std::find(fed.begin(), fed.end(), endpoint) != fed.end())
      return InvalidArgument("tensor '" + name + "' is fed twice");
    if (const OpDef& op = placed_->op(endpoint.node); !op.known()) {  // its type is unknown, too
      return placed_->registry().Require(op.name()).status().WithContext(
          "tensor '" + name + "', which this step feeds");
    }
    fed.push_back(endpoint);
    feeds->push_back(
        {placed_->TensorName(endpoint), placed_->dtype(endpoint), placed_->shape(endpoint), {}});
  }
  for (const std::string& name : signature.fetches) {
    MG_ASSIGN_OR_RETURN(const Endpoint endpoint, FindTensor(name));
    const auto as_feed = std::find(fed.begin(), fed.end(), endpoint);
    fetch_of_feed->push_back(as_feed == fed.end() ? -1 : static_cast<int>(as_feed - fed.begin()));
    if (as_feed != fed.end()) {
      fetch_index->push_back(-1);
      continue;
    }
    const auto seen = std::find(distinct.begin(), distinct.end(), endpoint);
    fetch_index->push_back(static_cast<int>(seen - distinct.begin()));
    if (seen == distinct.end()) distinct.push_back(endpoint);
  }
  for (const std::string& name : signature.targets) {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> nodes, FindTarget(name));
    targets.insert(targets.end(), nodes.begin(), nodes.end());
  }

  std::vector<NodeId> mapping;
  MG_ASSIGN_OR_RETURN(Graph graph, Prune(*placed_, fed, distinct, targets, &mapping));
  auto follow = [&mapping](std::vector<Endpoint>* endpoints) {
    for (Endpoint& endpoint : *endpoints)
      endpoint.node = mapping[static_cast<size_t>(endpoint.node)];
  };
  std::vector<NodeId> keep;
  auto apply = [&] {
    follow(&fed);
    follow(&distinct);
    for (NodeId& node : targets) node = mapping[static_cast<size_t>(node)];
    keep = targets;
    for (const Endpoint& endpoint : fed) {
      if (endpoint.valid()) keep.push_back(endpoint.node);
    }
    for (const Endpoint& endpoint : distinct) keep.push_back(endpoint.node);
  };
  auto drop_unused =
      [&] {  // a feed that nothing reads keeps its position in the signature and is sent nowhere
        for (Endpoint& endpoint : fed) {
          if (endpoint.node < 0) endpoint = Endpoint();
        }
      };
  apply();
  drop_unused();
  std::vector<size_t> used;
  std::vector<Endpoint> used_feeds;
  for (size_t i = 0; i < fed.size(); ++i) {
    if (fed[i].valid()) {
      used.push_back(i);
      used_feeds.push_back(fed[i]);
    }
  }
  fed = used_feeds;
  if (options_.optimizer.level > 0) {
    MG_ASSIGN_OR_RETURN(graph,
                        Optimize(graph, options_.optimizer, keep, options_.evaluate, &mapping));
    apply();
  }

  PartitionRequest request;
  request.feeds = fed;
  request.fetches = distinct;
  request.client = worker_->devices().front().name;
  MG_ASSIGN_OR_RETURN(PartitionedGraph parts, PartitionGraph(graph, request));
  std::vector<std::vector<int32_t>> edges(signature.feeds.size());
  for (size_t i = 0; i < used.size(); ++i) edges[used[i]] = parts.feed_edges[i];
  parts.feed_edges = std::move(edges);
  return parts;
}

Result<PartitionedGraph> Master::PartitionFor(const Signature& signature) {
  MutexLock lock(mutex_);
  std::vector<int> fetch_index, fetch_of_feed;
  std::vector<PreparedStep::FeedInfo> feeds;
  return Cut(signature, &fetch_index, &fetch_of_feed, &feeds);
}

int Master::PeerOf(const std::string& task) const {
  if (task == worker_->task()) return kSelf;
  const auto& tasks = cluster_->tasks();
  const auto it =
      std::find_if(tasks.begin(), tasks.end(), [&](const RemoteTask& t) { return t.task == task; });
  MG_CHECK(it != tasks.end());
  return static_cast<int>(it - tasks.begin());
}

Result<std::shared_ptr<PreparedStep>> Master::Prepare(const Signature& signature) {
  MutexLock lock(mutex_);
  if (auto it = prepared_.find(signature); it != prepared_.end()) {
    it->second.used = ++uses_;
    return it->second.step;
  }
  if (signature.fetches.empty() && signature.targets.empty()) {
    return InvalidArgument("Must specify at least one target to fetch or execute.");
  }
  auto step = std::make_shared<PreparedStep>();
  step->session = session_;
  MG_ASSIGN_OR_RETURN(PartitionedGraph cut,
                      Cut(signature, &step->fetch_index, &step->fetch_of_feed, &step->feeds));
  step->fetch_of_edge.assign(cut.edges.size(), -1);
  step->distinct_fetches = static_cast<int>(cut.fetch_edges.size());
  for (size_t i = 0; i < cut.fetch_edges.size(); ++i) {
    step->fetch_of_edge[static_cast<size_t>(cut.fetch_edges[i])] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < step->feeds.size(); ++i) {
    for (int32_t edge : cut.feed_edges[i]) {
      step->feeds[i].routes.emplace_back(PeerOf(cut.edges[static_cast<size_t>(edge)].to.TaskName()),
                                         edge);
    }
  }
  if (Status status = Register(std::move(cut.partitions), step.get()); !status.ok()) {
    Deregister(*step);
    return status;
  }
  prepared_.emplace(signature, Entry{step, ++uses_});
  DropIdle();
  return step;
}

Status Master::Register(std::vector<Partition> partitions, PreparedStep* step) {
  std::vector<std::pair<int, std::string>> requests;
  for (Partition& partition : partitions) {
    const int peer = PeerOf(partition.task.TaskName());
    if (peer == kSelf) {
      MG_ASSIGN_OR_RETURN(const uint32_t handle,
                          worker_->RegisterGraph(session_, std::move(partition.graph)));
      step->parts.push_back({kSelf, handle});
      continue;
    }
    wire::RegisterGraphRequest request;
    request.set_session(session_);
    request.set_graph_def(SerializeGraph(partition.graph));
    requests.emplace_back(peer, request.SerializeAsString());
  }
  if (requests.empty()) return Status();
  std::vector<int> peers;
  for (const auto& [peer, bytes] : requests) peers.push_back(peer);
  const std::vector<Result<std::string>> responses =
      cluster_->Call("RegisterGraph", std::move(requests), kRegisterTimeout);
  Status result;
  for (size_t i = 0; i < responses.size(); ++i) {
    wire::RegisterGraphResponse response;
    if (!responses[i].ok()) {
      result.Update(responses[i].status());
    } else if (!response.ParseFromString(responses[i].value())) {
      result.Update(Internal("malformed answer to RegisterGraph from " +
                             cluster_->tasks()[static_cast<size_t>(peers[i])].task));
    } else {
      step->parts.push_back({peers[i], response.handle()});
    }
  }
  return result;
}

void Master::Deregister(const PreparedStep& step) {
  for (const PreparedStep::Part& part : step.parts) {
    if (part.peer == kSelf) {
      (void)worker_->DeregisterGraph(session_, part.handle);
      continue;
    }
    wire::DeregisterGraphRequest request;
    request.set_session(session_);
    request.set_handle(part.handle);
    // No answer is awaited: a task that does not get the message drops the graph with the session.
    cluster_->Notify("DeregisterGraph", part.peer, request.SerializeAsString(), kDeregisterTimeout);
  }
}

void Master::DropIdle() {
  // New references are handed out under the mutex only: a step that is idle now stays idle.
  std::vector<std::map<Signature, Entry>::iterator> idle;
  for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
    if (it->second.step.use_count() == 1) idle.push_back(it);
  }
  if (idle.size() <= kIdleSignatures) return;
  const size_t drop = idle.size() - kIdleSignatures;
  std::nth_element(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(drop - 1), idle.end(),
                   [](const auto& a, const auto& b) { return a->second.used < b->second.used; });
  for (size_t i = 0; i < drop; ++i) {
    Deregister(*idle[i]->second.step);
    prepared_.erase(idle[i]);
  }
}

Result<DeviceName> Master::DeviceOf(const std::string& node) const {
  MutexLock lock(mutex_);
  const NodeId id = placed_ == nullptr ? -1 : placed_->Find(node);
  if (id < 0) return NotFound("node '" + node + "' is not placed yet");
  return placed_->device(id);
}

}  // namespace monograph
