// One coroutine on the io thread makes each connection: an accepted one shakes hands and goes to
// the inbox of the transport that it asks for (Serve), one that is dialed to the inbox of the
// transport that wants it (Dial). Afterwards a connection is the transport's alone.
#include "transport/tls/tls_listener.h"

#include "transport/asio_token.h"
#include "transport/tls/tls_handshake.h"
// Keep tls_handshake.h before other Asio headers.
#include <fcntl.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/duration.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "transport/control/asio_status.h"
#include "transport/control/host_port.h"
#include "transport/control/refusal_log.h"
#include "transport/control/tls.h"
#include "transport/tls/tls_inbox.h"

namespace monograph {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Side = TlsStream::Side;

// A connection that ends before its handshake is over is tried again: under a flood of connections
// the acceptor ends the oldest.
constexpr int kDialAttempts = 3;
constexpr auto kDialPause = std::chrono::milliseconds(50);
// Who listens is known to be there. That there is no way to it may be what is left of a cut: after
// the heal the system goes on for a moment to say what it has found out before. A cut that stays is
// for those to notice who watch the peer.
constexpr auto kNoWayFor = std::chrono::seconds(2);
constexpr auto kNoWayPause = std::chrono::milliseconds(100);

std::string MachineName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

class TlsListener::Impl {
 public:
  explicit Impl(TlsListenerOptions options)
      : options_(std::move(options)),
        work_(asio::make_work_guard(io_)),
        acceptor_(io_),
        accept_retry_(io_),
        refusals_due_(io_),
        handshakes_(options_.handshakes) {}
  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status Start();
  uint16_t port() const { return port_; }
  const std::string& host() const { return host_; }
  bool has_key() const { return options_.key.has_value(); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  void Register(uint64_t instance, std::shared_ptr<TlsInbox> inbox) {
    MutexLock lock(mutex_);
    inboxes_[instance] = std::move(inbox);
  }
  void Unregister(uint64_t instance) {
    MutexLock lock(mutex_);
    inboxes_.erase(instance);
  }
  void Dial(TlsDial dial, std::shared_ptr<TlsInbox> inbox) {
    asio::post(io_, [this, dial = std::move(dial), inbox = std::move(inbox)]() mutable {
      asio::co_spawn(io_, DialLoop(std::move(dial), std::move(inbox)), asio::detached);
    });
  }

 private:
  Status Listen();
  Result<tcp::endpoint> ResolveBindAddress();
  asio::awaitable<void> AcceptLoop();
  asio::awaitable<void> Serve(std::shared_ptr<TlsHandshake> handshake, uint64_t id);
  asio::awaitable<void> DialLoop(TlsDial dial, std::shared_ptr<TlsInbox> inbox);
  struct Dialed {
    std::shared_ptr<TlsHandshake> handshake;
    bool no_way = false;  // to the host
  };
  asio::awaitable<Status> DialOnce(TlsDial dial, Dialed* dialed);
  std::shared_ptr<TlsInbox> Find(uint64_t instance) {
    MutexLock lock(mutex_);
    const auto found = inboxes_.find(instance);
    return found == inboxes_.end() ? nullptr : found->second;
  }
  void Refuse(const TlsHandshake& handshake, const Status& why);
  Status FollowKeys();
  std::shared_ptr<TlsHandshake> MakeHandshake(tcp::socket socket, Side side) {
    return TlsHandshake::Make(std::move(socket), side,
                              side == Side::kAcceptor ? server_tls_ : client_tls_,
                              {.check_user = !options_.trusted_network,
                               .rekey_bytes = options_.rekey_bytes,
                               .timeout = options_.handshake_timeout});
  }

  const TlsListenerOptions options_;
  std::string host_;
  uint16_t port_ = 0;
  std::atomic<uint64_t> refused_{0};  // relaxed: a counter

  Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<TlsInbox>> inboxes_ MG_GUARDED_BY(mutex_);

  // Used on the io thread only, from Start on.
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_, refusals_due_;
  uint64_t next_id_ = 1;
  std::shared_ptr<const control::Keys> keys_;
  std::shared_ptr<control::TlsContext> server_tls_, client_tls_;  // of keys_; null without a key
  control::HandshakeLimiter handshakes_;
  std::optional<control::RefusalLog> refusals_;
  Clock::time_point next_complaint_;  // about a lack of descriptors
  std::thread thread_;
};

// Takes over the keys that the ring has now.
Status TlsListener::Impl::FollowKeys() {
  if (!options_.key) return Status();
  std::shared_ptr<const control::Keys> now = options_.key->Current();
  if (now == keys_) return Status();
  MG_ASSIGN_OR_RETURN(auto server, control::TlsContext::Make(*now, /*server=*/true));
  MG_ASSIGN_OR_RETURN(auto client, control::TlsContext::Make(*now, /*server=*/false));
  // The kernel encrypts where it can; where it cannot, OpenSSL goes on doing it.
  for (const auto& tls : {server, client}) SSL_CTX_set_options(tls->native(), SSL_OP_ENABLE_KTLS);
  server_tls_ = std::move(server);
  client_tls_ = std::move(client);
  keys_ = std::move(now);
  return Status();
}

Status TlsListener::Impl::Start() {
  MG_RETURN_IF_ERROR(FollowKeys());
  if (!options_.bind_address.empty()) MG_RETURN_IF_ERROR(Listen());
  thread_ = StartThread("mg-tls", [this] { io_.run(); });
  return Status();
}

Result<tcp::endpoint> TlsListener::Impl::ResolveBindAddress() {
  ErrorCode error;
  const std::string& name = options_.bind_address;
  const asio::ip::address numeric = asio::ip::make_address(name, error);
  if (!error) return tcp::endpoint(numeric, options_.port);
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(name, std::to_string(options_.port), error);
  if (error) {
    return control::FromAsio(error,
                             "cannot resolve the address '" + name + "' to listen on for data");
  }
  if (found.empty()) return NotFound("'" + name + "' has no address to listen on for data");
  return found.begin()->endpoint();
}

Status TlsListener::Impl::Listen() {
  MG_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ResolveBindAddress());
  if (!endpoint.address().is_loopback() && !has_key() && !options_.trusted_network) {
    return FailedPrecondition(
        "listening for data on '" + options_.bind_address +
        "', which other machines can reach, needs a key: make one with `monograph keygen` and "
        "start every process of the cluster with --key_file");
  }
  const std::string where =
      control::HostPort{endpoint.address().to_string(), endpoint.port()}.ToString();
  ErrorCode error;
  acceptor_.open(endpoint.protocol(), error);
  if (error) return control::FromAsio(error, "cannot listen for data on " + where);
  (void)fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return control::FromAsio(error, "cannot listen for data on " + where);
  port_ = acceptor_.local_endpoint(error).port();
  host_ = !options_.advertised_host.empty()     ? options_.advertised_host
          : endpoint.address().is_unspecified() ? MachineName()
                                                : options_.bind_address;
  refusals_.emplace("data: " + control::HostPort{endpoint.address().to_string(), port_}.ToString());
  asio::co_spawn(io_, AcceptLoop(), asio::detached);
  return Status();
}

asio::awaitable<void> TlsListener::Impl::AcceptLoop() {
  while (true) {
    tcp::socket socket(io_);
    const auto [error] = co_await acceptor_.async_accept(socket, kToken);
    if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
        error == asio::error::no_buffer_space) {
      LogError("data: " + control::FromAsio(
                              error, "cannot accept a connection on port " + std::to_string(port_))
                              .ToString());
      accept_retry_.expires_after(std::chrono::milliseconds(200));
      const auto [waited] = co_await accept_retry_.async_wait(kToken);
      (void)waited;
      continue;
    }
    if (error) continue;  // of one connection, which its peer has given up already
    (void)fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    if (const Status status = FollowKeys(); !status.ok()) LogError("data: " + status.ToString());
    const uint64_t id = next_id_++;
    const int descriptor = socket.native_handle();
    auto handshake = MakeHandshake(std::move(socket), Side::kAcceptor);
    handshakes_.Begin(id, handshake->where(), descriptor,
                      [handshake](const Status& why) { handshake->Abort(why); });
    asio::co_spawn(io_, Serve(std::move(handshake), id), asio::detached);
  }
}

asio::awaitable<void> TlsListener::Impl::Serve(std::shared_ptr<TlsHandshake> handshake,
                                               uint64_t id) {
  TlsHello hello;
  Status status = co_await handshake->Authenticate();
  if (status.ok()) status = co_await handshake->ReadHello(&hello);
  std::shared_ptr<TlsInbox> inbox;
  if (status.ok()) {
    inbox = Find(hello.to);
    if (inbox == nullptr) {
      status = NotFound(
          "there is no session of that number here: it has ended, or the process was started "
          "again");
      const Status told = co_await handshake->Welcome(status);
      (void)told;
      status = status.WithContext(handshake->where());
    } else {
      status = co_await handshake->Welcome(Status());
    }
  }
  handshakes_.End(id);
  if (!status.ok()) {
    Refuse(*handshake, status);
    co_return;
  }
  inbox->Put({.status = {},
              .stream = handshake->Take(),
              .from = hello.from,
              .where = handshake->where(),
              .index = hello.index,
              .count = hello.count});
}

void TlsListener::Impl::Refuse(const TlsHandshake& handshake, const Status& why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (handshake.silent_peer() && why.code() == Code::kUnavailable) {
    // Somebody tested whether the port is open; that is no mistake.
    LogDebug("data: " + handshake.where() + " connected and said nothing");
    return;
  }
  const auto before = refusals_->due();
  refusals_->Add(handshake.where(), why);
  if (refusals_->due() == before) return;
  refusals_due_.expires_at(*refusals_->due());
  refusals_due_.async_wait([this](const ErrorCode& error) {
    if (!error) refusals_->Flush();
  });
}

asio::awaitable<Status> TlsListener::Impl::DialOnce(TlsDial dial, Dialed* dialed) {
  const std::string where = control::HostPort{dial.host, dial.port}.ToString();
  // A numeric address needs no resolver, which has a thread of its own and no deadline.
  std::vector<tcp::endpoint> endpoints;
  ErrorCode named;
  const asio::ip::address numeric = asio::ip::make_address(dial.host, named);
  if (named) {
    tcp::resolver resolver(io_);
    const auto [unresolved, found] =
        co_await resolver.async_resolve(dial.host, std::to_string(dial.port), kToken);
    if (unresolved) co_return control::FromAsio(unresolved, "cannot find the host of " + where);
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  } else {
    endpoints.emplace_back(numeric, dial.port);
  }
  auto socket = std::make_shared<tcp::socket>(io_);
  asio::steady_timer timer(io_, options_.handshake_timeout);
  timer.async_wait([socket](const ErrorCode& error) {
    ErrorCode ignored;
    if (!error) socket->close(ignored);
  });
  const auto [error, endpoint] = co_await asio::async_connect(*socket, endpoints, kToken);
  if (timer.cancel() == 0) {
    co_return DeadlineExceeded("no connection to " + where + " within " +
                               Seconds(options_.handshake_timeout));
  }
  dialed->no_way =
      error == asio::error::host_unreachable || error == asio::error::network_unreachable;
  if (error) co_return control::FromAsio(error, "cannot connect to " + where);
  (void)fcntl(socket->native_handle(), F_SETFD, FD_CLOEXEC);
  Status status = FollowKeys();
  if (!status.ok()) co_return status;
  dialed->handshake = MakeHandshake(std::move(*socket), Side::kDialer);
  const std::shared_ptr<TlsHandshake> handshake = dialed->handshake;
  status = co_await handshake->Authenticate();
  if (status.ok()) {
    status = co_await handshake->Greet(
        {.to = dial.to, .from = dial.from, .index = dial.index, .count = dial.count});
  }
  co_return status;
}

asio::awaitable<void> TlsListener::Impl::DialLoop(TlsDial dial, std::shared_ptr<TlsInbox> inbox) {
  TlsArrival arrival{.dialed = true,
                     .token = dial.token,
                     .from = dial.to,
                     .where = control::HostPort{dial.host, dial.port}.ToString(),
                     .index = dial.index,
                     .count = dial.count};
  asio::steady_timer pause(io_);
  const auto no_way_until = Clock::now() + kNoWayFor;
  for (int attempt = 1; attempt <= kDialAttempts;) {
    Dialed dialed;
    arrival.status = co_await DialOnce(dial, &dialed);
    if (arrival.status.ok()) {
      arrival.stream = dialed.handshake->Take();
      break;
    }
    if (dialed.no_way && Clock::now() < no_way_until) {
      pause.expires_after(kNoWayPause);
    } else {
      const bool broke = dialed.handshake != nullptr && arrival.status.code() == Code::kUnavailable;
      if (!broke || attempt == kDialAttempts) break;
      pause.expires_after(attempt++ * kDialPause);
    }
    const auto [ignored] = co_await pause.async_wait(kToken);
    (void)ignored;
  }
  inbox->Put(std::move(arrival));
}

TlsListener::TlsListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsListener::~TlsListener() = default;

Result<std::shared_ptr<TlsListener>> TlsListener::Start(TlsListenerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  MG_RETURN_IF_ERROR(impl->Start());
  return std::shared_ptr<TlsListener>(new TlsListener(std::move(impl)));
}

uint16_t TlsListener::port() const { return impl_->port(); }
const std::string& TlsListener::host() const { return impl_->host(); }
bool TlsListener::has_key() const { return impl_->has_key(); }
uint64_t TlsListener::refused() const { return impl_->refused(); }
void TlsListener::Register(uint64_t instance, std::shared_ptr<TlsInbox> inbox) {
  impl_->Register(instance, std::move(inbox));
}
void TlsListener::Unregister(uint64_t instance) { impl_->Unregister(instance); }
void TlsListener::Dial(TlsDial dial, std::shared_ptr<TlsInbox> inbox) {
  impl_->Dial(std::move(dial), std::move(inbox));
}

}  // namespace monograph
