// GpuLauncher: sets up contexts of kernels that run outside the step executor's own loop.
// PostedKernel: one that begins on a GPU's launching thread.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "base/free_list.h"
#include "executor/gpu/gpu_device.h"
#include "executor/kernel.h"
#include "executor/step/cancel_slot.h"

namespace monograph {

class StepTrace;

class GpuLauncher {
 public:
  // Of a traced step; nullptr otherwise.
  static StepTrace* Trace(const KernelContext& outer) {
    return outer.cancel_ == nullptr ? nullptr : outer.cancel_->trace;
  }
  // The step's id, or its number where a kernel runs by itself.
  static uint64_t Step(const KernelContext& outer) {
    return outer.cancel_ == nullptr ? outer.step_id() : outer.cancel_->step;
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

// By argument, whether it lies in host memory; bool[] because a context points to them.
struct HostPlaces {
  std::unique_ptr<bool[]> inputs, outputs;
};

class PostedKernel : public AsyncKernel {
 public:
  PostedKernel(GpuDevice* device, HostPlaces places)
      : device_(*device), places_(std::move(places)) {}

  void ComputeAsync(KernelContext& context, Done done) final {
    Job* run = jobs_.Take();
    run->kernel = this;
    run->context = &context;
    run->done = std::move(done);
    run->step = GpuLauncher::Step(context);
    device_.Post(run);
  }

 protected:
  // On the launching thread; the context is that of a kernel of the device. Calls `done` once.
  virtual void Begin(KernelContext& context, Done done) = 0;
  GpuDevice& device() const { return device_; }

 private:
  struct Job : LaunchTask {
    PostedKernel* kernel = nullptr;
    KernelContext* context = nullptr;
    Done done;
    void Run() override {
      Done finished = std::move(done);
      KernelContext& c = *context;
      PostedKernel& self = *kernel;
      self.jobs_.Give(this);
      GpuLauncher::Begin(&c, c, self.device_);
      GpuLauncher::SetPlaces(&c, self.places_.inputs.get(), self.places_.outputs.get());
      self.Begin(c, std::move(finished));
    }
  };
  GpuDevice& device_;
  const HostPlaces places_;
  FreeList<Job> jobs_;
};

}  // namespace monograph
