// Where test programs and gpu_bench find what they open beside the GPU plug-in.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace monograph::testing {

// The file of `library`'s name in the folder of the plug-in that the environment's
// MONOGRAPH_CUDA_PLUGIN names, if there is one, else `library`. With the emulated plug-in, whose
// folder has these libraries over the emulated runtime, whole programs run without a GPU.
inline std::string BesidePlugin(const std::string& library) {
  if (const char* const plugin = std::getenv("MONOGRAPH_CUDA_PLUGIN"); plugin != nullptr) {
    const std::filesystem::path beside =
        std::filesystem::path(plugin).parent_path() / std::filesystem::path(library).filename();
    std::error_code error;
    if (std::filesystem::exists(beside, error)) return beside.string();
  }
  return library;
}

}  // namespace monograph::testing
