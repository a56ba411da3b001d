// LeaseTable: which parts of its memory a maker has lent to one reader, in a memory file that both
// have mapped. A word for each lease says where it stands; both change it without a lock and
// without a message:
//
//   free --Lend, by the maker--> lent --Take, by the reader--> taken --GiveBack, by the reader--> free
//                                 \--Revoke, by the maker, instead of Take------------------------^
//
// A word is the number of its lease, times four, plus the state, so that a message that comes late
// takes nobody else's lease. The reader can harm nothing but its own leases.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/descriptor.h"

namespace monograph {

// Thread-safe.
class LeaseTable {
 public:
  static constexpr uint32_t kSlots = 4096;

  // The maker's; nullptr if the system refuses.
  static std::unique_ptr<LeaseTable> Make();
  // The reader's, of the maker's file; nullptr if that is none.
  static std::unique_ptr<LeaseTable> Open(Descriptor file);
  ~LeaseTable();
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  int file() const { return file_.get(); }

  // Release and acquire: what the maker wrote to the memory before it lends is seen by who takes,
  // and what the reader read is read before the maker, which finds it free, writes again.
  void Lend(uint32_t slot, uint64_t lease) {
    words_[slot].store(Word(lease, kLent), std::memory_order_release);
  }
  bool Take(uint32_t slot, uint64_t lease) { return Change(slot, lease, Word(lease, kTaken)); }
  void GiveBack(uint32_t slot) { words_[slot].store(kFree, std::memory_order_release); }
  // False if it has been taken.
  bool Revoke(uint32_t slot, uint64_t lease) { return Change(slot, lease, kFree); }
  bool IsFree(uint32_t slot) const { return words_[slot].load(std::memory_order_acquire) == kFree; }
  bool IsLent(uint32_t slot, uint64_t lease) const {
    return words_[slot].load(std::memory_order_relaxed) == Word(lease, kLent);
  }

 private:
  static constexpr uint64_t kFree = 0, kLent = 1, kTaken = 2;

  LeaseTable(Descriptor file, std::atomic<uint64_t>* words)
      : file_(std::move(file)), words_(words) {}
  static std::unique_ptr<LeaseTable> Map(Descriptor file);
  static uint64_t Word(uint64_t lease, uint64_t state) { return lease << 2 | state; }
  // Of a lease that is lent.
  bool Change(uint32_t slot, uint64_t lease, uint64_t word) {
    uint64_t before = Word(lease, kLent);
    return words_[slot].compare_exchange_strong(before, word, std::memory_order_acq_rel);
  }

  const Descriptor file_;
  std::atomic<uint64_t>* const words_;
};

}  // namespace monograph
