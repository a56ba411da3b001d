#include "base/random.h"

#include <sys/random.h>

namespace monograph {

uint64_t RandomNonZero() {
  uint64_t number = 0;
  while (number == 0) {
    if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) number = 0;
  }
  return number;
}

}  // namespace monograph
