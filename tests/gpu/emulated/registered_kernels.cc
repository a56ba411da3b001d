#include "tests/gpu/emulated/registered_kernels.h"

#include "tests/gpu/emulated/fatbin.h"

namespace monograph::emulated {

RegisteredKernels& RegisteredKernels::Global() {
  static auto* const kernels = new RegisteredKernels;  // objects register themselves before main
  return *kernels;
}

KernelImage* RegisteredKernels::AddImage(const void* fatbin) {
  std::lock_guard lock(mutex_);
  KernelImage& image = images_.emplace_back();
  image.fatbin = fatbin;
  return &image;
}

void RegisteredKernels::Add(const void* host, KernelImage* image, const char* name) {
  std::lock_guard lock(mutex_);
  kernels_[host] = {image, name};
}

const RegisteredKernel* RegisteredKernels::Find(const void* host) {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(host);
  return found == kernels_.end() ? nullptr : &found->second;
}

Result<const ptx::Kernel*> RegisteredKernels::Code(const RegisteredKernel& kernel) {
  std::lock_guard lock(mutex_);
  MG_RETURN_IF_ERROR(Parse(kernel.image));
  if (const ptx::Kernel* code = kernel.image->module->Find(kernel.name)) return code;
  return NotFound("no PTX of " + kernel.name);
}

Result<std::vector<const KernelImage*>> RegisteredKernels::Images() {
  std::lock_guard lock(mutex_);
  std::vector<const KernelImage*> images;
  for (KernelImage& image : images_) {
    MG_RETURN_IF_ERROR(Parse(&image));
    images.push_back(&image);
  }
  return images;
}

Status RegisteredKernels::Parse(KernelImage* image) {
  if (image->module != nullptr) return Status();
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ptx::PtxOfFatbin(image->fatbin));
  if (texts.empty()) {
    return FailedPrecondition(
        "this build holds no PTX (CMAKE_CUDA_ARCHITECTURES has only -real ones)");
  }
  MG_ASSIGN_OR_RETURN(image->module, ptx::Module::Parse(texts.back()));
  return Status();
}

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace
}  // namespace monograph::emulated

using monograph::emulated::configurations;
using monograph::emulated::KernelImage;
using monograph::emulated::RegisteredKernel;
using monograph::emulated::RegisteredKernels;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* fatbin;
    void* file;
  };
  const void* const fatbin = static_cast<const Wrapper*>(wrapper)->fatbin;
  return reinterpret_cast<void**>(RegisteredKernels::Global().AddImage(fatbin));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  RegisteredKernels::Global().Add(host, reinterpret_cast<KernelImage*>(image), name);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return cudaErrorInvalidConfiguration;
  const auto c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const RegisteredKernel* const found = RegisteredKernels::Global().Find(host);
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<RegisteredKernel*>(found));
  return found == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return monograph::emulated::LaunchKernel(
      *reinterpret_cast<const RegisteredKernel*>(kernel),
      {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<uint32_t>(shared)}, args,
      stream, /*programmatic=*/false);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
  const RegisteredKernel* const kernel = RegisteredKernels::Global().Find(host);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  bool programmatic = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization)
      return cudaErrorNotSupported;
    programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  const dim3 &grid = config->gridDim, &block = config->blockDim;
  return monograph::emulated::LaunchKernel(*kernel,
                                           {{grid.x, grid.y, grid.z},
                                            {block.x, block.y, block.z},
                                            static_cast<uint32_t>(config->dynamicSmemBytes)},
                                           args, config->stream, programmatic);
}

}  // extern "C"
