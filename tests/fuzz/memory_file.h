// A file in memory, for parsers that read files. A target makes one and fills it anew in each run:
// to make a file costs more than most parsers.
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
  MemoryFile()
      : file_(memfd_create("fuzz", MFD_CLOEXEC)),
        path_("/proc/self/fd/" + std::to_string(file_.get())) {}

  // The file, with these bytes and no others.
  const std::string& Fill(std::string_view bytes) {
    MG_CHECK(ftruncate(file_.get(), static_cast<off_t>(bytes.size())) == 0);
    MG_CHECK(pwrite(file_.get(), bytes.data(), bytes.size(), 0) ==
             static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  const Descriptor file_;
  const std::string path_;
};

}  // namespace monograph::fuzz
