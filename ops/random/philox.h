// Philox 4x32-10: a counter-based random generator (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/hash.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::random {

struct PhiloxBlock {
  uint32_t words[4];
};

// Ten rounds; the result depends on key and counter only.
MG_HD inline PhiloxBlock Philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0,
                   n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// The stream of one node in one step: block i, try `attempt`, is Philox(key, i, step and attempt).
struct RandomStream {
  uint64_t key;
  uint64_t step;

  RandomStream(int64_t seed, int64_t seed2, std::string_view node, uint64_t step_id)
      : step(step_id) {
    key = Mix(Mix(Mix(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(seed2)) ^ Fnv1a(node));
  }

  MG_HD PhiloxBlock Block(uint64_t i, uint32_t attempt = 0) const {
    return Philox(key, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                  static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32) ^ (attempt << 16));
  }

 private:
  static uint64_t Mix(uint64_t x) {  // SplitMix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
};

}  // namespace monograph::ops::random
