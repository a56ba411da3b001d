// Copies: the edges of a plan that cross between the host and a GPU, or between two GPUs, as
// asynchronous kernels of the plan. Fence: the end of a segment on the device.
//
// A copy to a GPU is done, for the step, when it is issued: segments wait for its event. A copy to
// the host is done when the tensor is there. All hold what they read and write until the device has
// passed them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "executor/gpu/gpu_device.h"
#include "executor/kernel.h"

namespace monograph {

class ThreadPools;

// The event behind the latest run of a copy to a device. Steps overlap, but waiting for a later
// copy of the same queue also waits for the earlier ones.
struct Inbound {
  GpuDevice* device = nullptr;
  Queue queue = Queue::kToDevice;
  std::atomic<EventId> event{-1};
  std::atomic<uint64_t> number{0};  // on the queue
};

// Lets kCompute wait for what these copies have issued. The launching thread's.
Status WaitForCopies(GpuDevice& device, std::span<const Inbound* const> inbounds);

class InboundKernel : public AsyncKernel {
 public:
  virtual const Inbound& inbound() const = 0;
};

// `owner`: of the memory, for its table and for errors.
std::unique_ptr<InboundKernel> MakeCopyToDevice(GpuDevice* to, const std::string* owner,
                                                ThreadPools* pools);
// `ready`: recorded on `from`'s kCompute when the tensor was made (by a segment); -1: it is there
// when the copy begins (from a collective).
std::unique_ptr<InboundKernel> MakeCopyFromPeer(GpuDevice* to, const std::string* owner,
                                                GpuDevice* from, EventId ready);
std::unique_ptr<AsyncKernel> MakeCopyToHost(GpuDevice* from, const std::string* what,
                                            EventId ready);
// Done when the device has finished the segments that were launched before. `what`: the last one's
// nodes, for errors.
std::unique_ptr<AsyncKernel> MakeFence(GpuDevice* device, std::string what);

}  // namespace monograph
