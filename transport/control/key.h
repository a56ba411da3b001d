// The shared key of a cluster: 256 random bits that every daemon and client of the cluster knows.
// It authenticates both ends of each control connection (TLS 1.3 with a pre-shared key). As text it
// is one line of 64 hexadecimal digits; in a file that text with mode 0600. All functions may be
// called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::control {

class Key {
 public:
  static constexpr size_t kBytes = 32;

  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();  // wipes the bytes

  std::array<uint8_t, kBytes> bytes{};

  friend bool operator==(const Key& a, const Key& b) { return a.bytes == b.bytes; }
};

// From the kernel's random generator.
Result<Key> GenerateKey();

// 64 hexadecimal digits; white space around them is ignored when parsing.
std::string FormatKey(const Key& key);
Result<Key> ParseKey(std::string_view text);

// Eight hexadecimal digits that tell keys apart and may be shown to anybody.
std::string KeyId(const Key& key);

// Creates `path` with mode 0600. AlreadyExists if there is such a file: a key is never overwritten.
Status WriteKeyFile(const std::string& path, const Key& key);

// FailedPrecondition for a file that others than its owner may read; InvalidArgument for one that
// holds no key.
Result<Key> ReadKeyFile(const std::string& path);

// Reads the first line of an open descriptor (standard input of a daemon that was started over
// ssh); blocks until it is there.
Result<Key> ReadKeyFrom(int descriptor);

}  // namespace monograph::control
