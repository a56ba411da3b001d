// What attackers of the TLS transport are made of: sockets, and TLS connections that are driven by
// hand.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "transport/control/key.h"
#include "transport/control/tls.h"
#include "transport/tls/tls_frame.h"

struct ssl_st;

namespace monograph {

// A connected socket of 127.0.0.1.
Descriptor Dial(uint16_t port);
void WriteAll(int socket, std::string_view bytes);
// What comes until the other side closes, or nothing has come for `patience`.
std::string ReadToEnd(int socket, bool* closed,
                      std::chrono::milliseconds patience = std::chrono::seconds(5));

// A connection that knows the key, as a stream of the transport `to`.
class KeyHolder {
 public:
  // Shakes hands by memory, so that what is sent can be kept. `hello` is sent as it is.
  KeyHolder(uint16_t port, const control::Key& key, const std::string& hello);
  KeyHolder(uint16_t port, const control::Key& key, const TlsHello& hello)
      : KeyHolder(port, key, EncodeHello(hello)) {}
  ~KeyHolder();

  // The welcome: its code, and its text.
  Status welcome() const { return welcome_; }
  void Write(std::string_view bytes);
  // Exactly so many bytes; empty if the connection ends before.
  std::string Read(size_t bytes);
  // True if the other side closes within `patience`; drops what comes until then.
  bool IsClosed(std::chrono::milliseconds patience = std::chrono::seconds(5));
  void Close();
  // All bytes that were sent to the socket.
  const std::string& sent() const { return sent_; }

 private:
  void Flush();
  bool Fill(std::chrono::milliseconds patience);

  std::shared_ptr<control::TlsContext> context_;
  Descriptor socket_;
  ssl_st* ssl_ = nullptr;
  Status welcome_;
  std::string sent_;
};

}  // namespace monograph
