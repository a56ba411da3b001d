#include "tests/simulation/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "tests/temporary_folder.h"

namespace monograph::simulation {
namespace {

namespace fs = std::filesystem;

}  // namespace

SimDisk::SimDisk(Network* network)
    : network_(network),
      random_(static_cast<uint32_t>(network->Random(UINT32_MAX))),
      in_place_(this) {}

void SimDisk::Mount(const std::string& folder, int host) {
  MutexLock lock(mutex_);
  disks_.erase(host);
  disks_.emplace(host, Mounted{folder, CrashingDisk(folder)});
}

void SimDisk::LosePower(int host) {
  MG_CHECK(!network_->IsUp(host));
  MutexLock lock(mutex_);
  Mounted& disk = disks_.at(host);
  const TemporaryFolder left;
  const Crash crash = kCrashes[1 + random_() % 3];  // not that of the process alone
  disk.content.LeaveIn(left.path(), crash, &random_);
  for (const auto& entry : fs::directory_iterator(disk.folder)) fs::remove_all(entry.path());
  fs::copy(left.path(), disk.folder, fs::copy_options::recursive);
  disk.content = CrashingDisk(disk.folder);
}

void SimDisk::SetRoom(int host, int64_t bytes) {
  MutexLock lock(mutex_);
  disks_.at(host).room = bytes;
}

void SimDisk::SetSyncTime(int host, std::chrono::nanoseconds time) {
  MutexLock lock(mutex_);
  disks_.at(host).sync_time = time;
}

int SimDisk::renames(int host) const {
  MutexLock lock(mutex_);
  return disks_.at(host).renames;
}

SimDisk::Mounted* SimDisk::DiskOf(const std::string& path, int* host) {
  for (auto& [number, disk] : disks_) {
    if (path != disk.folder && !path.starts_with(disk.folder + "/")) continue;
    *host = number;
    return &disk;
  }
  return nullptr;
}

bool SimDisk::Refuses(const std::string& path, const Site* site) {
  int host = -1;
  {
    MutexLock lock(mutex_);
    if (DiskOf(path, &host) == nullptr) return false;
  }
  const bool lives =
      network_->IsUp(host) && (site == nullptr || network_->SiteOf(host).life == site->life);
  if (!lives) errno = EIO;
  return !lives;
}

void SimDisk::Did(const DiskCall& call) {
  MutexLock lock(mutex_);
  int host = -1;
  Mounted* const disk = DiskOf(call.path, &host);
  if (disk == nullptr) return;
  disk->content.Do(call);
  if (call.kind == DiskCall::kRename) ++disk->renames;
}

void SimDisk::WaitForSync(const std::string& path) {
  std::chrono::nanoseconds time{0};
  {
    MutexLock lock(mutex_);
    int host = -1;
    if (const Mounted* const disk = DiskOf(path, &host); disk != nullptr) time = disk->sync_time;
  }
  if (time.count() > 0) std::this_thread::sleep_for(time);
}

SimDisk::Open SimDisk::OpenOf(int file) {
  MutexLock lock(mutex_);
  const auto found = open_.find(file);
  return found == open_.end() ? Open{} : found->second;
}

int SimDisk::Create(const std::string& path) {
  if (Refuses(path)) return -1;
  const int file = Disk::Create(path);
  if (file < 0) return file;
  Did({DiskCall::kCreate, path, ""});
  MutexLock lock(mutex_);
  int host = -1;
  if (DiskOf(path, &host) != nullptr) open_[file] = {path, network_->SiteOf(host)};
  return file;
}

ssize_t SimDisk::Write(int file, const void* bytes, size_t size) {
  const Open open = OpenOf(file);
  if (Refuses(open.path, &open.site)) return -1;
  {
    MutexLock lock(mutex_);
    int host = -1;
    Mounted* const disk = DiskOf(open.path, &host);
    if (disk != nullptr && disk->room >= 0) {
      size = std::min(size, static_cast<size_t>(disk->room));
      disk->room -= static_cast<int64_t>(size);
      if (size == 0) {
        errno = ENOSPC;
        return -1;
      }
    }
  }
  const ssize_t written = Disk::Write(file, bytes, size);
  if (written > 0) {
    Did({DiskCall::kWrite, open.path, "",
         std::string(static_cast<const char*>(bytes), static_cast<size_t>(written))});
  }
  return written;
}

int SimDisk::Sync(int file) {
  const Open open = OpenOf(file);
  WaitForSync(open.path);
  if (Refuses(open.path, &open.site)) return -1;
  Did({DiskCall::kSync, open.path, ""});
  return 0;
}

int SimDisk::Close(int file) {
  {
    MutexLock lock(mutex_);
    open_.erase(file);
  }
  return Disk::Close(file);
}

int SimDisk::Rename(const std::string& from, const std::string& to) {
  if (Refuses(to)) return -1;
  const int result = Disk::Rename(from, to);
  if (result == 0) Did({DiskCall::kRename, from, to});
  return result;
}

int SimDisk::Remove(const std::string& path) {
  if (Refuses(path)) return -1;
  const int result = Disk::Remove(path);
  if (result == 0) Did({DiskCall::kRemove, path, ""});
  return result;
}

int SimDisk::MakeFolder(const std::string& path) {
  if (Refuses(path)) return -1;
  const int result = Disk::MakeFolder(path);
  if (result == 0) Did({DiskCall::kMakeFolder, path, ""});
  return result;
}

int SimDisk::SyncFolder(const std::string& path) {
  WaitForSync(path);
  if (Refuses(path)) return -1;
  Did({DiskCall::kSyncFolder, path, ""});
  return 0;
}

int SimDisk::Lock(int file) {
  const Open open = OpenOf(file);
  return Refuses(open.path, &open.site) ? -1 : Disk::Lock(file);
}

}  // namespace monograph::simulation
