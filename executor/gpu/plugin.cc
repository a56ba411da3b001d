// Finds the GPUs' plug-in and opens it once per process: the file that the environment or the build
// names, of the same build as the program. Before that, CUDA is told to load its kernels when it
// starts, not at their first launch, which may be within a capture.
#include "executor/gpu/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "base/log.h"
#include "executor/cuda_stamp.h"
#include "executor/gpu/default_plugin.h"
#include "executor/kernel.h"

namespace monograph {
namespace {

struct Opened {
  const CudaPlugin* plugin = nullptr;
  std::string why;  // there is no plug-in
  Status error;     // the plug-in is there but is not the right one
  KernelRegistry kernels;
};

LogLevel CurrentLogLevel() {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (LogEnabled(level)) return level;
  }
  return LogLevel::kOff;
}

// The paths to try, the first that exists counts.
std::vector<std::string> Candidates() {
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const std::string& path : DefaultCudaPlugins()) {
    if (path.starts_with('/')) {
      paths.push_back(path);
    } else if (!error) {
      paths.push_back((program.parent_path() / path).lexically_normal().string());
    }
  }
  return paths;
}

Status OpenFile(const std::string& path, Opened* opened) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // As "libcudnn.so.9: cannot open shared object file: No such file or directory".
    return NotFound(path + " cannot be loaded: " + dlerror() +
                    "; LD_LIBRARY_PATH can name the folder of a library that is missing");
  }
  const auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) {
    dlclose(library);
    return FailedPrecondition(path + " is no CUDA plug-in of Monograph");
  }
  const CudaPlugin* plugin = entry(CurrentLogLevel());
  if (std::string_view(plugin->stamp) != CudaStamp()) {
    const std::string theirs = plugin->stamp;
    dlclose(library);
    return FailedPrecondition(path + " is of another build (" + theirs + ") than this program (" +
                              CudaStamp() + "); build and install both together");
  }
  plugin->register_kernels(&opened->kernels);
  opened->plugin = plugin;
  return Status();
}

// CUDA's driver reads this when it starts: all kernels are loaded then, and not each at its first
// launch, which may have to wait for what the GPU does. Where that is an exchange with another GPU
// of this process, whose own first launch waits likewise, both would wait for ever.
//
// Other threads may read the environment meanwhile. setenv may free the list that they read; so
// they get a longer copy of it instead, which is never freed, and the old one stays as it is.
void LoadKernelsAtOnce() {
  if (std::getenv("CUDA_MODULE_LOADING") != nullptr) return;
  static char variable[] = "CUDA_MODULE_LOADING=EAGER";
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  char** const longer = new char*[count + 2];
  std::copy_n(environ, count, longer);
  longer[count] = variable;
  longer[count + 1] = nullptr;
  environ = longer;
}

void Open(Opened* opened) {
  const char* named = std::getenv("MONOGRAPH_CUDA_PLUGIN");
  if (named != nullptr && *named == '\0') named = nullptr;
  if (named != nullptr && std::string_view(named) == "none") {
    opened->why = "the environment's MONOGRAPH_CUDA_PLUGIN is 'none'";
    return;
  }
  const std::vector<std::string> candidates =
      named != nullptr ? std::vector<std::string>{named} : Candidates();
  if (candidates.empty()) {
    opened->why = "this program was built without CUDA";
    return;
  }
  LoadKernelsAtOnce();
  // Opened for good: the plug-in's CUDA finds it loaded.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    opened->why = std::string("this machine has no NVIDIA driver (") + dlerror() + ")";
    return;
  }
  std::string tried;
  for (const std::string& path : candidates) {
    if (access(path.c_str(), R_OK) != 0) {
      tried += (tried.empty() ? "" : ", ") + path;
      continue;
    }
    const Status status = OpenFile(path, opened);
    if (status.ok()) return;
    opened->why = status.message();
    if (status.code() == Code::kFailedPrecondition) opened->error = status;
    return;
  }
  opened->why = "the CUDA plug-in is missing; looked for " + tried +
                " (the environment's MONOGRAPH_CUDA_PLUGIN can name it)";
}

const Opened& Plugin() {
  static const Opened* opened = [] {
    auto* made = new Opened;
    Open(made);
    return made;
  }();
  return *opened;
}

}  // namespace

Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions& options) {
  MG_RETURN_IF_ERROR(CheckGpuOptions(options));
  if (options.device_count == 0) return std::vector<std::unique_ptr<Device>>();
  MG_ASSIGN_OR_RETURN(const std::vector<GpuInfo> gpus, ListGpus());
  if (gpus.empty()) return std::vector<std::unique_ptr<Device>>();
  return Plugin().plugin->make_devices(task, options);
}

Result<std::vector<GpuInfo>> ListGpus() {
  const Opened& opened = Plugin();
  if (!opened.error.ok()) return opened.error;
  if (opened.plugin == nullptr) return std::vector<GpuInfo>();
  Result<std::vector<GpuInfo>> gpus = opened.plugin->list();
  if (!gpus.ok()) return std::vector<GpuInfo>();
  return gpus;
}

std::string WhyNoCuda() {
  const Opened& opened = Plugin();
  if (opened.plugin == nullptr) return opened.why;
  const Result<std::vector<GpuInfo>> gpus = opened.plugin->list();
  if (!gpus.ok()) return gpus.status().message();
  return gpus->empty() ? "the driver finds no GPU" : "";
}

const KernelRegistry* CudaKernels() {
  const Opened& opened = Plugin();
  return opened.plugin == nullptr ? nullptr : &opened.kernels;
}

const char* CudaStamp() { return MG_CUDA_STAMP; }

}  // namespace monograph
