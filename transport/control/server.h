// Server: the listening end of the control plane. Methods are names, requests and responses opaque
// bytes.
//
// Threads. One io thread "mg-control" owns every socket, answers heartbeats and runs handlers
// marked kInline, which must not block. Other handlers run on a small pool "mg-handler" and may
// block for a bounded time; two calls of one connection may run at the same time and in any order.
// on_connect and on_disconnect run one after another on a thread of their own, "mg-event". A reply
// may come later and from any thread, also after the connection or the server is gone. Calls of a
// connection that has ended before their handler started are dropped.
//
// Trust. With a key a peer has to know it, as whatever user. Without one only loopback addresses
// are allowed, and only processes of this process's user are served (CheckPeerUser). Before a peer
// has completed the handshake it gets at most kMaxHelloBytes of memory, handshake_timeout of time,
// and its place until newer connections need it (HandshakeLimiter). Refusals are logged as
// RefusalLog says.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "transport/control/handshake_limiter.h"
#include "transport/control/hello.h"
#include "transport/control/key_ring.h"

namespace monograph::control {

struct ConnectionInfo {
  uint64_t id = 0;      // never reused by this server
  std::string address;  // "127.0.0.1:40312"
  Hello hello;          // what the peer said of itself
  // When a heartbeat of the peer came last; the epoch before the first. Default order: once per
  // ping.
  std::shared_ptr<std::atomic<std::chrono::steady_clock::time_point>> heard =
      std::make_shared<std::atomic<std::chrono::steady_clock::time_point>>();

  // "/job:client/replica:0/task:0 at 127.0.0.1:40312"
  std::string name() const;
};

struct CallContext {
  std::shared_ptr<const ConnectionInfo> connection;
  std::string method;
  std::chrono::steady_clock::time_point deadline;  // the caller waits no longer than this
};

// Answers a call; exactly one answer counts, later ones are ignored. A handler that drops its Reply
// without an answer answers Internal.
using Reply = std::function<void(Result<std::string>)>;

struct Method {
  enum class Run {
    kPool,    // on the handler pool; may block for a bounded time
    kInline,  // on the io thread; must not block
  };
  std::function<void(const CallContext&, std::string request, Reply)> handler;
  Run run = Run::kPool;
};

struct ServerHandlers {
  std::map<std::string, Method> methods;
  // Asked on the io thread about a well-formed hello of a peer that speaks our version; a failure
  // refuses it and is told to it. May be empty.
  std::function<Status(const Hello&)> accept;
  // Once per connection that completed the handshake, and once when it ends: Cancelled when this
  // server stops, Unavailable otherwise.
  std::function<void(const ConnectionInfo&)> on_connect;
  std::function<void(const ConnectionInfo&, const Status&)> on_disconnect;
  // A peer that was turned away: junk, wrong key, other version. On the io thread.
  std::function<void(const std::string& address, const Status&)> on_refused;
};

struct ServerOptions {
  std::string bind_address = "127.0.0.1";  // a numeric address or a host name
  uint16_t port = 0;                       // 0 picks a free one
  std::optional<KeyRing> key;              // given: every connection is TLS with one of its keys
  Hello hello;
  size_t max_body_bytes = kDefaultMaxBodyBytes;
  int handler_threads = 4;
  HandshakeLimiter::Limits handshakes;
  std::chrono::milliseconds handshake_timeout{5000};
  // A peer whose heartbeats stay away for so long is taken for dead. Peers that never sent one are
  // judged by their connection only.
  std::chrono::milliseconds silence_timeout{2500};
  // What pongs report: any number that grows while this process gets on with its work. Called on
  // the io thread.
  std::function<uint64_t()> progress;
};

class Server {
 public:
  // Listens when it returns. FailedPrecondition for a port in use and for a non-loopback address
  // without a key.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options, ServerHandlers handlers);
  ~Server();  // Stop

  uint16_t port() const;
  // "127.0.0.1:2222"
  const std::string& address() const;

  // Tells the peers, closes every connection, waits for running handlers and for the last
  // on_disconnect. Idempotent. The port can be used again at once. REQUIRES: not called from a
  // handler or callback of this server.
  void Stop();

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace monograph::control
