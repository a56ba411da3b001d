// A folder of a test's own, removed with the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/status.h"

namespace monograph {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/monograph-test-XXXXXX";
    MG_CHECK(mkdtemp(name) != nullptr);
    path_ = name;
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
