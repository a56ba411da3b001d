// Attention in cuDNN's words.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "ops/attention/cudnn_attention.h"
#include "ops/conv/cudnn_graph.h"

namespace monograph::ops::attention {

// Names of the tensors that a plan is given. kSum and kWideDq are memory of its own: kSum
// [n, heads, rows, 1] backward, kWideDq [n, heads, rows, size] where it adds up in any order; both
// float.
enum Id : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kStatistics,
  kScale,   // in host memory
  kLowest,  // with a mask: -infinity, in host memory
  kRowCounts,
  kLengths,
  kGradient,
  kDq,
  kDk,
  kDv,
  kSum,
  kWideDq,
  kFirstBetween,  // what passes by is numbered from here
};

// With `deterministic` the gradient always has the same bits. Without a handle it only says what
// the operations are.
Result<cudnn::Operations> Describe(cudnnHandle_t handle, const CudnnCall& call, bool deterministic);

}  // namespace monograph::ops::attention
