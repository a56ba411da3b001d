#include "executor/device.h"

#include "base/pool_allocator.h"
#include "base/random.h"

namespace monograph {

Result<std::vector<std::unique_ptr<Device>>> MakeCpuDevices(const DeviceName& task, int count) {
  if (!task.has_task()) return InvalidArgument("'" + task.ToString() + "' does not name a task");
  if (count < 1)
    return InvalidArgument("a task needs at least one CPU device, not " + std::to_string(count));
  const uint64_t incarnation = RandomNonZero();
  std::vector<std::unique_ptr<Device>> devices;
  for (int id = 0; id < count; ++id) {
    DeviceInfo info{.name = task,
                    .memory_limit = HostPool().limit(),
                    .incarnation = incarnation + static_cast<uint64_t>(id)};
    info.name.type = kCpu;
    info.name.id = id;
    devices.push_back(std::make_unique<Device>(std::move(info), HostAllocator()));
  }
  return devices;
}

}  // namespace monograph
