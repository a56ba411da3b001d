// Writing and reading protocol buffers' wire format by hand, where building messages first would
// cost more than all the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace monograph::wire_format {

inline void PutVarint(std::string* out, uint64_t value) {
  while (value > 127) {
    out->push_back(static_cast<char>(value | 128));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// A length-delimited field: string, bytes or message. REQUIRES: field < 16.
inline void PutBytes(std::string* out, int field, std::string_view bytes) {
  out->push_back(static_cast<char>(field << 3 | 2));
  PutVarint(out, bytes.size());
  out->append(bytes);
}

// Reads fields one after another and never past the end: after the first mistake ok() is false and
// done() true.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return at_ == end_; }
  bool ok() const { return ok_; }
  const char* at() const { return at_; }
  void Fail() {
    ok_ = false;
    at_ = end_;
  }
  uint64_t Varint() { return Varint(10); }
  // Of a field; its number is not 0.
  uint64_t Tag() {
    const uint64_t tag = Varint(5);
    if (tag > UINT32_MAX || tag >> 3 == 0) Fail();
    return tag;
  }
  // What follows the tag of a length-delimited field: a view.
  bool Bytes(std::string_view* bytes) {
    const uint64_t size = Varint(5);
    if (!ok_ || size > static_cast<uint64_t>(end_ - at_)) {
      Fail();
      return false;
    }
    *bytes = {at_, static_cast<size_t>(size)};
    at_ += size;
    return true;
  }
  // Over what follows the tag of a field of any type but groups.
  void Skip(uint64_t tag) {
    std::string_view bytes;
    switch (tag & 7) {
      case 0:
        Varint();
        break;
      case 1:
        Pass(8);
        break;
      case 2:
        Bytes(&bytes);
        break;
      case 5:
        Pass(4);
        break;
      default:
        Fail();
    }
  }
  template <typename T>
  bool Fixed32(T* value) {
    static_assert(sizeof(T) == 4);
    if (end_ - at_ < 4) {
      Fail();
      return false;
    }
    std::memcpy(value, at_, 4);
    at_ += 4;
    return true;
  }

 private:
  void Pass(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) return Fail();
    at_ += bytes;
  }
  uint64_t Varint(int most_bytes) {
    uint64_t value = 0;
    for (int shift = 0; at_ != end_ && shift < 7 * most_bytes; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    Fail();
    return 0;
  }

  const char* at_;
  const char* const end_;
  bool ok_ = true;
};

}  // namespace monograph::wire_format
