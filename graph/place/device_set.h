// DeviceSet: the devices that nodes can be placed on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device_info.h"

namespace monograph::place {

// A set of types of devices: bit i is DeviceSet::types()[i].
using TypeMask = uint32_t;
constexpr size_t kMaxTypes = 32;

// Job, replica and task of a name.
DeviceName TaskPart(const DeviceName& name);

class DeviceSet {
 public:
  struct Device {
    DeviceName name;
    std::string text;
    uint32_t type = 0;  // in types()
  };

  explicit DeviceSet(const std::vector<DeviceInfo>& infos);

  // The type of the highest priority first, then by text.
  const std::vector<Device>& devices() const { return devices_; }
  const Device& at(int32_t device) const { return devices_[static_cast<size_t>(device)]; }
  const std::vector<DeviceType>& types() const { return types_; }
  TypeMask all_types() const { return all_types_; }

  // Whether the device has one of the types and fulfils the constraint.
  bool Fits(const Device& device, const DeviceName& constraint, TypeMask types) const {
    return (types >> device.type & 1u) != 0 && constraint.Matches(device.name);
  }
  // The first device that fits, the client's own last; -1 if there is none.
  int32_t BestMatch(const DeviceName& constraint, TypeMask types) const;

 private:
  std::vector<Device> devices_;
  std::vector<DeviceType> types_;
  TypeMask all_types_ = 0;
};

}  // namespace monograph::place
