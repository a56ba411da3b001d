#include "executor/gpu/cuda/error.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

namespace monograph::cuda {
namespace {

std::string Text(const char* library, const char* call, int code, const char* name,
                 const char* meaning) {
  std::string text = std::string(call) + " failed: " + library + " error " + std::to_string(code);
  if (name != nullptr && *name != '\0') text += std::string(" (") + name + ")";
  if (meaning != nullptr && *meaning != '\0') text += std::string(": ") + meaning;
  return text;
}

// A call that failed leaves its error in CUDA, also if a library made it: the next launch would
// take it for its own.
void Forget() { (void)cudaGetLastError(); }

}  // namespace

bool IsSticky(int code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorDeviceUninitialized:
    case cudaErrorContextIsDestroyed:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

Status CudaStatus(int code, const char* call) {
  if (code == cudaSuccess) return Status();
  Forget();
  const auto error = static_cast<cudaError_t>(code);
  std::string text = Text("CUDA", call, code, cudaGetErrorName(error), cudaGetErrorString(error));
  if (IsSticky(code)) return Unavailable(text + "; the GPU's context is lost");
  if (code == cudaErrorMemoryAllocation) return ResourceExhausted(std::move(text));
  if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
      code == cudaErrorInitializationError || code == cudaErrorSystemDriverMismatch ||
      code == cudaErrorDevicesUnavailable) {
    return FailedPrecondition(std::move(text));
  }
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorUnsupportedPtxVersion ||
      code == cudaErrorInvalidDeviceFunction) {
    return Unimplemented(text + "; this build has no code for the GPU's architecture");
  }
  return Internal(std::move(text));
}

Status CudnnStatus(int code, const char* call) {
  if (code == CUDNN_STATUS_SUCCESS) return Status();
  Forget();
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  const auto error = static_cast<cudnnStatus_t>(code);
  std::string text = Text("cuDNN", call, code, cudnnGetErrorString(error), detail);
  if (code == CUDNN_STATUS_ALLOC_FAILED) return ResourceExhausted(std::move(text));
  // 3000 to 3999: what is not supported.
  if (code >= 3000 && code < 4000) return Unimplemented(std::move(text));
  return Internal(std::move(text));
}

Status CublasStatus(int code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return Status();
  Forget();
  const auto error = static_cast<cublasStatus_t>(code);
  std::string text =
      Text("cuBLAS", call, code, cublasLtGetStatusName(error), cublasLtGetStatusString(error));
  if (code == CUBLAS_STATUS_ALLOC_FAILED) return ResourceExhausted(std::move(text));
  if (code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_ARCH_MISMATCH)
    return Unimplemented(std::move(text));
  return Internal(std::move(text));
}

// By NCCL's documented numbers, so that this file needs no NCCL.
Status NcclStatus(int code, const char* call) {
  static constexpr const char* kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  if (code == 0) return Status();
  const char* name = code > 0 && code < 8 ? kNames[code] : "unknown";
  std::string text = Text("NCCL", call, code, name, "");
  switch (code) {
    case 1:
    case 2:
      return Unavailable(text + " (NCCL_DEBUG=WARN tells more)");
    case 6:  // which task is gone, who watches it will say
      return Unavailable(text + "; a peer or its connection is lost (NCCL_DEBUG=WARN tells more)")
          .AsDerived();
    default:
      return Internal(std::move(text));
  }
}

}  // namespace monograph::cuda
