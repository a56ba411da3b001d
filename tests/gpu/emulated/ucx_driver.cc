// The driver as far as UCX's CUDA modules (cuda_copy) ask for it, over the emulated runtime: its
// devices, streams, events and memory are that one's. A libcuda.so.1 of its own beside the one of
// cuDNN, since a driver that has devices would let NVIDIA's libraries go on to machine code.
//
// As a GPU's driver, it has no context in a thread until somebody pushes one, and refuses copies
// whose addresses it does not know. It has no IPC: processes that share a card copy by way of the
// host's memory.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/gpu/emulated/emulated_gpu.h"

namespace {

using monograph::emulated::MemoryAt;
using monograph::emulated::MemoryRange;

// A context is the address of its device's number.
int numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
thread_local std::vector<int*> contexts;
std::atomic<uint64_t> copied{0};  // bytes, from and to devices

CUcontext ContextOf(int device) { return reinterpret_cast<CUcontext>(&numbers[device]); }
int Devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
bool Known(CUdevice device) { return device >= 0 && device < Devices(); }

CUresult Code(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUDA_SUCCESS;
    case cudaErrorNotReady:
      return CUDA_ERROR_NOT_READY;
    case cudaErrorInvalidValue:
      return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorMemoryAllocation:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

// With the runtime's device set to this one.
template <typename Call>
CUresult On(int device, Call call) {
  int before = 0;
  (void)cudaGetDevice(&before);
  (void)cudaSetDevice(device);
  const cudaError_t error = call();
  (void)cudaSetDevice(before);
  return Code(error);
}
// On the context that is current.
template <typename Call>
CUresult Inside(Call call) {
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : On(*contexts.back(), call);
}

MemoryRange RangeOf(CUdeviceptr data) { return MemoryAt(reinterpret_cast<const void*>(data)); }

CUresult Attribute(void* value, CUpointer_attribute attribute, const MemoryRange& range) {
  const auto put = [value]<typename T>(T what) {
    *static_cast<T*>(value) = what;
    return CUDA_SUCCESS;
  };
  const bool known = range.data != nullptr, on_device = range.device >= 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(known ? on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST : 0);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(known && on_device ? ContextOf(range.device) : CUcontext{});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(known && on_device ? range.device : -2);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(range.data);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(range.bytes);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(reinterpret_cast<unsigned long long>(range.data));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(0u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(uint64_t{0});
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(static_cast<void*>(nullptr));
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const MemoryRange target = RangeOf(to), source = RangeOf(from);
  const bool to_device = target.data != nullptr && target.device >= 0,
             from_device = source.data != nullptr && source.device >= 0;
  return Inside([&] {
    if (!to_device && !from_device) return cudaErrorInvalidValue;
    copied += bytes;
    return cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
                           to_device && from_device ? cudaMemcpyDeviceToDevice
                           : to_device              ? cudaMemcpyHostToDevice
                                                    : cudaMemcpyDeviceToHost,
                           stream);
  });
}

// Of memory that is not a graph's: on a stream of its own, and there when it returns.
CUresult CopyAtOnce(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUstream stream = nullptr;
  CUresult result = Inside([&] { return cudaStreamCreateWithFlags(&stream, 0); });
  if (result != CUDA_SUCCESS) return result;
  result = Copy(to, from, bytes, stream);
  if (result == CUDA_SUCCESS) result = Code(cudaStreamSynchronize(stream));
  (void)cudaStreamDestroy(stream);
  return result;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return Devices() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  static thread_local char buffer[32];
  std::snprintf(buffer, sizeof buffer, "CUDA error %d", static_cast<int>(error));
  *text = buffer;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) { return cuGetErrorString(error, text); }

// ---- devices and contexts

CUresult cuDeviceGetCount(int* count) {
  *count = Devices();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return Known(number) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "Emulated H200");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  size_t free = 0;
  return Code(cudaMemGetInfo(&free, bytes));
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!Known(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = device + 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return Known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!Known(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = ContextOf(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = contexts.empty() ? nullptr : ContextOf(*contexts.back());
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(reinterpret_cast<int*>(context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  contexts.push_back(reinterpret_cast<int*>(context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = ContextOf(*contexts.back());
  contexts.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = *contexts.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  const int* const number = context == nullptr ? contexts.empty() ? nullptr : contexts.back()
                                               : reinterpret_cast<int*>(context);
  if (number == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = static_cast<unsigned long long>(*number) + 1;
  return CUDA_SUCCESS;
}

// ---- streams and events

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return Inside([&] { return cudaStreamCreateWithFlags(stream, flags); });
}
CUresult cuStreamDestroy_v2(CUstream stream) { return Code(cudaStreamDestroy(stream)); }
CUresult cuStreamSynchronize(CUstream stream) { return Code(cudaStreamSynchronize(stream)); }
// By which UCX wakes who sleeps, from threads without a context.
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned) {
  const int device = monograph::emulated::DeviceOf(stream);
  if (device < 0) return CUDA_ERROR_INVALID_HANDLE;
  return On(device, [&] {
    return monograph::emulated::EnqueueOn(stream, "cuStreamAddCallback",
                                          [=] { callback(stream, CUDA_SUCCESS, data); });
  });
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return Inside([&] { return cudaEventCreateWithFlags(event, flags); });
}
CUresult cuEventDestroy_v2(CUevent event) { return Code(cudaEventDestroy(event)); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return Code(cudaEventRecord(event, stream));
}
CUresult cuEventQuery(CUevent event) { return Code(cudaEventQuery(event)); }

// ---- memory

CUresult cuMemAlloc_v2(CUdeviceptr* data, size_t bytes) {
  return Inside([&] { return cudaMalloc(reinterpret_cast<void**>(data), bytes); });
}
CUresult cuMemFree_v2(CUdeviceptr data) { return Code(cudaFree(reinterpret_cast<void*>(data))); }
CUresult cuMemHostRegister_v2(void*, size_t, unsigned) { return CUDA_SUCCESS; }
CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr data) {
  const MemoryRange range = RangeOf(data);
  if (range.data == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(range.data);
  if (bytes != nullptr) *bytes = range.bytes;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr data) {
  const MemoryRange range = RangeOf(data);
  return range.data == nullptr ? CUDA_ERROR_INVALID_VALUE : Attribute(value, attribute, range);
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr data) {
  const MemoryRange range = RangeOf(data);
  for (unsigned i = 0; i < count; ++i) (void)Attribute(values[i], attributes[i], range);
  return CUDA_SUCCESS;
}
CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) {
  return CUDA_SUCCESS;
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(to, from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(to, from, bytes, stream);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyAtOnce(to, reinterpret_cast<CUdeviceptr>(from), bytes);
}

CUresult cuGetProcAddress_v2(const char*, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_ERROR_NOT_FOUND;
}

// For tests: how many bytes UCX has had copied.
uint64_t MgEmulatedUcxCopied() { return copied; }

}  // extern "C"
