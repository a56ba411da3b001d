// One coroutine on the io thread serves each connection: the handshake, then calls (ServeCalls) or
// heartbeats (ServeHeartbeat). Dispatch runs a handler on the io thread or on the pool; its answer
// comes back by a PendingReply, which does not keep the server alive, so that it may come late. A
// client's heartbeats guard its connection for calls, which has the same token: when they stop,
// WatchSilence closes their connection, and that closes the other one.
#include "transport/control/server.h"

#include "base/mutex.h"
#include "transport/asio_token.h"
#include "transport/control/connection.h"
// Keep connection.h before other Asio headers.
#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <unordered_map>

#include "base/duration.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/control/asio_status.h"
#include "transport/control/host_port.h"
#include "transport/control/pulse.h"
#include "transport/control/refusal_log.h"
#include "transport/control/tls.h"
#include "transport/control/worker_pool.h"

namespace monograph::control {
namespace {

// How much longer clients get after a delay of our own.
constexpr auto kClientGrace = std::chrono::milliseconds(750);
// How often a client's heartbeats are looked at: a late look shows that this process did not run.
constexpr auto kClientLook = std::chrono::milliseconds(500);

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
        acceptor_(io_),
        accept_retry_(io_),
        refusals_due_(io_),
        work_(asio::make_work_guard(io_)),
        handshakes_(options_.handshakes),
        pool_("mg-handler", std::max(1, options_.handler_threads)),
        events_("mg-event", 1) {}

  Status Listen();
  void Stop();
  uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }

 private:
  // A peer that completed the handshake for calls.
  struct Peer {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<const ConnectionInfo> info;
    // Read by the pool, to skip calls that nobody waits for. Default order: a hint, once per call.
    std::shared_ptr<std::atomic<bool>> alive;
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
      asio::post(impl->io_, [impl = impl.get(), connection = connection, call = call,
                             result = std::move(result)]() mutable {
        impl->SendReply(connection, call, std::move(result));
      });
    }
    const std::weak_ptr<Impl> server;
    const uint64_t connection, call;
    const std::string method;
    std::atomic<bool> answered{false};  // default order: once per call
  };

  // When a heartbeat came last, and the timer of the coroutine that watches it.
  struct Heard {
    Heard(asio::io_context& io, const Pulse::Pace& pace) : pulse(Clock::now(), pace), timer(io) {}
    Pulse pulse;
    asio::steady_timer timer;
  };

  Result<tcp::endpoint> ResolveBindAddress();
  Status FollowKeys();
  asio::awaitable<void> AcceptLoop();
  asio::awaitable<void> Serve(std::shared_ptr<Connection> connection, uint64_t id);
  asio::awaitable<void> ServeCalls(std::shared_ptr<Connection> connection, uint64_t id);
  asio::awaitable<void> ServeHeartbeat(std::shared_ptr<Connection> connection, uint64_t id);
  asio::awaitable<void> WatchSilence(std::shared_ptr<Connection> connection,
                                     std::shared_ptr<Heard> heard);
  void Refuse(const Connection& connection, const Status& why);
  void LogRefusal(const std::string& peer, const Status& why);
  void Dispatch(const Peer& peer, Frame frame);
  void SendReply(uint64_t connection, uint64_t call, Result<std::string> result);
  void CloseAll();

  const ServerOptions options_;
  const ServerHandlers handlers_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_, refusals_due_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  uint16_t port_ = 0;
  std::string address_;

  // Used on the io thread only.
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  std::shared_ptr<const Keys> keys_;
  std::shared_ptr<TlsContext> tls_;  // of keys_; null without a key
  HandshakeLimiter handshakes_;
  std::optional<RefusalLog> refusals_;
  Clock::time_point next_complaint_;  // about a lack of descriptors
  std::map<uint64_t, std::shared_ptr<Connection>> heartbeats_;
  std::unordered_map<uint64_t, Peer> peers_;
  std::unordered_map<uint64_t, uint64_t> peer_of_token_;

  Mutex stop_mutex_;
  bool stopped_ MG_GUARDED_BY(stop_mutex_) = false;
  WorkerPool pool_, events_;
  std::thread thread_;
};

Result<tcp::endpoint> Server::Impl::ResolveBindAddress() {
  ErrorCode error;
  std::vector<tcp::endpoint> endpoints;
  const asio::ip::address numeric = asio::ip::make_address(options_.bind_address, error);
  if (!error) {
    endpoints.emplace_back(numeric, options_.port);
  } else {
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(options_.bind_address, std::to_string(options_.port), error);
    if (error)
      return FromAsio(error,
                      "cannot resolve the address '" + options_.bind_address + "' to listen on");
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  if (endpoints.empty())
    return NotFound("'" + options_.bind_address + "' has no address to listen on");
  const bool loopback =
      std::all_of(endpoints.begin(), endpoints.end(),
                  [](const tcp::endpoint& endpoint) { return endpoint.address().is_loopback(); });
  if (!loopback && !options_.key) {
    return FailedPrecondition("listening on '" + options_.bind_address +
                              "', which other machines can reach, needs a key: make one with "
                              "`monograph keygen` and start every "
                              "process of the cluster with --key_file; without a key only loopback "
                              "addresses are allowed");
  }
  return endpoints.front();
}

// Takes over the keys that the ring has now.
Status Server::Impl::FollowKeys() {
  if (!options_.key) return Status();
  std::shared_ptr<const Keys> now = options_.key->Current();
  if (now == keys_) return Status();
  MG_ASSIGN_OR_RETURN(tls_, TlsContext::Make(*now, /*server=*/true));
  keys_ = std::move(now);
  return Status();
}

Status Server::Impl::Listen() {
  MG_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ResolveBindAddress());
  MG_RETURN_IF_ERROR(FollowKeys());
  const std::string where = EndpointName(endpoint);
  ErrorCode error;
  acceptor_.open(endpoint.protocol(), error);
  if (error) return FromAsio(error, "cannot listen on " + where);
  CloseOnExec(acceptor_.native_handle());
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return FailedPrecondition(
        "cannot listen on " + where +
        ": address already in use; is another daemon running? choose another port");
  }
  if (error) return FromAsio(error, "cannot listen on " + where);
  const tcp::endpoint local = acceptor_.local_endpoint(error);
  port_ = local.port();
  address_ = EndpointName(local);
  refusals_.emplace("control: " + address_);
  asio::co_spawn(io_, AcceptLoop(), asio::detached);
  thread_ = StartThread("mg-control", [this] { io_.run(); });
  return Status();
}

void Server::Impl::Stop() {
  MutexLock lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  if (thread_.joinable()) {
    asio::post(io_, [this] { CloseAll(); });
    pool_.Join();
    work_.reset();
    thread_.join();
  }
  events_.Join(/*finish_queue=*/true);
}

void Server::Impl::CloseAll() {
  stopping_ = true;
  ErrorCode ignored;
  acceptor_.close(ignored);
  accept_retry_.cancel();
  refusals_due_.cancel();
  const Status why = Cancelled(
      (options_.hello.task_name.empty() ? address_ : options_.hello.task_name) + " stops");
  handshakes_.EndAll(why);
  for (auto& [id, connection] : heartbeats_) connection->CloseGracefully(why);
  for (auto& [id, peer] : peers_) peer.connection->CloseGracefully(why);
}

asio::awaitable<void> Server::Impl::AcceptLoop() {
  while (!stopping_) {
    tcp::socket socket(io_);
    const auto [error] = co_await acceptor_.async_accept(socket, kToken);
    if (stopping_) co_return;
    if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
        error == asio::error::no_buffer_space) {
      if (handshakes_.MakeRoom()) continue;
      // Whoever calls waits in the kernel's queue until something is free.
      if (Clock::now() >= next_complaint_) {
        next_complaint_ = Clock::now() + RefusalLog::kInterval;
        LogError("control: " +
                 FromAsio(error, "cannot accept connections on " + address_).ToString());
      }
      accept_retry_.expires_after(std::chrono::milliseconds(200));
      const auto [waited] = co_await accept_retry_.async_wait(kToken);
      (void)waited;
      continue;
    }
    if (error) continue;  // of one connection, which its peer has given up already
    PrepareSocket(socket);
    if (const Status status = FollowKeys(); !status.ok()) LogError(status.ToString());
    const uint64_t id = next_id_++;
    const int descriptor = socket.native_handle();
    auto connection = std::make_shared<Connection>(std::move(socket), Connection::Side::kServer,
                                                   tls_, options_.max_body_bytes);
    handshakes_.Begin(id, connection->peer_address(), descriptor,
                      [connection](const Status& why) { connection->Close(why); });
    asio::co_spawn(io_, Serve(std::move(connection), id), asio::detached);
  }
}

void Server::Impl::LogRefusal(const std::string& peer, const Status& why) {
  const auto before = refusals_->due();
  refusals_->Add(peer, why);
  if (refusals_->due() == before) return;
  refusals_due_.expires_at(*refusals_->due());
  refusals_due_.async_wait([this](const ErrorCode& error) {
    if (!error) refusals_->Flush();
  });
}

void Server::Impl::Refuse(const Connection& connection, const Status& why) {
  if (why.code() == Code::kCancelled) return;  // this server stops
  if (connection.silent_peer() && why.code() == Code::kUnavailable) {
    // Somebody tested whether the port is open; that is no mistake.
    LogDebug("control: " + connection.peer_address() + " connected to " + address_ +
             " and said nothing");
  } else {
    LogRefusal(connection.peer_address(), why);
  }
  if (handlers_.on_refused) handlers_.on_refused(connection.peer_address(), why);
}

asio::awaitable<void> Server::Impl::Serve(std::shared_ptr<Connection> connection, uint64_t id) {
  auto accept = [this](const Hello& hello) {
    if (!handlers_.accept || hello.purpose != Hello::Purpose::kCalls) return Status();
    return handlers_.accept(hello);
  };
  const Status status =
      co_await connection->Handshake(options_.hello, std::move(accept), options_.handshake_timeout);
  handshakes_.End(id);
  if (!status.ok()) {
    Refuse(*connection, status);
    co_return;
  }
  if (stopping_) {
    connection->Close(Cancelled("this server stops"));
    co_return;
  }
  if (connection->peer_hello().purpose == Hello::Purpose::kHeartbeat) {
    co_await ServeHeartbeat(std::move(connection), id);
  } else {
    co_await ServeCalls(std::move(connection), id);
  }
}

asio::awaitable<void> Server::Impl::ServeCalls(std::shared_ptr<Connection> connection,
                                               uint64_t id) {
  const Hello& hello = connection->peer_hello();
  auto info = std::make_shared<ConnectionInfo>();
  info->id = id;
  info->address = connection->peer_address();
  info->hello = hello;
  Peer peer{connection, info, std::make_shared<std::atomic<bool>>(true)};
  peers_.emplace(id, peer);
  peer_of_token_[hello.token] = id;
  if (handlers_.on_connect) events_.Run([this, info] { handlers_.on_connect(*info); });

  Status status;
  while (status.ok()) {
    Frame frame;
    status = co_await connection->Read(&frame);
    if (!status.ok()) break;
    if (frame.type == FrameType::kGoodbye) {
      status = Unavailable(info->name() + " closed its connection");
    } else if (frame.type != FrameType::kCall) {
      status = InvalidArgument(info->name() + " broke the protocol: it sent an unexpected frame");
    } else {
      Dispatch(peer, std::move(frame));
    }
  }
  if (status.code() == Code::kInvalidArgument)
    LogWarning("control: " + address_ + " closed a connection: " + status.message());
  if (stopping_) status = Cancelled("this server stops");
  connection->Close(status);
  peer.alive->store(false);
  peers_.erase(id);
  if (const auto it = peer_of_token_.find(hello.token);
      it != peer_of_token_.end() && it->second == id) {
    peer_of_token_.erase(it);
  }
  if (handlers_.on_disconnect) {
    if (status.code() != Code::kCancelled && status.code() != Code::kUnavailable)
      status = Unavailable(status.message());
    events_.Run([this, info, status] { handlers_.on_disconnect(*info, status); });
  }
}

asio::awaitable<void> Server::Impl::WatchSilence(std::shared_ptr<Connection> connection,
                                                 std::shared_ptr<Heard> heard) {
  while (!connection->closed()) {
    if (heard->pulse.Judge(Clock::now()) == Pulse::Verdict::kLost) {
      connection->Close(Unavailable(PeerName(connection->peer_hello(), connection->peer_address()) +
                                    " has sent no heartbeat for " +
                                    Seconds(options_.silence_timeout)));
      co_return;
    }
    heard->timer.expires_at(heard->pulse.wake());
    const auto [error] = co_await heard->timer.async_wait(kToken);
    if (error) co_return;
  }
}

asio::awaitable<void> Server::Impl::ServeHeartbeat(std::shared_ptr<Connection> connection,
                                                   uint64_t id) {
  heartbeats_.emplace(id, connection);
  const std::string name = PeerName(connection->peer_hello(), connection->peer_address());
  auto heard = std::make_shared<Heard>(
      io_, Pulse::Pace{kClientLook, options_.silence_timeout, kClientGrace});
  asio::co_spawn(io_, WatchSilence(connection, heard), asio::detached);
  bool on_purpose = false;
  Status status;
  while (status.ok()) {
    Frame frame;
    status = co_await connection->Read(&frame);
    if (!status.ok()) break;
    const Clock::time_point now = Clock::now();
    if (frame.type == FrameType::kGoodbye) {
      on_purpose = true;
      break;
    }
    if (frame.type != FrameType::kPing || !DecodePing(frame.body).ok()) {
      status = InvalidArgument(
          name + " broke the protocol: it sent no ping on a connection for heartbeats");
      break;
    }
    heard->pulse.Heard(now);
    const auto token = peer_of_token_.find(connection->peer_hello().token);
    if (token != peer_of_token_.end()) peers_.at(token->second).info->heard->store(now);
    Frame pong;
    pong.type = FrameType::kPong;
    pong.id = frame.id;
    PongBody body;
    body.progress = options_.progress ? options_.progress() : 0;
    body.received_ns = WireTime(now);
    body.sent_ns = WireTime(Clock::now());
    pong.body = EncodePong(body);
    connection->Send(std::move(pong));
  }
  heartbeats_.erase(id);
  heard->timer.cancel();
  connection->Close(status.ok() ? Unavailable(name + " closed its connection") : status);
  if (on_purpose || stopping_) co_return;
  // The connection for calls, which the heartbeats guard, ends with them.
  const auto token = peer_of_token_.find(connection->peer_hello().token);
  if (token == peer_of_token_.end()) co_return;
  const auto peer = peers_.find(token->second);
  if (peer != peers_.end()) peer->second.connection->Close(status);
}

void Server::Impl::Dispatch(const Peer& peer, Frame frame) {
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
  context.deadline = Clock::now() + std::chrono::milliseconds(frame.timeout_ms);
  Reply reply = [pending](Result<std::string> result) { pending->Answer(std::move(result)); };
  pending.reset();
  const Method& target = method->second;
  if (target.run == Method::Run::kInline)
    return target.handler(context, std::move(frame.body), std::move(reply));
  auto body = std::make_shared<std::string>(std::move(frame.body));
  pool_.Run([&target, context = std::move(context), body, reply = std::move(reply),
             alive = peer.alive]() mutable {
    if (alive->load()) target.handler(context, std::move(*body), std::move(reply));
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
  peer->second.connection->Send(std::move(frame));
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
