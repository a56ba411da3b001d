#include "base/device_type.h"

#include <algorithm>
#include <cctype>

namespace monograph {
namespace {

struct Known {
  DeviceType type;
  std::string_view lower_case;
  int priority;
};
constexpr Known kKnown[] = {{kCpu, "cpu", 70}, {kGpu, "gpu", 210}};
constexpr int kOtherPriority = 100;

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

Result<DeviceType> DeviceType::Parse(std::string_view text) {
  if (text.empty() || text.size() > kMaxSize || !IsLetter(text[0]) ||
      !std::ranges::all_of(text, IsNameCharacter)) {
    return InvalidArgument(
        "'" + std::string(text) +
        "' is no type of device; types are named like CPU and GPU, with at most " +
        std::to_string(kMaxSize) + " letters, digits and '_'");
  }
  return DeviceType(text);
}

DeviceType DeviceType::FromShortForm(std::string_view text) {
  for (const Known& known : kKnown) {
    if (text == known.lower_case || text == known.type.name()) return known.type;
  }
  return DeviceType();
}

int DeviceType::priority() const {
  for (const Known& known : kKnown) {
    if (known.type == *this) return known.priority;
  }
  return kOtherPriority;
}

}  // namespace monograph
