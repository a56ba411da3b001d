// Whether a path can be written, asked before any work begins: a run must not find out at its end.
// Nothing is made or opened; who writes reports what has changed by then.
#pragma once

#include <string>

#include "base/status.h"

namespace monograph {

// A file that is there and writable, or can be made in a folder that is there. A device or a pipe
// is one, too. NotFound: its folder; FailedPrecondition: why not, with the path.
Status CheckOutputFile(const std::string& path);
// A writable folder, or one that can be made with all that is above it.
Status CheckOutputFolder(const std::string& path);

}  // namespace monograph
