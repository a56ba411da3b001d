#include "tests/transport/tls_intruder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

namespace monograph {

Descriptor Dial(uint16_t port) {
  Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(made.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  return made;
}

void WriteAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other side has closed, which the test finds when it reads
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string ReadToEnd(int socket, bool* closed, std::chrono::milliseconds patience) {
  std::string all;
  *closed = false;
  pollfd ready{socket, POLLIN, 0};
  while (poll(&ready, 1, static_cast<int>(patience.count())) > 0) {
    std::array<char, 4096> bytes;
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      *closed = true;
      break;
    }
    all.append(bytes.data(), static_cast<size_t>(got));
  }
  return all;
}

KeyHolder::KeyHolder(uint16_t port, const control::Key& key, const std::string& hello)
    : context_(control::TlsContext::Make(key, /*server=*/false).value()), socket_(Dial(port)) {
  ssl_ = SSL_new(context_->native());
  SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(ssl_);
  while (SSL_do_handshake(ssl_) != 1) {
    Flush();
    if (!Fill(std::chrono::seconds(5))) {
      welcome_ = Unavailable("no handshake");
      return;
    }
  }
  Write(hello);
  const std::string prefix = Read(TlsWelcome::kPrefixBytes);
  if (prefix.empty()) {
    welcome_ = Unavailable("no welcome");
    return;
  }
  const auto welcome = DecodeWelcome(prefix);
  EXPECT_TRUE(welcome.ok()) << welcome.status();
  const std::string text = welcome->text_bytes == 0 ? "" : Read(welcome->text_bytes);
  welcome_ = welcome->code == 0 ? Status() : Status(static_cast<Code>(welcome->code), text);
}

KeyHolder::~KeyHolder() { SSL_free(ssl_); }

void KeyHolder::Flush() {
  std::array<char, 4096> bytes;
  int count;
  std::string out;
  while ((count = BIO_read(SSL_get_wbio(ssl_), bytes.data(), bytes.size())) > 0)
    out.append(bytes.data(), static_cast<size_t>(count));
  WriteAll(socket_.get(), out);
  sent_ += out;
}

bool KeyHolder::Fill(std::chrono::milliseconds patience) {
  pollfd ready{socket_.get(), POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return false;
  std::array<char, 4096> bytes;
  const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  return BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(got)) == got;
}

void KeyHolder::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t sent = 0;
    if (SSL_write_ex(ssl_, bytes.data(), bytes.size(), &sent) != 1) return;
    bytes.remove_prefix(sent);
    Flush();
  }
}

std::string KeyHolder::Read(size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t have = 0; have < bytes;) {
    size_t got = 0;
    if (SSL_read_ex(ssl_, all.data() + have, bytes - have, &got) == 1) {
      have += got;
    } else if (!Fill(std::chrono::seconds(5))) {
      return {};
    }
  }
  return all;
}

bool KeyHolder::IsClosed(std::chrono::milliseconds patience) {
  bool closed = false;
  ReadToEnd(socket_.get(), &closed, patience);
  return closed;
}

void KeyHolder::Close() { socket_.Close(); }

}  // namespace monograph
