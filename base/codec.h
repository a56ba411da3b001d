// Encoder and Decoder: fixed-width little-endian integers and length-prefixed bytes, for message
// headers on the data plane. A Decoder never reads past its input: after the first short read every
// later one gives zeros and ok() is false.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace monograph {

class Encoder {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Put(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  // 32-bit length, then the bytes.
  void PutBytes(std::string_view bytes) {
    Put(static_cast<uint32_t>(bytes.size()));
    bytes_.append(bytes);
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }
  void Clear() { bytes_.clear(); }

 private:
  std::string bytes_;
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes) {}
  explicit Decoder(std::span<const std::byte> bytes)
      : rest_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T Get() {
    T value{};
    if (rest_.size() < sizeof value) {
      ok_ = false;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  // A view into the input.
  std::string_view GetBytes() {
    const auto size = Get<uint32_t>();
    if (rest_.size() < size) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace monograph
