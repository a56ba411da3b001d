// ForEach, ForBlocks: how kernels of GPUs run. A body is a plain struct of pointers, sizes and
// strides, passed by value, with MG_HD functions; it never touches host memory. Nothing here waits
// for the device or allocates, and all of it may be captured into a CUDA graph. Errors are those of
// the launch.
//
// Where nvcc compiles a file, bodies run on the context's stream. Where the host's compiler does,
// they run on the grid that its target names by MG_HOST_GRID
// (tests/gpu/simulated/simulated_grid.h): the tests execute the very code of every kernel, over all
// indices, without a GPU.
//
// With GpuOptions::programmatic_dependent_launch a kernel is launched so that its blocks may come
// to the GPU while the kernel before it on the stream still runs (programmatic dependent launch).
// It is correct because every kernel here begins with AwaitKernelBefore, in every thread: no memory
// is touched before all that was launched earlier has ended and what it wrote is to be seen. So a
// kernel that has ended says that those before it have, too, which is what events, copies and the
// kernels of libraries rely on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "executor/kernel.h"
#include "ops/gpu/device_code.h"
#include "ops/words.h"
#ifdef __CUDACC__
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/gpu/launch_kernel.h"
#else
#include MG_HOST_GRID
#endif

namespace monograph::ops {

#ifdef __CUDACC__

inline constexpr int kThreadsOfEach = 256;

// The first thing that a kernel does. Where nothing was launched ahead of its turn it does nothing.
// The next kernel's blocks may come from then on, as soon as all of this one have begun: they take
// what room is left, and wait.
__device__ inline void AwaitKernelBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// How many blocks a multiprocessor has room for at once, as Body::kResident says: it bounds the
// registers of a thread. 0: as nvcc likes.
template <typename Body>
consteval int ResidentBlocks() {
  if constexpr (requires { Body::kResident; }) return Body::kResident;
  return 0;
}

template <typename Body>
__global__ void __launch_bounds__(kThreadsOfEach, ResidentBlocks<Body>())
    RunEach(const __grid_constant__ Body body, int64_t n) {
  AwaitKernelBefore();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreadsOfEach;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreadsOfEach + threadIdx.x; i < n;
       i += step) {
    body(i);
  }
}

template <typename Body>
__global__ void __launch_bounds__(Body::kThreads, ResidentBlocks<Body>())
    RunBlocks(const __grid_constant__ Body body, int64_t blocks) {
  AwaitKernelBefore();
  __shared__ alignas(16) unsigned char memory[sizeof(typename Body::Shared)];
  auto& shared = *reinterpret_cast<typename Body::Shared*>(memory);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
#pragma unroll
    for (int phase = 0; phase < Body::kPhases; ++phase) {
      body(phase, block, static_cast<int>(threadIdx.x), shared);
      __syncthreads();
    }
  }
}

#endif

// body(i) for each i in [0, n), in any order, many at once: no call may write what another one
// reads or writes.
template <typename Body>
Status ForEach(KernelContext& c, int64_t n, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= 32000);
  if (n <= 0) return Status();
#ifdef __CUDACC__
  cuda::Stream& stream = cuda::StreamOf(c);
  const int64_t blocks = std::min((n + kThreadsOfEach - 1) / kThreadsOfEach,
                                  int64_t{32} * std::max(stream.multiprocessors, 1));
  void* arguments[] = {const_cast<Body*>(&body), &n};
  return LaunchKernel(stream, reinterpret_cast<const void*>(&RunEach<Body>), blocks, kThreadsOfEach,
                      arguments);
#else
  static_cast<void>(c);
  simulated::RunEach(n, body);
  return Status();
#endif
}

// `blocks` blocks of kThreads threads. body(phase, block, thread, shared) for each thread and each
// phase in [0, kPhases): all threads of a block have ended a phase before one begins the next. They
// keep nothing between phases but `shared` (at most 48 KiB, undefined in the first phase).
//
//   struct Body {
//     static constexpr int kThreads = 256, kPhases = 2;
//     struct Shared { float sums[kThreads]; };
//     MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const;
//   };
template <typename Body>
Status ForBlocks(KernelContext& c, int64_t blocks, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= 32000);
  static_assert(sizeof(typename Body::Shared) <= 48 * 1024);
  if (blocks <= 0) return Status();
#ifdef __CUDACC__
  cuda::Stream& stream = cuda::StreamOf(c);
  const int64_t grid = std::min(blocks, int64_t{32} * std::max(stream.multiprocessors, 1));
  void* arguments[] = {const_cast<Body*>(&body), &blocks};
  return LaunchKernel(stream, reinterpret_cast<const void*>(&RunBlocks<Body>), grid, Body::kThreads,
                      arguments);
#else
  static_cast<void>(c);
  simulated::RunBlocks(blocks, body);
  return Status();
#endif
}

// Bytes of device memory, on the stream.
inline Status DeviceZero(KernelContext& c, void* to, size_t bytes) {
  if (bytes == 0) return Status();
#ifdef __CUDACC__
  MG_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(to, 0, bytes, cuda::StreamOf(c).stream));
#else
  static_cast<void>(c);
  simulated::Zero(to, bytes);
#endif
  return Status();
}
inline Status DeviceCopy(KernelContext& c, void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return Status();
#ifdef __CUDACC__
  MG_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda::StreamOf(c).stream));
#else
  static_cast<void>(c);
  simulated::Copy(to, from, bytes);
#endif
  return Status();
}

}  // namespace monograph::ops
