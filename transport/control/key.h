// The shared key of a cluster: 256 random bits that every daemon and client of the cluster knows.
// It authenticates both ends of each connection (TLS 1.3 with a pre-shared key). As text it is one
// line of 64 hexadecimal digits; a key file has mode 0600 and that line or, while the cluster's key
// is being changed, two. All functions may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

// The key that a task dials with, and one more that it accepts.
struct Keys {
  Keys() = default;
  Keys(const Key& key) : first(key) {}  // implicit: mostly there is one
  Keys(const Key& dial, const Key& accept) : first(dial), second(accept) {}

  Key first;
  std::optional<Key> second;

  friend bool operator==(const Keys& a, const Keys& b) = default;
};

// From the kernel's random generator.
Result<Key> GenerateKey();

// InvalidArgument for a key that cannot be random: zeros, all bytes equal, bytes that count up or
// down, or fewer than 12 different ones.
Status CheckKey(const Key& key);

// 64 hexadecimal digits; white space around them is ignored when parsing. InvalidArgument for
// another text and as CheckKey.
std::string FormatKey(const Key& key);
Result<Key> ParseKey(std::string_view text);

// Eight hexadecimal digits that tell keys apart and may be shown to anybody.
std::string KeyId(const Key& key);
// "id 932751cc", "ids 932751cc and 1f00ba42".
std::string KeyIds(const Keys& keys);

// Creates `path` with mode 0600. AlreadyExists if there is such a file: a key is never overwritten.
Status WriteKeyFile(const std::string& path, const Key& key);

// Puts a file with these keys in the place of `path` in one step, so that a reader sees the old
// keys or the new ones.
Status ReplaceKeyFile(const std::string& path, const Keys& keys);

// FailedPrecondition for a file that belongs to another user than this process or root, or that
// others may read; InvalidArgument for one that does not hold one key or two; else the errors of
// InputFile (base/input_file.h).
Result<Keys> ReadKeyFile(const std::string& path);

// Reads the first line of an open descriptor (standard input of a daemon that was started over
// ssh); blocks until it is there.
Result<Key> ReadKeyFrom(int descriptor);

}  // namespace monograph::control
