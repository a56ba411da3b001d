// SimDisk: the disks of simulated machines, as checkpoints are written to them: slow, full,
// refusing everything while their machine is down, and after a loss of power with what POSIX
// promises and no more. What is written lies in real files, which readers find as always; each
// folder that is mounted is the disk of one machine.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "base/mutex.h"
#include "ops/checkpoint_files/disk.h"
#include "tests/simulation/network.h"
#include "tests/train/recording_disk.h"

namespace monograph::simulation {

class SimDisk : public Disk {
 public:
  // In the place of the process's disk as long as it lives.
  explicit SimDisk(Network* network);

  // What lies in `folder`, which exists, is on the disk of that machine, durable as it is now.
  void Mount(const std::string& folder, int host);
  // The power of the machine fails, after Network::Crash: of what was not synced some is gone.
  // REQUIRES: the processes that wrote there have been taken down.
  void LosePower(int host);
  // Bytes that can still be written; less than 0: any number.
  void SetRoom(int host, int64_t bytes);
  // What a sync takes, of a file or a folder.
  void SetSyncTime(int host, std::chrono::nanoseconds time);
  // Saves of that machine that have put a file in its place.
  int renames(int host) const;

  int Create(const std::string& path) override;
  ssize_t Write(int file, const void* bytes, size_t size) override;
  int Sync(int file) override;
  int Close(int file) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int MakeFolder(const std::string& path) override;
  int SyncFolder(const std::string& path) override;
  int Lock(int file) override;

 private:
  struct Mounted {
    std::string folder;
    CrashingDisk content;
    int64_t room = -1;
    std::chrono::nanoseconds sync_time{0};
    int renames = 0;
  };
  struct Open {
    std::string path;
    Site site;
  };

  Mounted* DiskOf(const std::string& path, int* host) MG_REQUIRES(mutex_);
  // -1 and EIO if the machine of the path is down, or is in another life than `site`.
  bool Refuses(const std::string& path, const Site* site = nullptr) MG_EXCLUDES(mutex_);
  void Did(const DiskCall& call) MG_EXCLUDES(mutex_);
  void WaitForSync(const std::string& path) MG_EXCLUDES(mutex_);
  Open OpenOf(int file) MG_EXCLUDES(mutex_);

  Network* const network_;
  mutable Mutex mutex_;
  std::map<int, Mounted> disks_ MG_GUARDED_BY(mutex_);  // by host
  std::map<int, Open> open_ MG_GUARDED_BY(mutex_);      // by descriptor
  std::mt19937 random_ MG_GUARDED_BY(mutex_);
  const DiskInPlace in_place_;
};

}  // namespace monograph::simulation
