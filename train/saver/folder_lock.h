// FolderLock: one job at a time writes checkpoints into a folder.
//
// A lock on the file "checkpoint.lock", which the kernel gives back when the process ends, however
// it ends. The file says who has it: host, process, when that began. Where the file system has no
// locks, this text is the lock: a process of this host that has ended is none, and one of another
// host, of which nobody can tell, loses it to whoever comes later; Check notices.
//
// Threads: one caller at a time.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph {

class FolderLock {
 public:
  // Makes the folder if it is not there, and removes what a job that was killed has left half
  // written. FailedPrecondition names who writes there.
  static Result<std::unique_ptr<FolderLock>> Take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // FailedPrecondition names who has taken the folder over.
  Status Check() const;

 private:
  FolderLock(std::string folder, std::string owner, Descriptor file);

  const std::string folder_, owner_;  // owner_: what the file says
  const Descriptor file_;
};

}  // namespace monograph
