#include "executor/gpu_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace monograph {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
bool ParseNumber(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Status Refuse(std::string_view option, std::string_view text, std::string_view why) {
  return InvalidArgument(std::string(option) + " '" + std::string(text) + "': " + std::string(why));
}

}  // namespace

Result<std::vector<int>> ParseVisibleDeviceList(std::string_view text) {
  constexpr std::string_view kOption = "visible_device_list";
  std::vector<int> devices;
  if (text.empty()) return devices;
  for (std::string_view part : Split(text, ',')) {
    int id = 0;
    if (!ParseNumber(part, &id) || id < 0) {
      return Refuse(kOption, text,
                    "'" + std::string(part) + "' is no GPU's number; write, for instance, '1,0'");
    }
    if (std::find(devices.begin(), devices.end(), id) != devices.end())
      return Refuse(kOption, text, "GPU " + std::to_string(id) + " is there twice");
    devices.push_back(id);
  }
  return devices;
}

Result<GpuShare> ParseGpuShare(std::string_view text) {
  GpuShare share;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !ParseNumber(text.substr(0, slash), &share.index) ||
      !ParseNumber(text.substr(slash + 1), &share.count) || share.index < 0 ||
      share.index >= share.count) {
    return Refuse("gpu_share", text,
                  "it says which process of how many this is, from 0; write, for instance, '1/4'");
  }
  return share;
}

Result<std::vector<std::vector<int64_t>>> ParseVirtualGpus(std::string_view text) {
  constexpr std::string_view kOption = "virtual_gpus";
  constexpr int kMost = 64;
  std::vector<std::vector<int64_t>> gpus;
  if (text.empty()) return gpus;
  for (std::string_view gpu : Split(text, ';')) {
    std::vector<int64_t>& limits = gpus.emplace_back();
    if (gpu.empty()) continue;
    for (std::string_view part : Split(gpu, ',')) {
      int times = 1;
      std::string_view size = part;
      if (const size_t x = part.find('x'); x != std::string_view::npos) {
        if (!ParseNumber(part.substr(0, x), &times) || times < 1 || times > kMost)
          return Refuse(kOption, text,
                        "'" + std::string(part) + "' does not start with how many, 1 to " +
                            std::to_string(kMost) + "; write, for instance, '2x4096;8192'");
        size = part.substr(x + 1);
      }
      int64_t mebibytes = 0;
      if (!ParseNumber(size, &mebibytes) || mebibytes < 1) {
        return Refuse(kOption, text,
                      "'" + std::string(part) +
                          "' is no amount of memory in MiB; write, for instance, '2x4096;8192'");
      }
      limits.insert(limits.end(), static_cast<size_t>(times), mebibytes);
      if (limits.size() > kMost)
        return Refuse(kOption, text, "a GPU is split into at most " + std::to_string(kMost));
    }
  }
  return gpus;
}

Status CheckGpuOptions(const GpuOptions& options) {
  if (options.device_count < -1) {
    return InvalidArgument("device_count[kGpu] is " + std::to_string(options.device_count) +
                           "; it is a number of GPUs, or -1 for all");
  }
  const double fraction = options.per_process_gpu_memory_fraction;
  if (!(fraction >= 0 && fraction <= 1)) {
    return InvalidArgument(
        "per_process_gpu_memory_fraction is " + std::to_string(fraction) +
        "; it is a part of the GPU's memory from 0 to 1 (0: all that is free but a reserve)");
  }
  MG_ASSIGN_OR_RETURN(const std::vector<int> visible,
                      ParseVisibleDeviceList(options.visible_device_list));
  const auto& split = options.virtual_device_memory_mb;
  if (!visible.empty() && split.size() > visible.size()) {
    return InvalidArgument("virtual_gpus splits " + std::to_string(split.size()) +
                           " GPUs, but visible_device_list names only " +
                           std::to_string(visible.size()));
  }
  for (const std::vector<int64_t>& limits : split) {
    for (int64_t mebibytes : limits) {
      if (mebibytes < 1) {
        return InvalidArgument("virtual_gpus: a virtual GPU has at least 1 MiB, not " +
                               std::to_string(mebibytes));
      }
    }
    if (!limits.empty() && fraction != 0) {
      return InvalidArgument("per_process_gpu_memory_fraction is " + std::to_string(fraction) +
                             ", and virtual_gpus limits memory itself; give one of the two");
    }
  }
  return Status();
}

}  // namespace monograph
