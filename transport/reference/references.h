// References: payloads that a task of this host reads where they lie, in memory of the task that
// made them. A message then carries a reference in place of its payload.
//
// A maker lends a part of its arena (base/shared_arena.h) for each such message: a lease, for which
// it holds the payload's buffer, so that the memory stays, is not written to and counts as the
// maker's. A reader maps the arena of each maker once, for reading alone. It gives a lease back
// when nobody in its process has the payload's buffer any more; until then that is never unique(),
// so that kernels compute nothing in place there.
//
// Nobody takes a lease away from a reader that has taken it: not when a session is over, nor when
// the reader cannot be reached. It ends when the reader gives it back, or when the kernel says that
// the reader's process has ended. So no reader reads memory that is used again. A lease that was
// not taken is revoked when its sender ends or disconnects. What a maker that has ended has lent
// stays in memory until the readers have done with it.
//
// Both sides look for leases that are over while their transports are driven (Look); the thread
// mg-shared does so where no transport does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "transport/reference/introduction.h"
#include "transport/transport.h"

namespace monograph {

// Stands in a message as it stands in memory, little-endian.
struct Reference {
  uint64_t maker = 0;   // number of the process whose memory it is
  uint64_t lease = 0;   // counts the maker's leases, from 1
  uint64_t offset = 0;  // in the maker's arena
  uint64_t bytes = 0;
  uint64_t slot = 0;  // of the lease, in the table that maker and reader share
};

// Of this process. Thread-safe.
class References {
 public:
  // Made by the first call, and then there until the process ends.
  static References& Get();

  References(const References&) = delete;
  References& operator=(const References&) = delete;

  // Smaller payloads are copied: they take no longer so.
  static constexpr size_t kLeast = size_t{1} << 20;

  // What another process needs to read this one's memory; empty if that cannot be.
  const std::string& address() const { return address_; }
  // The number of the process with that address; 0 for bytes that are no address.
  static uint64_t ProcessOf(std::string_view address);

  // Gets the right to read the memory of the process with that address; waits at most 2 s. True if
  // it is there: references of that process can be taken from now on.
  bool Meet(std::string_view address);

  // Lends a payload to a process. Nothing if that does not read here, or the payload is too small
  // or not in the arena. `sender` and `peer` are for Revoke.
  std::optional<Reference> Lend(uint64_t reader, const Payload& payload, const void* sender,
                                PeerId peer);
  // The payload that a reference stands for; nothing if its lease was revoked. The buffer is the
  // whole arena, so that who would keep it for long makes a copy.
  std::optional<Payload> Take(const Reference& reference);

  // Lets go what is over. Costs a load where nothing is lent.
  void Look() {
    if (leases_.load(std::memory_order_relaxed) != 0) LookNow();
  }
  // Takes back what the sender has lent to a peer (or all of its peers) and nobody has taken.
  void Revoke(const void* sender, std::optional<PeerId> peer);
  // Whether there is such.
  bool IsAwaited(const void* sender);
  // A transport ends: nobody may look any more but mg-shared.
  void LookWithoutTransports();

  // Leases that this process has given and got, for tests.
  int leases() const { return leases_.load(std::memory_order_relaxed); }

 private:
  struct Lent {
    Buffer buffer;
    uint64_t lease = 0;
    const void* sender = nullptr;
    PeerId peer = 0;
  };
  // A process that reads here.
  struct Reader {
    Descriptor socket;
    std::unique_ptr<LeaseTable> leases;
    std::vector<Lent> lent;       // by slot
    std::vector<uint32_t> free;   // slots
    std::vector<uint32_t> given;  // the others
    size_t next = 0;              // of `given`, to be looked at
  };
  // A process whose memory is read here. Kept by its leases.
  struct Maker {
    explicit Maker(MetMaker met) : has(std::move(met)) {}
    ~Maker();
    Maker(const Maker&) = delete;
    Maker& operator=(const Maker&) = delete;
    MetMaker has;
  };
  struct Taken {
    Buffer buffer;
    std::shared_ptr<Maker> maker;
    uint32_t slot = 0;
  };
  // Said hello to by nobody yet.
  struct Visitor {
    Descriptor socket;
    std::chrono::steady_clock::time_point deadline;
  };
  // Let go once no lock is held: their ends free memory.
  struct Ended {
    std::vector<Buffer> buffers;
    std::vector<std::shared_ptr<Maker>> makers;
    std::vector<std::unique_ptr<Reader>> readers;
  };

  References();
  void LookNow() MG_EXCLUDES(mutex_);
  void LookLocked(Ended* ended) MG_REQUIRES(mutex_);
  void Free(Reader* reader, size_t given, Ended* ended) MG_REQUIRES(mutex_);
  void Serve();
  void Welcome(Descriptor socket, uint64_t reader) MG_EXCLUDES(mutex_);
  void Lose(int socket) MG_EXCLUDES(mutex_);

  const ReferenceAddress own_ = ReferenceAddress::Random();
  Descriptor listener_, wake_;
  std::string address_;
  std::atomic<int> leases_{0};  // relaxed: a hint

  Mutex meeting_;  // held while a process is met: one at a time, and none twice
  Mutex mutex_;
  uint64_t last_lease_ MG_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::unique_ptr<Reader>> readers_ MG_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Maker>> makers_ MG_GUARDED_BY(mutex_);
  std::vector<Taken> taken_ MG_GUARDED_BY(mutex_);
  size_t next_taken_ MG_GUARDED_BY(mutex_) = 0;  // to be looked at
};

}  // namespace monograph
