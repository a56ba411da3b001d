// Sessions of a worker: opening, closing, and registering graphs. CreateSession makes the session's
// transport, ConnectSession its peers. RegisterGraph inlines function calls, moves nodes without a
// kernel on their GPU to the CPU, rewrites the graph for the kernels of this task, compiles it, and
// looks up the peer of each edge that leaves. CloseSession lets collectives end, aborts the running
// steps, waits for them until the deadline, and closes the transport; if a kernel still runs then,
// what it uses is kept.
#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/pool_allocator.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/plugin.h"
#include "executor/plan/task_kernels.h"
#include "executor/worker/impl.h"
#include "graph/function.h"
#include "graph/partial_eval.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

// Members of other sessions here may still get parts from others by a session that closes. It waits
// so long for such a part to begin.
constexpr std::chrono::milliseconds kLastArrivals{1000};
constexpr std::chrono::milliseconds kLookForArrivals{5};
// A worker that ends waits so long for kernels of all its sessions.
constexpr std::chrono::seconds kLastKernels{10};
// And of each of them so long for parts of collectives.
constexpr std::chrono::milliseconds kLastParts{1000};

// Finds the peers that each edge goes to or comes from.
Status RouteEdges(const WorkerSession& session, const std::string& self, RegisteredGraph* graph) {
  std::set<int> peers;
  const auto find = [&](const EdgeInfo& edge, const std::string& name,
                        const char* way) -> Result<int16_t> {
    MG_ASSIGN_OR_RETURN(const DeviceName device, DeviceName::Parse(name));
    const std::string task = device.TaskName();
    if (task == self) return int16_t{kSelf};
    const SessionPeer* peer = session.PeerOf(task);
    if (peer == nullptr) {
      return InvalidArgument("'" + edge.name + "' " + way + " " + task +
                             ", which is not in the session");
    }
    peers.insert(session.IndexOf(*peer));
    return static_cast<int16_t>(session.IndexOf(*peer));
  };
  for (const EdgeInfo& edge : graph->plan->recv_edges()) {
    MG_RETURN_IF_ERROR(find(edge, edge.send_device, "comes from").status());
  }
  for (const EdgeInfo& edge : graph->plan->send_edges()) {
    MG_ASSIGN_OR_RETURN(const int16_t index, find(edge, edge.recv_device, "goes to"));
    const auto id = static_cast<size_t>(edge.id);
    if (graph->edge_peer.size() <= id) graph->edge_peer.resize(id + 1, kSelf);
    graph->edge_peer[id] = index;
  }
  graph->peers.assign(peers.begin(), peers.end());
  return Status();
}

}  // namespace

Status Worker::Impl::Start() {
  crash_listener_.emplace([this](const std::string& computed) { Crashes(computed); });
  pools_ = std::make_unique<ThreadPools>(options_.inter_op_parallelism_threads,
                                         options_.intra_op_parallelism_threads);
  MG_ASSIGN_OR_RETURN(devices_, MakeCpuDevices(options_.task, options_.cpu_devices));
  MG_ASSIGN_OR_RETURN(auto gpus, MakeCudaDevices(options_.task, options_.gpu));
  if (!gpus.empty()) gpu_kernels_ = CudaKernels();
  for (auto& gpu : gpus) devices_.push_back(std::move(gpu));
  collectives_ = std::make_unique<CollectiveManager>(this, pools_.get());
  for (const auto& device : devices_) {
    device_infos_.push_back(device->info());
    device_infos_.back().incarnation = incarnation_;
  }
  return Status();
}

Worker::Impl::~Impl() {
  Shutdown();  // again does nothing
  for (const auto& device : devices_) {
    if (GpuDevice* const gpu = device->gpu()) gpu->End();
  }
}

void Worker::Impl::Shutdown() {
  crash_listener_.reset();
  EndWatch();
  std::vector<uint64_t> ids;
  {
    ReaderLock lock(sessions_mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  const auto until = Clock::now() + kLastKernels;
  for (uint64_t id : ids) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const Status closed =
        CloseSession(id, std::max(left, std::chrono::milliseconds(0)), kLastParts, Status());
    if (!closed.ok()) LogWarning(task_ + ": " + closed.ToString());
  }
  if (collectives_ != nullptr) collectives_->Stop();
}

Result<std::string> Worker::Impl::CreateSession(uint64_t id, StepClient* client,
                                                bool tensorflow_random_streams,
                                                const std::string& container) {
  auto session = std::make_shared<WorkerSession>();
  session->id = id;
  session->client = client;
  session->container = container;
  if (tensorflow_random_streams) session->random_streams = std::make_unique<RandomStreams>();
  // Clients of a daemon share its memory.
  session->memory = std::make_shared<MemoryHolder>("session " + std::to_string(id),
                                                   /*shares=*/client == nullptr);
  std::string address;
  if (options_.make_transport) {
    session->port = MakePort(session.get());
    MG_ASSIGN_OR_RETURN(session->transport, options_.make_transport(session->port.get()));
    address = session->transport->address();
    session->host = session->transport->HostOf(address);
  }
  bool added;
  {
    MutexLock lock(sessions_mutex_);
    added = sessions_.emplace(id, session).second;
  }
  if (added) return address;
  if (session->transport != nullptr) {
    session->transport->Close();
    session->transport->Join();
  }
  return AlreadyExists("session " + std::to_string(id) + " exists already at " + task_);
}

Status Worker::Impl::ConnectSession(uint64_t id, const std::vector<PeerSpec>& peers,
                                    int client_peer, int self_index) {
  std::shared_ptr<WorkerSession> session;
  {
    ReaderLock lock(sessions_mutex_);
    if (const auto it = sessions_.find(id); it != sessions_.end()) session = it->second;
  }
  if (session == nullptr) return UnknownSession(id);
  using State = WorkerSession::State;
  State state = State::kCreated;
  if (!session->state.compare_exchange_strong(state, State::kConnecting)) {
    return FailedPrecondition("session " + std::to_string(id) + " at " + task_ +
                              (state == State::kClosed ? " is closed" : " was connected before"));
  }
  if (!peers.empty() && session->transport == nullptr)
    return FailedPrecondition(
        task_ + " has no data plane, so it cannot take part in a session with other tasks");
  session->client_peer = client_peer;
  session->self_index = self_index;
  session->leaving = std::make_unique<std::atomic<int>[]>(peers.size());
  for (const DeviceInfo& info : device_infos_) {
    if (!info.link.empty()) session->links[info.name.ToString()] = info.link;
  }
  for (const PeerSpec& spec : peers) {
    session->links.insert(spec.links.begin(), spec.links.end());
    Result<PeerId> connected = session->transport->Connect(spec.transport_address, spec.task);
    if (!connected.ok())
      return connected.status().WithContext("connecting " + task_ + " to " + spec.task);
    session->peers.push_back({spec.task, spec.incarnation, connected.value(),
                              session->transport->HostOf(spec.transport_address)});
  }
  state = State::kConnecting;
  if (!session->state.compare_exchange_strong(state, State::kConnected))
    return Cancelled("session " + std::to_string(id) + " was closed meanwhile at " + task_);
  return Status();
}

Status Worker::Impl::CloseSession(uint64_t id, std::chrono::milliseconds kernels,
                                  std::chrono::milliseconds parts, const Status& why) {
  std::shared_ptr<WorkerSession> session = FindSession(id);
  const auto parts_until = Clock::now() + parts;
  // Waits until members of other clients have fetched what collectives of this session send.
  const auto send_last = [&] {
    MutexLock lock(session->mutex);
    session->idle.WaitUntil(session->mutex, parts_until, [&]() MG_REQUIRES(session->mutex) {
      return session->collective_sends == 0;
    });
  };
  if (session != nullptr) send_last();
  collectives_->SessionClosed(id, why);  // now, while peers can still be told
  {
    MutexLock lock(sessions_mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end())
      return NotFound("session " + std::to_string(id) + " is not known at " + task_);
    session = it->second;
    sessions_.erase(it);
    closing_.push_back(session);
  }
  session->state = WorkerSession::State::kClosed;
  std::vector<std::shared_ptr<Step>> running;
  {
    MutexLock lock(session->mutex);
    session->closed = true;
    session->memory->Retire();
    for (StepSlot& slot : session->slots) {
      slot.Drop();
      if (slot.state == StepSlot::kRunning) running.push_back(slot.running);
    }
  }
  for (const auto& step : running) {
    step->Abort(
        Cancelled("Step was cancelled by an explicit call to Session::Close().").AsDerived());
  }
  running.clear();
  bool ended;
  {
    MutexLock lock(session->mutex);
    ended = session->idle.WaitFor(session->mutex, kernels, [&]() MG_REQUIRES(session->mutex) {
      return session->running == 0 && session->landing == 0;
    });
  }
  if (ended) {
    // Before the transport, whose end takes time where peers are cut off: what the graphs' kernels
    // stand for, such as a replica's presence, ends now.
    std::unordered_map<uint32_t, std::shared_ptr<RegisteredGraph>> graphs;
    MutexLock lock(session->mutex);
    graphs.swap(session->graphs);
  }
  if (!session->container.empty()) resources_.Clear({session->container});
  collectives_->SessionClosed(id, why);  // again, for what its steps began meanwhile
  send_last();
  CloseTransport(session, parts_until);
  collectives_->SessionGone(id);
  const std::string left = ended ? "" : DescribeRunning(*session);
  MutexLock lock(session->mutex);
  if (!ended && session->running > 0) {
    // The kernel may end later (EndStep): what it uses stays until then. The client hears no more
    // of it.
    session->client = nullptr;
    session->abandoned = true;
    ++left_;
    return DeadlineExceeded("a kernel of session " + std::to_string(id) + " still runs at " +
                            task_ + (left.empty() ? "" : ", " + left) +
                            "; it is left to end without its session");
  }
  session->graphs.clear();
  return Status();
}

void Worker::Impl::CloseTransport(const std::shared_ptr<WorkerSession>& session,
                                  Clock::time_point parts_until) {
  TransportStats moved;
  if (session->transport != nullptr) {
    // Members of other sessions here still get parts from members that this session drives.
    const auto begun_until = std::min(Clock::now() + kLastArrivals, parts_until);
    const auto waits = [&] {
      if (!session->brought_collectives.load(std::memory_order_relaxed)) return false;
      const bool awaited = collectives_->AwaitsPartsOf(session->id);
      if (!awaited && !collectives_->AwaitsOthers()) return false;
      const bool arrives = session->arriving.load(std::memory_order_relaxed) > 0;
      return Clock::now() < (awaited || arrives ? parts_until : begun_until);
    };
    while (waits()) std::this_thread::sleep_for(kLookForArrivals);
    session->transport->Close();
    session->transport->Join();
    moved = session->transport->stats();
  }
  MutexLock lock(sessions_mutex_);
  moved_before_ += moved;
  std::erase(closing_, session);
}

Status Worker::Impl::UnknownSession(uint64_t id) const {
  return Aborted("Session " + std::to_string(id) + " is not known at " + task_ +
                 "; the task may have restarted. Connect again");
}

Result<std::shared_ptr<WorkerSession>> Worker::Impl::RequireSession(uint64_t id) const {
  std::shared_ptr<WorkerSession> session = FindSession(id);
  if (session == nullptr) return UnknownSession(id);
  return session;
}

namespace {

bool UsesResources(const Graph& graph, NodeId id) {
  const auto inputs = graph.inputs(id);
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](Endpoint input) { return graph.dtype(input) == DT_RESOURCE; });
}

// Nodes in the body of a function may leave their device to the call (`inherited`). If the call is
// on a GPU, such a node stays there if it has a kernel for GPUs or uses a resource, and otherwise
// goes to the CPU of the same task. What one of them makes and another reads as a variant, which
// cannot move, goes with it, as far as it may.
void LeaveToHost(std::span<const NodeId> inherited, const PlanOptions& options, Graph* graph) {
  const auto may_leave = [&](NodeId id) {
    const DeviceName device = graph->device(id), host = HostOf(device);
    if (device == host || !graph->op(id).known() || UsesResources(*graph, id)) return false;
    return graph->op(id).flow() != FlowOp::kNone ||
           FindTaskKernel(*graph, id, host.type, options).ok();
  };
  const std::set<NodeId> inside(inherited.begin(), inherited.end());
  std::map<NodeId, std::vector<NodeId>> shares_variant;
  std::set<NodeId> leave;
  std::vector<NodeId> left;
  for (const NodeId id : inside) {
    for (const Endpoint from : graph->inputs(id)) {
      if (graph->dtype(from) != DT_VARIANT || !inside.contains(from.node)) continue;
      shares_variant[id].push_back(from.node);
      shares_variant[from.node].push_back(id);
    }
    if (may_leave(id) && graph->op(id).flow() == FlowOp::kNone &&
        !FindTaskKernel(*graph, id, graph->device(id).type, options).ok())
      left.push_back(id);
  }
  const NodeId first = left.empty() ? -1 : left.front();
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    if (!leave.insert(id).second) continue;
    for (const NodeId other : shares_variant[id]) {
      if (may_leave(other)) left.push_back(other);
    }
  }
  for (const NodeId id : leave)
    graph->SetDevice(id, graph->InternDevice(HostOf(graph->device(id))));
  const size_t count = leave.size();
  if (count == 0) return;
  LogInfo("node " + graph->NodeText(first) + " has no kernel for GPUs and is computed on " +
          graph->device(first).ToString() +
          (count == 1 ? ""
                      : ", as are " + std::to_string(count - 1) +
                            " others without one or with variants that cannot move"));
}

// Constants belong to the session whose graph brought them.
void HoldConstants(const Graph& graph, const std::shared_ptr<MemoryHolder>& holder) {
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!graph.is(id, kConstOp)) continue;
    const auto* const value = std::get_if<Tensor>(graph.attrs(id).Find("value"));
    if (value != nullptr && value->bytes() > PoolAllocator::kLarge)
      HostPool().SetHolder(value->raw(), holder);
  }
}

}  // namespace

Result<uint32_t> Worker::Impl::RegisterGraph(uint64_t id, Graph graph) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<WorkerSession> session, RequireSession(id));
  auto registered = std::make_shared<RegisteredGraph>();
  registered->worker = this;
  registered->session = session.get();
  registered->collectives = std::make_unique<const CollectiveHome>(collectives_.get(), id);
  PlanOptions plan_options;
  plan_options.kernels = options_.kernels;
  plan_options.gpu_kernels = gpu_kernels_;
  for (const auto& device : devices_) plan_options.devices.push_back(device.get());
  plan_options.pools = pools_.get();
  plan_options.resources = &resources_;
  plan_options.collectives = registered->collectives.get();
  plan_options.random_streams = session->random_streams.get();
  plan_options.session_tensors = session->tensors;
  plan_options.links = &session->links;
  plan_options.takes_gpu_memory = [&session](const std::string& name) {
    const Result<DeviceName> device = DeviceName::Parse(name);
    const SessionPeer* const peer = device.ok() ? session->PeerOf(device->TaskName()) : nullptr;
    return peer != nullptr && session->transport->TakesGpuMemory(peer->id);
  };
  plan_options.takes_parts = [this, &session](const std::string& name) {
    const Result<DeviceName> device = DeviceName::Parse(name);
    const SessionPeer* const peer = device.ok() ? session->PeerOf(device->TaskName()) : nullptr;
    return peer != nullptr && peer->task != task_ &&
           session->IndexOf(*peer) != session->client_peer;
  };
  plan_options.send_part = [graph = registered.get()](uint64_t step, int32_t edge,
                                                      const Tensor& tensor, size_t offset) {
    graph->worker->SendPart(*graph->session, graph->edge_peer[static_cast<size_t>(edge)], step,
                            edge, tensor, offset);
  };
  plan_options.session = id;
  plan_options.memory = session->memory;
  std::vector<NodeId> inherited;
  MG_ASSIGN_OR_RETURN(graph, InlineFunctions(graph, {}, nullptr, &inherited));
  HoldConstants(graph, session->memory);
  const MemoryHolder::Scope memory(session->memory.get());
  LeaveToHost(inherited, plan_options, &graph);
  if (options_.rewrite) {
    MG_ASSIGN_OR_RETURN(graph, options_.rewrite(std::move(graph)));
  }
  MG_ASSIGN_OR_RETURN(registered->plan, CompilePlan(graph, plan_options));
  MG_RETURN_IF_ERROR(RouteEdges(*session, task_, registered.get()));
  MutexLock lock(session->mutex);
  if (session->closed) return Aborted("session " + std::to_string(id) + " was closed meanwhile");
  session->graphs.emplace(++session->last_handle, std::move(registered));
  return session->last_handle;
}

Status Worker::Impl::DeregisterGraph(uint64_t id, uint32_t handle) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<WorkerSession> session, RequireSession(id));
  std::shared_ptr<RegisteredGraph> graph;  // freed outside the lock; steps of it may still run
  MutexLock lock(session->mutex);
  auto it = session->graphs.find(handle);
  if (it == session->graphs.end())
    return NotFound("graph handle " + std::to_string(handle) + " is not known at " + task_);
  graph = std::move(it->second);
  session->graphs.erase(it);
  return Status();
}

std::vector<std::string> Worker::Impl::TasksOfJob(uint64_t id, std::string_view job) const {
  std::vector<DeviceName> found;
  const auto add = [&](const DeviceName& task) {
    if (task.job == job) found.push_back(task);
  };
  add(options_.task);
  if (const std::shared_ptr<WorkerSession> session = FindSession(id)) {
    for (const SessionPeer& peer : session->peers) {
      if (const Result<DeviceName> task = DeviceName::Parse(peer.task); task.ok()) add(*task);
    }
  }
  std::sort(found.begin(), found.end(), [](const DeviceName& a, const DeviceName& b) {
    return std::pair(a.replica, a.task) < std::pair(b.replica, b.task);
  });
  std::vector<std::string> names;
  for (const DeviceName& task : found) names.push_back(task.TaskName());
  return names;
}

std::vector<uint64_t> Worker::Impl::HostsOf(uint64_t id,
                                            const std::vector<std::string>& tasks) const {
  std::vector<uint64_t> hosts(tasks.size());
  const std::shared_ptr<WorkerSession> session = FindSession(id);
  if (session == nullptr) return hosts;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const SessionPeer* peer = session->PeerOf(tasks[i]);
    if (peer != nullptr) hosts[i] = peer->host;
    if (tasks[i] == task_) hosts[i] = session->host;
  }
  return hosts;
}

std::string Worker::Impl::LinkOf(uint64_t id, const std::string& device) const {
  const std::shared_ptr<WorkerSession> session = FindSession(id);
  if (session == nullptr) return "";
  const auto link = session->links.find(device);
  return link == session->links.end() ? "" : link->second;
}

}  // namespace monograph
