// Scratch: a folder for result files and logs of one comparison.
#pragma once

#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();  // removes the folder

  // Makes the folder, /tmp/monograph-compare-XXXXXX. Removes those that comparisons of this user
  // have left that were killed, and says so in the log.
  Status Make();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  Descriptor lock_;  // of the folder: held as long as somebody writes into it
  std::string path_;
};

}  // namespace monograph
