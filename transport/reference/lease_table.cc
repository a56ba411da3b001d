#include "transport/reference/lease_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

namespace monograph {
namespace {

constexpr size_t kTableBytes = LeaseTable::kSlots * sizeof(std::atomic<uint64_t>);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

std::unique_ptr<LeaseTable> LeaseTable::Map(Descriptor file) {
  void* const words = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (words == MAP_FAILED) return nullptr;
  return std::unique_ptr<LeaseTable>(
      new LeaseTable(std::move(file), static_cast<std::atomic<uint64_t>*>(words)));
}

std::unique_ptr<LeaseTable> LeaseTable::Make() {
  Descriptor file(memfd_create("monograph-leases", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed, so that the reader cannot take the words away from under the maker.
  if (file.get() < 0 || fchmod(file.get(), 0600) != 0 ||
      ftruncate(file.get(), static_cast<off_t>(kTableBytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return nullptr;
  return Map(std::move(file));
}

std::unique_ptr<LeaseTable> LeaseTable::Open(Descriptor file) {
  struct stat info {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &info) != 0 ||
      static_cast<size_t>(info.st_size) < kTableBytes)
    return nullptr;
  return Map(std::move(file));
}

LeaseTable::~LeaseTable() { munmap(words_, kTableBytes); }

}  // namespace monograph
