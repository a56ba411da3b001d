// Layers that cuDNN computes, too: pooling, softmax, batch normalisation. What is to be computed,
// and which ways there are besides our own kernels. Nothing here needs CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ops/window.h"

namespace monograph::ops {

enum class Layer {
  kMaxPool,
  kMaxPoolGrad,
  kAvgPool,
  kAvgPoolGrad,
  kSoftmax,
  kLogSoftmax,
  kBatchNorm,
  kBatchNormGrad
};

struct LayerCall {
  Layer layer = Layer::kMaxPool;
  DType dtype = DT_FLOAT;
  bool nchw = false;
  // Batch, channels, rows, columns of the input; {rows, classes, 1, 1} of a softmax.
  std::array<int64_t, 4> image{};
  Window rows{}, columns{};  // of pooling
  float epsilon = 0;         // of batch normalisation
  // Device memory, none of it twice:
  //   kMaxPool, kAvgPool       x -> y
  //   kMaxPoolGrad             y, dy, x -> dx
  //   kAvgPoolGrad             dy -> dx
  //   kSoftmax, kLogSoftmax    x -> y
  //   kBatchNorm               x, scale, offset -> y, mean, 1 / sqrt(variance + epsilon)
  //   kBatchNormGrad           x, dy, scale, mean, 1 / sqrt(variance + epsilon) -> dx, dscale,
  //                            doffset
  std::array<const void*, 5> in{};
  std::array<void*, 3> out{};

  // All that plans depend on.
  using Key = std::array<int64_t, 17>;
  Key key() const;
  bool aligned() const;  // all memory begins at a multiple of 16 bytes
};

// Our own kernel, by name.
inline constexpr std::string_view kOwnWay = "own";

// cuDNN's ways that compute what our own kernel does, by name; they share a family's words in
// FoundAlgorithms. None where cuDNN has no such layer, or no way to say it. With `deterministic`
// only those that always give the same bits.
std::vector<std::string_view> LibraryWays(const LayerCall& call, bool deterministic);

// The way that is taken without a search; docs/gpu.md gives the reasons.
std::string_view UntimedWay(Layer layer);

// For FoundAlgorithms: "pool", "softmax", "norm"; and the shape.
std::string FamilyOf(Layer layer);
std::string ShapeText(const LayerCall& call);

}  // namespace monograph::ops
