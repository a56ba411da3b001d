#include "tests/simulation/draw.h"

namespace monograph::simulation {
namespace {

uint64_t state = 0;

}  // namespace

void SeedDraws(uint64_t seed) { state = seed * 0x9E3779B97F4A7C15 + 0x1234567; }

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
uint64_t Draw(uint64_t bound) {
  state += 0x9E3779B97F4A7C15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return z % bound;
}

}  // namespace monograph::simulation
