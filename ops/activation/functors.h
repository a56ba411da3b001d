// Activations and their gradients, one element at a time, for the kernels of every device. The last
// argument is the attribute alpha, where an op has it.
#pragma once

#include <cmath>

#include "ops/gpu/device_code.h"

namespace monograph::ops::activation {

// A NaN stays one.
struct ReluFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x < A(0) ? A(0) : x;
  }
};
struct Relu6Fn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    const A low = x < A(0) ? A(0) : x;
    return low > A(6) ? A(6) : low;
  }
};
struct LeakyReluFn {
  template <typename A>
  MG_HD A operator()(A x, float alpha) const {
    return x > A(0) ? x : x * A(alpha);
  }
};
struct EluFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x < A(0) ? std::expm1(x) : x;
  }
};
struct SoftplusFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x > A(0) ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
};
// The constants of G. Klambauer et al., "Self-normalizing neural networks", 2017: with them mean 0
// and variance 1 stay so.
inline constexpr double kSeluScale = 1.0507009873554804934193349852946,
                        kSeluAlpha = 1.6732632423543772848170429916717;
struct SeluFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x < A(0) ? A(kSeluScale * kSeluAlpha) * std::expm1(x) : A(kSeluScale) * x;
  }
};
inline constexpr double kSqrtHalf = 0.70710678118654752440,
                        kInverseSqrtTwoPi = 0.39894228040143267794;
struct SoftsignFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x / ((x < A(0) ? -x : x) + A(1));
  }
};

struct GeluFn {
  template <typename A>
  MG_HD A operator()(A x, float) const {
    return x * A(0.5) * (A(1) + std::erf(x * A(kSqrtHalf)));
  }
};

// (gradient, feature) -> gradient
struct ReluGradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float) const {
    return x > A(0) ? g : A(0);
  }
};
struct Relu6GradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float) const {
    return x > A(0) && x < A(6) ? g : A(0);
  }
};
struct LeakyReluGradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float alpha) const {
    return x > A(0) ? g : g * A(alpha);
  }
};
struct EluGradFn {  // of the output
  template <typename A>
  MG_HD A operator()(A g, A y, float) const {
    return y < A(0) ? (y + A(1)) * g : g;
  }
};
struct SeluGradFn {  // of the output
  template <typename A>
  MG_HD A operator()(A g, A y, float) const {
    return y < A(0) ? (y + A(kSeluScale * kSeluAlpha)) * g : g * A(kSeluScale);
  }
};
struct SoftsignGradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float) const {
    const A one = (x < A(0) ? -x : x) + A(1);
    return g / (one * one);
  }
};
struct GeluGradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float) const {
    const A share = A(0.5) * (A(1) + std::erf(x * A(kSqrtHalf)));
    return g * (share + x * A(kInverseSqrtTwoPi) * std::exp(A(-0.5) * x * x));
  }
};
struct SoftplusGradFn {
  template <typename A>
  MG_HD A operator()(A g, A x, float) const {
    return g / (std::exp(-x) + A(1));
  }
};

}  // namespace monograph::ops::activation
