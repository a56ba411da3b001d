// Guard: C libraries that report an error by a jump over their own frames (libjpeg, libpng) are
// called within it, so that the jump ends here and becomes a Status.
#pragma once

#include <csetjmp>
#include <string>

#include "base/status.h"

namespace monograph::ops::image_codec {

struct Guard {
  jmp_buf jump;            // to where the library's error handler jumps
  char message[256] = {};  // what it says first

  // Calls fn, which calls the library; false if that failed. fn has nothing to destroy.
  template <typename Fn>
  bool Calls(const Fn& fn) {
    if (setjmp(jump) != 0) return false;
    fn();
    return true;
  }

  Status Failure(const std::string& what) const {
    return InvalidArgument(message[0] == '\0' ? what : what + ": " + message);
  }
};

}  // namespace monograph::ops::image_codec
