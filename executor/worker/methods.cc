// A session of a connection that ends is closed on a thread of its own (closer_), because closing
// waits for running kernels: the steps of one lost client do not run on while others are closed.
#include "executor/worker/methods.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "executor/trace.h"
#include "executor/worker/task_status.h"
#include "executor/worker/worker.pb.h"
#include "graph/graph_def.h"

namespace monograph {
namespace {

using control::CallContext;
using control::Reply;

// Protobuf would write of what it refuses to standard error, for each call of a hostile client.
template <typename Request>
bool ParseRequest(const std::string& bytes, Request* request) {
  const google::protobuf::LogSilencer silence;
  return request->ParseFromString(bytes);
}

// A method whose request and response are protobuf messages. The handler may block.
template <typename Request, typename Response, typename Handler>
control::Method ProtoMethod(Handler handler) {
  return {[handler](const CallContext& context, std::string bytes, Reply reply) {
            Request request;
            if (!ParseRequest(bytes, &request)) {
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
// Of the threads that close sessions: those that stay, and how many there are at most.
constexpr int kClosers = 1, kMostClosers = 256;
// A client sends a heartbeat each half second. The second time is longer than what a lost client is
// given (control::ServerOptions::silence_timeout).
constexpr std::chrono::milliseconds kSilence{600}, kLongestSilence{3000}, kLookAgain{20};
// A kernel looks at least each 100 ms whether its step has ended. What is left after this time is
// in a library's call, which updates no variable.
constexpr std::chrono::milliseconds kFreeing{400};

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

ControlMethods::ControlMethods(Worker* worker, const OpRegistry* ops, std::string cluster)
    : worker_(*worker),
      ops_(ops),
      cluster_(std::move(cluster)),
      closer_("mg-close", kClosers, kMostClosers) {}

bool ControlMethods::OwnSession(const std::shared_ptr<const control::ConnectionInfo>& connection,
                                uint64_t session) {
  MutexLock lock(mutex_);
  if (std::find(gone_.begin(), gone_.end(), connection->id) != gone_.end()) return false;
  Owned& owned = owned_[connection->id];
  owned.connection = connection;
  owned.sessions.push_back(session);
  return true;
}

bool ControlMethods::HasSilentClient(uint64_t but) const {
  const auto now = Clock::now();
  return std::any_of(owned_.begin(), owned_.end(), [&](const auto& entry) {
    const auto heard = entry.second.connection->heard->load();
    return entry.first != but && heard != Clock::time_point() && now - heard > kSilence;
  });
}

void ControlMethods::WaitForSilentClients(const CallContext& context) {
  const auto until = std::min(context.deadline, Clock::now() + kLongestSilence);
  MutexLock lock(mutex_);
  const auto is_being_freed = [&]() MG_REQUIRES(mutex_) {
    return being_freed_ > 0 && Clock::now() - last_gone_ < kFreeing;
  };
  while ((is_being_freed() || HasSilentClient(context.connection->id)) && Clock::now() < until)
    freed_.WaitFor(mutex_, kLookAgain);  // nothing tells of a heartbeat
}

Status ControlMethods::CheckNotDraining() {
  MutexLock lock(mutex_);
  if (draining_) return TaskLost(worker_.task(), worker_.task() + " is shutting down");
  return Status();
}

bool ControlMethods::Drain() {
  MutexLock lock(mutex_);
  return !std::exchange(draining_, true);
}

std::map<std::string, control::Method> ControlMethods::Map() {
  std::map<std::string, control::Method> methods;
  methods["Status"] = ProtoMethod<Empty, wire::StatusResponse>(
      [this](const CallContext&, const Empty&, wire::StatusResponse* response) {
        DescribeTask(worker_, response);
        response->set_cluster(cluster_);
        return Status();
      });
  methods["CreateSession"] = ProtoMethod<wire::CreateSessionRequest, wire::CreateSessionResponse>(
      [this](const CallContext& context, const wire::CreateSessionRequest& request,
             wire::CreateSessionResponse* response) {
        WaitForSilentClients(context);
        MG_RETURN_IF_ERROR(CheckNotDraining());
        MG_ASSIGN_OR_RETURN(
            *response->mutable_transport_address(),
            worker_.CreateSession(request.session(), nullptr, request.tensorflow_random_streams(),
                                  request.container()));
        if (OwnSession(context.connection, request.session())) return Status();
        (void)worker_.CloseSession(request.session());
        return Cancelled("the client is gone");
      });
  methods["ConnectSession"] =
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
            MG_RETURN_IF_ERROR(worker_.ConnectSession(request.session(), peers,
                                                      request.client_peer(), request.self_index()));
            DescribeLanes(worker_.DescribePeers(request.session()), response);
            return Status();
          });
  methods["CloseSession"] = ProtoMethod<wire::CloseSessionRequest, Empty>(
      [this](const CallContext&, const wire::CloseSessionRequest& request, Empty*) {
        return worker_.CloseSession(request.session());
      });
  methods["RegisterGraph"] = ProtoMethod<wire::RegisterGraphRequest, wire::RegisterGraphResponse>(
      [this](const CallContext&, const wire::RegisterGraphRequest& request,
             wire::RegisterGraphResponse* response) {
        MG_RETURN_IF_ERROR(CheckNotDraining());
        Result<Graph> graph = ParseGraph(
            request.graph_def(), ops_, {.keep_unknown_ops = false, .keep_lost_colocations = true});
        if (!graph.ok()) return graph.status().WithContext(worker_.task());
        MG_ASSIGN_OR_RETURN(const uint32_t handle,
                            worker_.RegisterGraph(request.session(), std::move(*graph)));
        response->set_handle(handle);
        return Status();
      });
  methods["DeregisterGraph"] = ProtoMethod<wire::DeregisterGraphRequest, Empty>(
      [this](const CallContext&, const wire::DeregisterGraphRequest& request, Empty*) {
        return worker_.DeregisterGraph(request.session(), request.handle());
      });
  methods["DropPeer"] = ProtoMethod<wire::DropPeerRequest, wire::DropPeerResponse>(
      [this](const CallContext&, const wire::DropPeerRequest& request,
             wire::DropPeerResponse* response) {
        MG_ASSIGN_OR_RETURN(*response->mutable_transport_address(),
                            worker_.DropPeer(request.session(), request.task()));
        return Status();
      });
  methods["ReconnectPeers"] = ProtoMethod<wire::ReconnectPeersRequest, Empty>(
      [this](const CallContext&, const wire::ReconnectPeersRequest& request, Empty*) {
        std::vector<PeerSpec> peers;
        for (const wire::Peer& peer : request.peers())
          peers.push_back({peer.task(), peer.transport_address()});
        return worker_.ReconnectPeers(request.session(), peers);
      });
  methods["Reset"] = ProtoMethod<wire::ResetRequest, Empty>(
      [this](const CallContext&, const wire::ResetRequest& request, Empty*) {
        worker_.Reset({request.containers().begin(), request.containers().end()});
        return Status();
      });
  methods["TakeTrace"] = ProtoMethod<wire::TakeTraceRequest, wire::TakeTraceResponse>(
      [this](const CallContext&, const wire::TakeTraceRequest& request,
             wire::TakeTraceResponse* response) {
        const std::shared_ptr<StepTrace> trace =
            worker_.TakeTrace(request.session(), request.step());
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
  return methods;
}

void ControlMethods::ClientGone(const control::ConnectionInfo& connection, const Status& why) {
  std::vector<uint64_t> sessions;
  {
    MutexLock lock(mutex_);
    gone_.push_back(connection.id);
    if (gone_.size() > kConnectionsRemembered) gone_.pop_front();
    auto it = owned_.find(connection.id);
    if (it == owned_.end()) return;
    sessions = std::move(it->second.sessions);
    owned_.erase(it);
    being_freed_ += static_cast<int>(sessions.size());
    last_gone_ = Clock::now();
  }
  // If it is this server that ends the connections, no client is lost.
  const Status lost =
      why.code() == Code::kCancelled ? Status() : why.WithContext(connection.name());
  // Closing waits for running kernels: not on this thread, where the end of the next client's
  // connection would wait, too.
  for (const uint64_t session : sessions) {
    closer_.Run([this, session, name = connection.name(), why, lost] {
      const Status closed = worker_.CloseSession(session, lost);
      // NotFound: the client closed it itself before it went.
      if (closed.code() != Code::kNotFound) {
        LogInfo(worker_.task() + " freed session " + std::to_string(session) + " of " + name +
                ": " + why.message());
        if (!closed.ok()) LogWarning(closed.ToString());
      }
      MutexLock lock(mutex_);
      --being_freed_;
      freed_.NotifyAll();
    });
  }
}

}  // namespace monograph
