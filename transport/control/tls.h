// TLS 1.3 with an external pre-shared key and no certificates: whoever ends a handshake knows the
// key, on both sides. Ephemeral Diffie-Hellman is always part of it, so that a key stolen later
// opens no recorded traffic. The only code that knows OpenSSL's PSK calls.
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
  static Result<std::shared_ptr<TlsContext>> Make(const Key& key, bool server);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const { return context_; }
  const std::string& key_id() const { return key_id_; }

  // After a handshake that OpenSSL calls successful: Unauthenticated unless it rests on the
  // pre-shared key.
  static Status CheckPeer(ssl_st* connection);

 private:
  TlsContext() = default;
  static int UseSession(ssl_st* ssl, const evp_md_st* md, const unsigned char** id,
                        size_t* id_bytes, ssl_session_st** session);
  static int FindSession(ssl_st* ssl, const unsigned char* id, size_t id_bytes,
                         ssl_session_st** session);
  ssl_session_st* MakeSession(ssl_st* ssl) const;

  ssl_ctx_st* context_ = nullptr;
  Key key_;
  std::string key_id_;
};

}  // namespace monograph::control
