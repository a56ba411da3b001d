// What the program has of the heap by new.
#pragma once

#include <cstdint>

namespace monograph::simulation {

// Bytes, as the allocator rounds them.
int64_t HeapBytes();

}  // namespace monograph::simulation
