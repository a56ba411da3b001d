// Files that a user names: clusters, flags, graphs, feeds, data sets, checkpoints. The one way by
// which the product opens what it reads. A folder, a pipe or a device instead of a file is refused
// by name, nothing waits for a pipe that nobody writes, and no more than a limit is read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph {

// Sizes beyond which an input is taken for a mistake.
inline constexpr uint64_t kMostTextBytes = uint64_t{4} << 20;     // clusters, flags, scripts
inline constexpr uint64_t kMostTableBytes = uint64_t{100} << 20;  // results, indexes of checkpoints
inline constexpr uint64_t kMostGraphBytes = INT32_MAX;            // as protocol buffers have it
inline constexpr uint64_t kMostDataBytes = uint64_t{64} << 30;    // feeds and data sets, in memory

// A regular file, open for reading. Errors are "cannot read KIND 'path': why": NotFound if there is
// none, else FailedPrecondition.
class InputFile {
 public:
  static Result<InputFile> Open(const std::string& kind, const std::string& path);

  // As it was when the file was opened.
  uint64_t size() const { return size_; }
  // DataLoss if the file does not have so many bytes from `offset` on.
  Status Read(uint64_t offset, size_t bytes, void* to) const;
  // For a library that reads by a descriptor of its own.
  Descriptor Release() && { return std::move(file_); }

 private:
  InputFile(std::string name, Descriptor file, uint64_t size)
      : name_(std::move(name)), file_(std::move(file)), size_(size) {}

  std::string name_;  // "KIND 'path'"
  Descriptor file_;
  uint64_t size_;
};

// All bytes of a regular file. The errors of InputFile; ResourceExhausted, "it has N bytes, at most
// M are read", for a larger one.
Result<std::string> ReadInputFile(const std::string& kind, const std::string& path,
                                  uint64_t most_bytes = kMostTextBytes);

// The same for a flag whose documentation says that the file may be a pipe (/dev/stdin,
// <(command)), which has to end within `limit`.
Result<std::string> ReadFileOrPipe(const std::string& kind, const std::string& path,
                                   uint64_t most_bytes = kMostTextBytes,
                                   std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace monograph
