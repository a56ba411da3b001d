// The control plane's Server over the simulated network: what transport/control/server.cc is over
// sockets, with the same answers. A program that has this one does not link the other. Keys, and
// the limits on peers that have not shown one, are not simulated.
//
// Its loop is the io thread: connections, heartbeats and inline handlers. Handlers of the pool
// answer by a PendingReply, which does not keep the server alive.
#include "transport/control/server.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <unordered_map>

#include "base/duration.h"
#include "base/log.h"
#include "base/mutex.h"
#include "tests/simulation/control/channel_impl.h"
#include "tests/simulation/host.h"
#include "transport/control/pulse.h"
#include "transport/control/worker_pool.h"

namespace monograph::control {
namespace {

using simulation::Loop;
using simulation::LoopThread;
using simulation::Network;
using simulation::Receiver;

// As in transport/control/server.cc.
constexpr auto kGrace = std::chrono::milliseconds(750);
constexpr auto kLook = std::chrono::milliseconds(500);

std::string PeerName(const Hello& hello, const std::string& address) {
  return hello.task_name.empty() ? address : hello.task_name + " at " + address;
}

}  // namespace

std::string ConnectionInfo::name() const { return PeerName(hello, address); }

class Server::Impl : public std::enable_shared_from_this<Server::Impl> {
 public:
  Impl(ServerOptions options, ServerHandlers handlers)
      : options_(std::move(options)),
        handlers_(std::move(handlers)),
        pool_("mg-handler", std::max(1, options_.handler_threads)),
        events_("mg-event", 1) {}

  Status Listen();
  void Stop();
  uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }

 private:
  // One that completed the handshake. Used on the loop only.
  struct Peer : Receiver, std::enable_shared_from_this<Peer> {
    Server::Impl* server = nullptr;
    Network::End end;
    std::shared_ptr<const ConnectionInfo> info;
    // Read by the pool, to skip calls that nobody waits for. Default order: a hint, once per call.
    const std::shared_ptr<std::atomic<bool>> alive = std::make_shared<std::atomic<bool>>(true);
    bool over = false;
    std::optional<Pulse> pulse;  // of heartbeats, if it beats
    Loop::Key look;

    bool beats() const { return info->hello.purpose == Hello::Purpose::kHeartbeat; }
    void OnMessage(const std::any& message) override {
      if (!over) server->Got(*this, std::any_cast<const Frame&>(message));
    }
    void OnEnd(const Status& why) override { server->Over(*this, why, /*on_purpose=*/false); }
  };

  // The one answer to a call. Destroyed without it, it answers Internal.
  struct PendingReply {
    PendingReply(std::weak_ptr<Impl> of_server, uint64_t of_connection, uint64_t of_call,
                 std::string of_method)
        : server(std::move(of_server)),
          connection(of_connection),
          call(of_call),
          method(std::move(of_method)) {}
    ~PendingReply() { Answer(Internal("the handler of '" + method + "' gave no answer")); }
    void Answer(Result<std::string> result) {
      if (answered.exchange(true)) return;
      const auto impl = server.lock();
      if (impl == nullptr) return;
      impl->io_.loop()->Post(
          [impl = impl.get(), connection = connection, call = call, result = std::move(result)] {
            impl->SendReply(connection, call, result);
          });
    }
    const std::weak_ptr<Impl> server;
    const uint64_t connection, call;
    const std::string method;
    std::atomic<bool> answered{false};  // default order: once per call
  };

  std::shared_ptr<Receiver> Accept(const Frame& hello, Network::End end);
  void Got(Peer& peer, const Frame& frame);
  void GotCall(const Peer& peer, const Frame& frame);
  void GotPing(Peer& peer, const Frame& frame);
  void Look(const std::shared_ptr<Peer>& peer);
  void SendReply(uint64_t connection, uint64_t call, Result<std::string> result);
  void Over(Peer& peer, Status why, bool on_purpose);
  static void Send(const Network::End& end, const Frame& frame) {
    end.Send(frame, WireBytes(frame));
  }

  const ServerOptions options_;
  const ServerHandlers handlers_;
  simulation::Site site_;
  uint16_t port_ = 0;
  std::string address_;

  // Used on the loop only.
  bool stopping_ = false;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::shared_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, uint64_t> peer_of_token_;

  Mutex stop_mutex_;
  bool stopped_ MG_GUARDED_BY(stop_mutex_) = false;
  WorkerPool pool_, events_;
  LoopThread io_{"mg-control"};
};

Status Server::Impl::Listen() {
  Network& network = Network::Current();
  const int named = network.HostNamed(options_.bind_address);
  site_ = network.SiteOf(named < 0 ? simulation::CurrentHost() : named);
  const std::string host = network.NameOf(site_.host);
  const auto accept = [this](const std::any& hello, Network::End end) {
    return Accept(std::any_cast<const Frame&>(hello), std::move(end));
  };
  for (port_ = options_.port == 0 ? 40000 : options_.port; port_ != 0; ++port_) {
    if (network.Listen(site_, std::to_string(port_), io_.loop(), accept)) break;
    if (!network.IsUp(site_.host)) return Unavailable(host + " is down");
    if (options_.port == 0) continue;
    return FailedPrecondition(
        "cannot listen on " + host + ":" + std::to_string(port_) +
        ": address already in use; is another daemon running? choose another port");
  }
  address_ = host + ":" + std::to_string(port_);
  return Status();
}

void Server::Impl::Stop() {
  MutexLock lock(stop_mutex_);
  if (std::exchange(stopped_, true)) return;
  Network::Current().StopListening(site_, std::to_string(port_));
  io_.loop()->Post([this] {
    stopping_ = true;
    const Status why = Cancelled(
        (options_.hello.task_name.empty() ? address_ : options_.hello.task_name) + " stops");
    for (const auto& [id, peer] : std::map(peers_)) {
      Frame goodbye;
      goodbye.type = FrameType::kGoodbye;
      goodbye.SetStatus(why);
      Send(peer->end, goodbye);
      peer->end.Close("the peer closed the connection");
      Over(*peer, Cancelled("this server stops"), /*on_purpose=*/false);
    }
  });
  pool_.Join();
  io_.Join();
  events_.Join(/*finish_queue=*/true);
}

std::shared_ptr<Receiver> Server::Impl::Accept(const Frame& frame, Network::End end) {
  const Result<Hello> hello = DecodeHello(frame.body);
  if (stopping_ || !hello.ok()) return nullptr;
  const uint64_t id = ++last_id_;
  auto info = std::make_shared<ConnectionInfo>();
  info->id = id;
  info->address =
      Network::Current().NameOf(end.peer_host()) + ":" + std::to_string(50000 + id % 10000);
  info->hello = *hello;
  const bool beats = hello->purpose == Hello::Purpose::kHeartbeat;
  Frame answer;
  answer.type = FrameType::kHello;
  answer.body = EncodeHello(options_.hello);
  Status status = CheckHello(options_.hello, *hello, info->address);
  if (status.ok() && handlers_.accept && !beats) {
    status = handlers_.accept(*hello);
    answer.SetStatus(status);
  }
  Send(end, answer);
  auto peer = std::make_shared<Peer>();
  peer->server = this;
  peer->end = end;
  peer->info = info;
  if (!status.ok()) {
    LogWarning("control: " + address_ + " refused " + info->address + ": " + status.message());
    if (handlers_.on_refused) handlers_.on_refused(info->address, status);
    peer->over = true;  // it closes the connection when it has read the answer
    return peer;
  }
  peers_.emplace(id, peer);
  if (beats) {
    peer->pulse.emplace(simulation::Clock::now(),
                        Pulse::Pace{kLook, options_.silence_timeout, kGrace});
    Look(peer);
    return peer;
  }
  peer_of_token_[hello->token] = id;
  if (handlers_.on_connect) events_.Run([this, info] { handlers_.on_connect(*info); });
  return peer;
}

void Server::Impl::Got(Peer& peer, const Frame& frame) {
  const bool goodbye = frame.type == FrameType::kGoodbye;
  if (!goodbye && peer.beats() && frame.type == FrameType::kPing) return GotPing(peer, frame);
  if (!goodbye && !peer.beats() && frame.type == FrameType::kCall) return GotCall(peer, frame);
  peer.end.Close("the peer closed the connection");
  Over(peer,
       Unavailable(peer.info->name() + (goodbye
                                            ? " closed its connection"
                                            : " broke the protocol: it sent an unexpected frame")),
       goodbye);
}

void Server::Impl::Over(Peer& peer, Status why, bool on_purpose) {
  if (std::exchange(peer.over, true)) return;
  const auto self = peer.shared_from_this();  // the table may hold the last reference
  if (stopping_) why = Cancelled("this server stops");
  io_.loop()->Cancel(peer.look);
  peer.alive->store(false);
  peers_.erase(peer.info->id);
  const uint64_t token = peer.info->hello.token;
  const auto guarded = peer_of_token_.find(token);
  if (!peer.beats()) {
    if (guarded != peer_of_token_.end() && guarded->second == peer.info->id)
      peer_of_token_.erase(guarded);
    if (handlers_.on_disconnect)
      events_.Run([this, info = peer.info, why] { handlers_.on_disconnect(*info, why); });
    return;
  }
  // The connection for calls, which the heartbeats guard, ends with them.
  if (on_purpose || stopping_ || guarded == peer_of_token_.end()) return;
  const auto calls = peers_.find(guarded->second);
  if (calls == peers_.end()) return;
  const auto lost = calls->second;
  lost->end.Close("the peer closed the connection");
  Over(*lost, why, /*on_purpose=*/false);
}

void Server::Impl::GotPing(Peer& peer, const Frame& frame) {
  const simulation::Clock::time_point now = simulation::Clock::now();
  peer.pulse->Heard(now);
  const auto guarded = peer_of_token_.find(peer.info->hello.token);
  if (guarded != peer_of_token_.end()) peers_.at(guarded->second)->info->heard->store(now);
  Frame pong;
  pong.type = FrameType::kPong;
  pong.id = frame.id;
  PongBody body;
  body.progress = options_.progress ? options_.progress() : 0;
  body.received_ns = WireTime(now);
  body.sent_ns = WireTime(simulation::Clock::now());
  pong.body = EncodePong(body);
  Send(peer.end, pong);
}

void Server::Impl::Look(const std::shared_ptr<Peer>& peer) {
  if (peer->over) return;
  if (peer->pulse->Judge(simulation::Clock::now()) == Pulse::Verdict::kLost) {
    peer->end.Close("the peer closed the connection");
    return Over(*peer,
                Unavailable(peer->info->name() + " has sent no heartbeat for " +
                            Seconds(options_.silence_timeout)),
                /*on_purpose=*/false);
  }
  peer->look = io_.loop()->PostAt(peer->pulse->wake(), [this, peer] { Look(peer); });
}

void Server::Impl::GotCall(const Peer& peer, const Frame& frame) {
  auto pending =
      std::make_shared<PendingReply>(weak_from_this(), peer.info->id, frame.id, frame.text);
  const auto method = handlers_.methods.find(frame.text);
  if (method == handlers_.methods.end()) {
    std::string known;
    for (const auto& [name, ignored] : handlers_.methods)
      known += (known.empty() ? "" : ", ") + name;
    return pending->Answer(
        Unimplemented("there is no method '" + frame.text + "' here; there are: " + known));
  }
  CallContext context;
  context.connection = peer.info;
  context.method = frame.text;
  context.deadline = simulation::Clock::now() + std::chrono::milliseconds(frame.timeout_ms);
  Reply reply = [pending](Result<std::string> result) { pending->Answer(std::move(result)); };
  pending.reset();
  const Method& target = method->second;
  if (target.run == Method::Run::kInline)
    return target.handler(context, frame.body, std::move(reply));
  pool_.Run([&target, context = std::move(context), body = frame.body, reply = std::move(reply),
             alive = peer.alive]() mutable {
    if (alive->load()) target.handler(context, std::move(body), std::move(reply));
  });
}

void Server::Impl::SendReply(uint64_t connection, uint64_t call, Result<std::string> result) {
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  if (result.ok() && result.value().size() > options_.max_body_bytes) {
    result = ResourceExhausted("the response has " + std::to_string(result.value().size()) +
                               " bytes, at most " + std::to_string(options_.max_body_bytes) +
                               " are allowed");
  }
  Frame frame;
  frame.type = FrameType::kReply;
  frame.id = call;
  frame.SetStatus(result.status());
  if (result.ok()) frame.body = std::move(result).value();
  Send(peer->second->end, frame);
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options, ServerHandlers handlers) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(handlers));
  const Status status = impl->Listen();
  if (!status.ok()) {
    impl->Stop();
    return status;
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Stop(); }
uint16_t Server::port() const { return impl_->port(); }
const std::string& Server::address() const { return impl_->address(); }
void Server::Stop() { impl_->Stop(); }

}  // namespace monograph::control
