// Connection: one established TCP connection that carries frames, plain or under TLS. Private to
// this folder; only its .cc files that need Asio include it.
//
// Threads: everything happens on the thread that runs the socket's io_context.
// Ownership: shared; coroutines that use a connection hold a reference.
#pragma once

#include <utility>
// Asio's coroutine headers use std::exchange without including it.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/control/frame.h"
#include "transport/control/hello.h"

namespace monograph::control {

class TlsContext;

namespace asio = boost::asio;
using tcp = boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

// "127.0.0.1:2222", "[::1]:2222"
std::string EndpointName(const tcp::endpoint& endpoint);
// No inheritance by child processes, no delay of small frames, and TCP keepalive that notices a
// vanished host in about 10 s.
void PrepareSocket(tcp::socket& socket);
// Without inheritance, for listening sockets.
void CloseOnExec(int descriptor);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class Side { kClient, kServer };

  // `socket` is connected. `tls` is null for a connection without a key.
  Connection(tcp::socket socket, Side side, std::shared_ptr<TlsContext> tls, size_t max_body_bytes);
  ~Connection();

  // Preambles, TLS, hellos; within `timeout`, and with small limits on what the peer may send.
  // `accept`, if set, is asked on the server side about a well-formed hello; the failure it returns
  // is told to the peer. On failure the connection is closed.
  asio::awaitable<Status> Handshake(Hello own, std::function<Status(const Hello&)> accept,
                                    std::chrono::milliseconds timeout);

  // The next frame. After Close, the reason given there.
  asio::awaitable<Status> Read(Frame* frame);

  // Queues a frame. After Close it is dropped.
  void Send(Frame frame);

  // Ends the connection now; `why` is what reads report. The first reason counts.
  void Close(const Status& why);
  // Tells the peer, and closes as soon as what is queued is sent, or after a short time.
  void CloseGracefully(const Status& why);

  bool closed() const { return closed_; }
  // The first bytes did not come from a Monograph peer, or none came at all.
  bool silent_peer() const { return silent_peer_; }

  const Hello& peer_hello() const { return peer_hello_; }
  const std::string& peer_address() const { return peer_address_; }
  tcp::endpoint remote() const { return remote_; }
  asio::any_io_executor executor() { return socket_.get_executor(); }

 private:
  struct Tls;
  struct Outgoing {
    std::string head, body;
  };

  asio::awaitable<Status> DoHandshake(const Hello& own,
                                      const std::function<Status(const Hello&)>& accept);
  asio::awaitable<Status> ExchangePreambles(const Preamble& own);
  asio::awaitable<Status> StartTls();
  asio::awaitable<Status> ReadHello(Status* refusal);
  asio::awaitable<ErrorCode> ReadSome(void* data, size_t capacity, size_t* got);
  asio::awaitable<ErrorCode> ReadExactly(char* data, size_t bytes);
  asio::awaitable<ErrorCode> Write(asio::const_buffer head, asio::const_buffer body);
  asio::awaitable<void> WriteLoop(std::shared_ptr<Connection> self);
  Status WhyEnded(const ErrorCode& error, std::string_view what) const;

  tcp::socket socket_;
  const Side side_;
  const std::shared_ptr<TlsContext> tls_context_;
  const size_t max_body_bytes_;
  const tcp::endpoint remote_;
  const std::string peer_address_;
  std::unique_ptr<Tls> tls_;
  asio::steady_timer timer_;  // of the handshake, later of the graceful close

  bool established_ = false;
  bool silent_peer_ = false;
  Hello peer_hello_;

  std::string input_;  // read ahead; input_[input_begin_..] is not used yet
  size_t input_begin_ = 0;

  std::deque<Outgoing> output_;
  size_t output_bytes_ = 0;
  bool writing_ = false;
  bool close_after_writing_ = false;

  bool closed_ = false;
  Status close_status_;
};

}  // namespace monograph::control
