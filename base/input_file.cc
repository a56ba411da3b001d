#include "base/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

std::string CannotRead(const std::string& name, const std::string& why) {
  return "cannot read " + name + ": " + why;
}

std::string Name(const std::string& kind, const std::string& path) {
  return kind + " '" + path + "'";
}

Status TooLarge(const std::string& name, const std::string& size, uint64_t most_bytes) {
  return ResourceExhausted(
      CannotRead(name, size + " bytes, at most " + std::to_string(most_bytes) + " are read"));
}

const char* WordOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

struct Opened {
  Descriptor file;
  struct stat info {};
};

Result<Opened> OpenAny(const std::string& name, const std::string& path) {
  // The system would open what stands before the zero.
  if (path.find('\0') != std::string::npos)
    return NotFound(CannotRead(name, "a name of a file has no zero byte"));
  // Opening a pipe that nobody writes would wait without end, and a terminal must not become ours.
  Opened opened{Descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC))};
  if (opened.file.get() < 0 || fstat(opened.file.get(), &opened.info) != 0) {
    const int error = errno;
    std::string text = CannotRead(name, std::strerror(error));
    return error == ENOENT || error == ENOTDIR ? NotFound(std::move(text))
                                               : FailedPrecondition(std::move(text));
  }
  if (S_ISDIR(opened.info.st_mode))
    return FailedPrecondition(CannotRead(name, "it is a folder; a file is expected"));
  return opened;
}

Result<std::string> ReadToEnd(const std::string& name, const Descriptor& file, uint64_t most_bytes,
                              std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  std::string text;
  while (text.size() <= most_bytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wait{file.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0)
      return FailedPrecondition(CannotRead(name, "it has not ended in time; who writes it?"));
    char piece[65536];
    const ssize_t count = read(file.get(), piece, sizeof piece);
    if (count == 0) return text;
    if (count > 0) {
      text.append(piece, static_cast<size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      return FailedPrecondition(CannotRead(name, std::strerror(errno)));
    }
  }
  return TooLarge(name, "it has more", most_bytes);
}

}  // namespace

Result<InputFile> InputFile::Open(const std::string& kind, const std::string& path) {
  std::string name = Name(kind, path);
  MG_ASSIGN_OR_RETURN(Opened opened, OpenAny(name, path));
  if (!S_ISREG(opened.info.st_mode)) {
    return FailedPrecondition(CannotRead(
        name, std::string("it is ") + WordOf(opened.info.st_mode) + "; a file is expected"));
  }
  return InputFile(std::move(name), std::move(opened.file),
                   static_cast<uint64_t>(opened.info.st_size));
}

Status InputFile::Read(uint64_t offset, size_t bytes, void* to) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataLoss(CannotRead(name_, std::strerror(errno)));
    if (got == 0) return DataLoss(CannotRead(name_, "it is truncated"));
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return Status();
}

Result<std::string> ReadInputFile(const std::string& kind, const std::string& path,
                                  uint64_t most_bytes) {
  MG_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(kind, path));
  if (file.size() > most_bytes)
    return TooLarge(Name(kind, path), "it has " + std::to_string(file.size()), most_bytes);
  // Files of the kernel say that they are empty: what counts is what can be read.
  if (file.size() == 0)
    return ReadToEnd(Name(kind, path), std::move(file).Release(), most_bytes,
                     std::chrono::seconds(10));
  std::string bytes(file.size(), '\0');
  MG_RETURN_IF_ERROR(file.Read(0, bytes.size(), bytes.data()));
  return bytes;
}

Result<std::string> ReadFileOrPipe(const std::string& kind, const std::string& path,
                                   uint64_t most_bytes, std::chrono::milliseconds limit) {
  const std::string name = Name(kind, path);
  MG_ASSIGN_OR_RETURN(Opened opened, OpenAny(name, path));
  return ReadToEnd(name, opened.file, most_bytes, limit);
}

}  // namespace monograph
