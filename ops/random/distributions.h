// From blocks of random bits to numbers: the same bits on CPUs and GPUs, since nothing here but
// additions, multiplications, divisions and square roots, each rounded once, makes them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "ops/gpu/device_code.h"
#include "ops/random/philox.h"

namespace monograph::ops::random {

MG_HD inline double UnitDouble(uint32_t high, uint32_t low) {  // [0, 1), 53 bits
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// ln x for normal x > 0, to a few units in the last place: x = 2^e (1 + f) with 1 + f in
// [sqrt(1/2), sqrt(2)), and ln(1 + f) = 2 artanh(f / (2 + f)) by its series.
MG_HD inline double NaturalLog(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 1.0 / 25;
  p = p * z + 1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  const double series = 2.0 * s + 2.0 * s * z * p;
  return series + exponent * std::numbers::ln2;
}

struct Turn {
  double cos, sin;
};

// Of the angle 2 pi v, v in [0, 1): the nearest quarter turn and Taylor's series for what is left,
// at most pi / 4.
MG_HD inline Turn CosSin(double v) {
  const int quarter = static_cast<int>(v * 4.0 + 0.5);
  const double a = 2.0 * std::numbers::pi * (v - quarter * 0.25), z = a * a;
  double s = -1.0 / (16 * 17);
  s = (1.0 + s * z) * (-1.0 / (14 * 15));
  s = (1.0 + s * z) * (-1.0 / (12 * 13));
  s = (1.0 + s * z) * (-1.0 / (10 * 11));
  s = (1.0 + s * z) * (-1.0 / (8 * 9));
  s = (1.0 + s * z) * (-1.0 / (6 * 7));
  s = (1.0 + s * z) * (-1.0 / (4 * 5));
  s = (1.0 + s * z) * (-1.0 / (2 * 3));
  const double sine = a + a * z * s;
  double c = -1.0 / (17 * 18);
  c = (1.0 + c * z) * (-1.0 / (15 * 16));
  c = (1.0 + c * z) * (-1.0 / (13 * 14));
  c = (1.0 + c * z) * (-1.0 / (11 * 12));
  c = (1.0 + c * z) * (-1.0 / (9 * 10));
  c = (1.0 + c * z) * (-1.0 / (7 * 8));
  c = (1.0 + c * z) * (-1.0 / (5 * 6));
  c = (1.0 + c * z) * (-1.0 / (3 * 4));
  c = (1.0 + c * z) * (-1.0 / (1 * 2));
  const double cosine = 1.0 + c * z;
  switch (quarter & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

struct TwoNormals {
  double values[2];
};

// Two independent normal values of one block (Box and Muller).
MG_HD inline TwoNormals Normals(const PhiloxBlock& block) {
  const double u = 1.0 - UnitDouble(block.words[0], block.words[1]);  // (0, 1]
  const double radius = std::sqrt(-2.0 * NaturalLog(u));
  const Turn turn = CosSin(UnitDouble(block.words[2], block.words[3]));
  return {{radius * turn.cos, radius * turn.sin}};
}

template <typename T>
MG_HD T FromDouble(double value) {
  return Narrow<T>(static_cast<Accumulator<T>>(value));
}

// Each distribution says how many elements a block of random bits gives, and which.
struct Uniform {
  template <typename T>
  static constexpr int kPerBlock = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  MG_HD static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    const PhiloxBlock bits = stream.Block(block);
    if constexpr (sizeof(T) == 8) {
      out[0] = UnitDouble(bits.words[0], bits.words[1]);
      out[1] = UnitDouble(bits.words[2], bits.words[3]);
    } else {
      // As many bits as the type holds, so that rounding never gives 1.
      constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, half> ? 11 : 8;
      for (int i = 0; i < 4; ++i) {
        out[i] = Narrow<T>(static_cast<float>(bits.words[i] >> (32 - kBits)) /
                           static_cast<float>(1 << kBits));
      }
    }
  }
};

struct Normal {
  template <typename T>
  static constexpr int kPerBlock = 2;
  template <typename T>
  MG_HD static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    const TwoNormals normals = Normals(stream.Block(block));
    for (int i = 0; i < 2; ++i) out[i] = FromDouble<T>(normals.values[i]);
  }
};

struct Truncated {
  template <typename T>
  static constexpr int kPerBlock = 1;
  template <typename T>
  MG_HD static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    for (uint32_t attempt = 0;; ++attempt) {
      const TwoNormals normals = Normals(stream.Block(block, attempt));
      for (int i = 0; i < 2; ++i) {
        if (std::abs(normals.values[i]) >= 2.0) continue;
        *out = FromDouble<T>(normals.values[i]);
        return;
      }
    }
  }
};

// The upper half of a * b.
MG_HD inline uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// Element i of low + [0, range): uniform but for 2^-64 * range.
MG_HD inline uint64_t UniformInt(const RandomStream& stream, uint64_t i, uint64_t low,
                                 uint64_t range) {
  const PhiloxBlock bits = stream.Block(i);
  return low + MultiplyHigh(uint64_t{bits.words[0]} << 32 | bits.words[1], range);
}

}  // namespace monograph::ops::random
