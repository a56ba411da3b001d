#include "tools/launch/temporary_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace monograph {

Status TemporaryFile::Write(const std::string& text) {
  char name[] = "/tmp/monograph-XXXXXX";
  file_ = Descriptor(mkostemp(name, O_CLOEXEC));  // mode 0600
  if (file_.get() < 0)
    return Internal(std::string("cannot make a temporary file: ") + std::strerror(errno));
  unlink(name);
  path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_.get());
  if (write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return ResourceExhausted(std::string("cannot write a file in /tmp: ") + std::strerror(errno));
  return Status();
}

}  // namespace monograph
