// Which processes may share memory with this one.
#pragma once

#include <cstdint>

namespace monograph {

// Equal in processes that may open each other's shared memory and read each other's pages: those
// of one boot of the kernel, one user, one table of processes, one user namespace and one security
// label. 0: nobody may, or it is not known.
uint64_t MemorySpace();

}  // namespace monograph
