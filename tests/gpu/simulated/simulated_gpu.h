// A GPU that is not there: the kernels of the *_cuda files, on the grid of
// tests/gpu/simulated/simulated_grid.h. simulated_gpu_test has them as the host's compiler makes
// them, emulated_gpu_test as nvcc does, run by tests/gpu/emulated/ptx.h.
//
// Its memory can be touched only while a kernel runs, and that of host arguments only while none
// does: a kernel class that looks at device data, or a body that looks at host data, ends the test
// with SIGSEGV. New memory is poisoned, and what lies around each block is watched.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "executor/step/kernel_runner.h"
#include "tests/gpu/simulated/simulated_grid.h"

namespace monograph::optest {

// Whether cuBLASLt computes products without bias, and cuDNN convolutions over planes without
// padding and batch normalisation; else they refuse everything.
inline bool simulated_libraries = false;

// The kernels for GPUs of ops/ that are our own.
const KernelRegistry& SimulatedKernels();

// FAILED_PRECONDITION: these kernels cannot run here.
Status CanSimulate();

// Whether exp, log and their like are the device's own: near to the host's, but of other bits.
bool HasOwnFunctions();

class SimulatedMemory : public DeviceMemory {
 public:
  SimulatedMemory();
  ~SimulatedMemory() override;
  Allocator* allocator() override;
  DeviceStream* stream() override;
  Result<Tensor> ToDevice(const Tensor& on_host) override;
  Result<Tensor> ToHost(const Tensor& on_device) override;
  Result<Tensor> HostArgument(const Tensor& on_host) override;

  // Inputs begin so many elements behind an aligned address.
  void set_shift(int elements) { shift_ = elements; }
  // The block of the memory that lives now which `address` lies in or behind; empty: there is none.
  static std::span<const std::byte> BlockAt(const void* address);
  // The device has no memory for block number `block` from now on (0: the next); -1: it has.
  void RefuseBlock(int64_t block);
  // What was written beside a block since the last call: "" or where.
  std::string Damage();

 private:
  class Arena;
  std::unique_ptr<Arena> device_, host_;
  int shift_ = 0;
};

}  // namespace monograph::optest
