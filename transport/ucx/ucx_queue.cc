// Finds UCX's queues in shared memory among the mappings of this process, and writes a message into
// the gap that a killed sender has left (ucx_queue.h has the layout). Memory that may or may not be
// a queue is read through /proc/self/mem: an address that is not mapped any more then gives an
// error and no crash. Atomics are in the default order but for the one that publishes the message:
// all this happens once per dead sender.
#include "transport/ucx/ucx_queue.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace monograph {
namespace {

constexpr size_t kPlaces = 192;  // offset of the first place
constexpr size_t kPlaceBytes = 128;
constexpr uint64_t kSleeps = uint64_t{1} << 63;
constexpr uint8_t kOwner = 1, kInline = 2;
// UCX's number for an active message in one piece, which begins with
//   id:u16 flags:u16 header_bytes:u32
constexpr uint8_t kActiveMessage = 23;

struct Control {
  uint64_t head;
  uint32_t address_bytes;
  sockaddr_un address;
  char padding[6];
  uint64_t tail;
  int32_t reader;
};
static_assert(offsetof(Control, tail) == 128 && offsetof(Control, reader) == 136);

struct [[gnu::packed]] Place {
  uint8_t flags;
  uint8_t message;
  uint16_t length;
  uint64_t segment;
  uint32_t segment_bytes;
  uint32_t offset;
  uint64_t receiver;
  char data[100];
};
static_assert(sizeof(Place) == kPlaceBytes);

// A queue in this process's memory.
struct Queue {
  char* memory = nullptr;
  uint64_t places = 0;

  Control* control() const { return reinterpret_cast<Control*>(memory); }
  Place* place(uint64_t number) const {
    return reinterpret_cast<Place*>(memory + kPlaces + number % places * kPlaceBytes);
  }
  uint8_t parity(uint64_t number) const { return number / places % 2 != 0 ? kOwner : 0; }
};

// What other processes write. Default order, here and below: only after the loss of a peer, and the
// order that UCX itself needs is not known.
uint64_t Load(uint64_t& value) { return std::atomic_ref(value).load(); }

// Reads this process's memory without trusting that it is there.
class Memory {
 public:
  Memory() : file_(open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) {}
  ~Memory() {
    if (file_ >= 0) close(file_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T>
  bool Read(uint64_t address, T* value) const {
    return pread(file_, value, sizeof *value, static_cast<off_t>(address)) == sizeof *value;
  }

 private:
  const int file_;
};

// The queue in this memory, if it looks like one.
std::optional<Queue> QueueAt(const Memory& memory, uint64_t begin, uint64_t end) {
  Control control;
  if (end - begin < kPlaces + 2 * kPlaceBytes || !memory.Read(begin, &control)) return {};
  const uint64_t head = control.head & ~kSleeps;
  if (control.address.sun_family != AF_UNIX || control.address_bytes <= sizeof(sa_family_t) ||
      control.address_bytes > sizeof control.address || control.reader <= 0 || head < control.tail)
    return {};
  Queue queue{reinterpret_cast<char*>(begin), 0};
  // Every place has memory of a receiver.
  for (uint64_t at = begin + kPlaces; at + kPlaceBytes <= end; at += kPlaceBytes) {
    Place place;
    if (!memory.Read(at, &place) || place.receiver == 0 || place.offset >= place.segment_bytes ||
        (place.flags & ~(kOwner | kInline)) != 0)
      break;
    ++queue.places;
  }
  if (!std::has_single_bit(queue.places) || head - control.tail > queue.places) return {};
  return queue;
}

// All queues that are mapped here: those of this process's own workers, and those that it sends to.
std::vector<Queue> Queues() {
  std::vector<Queue> queues;
  if (!QueueIsKnown()) return queues;
  const Memory memory;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char access[8] = "";
    if (sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, access) != 3 ||
        strcmp(access, "rw-s") != 0)
      continue;
    if (const std::optional<Queue> queue = QueueAt(memory, begin, end)) queues.push_back(*queue);
  }
  return queues;
}

// Whether the queue's reader sleeps at this event descriptor, an epoll set.
bool WakesUp(const Queue& queue, int event_fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(event_fd));
  for (std::string line; std::getline(info, line);) {
    int target = -1;
    if (sscanf(line.c_str(), "tfd: %d", &target) != 1) continue;
    sockaddr_un address{};
    socklen_t bytes = sizeof address;
    if (getsockname(target, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        bytes == queue.control()->address_bytes &&
        std::memcmp(&address, &queue.control()->address, bytes) == 0)
      return true;
  }
  return false;
}

bool FillFirstGap(const Queue& queue, unsigned id) {
  const uint64_t head = Load(queue.control()->head) & ~kSleeps;
  for (uint64_t number = Load(queue.control()->tail); number < head; ++number) {
    Place* place = queue.place(number);
    const uint8_t owner = queue.parity(number);
    std::atomic_ref flags(*reinterpret_cast<uint8_t*>(place));  // the first member
    if ((flags.load() & kOwner) == owner) continue;
    const uint64_t message = id;  // without flags and header
    std::memcpy(place->data, &message, sizeof message);
    place->message = kActiveMessage;
    place->length = sizeof message;
    flags.store(kInline | owner, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace

bool QueueIsKnown() {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  return major == 1 && minor == 13;
}

bool FillGap(int event_fd, unsigned id) {
  for (const Queue& queue : Queues()) {
    if (queue.control()->reader == getpid() && WakesUp(queue, event_fd) && FillFirstGap(queue, id))
      return true;
  }
  return false;
}

int LeaveGaps() {
  int left = 0;
  for (const Queue& queue : Queues()) {
    if (queue.control()->reader == getpid()) continue;
    std::atomic_ref head(queue.control()->head);
    for (uint64_t seen = head.load(); !head.compare_exchange_weak(seen, (seen + 1) & ~kSleeps);) {
    }
    ++left;
  }
  return left;
}

}  // namespace monograph
