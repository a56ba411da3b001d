#include "base/duration.h"

#include <cstdio>

namespace monograph {

std::string Seconds(std::chrono::nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace monograph
