#include "train/saver/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <utility>

#include "base/input_file.h"
#include "base/log.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

std::string PathOf(const std::string& folder) { return folder + "/checkpoint.lock"; }

// Who has the folder, as its file says; empty: nobody.
Result<std::string> OwnerIn(const std::string& path) {
  const Result<std::string> text = ReadInputFile("lock", path);
  if (text.status().code() == Code::kNotFound) return std::string();
  MG_RETURN_IF_ERROR(text.status());
  return text->substr(0, text->find('\n'));
}

std::string ThisHost() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// When the process began, in clock ticks since the machine did; empty: it does not run. So a
// process is told from a later one of the same number.
std::string StartOf(const std::string& pid) {
  const Result<std::string> text = ReadInputFile("process", "/proc/" + pid + "/stat");
  if (!text.ok()) return "";
  std::istringstream after_name(text->substr(std::min(text->size(), text->rfind(')') + 1)));
  std::string word;
  for (int i = 3; i <= 22 && after_name >> word; ++i) {
    if (i == 3 && (word == "Z" || word == "X")) return "";
  }
  return after_name ? word : "";
}

// "host node1, process 123, start 4567, since 2026-11-23 01:02:03 UTC", of this process.
std::string ThisOwner() {
  const std::string pid = std::to_string(getpid());
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 64> since{};
  std::strftime(since.data(), since.size(), "%F %T UTC", gmtime_r(&now, &utc));
  return "host " + ThisHost() + ", process " + pid + ", start " + StartOf(pid) + ", since " +
         since.data();
}

// Whether the text names a process that runs, as far as this host can tell.
bool Runs(const std::string& owner) {
  std::array<char, 300> host{}, pid{}, start{};
  if (std::sscanf(owner.c_str(), "host %255[^,], process %20[0-9], start %20[0-9]", host.data(),
                  pid.data(), start.data()) != 3)
    return false;
  return host.data() == ThisHost() && StartOf(pid.data()) == start.data();
}

Status WrittenBy(const std::string& folder, const std::string& who) {
  return FailedPrecondition("another job writes checkpoints into '" + folder +
                            "': " + (who.empty() ? "it has not said which" : who) +
                            "; end it, or give each job a folder of its own");
}

}  // namespace

Result<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder) {
  MG_RETURN_IF_ERROR(MakeFolders(folder));
  const std::string path = PathOf(folder);
  // A pipe, or a link to a file that would be emptied, is no lock of ours.
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Descriptor file(open(path.c_str(), flags, 0666));
  if (file.get() < 0) return CannotWrite(path, errno);
  MG_ASSIGN_OR_RETURN(const std::string before, OwnerIn(path));
  if (CurrentDisk().Lock(file.get()) != 0) {
    if (errno == EWOULDBLOCK || Runs(before)) return WrittenBy(folder, before);
    if (!before.empty())
      LogWarning("'" + folder + "' has no locks, and is taken over from " + before);
  }
  const std::string owner = ThisOwner(), line = owner + "\n";
  // A disk that is full has the lock, without its text.
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    LogWarning(CannotWrite(path, errno).message());
  RemoveHalfWritten(folder);
  return std::unique_ptr<FolderLock>(new FolderLock(folder, owner, std::move(file)));
}

FolderLock::FolderLock(std::string folder, std::string owner, Descriptor file)
    : folder_(std::move(folder)), owner_(std::move(owner)), file_(std::move(file)) {}

FolderLock::~FolderLock() {
  if (Check().ok() && ftruncate(file_.get(), 0) != 0) LogWarning("cannot empty a lock's file");
}

Status FolderLock::Check() const {
  MG_ASSIGN_OR_RETURN(const std::string now, OwnerIn(PathOf(folder_)));
  return now.empty() || now == owner_ ? Status() : WrittenBy(folder_, now);
}

}  // namespace monograph
