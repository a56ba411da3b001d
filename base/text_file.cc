#include "base/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/descriptor.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = 4 << 20;

}  // namespace

Result<std::string> ReadTextFile(const std::string& kind, const std::string& path,
                                 std::chrono::milliseconds limit) {
  const std::string cannot = "cannot read " + kind + " '" + path + "': ";
  // Opening a pipe that nobody writes would wait without end.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return NotFound(cannot + std::strerror(errno));
  const auto until = Clock::now() + limit;
  std::string text;
  while (text.size() <= kMostBytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wait{file.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0)
      return FailedPrecondition(cannot + "it has not ended in time; who writes it?");
    char piece[65536];
    const ssize_t count = read(file.get(), piece, sizeof piece);
    if (count == 0) return text;
    if (count > 0) {
      text.append(piece, static_cast<size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      return FailedPrecondition(cannot + std::strerror(errno));
    }
  }
  return FailedPrecondition(cannot + "it is larger than 4 MiB");
}

}  // namespace monograph
