// A file in memory, for parsers that read files, and a folder with names of one, for parsers that
// know what it is called. A target makes one and fills it anew in each run: to make a file costs
// more than most parsers.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

// Goes with it. Every name is the same file.
class MemoryFolder {
 public:
  explicit MemoryFolder(const std::vector<std::string>& names) : path_(Make()) {
    for (const std::string& name : names)
      std::filesystem::create_symlink(file_.Fill(""), path_ + "/" + name);
  }
  ~MemoryFolder() { std::filesystem::remove_all(path_); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  void Fill(std::string_view bytes) { file_.Fill(bytes); }
  const std::string& path() const { return path_; }

 private:
  static std::string Make() {
    std::string path = (std::filesystem::temp_directory_path() / "fuzz.XXXXXX").string();
    MG_CHECK(mkdtemp(path.data()) != nullptr);
    return path;
  }

  MemoryFile file_;
  const std::string path_;
};

}  // namespace monograph::fuzz
