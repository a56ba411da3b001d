// The kernel of a borrowed op: one call of TensorFlow's library.
#pragma once

#include "executor/kernel.h"

namespace monograph::tensorflow {

// Unimplemented, FailedPrecondition and the like say which op, and why it cannot run.
Result<std::unique_ptr<Kernel>> MakeBorrowedKernel(const KernelConstruction& construction);

}  // namespace monograph::tensorflow
