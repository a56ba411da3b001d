// Keys as bytes, as text and in files. Memory that has held a key is wiped. A key file is opened
// first and then checked by its descriptor, so that the file that was checked is the one that is
// read; a new one is created with O_EXCL, so that no key is ever overwritten.
#include "transport/control/key.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"

namespace monograph::control {
namespace {

constexpr size_t kMaxTextBytes = 4096;

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
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  text = first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
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
  return key;
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
  std::string text = FormatKey(key) + "\n";
  const ssize_t written = write(file.get(), text.data(), text.size());
  const int error = errno;
  const bool complete = written == static_cast<ssize_t>(text.size());
  Wipe(text);
  // The umask may have cut bits of the mode given to open, the owner's too: set it.
  if (!complete || fchmod(file.get(), 0600) != 0 || fsync(file.get()) != 0) {
    unlink(path.c_str());
    return Internal("cannot write key file '" + path + "': " + ErrorText(complete ? errno : error));
  }
  return Status();
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

Result<Key> ReadKeyFile(const std::string& path) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.get() < 0) {
    const int error = errno;
    std::string text = "cannot read key file '" + path + "': " + ErrorText(error);
    if (error == ENOENT) return NotFound(text + "; make one with `monograph keygen`");
    return error == EACCES ? PermissionDenied(std::move(text)) : InvalidArgument(std::move(text));
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument("key file '" + path + "' is not a regular file");
  }
  if ((info.st_mode & 077) != 0) {
    return FailedPrecondition("key file '" + path +
                              "' can be read or changed by others than its owner; run `chmod 600 " +
                              path + "`, and make a new key if somebody may have seen it");
  }
  Result<Key> key = ReadKeyFrom(file.get());
  if (!key.ok()) return key.status().WithContext("key file '" + path + "'");
  char c = 0;
  while (read(file.get(), &c, 1) == 1) {
    if (c != '\n' && c != '\r' && c != ' ') {
      return InvalidArgument(
          "key file '" + path +
          "' holds more than one key; a key is one line of 64 hexadecimal digits");
    }
  }
  return key;
}

}  // namespace monograph::control
