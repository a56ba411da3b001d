// Preparing a signature: resolve its names, place the whole graph (once, again only if it has
// grown), prune to what the signature needs, replace variables by reference, optimise, find the
// joint collectives, partition by device, and register the partitions with their tasks. CutFor is
// all but the last; each pass takes a value and gives one (client/master/). The result is kept by
// signature, so that a later Run of the same feeds and fetches only looks it up.
#include "client/master.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "client/master/placed_graph.h"
#include "client/master/request.h"
#include "executor/worker/worker.pb.h"
#include "graph/graph_def.h"
#include "graph/joint_collectives.h"
#include "graph/lost_updates.h"
#include "graph/op_source.h"
#include "ops/collective/collective.h"

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

Master::~Master() = default;

// A signature's partitions, and what it asks of the placed graph.
struct Master::Cut {
  std::vector<PreparedStep::FeedInfo> feeds;  // without routes
  std::vector<PreparedStep::Value> values;
  PartitionedGraph parts;
};

namespace {

std::vector<PreparedStep::FeedInfo> DescribeFeeds(const std::vector<Endpoint>& feeds,
                                                  const Graph& graph) {
  std::vector<PreparedStep::FeedInfo> infos;
  for (const Endpoint feed : feeds)
    infos.push_back({graph.TensorName(feed), graph.dtype(feed), graph.shape(feed), {}});
  return infos;
}

// True unless no node of the graph holds a tensor that it was given after it has run, as variables
// and queues do. Of what has state, only these are known to let go of what they are given.
bool MayKeepInputs(const Graph& graph) {
  static constexpr std::string_view kLetGo[] = {"ResourceApply",   "ResourceSparseApply",
                                                "ResourceScatter", "AssignAdd",
                                                "AssignSub",       "Random"};
  const auto keeps = [&graph](NodeId id) {
    const OpDef& op = graph.op(id);
    if (IsBorrowed(op)) return true;
    if (!op.stateful() || op.reads_only()) return op.name() == "Assign";
    if (std::ranges::any_of(kLetGo, [&](auto start) { return op.name().starts_with(start); }))
      return false;
    return std::ranges::any_of(graph.inputs(id), [&graph](const Endpoint& input) {
      return graph.dtype(input) != DT_RESOURCE;
    });
  };
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (keeps(id)) return true;
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<PreparedStep>> Master::Prepare(const Signature& signature, Time until) {
  const auto find = [&]() MG_REQUIRES(mutex_) -> std::shared_ptr<PreparedStep> {
    const auto it = prepared_.find(signature);
    if (it == prepared_.end()) return nullptr;
    it->second.used = ++uses_;
    return it->second.step;
  };
  MutexLock lock(mutex_);
  if (auto step = find()) return step;
  const auto idle = [this]() MG_REQUIRES(mutex_) { return !registering_; };
  if (until == Time::max()) {
    registered_.Wait(mutex_, idle);
  } else if (!registered_.WaitUntil(mutex_, until, idle)) {
    return DeadlineExceeded("the time of the step was over while another graph was registered");
  }
  if (auto step = find()) return step;
  if (signature.fetches.empty() && signature.targets.empty())
    return InvalidArgument("Must specify at least one target to fetch or execute.");
  MG_ASSIGN_OR_RETURN(Cut cut, CutFor(signature));
  registering_ = true;
  lock.Unlock();
  Result<std::shared_ptr<PreparedStep>> step = Register(std::move(cut), until);
  lock.Lock();
  registering_ = false;
  registered_.NotifyAll();
  if (!step.ok()) return step;
  prepared_.emplace(signature, Entry{*step, ++uses_});
  DropIdle();
  return step;
}

Result<PartitionedGraph> Master::PartitionFor(const Signature& signature) {
  MutexLock lock(mutex_);
  MG_ASSIGN_OR_RETURN(Cut cut, CutFor(signature));
  return std::move(cut.parts);
}

Result<Master::Cut> Master::CutFor(const Signature& signature) {
  MG_ASSIGN_OR_RETURN(const ResolvedSignature resolved, Resolve(graph_, signature));
  MG_ASSIGN_OR_RETURN(const PlacedGraph* const placed, PlaceGraph());
  PlacedRequest request = FindIn(*placed, graph_, resolved);
  MG_ASSIGN_OR_RETURN(StepGraph pruned, PruneTo(request.step, placed->graph()));
  MG_ASSIGN_OR_RETURN(StepGraph by_handle, WithHandles(std::move(pruned)));
  MG_ASSIGN_OR_RETURN(StepGraph step,
                      Optimised(std::move(by_handle), options_.optimizer, options_.evaluate));
  MG_RETURN_IF_ERROR(OrderLostUpdates(&step.graph));
  MG_RETURN_IF_ERROR(FindJointCollectives(&step.graph, step.request.feeds));
  MG_ASSIGN_OR_RETURN(PartitionedGraph parts,
                      PartitionGraph(step.graph, {.feeds = step.request.feeds,
                                                  .fetches = step.request.fetches,
                                                  .client = worker_->devices().front().name}));
  return Cut{DescribeFeeds(request.step.feeds, placed->graph()), std::move(request.values),
             std::move(parts)};
}

Result<const PlacedGraph*> Master::PlaceGraph() {
  if (placed_ != nullptr && placed_->Covers(graph_)) return placed_.get();
  MG_ASSIGN_OR_RETURN(PlacedGraph placed,
                      PlacedGraph::Make(graph_, placed_.get(), devices_, options_.place));
  const Graph& graph = placed.graph();
  if (options_.log_device_placement != PlacementLog::kNone &&
      (placed_ == nullptr || graph.num_nodes() > placed_->graph().num_nodes())) {
    options_.placement_sink(FormatPlacement(graph, options_.log_device_placement, placed.notes()));
  }
  placed_ = std::make_unique<PlacedGraph>(std::move(placed));
  return placed_.get();
}

Result<std::shared_ptr<PreparedStep>> Master::Register(Cut cut, Time until) {
  auto step = std::make_shared<PreparedStep>();
  step->session = session_;
  step->values = std::move(cut.values);
  step->returns_feeds = std::any_of(step->values.begin(), step->values.end(),
                                    [](const auto& value) { return value.feed >= 0; });
  step->feeds = std::move(cut.feeds);
  for (const Partition& part : cut.parts.partitions) {
    if (PeerOf(part.task.TaskName()) == kSelf) step->keeps_feeds = MayKeepInputs(part.graph);
    step->has_collectives = step->has_collectives || HasCollectives(part.graph);
  }
  for (size_t i = 0; i < step->feeds.size(); ++i) {
    for (const int32_t edge : cut.parts.feed_edges[i]) {
      const DeviceName& to = cut.parts.edges[static_cast<size_t>(edge)].to;
      step->feeds[i].routes.emplace_back(PeerOf(to.TaskName()), edge);
    }
  }
  step->fetches = static_cast<int>(cut.parts.fetch_edges.size());
  step->fetch_of_edge.assign(cut.parts.edges.size(), PreparedStep::kNone);
  for (int fetch = 0; fetch < step->fetches; ++fetch) {
    const int32_t edge = cut.parts.fetch_edges[static_cast<size_t>(fetch)];
    step->fetch_of_edge[static_cast<size_t>(edge)] = fetch;
    step->fetch_from.push_back(PeerOf(cut.parts.edges[static_cast<size_t>(edge)].from.TaskName()));
  }
  std::map<int, std::set<int>> awaits;  // by the part's peer
  for (const CrossEdge& edge : cut.parts.edges)
    awaits[PeerOf(edge.to.TaskName())].insert(PeerOf(edge.from.TaskName()));
  if (Status status = RegisterParts(std::move(cut.parts.partitions), until, step.get());
      !status.ok()) {
    Deregister(*step);
    return status;
  }
  for (PreparedStep::Part& part : step->parts) {
    const std::set<int>& from = awaits[part.peer];
    std::copy_if(from.begin(), from.end(), std::back_inserter(part.awaits),
                 [&](int peer) { return peer != part.peer; });
  }
  return step;
}

int Master::PeerOf(const std::string& task) const {
  if (task == worker_->task()) return kSelf;
  const auto& tasks = cluster_->tasks();
  const auto it =
      std::find_if(tasks.begin(), tasks.end(), [&](const RemoteTask& t) { return t.task == task; });
  MG_CHECK(it != tasks.end());
  return static_cast<int>(it - tasks.begin());
}

Status Master::RegisterParts(std::vector<Partition> partitions, Time until, PreparedStep* step) {
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
  std::chrono::milliseconds timeout = kRegisterTimeout;
  const auto now = std::chrono::steady_clock::now();
  const bool of_step = until < now + timeout;  // the user's time, not one that shows a loss
  if (of_step) {
    timeout = std::max(std::chrono::ceil<std::chrono::milliseconds>(until - now),
                       std::chrono::milliseconds(1));
  }
  const std::vector<Result<std::string>> responses =
      cluster_->Call("RegisterGraph", std::move(requests), timeout);
  Status result;
  for (size_t i = 0; i < responses.size(); ++i) {
    wire::RegisterGraphResponse response;
    if (of_step && responses[i].status().code() == Code::kDeadlineExceeded) {
      result.Update(
          DeadlineExceeded("the time of the step was over while its graph was registered "
                           "at " +
                           cluster_->tasks()[static_cast<size_t>(peers[i])].task));
    } else if (!responses[i].ok()) {
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
  const NodeId id = placed_ == nullptr ? -1 : placed_->graph().Find(node);
  if (id < 0) return NotFound("node '" + node + "' is not placed yet");
  return placed_->graph().device(id);
}

}  // namespace monograph
