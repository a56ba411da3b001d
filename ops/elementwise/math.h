// exp, log and tanh for floats without branches or calls, so that loops over them vectorise. Errors
// below 2 units in the last place. Methods: range reduction by ln 2 in two parts and the
// polynomials of S. Moshier's Cephes library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/gpu/device_code.h"

namespace monograph::ops::elementwise {

MG_HD inline float ExpF(float x) {
  const float limited = x > 89.0f ? 89.0f : (x < -104.0f ? -104.0f : x);  // NaN passes
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = limited * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (limited - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two steps, so that results near the ends of the range are right.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const float scale1 = std::bit_cast<float>((half + 127) << 23);
  const float scale2 = std::bit_cast<float>((exponent - half + 127) << 23);
  return p * scale1 * scale2;
}

MG_HD inline float LogF(float x) {
  const bool tiny = x < std::numeric_limits<float>::min();
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = std::bit_cast<int32_t>(scaled);
  int32_t exponent = ((bits >> 23) & 0xff) - 126 - (tiny ? 23 : 0);
  float m = std::bit_cast<float>((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const bool low = m < 0.707106781186547524f;
  exponent -= low ? 1 : 0;
  m = (low ? m + m : m) - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float n = static_cast<float>(exponent);
  float y = p * m * z + n * -2.12194440e-4f - 0.5f * z;
  y = m + y + n * 0.693359375f;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  y = x == kInf ? kInf : y;
  y = x == 0.0f ? -kInf : y;
  y = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
  return x != x ? x : y;
}

MG_HD inline float TanhF(float x) {
  const float a = std::bit_cast<float>(std::bit_cast<int32_t>(x) & 0x7fffffff);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = p * z * x + x;
  const float large = 1.0f - 2.0f / (ExpF(a + a) + 1.0f);
  const float signed_large =
      std::bit_cast<float>(std::bit_cast<int32_t>(large) |
                           (std::bit_cast<int32_t>(x) & static_cast<int32_t>(0x80000000u)));
  return a < 0.625f ? small : (x != x ? x : signed_large);
}

}  // namespace monograph::ops::elementwise
