// StreamDriver: what the GPU executor needs of one logical GPU. executor/gpu/cuda/ drives a real
// one; tests have one that computes on the CPU and checks every dependency (tests/gpu/fake).
//
// Work is issued to queues. Work of one queue runs in the order of issue; between queues only
// events order: what a queue waits for is the event's last Record before the Wait was issued, so
// waits can never form a cycle. Nothing here waits for the device. Thread-safe, but everything that
// touches Queue::kCompute comes from one thread, the device's launching thread.
//
// Errors name the call. After one that the GPU's context does not survive, lost() holds and
// everything fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"

namespace monograph {

class Communicators;  // executor/gpu/communicator.h
class DeviceStream;

enum class Queue : uint8_t {
  kCompute,   // kernels, and copies within the device
  kToDevice,  // host to device
  kToHost,    // device to host
  kPeer,      // other devices to this one
  kMembers,   // collectives that go from GPU to GPU; nothing on another queue waits for this one
};
inline constexpr int kQueues = 5;

using EventId = int32_t;  // of one driver; -1: none
using GraphId = int32_t;

struct MemoryAccess {
  const void* data;
  size_t bytes;
};

// A kernel that was just issued, for drivers that check or compute themselves.
struct IssuedKernel {
  std::string_view name;
  std::span<const MemoryAccess> reads, writes;
  std::function<Status()> again = {};  // computes the same once more, for replays
  Queue queue = Queue::kCompute;
};

class StreamDriver {
 public:
  virtual ~StreamDriver() = default;

  virtual DeviceStream* stream() = 0;  // what kernels enqueue on: Queue::kCompute
  // The same for Queue::kMembers, without handles of libraries.
  virtual DeviceStream* members_stream() { return nullptr; }
  // How this GPU joins others on kMembers; nullptr: it does not. Used by one thread.
  virtual Communicators* communicators() { return nullptr; }
  virtual Status Enter() = 0;  // once per thread that calls the rest
  virtual bool lost() = 0;

  virtual Result<void*> AllocateDevice(size_t bytes) = 0;
  virtual void FreeDevice(void* data) = 0;
  virtual Result<void*> AllocatePinned(size_t bytes) = 0;  // host memory that copies run from
  virtual void FreePinned(void* data) = 0;

  virtual Result<EventId> MakeEvent(bool timed) = 0;
  virtual void DropEvent(EventId event) = 0;
  virtual Status Record(EventId event, Queue queue) = 0;
  virtual Status Wait(Queue queue, StreamDriver& other, EventId event) = 0;
  virtual Result<bool> Done(EventId event) = 0;  // its last Record has happened
  // Nanoseconds between two timed events that are done.
  virtual Result<int64_t> ElapsedNs(EventId from, EventId to) = 0;

  // kToDevice and kToHost: the host side is pinned memory. kCompute, kMembers: within the device.
  virtual Status Copy(Queue queue, void* to, const void* from, size_t bytes) = 0;
  virtual Status CopyFromPeer(void* to, StreamDriver& other, const void* from, size_t bytes) = 0;

  // Between the two, what is issued to kCompute is kept as a graph and does not run. The graph runs
  // by Launch, as often as one likes. A failure of EndCapture leaves the queue usable.
  virtual Status BeginCapture() = 0;
  virtual Result<GraphId> EndCapture() = 0;
  virtual Status Launch(GraphId graph) = 0;
  virtual void DropGraph(GraphId graph) = 0;

  // Whether OnKernel wants to hear of kernels.
  virtual bool observes() const { return false; }
  virtual void OnKernel(IssuedKernel) {}
};

}  // namespace monograph
