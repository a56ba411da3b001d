#include "executor/gpu/logical_gpus.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace monograph {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// What CUDA, cuDNN and cuBLASLt need for themselves, when a task takes all the rest.
int64_t Reserve(int64_t total) { return std::max(512 * kMiB, total / 32); }

// The GPUs that the task may use, in its order.
Result<std::vector<int>> VisibleGpus(const GpuOptions& options, int count) {
  MG_ASSIGN_OR_RETURN(std::vector<int> gpus, ParseVisibleDeviceList(options.visible_device_list));
  if (gpus.empty()) {
    gpus.resize(static_cast<size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  for (const int gpu : gpus) {
    if (gpu < count) continue;
    return InvalidArgument("visible_device_list '" + options.visible_device_list + "' names GPU " +
                           std::to_string(gpu) + "; this machine has " +
                           (count == 1 ? "only GPU 0" : "GPUs 0 to " + std::to_string(count - 1)));
  }
  if (const GpuShare& share = options.share; share.count > 1 && !gpus.empty()) {
    const auto all = static_cast<int64_t>(gpus.size());
    const int64_t begin = all * share.index / share.count,
                  end = std::max(begin + 1, all * (share.index + 1) / share.count);
    gpus = {gpus.begin() + begin, gpus.begin() + end};
  }
  const size_t split = options.virtual_device_memory_mb.size();
  if (split > gpus.size()) {
    return InvalidArgument("virtual_gpus is given for " + std::to_string(split) +
                           " GPUs; this task sees " + std::to_string(gpus.size()));
  }
  return gpus;
}

Status NotFree(int gpu, const GpuMemorySize& memory, int64_t wanted, bool is_split,
               double fraction) {
  const std::string has = "GPU " + std::to_string(gpu) + " has " + GibibytesText(memory.free) +
                          " of " + GibibytesText(memory.total) + " free; ";
  if (is_split) {
    return ResourceExhausted(has + "its virtual_gpus are to take " + GibibytesText(wanted) +
                             " together. Give smaller ones, or set allow_growth");
  }
  if (fraction > 0) {
    const auto percent = static_cast<int>(100 * static_cast<double>(memory.free) /
                                          static_cast<double>(memory.total));
    return ResourceExhausted(has + "per_process_gpu_memory_fraction " + std::to_string(fraction) +
                             " is to take " + GibibytesText(wanted) + ". Give at most " +
                             std::to_string(percent / 100) + "." +
                             std::to_string(percent % 100 / 10) + std::to_string(percent % 10) +
                             ", or set allow_growth");
  }
  return ResourceExhausted(has + "that is not more than the reserve of " +
                           GibibytesText(Reserve(memory.total)) +
                           " for CUDA's own needs. Name another GPU in visible_device_list, or end "
                           "what uses this one");
}

}  // namespace

std::string GibibytesText(int64_t bytes) {
  const int64_t tenths = (bytes * 10 + (int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

Result<std::vector<LogicalGpu>> PlanLogicalGpus(
    const GpuOptions& options, int count,
    const std::function<Result<GpuMemorySize>(int gpu)>& memory_of) {
  MG_ASSIGN_OR_RETURN(const std::vector<int> gpus, VisibleGpus(options, count));
  const auto& split = options.virtual_device_memory_mb;
  const double fraction = options.per_process_gpu_memory_fraction;
  std::vector<LogicalGpu> logical;
  const size_t most =
      options.device_count < 0 ? SIZE_MAX : static_cast<size_t>(options.device_count);
  for (size_t i = 0; i < gpus.size() && logical.size() < most; ++i) {
    MG_ASSIGN_OR_RETURN(const GpuMemorySize memory, memory_of(gpus[i]));
    std::vector<int64_t> limits;
    const bool is_split = i < split.size() && !split[i].empty();
    if (is_split) {
      for (const int64_t mebibytes : split[i]) limits.push_back(mebibytes * kMiB);
    } else {
      limits.push_back(fraction > 0
                           ? static_cast<int64_t>(static_cast<double>(memory.total) * fraction)
                           : memory.free - Reserve(memory.total));
    }
    const auto parts = static_cast<int>(limits.size());
    limits.resize(std::min(limits.size(), most - logical.size()));
    const int64_t wanted = std::accumulate(limits.begin(), limits.end(), int64_t{0});
    if (wanted <= 0 || (wanted > memory.free && !options.allow_growth))
      return NotFree(gpus[i], memory, wanted, is_split, fraction);
    for (size_t part = 0; part < limits.size(); ++part)
      logical.push_back({gpus[i], static_cast<int>(part), parts, limits[part]});
  }
  return logical;
}

}  // namespace monograph
