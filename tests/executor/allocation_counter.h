// Counts every operator new of a program that links this.
#pragma once

#include <cstdint>

namespace monograph::testing {

int64_t Allocations();

}  // namespace monograph::testing
