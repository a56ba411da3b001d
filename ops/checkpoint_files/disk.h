// Disk: the system calls by which checkpoints are written, one function for each, and whole files
// made of them. Everything that a save changes on a disk goes through here, so that a test can
// record the calls, or let one of them fail.
//
// All of it blocks, and may be called from several threads.
#pragma once

#include <sys/types.h>

#include <stop_token>
#include <string>

#include "base/status.h"

namespace monograph {

// Each returns what the system call does: -1 and errno for a failure.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual int Create(const std::string& path);  // a descriptor, to write; what was there is gone
  // A file that would become larger than the process may make one is EFBIG, without a signal.
  virtual ssize_t Write(int file, const void* bytes, size_t size);
  virtual int Sync(int file);
  virtual int Close(int file);
  virtual int Rename(const std::string& from, const std::string& to);
  virtual int Remove(const std::string& path);  // a file, or a folder that is empty
  virtual int MakeFolder(const std::string& path);
  virtual int SyncFolder(const std::string& path);  // which files it has
  virtual int Lock(int file);                       // flock, for this process alone, without a wait
};

// The one that checkpoints of this process are written to.
Disk& CurrentDisk();
// For tests: another one, until the object goes. REQUIRES: nothing is written meanwhile but by the
// test.
class DiskInPlace {
 public:
  explicit DiskInPlace(Disk* disk);
  ~DiskInPlace();
  DiskInPlace(const DiskInPlace&) = delete;
  DiskInPlace& operator=(const DiskInPlace&) = delete;
};

// "cannot write 'path': why", of an errno: ResourceExhausted if there is no room (the disk is full,
// a quota or the limit of a file's size is reached), FailedPrecondition else.
Status CannotWrite(const std::string& path, int error, const char* what = "cannot write");

// A file that is written beside its place; gone, with its object, unless it was put there.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Cancelled soon after the stop is asked for.
  Status Write(const void* bytes, size_t size, const std::stop_token& stop = {});
  // Makes durable what was written: from here on it needs no more room.
  Status MakeDurable();
  // Makes it durable, and then puts it in its place.
  Status PutInPlace();

 private:
  Status Failed() const;

  const std::string path_;
  int fd_;
  bool durable_ = false, in_place_ = false;
};

// At any moment `path` is the old file, or the new one, whole.
Status WriteFileWhole(const std::string& path, const std::string& text);
// Makes durable which files `folder` ("": the current one) has.
Status SyncFolder(const std::string& folder);
// The folder and those that it lies in, durable, if they are not there.
Status MakeFolders(const std::string& folder);
// A file, or a folder with all that it has; it need not be there. What cannot be removed stays.
void RemoveAll(const std::string& path);
// Removes the files of `folder` that a NewFile of a process that was killed has left beside their
// places. REQUIRES: nobody writes there.
void RemoveHalfWritten(const std::string& folder);

}  // namespace monograph
