#include "executor/cuda_devices.h"

namespace monograph {

Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName&,
                                                             const GpuOptions&) {
  return std::vector<std::unique_ptr<Device>>();
}

std::string WhyNoCuda() { return "this program was built without CUDA"; }

}  // namespace monograph
