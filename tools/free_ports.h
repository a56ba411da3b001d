// FreePorts: ports for daemons that are about to start on this machine.
#pragma once

#include <vector>

#include "base/status.h"

namespace monograph {

// `count` ports that are free on loopback now, outside the kernel's range of ephemeral ports, if
// possible, so that no other program gets one by chance. No other call, in any process of this
// machine, gets them before this process ends.
Result<std::vector<int>> FreePorts(int count);

}  // namespace monograph
