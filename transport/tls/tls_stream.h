// TlsStream: one TCP connection, under TLS by OpenSSL (or by the kernel, where it can) or plain,
// used without blocking. For one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace monograph {

class TlsStream {
 public:
  enum class Side { kDialer, kAcceptor };
  enum class State {
    kMoved,        // some bytes; of Handshake: it is over
    kNeedsInput,   // nothing, until the descriptor is readable
    kNeedsOutput,  // nothing, until it is writable
    kEnded,        // the peer has closed its side
    kFailed,       // error() says why
  };
  struct Moved {
    State state = State::kMoved;
    size_t bytes = 0;
  };

  TlsStream() = default;
  // `fd` is a connected socket. `context` is nullptr for a plain connection. `rekey_bytes`: after
  // how many bytes it sends with a new key.
  TlsStream(Descriptor fd, Side side, ssl_ctx_st* context, uint64_t rekey_bytes);
  TlsStream(TlsStream&&) = default;
  TlsStream& operator=(TlsStream&&) = default;

  int fd() const { return fd_.get(); }
  // Goes on with the TLS handshake; at the end Unauthenticated, as kFailed, unless it rests on the
  // key. A plain connection needs none.
  Moved Handshake();
  // The same bytes (and perhaps more behind them) must be offered again after a Write that moved
  // none.
  Moved Write(const void* data, size_t bytes);
  Moved Read(void* data, size_t bytes);
  // Whether bytes are under way and the peer's host has acknowledged some within `time`.
  bool Leaves(std::chrono::milliseconds time) const;
  // What has come from the peer, in bytes of TCP; 0 of a plain connection.
  uint64_t received() const;
  Status error() const { return error_; }
  // The handshake failed since the peer has another key, or none.
  bool other_key() const { return other_key_; }
  // "openssl", "kernel tls", "plain tcp"
  std::string Describe() const;

  // No further input for the peer. What it sends can still be read.
  void EndOutput();
  void Close();

 private:
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };
  Moved Fail(int result);
  bool KernelSends() const;

  Descriptor fd_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  uint64_t rekey_bytes_ = 0;
  uint64_t written_ = 0;  // with the present key
  bool mid_write_ = false;
  bool other_key_ = false;
  Status error_;
};

// While it lives, writing to a connection that the peer has closed sends no SIGPIPE to this thread.
// OpenSSL's socket functions have no flag for that.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  bool blocked_ = false;  // by this object
};

}  // namespace monograph
