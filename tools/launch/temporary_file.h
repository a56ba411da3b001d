// TemporaryFile: a file that only this user may read, removed with the object.
#pragma once

#include <string>

#include "base/status.h"

namespace monograph {

class TemporaryFile {
 public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  // Makes the file with this text. ResourceExhausted or Internal if that cannot be.
  Status Write(const std::string& text);
  const std::string& path() const { return path_; }  // empty before Write

 private:
  std::string path_;
};

}  // namespace monograph
