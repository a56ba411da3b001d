// Status from the error codes of CUDA's libraries. The text names the call, the code and what it
// means, so that node and op, which the executor adds, are all that is missing.
//
// Codes: no memory is ResourceExhausted; a lost context (an illegal address, a launch failure, a
// device that fell off the bus) is Unavailable, see IsSticky; a wrong argument is Internal, since
// a kernel gave it.
#pragma once

#include "base/status.h"

namespace monograph::cuda {

// `code` is a cudaError_t, cudnnStatus_t, cublasStatus_t or ncclResult_t; `call` the call's text.
Status CudaStatus(int code, const char* call);
Status CudnnStatus(int code, const char* call);
Status CublasStatus(int code, const char* call);
Status NcclStatus(int code, const char* call);

// Whether a cudaError_t stays for the rest of the context's life: every later call fails too.
bool IsSticky(int code);

}  // namespace monograph::cuda

#define MG_CUDA_RETURN_IF_ERROR_INNER(function, call)                          \
  do {                                                                         \
    if (const int mg_code = static_cast<int>(call); mg_code != 0) [[unlikely]] \
      return ::monograph::cuda::function(mg_code, #call);                      \
  } while (false)

// In a function that returns Status or Result: MG_CUDA_RETURN_IF_ERROR(cudaGetLastError());
#define MG_CUDA_RETURN_IF_ERROR(call) MG_CUDA_RETURN_IF_ERROR_INNER(CudaStatus, call)
#define MG_CUDNN_RETURN_IF_ERROR(call) MG_CUDA_RETURN_IF_ERROR_INNER(CudnnStatus, call)
#define MG_CUBLAS_RETURN_IF_ERROR(call) MG_CUDA_RETURN_IF_ERROR_INNER(CublasStatus, call)
#define MG_NCCL_RETURN_IF_ERROR(call) MG_CUDA_RETURN_IF_ERROR_INNER(NcclStatus, call)
