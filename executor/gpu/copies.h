// Copies: the edges of a plan that cross between the host and a GPU, or between two GPUs, as
// asynchronous kernels of the plan. Fence: the end of a segment on the device.
//
// A copy to a GPU is done, for the step, when it is issued: segments wait for its event. A copy to
// the host is done when the tensor is there. All hold what they read and write until the device has
// passed them.
//
// What other tasks read and write by themselves (Transport::TakesGpuMemory) is not copied: on its
// way out a copy only waits until the tensor is made, and what has come in a GPU's memory is handed
// on. A large tensor for other tasks goes to the host in parts, each of which leaves as soon as it
// is there, while the next ones are copied.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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
// Smaller ones are sent when they are on the host as a whole. A part is as large as the pieces in
// which a tensor is copied to a GPU: at 10 to 50 GB/s it takes some tens of microseconds, a few
// times what a message and an event cost. Not measured.
inline constexpr size_t kLeastInParts = size_t{2} << 20;
inline constexpr size_t kTransferPart = size_t{1} << 20;
// For a kernel of MakeCopyToHost whose tensor goes to other tasks: `send` is called on the
// completing thread for each of `edges` and each part, in order, before the kernel is done.
using SendPart =
    std::function<void(uint64_t step_id, int32_t edge, const Tensor& tensor, size_t offset)>;
void LeaveInParts(Kernel* copy_to_host, std::vector<int32_t> edges, SendPart send);
// Copies `bytes` from `offset` of pinned memory on to the same place of `to`, which lies in the
// device's memory where nothing else uses it (GpuMemory::AllocateIdle). Both are held until `done`,
// on the completing thread. After a failure here `done` is not called.
Status CopyToDevice(GpuDevice& device, Buffer pinned, Tensor to, size_t offset, size_t bytes,
                    Done done);
// Done when the device has finished the segments that were launched before. `what`: the last one's
// nodes, for errors.
std::unique_ptr<AsyncKernel> MakeFence(GpuDevice* device, std::string what);

}  // namespace monograph
