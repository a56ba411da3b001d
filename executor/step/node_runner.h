// NodeRunner: computes the kernels of one step's nodes on one thread. It gives each kernel its
// context: inputs from the step's slots, memory for its outputs, the allocator of its device. What
// to run next is decided elsewhere (executor/step/step_executor.cc).
#pragma once

#include <cstdint>

#include "executor/plan/plan_data.h"
#include "executor/trace.h"
#include "executor/worker/step_ids.h"

namespace monograph {

class NodeRunner {
 public:
  // Without `may_wait` a kernel that would have to wait fails instead, and busy() is true. Kernels
  // see `outcome`, the step's.
  NodeRunner(const PlanData& plan, StepState& state, uint64_t step_id, StepTrace* trace,
             const StepOutcome* outcome, bool may_wait);
  ~NodeRunner();
  NodeRunner(const NodeRunner&) = delete;
  NodeRunner& operator=(const NodeRunner&) = delete;

  // Turns to the nodes of one iteration of a loop: to its slots, and to a number that makes its
  // random ops draw other values than another iteration's (0 outside of loops).
  void Enter(Tensor* slots, uint64_t draw) {
    slots_ = slots;
    context_.step_id_ = StepNumberOf(step_id_) ^ draw;
  }
  // Runs the synchronous kernel of `node`; its outputs are then in outputs(). The caller takes them
  // and releases the inputs. REQUIRES: the node is not serial.
  [[gnu::always_inline]] inline Status Compute(const PlanNode& node) {
    SetContext(node);
    return node.kernel->Compute(context_);
  }
  // The same for any synchronous kernel. With `timed` the time that it takes changes the plan's
  // estimate and goes to the trace, if there is one.
  Status ComputeSpecial(int32_t id, const PlanNode& node, bool timed);
  // Starts the asynchronous kernel of `node`, with the memory of `frame`.
  void ComputeAsync(const PlanNode& node, AsyncFrame& frame, Done done);

  Tensor* outputs() { return outputs_; }
  void ReleaseInputs(const PlanNode& node) {
    Tensor* inputs = &slots_[node.first_input];
    for (uint32_t i = 0; i < node.num_inputs; ++i) inputs[i].Reset();
  }
  void ReleaseOutputs(const PlanNode& node) {
    for (uint32_t i = 0; i < node.num_outputs; ++i) outputs_[i].Reset();
  }
  // Whether the kernel that has just failed would have had to wait (KernelContext::Busy).
  bool TakeBusy() { return std::exchange(context_.busy_, false); }
  // The record of `node` in the trace; nullptr without a trace.
  StepTrace::Record* Record(int32_t id) const {
    return trace_ == nullptr ? nullptr : &trace_->records_[static_cast<size_t>(id)];
  }

 private:
  static constexpr uint32_t kFew = 4;

  [[gnu::always_inline]] inline void SetContext(const PlanNode& node) {
    if (node.device != device_) [[unlikely]]
      EnterDevice(node.device);
    context_.inputs_ = {slots_ + node.first_input, node.num_inputs};
    context_.outputs_ = {outputs_, node.num_outputs};
    context_.output_dtypes_ = dtypes_ + node.first_dtype;
    context_.resumable_ = context_.cancellable_ = node.resumable;
  }
  void EnterDevice(uint16_t index);
  Status ComputeTimed(int32_t id, const PlanNode& node, bool timed);
  Status ComputeSerial(const PlanNode& node);
  void Measure(int32_t id, const PlanNode& node, int64_t ns);

  const PlanData& plan_;
  const uint64_t step_id_;
  StepTrace* const trace_;
  // Copies of pointers in the plan and the state. Read through those, they would be loaded again
  // after every kernel, since the compiler must assume that a kernel changes them.
  Tensor* slots_;
  const DType* const dtypes_;
  int32_t device_ = -1;
  KernelContext context_;
  Tensor* outputs_;  // few_, or more of the pool's memory
  Tensor few_[kFew];
};

}  // namespace monograph
