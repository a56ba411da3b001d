// Module, Launch: PTX, run on the CPU. What nvcc makes of our kernels for GPUs is so compared with
// the CPU's kernels where there is no GPU: the code that the driver would compile, not that which
// the host's compiler makes of the same source (tests/gpu/simulated/simulated_grid.h).
//
// The instructions are those that nvcc emits for our kernels; another one is an error of Parse that
// names it. Each rounds as the PTX ISA says; the approximate ones (ex2.approx, rcp.approx, ...)
// give the correctly rounded result, which a GPU need not. Threads run one after the other, each to
// its end or to the next barrier. Besides what a GPU traps, a launch fails where a GPU's result
// would be undefined: shared memory that two threads touch without a barrier between them, a
// barrier that not all threads of a block reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace monograph::ptx {

struct Function;

struct Parameter {
  size_t offset = 0, bytes = 0;  // in the kernel's block of parameters
};

struct Kernel {
  std::string name;  // mangled
  std::vector<Parameter> parameters;
  size_t shared_bytes = 0;   // static shared memory
  uint32_t max_threads = 0;  // of a block, from .maxntid; 0: as many as there may be
  std::unique_ptr<const Function> code;
};

// Immutable once parsed, but for the bytes of its variables.
class Module {
 public:
  static Result<std::unique_ptr<Module>> Parse(std::string_view text);
  ~Module();

  const Kernel* Find(std::string_view name) const;  // nullptr: no such kernel
  const std::map<std::string, Kernel, std::less<>>& kernels() const { return kernels_; }
  // A .global or .const variable's memory; empty: no such variable.
  std::span<std::byte> Variable(std::string_view name) const;

 private:
  friend class Parser;
  Module();

  std::string text_;
  std::map<std::string, Kernel, std::less<>> kernels_;
  std::map<std::string, std::unique_ptr<const Function>, std::less<>> functions_;
  std::map<std::string, std::pair<std::unique_ptr<std::max_align_t[]>, size_t>, std::less<>>
      variables_;
};

struct LaunchDims {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;  // bytes
};

struct LaunchOptions {
  // The block of the device's memory that holds an address; empty: none does. Without this function
  // every address is good. The module's own variables always are.
  std::function<std::span<const std::byte>(const void*)> memory;
  // Which of n blocks, or threads of a block, comes k-th; without it, the k-th.
  std::function<size_t(size_t k, size_t n)> order;
  // What runs before on the stream may not have ended: a thread that touches global memory before
  // griddepcontrol.wait, or never comes to it, is an error.
  bool programmatic = false;
};

// Runs a kernel to its end on the calling thread. `args` points to each parameter's value. Global
// addresses are the host's. An error names the kernel, the thread, the line of PTX and the address.
Status Launch(const Kernel& kernel, const LaunchDims& dims, void* const* args,
              const LaunchOptions& options = {});

}  // namespace monograph::ptx
