// Asio waits for the descriptor; the stream does the work. Before each step of an acceptor's TLS
// handshake it counts what the peer has sent, so that a peer without the key cannot make OpenSSL
// hold more than kMaxUnauthenticatedBytes.
#include "transport/tls/tls_handshake.h"

#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>

#include "base/duration.h"
#include "transport/asio_token.h"
#include "transport/control/asio_status.h"
#include "transport/control/host_port.h"
#include "transport/control/peer_user.h"
#include "transport/control/tls.h"
#include "transport/tls/tls_listener.h"

namespace monograph {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Side = TlsStream::Side;
using State = TlsStream::State;

// A second line of defence behind the layers that judge liveness: data that is not acknowledged for
// so long, or a host that has vanished, ends the connection.
constexpr int kUserTimeoutMs = 15000;
constexpr int kKeepIdleSeconds = 4, kKeepIntervalSeconds = 2, kKeepCount = 3;

void SetOption(int descriptor, int level, int name, int value) {
  // Best effort: none of these options is needed for correctness.
  (void)setsockopt(descriptor, level, name, &value, sizeof value);
}

std::string NameOf(const tcp::socket& socket) {
  ErrorCode ignored;
  const tcp::endpoint remote = socket.remote_endpoint(ignored);
  return control::HostPort{remote.address().to_string(), remote.port()}.ToString();
}

Descriptor Release(tcp::socket& socket) {
  ErrorCode ignored;
  socket.native_non_blocking(true, ignored);
  const int descriptor = socket.native_handle();
  SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  SetOption(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  return Descriptor(socket.release(ignored));
}

size_t Unread(int descriptor) {
  int bytes = 0;
  return ioctl(descriptor, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace

TlsHandshake::TlsHandshake(tcp::socket socket, Side side, std::shared_ptr<control::TlsContext> tls,
                           const Options& options)
    : side_(side),
      tls_(std::move(tls)),
      check_user_(tls_ == nullptr && options.check_user),
      where_(NameOf(socket)),
      timer_(socket.get_executor()),
      stream_(Release(socket), side, tls_ == nullptr ? nullptr : tls_->native(),
              options.rekey_bytes),
      waiter_(timer_.get_executor()) {
  ErrorCode ignored;
  if (stream_.fd() >= 0) waiter_.assign(stream_.fd(), ignored);
}

TlsHandshake::~TlsHandshake() {
  if (waiter_.is_open()) waiter_.release();
}

std::shared_ptr<TlsHandshake> TlsHandshake::Make(tcp::socket socket, Side side,
                                                 std::shared_ptr<control::TlsContext> tls,
                                                 const Options& options) {
  std::shared_ptr<TlsHandshake> made(
      new TlsHandshake(std::move(socket), side, std::move(tls), options));
  made->timer_.expires_after(options.timeout);
  made->timer_.async_wait([weak = std::weak_ptr<TlsHandshake>(made),
                           timeout = options.timeout](const ErrorCode& error) {
    const auto handshake = weak.lock();
    if (error || handshake == nullptr) return;
    handshake->Abort(DeadlineExceeded(handshake->where_ +
                                      " did not complete the handshake of a data connection "
                                      "within " +
                                      Seconds(timeout)));
  });
  return made;
}

void TlsHandshake::Abort(const Status& why) {
  if (!aborted_.ok()) return;
  aborted_ = why;
  if (waiter_.is_open()) waiter_.release();  // whoever waits goes on
  stream_.Close();
}

asio::awaitable<Status> TlsHandshake::Await(State state) {
  const std::string what = "data connection with " + where_;
  if (state == State::kFailed) co_return stream_.error().WithContext(what);
  if (state == State::kEnded) co_return Unavailable(what + ": the peer closed it");
  const auto kind = state == State::kNeedsOutput ? asio::posix::stream_descriptor::wait_write
                                                 : asio::posix::stream_descriptor::wait_read;
  const auto [error] = co_await waiter_.async_wait(kind, kToken);
  co_return aborted_.ok() ? control::FromAsio(error, what) : aborted_;
}

asio::awaitable<Status> TlsHandshake::Authenticate() {
  while (true) {
    if (!aborted_.ok()) co_return aborted_;
    const uint64_t seen = stream_.received() + Unread(stream_.fd());
    if (seen > 0) silent_ = false;
    if (side_ == Side::kAcceptor && seen > kMaxUnauthenticatedBytes) {
      co_return InvalidArgument(where_ + " sent " + std::to_string(seen) +
                                " bytes without having shown the key; at most " +
                                std::to_string(kMaxUnauthenticatedBytes) + " are allowed");
    }
    const TlsStream::Moved moved = stream_.Handshake();
    if (moved.state == State::kMoved) break;
    if (stream_.other_key()) {
      co_return Unauthenticated("the keys of this process (" + tls_->key_ids() + ") and of " +
                                where_ + " differ; start both with the same --key_file (" +
                                stream_.error().message() + ")");
    }
    const Status status = co_await Await(moved.state);
    if (!status.ok()) co_return status;
  }
  // An acceptor asks while the peer still waits for it; a dialer when the peer has answered
  // (Greet).
  if (side_ == Side::kAcceptor && check_user_)
    stranger_ = control::CheckPeerUser(stream_.fd(), where_);
  co_return Status();
}

asio::awaitable<Status> TlsHandshake::Read(char* data, size_t bytes) {
  while (bytes > 0) {
    if (!aborted_.ok()) co_return aborted_;
    const TlsStream::Moved moved = stream_.Read(data, bytes);
    if (moved.state == State::kMoved) {
      data += moved.bytes;
      bytes -= moved.bytes;
      continue;
    }
    const Status status = co_await Await(moved.state);
    if (!status.ok()) co_return status;
  }
  co_return Status();
}

asio::awaitable<Status> TlsHandshake::Write(std::string bytes) {
  for (size_t done = 0; done < bytes.size();) {
    if (!aborted_.ok()) co_return aborted_;
    const TlsStream::Moved moved = stream_.Write(bytes.data() + done, bytes.size() - done);
    if (moved.state == State::kMoved) {
      done += moved.bytes;
      continue;
    }
    const Status status = co_await Await(moved.state);
    if (!status.ok()) co_return status;
  }
  co_return Status();
}

asio::awaitable<Status> TlsHandshake::ReadHello(TlsHello* hello) {
  std::array<char, TlsHello::kBytes> bytes;
  // The first bytes alone: what speaks another protocol may never send as many as a hello has.
  constexpr size_t kFirst = 4;
  Status status = co_await Read(bytes.data(), kFirst);
  if (!status.ok()) co_return status;
  silent_ = false;
  if (!IsHello({bytes.data(), kFirst}))
    co_return InvalidArgument(where_ +
                              " opened a data connection with bytes that are not Monograph's");
  status = co_await Read(bytes.data() + kFirst, bytes.size() - kFirst);
  if (!status.ok()) co_return status;
  const Result<TlsHello> decoded = DecodeHello({bytes.data(), bytes.size()});
  if (!decoded.ok()) co_return decoded.status().WithContext(where_);
  *hello = decoded.value();
  if (stranger_.ok()) co_return Status();
  const Status told = co_await Welcome(stranger_);
  co_return told.ok() ? stranger_ : told;
}

asio::awaitable<Status> TlsHandshake::Welcome(Status status) {
  co_return co_await Write(EncodeWelcome(status));
}

asio::awaitable<Status> TlsHandshake::Greet(TlsHello hello) {
  Status status = co_await Write(EncodeHello(hello));
  if (!status.ok()) co_return status;
  std::array<char, TlsWelcome::kPrefixBytes> prefix;
  status = co_await Read(prefix.data(), prefix.size());
  if (!status.ok()) co_return status;
  const Result<TlsWelcome> welcome = DecodeWelcome({prefix.data(), prefix.size()});
  if (!welcome.ok()) co_return welcome.status().WithContext(where_);
  std::string text(welcome->text_bytes, '\0');
  status = co_await Read(text.data(), text.size());
  if (!status.ok()) co_return status;
  if (welcome->code == 0)
    co_return check_user_ ? control::CheckPeerUser(stream_.fd(), where_) : Status();
  co_return Status(static_cast<Code>(welcome->code), where_ + " refused the connection: " + text);
}

TlsStream TlsHandshake::Take() {
  timer_.cancel();
  waiter_.release();
  return std::move(stream_);
}

}  // namespace monograph
