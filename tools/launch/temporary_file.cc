#include "tools/launch/temporary_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"

namespace monograph {

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

Status TemporaryFile::Write(const std::string& text) {
  char name[] = "/tmp/monograph-XXXXXX";
  Descriptor file(mkstemp(name));  // mode 0600
  if (file.get() < 0)
    return Internal(std::string("cannot make a temporary file: ") + std::strerror(errno));
  path_ = name;
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return ResourceExhausted("cannot write " + path_ + ": " + std::strerror(errno));
  return Status();
}

}  // namespace monograph
