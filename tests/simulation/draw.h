// Chance in a simulation: every choice is drawn here, so that a schedule's seed decides all of
// them. For one thread at a time, which the scheduler sees to.
#pragma once

#include <cstdint>

namespace monograph::simulation {

// Begins the sequence of this seed.
void SeedDraws(uint64_t seed);

// The next number of the sequence: from 0 to `bound` - 1. REQUIRES: bound > 0.
uint64_t Draw(uint64_t bound);

// True in `percent` of 100 cases.
inline bool Chance(uint64_t percent) { return Draw(100) < percent; }

}  // namespace monograph::simulation
