// TlsListener: where data connections of a process come in and go out. One per process; all its TLS
// transports share it, so that a process has one port for data however many sessions it serves.
//
// A connection is TLS 1.3 with the cluster's key; without a key it is plain TCP, which only
// loopback addresses and networks that the user declared as trusted may have. The first bytes under
// TLS name the transport that is wanted and the one that asks (transport/tls/tls_frame.h); an
// unknown transport is refused with a reason.
//
// Trust. Until a peer has shown the key it gets at most kMaxUnauthenticatedBytes of input read and
// handshake_timeout of time; at most max_handshakes peers may be in that state, and at most
// max_handshakes_per_address from one address: one more ends the oldest.
//
// Threads. One thread "mg-tls" accepts, dials and shakes hands. Every method may be called from any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "transport/control/handshake_limiter.h"
#include "transport/control/key_ring.h"

namespace monograph {

class TlsInbox;
struct TlsDial;

inline constexpr size_t kMaxUnauthenticatedBytes = 16 << 10;

struct TlsListenerOptions {
  // A numeric address or a host name. Empty: this process does not listen, so that it dials all its
  // peers (a client behind a firewall).
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;  // 0 picks a free one
  // The host that peers dial. Empty: the bind address, or the name of this machine where that is
  // any address (0.0.0.0, ::).
  std::string advertised_host = {};
  // Given: every connection is TLS with one of its keys.
  std::optional<control::KeyRing> key = {};
  // Allows an address that is not loopback without a key: everybody on that network is trusted.
  bool trusted_network = false;
  control::HandshakeLimiter::Limits handshakes = {};
  std::chrono::milliseconds handshake_timeout{5000};
  // A stream takes new keys each time that it has sent so much; AES-GCM allows 2^24.5 records with
  // one.
  uint64_t rekey_bytes = uint64_t{64} << 30;
};

class TlsListener {
 public:
  // Listens when it returns. FailedPrecondition for a port in use, and for an address that others
  // can reach without a key.
  static Result<std::shared_ptr<TlsListener>> Start(TlsListenerOptions options);
  // Ends the port and the thread; established connections go on. REQUIRES: not on "mg-tls".
  ~TlsListener();
  TlsListener(const TlsListener&) = delete;
  TlsListener& operator=(const TlsListener&) = delete;

  uint16_t port() const;            // 0: it does not listen
  const std::string& host() const;  // what peers dial; empty: it does not listen
  bool has_key() const;
  // Number of connections that were turned away.
  uint64_t refused() const;

  // For transports. Connections that ask for `instance` go to `inbox` until Unregister.
  void Register(uint64_t instance, std::shared_ptr<TlsInbox> inbox);
  void Unregister(uint64_t instance);
  // Opens a connection; its stream, or why there is none, goes to `inbox`.
  void Dial(TlsDial dial, std::shared_ptr<TlsInbox> inbox);

 private:
  class Impl;
  explicit TlsListener(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
