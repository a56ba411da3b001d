#include "graph/place/device_set.h"

#include <algorithm>

namespace monograph::place {

DeviceName TaskPart(const DeviceName& name) {
  DeviceName task;
  task.job = name.job;
  task.replica = name.replica;
  task.task = name.task;
  return task;
}

DeviceSet::DeviceSet(const std::vector<DeviceInfo>& infos) {
  for (const DeviceInfo& info : infos) devices_.push_back({info.name, info.name.ToString()});
  std::sort(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) {
    const int pa = a.name.type.priority(), pb = b.name.type.priority();
    return pa != pb ? pa > pb : a.text < b.text;
  });
  for (Device& device : devices_) {
    const auto known = std::find(types_.begin(), types_.end(), device.name.type);
    device.type = static_cast<uint32_t>(known - types_.begin());
    if (known == types_.end()) types_.push_back(device.name.type);
  }
  all_types_ = types_.size() >= kMaxTypes ? ~TypeMask{0} : (TypeMask{1} << types_.size()) - 1;
}

int32_t DeviceSet::BestMatch(const DeviceName& constraint, TypeMask types) const {
  int32_t best = -1;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!Fits(devices_[i], constraint, types)) continue;
    if (devices_[i].name.job != "client") return static_cast<int32_t>(i);
    if (best < 0) best = static_cast<int32_t>(i);
  }
  return best;
}

}  // namespace monograph::place
