#include "tools/output_path.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace monograph {
namespace {

namespace fs = std::filesystem;

// New entries can be made in `folder`, which is there.
Status CheckFolder(const fs::path& folder, const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return FailedPrecondition("cannot write '" + path + "': '" + folder.string() +
                              "' is not a folder");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return FailedPrecondition("cannot write '" + path + "': folder '" + folder.string() +
                              "': " + std::strerror(errno));
  }
  return Status();
}

fs::path ParentOf(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

Status CheckOutputFile(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error) || path.ends_with('/'))
    return FailedPrecondition("cannot write '" + path + "': it is a folder, not a file");
  if (fs::exists(path, error)) {
    if (access(path.c_str(), W_OK) == 0) return Status();
    return FailedPrecondition("cannot write '" + path + "': " + std::strerror(errno));
  }
  const fs::path folder = ParentOf(path);
  if (!fs::exists(folder, error))
    return NotFound("cannot write '" + path + "': there is no folder '" + folder.string() + "'");
  return CheckFolder(folder, path);
}

Status CheckOutputFolder(const std::string& path) {
  std::error_code error;
  fs::path there = fs::path(path).lexically_normal();
  // status() fails below what is no folder; the loop ends at "/" or ".", which are there.
  while (!fs::exists(there, error)) {
    const fs::path above = ParentOf(there);
    if (above == there) break;
    there = above;
  }
  return CheckFolder(there, path);
}

}  // namespace monograph
