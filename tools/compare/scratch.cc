#include "tools/compare/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.h"

namespace monograph {
namespace {

constexpr char kParent[] = "/tmp";
constexpr char kName[] = "monograph-compare-";

// The folder, locked; not open if it is another user's, is gone, or somebody has the lock.
Descriptor Locked(const std::string& path) {
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat opened {
  }, named{};
  if (folder.get() < 0 || fstat(folder.get(), &opened) != 0 || opened.st_uid != geteuid() ||
      flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    return Descriptor();
  // Whoever had the lock before may have removed the folder.
  const bool there = lstat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
                     named.st_dev == opened.st_dev;
  return there ? std::move(folder) : Descriptor();
}

void RemoveAll(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

void RemoveLeftOvers() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kParent, error)) {
    if (!entry.path().filename().string().starts_with(kName)) continue;
    const Descriptor lock = Locked(entry.path());
    if (lock.get() < 0) continue;
    RemoveAll(entry.path());
    LogInfo("removed '" + entry.path().string() + "', which a comparison that was killed has left");
  }
}

}  // namespace

Scratch::~Scratch() {
  if (!path_.empty()) RemoveAll(path_);
}

Status Scratch::Make() {
  RemoveLeftOvers();
  // Another comparison may take a folder that is not locked yet for left over.
  while (lock_.get() < 0) {
    std::string path = std::string(kParent) + "/" + kName + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      return Internal(std::string("cannot make a temporary folder: ") + std::strerror(errno));
    lock_ = Locked(path);
    path_ = path;
  }
  return Status();
}

}  // namespace monograph
