#include "tests/train/recording_disk.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace monograph {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

template <typename Work>
int RecordingDisk::Do(DiskCall call, Work work) {
  if (const int error = failure ? failure(call) : 0; error != 0) {
    errno = error;
    return -1;
  }
  const int result = work();
  if (result < 0) return result;
  MutexLock lock(mutex_);
  if (call.kind == DiskCall::kCreate) paths_[result] = call.path;
  calls_.push_back(std::move(call));
  return result;
}

std::vector<DiskCall> RecordingDisk::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

int RecordingDisk::Create(const std::string& path) {
  return Do({DiskCall::kCreate, path}, [&] { return Disk::Create(path); });
}
ssize_t RecordingDisk::Write(int file, const void* bytes, size_t size) {
  std::string path;
  {
    MutexLock lock(mutex_);
    path = paths_.at(file);
  }
  DiskCall call{DiskCall::kWrite, path, "", std::string(static_cast<const char*>(bytes), size)};
  return Do(std::move(call), [&] { return static_cast<int>(Disk::Write(file, bytes, size)); });
}
int RecordingDisk::Sync(int file) {
  std::string path;
  {
    MutexLock lock(mutex_);
    path = paths_.at(file);
  }
  return Do({DiskCall::kSync, path}, [&] { return Disk::Sync(file); });
}
int RecordingDisk::Rename(const std::string& from, const std::string& to) {
  return Do({DiskCall::kRename, from, to}, [&] { return Disk::Rename(from, to); });
}
int RecordingDisk::Remove(const std::string& path) {
  return Do({DiskCall::kRemove, path}, [&] { return Disk::Remove(path); });
}
int RecordingDisk::MakeFolder(const std::string& path) {
  return Do({DiskCall::kMakeFolder, path}, [&] { return Disk::MakeFolder(path); });
}
int RecordingDisk::SyncFolder(const std::string& path) {
  return Do({DiskCall::kSyncFolder, path}, [&] { return Disk::SyncFolder(path); });
}
int RecordingDisk::Lock(int file) {
  return Do({DiskCall::kLock, ""}, [&] { return Disk::Lock(file); });
}

CrashingDisk::CrashingDisk(const std::string& folder) : root_(folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto file = std::make_shared<File>();
    file->folder = entry.is_directory();
    std::ifstream stream(entry.path(), std::ios::binary);
    if (!file->folder) file->bytes = std::string((std::istreambuf_iterator<char>(stream)), {});
    file->synced = file->bytes;
    now_[entry.path().string()] = synced_[entry.path().string()] = file;
  }
}

void CrashingDisk::Apply(const Change& change, Names* names) {
  for (const auto& [path, file] : change) {
    if (file == nullptr) {
      names->erase(path);
    } else {
      (*names)[path] = file;
    }
  }
}

void CrashingDisk::Do(const DiskCall& call) {
  Change change;
  switch (call.kind) {
    case DiskCall::kCreate:
      if (now_.contains(call.path)) {
        now_[call.path]->bytes.clear();
      } else {
        change[call.path] = std::make_shared<File>();
      }
      break;
    case DiskCall::kWrite:
      now_.at(call.path)->bytes += call.bytes;
      break;
    case DiskCall::kSync:
      now_.at(call.path)->synced = now_.at(call.path)->bytes;
      break;
    case DiskCall::kRename:
      change[call.to] = now_.at(call.path);
      change[call.path] = nullptr;
      break;
    case DiskCall::kRemove:
      change[call.path] = nullptr;
      break;
    case DiskCall::kMakeFolder:
      change[call.path] = std::make_shared<File>(File{"", "", true});
      break;
    case DiskCall::kSyncFolder:
      for (Change& earlier : unsynced_) {
        for (auto at = earlier.begin(); at != earlier.end();) {
          const bool here = FolderOf(at->first) == call.path;
          if (here) Apply({*at}, &synced_);
          at = here ? earlier.erase(at) : std::next(at);
        }
      }
      break;
    case DiskCall::kLock:
      break;
  }
  Apply(change, &now_);
  unsynced_.push_back(std::move(change));
}

void CrashingDisk::LeaveIn(const std::string& folder, Crash crash, std::mt19937* random) const {
  const bool all = crash == Crash::kOfTheProcess || crash == Crash::kKeepsNames;
  Names names = all ? now_ : synced_;
  if (crash == Crash::kLosesSomeNames) {
    for (const Change& change : unsynced_) {
      if ((*random)() % 2 == 0) Apply(change, &names);
    }
  }
  for (const auto& [path, file] : names) {
    // A folder comes before what lies in it; without its name that is lost.
    const fs::path place = folder + path.substr(root_.size());
    if (!fs::exists(place.parent_path())) continue;
    if (file->folder) {
      fs::create_directory(place);
      continue;
    }
    std::string bytes = file->synced;
    if (crash == Crash::kOfTheProcess) bytes = file->bytes;
    if (!all || crash == Crash::kKeepsNames) {
      if (file->bytes != file->synced && crash != Crash::kLosesUnsynced) {
        // A part of it, or all of it with zeros in place of a part.
        const size_t part = (*random)() % (file->bytes.size() + 1);
        bytes = file->bytes.substr(0, part);
        if ((*random)() % 2 == 0) bytes.resize(file->bytes.size(), '\0');
      }
    }
    std::ofstream(place, std::ios::binary) << bytes;
  }
}

}  // namespace monograph
