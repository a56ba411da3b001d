// Random numbers that name things: sessions, incarnations of tasks, epochs of groups.
#pragma once

#include <cstdint>

namespace monograph {

// From the kernel's random generator; never zero.
uint64_t RandomNonZero();

}  // namespace monograph
