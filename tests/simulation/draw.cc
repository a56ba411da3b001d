#include "tests/simulation/draw.h"

namespace monograph::simulation {
namespace {

uint64_t state = 0;

uint64_t Mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). A seed is where
// in its one long sequence draws begin, so seeds are mixed: else one that is larger by 1 would have
// the same draws but the first.
uint64_t Draw(uint64_t bound) {
  state += 0x9E3779B97F4A7C15;
  return Mixed(state) % bound;
}

void SeedDraws(uint64_t seed) { state = Mixed(seed * 0x9E3779B97F4A7C15 + 0x1234567); }

}  // namespace monograph::simulation
