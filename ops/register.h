// DefineOps and the Register functions: all ops and kernels that Monograph brings, by explicit
// calls (generated from ops/CMakeLists.txt).
//
// A program calls each once at start, before it shares the registries between threads. An op of
// your own is three more calls:
//
//   OpRegistry ops;                      KernelRegistry kernels;
//   DefineOps(&ops);                     RegisterCpuKernels(&kernels);
//   my_op::Define(&ops);                 my_op::RegisterCpu(&kernels);
//
// in the client's program and in the daemon's (both sides compare their registries when they
// connect). REQUIRES: names that no other op has.
#pragma once

#include <span>

namespace monograph {

class KernelRegistry;
class OpRegistry;

// A folder of ops/: its name, and the function that adds its definitions.
struct OpFamily {
  const char* name;
  void (*define)(OpRegistry* registry);
};
std::span<const OpFamily> OpFamilies();             // by name; links monograph::ops_def
void DefineOps(OpRegistry* registry);               // links monograph::ops_def
void RegisterCpuKernels(KernelRegistry* registry);  // links monograph::ops_cpu
// Only in libmonograph_cuda.so, which executor/gpu/plugin.h opens.
void RegisterCudaKernels(KernelRegistry* registry);

}  // namespace monograph
