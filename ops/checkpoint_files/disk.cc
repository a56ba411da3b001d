// The calls of a real disk, and whole files made of them: a file is written beside its place, made
// durable, renamed, and then the folder is made durable.
#include "ops/checkpoint_files/disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

constexpr char kBeside[] = ".part";
constexpr size_t kMostAtOnce = size_t{1} << 20;  // so often a stop is looked for

// Keeps SIGXFSZ, which would end the process, from this thread while it is there.
class WithoutSizeSignal {
 public:
  WithoutSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~WithoutSizeSignal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // Takes the signal that the kernel has sent to this thread.
  void Take() {
    const int error = errno;
    const timespec now{};
    sigtimedwait(&signal_, nullptr, &now);
    errno = error;
  }

 private:
  sigset_t signal_, before_;
};

std::atomic<Disk*> replaced = nullptr;  // default order: a test sets it before it saves

}  // namespace

int Disk::Create(const std::string& path) {
  if (path.find('\0') != std::string::npos) {  // the system would take what stands before it
    errno = EINVAL;
    return -1;
  }
  // Neither waits for the reader of a pipe nor writes where a link leads.
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  return open(path.c_str(), flags, 0666);
}
ssize_t Disk::Write(int file, const void* bytes, size_t size) {
  WithoutSizeSignal quiet;
  const ssize_t written = write(file, bytes, size);
  if (written < 0 && errno == EFBIG) quiet.Take();
  return written;
}
int Disk::Sync(int file) { return fsync(file); }
int Disk::Close(int file) { return close(file); }
int Disk::Rename(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str());
}
int Disk::Remove(const std::string& path) { return remove(path.c_str()); }
int Disk::MakeFolder(const std::string& path) { return mkdir(path.c_str(), 0777); }
int Disk::SyncFolder(const std::string& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() < 0 ? -1 : fsync(folder.get());
}
int Disk::Lock(int file) { return flock(file, LOCK_EX | LOCK_NB); }

Disk& CurrentDisk() {
  static Disk real;
  Disk* const other = replaced;
  return other == nullptr ? real : *other;
}
DiskInPlace::DiskInPlace(Disk* disk) { replaced = disk; }
DiskInPlace::~DiskInPlace() { replaced = nullptr; }

Status CannotWrite(const std::string& path, int error, const char* what) {
  const std::string text = std::string(what) + " '" + path + "': " + std::strerror(error);
  const bool no_room = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return no_room ? ResourceExhausted(text) : FailedPrecondition(text);
}

NewFile::NewFile(const std::string& path)
    : path_(path), fd_(CurrentDisk().Create(path + kBeside)) {}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  CurrentDisk().Close(fd_);
  if (!in_place_) CurrentDisk().Remove(path_ + kBeside);
}

Status NewFile::Failed() const { return CannotWrite(path_, errno); }

Status NewFile::Write(const void* bytes, size_t size, const std::stop_token& stop) {
  if (fd_ < 0) return Failed();
  durable_ = false;
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    if (stop.stop_requested()) return Cancelled("'" + path_ + "' is not needed any more");
    const ssize_t written = CurrentDisk().Write(fd_, at, std::min(size, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return Failed();
    at += written;
    size -= static_cast<size_t>(written);
  }
  return Status();
}

Status NewFile::MakeDurable() {
  if (fd_ < 0 || (!durable_ && CurrentDisk().Sync(fd_) != 0)) return Failed();
  durable_ = true;
  return Status();
}

Status NewFile::PutInPlace() {
  MG_RETURN_IF_ERROR(MakeDurable());
  if (CurrentDisk().Rename(path_ + kBeside, path_) != 0) return Failed();
  in_place_ = true;
  return SyncFolder(fs::path(path_).parent_path().string());
}

Status WriteFileWhole(const std::string& path, const std::string& text) {
  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.PutInPlace();
}

Status SyncFolder(const std::string& folder) {
  return CurrentDisk().SyncFolder(folder.empty() ? "." : folder) == 0 ? Status()
                                                                      : CannotWrite(folder, errno);
}

Status MakeFolders(const std::string& folder) {
  if (folder.size() >= PATH_MAX) {
    return InvalidArgument("the path of a folder has " + std::to_string(folder.size()) +
                           " bytes; it must have fewer than " + std::to_string(PATH_MAX));
  }
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return Status();
  for (size_t end = 0; end != std::string::npos;) {
    end = folder.find('/', end + 1);
    const std::string part = folder.substr(0, end);
    if (fs::is_directory(part, ignored)) continue;
    if (CurrentDisk().MakeFolder(part) != 0 && errno != EEXIST)
      return CannotWrite(part, errno, "cannot make the folder");
    MG_RETURN_IF_ERROR(SyncFolder(fs::path(part).parent_path().string()));
  }
  return Status();
}

void RemoveAll(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(path, error))) {
    for (const auto& entry : fs::directory_iterator(path, error)) RemoveAll(entry.path().string());
  }
  CurrentDisk().Remove(path);
}

void RemoveHalfWritten(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    const std::string place = path.stem().string();  // without ".part"
    const bool ours = place.ends_with(".safetensors") ||
                      place.ends_with(".safetensors.index.json") || place.ends_with(".index") ||
                      place.find(".data-") != std::string::npos || place == "checkpoint";
    if (path.extension() == kBeside && ours) CurrentDisk().Remove(path.string());
  }
}

}  // namespace monograph
