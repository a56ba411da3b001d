// OpenSSL works on the socket's descriptor itself, which keeps kernel TLS possible. Once the peer
// has shown the key, OpenSSL reads what has come, up to several records at a time; before, it reads
// what one message needs, so that who has no key gets little read.
#include "transport/tls/tls_stream.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "transport/control/tls.h"

namespace monograph {
namespace {

// Four records of TLS, which a system call takes from the socket.
constexpr size_t kReadAhead = 4 * SSL3_RT_MAX_ENCRYPTED_LENGTH;

}  // namespace

TlsStream::TlsStream(Descriptor fd, Side side, SSL_CTX* context, uint64_t rekey_bytes)
    : fd_(std::move(fd)), rekey_bytes_(rekey_bytes) {
  if (context == nullptr) return;
  ssl_.reset(SSL_new(context));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_.get()) != 1) {
    error_ = ResourceExhausted("there is no memory for TLS");
    Close();
    return;
  }
  SSL_set_default_read_buffer_len(ssl_.get(), kReadAhead);
  side == Side::kAcceptor ? SSL_set_accept_state(ssl_.get()) : SSL_set_connect_state(ssl_.get());
}

void TlsStream::FreeSsl::operator()(SSL* ssl) const { SSL_free(ssl); }

bool TlsStream::KernelSends() const {
  return ssl_ != nullptr && BIO_get_ktls_send(SSL_get_wbio(ssl_.get())) == 1;
}

TlsStream::Moved TlsStream::Fail(int result) {
  const int system_error = errno;
  if (ssl_ == nullptr) {
    error_ = Unavailable(std::strerror(system_error));
    return {State::kFailed, 0};
  }
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {State::kNeedsInput, 0};
    case SSL_ERROR_WANT_WRITE:
      return {State::kNeedsOutput, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {State::kEnded, 0};
    case SSL_ERROR_SSL: {
      const unsigned long code = ERR_peek_error();
      const int reason = ERR_GET_REASON(code);
      // The end of a TCP connection without TLS's goodbye. Frames tell whether something is
      // missing.
      if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return {State::kEnded, 0};
      char text[256];
      ERR_error_string_n(code, text, sizeof text);
      // Another key: the acceptor sees a binder that does not verify, the dialer the alert that
      // follows.
      other_key_ = SSL_is_init_finished(ssl_.get()) == 0 &&
                   (reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason >= SSL_AD_REASON_OFFSET);
      error_ = Unauthenticated(text);
      return {State::kFailed, 0};
    }
    default:
      error_ =
          Unavailable(system_error == 0 ? "it was closed or reset" : std::strerror(system_error));
      return {State::kFailed, 0};
  }
}

TlsStream::Moved TlsStream::Handshake() {
  if (!error_.ok()) return {State::kFailed, 0};
  if (ssl_ == nullptr) return {};
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) return Fail(result);
  SSL_set_read_ahead(ssl_.get(), 1);
  error_ = control::TlsContext::CheckPeer(ssl_.get());
  return {error_.ok() ? State::kMoved : State::kFailed, 0};
}

TlsStream::Moved TlsStream::Write(const void* data, size_t bytes) {
  errno = 0;
  if (ssl_ == nullptr) {
    const ssize_t sent = send(fd_.get(), data, bytes, MSG_NOSIGNAL);
    if (sent >= 0) return {State::kMoved, static_cast<size_t>(sent)};
    if (errno == EAGAIN) return {State::kNeedsOutput, 0};
    return Fail(-1);
  }
  ERR_clear_error();
  // The kernel cannot change the keys that it was given.
  if (written_ >= rekey_bytes_ && !mid_write_ && !KernelSends()) {
    written_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return Fail(0);
  }
  size_t sent = 0;
  const int result = SSL_write_ex(ssl_.get(), data, bytes, &sent);
  mid_write_ = result != 1;
  if (result != 1) return Fail(result);
  written_ += sent;
  return {State::kMoved, sent};
}

TlsStream::Moved TlsStream::Read(void* data, size_t bytes) {
  errno = 0;
  if (ssl_ == nullptr) {
    const ssize_t got = recv(fd_.get(), data, bytes, 0);
    if (got > 0) return {State::kMoved, static_cast<size_t>(got)};
    if (got == 0) return {State::kEnded, 0};
    if (errno == EAGAIN) return {State::kNeedsInput, 0};
    return Fail(-1);
  }
  ERR_clear_error();
  size_t got = 0;
  const int result = SSL_read_ex(ssl_.get(), data, bytes, &got);
  if (result != 1) return Fail(result);
  return {State::kMoved, got};
}

uint64_t TlsStream::received() const {
  return ssl_ == nullptr ? 0 : BIO_number_read(SSL_get_rbio(ssl_.get()));
}

bool TlsStream::Leaves(std::chrono::milliseconds time) const {
  int bytes = 0;
  tcp_info info{};
  socklen_t length = sizeof info;
  return fd_.get() >= 0 && ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 &&
         getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_last_ack_recv < time.count();
}

std::string TlsStream::Describe() const {
  if (ssl_ == nullptr) return "plain tcp";
  return KernelSends() ? "kernel tls" : "openssl";
}

void TlsStream::EndOutput() { (void)shutdown(fd_.get(), SHUT_WR); }

void TlsStream::Close() {
  ssl_.reset();
  fd_.Close();
}

NoSigpipe::NoSigpipe() {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  blocked_ = sigismember(&before, SIGPIPE) == 0;
}

NoSigpipe::~NoSigpipe() {
  if (!blocked_) return;
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec at_once{};
  while (sigtimedwait(&pipe, nullptr, &at_once) == -1 && errno == EINTR) {
  }
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace monograph
