// What nvcc's host code says of its kernels before main (crt/host_runtime.h), and how it launches
// them. registered_kernels.cc has those functions; a runtime that runs the PTX gives LaunchKernel.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/gpu/emulated/ptx.h"

namespace monograph::emulated {

// The kernels of one object file.
struct KernelImage {
  const void* fatbin = nullptr;
  std::unique_ptr<ptx::Module> module;  // of the newest architecture; null until it is parsed
};

struct RegisteredKernel {
  KernelImage* image = nullptr;
  std::string name;
};

// Thread-safe. What it gives lives until the process ends.
class RegisteredKernels {
 public:
  static RegisteredKernels& Global();

  KernelImage* AddImage(const void* fatbin);
  void Add(const void* host, KernelImage* image, const char* name);
  const RegisteredKernel* Find(const void* host);  // nullptr: no such kernel

  // Parses the kernel's image if that is new. FAILED_PRECONDITION: it has no PTX.
  Result<const ptx::Kernel*> Code(const RegisteredKernel& kernel);
  // Every image, parsed.
  Result<std::vector<const KernelImage*>> Images();

 private:
  // REQUIRES: the lock is held.
  static Status Parse(KernelImage* image);

  std::mutex mutex_;
  std::deque<KernelImage> images_;
  std::map<const void*, RegisteredKernel> kernels_;
};

// The runtime's own. `programmatic`: its blocks may come before the kernel before has ended.
cudaError_t LaunchKernel(const RegisteredKernel& kernel, const ptx::LaunchDims& dims, void** args,
                         cudaStream_t stream, bool programmatic);

}  // namespace monograph::emulated
