// Single kernels on a GPU against the libraries' calls: what gpu_bench measures beside whole steps.
#pragma once

#include <string>

#include "base/dtype.h"
#include "bench/cuda_floor.h"
#include "bench/harness.h"

namespace monograph::bench {

// A layer that both our own kernels and cuDNN compute, in a shape of ResNet-50's first layers: as a
// search takes it, against our own alone and against cuDNN's call. `op`: MaxPool, FusedBatchNormV3,
// one of their gradients, or Softmax.
void CompareKernel(const Args& args, CudaFloors& floors, Report& report, const std::string& op,
                   DType dtype, const std::string& name);

// One of our own kernels that reads and writes 256 MiB (--small: 16 KiB), against a copy of the
// device's memory.
void CompareMove(const Args& args, CudaFloors& floors, Report& report, const std::string& name);

// A product of two matrices of 8192 rows and columns (--small: 32) against cuBLASLt's call.
void CompareProduct(const Args& args, CudaFloors& floors, Report& report, DType dtype,
                    const std::string& name);

}  // namespace monograph::bench
