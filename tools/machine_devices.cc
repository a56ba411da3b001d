#include "tools/machine_devices.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/json_value.h"
#include "executor/device.h"

namespace monograph {
namespace {

std::string Gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// "NVIDIA H200, 139.8 GiB, compute capability 9.0, 132 multiprocessors, PCI 0000:05:00.0, CUDA 13.0
// (driver 13.1), cuDNN 9.19.0, NCCL 2.28.9"
std::string Describe(const GpuInfo& gpu) {
  const auto cuda = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const int64_t cudnn = gpu.cudnn_version;
  std::ostringstream text;
  text << gpu.name << ", " << Gibibytes(gpu.memory_bytes) << ", compute capability "
       << gpu.compute_major << "." << gpu.compute_minor << ", " << gpu.multiprocessors
       << " multiprocessors, PCI " << gpu.pci_bus_id << ", CUDA " << cuda(gpu.runtime_version)
       << " (driver " << cuda(gpu.driver_version) << "), cuDNN " << cudnn / 10000 << "."
       << cudnn % 10000 / 100 << "." << cudnn % 100 << ", " << gpu.nccl;
  return text.str();
}

}  // namespace

Result<MachineDevices> FindDevices() {
  MachineDevices machine;
  const DeviceName task = DeviceName::Parse("/job:localhost/replica:0/task:0").value();
  MG_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Device>> cpus, MakeCpuDevices(task, 1));
  machine.cores = sysconf(_SC_NPROCESSORS_ONLN);
  machine.memory_bytes = cpus.front()->info().memory_limit;
  MG_ASSIGN_OR_RETURN(machine.gpus, ListGpus());
  if (machine.gpus.empty()) machine.why_no_gpu = WhyNoCuda();
  return machine;
}

std::string FormatDevices(const MachineDevices& machine) {
  std::string text = "/device:CPU:0  " + std::to_string(machine.cores) + " cores, " +
                     Gibibytes(machine.memory_bytes) + "\n";
  for (size_t i = 0; i < machine.gpus.size(); ++i)
    text += "/device:GPU:" + std::to_string(i) + "  " + Describe(machine.gpus[i]) + "\n";
  if (machine.gpus.empty()) text += "no GPU: " + machine.why_no_gpu + "\n";
  return text;
}

std::string DevicesJson(const MachineDevices& machine) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson devices = OrderedJson::array();
  devices.push_back({{"name", "/device:CPU:0"},
                     {"type", kCpu.name()},
                     {"memory_bytes", machine.memory_bytes},
                     {"cores", machine.cores}});
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuInfo& gpu = machine.gpus[i];
    devices.push_back({{"name", "/device:GPU:" + std::to_string(i)},
                       {"type", kGpu.name()},
                       {"memory_bytes", gpu.memory_bytes},
                       {"model", gpu.name},
                       {"compute_capability", {gpu.compute_major, gpu.compute_minor}},
                       {"multiprocessors", gpu.multiprocessors},
                       {"pci_bus_id", gpu.pci_bus_id},
                       {"cuda_runtime", gpu.runtime_version},
                       {"cuda_driver", gpu.driver_version},
                       {"cudnn", gpu.cudnn_version},
                       {"nccl", gpu.nccl}});
  }
  OrderedJson json = {{"monograph_devices", 1}, {"devices", std::move(devices)}};
  json["why_no_gpu"] =
      machine.gpus.empty() ? OrderedJson(machine.why_no_gpu) : OrderedJson(nullptr);
  return JsonText(json, 2) + "\n";
}

}  // namespace monograph
