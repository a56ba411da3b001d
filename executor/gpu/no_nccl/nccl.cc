#include "executor/gpu/cuda/nccl.h"

namespace monograph::cuda {

Result<std::string> NcclVersion() { return Unimplemented("this program was built without NCCL"); }

std::unique_ptr<Communicators> MakeNcclCommunicators(CUstream_st*, bool) { return nullptr; }

}  // namespace monograph::cuda
