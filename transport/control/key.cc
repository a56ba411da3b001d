// Keys as bytes, as text and in files. Memory that has held a key is wiped. A key file is opened
// first, as every input (base/input_file.h), and then checked by its descriptor, so that the file
// that was checked is the one that is read; a new one is created with O_EXCL, so that no key is
// ever overwritten.
#include "transport/control/key.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "base/descriptor.h"
#include "base/input_file.h"
#include "transport/control/peer_user.h"

namespace monograph::control {
namespace {

constexpr size_t kMaxTextBytes = 4096;
// Of 32 random bytes some 30 are different; fewer than 12 are in one of 10^24 keys.
constexpr size_t kDifferentBytes = 12;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // editors of Windows write it

std::string ErrorText(int error) { return std::strerror(error); }

std::string Hex(const uint8_t* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (size_t i = 0; i < count; ++i) {
    text.push_back(kDigits[bytes[i] >> 4]);
    text.push_back(kDigits[bytes[i] & 15]);
  }
  return text;
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void Wipe(std::string& text) { explicit_bzero(text.data(), text.size()); }

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// One key or two, a line each.
Result<Keys> ParseKeys(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<Key> keys;
  for (text = Trimmed(text); !text.empty() || keys.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    MG_ASSIGN_OR_RETURN(const Key key, ParseKey(line));
    keys.push_back(key);
    if (keys.size() > 2)
      return InvalidArgument(
          "more than two keys; a key is one line of 64 hexadecimal digits, and a file has one or, "
          "while the cluster's key is changed, two");
    text = Trimmed(text.substr(line.size()));
  }
  if (keys.size() == 1) return Keys(keys[0]);
  if (keys[0] == keys[1]) return InvalidArgument("the same key twice; remove one of the lines");
  return Keys(keys[0], keys[1]);
}

// Writes the keys to a new file, whose descriptor this is.
Status WriteKeys(const Descriptor& file, const std::string& path, const Keys& keys) {
  std::string text = FormatKey(keys.first) + "\n";
  if (keys.second) text += FormatKey(*keys.second) + "\n";
  const ssize_t written = write(file.get(), text.data(), text.size());
  int error = written < 0 ? errno : ENOSPC;
  const bool complete = written == static_cast<ssize_t>(text.size());
  Wipe(text);
  // The umask may have cut bits of the mode given to open, the owner's too: set it.
  if (complete && fchmod(file.get(), 0600) == 0 && fsync(file.get()) == 0) return Status();
  if (complete) error = errno;
  return Internal("cannot write key file '" + path + "': " + ErrorText(error));
}

}  // namespace

Key::~Key() { explicit_bzero(bytes.data(), bytes.size()); }

Result<Key> GenerateKey() {
  Key key;
  size_t filled = 0;
  while (filled < key.bytes.size()) {
    const ssize_t got = getrandom(key.bytes.data() + filled, key.bytes.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Internal("cannot get random bytes for a key: " + ErrorText(errno));
    filled += static_cast<size_t>(got);
  }
  return key;
}

std::string FormatKey(const Key& key) { return Hex(key.bytes.data(), key.bytes.size()); }

Result<Key> ParseKey(std::string_view text) {
  text = Trimmed(text);
  if (text.size() != 2 * Key::kBytes) {
    return InvalidArgument("a key is 64 hexadecimal digits, this text has " +
                           std::to_string(text.size()) +
                           " characters; make a key with `monograph keygen`");
  }
  Key key;
  for (size_t i = 0; i < Key::kBytes; ++i) {
    const int high = DigitValue(text[2 * i]);
    const int low = DigitValue(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return InvalidArgument("a key is 64 hexadecimal digits, character " +
                             std::to_string(2 * i + (high < 0 ? 1 : 2)) +
                             " of this text is none; make a key with `monograph keygen`");
    }
    key.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  MG_RETURN_IF_ERROR(CheckKey(key));
  return key;
}

Status CheckKey(const Key& key) {
  const std::set<uint8_t> different(key.bytes.begin(), key.bytes.end());
  bool regular = true;
  for (size_t i = 2; i < Key::kBytes; ++i) {
    regular = regular && static_cast<uint8_t>(key.bytes[i] - key.bytes[i - 1]) ==
                             static_cast<uint8_t>(key.bytes[1] - key.bytes[0]);
  }
  if (!regular && different.size() >= kDifferentBytes) return Status();
  return InvalidArgument("this key is no random one (" +
                         (different.size() == 1 ? "all its bytes are the same"
                          : regular
                              ? "its bytes only count"
                              : "it has " + std::to_string(different.size()) + " different bytes") +
                         "), so that others can guess it; make one with `monograph keygen`");
}

std::string KeyId(const Key& key) {
  constexpr std::string_view kPurpose = "monograph key id";
  std::array<uint8_t, kPurpose.size() + Key::kBytes> input;
  std::memcpy(input.data(), kPurpose.data(), kPurpose.size());
  std::memcpy(input.data() + kPurpose.size(), key.bytes.data(), Key::kBytes);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(input.data(), input.size(), digest.data());
  explicit_bzero(input.data(), input.size());
  return Hex(digest.data(), 4);
}

std::string KeyIds(const Keys& keys) {
  if (!keys.second) return "id " + KeyId(keys.first);
  return "ids " + KeyId(keys.first) + " and " + KeyId(*keys.second);
}

Status WriteKeyFile(const std::string& path, const Key& key) {
  Descriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (file.get() < 0) {
    if (errno == EEXIST) {
      return AlreadyExists(
          "'" + path +
          "' exists already and may hold a key in use; choose another name or remove it first");
    }
    return InvalidArgument("cannot create key file '" + path + "': " + ErrorText(errno));
  }
  const Status status = WriteKeys(file, path, key);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

Status ReplaceKeyFile(const std::string& path, const Keys& keys) {
  std::string made = path + ".XXXXXX";
  Descriptor file{mkostemp(made.data(), O_CLOEXEC)};
  if (file.get() < 0)
    return InvalidArgument("cannot write a file beside '" + path + "': " + ErrorText(errno));
  Status status = WriteKeys(file, made, keys);
  if (status.ok() && rename(made.c_str(), path.c_str()) != 0)
    status = Internal("cannot replace key file '" + path + "': " + ErrorText(errno));
  if (!status.ok()) unlink(made.c_str());
  return status;
}

Result<Key> ReadKeyFrom(int descriptor) {
  std::string text;
  char c = 0;
  // Byte by byte: what follows the key on this descriptor belongs to others.
  for (;;) {
    const ssize_t got = read(descriptor, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("cannot read the key: " + ErrorText(errno));
    if (got == 0 || (c == '\n' && !text.empty())) break;
    text.push_back(c);
    if (text.size() > kMaxTextBytes) break;
  }
  Result<Key> key = ParseKey(text);
  Wipe(text);
  return key;
}

Result<Keys> ReadKeyFile(const std::string& path) {
  Result<InputFile> opened = InputFile::Open("key file", path);
  if (opened.status().code() == Code::kNotFound)
    return NotFound(opened.status().message() + "; make one with `monograph keygen`");
  MG_RETURN_IF_ERROR(opened.status());
  if (opened->size() > kMaxTextBytes) {
    return InvalidArgument("key file '" + path + "' has " + std::to_string(opened->size()) +
                           " bytes; a key is one line of 64 hexadecimal digits");
  }
  const Descriptor file = std::move(*opened).Release();
  struct stat info {};
  if (fstat(file.get(), &info) != 0)
    return FailedPrecondition("cannot read key file '" + path + "': " + ErrorText(errno));
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return FailedPrecondition("key file '" + path + "' belongs to " + UserName(info.st_uid) +
                              ", who so knows the key, and not to " + UserName(geteuid()) +
                              ", as whom this process runs; copy it to a file of your own");
  }
  if ((info.st_mode & 077) != 0) {
    return FailedPrecondition("key file '" + path +
                              "' can be read or changed by others than its owner; run `chmod 600 " +
                              path + "`, and make a new key if somebody may have seen it");
  }
  std::string text(kMaxTextBytes, '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(file.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("cannot read key file '" + path + "': " + ErrorText(errno));
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  Result<Keys> keys = ParseKeys(std::string_view(text).substr(0, have));
  Wipe(text);
  if (!keys.ok()) return keys.status().WithContext("key file '" + path + "'");
  return keys;
}

}  // namespace monograph::control
