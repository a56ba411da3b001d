// Small files that a user names: clusters, files of flags.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"

namespace monograph {

// The whole text of a file of at most 4 MiB, or of a pipe (/dev/stdin, <(command)) that ends within
// `limit`. NotFound or FailedPrecondition otherwise, "cannot read KIND 'path': why".
Result<std::string> ReadTextFile(const std::string& kind, const std::string& path,
                                 std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace monograph
