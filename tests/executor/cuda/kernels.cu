#include "tests/executor/cuda/kernels.h"

namespace monograph::cudatest {
namespace {

__global__ void SlowFillKernel(int32_t* data, int32_t value, int64_t count, long long ns) {
  if (threadIdx.x == 0) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
      asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < static_cast<unsigned long long>(ns));
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) data[i] = value;
}

__global__ void AddOneKernel(int32_t* data, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) data[i] += 1;
}

__global__ void PokeKernel(int32_t* data) { *data = 1; }

}  // namespace

void SlowFill(CUstream_st* stream, int32_t* data, int32_t value, int64_t count,
              int64_t microseconds) {
  SlowFillKernel<<<1, 256, 0, stream>>>(data, value, count, 1000 * microseconds);
}

void AddOne(CUstream_st* stream, int32_t* data, int64_t count) {
  AddOneKernel<<<1, 256, 0, stream>>>(data, count);
}

void AddOneBy(CUstream_st* stream, int32_t* data, int64_t count, unsigned rows, unsigned threads,
              size_t shared) {
  AddOneKernel<<<dim3(1, rows), threads, shared, stream>>>(data, count);
}

void Poke(CUstream_st* stream) {
  PokeKernel<<<1, 1, 0, stream>>>(reinterpret_cast<int32_t*>(uintptr_t{1} << 40));
}

}  // namespace monograph::cudatest
