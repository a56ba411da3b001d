// A file in memory, for parsers that read files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    MG_CHECK(write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  const Descriptor file_;
};

}  // namespace monograph::fuzz
