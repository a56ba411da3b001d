// DeviceType: the type of a device, as a value. Types have constants here; their texts and what
// placement knows about them stand in one table, device_type.cc.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

class DeviceType {
 public:
  constexpr DeviceType() = default;  // no type: any
  // REQUIRES: at most kMaxSize characters; for constants.
  constexpr explicit DeviceType(std::string_view name) {
    for (size_t i = 0; i < name.size(); ++i) name_.at(i) = name[i];
  }
  static constexpr size_t kMaxSize = 15;

  // Any letter followed by letters, digits or '_' names a type, so that a graph may request types
  // that this build lacks ("TPU"). InvalidArgument if `text` is no such name, or is too long.
  static Result<DeviceType> Parse(std::string_view text);
  // "gpu" and "GPU" of the short form "/gpu:0"; only for types with a constant below. Empty if
  // `text` is none.
  static DeviceType FromShortForm(std::string_view text);

  constexpr bool empty() const { return name_[0] == '\0'; }
  // "GPU"; "" for no type. Valid as long as this value.
  constexpr std::string_view name() const { return name_.data(); }
  std::string ToString() const { return std::string(name()); }
  // Where a node may be on several types, it goes to the one with the highest priority
  // (TensorFlow's numbers: accelerators come before the host).
  int priority() const;

  friend constexpr bool operator==(const DeviceType&, const DeviceType&) = default;
  friend constexpr std::strong_ordering operator<=>(const DeviceType&, const DeviceType&) = default;

 private:
  std::array<char, kMaxSize + 1> name_{};  // the rest is zeros
};

inline constexpr DeviceType kCpu("CPU");  // the host
inline constexpr DeviceType kGpu("GPU");

}  // namespace monograph
