// Elementwise kernels of GPUs, the host's part: they know of shapes but not of types, and launch a
// body (ops/elementwise/loops_cuda.h) for each op and type.
#pragma once

#include <cstdint>

#include "executor/kernel.h"
#include "ops/gpu/device_code.h"
#include "ops/words.h"

namespace monograph::ops::elementwise {

// What a binary body works on. The dimensions of the result, neighbours joined where both operands
// move on or stay alike; rank 0: operands are as long as the result, or single elements.
struct BinaryArgs {
  const void *x = nullptr, *y = nullptr;
  void* z = nullptr;
  int64_t n = 0;  // elements of the result
  int rank = 0;
  Divisor size[kMaxRank];
  int64_t x_stride[kMaxRank] = {}, y_stride[kMaxRank] = {};
  int64_t x_step = 1, y_step = 1;  // along the innermost dimension: 1, or 0 where the operand stays
  bool packs = false;  // every pack lies in one row and is aligned in z and where an operand moves

  MG_HD void Offsets(int64_t index, int64_t* x_at, int64_t* y_at) const {
    if (rank == 0) {
      *x_at = index * x_step;
      *y_at = index * y_step;
      return;
    }
    int64_t a = 0, b = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t rest = size[i].Divide(index), at = index - rest * size[i].divisor();
      index = rest;
      a += at * x_stride[i];
      b += at * y_stride[i];
    }
    *x_at = a;
    *y_at = b;
  }
};

struct UnaryArgs {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t n = 0;
  bool packs = false;  // x and y are aligned for whole packs
};

using BinaryLaunch = Status (*)(KernelContext& c, const BinaryArgs& args);
using UnaryLaunch = Status (*)(KernelContext& c, const UnaryArgs& args);

// Fills in shapes and strides. REQUIRES: z is x and y broadcast, and not empty. `pack` elements are
// handled at a time.
BinaryArgs MakeBinaryArgs(const Tensor& x, const Tensor& y, const Shape& z_shape, Tensor* z,
                          int64_t pack);

class DeviceBinaryKernel : public Kernel {
 public:
  DeviceBinaryKernel(const KernelConstruction& k, BinaryLaunch launch);
  Status Compute(KernelContext& c) override;

 private:
  const BinaryLaunch launch_;
  const int64_t pack_;
  const bool differ_where_shapes_differ_;  // NotEqual with incompatible_shape_error = false
  const bool equality_without_error_;
};

class DeviceUnaryKernel : public Kernel {
 public:
  DeviceUnaryKernel(const KernelConstruction& k, UnaryLaunch launch);
  Status Compute(KernelContext& c) override;

 private:
  const UnaryLaunch launch_;
  const int64_t pack_;
};

// Each in a file of its own.
void RegisterArithmeticCuda(KernelRegistry* registry);
void RegisterComparisonsCuda(KernelRegistry* registry);
void RegisterUnaryCuda(KernelRegistry* registry);
void RegisterSmallIntegersCuda(KernelRegistry* registry);
void RegisterChainsCuda(KernelRegistry* registry);

}  // namespace monograph::ops::elementwise
