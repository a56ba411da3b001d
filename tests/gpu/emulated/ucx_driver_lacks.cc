// What UCX's CUDA modules link of the driver and of NVML, and what is absent here: without cuda.h,
// so that no arguments need to be named. Each call answers that it is not supported.
namespace {
constexpr int kNotSupported = 801, kNvmlNotSupported = 3;
}

#define LACKS(name) \
  int name() { return kNotSupported; }

extern "C" {

LACKS(cuIpcCloseMemHandle)
LACKS(cuIpcGetMemHandle)
LACKS(cuIpcOpenMemHandle_v2)
LACKS(cuMemAddressFree)
LACKS(cuMemAddressReserve)
LACKS(cuMemAllocManaged)
LACKS(cuMemCreate)
LACKS(cuMemExportToShareableHandle)
LACKS(cuMemGetAllocationGranularity)
LACKS(cuMemGetAllocationPropertiesFromHandle)
LACKS(cuMemImportFromShareableHandle)
LACKS(cuMemMap)
LACKS(cuMemPoolDestroy)
LACKS(cuMemPoolExportPointer)
LACKS(cuMemPoolExportToShareableHandle)
LACKS(cuMemPoolImportFromShareableHandle)
LACKS(cuMemPoolImportPointer)
LACKS(cuMemPoolSetAccess)
LACKS(cuMemRangeGetAttribute)
LACKS(cuMemRelease)
LACKS(cuMemRetainAllocationHandle)
LACKS(cuMemSetAccess)
LACKS(cuMemUnmap)

int nvmlInit_v2() { return kNvmlNotSupported; }
const char* nvmlErrorString(int) { return "NVML is not emulated"; }

}  // extern "C"
