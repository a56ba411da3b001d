// Opening and closing a session. Start makes this process's worker, connects to the tasks, opens
// the session in two rounds over this process and all tasks (each makes its data plane, then each
// connects to all others), and starts the master. Close goes the other way: it
// fails the steps in flight, waits a grace period for them, closes the session at the tasks, and
// waits for calls of other threads before it destroys what they use.
#include <algorithm>
#include <cstdio>

#include "base/duration.h"
#include "base/log.h"
#include "base/printable.h"
#include "client/session/impl.h"
#include "client/session/lanes.h"
#include "executor/random_streams.h"
#include "executor/worker/worker.pb.h"
#include "graph/op_source.h"
#include "graph/references.h"
#include "ops/rewrites/rewrites.h"
#include "transport/control/host_port.h"

namespace monograph {
namespace {

// True if every task is on this machine.
bool OnLoopback(const ClusterSpec& cluster) {
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [task, address] : tasks) {
      if (Result<control::HostPort> parsed = control::ParseHostPort(address);
          !parsed.ok() || !control::IsLoopback(parsed->host))
        return false;
    }
  }
  return true;
}

// The ConnectSession request for task `self`; its peers are every other task and this client.
wire::ConnectSessionRequest ConnectRequest(uint64_t session, const std::vector<PeerSpec>& tasks,
                                           size_t self, const PeerSpec& client) {
  wire::ConnectSessionRequest request;
  request.set_session(session);
  auto add = [&request](const PeerSpec& spec) {
    wire::Peer* peer = request.add_peers();
    peer->set_task(spec.task);
    peer->set_transport_address(spec.transport_address);
    peer->set_incarnation(spec.incarnation);
    for (const auto& [device, link] : spec.links) (*peer->mutable_links())[device] = link;
  };
  for (size_t other = 0; other < tasks.size(); ++other) {
    if (other != self) add(tasks[other]);
  }
  request.set_client_peer(request.peers_size());
  add(client);
  request.set_self_index(static_cast<int>(self));
  return request;
}

// Of the answers of several tasks. What others say of a lost task only follows from its loss.
Status FirstFailure(std::span<const Result<std::string>> answers) {
  Status first;
  for (const Result<std::string>& answer : answers) {
    if (!answer.status().lost_task().empty()) return answer.status();
    first.Update(answer.status());
  }
  return first;
}

}  // namespace

Status Session::Impl::Start(const ClusterSpec* cluster) {
  MG_RETURN_IF_ERROR(StartWorker(cluster));
  MG_ASSIGN_OR_RETURN(
      std::string address,
      worker_->CreateSession(id_, this, options_.tensorflow_random_streams, options_.container));
  transport_ = worker_->transport(id_);
  std::vector<PeerSpec> peers;
  if (cluster != nullptr) {
    ClusterConnection::Options connect;
    connect.device_filters = options_.device_filters;
    connect.start_timeout = options_.start_timeout;
    connect.key = options_.key;
    connect.fingerprint = std::to_string(DefaultRegistries().ops.fingerprint());
    connect.on_lost = [this](int task, const Status& why) { OnTaskLost(task, why); };
    MG_ASSIGN_OR_RETURN(cluster_, ClusterConnection::Connect(*cluster, std::move(connect)));
    for (const RemoteTask& task : cluster_->tasks()) {
      PeerSpec peer{task.task, {}, task.incarnation};
      for (const DeviceInfo& device : task.devices) {
        if (!device.link.empty()) peer.links.emplace_back(device.name.ToString(), device.link);
      }
      peers.push_back(std::move(peer));
    }
  }
  {
    MutexLock lock(mutex_);
    lost_.resize(peers.size());
    for (size_t i = 0; i < peers.size(); ++i)
      lost_[i].Update(cluster_->status(static_cast<int>(i)));
  }
  if (cluster_ == nullptr) {
    MG_RETURN_IF_ERROR(worker_->ConnectSession(id_, {}, kSelf, 0));
  } else {
    MG_RETURN_IF_ERROR(OpenAtTasks(std::move(peers),
                                   {worker_->task(), std::move(address), worker_->incarnation()}));
  }
  StartMaster();
  return Status();
}

Status Session::Impl::StartWorker(const ClusterSpec* cluster) {
  Registries& registries = DefaultRegistries();
  WorkerOptions worker;
  worker.task = DeviceName::Parse(cluster == nullptr ? "/job:localhost/replica:0/task:0"
                                                     : "/job:client/replica:0/task:0")
                    .value();
  worker.ops = &registries.ops;
  worker.kernels = &registries.kernels;
  for (const auto& [type, count] : options_.device_count) {
    if (type == kCpu) {
      if (count < 1)
        return InvalidArgument("device_count[kCpu] is " + std::to_string(count) +
                               "; at least 1 is needed");
      worker.cpu_devices = count;
    } else if (type == kGpu) {
      options_.gpu.device_count = count;
    } else {
      return InvalidArgument("device_count has the unknown device type '" + type.ToString() +
                             "'; known are CPU and GPU");
    }
  }
  // The client of a cluster computes on its CPU: GPUs are for daemons.
  if (cluster == nullptr) worker.gpu = options_.gpu;
  worker.inter_op_parallelism_threads = options_.inter_op_parallelism_threads;
  worker.intra_op_parallelism_threads = options_.intra_op_parallelism_threads;
  worker.rewrite = RewriteForExecution;
  if (cluster != nullptr) {
    MG_ASSIGN_OR_RETURN(worker.make_transport,
                        ChooseTransport(options_.transport,
                                        {.loopback = OnLoopback(*cluster), .key = options_.key}));
  }
  MG_ASSIGN_OR_RETURN(worker_, Worker::Create(std::move(worker)));
  return Status();
}

Status Session::Impl::OpenAtTasks(std::vector<PeerSpec> peers, const PeerSpec& client) {
  wire::CreateSessionRequest create;
  create.set_session(id_);
  create.set_tensorflow_random_streams(options_.tensorflow_random_streams);
  create.set_container(options_.container);
  const std::vector<Result<std::string>> created =
      CallAll("CreateSession", create.SerializeAsString());
  MG_RETURN_IF_ERROR(FirstFailure(created));
  for (size_t task = 0; task < created.size(); ++task) {
    wire::CreateSessionResponse response;
    if (!response.ParseFromString(created[task].value()))
      return Internal("malformed answer to CreateSession from " + peers[task].task);
    peers[task].transport_address = response.transport_address();
  }
  MG_RETURN_IF_ERROR(worker_->ConnectSession(id_, peers, kSelf, 0));
  std::vector<std::pair<int, std::string>> requests;
  for (size_t self = 0; self < peers.size(); ++self) {
    requests.emplace_back(static_cast<int>(self),
                          ConnectRequest(id_, peers, self, client).SerializeAsString());
  }
  std::vector<std::string> addresses;
  for (const PeerSpec& peer : peers) addresses.push_back(peer.transport_address);
  addresses.push_back(client.transport_address);
  const std::vector<Result<std::string>> connected =
      cluster_->Call("ConnectSession", std::move(requests), kControlTimeout);
  MG_RETURN_IF_ERROR(FirstFailure(connected));
  std::vector<wire::ConnectSessionResponse> parsed(connected.size());
  for (size_t self = 0; self < connected.size(); ++self) {
    if (!parsed[self].ParseFromString(connected[self].value()))
      return Internal("malformed answer to ConnectSession from " + peers[self].task);
  }
  LogLanes(parsed);
  std::vector<bool> shares_memory;
  for (const std::string& way : worker_->DescribePeers(id_))
    shares_memory.push_back(way.starts_with("shm("));
  MutexLock lock(mutex_);
  shares_memory_ = std::move(shares_memory);
  addresses_ = std::move(addresses);
  return Status();
}

void Session::Impl::LogLanes(std::span<const wire::ConnectSessionResponse> of_tasks) const {
  // All tasks, then this process. A task is not among its own peers, so the index of each later
  // task among them is one less than here.
  std::vector<DeviceName> names;
  for (const RemoteTask& task : cluster_->tasks()) names.push_back(task.name);
  names.push_back(DeviceName::Parse(worker_->task()).value());
  std::vector<LaneUse> uses;
  for (size_t self = 0; self < of_tasks.size(); ++self) {
    for (const wire::Lanes& lanes : of_tasks[self].lanes()) {
      for (const int32_t peer : lanes.peers()) {
        const size_t to = static_cast<size_t>(peer) + (static_cast<size_t>(peer) >= self ? 1 : 0);
        if (to < names.size()) uses.push_back({names[self], names[to], lanes.way()});
      }
    }
  }
  const std::vector<std::string> own = worker_->DescribePeers(id_);
  for (size_t to = 0; to < own.size(); ++to) uses.push_back({names.back(), names[to], own[to]});
  for (const std::string& line : DescribeLanes(uses)) LogInfo(line);
}

void Session::Impl::StartMaster() {
  Master::Options master;
  master.log_device_placement = options_.log_device_placement;
  master.placement_sink =
      options_.placement_sink ? options_.placement_sink : [](const std::string& text) {
        std::fputs(Printable(text).c_str(), stdout);
        std::fflush(stdout);
      };
  master.place.allow_soft_placement = options_.allow_soft_placement;
  master.optimizer = options_.optimizer;
  // Only the process that has a GPU knows which kernels the GPU has: this process knows its own,
  // and the tasks have listed theirs when the client connected.
  if (const KernelRegistry* own = worker_->gpu_kernels(); own != nullptr) {
    for (const KernelRegistry::Entry* entry : own->All()) gpu_kernels_.Add(entry->def, nullptr);
  } else if (cluster_ != nullptr) {
    // The daemons of a cluster are of one build, so the first list holds for all.
    for (const RemoteTask& task : cluster_->tasks()) {
      for (const KernelDef& def : task.gpu_kernels) gpu_kernels_.Add(def, nullptr);
      if (!task.gpu_kernels.empty()) break;
    }
  }
  master.place.has_kernel = [this, &kernels = DefaultRegistries().kernels](
                                const Graph& graph, NodeId node, DeviceType type) {
    const HandleForm* form = graph.op(node).handle_form();  // what will run
    const std::string& op = form != nullptr ? form->op : graph.op(node).name();
    if (type != kCpu && options_.tensorflow_random_streams && HasSeeds(graph.attrs(node)))
      return false;
    if (IsBorrowed(graph.op(node))) return type == kCpu;
    if (gpu_kernels_.HasOp(op, type)) {
      if (form == nullptr) return gpu_kernels_.Find(op, type, graph.attrs(node)).ok();
      return gpu_kernels_.Find(op, type, HandleFormAttrs(graph, node)).ok();
    }
    // An op without kernels, as structural ones are, is not refused here: it fails in the step that
    // needs it.
    return kernels.HasOp(op, type) || !kernels.HasOp(op);
  };
  master.place.kernel_remark = [this](const Graph& graph, NodeId node) {
    return options_.tensorflow_random_streams && HasSeeds(graph.attrs(node))
               ? std::string(kStreamsNeedCpus)
               : std::string();
  };
  master.evaluate = evaluator_.evaluator();
  master_ = std::make_unique<Master>(graph_, id_, worker_.get(), cluster_.get(), std::move(master));
  devices_ = master_->devices();
}

std::vector<Result<std::string>> Session::Impl::CallAll(std::string_view method,
                                                        const std::string& request, bool living,
                                                        std::chrono::seconds timeout) {
  std::vector<std::pair<int, std::string>> requests;
  const int tasks = cluster_ == nullptr ? 0 : static_cast<int>(cluster_->tasks().size());
  for (int task = 0; task < tasks; ++task) {
    if (!living || cluster_->status(task).ok()) requests.emplace_back(task, request);
  }
  if (requests.empty()) return {};
  return cluster_->Call(method, std::move(requests), timeout);
}

Status Session::Impl::CloseAtTasks() {
  wire::CloseSessionRequest request;
  request.set_session(id_);
  Status result;
  for (const Result<std::string>& response :
       CallAll("CloseSession", request.SerializeAsString(), true, kCloseTimeout)) {
    // A task that is gone has nothing left to free.
    if (!response.ok() && response.status().code() != Code::kUnavailable)
      result.Update(response.status());
  }
  return result;
}

Status Session::Impl::Close() {
  std::vector<std::pair<uint64_t, std::vector<int>>> stops;
  const Status closing = Cancelled("Step was cancelled by an explicit call to Session::Close().");
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return Status();
    closing_ = true;
    for (StepInFlight* const flight : steps_.All())
      stops.emplace_back(flight->steps.last, FailLocked(*flight, closing));
  }
  slot_free_.NotifyAll();
  watch_.NotifyAll();
  if (watcher_.joinable()) watcher_.join();
  for (const auto& [step, peers] : stops) Abort(peers, step, closing);
  Status result;
  {
    MutexLock lock(mutex_);
    if (!slot_free_.WaitFor(mutex_, kAbortGrace,
                            [this]() MG_REQUIRES(mutex_) { return steps_.size() == 0; })) {
      result = DeadlineExceeded(std::to_string(steps_.size()) +
                                (steps_.size() == 1 ? " step" : " steps") +
                                " did not stop within " + Seconds(kAbortGrace));
    }
  }
  FinishAll();
  if (cluster_ != nullptr) {
    result.Update(CloseAtTasks());
    cluster_->Close();
  }
  for (int calls = calls_.load(); calls != 0; calls = calls_.load()) calls_.wait(calls);
  // From here on neither OnPeerLost nor OnTaskLost is called.
  if (worker_ != nullptr) worker_->StopWatching(id_);
  master_ = nullptr;
  if (cluster_ != nullptr) cluster_->StopWatching();
  EndRenewer();
  cluster_ = nullptr;
  if (worker_ != nullptr) {
    // NotFound: Start failed before the session was made.
    const Status closed = worker_->CloseSession(id_);
    if (closed.code() != Code::kNotFound) result.Update(closed);
    transport_ = nullptr;
    worker_ = nullptr;
  }
  return result;
}

}  // namespace monograph
