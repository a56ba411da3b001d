// TLS 1.3 with an external pre-shared key and no certificates: whoever ends a handshake knows the
// key, on both sides. Ephemeral Diffie-Hellman is always part of it, so that a key stolen later
// opens no recorded traffic. The client names the key that it uses by its id; a server with two
// takes either. The only code that knows OpenSSL's PSK calls.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/control/key.h"

struct evp_md_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace monograph::control {

class TlsContext {
 public:
  // A client uses the first key only. InvalidArgument for a key that cannot be random (CheckKey).
  static Result<std::shared_ptr<TlsContext>> Make(const Keys& keys, bool server);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const { return context_; }
  // "id 932751cc": of the keys that count here.
  const std::string& key_ids() const { return key_ids_; }

  // After a handshake that OpenSSL calls successful: Unauthenticated unless it rests on the
  // pre-shared key.
  static Status CheckPeer(ssl_st* connection);

 private:
  TlsContext() = default;
  static int UseSession(ssl_st* ssl, const evp_md_st* md, const unsigned char** id,
                        size_t* id_bytes, ssl_session_st** session);
  static int FindSession(ssl_st* ssl, const unsigned char* id, size_t id_bytes,
                         ssl_session_st** session);
  static ssl_session_st* MakeSession(ssl_st* ssl, const Key& key);

  ssl_ctx_st* context_ = nullptr;
  Keys keys_;
  std::string key_ids_, identity_, second_identity_;
};

}  // namespace monograph::control
