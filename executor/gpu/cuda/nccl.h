// NCCL, as far as the CUDA plug-in uses it. executor/gpu/nccl/ has it; executor/gpu/no_nccl/ stands
// in where it was not found when this was built.
//
// The library is opened at the first call, and stays open: where it is absent the plug-in loads all
// the same, and GPUs have no link.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "executor/gpu/communicator.h"

struct CUstream_st;

namespace monograph::cuda {

// "NCCL 2.28.9". An error says why it cannot be used. Thread-safe.
Result<std::string> NcclVersion();

// Communicators whose work is enqueued on `stream`, of the GPU that is current on the thread that
// joins. `any_order`: of Communicators. REQUIRES: NcclVersion gives one.
std::unique_ptr<Communicators> MakeNcclCommunicators(CUstream_st* stream, bool any_order);

}  // namespace monograph::cuda
