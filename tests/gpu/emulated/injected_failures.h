// Lets calls of the emulated CUDA fail, one at a time (tests/gpu/emulated/runtime.cc), or be slow.
// For tests whose program has no CUDA: the plug-in that they open has brought the emulated runtime
// with it.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" {
[[gnu::visibility("default")]] void MgEmulatedGpuFail(int64_t call, int error, const char* only);
[[gnu::visibility("default")]] const char* MgEmulatedGpuFailed();
[[gnu::visibility("default")]] void MgEmulatedGpuRestart();
[[gnu::visibility("default")]] void MgEmulatedSlowProducts(int ways);
[[gnu::visibility("default")]] int64_t MgEmulatedProgrammaticLaunches();
}

namespace monograph::emulated {

// Of the process; any thread.
class InjectedFailures {
 public:
  // Whether the emulated runtime is in the process by now; nothing else may be called before.
  bool Found() {
    if (library_ == nullptr) library_ = dlopen("libemulated_gpu.so", RTLD_NOW | RTLD_NOLOAD);
    return library_ != nullptr;
  }
  // Call number `call` from now on (1: the next one) fails with `error`, and no later one. It has
  // no effect, but for the ends of graphs, whose error is one of an earlier call. Codes that break
  // a capture break that of the call's stream; 719 (cudaErrorLaunchFailure) loses the device. Polls
  // (cudaEventQuery) are not counted, nor are cuDNN's descriptions and NCCL's calls. `only`:
  // counted are calls of that name, of these, too, and `error` is a code of its library.
  void FailAt(int64_t call, int error, const std::string& only = "") {
    Function<decltype(MgEmulatedGpuFail)>("MgEmulatedGpuFail")(call, error, only.c_str());
  }
  // No call fails any more.
  void Stop() { FailAt(0, 0); }
  // The name of the call that failed; empty if it has not come.
  std::string Failed() { return Function<decltype(MgEmulatedGpuFailed)>("MgEmulatedGpuFailed")(); }
  // As if the process were started anew: no device is lost. REQUIRES: no session is open.
  void Restart() { Function<decltype(MgEmulatedGpuRestart)>("MgEmulatedGpuRestart")(); }
  // The first `ways` of cuBLASLt's ranking (tests/gpu/emulated/cublaslt.cc) take 20 ms longer.
  void SlowProducts(int ways) {
    Function<decltype(MgEmulatedSlowProducts)>("MgEmulatedSlowProducts")(ways);
  }
  // How many kernels were launched by now that need not await the one before.
  int64_t ProgrammaticLaunches() {
    return Function<decltype(MgEmulatedProgrammaticLaunches)>("MgEmulatedProgrammaticLaunches")();
  }

 private:
  template <typename F>
  F* Function(const char* name) {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

// Which calls of a step fail, one at a time: number `first`, and every `stride`-th behind it.
struct FailingCalls {
  int64_t first = 1;
  int64_t stride = 1;
};
// A sample of one in `stride`, that MG_EMULATED_GPU_SEED chooses; with MG_FAILING_CALLS=K/N in the
// environment part K of N of all (tests/campaigns/gpu_failures.py).
inline FailingCalls ChooseCalls(int64_t stride) {
  const char* text = std::getenv("MG_FAILING_CALLS");
  if (text != nullptr) {
    char* end = nullptr;
    const int64_t part = std::strtoll(text, &end, 10);
    const int64_t parts = *end == '/' ? std::strtoll(end + 1, nullptr, 10) : 1;
    return {std::max<int64_t>(part, 1), std::max<int64_t>(parts, 1)};
  }
  const char* seed = std::getenv("MG_EMULATED_GPU_SEED");
  return {1 + (seed == nullptr ? 0 : std::strtoll(seed, nullptr, 10)) % stride, stride};
}

}  // namespace monograph::emulated
