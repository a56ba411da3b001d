// Names the host that this process is on.
#pragma once

#include <cstdint>

namespace monograph {

// A hash of the kernel's boot and of the network namespace: equal in all processes that share
// memory and a loopback device. 0: not known.
uint64_t HostNumber();

}  // namespace monograph
