// Convolutions by cuDNN. One object per kernel: it keeps the plans of the shapes that it has met.
//
// For a shape that is new to the process cuDNN's engines are tried and timed on the device, which
// the first run waits for, and the fastest is taken from then on; GpuOptions::algorithm_cache keeps
// what was found on disk, by device and version of cuDNN. With GpuOptions::deterministic the first
// engine of cuDNN's own ranking that always gives the same bits is taken, untimed.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/conv/geometry.h"

namespace monograph::ops::conv {

// Images lie as geometry.nchw says; the filter [oc, rows, columns, ic], or [oc, ic, rows, columns]
// if nchw: not as TensorFlow's do.
struct CudnnCall {
  Mode mode = Mode::kForward;
  DType dtype = DT_FLOAT;  // float, half or bfloat16
  Geometry geometry;
  FusedOps fused;  // forward only
  // The one that `mode` asks for is written.
  void *input = nullptr, *filter = nullptr, *output = nullptr;
  const void* bias = nullptr;
};

class CudnnConv {
 public:
  CudnnConv();
  ~CudnnConv();
  // Enqueues. Unimplemented, with nothing done, if cuDNN has no engine.
  // REQUIRES: no dimension is 0.
  Status Run(KernelContext& c, const CudnnCall& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph::ops::conv
