// Worker's interface over its Impl: creation and end, what a task shows of itself (devices,
// figures, peers, what a step is inside of), sessions and graphs by number. What it does stands
// beside: sessions.cc, steps.cc, messages.cc and watch.cc.
#include "executor/worker/worker.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "executor/gpu/gpu_device.h"
#include "executor/trace.h"
#include "executor/worker/impl.h"

namespace monograph {
namespace {

// From now on the end of main, or exit(), ends the process as it is. Destructors of static objects
// would take from running kernels what they use.
void ExitWithoutDestructors() {
  static const int once = on_exit(
      [](int status, void*) {
        (void)std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
  (void)once;
}

}  // namespace

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() {
  impl_->Shutdown();
  if (impl_->left_ == 0) return;
  // A kernel that would not end still uses its worker, and the libraries that it is in.
  (void)impl_.release();
  ExitWithoutDestructors();
}

Result<std::unique_ptr<Worker>> Worker::Create(WorkerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  MG_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

const std::string& Worker::task() const { return impl_->task_; }
const std::vector<DeviceInfo>& Worker::devices() const { return impl_->device_infos_; }
const KernelRegistry* Worker::gpu_kernels() const { return impl_->gpu_kernels_; }
uint64_t Worker::incarnation() const { return impl_->incarnation_; }
ResourceManager& Worker::resources() const { return impl_->resources_; }

WorkerStats Worker::stats() const {
  WorkerStats stats;
  stats.steps_done = impl_->steps_done_.load(std::memory_order_relaxed);
  stats.steps_failed = impl_->steps_failed_.load(std::memory_order_relaxed);
  stats.messages_dropped = impl_->dropped_.load(std::memory_order_relaxed);
  for (const auto& device : impl_->devices_) {
    GpuDevice* const gpu = device->gpu();
    if (gpu == nullptr) continue;
    stats.cuda_graphs_captured += gpu->graph_counts().captures;
    stats.cuda_graphs_replayed += gpu->graph_counts().replays;
    stats.cuda_graph_fallbacks += gpu->graph_counts().fallbacks;
    stats.cuda_nodes_launched += gpu->graph_counts().nodes;
  }
  ReaderLock lock(impl_->sessions_mutex_);
  stats.sessions = static_cast<int>(impl_->sessions_.size());
  for (const auto& [id, session] : impl_->sessions_) {
    MutexLock session_lock(session->mutex);
    stats.running_steps += session->running;
    stats.graphs += static_cast<int>(session->graphs.size());
  }
  // After the steps: one that is no longer counted has sent its report.
  stats.messages_leaving = impl_->sending_.load(std::memory_order_relaxed);
  return stats;
}

TransportStats Worker::transport_stats() const {
  ReaderLock lock(impl_->sessions_mutex_);
  TransportStats moved = impl_->moved_before_;
  const auto add = [&moved](const WorkerSession& session) {
    if (session.transport != nullptr) moved += session.transport->stats();
  };
  for (const auto& [id, session] : impl_->sessions_) add(*session);
  for (const auto& session : impl_->closing_) add(*session);
  return moved;
}

Result<std::string> Worker::CreateSession(uint64_t session, StepClient* client,
                                          bool tensorflow_random_streams,
                                          const std::string& container) {
  return impl_->CreateSession(session, client, tensorflow_random_streams, container);
}
Status Worker::ConnectSession(uint64_t session, const std::vector<PeerSpec>& peers, int client_peer,
                              int self_index) {
  return impl_->ConnectSession(session, peers, client_peer, self_index);
}
Status Worker::CloseSession(uint64_t session, const Status& why) {
  const auto parts = impl_->options_.parts_deadline;
  return impl_->CloseSession(session, kCloseDeadline,
                             why.ok() ? parts : std::min(parts, kPartsDeadlineOfLost), why);
}

Transport* Worker::transport(uint64_t id) const {
  ReaderLock lock(impl_->sessions_mutex_);
  const auto it = impl_->sessions_.find(id);
  return it == impl_->sessions_.end() ? nullptr : it->second->transport.get();
}

std::vector<std::string> Worker::DescribePeers(uint64_t id) const {
  std::vector<std::string> ways;
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  if (session == nullptr) return ways;
  for (const SessionPeer& peer : session->peers)
    ways.push_back(session->transport->Describe(peer.id));
  return ways;
}

std::string Worker::InsideOf(uint64_t session_id, uint64_t step) const {
  const std::shared_ptr<WorkerSession> session = impl_->FindSession(session_id);
  std::shared_ptr<Step> running;
  if (session != nullptr) {
    MutexLock lock(session->mutex);
    const StepSlot& slot = session->SlotOf(step);
    if (slot.Runs(step)) running = slot.running;
  }
  if (running == nullptr) return "";
  const std::vector<std::string> computing = running->progress(/*with_nodes=*/true).computing;
  return computing.empty() ? "" : computing.front();
}

Result<std::string> Worker::DropPeer(uint64_t id, const std::string& task) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  const SessionPeer* const peer = session == nullptr ? nullptr : session->PeerOf(task);
  if (peer == nullptr) {
    return NotFound(task + " is in no session " + std::to_string(id) + " at " + this->task());
  }
  impl_->LosePeer(*session, session->IndexOf(*peer), TaskLost(task, task + " is lost"));
  return session->transport->Renew(peer->id);
}

Status Worker::ReconnectPeers(uint64_t id, const std::vector<PeerSpec>& peers) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  Status first;
  for (const PeerSpec& spec : peers) {
    const SessionPeer* const peer = session == nullptr ? nullptr : session->PeerOf(spec.task);
    if (peer != nullptr)
      first.Update(session->transport->Reconnect(peer->id, spec.transport_address));
  }
  return first;
}
void Worker::StopWatching(uint64_t id) {
  if (std::shared_ptr<WorkerSession> session = impl_->FindSession(id))
    impl_->StopWatching(*session);
}

Result<uint32_t> Worker::RegisterGraph(uint64_t session, Graph graph) {
  return impl_->RegisterGraph(session, std::move(graph));
}
Status Worker::DeregisterGraph(uint64_t session, uint32_t handle) {
  return impl_->DeregisterGraph(session, handle);
}

std::shared_ptr<StepTrace> Worker::TakeTrace(uint64_t id, uint64_t step) {
  std::shared_ptr<WorkerSession> session = impl_->FindSession(id);
  if (session == nullptr) return nullptr;
  MutexLock lock(session->mutex);
  for (auto it = session->traces.begin(); it != session->traces.end(); ++it) {
    if (it->first == step) {
      std::shared_ptr<StepTrace> trace = it->second;
      session->traces.erase(it);
      return trace;
    }
  }
  return nullptr;
}

void Worker::Drain() { impl_->draining_ = true; }

std::vector<std::string> Worker::RunningSteps() const {
  std::vector<std::shared_ptr<WorkerSession>> sessions;
  {
    ReaderLock lock(impl_->sessions_mutex_);
    for (const auto& [id, session] : impl_->sessions_) sessions.push_back(session);
  }
  std::vector<std::string> texts;
  for (const auto& session : sessions) {
    const std::string steps = impl_->DescribeRunning(*session);
    if (!steps.empty()) texts.push_back("session " + std::to_string(session->id) + ": " + steps);
  }
  return texts;
}

void Worker::Reset(const std::vector<std::string>& containers) {
  impl_->resources_.Clear(containers);
}

}  // namespace monograph
