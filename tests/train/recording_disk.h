// A disk that records what a save does to it, and what a power failure would leave of that.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {

struct DiskCall {
  enum Kind { kCreate, kWrite, kSync, kRename, kRemove, kMakeFolder, kSyncFolder, kLock };
  Kind kind;
  std::string path;  // of the file that was created, for kWrite and kSync
  std::string to;    // of kRename
  std::string bytes = {};
};

// Does what a disk does, and keeps the calls that went well.
class RecordingDisk : public Disk {
 public:
  // The errno with which a call is to fail, or 0. Set before anything is written.
  std::function<int(const DiskCall&)> failure;
  std::vector<DiskCall> calls() const;

  int Create(const std::string& path) override;
  ssize_t Write(int file, const void* bytes, size_t size) override;
  int Sync(int file) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int MakeFolder(const std::string& path) override;
  int SyncFolder(const std::string& path) override;
  int Lock(int file) override;

 private:
  template <typename Work>
  int Do(DiskCall call, Work work);

  mutable Mutex mutex_;
  std::vector<DiskCall> calls_ MG_GUARDED_BY(mutex_);
  std::map<int, std::string> paths_ MG_GUARDED_BY(mutex_);  // of descriptors
};

// What is left when the power fails after some calls.
enum class Crash {
  kOfTheProcess,    // all that the calls have done
  kLosesUnsynced,   // of a file the bytes that were synced; of a folder the names that were
  kKeepsNames,      // all names, but of a file only a part of what was not synced
  kLosesSomeNames,  // each name that was not synced, or not, by chance; of a file as above
};
inline constexpr Crash kCrashes[] = {Crash::kOfTheProcess, Crash::kLosesUnsynced,
                                     Crash::kKeepsNames, Crash::kLosesSomeNames};

// A folder and what calls do to it, as POSIX promises it and no more: fsync of a file keeps its
// bytes, fsync of a folder keeps the names in it, and a rename is done or not.
class CrashingDisk {
 public:
  // As `folder` is now, all of it synced.
  explicit CrashingDisk(const std::string& folder);
  void Do(const DiskCall& call);
  // What is left, under the same names, in `folder`, which is empty.
  void LeaveIn(const std::string& folder, Crash crash, std::mt19937* random) const;

 private:
  struct File {
    std::string bytes, synced;
    bool folder = false;
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;
  // Of one call: names that come (with a file) and go (with none), at once.
  using Change = std::map<std::string, std::shared_ptr<File>>;
  static void Apply(const Change& change, Names* names);

  std::string root_;
  Names now_, synced_;
  std::vector<Change> unsynced_;  // changes of synced_, oldest first
};

}  // namespace monograph
