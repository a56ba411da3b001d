// The driver as far as cuDNN asks for it: its engines that are compiled at run time find their
// functions here by name, load what NVRTC has made, and make plans. What a plan computes is
// computed in cudnn.cc. There is no GPU, so nothing else of CUDA goes on with this driver.
namespace {

constexpr int kSuccess = 0, kNoDevice = 100;
char handle;  // of whatever is loaded

int Loaded(void** made) {
  *made = &handle;
  return kSuccess;
}

}  // namespace

#define SUCCEEDS(name) \
  int name() { return kSuccess; }
#define LOADS(name) \
  int name(void** made) { return Loaded(made); }

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
LOADS(cuLibraryLoadData)
LOADS(cuLibraryLoadFromFile)
LOADS(cuLibraryGetKernel)
LOADS(cuLibraryGetModule)
LOADS(cuKernelGetFunction)
LOADS(cuModuleLoadData)
LOADS(cuModuleLoadDataEx)
LOADS(cuModuleGetFunction)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuKernelGetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuDeviceGet)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuGetErrorName)
SUCCEEDS(cuGetErrorString)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLaunchCooperativeKernel)

}  // extern "C"
