// What readers of checkpoints answer where a file cannot be believed.
#pragma once

#include <string>

#include "base/status.h"

namespace monograph {

inline Status Damaged(const std::string& file, const std::string& why) {
  return DataLoss("checkpoint '" + file + "': " + why);
}

}  // namespace monograph
