// NCCL, as far as the CUDA plug-in uses it. executor/gpu/nccl/ has it; executor/gpu/no_nccl/ stands
// in where it was not found when this was built.
//
// The library is opened at the first call, and stays open: where it is absent the plug-in loads all
// the same, and GPUs have no link.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "executor/gpu/communicator.h"
#include "executor/gpu_options.h"

struct CUstream_st;

namespace monograph::cuda {

// "NCCL 2.28.9". An error says why it cannot be used. Thread-safe.
Result<std::string> NcclVersion();

// A GPU's memory from NCCL. What lies there goes to other GPUs without a copy into NCCL's own
// buffers, since each communicator registers it, once. Thread-safe.
class NcclPool {
 public:
  virtual ~NcclPool() = default;
  virtual Result<void*> Allocate(size_t bytes) = 0;  // of the thread's GPU
  virtual void Free(void* data) = 0;                 // REQUIRES: no communicator has it
};

// Whether a GPU's memory is to be such a pool: MONOGRAPH_NCCL_POOL=1. Not where NCCL sums: for that
// it wants what is registered at equal offsets on all ranks. Its rule that either all ranks of a
// communicator register what they use or none does is kept by the GPUs' links, which name it.
bool WantsNcclPool(const GpuOptions& options);
std::shared_ptr<NcclPool> MakeNcclPool();  // REQUIRES: NcclVersion gives one

// Communicators whose work is enqueued on `stream`, of the GPU that is current on the thread that
// joins. `any_order`: of Communicators. `pool`: that all memory of exchanges is from; nullptr:
// none. REQUIRES: NcclVersion gives one.
std::unique_ptr<Communicators> MakeNcclCommunicators(CUstream_st* stream, bool any_order,
                                                     std::shared_ptr<NcclPool> pool = nullptr);

}  // namespace monograph::cuda
