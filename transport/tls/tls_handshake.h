// The first part of a data connection's life, on the listener's thread: TLS, then hello and
// welcome. Private to this folder; only .cc files that need Asio include it.
#pragma once

#include <utility>
// Asio's coroutine headers use std::exchange without including it.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/tls/tls_frame.h"
#include "transport/tls/tls_stream.h"

namespace monograph::control {
class TlsContext;
}

namespace monograph {

// Used on the thread of its io_context. Shared by the coroutine that shakes hands and by whoever
// may end it.
class TlsHandshake : public std::enable_shared_from_this<TlsHandshake> {
 public:
  struct Options {
    // Without a key: a peer on loopback must be of this process's user, and none is elsewhere.
    bool check_user = true;
    uint64_t rekey_bytes = 0;
    std::chrono::milliseconds timeout{5000};  // then it ends with DeadlineExceeded
  };
  // `socket` is connected. `tls` is nullptr without a key.
  static std::shared_ptr<TlsHandshake> Make(boost::asio::ip::tcp::socket socket,
                                            TlsStream::Side side,
                                            std::shared_ptr<control::TlsContext> tls,
                                            const Options& options);
  ~TlsHandshake();

  // Ends it with `why`.
  void Abort(const Status& why);

  // The steps of an acceptor: Authenticate, ReadHello, Welcome. Of a dialer: Authenticate, Greet.
  boost::asio::awaitable<Status> Authenticate();
  boost::asio::awaitable<Status> ReadHello(TlsHello* hello);
  // Tells the peer what has become of its hello.
  boost::asio::awaitable<Status> Welcome(Status status);
  // The status is the peer's answer.
  boost::asio::awaitable<Status> Greet(TlsHello hello);
  // The connection, from now on no longer this object's.
  TlsStream Take();

  // "10.0.0.2:40312", the other end
  const std::string& where() const { return where_; }
  bool silent_peer() const { return silent_; }  // it has said nothing

 private:
  TlsHandshake(boost::asio::ip::tcp::socket socket, TlsStream::Side side,
               std::shared_ptr<control::TlsContext> tls, const Options& options);
  boost::asio::awaitable<Status> Read(char* data, size_t bytes);
  boost::asio::awaitable<Status> Write(std::string bytes);
  // After a step of the stream that moved nothing: waits, or says why it is over.
  boost::asio::awaitable<Status> Await(TlsStream::State state);

  const TlsStream::Side side_;
  const std::shared_ptr<control::TlsContext> tls_;
  const bool check_user_;
  const std::string where_;
  boost::asio::steady_timer timer_;
  TlsStream stream_;
  boost::asio::posix::stream_descriptor waiter_;  // the stream's descriptor, which it does not own
  Status aborted_, stranger_;
  bool silent_ = true;
};

}  // namespace monograph
