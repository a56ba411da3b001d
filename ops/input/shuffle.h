// Random numbers and permutations that are the same on every machine: SplitMix64 (Steele, Lea,
// Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) and Fisher-Yates over it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace monograph {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound); the bias of the multiplication is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    const uint64_t x = Next();
    // The high half of the 128-bit product, from 32-bit parts.
    const uint64_t x0 = x & 0xffffffff, x1 = x >> 32, b0 = bound & 0xffffffff, b1 = bound >> 32;
    const uint64_t middle = x1 * b0 + ((x0 * b0) >> 32);
    return x1 * b1 + (middle >> 32) + ((x0 * b1 + (middle & 0xffffffff)) >> 32);
  }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  uint64_t state_;
};

// One seed of two.
inline uint64_t MixSeeds(uint64_t a, uint64_t b) {
  SplitMix64 first(a);
  SplitMix64 second(first.Next() ^ b);
  return second.Next();
}

// A permutation of [0, n), which depends on (seed, epoch) alone.
inline std::vector<uint32_t> Permutation(uint32_t n, uint64_t seed, uint64_t epoch) {
  std::vector<uint32_t> order(n);
  for (uint32_t i = 0; i < n; ++i) order[i] = i;
  SplitMix64 random(MixSeeds(seed, epoch));
  for (uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

}  // namespace monograph
