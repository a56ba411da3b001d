// TensorFlow's random streams on CPUs: a key, and a counter of 128 bits that grows by one with each
// block of four words. Fill draws the values of one op from such a stream, in the groups and with
// the arithmetic of TensorFlow's distributions; groups do not depend on each other, so that threads
// may share the work.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/dtype.h"
#include "ops/gpu/device_code.h"
#include "ops/random/philox.h"

namespace monograph::ops::random {

class PhiloxStream {
 public:
  // The stream of a stateless op.
  static PhiloxStream OfSeed(uint64_t seed0, uint64_t seed1) {
    const PhiloxBlock mixed =
        Philox(uint64_t{0x02461e29} << 32 | 0x3ec8f720, static_cast<uint32_t>(seed0),
               static_cast<uint32_t>(seed0 >> 32), static_cast<uint32_t>(seed1),
               static_cast<uint32_t>(seed1 >> 32));
    return PhiloxStream(uint64_t{mixed.words[1]} << 32 | mixed.words[0], 0,
                        uint64_t{mixed.words[3]} << 32 | mixed.words[2]);
  }

  PhiloxStream(uint64_t key, uint64_t low, uint64_t high) : key_(key), low_(low), high_(high) {}

  // Block `i` from here.
  PhiloxBlock Block(uint64_t i) const {
    const uint64_t low = low_ + i, high = high_ + (low < low_ ? 1 : 0);
    return Philox(key_, static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                  static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
  }
  PhiloxStream After(uint64_t blocks) const {
    const uint64_t low = low_ + blocks;
    return PhiloxStream(key_, low, high_ + (low < low_ ? 1 : 0));
  }

 private:
  uint64_t key_, low_, high_;
};

// Word by word, without an end.
class PhiloxWords {
 public:
  explicit PhiloxWords(const PhiloxStream& stream) : stream_(stream) {}
  uint32_t Next() {
    if (used_ == 4) {
      block_ = stream_.Block(next_++);
      used_ = 0;
    }
    return block_.words[used_++];
  }

 private:
  const PhiloxStream stream_;
  uint64_t next_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

// In [0, 1): the mantissa's bits of a number in [1, 2), less 1.
template <typename T>
T UnitValue(uint32_t first, uint32_t second) {
  if constexpr (std::is_same_v<T, double>) {
    const uint64_t mantissa = uint64_t{first & 0xfffff} << 32 | second;
    return std::bit_cast<double>(uint64_t{1023} << 52 | mantissa) - 1.0;
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(uint32_t{127} << 23 | (first & 0x7fffff)) - 1.0f;
  } else if constexpr (std::is_same_v<T, half>) {
    return T(std::bit_cast<half>(static_cast<uint16_t>(15 << 10 | (first & 0x3ff))) - 1.0f);
  } else {
    return T(std::bit_cast<bfloat16>(static_cast<uint16_t>(127 << 7 | (first & 0x7f))) - 1.0f);
  }
}

// Two normal values of two unit values (Box and Muller), in float or double.
template <typename A>
void NormalPair(A u, A v, A out[2]) {
  const A epsilon = static_cast<A>(1.0e-7);
  const auto angle = static_cast<A>(2.0 * std::numbers::pi * static_cast<double>(v));
  const A radius = std::sqrt(static_cast<A>(-2) * std::log(u < epsilon ? epsilon : u));
  out[0] = std::sin(angle) * radius;
  out[1] = std::cos(angle) * radius;
}

// Each distribution says how many elements a group has, and fills group `g` of a stream.
struct UniformValues {
  template <typename T>
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  void Fill(const PhiloxStream& stream, uint64_t g, T* out) const {
    const PhiloxBlock bits = stream.Block(g);
    for (int i = 0; i < kGroup<T>; ++i) {
      out[i] = sizeof(T) == 8 ? UnitValue<T>(bits.words[2 * i % 4], bits.words[(2 * i + 1) % 4])
                              : UnitValue<T>(bits.words[i], 0);
    }
  }
};

struct NormalValues {
  template <typename T>
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  void Fill(const PhiloxStream& stream, uint64_t g, T* out) const {
    const PhiloxBlock bits = stream.Block(g);
    if constexpr (sizeof(T) == 8) {
      NormalPair(UnitValue<double>(bits.words[0], bits.words[1]),
                 UnitValue<double>(bits.words[2], bits.words[3]), out);
    } else {
      for (int i = 0; i < 4; i += 2) {
        float pair[2];
        NormalPair(UnitValue<float>(bits.words[i], 0), UnitValue<float>(bits.words[i + 1], 0),
                   pair);
        out[i] = T(pair[0]), out[i + 1] = T(pair[1]);
      }
    }
  }
};

// Each group has 256 words for each of its elements.
struct TruncatedValues {
  template <typename T>
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  void Fill(const PhiloxStream& stream, uint64_t g, T* out) const {
    using A = std::conditional_t<sizeof(T) == 8, double, float>;
    PhiloxWords words(stream.After(g * kGroup<T> * 64));
    for (int n = 0; n < kGroup<T>;) {
      A u, v, pair[2];
      if constexpr (sizeof(T) == 8) {
        const uint32_t x0 = words.Next(), x1 = words.Next(), x2 = words.Next(), x3 = words.Next();
        u = UnitValue<double>(x0, x1), v = UnitValue<double>(x2, x3);
      } else {
        const uint32_t x0 = words.Next(), x1 = words.Next();
        u = UnitValue<float>(x0, 0), v = UnitValue<float>(x1, 0);
      }
      NormalPair(u, v, pair);
      for (int i = 0; i < 2 && n < kGroup<T>; ++i) {
        if (std::abs(pair[i]) < 2) out[n++] = T(pair[i]);
      }
    }
  }
};

// Integers of a range; a range of 0 stands for all.
struct IntegerValues {
  uint64_t low = 0, range = 0;

  template <typename T>
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  void Fill(const PhiloxStream& stream, uint64_t g, T* out) const {
    const PhiloxBlock bits = stream.Block(g);
    for (int i = 0; i < kGroup<T>; ++i) {
      const uint64_t drawn =
          sizeof(T) == 8 ? uint64_t{bits.words[(2 * i + 1) % 4]} << 32 | bits.words[2 * i % 4]
                         : bits.words[i];
      out[i] = static_cast<T>(range == 0 ? drawn : low + drawn % range);
    }
  }
};

}  // namespace monograph::ops::random
