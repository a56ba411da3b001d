// The handshake: preambles in the clear, which tell versions and security; TLS if there is a key,
// else a look at whose process the peer is; then a hello from each side, the client's first.
// Afterwards frames: Read returns the next one; Send queues, and one coroutine at a time writes
// what is queued (WriteLoop), so that frames never mix. Whatever a peer announces is checked before
// memory is taken for it, and limits are small until the handshake is over, since anybody may
// connect.
#include "transport/control/connection.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <new>

#include "base/duration.h"
#include "transport/asio_token.h"
#include "transport/control/asio_status.h"
#include "transport/control/peer_user.h"
#include "transport/control/tls.h"

namespace monograph::control {
namespace {

constexpr size_t kReadAheadBytes = 16 * 1024;
// A body grows as its bytes arrive: a length alone reserves no memory.
constexpr size_t kBodyStepBytes = size_t{256} << 10;
// More unsent bytes than this mean that the peer does not read.
constexpr size_t kMaxOutputBytes = size_t{4} << 30;
constexpr auto kGracefulCloseTime = std::chrono::milliseconds(200);

tcp::endpoint RemoteOf(const tcp::socket& socket) {
  ErrorCode ignored;
  return socket.remote_endpoint(ignored);
}

// False if there is no memory.
bool Reserve(std::string& text, size_t bytes) {
  try {
    text.reserve(bytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void SetOption(int descriptor, int level, int name, int value) {
  // Best effort: none of these options is needed for correctness.
  (void)setsockopt(descriptor, level, name, &value, sizeof value);
}

}  // namespace

struct Connection::Tls {
  Tls(tcp::socket& socket, SSL_CTX* native)
      : context(AddReference(native)), stream(socket, context) {}

  // asio::ssl::context frees what it wraps.
  static SSL_CTX* AddReference(SSL_CTX* native) {
    SSL_CTX_up_ref(native);
    return native;
  }

  asio::ssl::context context;
  asio::ssl::stream<tcp::socket&> stream;
};

std::string EndpointName(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" +
         std::to_string(endpoint.port());
}

void CloseOnExec(int descriptor) { (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

void PrepareSocket(tcp::socket& socket) {
  const int descriptor = socket.native_handle();
  CloseOnExec(descriptor);
  SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 4);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Connection::Connection(tcp::socket socket, Side side, std::shared_ptr<TlsContext> tls,
                       size_t max_body_bytes)
    : socket_(std::move(socket)),
      side_(side),
      tls_context_(std::move(tls)),
      max_body_bytes_(std::min<size_t>(max_body_bytes, UINT32_MAX)),
      remote_(RemoteOf(socket_)),
      peer_address_(EndpointName(remote_)),
      timer_(socket_.get_executor()) {}

Connection::~Connection() = default;

Status Connection::WhyEnded(const ErrorCode& error, std::string_view what) const {
  return closed_ ? close_status_ : FromAsio(error, what);
}

void Connection::Close(const Status& why) {
  if (closed_) return;
  closed_ = true;
  close_status_ = why;
  timer_.cancel();
  output_.clear();
  output_bytes_ = 0;
  ErrorCode ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::CloseGracefully(const Status& why) {
  if (closed_) return;
  if (!established_) return Close(why);
  Frame goodbye;
  goodbye.type = FrameType::kGoodbye;
  goodbye.SetStatus(why);
  Send(std::move(goodbye));
  close_after_writing_ = true;
  timer_.expires_after(kGracefulCloseTime);
  timer_.async_wait([self = shared_from_this(), why](const ErrorCode&) { self->Close(why); });
}

asio::awaitable<Status> Connection::Handshake(Hello own, std::function<Status(const Hello&)> accept,
                                              std::chrono::milliseconds timeout) {
  const std::shared_ptr<Connection> self = shared_from_this();
  timer_.expires_after(timeout);
  timer_.async_wait([weak = weak_from_this(), timeout](const ErrorCode& error) {
    const auto connection = weak.lock();
    if (error || connection == nullptr || connection->established_) return;
    connection->Close(DeadlineExceeded(
        connection->peer_address_ + " did not complete the handshake within " + Seconds(timeout)));
  });
  Status status = co_await DoHandshake(own, accept);
  if (status.ok()) {
    established_ = true;
    timer_.cancel();
  } else {
    Close(status);
  }
  co_return status;
}

asio::awaitable<Status> Connection::DoHandshake(const Hello& own,
                                                const std::function<Status(const Hello&)>& accept) {
  Preamble preamble;
  preamble.protocol_version = own.protocol_version;
  preamble.security = tls_context_ != nullptr ? Security::kTls : Security::kPlain;
  preamble.software_version = own.software_version;
  // Why a peer is refused that has no key to show. A server asks while the client still waits for
  // it, a client when the server has taken the connection.
  Status stranger;
  if (side_ == Side::kServer && tls_context_ == nullptr)
    stranger = CheckPeerUser(socket_.native_handle(), peer_address_);
  Status status = co_await ExchangePreambles(preamble);
  if (status.ok() && tls_context_ != nullptr) {
    status = co_await StartTls();
  } else if (status.ok() && side_ == Side::kClient) {
    status = CheckPeerUser(socket_.native_handle(), peer_address_);
  }
  if (!status.ok()) co_return status;

  Frame hello;
  hello.type = FrameType::kHello;
  hello.body = EncodeHello(own);
  Status refusal;
  if (side_ == Side::kServer) {
    status = co_await ReadHello(&refusal);
    if (!status.ok()) co_return stranger.ok() ? status : stranger;
    status = refusal;
    if (status.ok()) status = CheckHello(own, peer_hello_, peer_address_);
    // If the hellos do not fit together, the peer sees that from ours and reports it itself; only
    // what this side alone knows has to be told.
    if (!stranger.ok()) {
      status = stranger;
      hello.body = EncodeHello(Hello{.incarnation = 1});  // nothing of this process
      hello.SetStatus(status);
    } else if (status.ok() && accept) {
      status = accept(peer_hello_);
      hello.SetStatus(status);
    }
  }
  const std::string head = EncodeHead(hello);
  const ErrorCode error = co_await Write(asio::buffer(head), asio::buffer(hello.body));
  if (error) co_return WhyEnded(error, "sending the hello to " + peer_address_);
  if (side_ == Side::kClient) {
    status = co_await ReadHello(&refusal);
    if (status.ok()) status = refusal;
    if (status.ok()) status = CheckHello(own, peer_hello_, peer_address_);
  }
  co_return status;
}

asio::awaitable<Status> Connection::ExchangePreambles(const Preamble& own) {
  const std::string ours = EncodePreamble(own);
  if (side_ == Side::kClient) {
    const ErrorCode written = co_await Write(asio::buffer(ours), asio::const_buffer());
    if (written) co_return WhyEnded(written, "greeting " + peer_address_);
  }
  // Check the bytes as they come: a peer that speaks another protocol may never send 32.
  std::array<char, kPreambleBytes> bytes;
  size_t have = 0;
  while (have < bytes.size()) {
    size_t got = 0;
    const ErrorCode error = co_await ReadSome(bytes.data() + have, bytes.size() - have, &got);
    if (error) {
      silent_peer_ = have == 0;
      co_return WhyEnded(error, "waiting for the greeting of " + peer_address_);
    }
    have += got;
    Result<Preamble> part = DecodePreamble(std::string_view(bytes.data(), have));
    if (!part.ok()) co_return part.status().WithContext(peer_address_ + " is not a Monograph peer");
    if (have == bytes.size()) {
      if (side_ == Side::kServer) {
        const ErrorCode written = co_await Write(asio::buffer(ours), asio::const_buffer());
        if (written) co_return WhyEnded(written, "greeting " + peer_address_);
      }
      co_return CheckPreamble(own, part.value(), peer_address_);
    }
  }
  co_return Status();
}

asio::awaitable<Status> Connection::StartTls() {
  auto tls = std::make_unique<Tls>(socket_, tls_context_->native());
  const auto role =
      side_ == Side::kServer ? asio::ssl::stream_base::server : asio::ssl::stream_base::client;
  ERR_clear_error();
  const auto [error] = co_await tls->stream.async_handshake(role, kToken);
  SSL* native = tls->stream.native_handle();
  if (closed_) co_return close_status_;
  if (error) {
    const Status status = FromAsio(error, "TLS handshake with " + peer_address_);
    if (status.code() != Code::kUnauthenticated) co_return status;
    // Another key: the server sees a binder that does not verify, the client the alert that
    // follows.
    const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
    if (reason != SSL_R_BINDER_DOES_NOT_VERIFY && reason < SSL_AD_REASON_OFFSET) co_return status;
    co_return Unauthenticated("the keys of this process (" + tls_context_->key_ids() + ") and of " +
                              peer_address_ + " differ; start both with the same --key_file (" +
                              error.message() + ")");
  }
  Status status = TlsContext::CheckPeer(native);
  if (status.ok()) tls_ = std::move(tls);
  co_return status;
}

asio::awaitable<Status> Connection::ReadHello(Status* refusal) {
  Frame frame;
  Status status = co_await Read(&frame);
  if (!status.ok()) co_return status;
  if (frame.type != FrameType::kHello) {
    co_return InvalidArgument(peer_address_ + " broke the protocol: its first frame is no hello");
  }
  Result<Hello> hello = DecodeHello(frame.body);
  if (!hello.ok()) co_return hello.status().WithContext(peer_address_ + " broke the protocol");
  peer_hello_ = std::move(hello).value();
  *refusal = frame.status();
  co_return Status();
}

asio::awaitable<Status> Connection::Read(Frame* frame) {
  const std::string what = "connection to " + peer_address_;
  std::array<char, kFramePrefixBytes> prefix_bytes;
  ErrorCode error = co_await ReadExactly(prefix_bytes.data(), prefix_bytes.size());
  if (error) co_return WhyEnded(error, what);
  const FramePrefix prefix =
      DecodePrefix(std::string_view(prefix_bytes.data(), prefix_bytes.size()));
  const size_t max_head = established_ ? kMaxHeadBytes : kMaxHelloBytes;
  const size_t max_body = established_ ? max_body_bytes_ : kMaxHelloBytes;
  if (prefix.head_bytes > max_head || prefix.body_bytes > max_body) {
    co_return InvalidArgument(peer_address_ + " broke the protocol: it announced a frame of " +
                              std::to_string(prefix.head_bytes) + " + " +
                              std::to_string(prefix.body_bytes) + " bytes, allowed are " +
                              std::to_string(max_head) + " + " + std::to_string(max_body));
  }
  std::string head(prefix.head_bytes, '\0');
  error = co_await ReadExactly(head.data(), head.size());
  if (error) co_return WhyEnded(error, what);
  Status status = DecodeHead(head, frame);
  if (!status.ok()) co_return status.WithContext(peer_address_ + " broke the protocol");
  frame->body.clear();
  // Reserving takes address space only; memory is taken as bytes arrive.
  if (!Reserve(frame->body, prefix.body_bytes)) {
    co_return ResourceExhausted("there is no memory for a message of " +
                                std::to_string(prefix.body_bytes) + " bytes from " + peer_address_);
  }
  while (frame->body.size() < prefix.body_bytes) {
    const size_t have = frame->body.size();
    const size_t step = std::min(prefix.body_bytes - have, kBodyStepBytes);
    frame->body.resize(have + step);
    error = co_await ReadExactly(frame->body.data() + have, step);
    if (error) co_return WhyEnded(error, what);
  }
  co_return Status();
}

asio::awaitable<ErrorCode> Connection::ReadSome(void* data, size_t capacity, size_t* got) {
  const auto buffer = asio::buffer(data, capacity);
  if (tls_ != nullptr) {
    const auto [error, bytes] = co_await tls_->stream.async_read_some(buffer, kToken);
    *got = bytes;
    co_return error;
  }
  const auto [error, bytes] = co_await socket_.async_read_some(buffer, kToken);
  *got = bytes;
  co_return error;
}

asio::awaitable<ErrorCode> Connection::ReadExactly(char* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const size_t ready = input_.size() - input_begin_;
    if (ready > 0) {
      const size_t take = std::min(ready, bytes - done);
      std::copy_n(input_.data() + input_begin_, take, data + done);
      input_begin_ += take;
      done += take;
      continue;
    }
    if (closed_) co_return ErrorCode(asio::error::operation_aborted);
    size_t got = 0;
    ErrorCode error;
    if (bytes - done >= kReadAheadBytes) {
      error = co_await ReadSome(data + done, bytes - done, &got);
      done += got;
    } else {
      input_begin_ = 0;
      input_.resize(kReadAheadBytes);
      error = co_await ReadSome(input_.data(), input_.size(), &got);
      input_.resize(got);
    }
    if (error) co_return error;
  }
  co_return ErrorCode();
}

asio::awaitable<ErrorCode> Connection::Write(asio::const_buffer head, asio::const_buffer body) {
  const std::array<asio::const_buffer, 2> buffers = {head, body};
  if (tls_ != nullptr) {
    const auto [error, bytes] = co_await asio::async_write(tls_->stream, buffers, kToken);
    co_return error;
  }
  const auto [error, bytes] = co_await asio::async_write(socket_, buffers, kToken);
  co_return error;
}

void Connection::Send(Frame frame) {
  if (closed_ || close_after_writing_) return;
  Outgoing outgoing{EncodeHead(frame), std::move(frame.body)};
  output_bytes_ += outgoing.head.size() + outgoing.body.size();
  output_.push_back(std::move(outgoing));
  if (output_bytes_ > kMaxOutputBytes) {
    return Close(ResourceExhausted(peer_address_ + " does not read what is sent to it"));
  }
  if (writing_) return;
  writing_ = true;
  asio::co_spawn(socket_.get_executor(), WriteLoop(shared_from_this()), asio::detached);
}

asio::awaitable<void> Connection::WriteLoop([[maybe_unused]] std::shared_ptr<Connection> self) {
  while (!closed_ && !output_.empty()) {
    const Outgoing outgoing = std::move(output_.front());
    output_.pop_front();
    const ErrorCode error =
        co_await Write(asio::buffer(outgoing.head), asio::buffer(outgoing.body));
    if (closed_) break;
    output_bytes_ -= outgoing.head.size() + outgoing.body.size();
    if (error) {
      // Read reports the error: the reason that the peer gave may still be unread there.
      ErrorCode ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      output_.clear();
      break;
    }
  }
  writing_ = false;
  if (close_after_writing_ && !closed_) {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
}

}  // namespace monograph::control
