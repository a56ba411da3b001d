// TemporaryFile: a file that only this user may read, for the children of this process. It stands
// in no folder, so that nothing is left of it however this process ends.
#pragma once

#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph {

class TemporaryFile {
 public:
  // Makes the file with this text. ResourceExhausted or Internal if that cannot be.
  Status Write(const std::string& text);
  // "/proc/1234/fd/5": leads every process of this user to the file, as long as this process and
  // this object live. Empty before Write.
  const std::string& path() const { return path_; }

 private:
  Descriptor file_;
  std::string path_;
};

}  // namespace monograph
