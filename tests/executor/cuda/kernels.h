// A few kernels for tests of the CUDA driver.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace monograph::cudatest {

// Busy for about `microseconds`, then data[i] = value for i < count.
void SlowFill(CUstream_st* stream, int32_t* data, int32_t value, int64_t count,
              int64_t microseconds);
void AddOne(CUstream_st* stream, int32_t* data, int64_t count);
// Writes to an address that is nobody's: the context is lost.
void Poke(CUstream_st* stream);

}  // namespace monograph::cudatest
