// Device: where nodes run: a name, a memory, what the placer needs to know.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/device_info.h"

namespace monograph {

class GpuDevice;  // executor/gpu/gpu_device.h

// Immutable; outlives every plan that names it.
class Device {
 public:
  Device(DeviceInfo info, Allocator* allocator)
      : info_(std::move(info)), name_(info_.name.ToString()), allocator_(allocator) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const std::string& name() const { return name_; }  // full
  Allocator* allocator() const { return allocator_; }
  // What the executor drives of a device with memory and queues of its own: its nodes become
  // segments, copies and fences of the plan (executor/gpu/lower.h). nullptr for a device that
  // computes in host memory on the step's threads, as a CPU does: its nodes stay as they are.
  virtual GpuDevice* gpu() { return nullptr; }

 private:
  const DeviceInfo info_;
  const std::string name_;
  Allocator* const allocator_;
};

// Devices /device:CPU:0 .. /device:CPU:count-1 of `task`. They share the process's threads and host
// memory. InvalidArgument unless `task` names job, replica and task, and count is at least 1.
Result<std::vector<std::unique_ptr<Device>>> MakeCpuDevices(const DeviceName& task, int count);

}  // namespace monograph
