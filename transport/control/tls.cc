#include "transport/control/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string_view>

namespace monograph::control {
namespace {

constexpr char kApplication[] = "monograph";
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

// Where an SSL_CTX keeps the TlsContext it belongs to. (Asio takes the application data for its
// own.)
int OwnerIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

Status FromOpenSsl(const char* what) {
  char text[256] = "unknown error";
  if (const unsigned long error = ERR_get_error(); error != 0)
    ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return Internal(std::string(what) + ": " + text);
}

// How a client names its key.
std::string IdentityOf(const Key& key) { return std::string(kApplication) + " " + KeyId(key); }

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Make(const Keys& keys, bool server) {
  MG_RETURN_IF_ERROR(CheckKey(keys.first));
  if (keys.second) MG_RETURN_IF_ERROR(CheckKey(*keys.second));
  std::shared_ptr<TlsContext> tls(new TlsContext);
  tls->keys_ = server ? keys : Keys(keys.first);
  tls->key_ids_ = KeyIds(tls->keys_);
  tls->identity_ = IdentityOf(tls->keys_.first);
  if (tls->keys_.second) tls->second_identity_ = IdentityOf(*tls->keys_.second);
  tls->context_ = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  if (tls->context_ == nullptr) return FromOpenSsl("cannot set up TLS");
  SSL_CTX* context = tls->context_;
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1) {
    return FromOpenSsl("cannot set up TLS 1.3");
  }
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A peer that does not use the key would have to show a certificate, and no authority is trusted
  // here.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_ex_data(context, OwnerIndex(), tls.get());
  if (server) {
    // OpenSSL checks peers of resumed sessions only within a named context.
    SSL_CTX_set_session_id_context(context, reinterpret_cast<const unsigned char*>(kApplication),
                                   sizeof kApplication - 1);
    SSL_CTX_set_psk_find_session_callback(context, &TlsContext::FindSession);
  } else {
    SSL_CTX_set_psk_use_session_callback(context, &TlsContext::UseSession);
  }
  return tls;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

SSL_SESSION* TlsContext::MakeSession(SSL* ssl, const Key& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  SSL_SESSION* session = SSL_SESSION_new();
  if (cipher == nullptr || session == nullptr ||
      SSL_SESSION_set1_master_key(session, key.bytes.data(), key.bytes.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int TlsContext::UseSession(SSL* ssl, const EVP_MD* md, const unsigned char** id, size_t* id_bytes,
                           SSL_SESSION** session) {
  const auto* tls =
      static_cast<const TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), OwnerIndex()));
  *id = reinterpret_cast<const unsigned char*>(tls->identity_.data());
  *id_bytes = tls->identity_.size();
  *session = MakeSession(ssl, tls->keys_.first);
  if (*session == nullptr) return 0;
  // A retried handshake asks for a key that goes with one hash; ours goes with SHA-256.
  if (md != nullptr && SSL_CIPHER_get_handshake_digest(SSL_SESSION_get0_cipher(*session)) != md) {
    SSL_SESSION_free(*session);
    *session = nullptr;
  }
  return 1;
}

int TlsContext::FindSession(SSL* ssl, const unsigned char* id, size_t id_bytes,
                            SSL_SESSION** session) {
  const auto* tls =
      static_cast<const TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), OwnerIndex()));
  // Whatever else the peer names is held against the first key, which it then fails to prove.
  const bool second = tls->keys_.second && std::string_view(reinterpret_cast<const char*>(id),
                                                            id_bytes) == tls->second_identity_;
  *session = MakeSession(ssl, second ? *tls->keys_.second : tls->keys_.first);
  return *session != nullptr ? 1 : 0;
}

Status TlsContext::CheckPeer(SSL* connection) {
  // OpenSSL reports an external pre-shared key as a resumed session.
  if (SSL_version(connection) == TLS1_3_VERSION && SSL_session_reused(connection) == 1)
    return Status();
  return Unauthenticated("the TLS handshake did not use the cluster's key");
}

}  // namespace monograph::control
