// What the kernels of _FusedConv2D and _FusedMatMul do after the product: nothing, a bias, or a
// bias and then ReLU.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "graph/attr.h"

namespace monograph::ops {

// A NaN stays one.
inline void ReluInPlace(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0.f ? 0.f : x[i];
}

inline void ReluInPlace(bfloat16* x, int64_t n) {
  // What is negative: from the number next to -0 to minus infinity.
  constexpr uint16_t kFirst = 0x8001, kLast = 0xff80;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = x[i].bits;
    x[i].bits = bits >= kFirst && bits <= kLast ? uint16_t{0} : bits;
  }
}

struct FusedOps {
  bool bias = false;
  bool relu = false;
  friend bool operator==(const FusedOps&, const FusedOps&) = default;

  static Result<FusedOps> Parse(const Attrs& attrs) {
    const auto names = attrs.GetOr<std::vector<std::string>>("fused_ops", {});
    const int64_t args = attrs.GetOr<int64_t>("num_args", 0);
    if (names.empty() && args == 0) return FusedOps{};
    if (names.size() >= 1 && names.size() <= 2 && names[0] == "BiasAdd" &&
        (names.size() == 1 || names[1] == "Relu") && args == 1) {
      return FusedOps{true, names.size() == 2};
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return Unimplemented("fused_ops [" + text + "] with " + std::to_string(args) +
                         " arguments; supported are [BiasAdd] and [BiasAdd,Relu] with 1");
  }
};

}  // namespace monograph::ops
