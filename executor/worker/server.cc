// The control methods of a daemon: each parses a protobuf message, calls the Worker and encodes the
// answer. A session belongs to the connection that created it; when that ends, its sessions are
// closed on threads of their own (closer_), because closing waits for running kernels. Stop goes
// from outside to inside: no new sessions or steps, running steps end, the control plane stops,
// then the worker goes.
#include "executor/worker/server.h"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/duration.h"
#include "base/log.h"
#include "base/mutex.h"
#include "executor/trace.h"
#include "executor/worker/task_status.h"
#include "executor/worker/worker.pb.h"
#include "graph/graph_def.h"
#include "transport/control/server.h"
#include "transport/control/worker_pool.h"

namespace monograph {
namespace {

using control::CallContext;
using control::Reply;

// A method whose request and response are protobuf messages. The handler may block.
template <typename Request, typename Response, typename Handler>
control::Method ProtoMethod(Handler handler) {
  return {[handler](const CallContext& context, std::string bytes, Reply reply) {
            Request request;
            if (!request.ParseFromString(bytes)) {
              reply(InvalidArgument("malformed request of method " + context.method + " from " +
                                    context.connection->name()));
              return;
            }
            Response response;
            if (Status status = handler(context, request, &response); !status.ok()) {
              reply(status);
            } else {
              reply(response.SerializeAsString());
            }
          },
          control::Method::Run::kPool};
}

constexpr size_t kConnectionsRemembered = 256;
constexpr int kClosers = 2;

// Describes the way to each peer; peers with the same way share one entry.
void DescribeLanes(const std::vector<std::string>& ways, wire::ConnectSessionResponse* response) {
  std::map<std::string, wire::Lanes*> known;
  for (size_t peer = 0; peer < ways.size(); ++peer) {
    wire::Lanes*& lanes = known[ways[peer]];
    if (lanes == nullptr) {
      lanes = response->add_lanes();
      lanes->set_way(ways[peer]);
    }
    lanes->add_peers(static_cast<int32_t>(peer));
  }
}

struct Empty {
  bool ParseFromString(const std::string& bytes) { return bytes.empty(); }
  std::string SerializeAsString() const { return {}; }
};

}  // namespace

class Server::Impl {
 public:
  ~Impl() { Stop(std::chrono::seconds(0)); }

  Status Start(ServerOptions options);
  void Stop(std::chrono::milliseconds drain);

  std::unique_ptr<Worker> worker_;
  std::unique_ptr<control::Server> control_;
  std::string address_;

 private:
  // False if the connection has ended: then nobody would close the session.
  bool OwnSession(uint64_t connection, uint64_t session) {
    MutexLock lock(mutex_);
    if (std::find(gone_.begin(), gone_.end(), connection) != gone_.end()) return false;
    owned_[connection].push_back(session);
    return true;
  }
  void ClientGone(const control::ConnectionInfo& connection, const Status& why);
  Status CheckNotDraining() {
    MutexLock lock(mutex_);
    if (draining_) return TaskLost(worker_->task(), worker_->task() + " is shutting down");
    return Status();
  }

  const OpRegistry* ops_ = nullptr;
  Mutex mutex_;
  bool draining_ MG_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::vector<uint64_t>> owned_ MG_GUARDED_BY(mutex_);  // sessions by connection
  // The connections that ended last: calls of theirs may still be running.
  std::deque<uint64_t> gone_ MG_GUARDED_BY(mutex_);
  // Closes the sessions of clients that are gone.
  control::WorkerPool closer_{"mg-close", kClosers};
};

Status Server::Impl::Start(ServerOptions options) {
  ops_ = options.worker.ops;
  MG_ASSIGN_OR_RETURN(worker_, Worker::Create(std::move(options.worker)));

  control::ServerHandlers handlers;
  handlers.methods["Status"] = ProtoMethod<Empty, wire::StatusResponse>(
      [this, cluster = std::move(options.cluster)](const CallContext&, const Empty&,
                                                   wire::StatusResponse* response) {
        DescribeTask(*worker_, response);
        response->set_cluster(cluster);
        return Status();
      });
  handlers.methods["CreateSession"] =
      ProtoMethod<wire::CreateSessionRequest, wire::CreateSessionResponse>(
          [this](const CallContext& context, const wire::CreateSessionRequest& request,
                 wire::CreateSessionResponse* response) {
            MG_RETURN_IF_ERROR(CheckNotDraining());
            MG_ASSIGN_OR_RETURN(*response->mutable_transport_address(),
                                worker_->CreateSession(request.session()));
            if (OwnSession(context.connection->id, request.session())) return Status();
            (void)worker_->CloseSession(request.session());
            return Cancelled("the client is gone");
          });
  handlers.methods["ConnectSession"] =
      ProtoMethod<wire::ConnectSessionRequest, wire::ConnectSessionResponse>(
          [this](const CallContext&, const wire::ConnectSessionRequest& request,
                 wire::ConnectSessionResponse* response) {
            std::vector<PeerSpec> peers;
            for (const wire::Peer& peer : request.peers()) {
              peers.push_back({peer.task(),
                               peer.transport_address(),
                               peer.incarnation(),
                               {peer.links().begin(), peer.links().end()}});
            }
            if (request.client_peer() < 0 || request.client_peer() >= request.peers_size()) {
              return InvalidArgument("session without a client among its " +
                                     std::to_string(request.peers_size()) + " peers");
            }
            MG_RETURN_IF_ERROR(worker_->ConnectSession(
                request.session(), peers, request.client_peer(), request.self_index()));
            DescribeLanes(worker_->DescribePeers(request.session()), response);
            return Status();
          });
  handlers.methods["CloseSession"] = ProtoMethod<wire::CloseSessionRequest, Empty>(
      [this](const CallContext&, const wire::CloseSessionRequest& request, Empty*) {
        return worker_->CloseSession(request.session());
      });
  handlers.methods["RegisterGraph"] =
      ProtoMethod<wire::RegisterGraphRequest, wire::RegisterGraphResponse>(
          [this](const CallContext&, const wire::RegisterGraphRequest& request,
                 wire::RegisterGraphResponse* response) {
            MG_RETURN_IF_ERROR(CheckNotDraining());
            Result<Graph> graph =
                ParseGraph(request.graph_def(), ops_, {.keep_unknown_ops = false});
            if (!graph.ok()) return graph.status().WithContext(worker_->task());
            MG_ASSIGN_OR_RETURN(const uint32_t handle,
                                worker_->RegisterGraph(request.session(), std::move(*graph)));
            response->set_handle(handle);
            return Status();
          });
  handlers.methods["DeregisterGraph"] = ProtoMethod<wire::DeregisterGraphRequest, Empty>(
      [this](const CallContext&, const wire::DeregisterGraphRequest& request, Empty*) {
        return worker_->DeregisterGraph(request.session(), request.handle());
      });
  handlers.methods["DropPeer"] = ProtoMethod<wire::DropPeerRequest, Empty>(
      [this](const CallContext&, const wire::DropPeerRequest& request, Empty*) {
        worker_->DropPeer(request.session(), request.task());
        return Status();
      });
  handlers.methods["Reset"] = ProtoMethod<wire::ResetRequest, Empty>(
      [this](const CallContext&, const wire::ResetRequest& request, Empty*) {
        worker_->Reset({request.containers().begin(), request.containers().end()});
        return Status();
      });
  handlers.methods["TakeTrace"] = ProtoMethod<wire::TakeTraceRequest, wire::TakeTraceResponse>(
      [this](const CallContext&, const wire::TakeTraceRequest& request,
             wire::TakeTraceResponse* response) {
        const std::shared_ptr<StepTrace> trace =
            worker_->TakeTrace(request.session(), request.step());
        if (trace == nullptr) return Status();
        for (const TraceEvent& event : trace->Events()) {
          wire::TraceEvent* out = response->add_events();
          out->set_kind(static_cast<int>(event.kind));
          out->set_name(event.name);
          out->set_op(event.op);
          out->set_device(event.device);
          out->set_thread(event.thread);
          out->set_edge(event.edge);
          out->set_bytes(event.bytes);
          out->set_start_ns(event.start_ns);
          out->set_end_ns(event.end_ns);
          out->set_id(event.id);
          out->set_after(event.after);
          auto [name, added] = response->mutable_threads()->insert({event.thread, ""});
          if (added) name->second = TraceThreadName(event.thread);
        }
        return Status();
      });
  handlers.on_disconnect = [this](const control::ConnectionInfo& connection, const Status& why) {
    ClientGone(connection, why);
  };

  control::ServerOptions control_options;
  control_options.bind_address = options.host;
  control_options.port = static_cast<uint16_t>(options.port);
  control_options.key = options.key;
  control_options.hello.task_name = worker_->task();
  control_options.hello.incarnation = worker_->incarnation();
  control_options.hello.fingerprint = std::to_string(ops_->fingerprint());
  control_options.progress = [this] { return worker_->stats().steps_done; };
  MG_ASSIGN_OR_RETURN(control_,
                      control::Server::Start(std::move(control_options), std::move(handlers)));
  address_ = control_->address();
  return Status();
}

void Server::Impl::ClientGone(const control::ConnectionInfo& connection, const Status& why) {
  std::vector<uint64_t> sessions;
  {
    MutexLock lock(mutex_);
    gone_.push_back(connection.id);
    if (gone_.size() > kConnectionsRemembered) gone_.pop_front();
    auto it = owned_.find(connection.id);
    if (it == owned_.end()) return;
    sessions = std::move(it->second);
    owned_.erase(it);
  }
  // If it is this server that ends the connections, no client is lost.
  const Status lost =
      why.code() == Code::kCancelled ? Status() : why.WithContext(connection.name());
  // Closing waits for running kernels: not on this thread, where the end of the next client's
  // connection would wait, too.
  closer_.Run([this, sessions = std::move(sessions), name = connection.name(), why, lost] {
    for (uint64_t session : sessions) {
      // NotFound: the client closed it itself before it went.
      const Status closed = worker_->CloseSession(session, lost);
      if (closed.code() == Code::kNotFound) continue;
      LogInfo(worker_->task() + " freed session " + std::to_string(session) + " of " + name + ": " +
              why.message());
      if (!closed.ok()) LogWarning(closed.ToString());
    }
  });
}

void Server::Impl::Stop(std::chrono::milliseconds drain) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(draining_, true) && control_ == nullptr) return;
  }
  const auto deadline = std::chrono::steady_clock::now() + drain;
  if (worker_ != nullptr) worker_->Drain();
  const auto busy = [this] {
    const WorkerStats stats = worker_->stats();
    return stats.running_steps > 0 || stats.messages_leaving > 0;
  };
  while (worker_ != nullptr && busy() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // shutdown only; bounded by `drain`
  }
  if (worker_ != nullptr) {
    for (const std::string& steps : worker_->RunningSteps()) {
      LogWarning(worker_->task() + " ends steps that did not end within " + Seconds(drain) +
                 " of draining: " + steps);
    }
  }
  if (control_ != nullptr) control_->Stop();
  control_ = nullptr;
  closer_.Join(/*finish_queue=*/true);
  worker_ = nullptr;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto impl = std::make_unique<Impl>();
  MG_RETURN_IF_ERROR(impl->Start(std::move(options)));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->address_; }
int Server::port() const { return impl_->control_ ? impl_->control_->port() : 0; }
Worker& Server::worker() { return *impl_->worker_; }
void Server::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }

}  // namespace monograph
