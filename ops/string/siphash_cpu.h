// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a hash of 64 bits
// under a key, of whose values nobody learns anything who lacks the key.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace monograph::ops::string {

class SipHash {
 public:
  SipHash(uint64_t key0, uint64_t key1)
      : v0_(key0 ^ 0x736f6d6570736575),
        v1_(key1 ^ 0x646f72616e646f6d),
        v2_(key0 ^ 0x6c7967656e657261),
        v3_(key1 ^ 0x7465646279746573) {}

  // A part of the text; all but the last have a multiple of 8 bytes.
  void Add(std::string_view part) {
    size_ += part.size();
    for (; part.size() >= 8; part.remove_prefix(8)) Compress(Word(part.substr(0, 8)));
    rest_ = Word(part);
  }

  // Once, behind all parts.
  uint64_t End() {
    Compress(static_cast<uint64_t>(size_) << 56 | rest_);
    v2_ ^= 0xff;
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  static uint64_t Word(std::string_view bytes) {
    static_assert(std::endian::native == std::endian::little);
    uint64_t word = 0;
    if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
    return word;
  }
  void Compress(uint64_t word) {
    v3_ ^= word;
    Round(), Round();
    v0_ ^= word;
  }
  void Round() {
    v0_ += v1_, v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_, v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_, v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_, v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t rest_ = 0;  // the bytes behind the last whole word
  size_t size_ = 0;
};

}  // namespace monograph::ops::string
