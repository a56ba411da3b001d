#include "executor/gpu/cuda/nccl.h"

namespace monograph::cuda {

Result<std::string> NcclVersion() { return Unimplemented("this program was built without NCCL"); }

bool WantsNcclPool(const GpuOptions&) { return false; }
std::shared_ptr<NcclPool> MakeNcclPool() { return nullptr; }
std::unique_ptr<Communicators> MakeNcclCommunicators(CUstream_st*, bool,
                                                     std::shared_ptr<NcclPool>) {
  return nullptr;
}

}  // namespace monograph::cuda
