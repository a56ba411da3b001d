// The kernels by nvcc, for simulated_gpu.h: the plug-in's own objects, and below them what they
// call of CUDA's run time. A launch runs the PTX that lies in the object beside the machine code.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/register.h"
#include "tests/gpu/emulated/ptx.h"
#include "tests/gpu/emulated/registered_kernels.h"
#include "tests/gpu/simulated/simulated_gpu.h"

namespace monograph::optest {
namespace {

using emulated::KernelImage;
using emulated::RegisteredKernel;
using emulated::RegisteredKernels;

class Runtime {
 public:
  static Runtime& The() {
    static auto* const runtime = new Runtime;
    return *runtime;
  }

  // Those that no launch has run, but for what comes of DispatchWord alone: no type has elements of
  // 16 bytes.
  Result<std::set<std::string>> NeverRun() const {
    std::set<std::string> names;
    MG_ASSIGN_OR_RETURN(const std::vector<const KernelImage*> images,
                        RegisteredKernels::Global().Images());
    for (const KernelImage* image : images) {
      for (const auto& [name, kernel] : image->module->kernels()) {
        const bool elements = name.find("FillBody") != name.npos ||
                              name.find("OneHotBody") != name.npos ||
                              name.find("Select") != name.npos;
        if (elements && name.find("Word16") != name.npos) continue;
        if (!launched_.contains(name)) names.insert(name);
      }
    }
    return names;
  }

  Status Launch(const RegisteredKernel& kernel, const ptx::LaunchDims& dims, void* const* args) {
    MG_ASSIGN_OR_RETURN(const ptx::Kernel* const code, RegisteredKernels::Global().Code(kernel));
    launched_.insert(kernel.name);
    ptx::LaunchOptions options;
    options.programmatic = true;  // in which no kernel may be wrong
    options.memory = [](const void* address) {
      const auto arrivals = std::as_bytes(std::span(ops::simulated::Arrivals(), cuda::kArrivals));
      const auto* const at = static_cast<const std::byte*>(address);
      const bool inside = at >= arrivals.data() && at < arrivals.data() + arrivals.size();
      return inside ? arrivals : SimulatedMemory::BlockAt(address);
    };
    options.order = [this](size_t k, size_t n) { return OrderOf(n)[k]; };
    orders_.clear();
    const ops::simulated::Launch launch;
    return ptx::Launch(*code, dims, args, options);
  }

  Status last_error;

 private:
  // The grid's order of n things.
  const std::vector<size_t>& OrderOf(size_t n) {
    std::vector<size_t>& order = orders_[n];
    if (order.empty()) {
      ops::simulated::InOrder(static_cast<int64_t>(n),
                              [&](int64_t i) { order.push_back(static_cast<size_t>(i)); });
    }
    return order;
  }

  std::map<size_t, std::vector<size_t>> orders_;
  std::set<std::string> launched_;  // several objects may hold the same
};

// After all tests, when none was left out: every kernel has been run.
class EveryKernel : public ::testing::Environment {
 public:
  void TearDown() override {
    const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() != tests.total_test_count()) return;
    const auto never = Runtime::The().NeverRun();
    if (never.status().code() == Code::kFailedPrecondition) return;  // all tests were skipped
    ASSERT_TRUE(never.ok()) << never.status();
    for (const std::string& name : *never)
      ADD_FAILURE() << "no test runs " << name << " (c++filt reads its name)";
  }
};
const ::testing::Environment* const kEveryKernel =
    ::testing::AddGlobalTestEnvironment(new EveryKernel);

// Kernels take from it the size of their grids.
struct EmulatedStream : cuda::Stream {
  EmulatedStream() {
    multiprocessors = 1;
    compute_capability = 90;
    arrivals = ops::simulated::Arrivals();
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

Status CanSimulate() { return RegisteredKernels::Global().Images().status(); }

bool HasOwnFunctions() { return true; }

}  // namespace monograph::optest

// The kernels' launches give the interpreter's own words.
namespace monograph::cuda {
Status CudaStatus(int code, const char* call) {
  if (code == cudaSuccess) return Status();
  return std::exchange(optest::Runtime::The().last_error, Status()).WithContext(call);
}
}  // namespace monograph::cuda

namespace monograph::emulated {
cudaError_t LaunchKernel(const RegisteredKernel& kernel, const ptx::LaunchDims& dims, void** args,
                         cudaStream_t, bool) {
  return optest::Report(optest::Runtime::The().Launch(kernel, dims, args));
}
}  // namespace monograph::emulated

using monograph::optest::Runtime;

// What our kernels call of CUDA's run time.
extern "C" {

cudaError_t CUDARTAPI cudaGetLastError() {
  return Runtime::The().last_error.ok() ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  return cudaErrorNotSupported;  // no stream here wants it
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
