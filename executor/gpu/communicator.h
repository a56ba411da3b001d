// Communicator: how a GPU and others, each on a card of its own, send tensors to each other without
// the host. executor/gpu/nccl/ has that of NCCL; tests have one that copies in the host's memory.
//
// A device's members thread (executor/gpu/members.h) makes all calls, but those of ids. None of
// them waits for other members: what takes time is begun, and Ready says when it is over.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace monograph {

class Communicator {
 public:
  struct Send {
    int rank;
    const void* data;
    size_t bytes;
  };
  struct Receive {
    int rank;
    void* data;
    size_t bytes;
  };
  struct Sum {
    const void* data;
    void* result;
    size_t elements;
  };

  // Ends what is under way, as Abort.
  virtual ~Communicator() = default;

  // Whether what was begun is done as far as the host goes: that all members have joined, that the
  // last exchange is on the queue. An error says that members or the way to them are lost; it is
  // derived where it comes of another member's loss.
  virtual Result<bool> Ready() = 0;
  // Enqueues on Queue::kMembers all of these together. What one rank sends to another comes in the
  // order of its list. REQUIRES: Ready gave true.
  virtual Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;
  // Enqueues on Queue::kMembers the sums of all members' data, together, in whatever order of
  // additions the library takes: every member gets the same bits, but not those of another way or
  // perhaps another run. Float, double, half, bfloat16. REQUIRES: Ready gave true.
  virtual Status AllReduce(DType dtype, std::span<const Sum> sums) = 0;
  // What is enqueued ends soon, with anything in its memory, or after an error perhaps never.
  // Nothing but the destructor may follow.
  virtual Status Abort() = 0;
  // The same where the device's context is lost, in which nothing can be ended: what the library
  // keeps stays to the end of the process.
  virtual void Abandon() = 0;
};

// What a GPU's driver offers.
class Communicators {
 public:
  virtual ~Communicators() = default;
  // The name of a communicator that does not exist yet, for all its members. Any thread.
  virtual Result<std::string> NewId() = 0;
  // Whether sums may be made by AllReduce (GpuOptions::deterministic is false). Any thread.
  virtual bool any_order() const = 0;
  // Begins to join it as `rank` of `size`.
  virtual Result<std::unique_ptr<Communicator>> Join(const std::string& id, int rank, int size) = 0;
};

}  // namespace monograph
