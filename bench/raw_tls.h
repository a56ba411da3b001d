// Bare OpenSSL: what an encrypted lane costs at the very least. SSL_write and SSL_read over TCP of
// this machine, the cipher and key of ours, one thread on each side.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bench/harness.h"
#include "transport/control/key.h"

struct ssl_st;

namespace monograph::bench {

class RawTls {
 public:
  // Forks. REQUIRES: no other threads. `streams`: for payloads, beside the one for messages.
  RawTls(const control::Key& key, int streams, size_t largest);
  ~RawTls();
  // May be called when threads exist.
  void Connect();

  // Seconds per round trip of 64 bytes. Both sides sleep until the message is there, or `spin`: ask
  // for it again and again.
  double RoundTrip(long steps, bool spin);
  // Bytes per second into the memory of the other process, over the first `streams` of them in
  // turn.
  double Transfer(size_t bytes, int streams, long count);
  // The same number of bytes encrypted in memory and decrypted again, no socket between: bytes per
  // second if each side has a core of its own.
  static double Cipher(size_t bytes);

 private:
  const control::Key key_;
  const int streams_;
  const size_t largest_;
  Descriptor listener_;
  char* source_ = nullptr;
  std::vector<ssl_st*> connections_;  // [0]: messages
  std::unique_ptr<Child> child_;
};

}  // namespace monograph::bench
