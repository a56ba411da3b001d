// A few kernels for tests of the CUDA driver.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace monograph::cudatest {

// Busy for about `microseconds`, then data[i] = value for i < count.
void SlowFill(CUstream_st* stream, int32_t* data, int32_t value, int64_t count,
              int64_t microseconds);
void AddOne(CUstream_st* stream, int32_t* data, int64_t count);
// The same, `rows` times, by blocks of `threads` with `shared` bytes of shared memory.
void AddOneBy(CUstream_st* stream, int32_t* data, int64_t count, unsigned rows, unsigned threads,
              size_t shared);
// Writes to an address that is nobody's: the context is lost.
void Poke(CUstream_st* stream);

}  // namespace monograph::cudatest
