// Copies: the edges of a plan that cross between the host and a GPU, or between two GPUs, as
// asynchronous kernels of the plan. Fence: the end of a segment on the device.
//
// A copy to a GPU is done, for the step, when it is issued: segments wait for its event. A copy to
// the host is done when the tensor is there. All hold what they read and write until the device has
// passed them.
//
// What other tasks read and write by themselves (Transport::TakesGpuMemory) is not copied: on its
// way out a copy only waits until the tensor is made, and what has come in a GPU's memory is handed
// on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/gpu/gpu_device.h"
#include "executor/kernel.h"

namespace monograph {

class ThreadPools;

// The event behind the latest run of a copy to a device. Steps overlap, but waiting for a later
// copy of the same queue also waits for the earlier ones.
struct Inbound {
  Queue queue = Queue::kToDevice;
  std::atomic<EventId> event{-1};
  std::atomic<uint64_t> number{0};  // on the queue
};

// Lets kCompute wait for what these copies have issued. The launching thread's.
Status WaitForCopies(GpuDevice& device, std::span<const std::shared_ptr<const Inbound>> inbounds);

// What the device's copy of a tensor waits for.
struct TensorReady {
  // Recorded on kCompute when the tensor was made (by a segment); -1: it is there when the copy
  // begins (from a collective).
  EventId event = -1;
  // In place of an event, where control flow decides what made the tensor: all segments that were
  // launched before, and these copies.
  bool after_segments = false;
  std::vector<std::shared_ptr<const Inbound>> inbounds;
};

// `owner`: of the memory, for its table and for errors. `inbound` is the copy's.
std::unique_ptr<AsyncKernel> MakeCopyToDevice(GpuDevice* to, const std::string* owner,
                                              ThreadPools* pools, std::shared_ptr<Inbound> inbound);
std::unique_ptr<AsyncKernel> MakeCopyFromPeer(GpuDevice* to, const std::string* owner,
                                              GpuDevice* from, TensorReady ready,
                                              std::shared_ptr<Inbound> inbound);
std::unique_ptr<AsyncKernel> MakeCopyToHost(GpuDevice* from, const std::string* what,
                                            TensorReady ready);
// Smaller tensors go by way of the host all the same: a copy of theirs is over sooner than UCX has
// told the other task of them. Not measured.
inline constexpr size_t kLeastGpuTransfer = size_t{64} << 10;
// For a kernel of MakeCopyToHost whose tensor goes to other tasks alone, which take it from the
// device's memory. Before it runs.
void LeaveOnDevice(Kernel* copy_to_host);
// For one of MakeCopyToDevice whose tensor may lie in that device's memory already. Before it runs.
void ArriveOnDevice(Kernel* copy_to_device);
// Done when the device has finished the segments that were launched before. `what`: the last one's
// nodes, for errors.
std::unique_ptr<AsyncKernel> MakeFence(GpuDevice* device, std::string what);

}  // namespace monograph
