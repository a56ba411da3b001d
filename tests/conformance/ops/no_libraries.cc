// cuBLASLt and cuDNN of a simulated GPU: they refuse everything, so that the plain kernels compute.
#include "ops/conv/cudnn_conv.h"
#include "ops/matmul/cublaslt.h"

namespace monograph::ops {

struct matmul::Cublas::Impl {};
matmul::Cublas::Cublas() = default;
matmul::Cublas::~Cublas() = default;
Status matmul::Cublas::Run(KernelContext&, const CublasCall&) {
  return Unimplemented("a simulated GPU has no cuBLASLt");
}

struct conv::CudnnConv::Impl {};
conv::CudnnConv::CudnnConv() = default;
conv::CudnnConv::~CudnnConv() = default;
Status conv::CudnnConv::Run(KernelContext&, const CudnnCall&) {
  return Unimplemented("a simulated GPU has no cuDNN");
}

}  // namespace monograph::ops
