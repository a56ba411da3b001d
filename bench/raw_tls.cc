// A second process has the other ends of the connections and obeys lines on its pipe: connect, echo
// messages back, or read so many payloads. A payload goes out in pieces, which the streams take in
// turn, from one thread: what is measured is OpenSSL and the kernel, without a transport.
#include "bench/raw_tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>

#include "bench/raw_ucx.h"
#include "transport/control/tls.h"

namespace monograph::bench {
namespace {

constexpr size_t kPiece = 512 << 10;  // of a payload, to one stream
constexpr size_t kRecord = 16 << 10;
constexpr size_t kMessage = 64;

void Check(bool ok, const char* what) {
  if (!ok) Die(std::string("bare OpenSSL: ") + what + " failed");
}

SSL* Handshake(int socket, const control::Key& key, bool server) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  auto made = control::TlsContext::Make(key, server);
  Check(made.ok(), "a context");
  // Its callbacks need it as long as this process lives.
  static auto* const contexts = new std::vector<std::shared_ptr<control::TlsContext>>;
  contexts->push_back(*made);
  SSL* ssl = SSL_new((*made)->native());
  SSL_set_fd(ssl, socket);
  SSL_clear_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
  Check((server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1, "a handshake");
  return ssl;
}

// Whether SSL_read waits for bytes.
void SetBlocking(SSL* ssl, bool blocks) {
  const int fd = SSL_get_fd(ssl), flags = fcntl(fd, F_GETFL);
  Check(fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) == 0, "fcntl");
}

void WriteAll(SSL* ssl, const char* data, size_t bytes) {
  size_t sent = 0;
  Check(SSL_write_ex(ssl, data, bytes, &sent) == 1 && sent == bytes, "SSL_write");
}

void ReadAll(SSL* ssl, char* data, size_t bytes) {
  while (bytes > 0) {
    size_t got = 0;
    if (SSL_read_ex(ssl, data, bytes, &got) != 1) {
      Check(SSL_get_error(ssl, 0) == SSL_ERROR_WANT_READ, "SSL_read");
      sched_yield();
      continue;
    }
    data += got;
    bytes -= got;
  }
}

// The streams take a payload's pieces in turn.
template <typename Move>
void ForEachPiece(size_t bytes, int streams, Move move) {
  int next = 0;
  for (size_t at = 0; at < bytes; at += kPiece) {
    move(static_cast<size_t>(1 + next), at, std::min(kPiece, bytes - at));
    next = (next + 1) % streams;
  }
}

}  // namespace

RawTls::RawTls(const control::Key& key, int streams, size_t largest)
    : key_(key),
      streams_(streams),
      largest_(largest),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof where;
  auto* address = reinterpret_cast<sockaddr*>(&where);
  Check(bind(listener_.get(), address, length) == 0 && listen(listener_.get(), 16) == 0 &&
            getsockname(listener_.get(), address, &length) == 0,
        "listening");
  child_ = Child::Fork([this, where](Child::Channel& parent) {
    char* const sink = HugePages(largest_);
    std::vector<SSL*> connections;
    parent.ReadLine();
    for (int i = 0; i <= streams_; ++i) {
      const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      Check(connect(connected, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0,
            "connecting");
      connections.push_back(Handshake(connected, key_, false));
    }
    parent.WriteLine("connected");
    std::array<char, kMessage> message{};
    while (true) {
      std::istringstream command(parent.ReadLine());
      std::string what;
      long count = 0;
      size_t bytes = 0;
      int used = 1;
      command >> what >> count >> bytes >> used;
      const bool spins = what == "spin", echoes = spins || what == "echo";
      SetBlocking(connections[0], !spins);
      parent.WriteLine("ready");
      for (long i = 0; i < count; ++i) {
        if (echoes) {
          ReadAll(connections[0], message.data(), message.size());
          WriteAll(connections[0], message.data(), message.size());
        } else {
          ForEachPiece(bytes, used, [&](size_t stream, size_t at, size_t piece) {
            ReadAll(connections[stream], sink + at, piece);
          });
        }
      }
      if (!echoes) WriteAll(connections[0], message.data(), message.size());
    }
  });
}

RawTls::~RawTls() {
  for (SSL* connection : connections_) SSL_free(connection);
}

void RawTls::Connect() {
  source_ = HugePages(largest_);
  child_->Tell("connect");
  for (int i = 0; i <= streams_; ++i) {
    const int accepted = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    Check(accepted >= 0, "accepting");
    connections_.push_back(Handshake(accepted, key_, true));
  }
  Check(child_->Hear().has_value(), "starting a process");
}

double RawTls::RoundTrip(long steps, bool spin) {
  child_->Ask((spin ? "spin " : "echo ") + std::to_string(steps));
  SetBlocking(connections_[0], !spin);
  std::array<char, kMessage> message{};
  const double start = Now();
  for (long i = 0; i < steps; ++i) {
    WriteAll(connections_[0], message.data(), message.size());
    ReadAll(connections_[0], message.data(), message.size());
  }
  const double seconds = Now() - start;
  SetBlocking(connections_[0], true);
  return seconds / static_cast<double>(steps);
}

double RawTls::Transfer(size_t bytes, int streams, long count) {
  child_->Ask("sink " + std::to_string(count) + " " + std::to_string(bytes) + " " +
              std::to_string(streams));
  std::array<char, kMessage> message{};
  const double start = Now();
  for (long i = 0; i < count; ++i) {
    ForEachPiece(bytes, streams, [&](size_t stream, size_t at, size_t piece) {
      WriteAll(connections_[stream], source_ + at, piece);
    });
  }
  ReadAll(connections_[0], message.data(), message.size());
  return static_cast<double>(bytes) * static_cast<double>(count) / (Now() - start);
}

double RawTls::Cipher(size_t bytes) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  std::array<unsigned char, 16> key{}, tag{};
  std::array<unsigned char, 12> nonce{};
  std::vector<unsigned char> plain(kRecord), cipher(kRecord);
  int length = 0;
  const double start = Now();
  EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nullptr, key.data(), nonce.data());
  for (size_t done = 0; done < bytes; done += kRecord) {
    EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data());
    EVP_EncryptUpdate(context, cipher.data(), &length, plain.data(), kRecord);
    EVP_EncryptFinal_ex(context, tag.data(), &length);
    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, tag.size(), tag.data());
  }
  const double seconds = Now() - start;
  EVP_CIPHER_CTX_free(context);
  return static_cast<double>(bytes) / seconds;
}

}  // namespace monograph::bench
