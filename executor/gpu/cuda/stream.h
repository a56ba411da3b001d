// cuda::Stream: what a GPU kernel enqueues its work on.
//
//   Status Compute(KernelContext& c) override {
//     MG_ASSIGN_OR_RETURN(Tensor* y, c.AllocateOutput(0, c.input(0).shape()));
//     cuda::Stream& s = cuda::StreamOf(c);
//     Relu<<<blocks, threads, 0, s.stream>>>(...);
//     MG_CUDA_RETURN_IF_ERROR(cudaGetLastError());
//     return Status();
//   }
//
// Rules for kernels. Enqueue on `stream` only, and return; never synchronise, never call cudaMalloc
// or cudaFree: temporaries come from KernelContext::AllocateTemp and may be let go as soon as all
// their uses are enqueued. Everything enqueued must be capturable into a CUDA graph. Host memory
// that a copy reads must outlive the step's replays: give small values as kernel arguments instead.
// A context's Compute runs on the device's launching thread, with the right device current; handles
// are bound to `stream` and belong to that thread.
#pragma once

#include <cstdint>
#include <optional>

#include "executor/device_stream.h"
#include "executor/gpu_options.h"
#include "executor/kernel.h"

struct CUstream_st;      // cudaStream_t is a pointer to it
struct cudnnContext;     // cudnnHandle_t
struct cublasLtContext;  // cublasLtHandle_t

namespace monograph::cuda {

using Options = GpuOptions;

inline constexpr int kArrivals = 2048;

struct Stream : DeviceStream {
  CUstream_st* stream = nullptr;
  int device = 0;              // CUDA's number
  int multiprocessors = 0;     // of the whole GPU
  int compute_capability = 0;  // 90 for sm_90
  Options options;
  uint32_t* arrivals = nullptr;  // kArrivals counters in device memory (ops/gpu/arrivals.h)
  // Whether our kernels may be launched before the one before has ended (ops/gpu/launch.h). Found
  // at the first launch for which options.programmatic_dependent_launch holds.
  std::optional<bool> overlaps;

  virtual cudnnContext* cudnn() = 0;        // bound to `stream`; never null
  virtual cublasLtContext* cublaslt() = 0;  // never null
};

// REQUIRES: the kernel runs on a GPU.
inline Stream& StreamOf(const KernelContext& context) {
  return *static_cast<Stream*>(context.device_stream());
}

}  // namespace monograph::cuda
