// A folder of a test's own, removed with the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/status.h"

namespace monograph {

// Where files lie in memory, so that no fsync waits for a disk: for tests of many saves of a few
// KB. /tmp where there is no such place.
inline std::string FolderInMemory() {
  return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent = "/tmp")
      : path_(parent + "/monograph-test-XXXXXX") {
    MG_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {  // returns the path
    std::ofstream(File(name)) << text;
    return File(name);
  }

 private:
  std::string path_;
};

}  // namespace monograph
