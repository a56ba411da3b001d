// GpuLauncher: sets up contexts of kernels that run outside the step executor's own loop.
#pragma once

#include <span>

#include "executor/cancel_slot.h"
#include "executor/gpu/device.h"
#include "executor/kernel.h"

namespace monograph {

class StepTrace;

class GpuLauncher {
 public:
  // Of a traced step; nullptr otherwise.
  static StepTrace* Trace(const KernelContext& outer) {
    return outer.cancel_ == nullptr ? nullptr : outer.cancel_->trace;
  }
  // For kernels of `device` in the step of `outer`.
  static void Begin(KernelContext* context, const KernelContext& outer, GpuDevice& device) {
    context->resources_ = outer.resources_;
    context->pools_ = outer.pools_;
    context->step_id_ = outer.step_id_;
    context->intra_op_threads_ = outer.intra_op_threads_;
    context->device_ = device.name();
    context->allocator_ = device.allocator();
    context->device_stream_ = device.stream();
    context->may_wait_ = true;
  }
  static void UseMemory(KernelContext* context, Allocator* allocator) {
    context->allocator_ = allocator;
  }
  static void UseStream(KernelContext* context, DeviceStream* stream) {
    context->device_stream_ = stream;
  }
  static void Set(KernelContext* context, std::span<Tensor> inputs, std::span<Tensor> outputs,
                  const DType* dtypes, const bool* host_inputs, const bool* host_outputs) {
    context->inputs_ = inputs;
    context->outputs_ = outputs;
    context->output_dtypes_ = dtypes;
    SetPlaces(context, host_inputs, host_outputs);
  }
  static void SetPlaces(KernelContext* context, const bool* host_inputs, const bool* host_outputs) {
    context->host_inputs_ = host_inputs;
    context->host_outputs_ = host_outputs;
  }
};

}  // namespace monograph
