#include "ops/avx512.h"

namespace monograph::ops::avx512 {

bool Supported() {
#if defined(__x86_64__)
  static const bool supported = __builtin_cpu_supports("avx512f") != 0;
  return supported;
#else
  return false;
#endif
}

}  // namespace monograph::ops::avx512
