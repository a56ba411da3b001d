// SharedArena: memory of this process that other processes of its user may read where it lies. It
// is one memory file (memfd) of mode 0600, sparse, mapped whole: an address is a place in the file,
// the same for every reader, who maps the file once. The pool takes large blocks from it
// (base/pool_allocator.h) once somebody wants to read.
//
// Pages are huge ones, which the system gives shared memory only if it is asked (MADV_COLLAPSE,
// Linux 6.1). Where it has none there is no arena: small pages would cost every kernel more than a
// copy saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/descriptor.h"
#include "base/mutex.h"

namespace monograph {

// Thread-safe. The one of the process lives until the process ends.
class SharedArena {
 public:
  // Makes the process's arena, unless it is there; nullptr if the system lets it have none.
  static SharedArena* Start();
  // The process's arena; nullptr before Start.
  static SharedArena* Get();

  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // Sizes are multiples of kPage, and so are addresses.
  static constexpr size_t kPage = size_t{2} << 20;

  // A range that takes no memory yet; nullptr if none is free.
  char* Map(size_t bytes);
  // Gives a range back, with its memory. False, and nothing has happened, if it is not the arena's.
  bool Unmap(char* data, size_t bytes);
  // Gives memory to a part of a range that nobody has written to. Kernels of the system that have
  // no huge page left give small ones, then or when it is written to.
  void Fill(char* data, size_t bytes);
  // True once, for the first caller: blocks from before the arena cannot be shared.
  bool IsNew();

  // Where the bytes are in the file; nothing if they are not in the arena.
  std::optional<uint64_t> OffsetOf(const void* data, size_t bytes) const;
  // The file, opened for reading alone; and its size, which never changes.
  int file() const { return to_read_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  SharedArena() = default;
  bool Open();
  bool HasHugePages();

  Descriptor file_, to_read_;
  char* base_ = nullptr;
  size_t bytes_ = 0;
  Mutex mutex_;
  bool new_ MG_GUARDED_BY(mutex_) = true;
  // Free ranges, none next to another: bytes by place in the file.
  std::map<size_t, size_t> free_ MG_GUARDED_BY(mutex_);
};

// Maps `bytes` of the file at an address that is a multiple of SharedArena::kPage, never for
// execution and never in a core file; nullptr if that fails. `descriptor`: of a memory file.
char* MapArena(int descriptor, size_t bytes, bool to_write);

}  // namespace monograph
