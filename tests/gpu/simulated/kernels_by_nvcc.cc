// The kernels by nvcc, for simulated_gpu.h: the plug-in's own objects, and below them what they
// call of CUDA's run time. A launch runs the PTX that lies in the object beside the machine code.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/register.h"
#include "tests/gpu/emulated/fatbin.h"
#include "tests/gpu/emulated/ptx.h"
#include "tests/gpu/simulated/simulated_gpu.h"

namespace monograph::optest {
namespace {

// Of one object file.
struct Image {
  const void* fatbin = nullptr;
  std::unique_ptr<ptx::Module> module;  // parsed by its first launch
};
struct Registered {
  Image* image = nullptr;
  std::string name;
};

class Runtime {
 public:
  static Runtime& The() {
    static auto* const runtime = new Runtime;  // objects register themselves before main
    return *runtime;
  }

  Image* Add(const void* fatbin) { return &images_.emplace_back(Image{fatbin, nullptr}); }
  void Add(const void* stub, Registered kernel) { kernels_[stub] = std::move(kernel); }
  Registered* Find(const void* stub) {
    const auto found = kernels_.find(stub);
    return found == kernels_.end() ? nullptr : &found->second;
  }
  Status ParseAll() {
    for (Image& image : images_) MG_RETURN_IF_ERROR(Parse(&image));
    return Status();
  }

  // Those that no launch has run, but for what comes of DispatchWord alone: no type has elements of
  // 16 bytes.
  std::set<std::string> NeverRun() const {
    std::set<std::string> names;
    for (const Image& image : images_) {
      if (image.module == nullptr) continue;
      for (const auto& [name, kernel] : image.module->kernels()) {
        const bool elements = name.find("FillBody") != name.npos ||
                              name.find("OneHotBody") != name.npos ||
                              name.find("Select") != name.npos;
        if (elements && name.find("Word16") != name.npos) continue;
        if (!launched_.contains(name)) names.insert(name);
      }
    }
    return names;
  }

  Status Launch(const Registered& kernel, const ptx::LaunchDims& dims, void* const* args) {
    MG_RETURN_IF_ERROR(Parse(kernel.image));
    const ptx::Kernel* const code = kernel.image->module->Find(kernel.name);
    if (code == nullptr) return NotFound("no PTX of " + kernel.name);
    launched_.insert(kernel.name);
    ptx::LaunchOptions options;
    options.memory = &SimulatedMemory::BlockAt;
    options.order = [this](size_t k, size_t n) { return OrderOf(n)[k]; };
    orders_.clear();
    const ops::simulated::Launch launch;
    return ptx::Launch(*code, dims, args, options);
  }

  std::pair<ptx::LaunchDims, cudaStream_t> configuration;
  Status last_error;

 private:
  static Status Parse(Image* image) {
    if (image->module != nullptr) return Status();
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ptx::PtxOfFatbin(image->fatbin));
    if (texts.empty()) {
      return FailedPrecondition(
          "this build holds no PTX (CMAKE_CUDA_ARCHITECTURES has only -real ones)");
    }
    MG_ASSIGN_OR_RETURN(image->module, ptx::Module::Parse(texts.back()));
    return Status();
  }
  // The grid's order of n things.
  const std::vector<size_t>& OrderOf(size_t n) {
    std::vector<size_t>& order = orders_[n];
    if (order.empty()) {
      ops::simulated::InOrder(static_cast<int64_t>(n),
                              [&](int64_t i) { order.push_back(static_cast<size_t>(i)); });
    }
    return order;
  }

  std::deque<Image> images_;
  std::map<const void*, Registered> kernels_;
  std::map<size_t, std::vector<size_t>> orders_;
  std::set<std::string> launched_;  // several objects may hold the same
};

// After all tests, when none was left out: every kernel has been run.
class EveryKernel : public testing::Environment {
 public:
  void TearDown() override {
    const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() != tests.total_test_count()) return;
    for (const std::string& name : Runtime::The().NeverRun())
      ADD_FAILURE() << "no test runs " << name << " (c++filt reads its name)";
  }
};
const testing::Environment* const kEveryKernel = testing::AddGlobalTestEnvironment(new EveryKernel);

// Kernels take from it the size of their grids.
struct EmulatedStream : cuda::Stream {
  EmulatedStream() {
    multiprocessors = 1;
    compute_capability = 90;
  }
  cudnnContext* cudnn() override { return nullptr; }        // CudnnConv and Cublas are those of
  cublasLtContext* cublaslt() override { return nullptr; }  // no_libraries.cc
};

cudaError_t Report(const Status& status) {
  if (status.ok()) return cudaSuccess;
  Runtime::The().last_error = status;
  return cudaErrorLaunchFailure;
}

}  // namespace

const KernelRegistry& SimulatedKernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterCudaKernels(registry);
    return registry;
  }();
  return *kernels;
}

DeviceStream* SimulatedMemory::stream() {
  static EmulatedStream stream;
  return &stream;
}

Status CanSimulate() {
  static const Status parsed = Runtime::The().ParseAll();
  return parsed;
}

bool HasOwnFunctions() { return true; }

}  // namespace monograph::optest

// The kernels' launches give the interpreter's own words.
namespace monograph::cuda {
Status CudaStatus(int code, const char* call) {
  if (code == cudaSuccess) return Status();
  return std::exchange(optest::Runtime::The().last_error, Status()).WithContext(call);
}
}  // namespace monograph::cuda

using monograph::optest::Image;
using monograph::optest::Registered;
using monograph::optest::Runtime;

// What nvcc's host code calls, and what our kernels do.
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* fatbin;
    void* unused;
  };
  return reinterpret_cast<void**>(Runtime::The().Add(static_cast<Wrapper*>(wrapper)->fatbin));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** image, const char* stub, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  Runtime::The().Add(stub, Registered{reinterpret_cast<Image*>(image), name});
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  Runtime::The().configuration = {
      {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<uint32_t>(shared)},
      stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const auto& [dims, of] = Runtime::The().configuration;
  *grid = {dims.grid[0], dims.grid[1], dims.grid[2]};
  *block = {dims.block[0], dims.block[1], dims.block[2]};
  *shared = dims.dynamic_shared;
  *static_cast<cudaStream_t*>(stream) = of;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(Runtime::The().Find(stub));
  return *kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t) {
  return monograph::optest::Report(Runtime::The().Launch(
      *reinterpret_cast<Registered*>(kernel),
      {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<uint32_t>(shared)},
      args));
}

cudaError_t CUDARTAPI cudaGetLastError() {
  return Runtime::The().last_error.ok() ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  if (value != 0)
    return monograph::optest::Report(monograph::Unimplemented("cudaMemsetAsync of no zeros"));
  monograph::ops::simulated::Zero(to, bytes);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                      cudaStream_t) {
  monograph::ops::simulated::Copy(to, from, bytes);
  return cudaSuccess;
}

}  // extern "C"
