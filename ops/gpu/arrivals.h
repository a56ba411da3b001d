// The block that comes last: what blocks of one launch have made is gathered by one of them in the
// same launch, in an order that does not depend on which one it is.
//
//   phase 1   every thread writes its part to global memory, then Publish()
//   phase 2   one thread: shared.last = ArriveLast(counter, blocks)
//   phase 3   if (shared.last) this block, alone, reads what the others wrote
//
// The barrier between two phases (ForBlocks) orders a block's threads, Publish and ArriveLast the
// blocks. A counter is 0 again when the last has come, so that a captured graph may be replayed.
#pragma once

#include <cstdint>

#include "executor/gpu/cuda/stream.h"
#include "ops/gpu/launch.h"

namespace monograph::ops {

// cuda::kArrivals counters, all 0, for the launches of the context's stream, which do not overlap.
inline uint32_t* ArrivalsOf(KernelContext& c) {
#ifdef __CUDACC__
  return cuda::StreamOf(c).arrivals;
#else
  static_cast<void>(c);
  return simulated::Arrivals();
#endif
}

// What this thread wrote is there for whoever sees that its block has arrived.
MG_HD inline void Publish() {
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
}

// Whether `count` blocks have arrived at the counter with this one; then it is 0.
MG_HD inline bool ArriveLast(uint32_t* counter, uint32_t count) {
#ifdef __CUDA_ARCH__
  const bool last = atomicInc(counter, count - 1) == count - 1;
  __threadfence();
#else
  const bool last = *counter == count - 1;
  *counter = last ? 0 : *counter + 1;
#endif
  return last;
}

}  // namespace monograph::ops
