// NodeObserver: tells a driver that checks (StreamDriver::observes) what a segment's node read and
// wrote, and how to compute it once more, for replays. Other drivers are told nothing.
#pragma once

#include <span>
#include <vector>

#include "executor/gpu/gpu_device.h"
#include "executor/gpu/segment.h"

namespace monograph {

// The same bytes, held by nobody.
Tensor Unheld(const Tensor& tensor);

class NodeObserver {
 public:
  explicit NodeObserver(GpuDevice& device) : device_(device) {}
  // Before the node's kernel, which may take its inputs.
  void Before(const SegmentItem& item, std::span<const Tensor> inputs);
  // After it was issued, in the step of `outer`.
  void Issued(const SegmentItem& item, std::span<const Tensor> outputs, const KernelContext& outer);

 private:
  GpuDevice& device_;
  std::vector<Tensor> inputs_;
};

}  // namespace monograph
