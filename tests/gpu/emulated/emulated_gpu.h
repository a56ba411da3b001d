// What the emulated libraries take from the emulated runtime (runtime.cc).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace monograph::emulated {

// What a call reads or writes of the device's memory.
struct Operand {
  const void* data = nullptr;
  size_t bytes = 0;
};

// `work` in the stream's order, or into the graph that is captured. `what` is for the log. Fails if
// an operand is not in memory that the device may touch; if it is freed until the work runs, the
// device is lost.
cudaError_t EnqueueOn(CUstream_st* stream, const char* what, std::function<void()> work,
                      std::vector<Operand> operands = {});

// The allocation that holds the address; without `data` if none does.
struct MemoryRange {
  const void* data = nullptr;
  size_t bytes = 0;
  int device = -1;  // -1: pinned memory of the host
};
MemoryRange MemoryAt(const void* address);

// -1: no such stream.
int DeviceOf(CUstream_st* stream);

// From `work`: it went wrong, as a kernel that fails does.
void Lose(const char* why);
bool IsLost();

// The code with which a test wants the call to fail (injected_failures.h); 0: it does not.
int InjectedFailure(const char* call);
// The same for calls that only count where a test names them.
int NamedFailure(const char* call);

// For what is to be late, each time another one.
unsigned NextSeed();

}  // namespace monograph::emulated
