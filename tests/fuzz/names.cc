// Short texts of flags and files: devices, addresses, keys.
#include "base/device_name.h"
#include "tests/fuzz/targets.h"
#include "transport/control/host_port.h"
#include "transport/control/key.h"

namespace monograph::fuzz {

void names(std::string_view bytes) {
  const std::string text(bytes);
  if (const Result<DeviceName> device = DeviceName::Parse(text); device.ok()) {
    const Result<DeviceName> again = DeviceName::Parse(device->ToString());
    MG_CHECK(again.ok() && again->ToString() == device->ToString());
  }
  if (const auto address = control::ParseHostPort(text); address.ok()) {
    const auto again = control::ParseHostPort(address->ToString());
    MG_CHECK(again.ok() && again->ToString() == address->ToString());
  }
  if (const auto key = control::ParseKey(text); key.ok())
    MG_CHECK(control::ParseKey(control::FormatKey(*key)).ok());
}

}  // namespace monograph::fuzz
