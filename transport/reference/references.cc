// Lend and GiveBack are words in memory that maker and reader share (transport/reference/
// lease_table.h); messages say only which lease they bring. Each side keeps a list of its leases
// and looks through a bounded part of it at a time, as often as its transports are driven: no
// message, no system call and no thread is needed for a tensor. The thread mg-shared only brings
// processes together, hears of their ends, and looks through the lists, now and then, of a process
// whose transports are gone.
#include "transport/reference/references.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/random.h"
#include "base/shared_arena.h"
#include "base/thread.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// At a time, of each list.
constexpr size_t kLooks = 64;
// How often mg-shared looks while there are leases.
constexpr int kLookMillis = 100;
constexpr size_t kMostVisitors = 16;
constexpr std::chrono::seconds kVisit{2};

// Takes element i of a list whose order means nothing.
template <typename T>
void Drop(std::vector<T>* list, size_t i) {
  if (i + 1 < list->size()) (*list)[i] = std::move(list->back());
  list->pop_back();
}

}  // namespace

References& References::Get() {
  static auto* const references = new References;
  return *references;
}

References::References()
    : listener_(ListenForReaders(own_)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (listener_.get() < 0 || wake_.get() < 0) return;
  address_ = EncodeReferenceAddress(own_);
  StartThread("mg-shared", [this] { Serve(); }).detach();
}

References::Maker::~Maker() { munmap(const_cast<char*>(has.memory), has.bytes); }

uint64_t References::ProcessOf(std::string_view address) {
  const std::optional<ReferenceAddress> decoded = DecodeReferenceAddress(address);
  return decoded ? decoded->process : 0;
}

bool References::Meet(std::string_view address) {
  const std::optional<ReferenceAddress> decoded = DecodeReferenceAddress(address);
  if (!decoded || address_.empty()) return false;
  MutexLock meeting(meeting_);
  {
    MutexLock lock(mutex_);
    if (makers_.contains(decoded->process)) return true;
  }
  std::optional<MetMaker> met = MeetMaker(*decoded, own_.process);
  if (!met) return false;
  {
    MutexLock lock(mutex_);
    makers_[decoded->process] = std::make_shared<Maker>(std::move(*met));
  }
  eventfd_write(wake_.get(), 1);  // mg-shared waits for its end
  return true;
}

std::optional<Reference> References::Lend(uint64_t reader, const Payload& payload,
                                          const void* sender, PeerId peer) {
  const SharedArena* const arena = SharedArena::Get();
  if (arena == nullptr || payload.bytes < kLeast) return std::nullopt;
  const std::optional<uint64_t> offset = arena->OffsetOf(payload.data(), payload.bytes);
  // What arrives by copy is aligned, too.
  if (!offset || *offset % kBufferAlignment != 0) return std::nullopt;
  MutexLock lock(mutex_);
  const auto found = readers_.find(reader);
  if (found == readers_.end() || found->second->free.empty()) return std::nullopt;
  Reader& to = *found->second;
  const uint32_t slot = to.free.back();
  to.free.pop_back();
  to.given.push_back(slot);
  to.lent[slot] = {payload.buffer, ++last_lease_, sender, peer};
  to.leases->Lend(slot, last_lease_);
  leases_.fetch_add(1, std::memory_order_relaxed);
  return Reference{own_.process, last_lease_, *offset, payload.bytes, slot};
}

std::optional<Payload> References::Take(const Reference& reference) {
  MutexLock lock(mutex_);
  const auto found = makers_.find(reference.maker);
  if (found == makers_.end()) return std::nullopt;
  const MetMaker& maker = found->second->has;
  const auto slot = static_cast<uint32_t>(reference.slot);
  if (reference.slot >= LeaseTable::kSlots || reference.offset > maker.bytes ||
      reference.bytes > maker.bytes - reference.offset ||
      !maker.leases->Take(slot, reference.lease))
    return std::nullopt;
  const Buffer buffer = Buffer::WrapConstant(maker.memory, maker.bytes);
  taken_.push_back({buffer, found->second, slot});
  leases_.fetch_add(1, std::memory_order_relaxed);
  return Payload{buffer, reference.offset, reference.bytes};
}

void References::LookNow() {
  Ended ended;
  if (!mutex_.TryLock()) return;
  MutexLock lock(mutex_, std::adopt_lock);
  LookLocked(&ended);
}

// Ends the lease at a place of the reader's list.
void References::Free(Reader* reader, size_t given, Ended* ended) {
  const uint32_t slot = reader->given[given];
  ended->buffers.push_back(std::move(reader->lent[slot].buffer));
  reader->lent[slot] = {};
  reader->free.push_back(slot);
  Drop(&reader->given, given);
  leases_.fetch_sub(1, std::memory_order_relaxed);
}

void References::LookLocked(Ended* ended) {
  for (auto& [process, reader] : readers_) {
    for (size_t left = std::min(kLooks, reader->given.size()); left > 0; --left) {
      if (reader->next >= reader->given.size()) reader->next = 0;
      const bool over = reader->leases->IsFree(reader->given[reader->next]);
      if (over) Free(reader.get(), reader->next, ended);
      if (!over) ++reader->next;
    }
  }
  for (size_t left = std::min(kLooks, taken_.size()); left > 0; --left) {
    if (next_taken_ >= taken_.size()) next_taken_ = 0;
    Taken& taken = taken_[next_taken_];
    // Nobody else has it, so nobody can get it.
    if (!taken.buffer.unique()) {
      ++next_taken_;
      continue;
    }
    taken.maker->has.leases->GiveBack(taken.slot);
    ended->buffers.push_back(std::move(taken.buffer));
    ended->makers.push_back(std::move(taken.maker));
    Drop(&taken_, next_taken_);
    leases_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void References::Revoke(const void* sender, std::optional<PeerId> peer) {
  Ended ended;
  MutexLock lock(mutex_);
  for (auto& [process, reader] : readers_) {
    for (size_t i = reader->given.size(); i-- > 0;) {
      const uint32_t slot = reader->given[i];
      const Lent& lent = reader->lent[slot];
      if (lent.sender == sender && (!peer || lent.peer == *peer) &&
          reader->leases->Revoke(slot, lent.lease))
        Free(reader.get(), i, &ended);
    }
  }
}

bool References::IsAwaited(const void* sender) {
  MutexLock lock(mutex_);
  return std::any_of(readers_.begin(), readers_.end(), [sender](const auto& entry) {
    const Reader& reader = *entry.second;
    return std::any_of(reader.given.begin(), reader.given.end(), [&](uint32_t slot) {
      const Lent& lent = reader.lent[slot];
      return lent.sender == sender && reader.leases->IsLent(slot, lent.lease);
    });
  });
}

void References::LookWithoutTransports() {
  if (leases_.load(std::memory_order_relaxed) != 0) eventfd_write(wake_.get(), 1);
}

// ---- mg-shared

void References::Welcome(Descriptor socket, uint64_t process) {
  SharedArena* const arena = SharedArena::Start();
  auto reader = std::make_unique<Reader>();
  reader->leases = arena == nullptr ? nullptr : LeaseTable::Make();
  if (reader->leases == nullptr) return;
  reader->lent.resize(LeaseTable::kSlots);
  reader->free.reserve(LeaseTable::kSlots);
  for (uint32_t slot = LeaseTable::kSlots; slot-- > 0;) reader->free.push_back(slot);
  const int fd = socket.get(), leases = reader->leases->file();
  reader->socket = std::move(socket);
  {
    // Before it hears of it: what is sent to it then can be lent.
    MutexLock lock(mutex_);
    if (!readers_.emplace(process, std::move(reader)).second) return;  // it reads here already
  }
  if (!SendWelcome(fd, own_, arena->file(), arena->bytes(), leases)) Lose(fd);
}

// The process at the other end has ended.
void References::Lose(int socket) {
  Ended ended;
  MutexLock lock(mutex_);
  for (auto it = readers_.begin(); it != readers_.end(); ++it) {
    if (it->second->socket.get() != socket) continue;
    leases_.fetch_sub(static_cast<int>(it->second->given.size()), std::memory_order_relaxed);
    ended.readers.push_back(std::move(it->second));
    readers_.erase(it);
    return;
  }
  for (auto it = makers_.begin(); it != makers_.end(); ++it) {
    if (it->second->has.socket.get() != socket) continue;
    ended.makers.push_back(std::move(it->second));
    makers_.erase(it);
    return;
  }
}

void References::Serve() {
  std::vector<Visitor> visitors;
  std::vector<pollfd> waits;
  for (;;) {
    waits = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (visitors.size() >= kMostVisitors) waits[1].events = 0;
    for (const Visitor& visitor : visitors) waits.push_back({visitor.socket.get(), POLLIN, 0});
    const size_t known = waits.size();
    {
      MutexLock lock(mutex_);
      for (const auto& [process, reader] : readers_)
        waits.push_back({reader->socket.get(), POLLIN, 0});
      for (const auto& [process, maker] : makers_)
        waits.push_back({maker->has.socket.get(), POLLIN, 0});
    }
    const bool looks = !visitors.empty() || leases_.load(std::memory_order_relaxed) != 0;
    if (poll(waits.data(), waits.size(), looks ? kLookMillis : -1) < 0) continue;
    if (waits[0].revents != 0) {
      eventfd_t count;
      eventfd_read(wake_.get(), &count);
    }
    // Nothing is said after the welcome: whatever comes is the end.
    for (size_t i = known; i < waits.size(); ++i) {
      if (waits[i].revents != 0) Lose(waits[i].fd);
    }
    for (size_t i = visitors.size(); i-- > 0;) {
      Visitor& visitor = visitors[i];
      if (waits[2 + i].revents != 0) {
        const uint64_t reader = ReadHello(visitor.socket.get(), own_);
        if (reader != 0) Welcome(std::move(visitor.socket), reader);
      } else if (Clock::now() < visitor.deadline) {
        continue;
      }
      Drop(&visitors, i);
    }
    if (waits[1].revents != 0) {
      Descriptor visitor = AcceptReader(listener_.get());
      if (visitor.get() >= 0) visitors.push_back({std::move(visitor), Clock::now() + kVisit});
    }
    Look();
  }
}

}  // namespace monograph
