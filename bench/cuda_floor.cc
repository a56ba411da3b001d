#include "bench/cuda_floor.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "tests/gpu/beside_plugin.h"

namespace monograph::bench {

CudaFloors* OpenCudaFloors(std::string* why) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path =
      testing::BesidePlugin(program.parent_path() / "../lib/monograph/libmonograph_gpu_floor.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = dlerror();
    return nullptr;
  }
  using Entry = CudaFloors* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "monograph_cuda_plugin"));
  CudaFloors* floors = entry == nullptr ? nullptr : entry();
  *why = floors == nullptr ? "it is no library of gpu_bench" : floors->why_none();
  return why->empty() ? floors : nullptr;
}

}  // namespace monograph::bench
