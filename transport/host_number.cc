#include "transport/host_number.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "base/hash.h"

namespace monograph {

uint64_t HostNumber() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::array<char, 64> space;
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size());
  if (!std::getline(file, name) || length <= 0) return 0;
  name.append(space.data(), static_cast<size_t>(length));
  return std::max<uint64_t>(Fnv1a(name), 1);
}

}  // namespace monograph
