#include "executor/step/node_runner.h"

#include <algorithm>
#include <memory>

#include "base/mutex.h"
#include "executor/step/pool_std_allocator.h"
#include "executor/thread_pools.h"

namespace monograph {
namespace {

// What reading the clock twice adds to a measurement.
constexpr int64_t kClockNs = 20;

}  // namespace

NodeRunner::NodeRunner(const PlanData& plan, StepState& state, uint64_t step_id, StepTrace* trace,
                       const StepOutcome* outcome, bool may_wait)
    : plan_(plan),
      step_id_(step_id),
      trace_(trace),
      slots_(state.slots.get()),
      dtypes_(plan.dtypes.data()),
      outputs_(few_) {
  context_.resources_ = plan.resources;
  context_.pools_ = plan.pools->intra_op() > 1 ? plan.pools : nullptr;
  context_.intra_op_threads_ = plan.pools->intra_op();
  context_.step_id_ = StepNumberOf(step_id);
  context_.outcome_ = outcome;
  context_.may_wait_ = may_wait;
  if (plan.max_outputs > kFew) {
    outputs_ = PoolStdAllocator<Tensor>().allocate(plan.max_outputs);
    std::uninitialized_default_construct_n(outputs_, plan.max_outputs);
  }
}

NodeRunner::~NodeRunner() {
  if (outputs_ == few_) return;
  std::destroy_n(outputs_, plan_.max_outputs);
  PoolStdAllocator<Tensor>().deallocate(outputs_, plan_.max_outputs);
}

void NodeRunner::EnterDevice(uint16_t index) {
  const Device& device = *plan_.devices[index];
  device_ = index;
  context_.device_ = device.name();
  context_.allocator_ = device.allocator();
}

Status NodeRunner::ComputeSpecial(int32_t id, const PlanNode& node, bool timed) {
  SetContext(node);
  if (!node.strings) return ComputeTimed(id, node, timed);
  StringRoom strings;
  strings.Begin(MemoryHolder::Current());
  context_.strings_ = &strings;
  const Status status = ComputeTimed(id, node, timed);
  context_.strings_ = nullptr;
  return strings.Settle(status, context_.outputs_);
}

Status NodeRunner::ComputeTimed(int32_t id, const PlanNode& node, bool timed) {
  if (!timed) return ComputeSerial(node);
  const int64_t start = TraceClockNs();
  Status status = ComputeSerial(node);
  const int64_t end = TraceClockNs();
  // A kernel that was cut short says nothing of how long it takes.
  if (context_.busy_ || context_.cancelled()) return status;
  Measure(id, node, end - start);
  if (StepTrace::Record* record = Record(id)) *record = {start, end, 0, TraceThread()};
  return status;
}

Status NodeRunner::ComputeSerial(const PlanNode& node) {
  if (node.kind != NodeKind::kSerial) return node.kernel->Compute(context_);
  Mutex& serial = plan_.serial_mutexes[node.aux];
  if (!serial.TryLock()) {  // another step runs this kernel
    if (!context_.may_wait()) return context_.Busy();
    serial.Lock();
  }
  MutexLock lock(serial, std::adopt_lock);
  return node.kernel->Compute(context_);
}

// The estimate falls at once and rises slowly: if a run took longer, the cause is more often the
// scheduler of the system than the kernel.
void NodeRunner::Measure(int32_t id, const PlanNode& node, int64_t ns) {
  const auto cost = static_cast<uint32_t>(std::clamp<int64_t>(ns - kClockNs, 1, 1'000'000'000));
  // Relaxed: an estimate; steps that measure at the same time may lose one of their values.
  const uint32_t before = node.cost_ns.load(std::memory_order_relaxed);
  plan_.SetCost(id, cost <= before ? cost : before + (cost - before) / 8);
}

void NodeRunner::ComputeAsync(const PlanNode& node, AsyncFrame& frame, Done done) {
  EnterDevice(node.device);
  frame.context = context_;
  frame.context.resumable_ = frame.context.cancellable_ = false;
  frame.context.inputs_ = {&slots_[node.first_input], node.num_inputs};
  frame.context.outputs_ = frame.outputs;
  frame.context.output_dtypes_ = dtypes_ + node.first_dtype;
  frame.context.cancel_ = &frame.cancel;
  frame.strings.Begin(plan_.memory.get());
  frame.context.strings_ = node.strings ? &frame.strings : nullptr;
  frame.cancel.trace = trace_;
  frame.cancel.step = step_id_;
  frame.start_ns = trace_ == nullptr ? 0 : TraceClockNs();
  node.kernel->AsAsync()->ComputeAsync(frame.context, std::move(done));
}

}  // namespace monograph
