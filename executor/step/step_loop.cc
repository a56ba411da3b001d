// A stretch of work, in the phases of Run: take the most urgent node of the list; run it (Execute);
// move its outputs into the input slots of consumers and count down what these wait for
// (Propagate); go on with the most urgent one that is ready now, and put the others on the list.
// From the list every second node goes to another thread when one is idle (Share): to queue a cheap
// node for all would cost more than to run it. A thread with other duties defers expensive nodes
// and hands them over at last, so that it wakes another thread once.
#include "executor/step/step_loop.h"

#include <string>
#include <utility>

namespace monograph {

StepLoop::StepLoop(Step& step, bool compute)
    : ReadyLoop(step, compute),
      timed_(step.timed_),
      slots_(state_.slots.get()),
      next_(state_.next.get()),
      pending_(state_.pending.get()),
      nodes_(plan_.nodes.get()),
      edges_(plan_.edges.data()),
      successors_(plan_.successors.data()) {}

void StepLoop::RunTask(void* context, int32_t head) {
  Step& step = *static_cast<Step*>(context);
  StepLoop(step, /*compute=*/true).RunList(head);
  step.Release();
}

void StepLoop::PushRoots() {
  for (const int32_t node : plan_.recv_nodes) Arrive(node);
  for (const int32_t node : plan_.roots) Push(node);
}

void StepLoop::CompleteAsync(int32_t id) {
  const PlanNode& node = nodes_[id];
  AsyncFrame& frame = *state_.frames[node.aux];
  runner_.ReleaseInputs(node);
  const int32_t ready = Propagate(id, node, frame.outputs.data());
  for (Tensor& output : frame.outputs) output.Reset();
  if (ready >= 0) Push(ready);
}

void StepLoop::Run() {
  int32_t node = Pop();
  while (node >= 0) {
    if (step_.aborted()) {
      head_ = -1;
      break;
    }
    if (!compute_ && !MayRunHere(node)) {
      Defer(node);
      node = Pop();
      continue;
    }
    running_.Set(node);
    const int32_t ready = Execute(node);
    node = ready >= 0 ? ready : Pop();
    if (WorthSharing()) Share();
  }
  if (step_.aborted()) [[unlikely]]
    Aborted();
  HandOverDeferred();
  Flush();
}

// ---- running one node. Each returns the most urgent successor that became ready, or -1.

[[gnu::always_inline]] inline int32_t StepLoop::Execute(int32_t id) {
  const PlanNode& node = nodes_[id];
  if (node.kind != NodeKind::kKernel || timed_) [[unlikely]]
    return ExecuteOther(id, node);
  {
    const Status status = runner_.Compute(node);
    if (!status.ok()) [[unlikely]]
      return KernelFailed(id, node, status);
  }
  runner_.ReleaseInputs(node);
  const int32_t ready = PropagateInline(id, node, runner_.outputs());
  runner_.ReleaseOutputs(node);
  return ready;
}

[[gnu::noinline]] int32_t StepLoop::ExecuteOther(int32_t id, const PlanNode& node) {
  switch (node.kind) {
    case NodeKind::kKernel:
    case NodeKind::kStrings:
    case NodeKind::kSerial:
      return ExecuteSpecial(id, node);
    case NodeKind::kRecv: {
      Tensor* received = &state_.received[node.aux];
      const int32_t ready = Propagate(id, node, received);
      received->Reset();
      return ready;
    }
    case NodeKind::kForward: {
      Tensor* input = node.num_inputs > 0 ? &slots_[node.first_input] : nullptr;
      const int32_t ready = Propagate(id, node, input);
      runner_.ReleaseInputs(node);
      return ready;
    }
    case NodeKind::kSend:
      return ExecuteSend(id, node);
    case NodeKind::kTrailing:
      ++finished_;
      [[fallthrough]];
    case NodeKind::kAsync:
      StartAsync(id, node);
      return -1;
    case NodeKind::kSwitch:  // these are FlowLoop's
    case NodeKind::kMerge:
    case NodeKind::kEnter:
    case NodeKind::kExit:
    case NodeKind::kNextIteration:
      break;
  }
  return -1;
}

// A synchronous kernel that is measured, traced or serial, or makes strings.
int32_t StepLoop::ExecuteSpecial(int32_t id, const PlanNode& node) {
  const Status status = runner_.ComputeSpecial(id, node, timed_);
  if (!status.ok()) return KernelFailed(id, node, status);
  runner_.ReleaseInputs(node);
  const int32_t ready = Propagate(id, node, runner_.outputs());
  runner_.ReleaseOutputs(node);
  return ready;
}

int32_t StepLoop::ExecuteSend(int32_t id, const PlanNode& node) {
  Tensor tensor;
  if (node.num_inputs > 0) {
    tensor = std::move(slots_[node.first_input]);
    runner_.ReleaseInputs(node);
  }
  const EdgeInfo& edge = plan_.send_edges[node.aux];
  if (StepTrace::Record* record = runner_.Record(id)) {
    const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.bytes() : 0);
    const int64_t start = TraceClockNs();
    step_.sink_->OnSend(step_.step_id_, edge, std::move(tensor), 0);
    *record = {start, TraceClockNs(), bytes, TraceThread()};
  } else {
    step_.sink_->OnSend(step_.step_id_, edge, std::move(tensor), 0);
  }
  return Propagate(id, node, nullptr);
}

void StepLoop::StartAsync(int32_t id, const PlanNode& node) {
  step_.Hold();
  runner_.ComputeAsync(node, *state_.frames[node.aux],
                       [step = &step_, id](const Status& status) { step->AsyncDone(id, status); });
}

[[gnu::noinline]] int32_t StepLoop::Propagate(int32_t id, const PlanNode& node, Tensor* outputs) {
  return PropagateInline(id, node, outputs);
}

// Hands outputs to consumers, and pushes the successors that became ready, but for the most urgent
// one.
[[gnu::always_inline]] inline int32_t StepLoop::PropagateInline(int32_t id, const PlanNode& node,
                                                                Tensor* outputs) {
  const DataEdge* edge = edges_ + node.first_edge;
  for (const DataEdge* end = edge + node.num_edges; edge != end; ++edge) {
    Tensor& output = outputs[edge->output];
    if (output.dtype() != static_cast<DType>(edge->dtype)) [[unlikely]] {
      WrongOutput(id, *edge, output);
      return -1;
    }
    // The slot is empty, so it is constructed and not assigned: an assignment would first read it,
    // and that memory is seldom in a cache; a store need not wait for it.
    if (edge->last) {
      std::construct_at(slots_ + edge->slot, std::move(output));
    } else {
      std::construct_at(slots_ + edge->slot, output);
    }
  }
  ++finished_;
  int32_t ready = -1;
  const Successor* successor = successors_ + node.first_successor;
  for (const Successor* end = successor + node.num_successors; successor != end; ++successor) {
    const auto target = static_cast<int32_t>(successor->node);
    if (!successor->alone && !CountDown(target)) continue;
    if (ready >= 0) Push(ready);
    ready = target;
  }
  return ready;
}

[[gnu::noinline]] int32_t StepLoop::KernelFailed(int32_t id, const PlanNode& node,
                                                 const Status& status) {
  if (runner_.TakeBusy()) {
    // The kernel would have to wait. The node comes back from the list at once; without a budget it
    // then leaves this thread, as an expensive one does.
    budget_ = -1;
    runner_.ReleaseOutputs(node);
    Push(id);
    return -1;
  }
  Fail(id, status);
  runner_.ReleaseOutputs(node);
  return -1;
}

// ---- other threads

void StepLoop::Enqueue(int32_t list) {
  step_.Hold();
  plan_.pools->Enqueue(&RunTask, &step_, list, plan_.session);
}

// Subtracts the nodes that this thread has finished: once per stretch, before the thread lets go of
// the step, and not per node, because all threads share the count.
void StepLoop::Flush() {
  const int32_t finished = std::exchange(finished_, 0);
  if (finished == 0) return;
  if (step_.remaining_.fetch_sub(finished, std::memory_order_acq_rel) == finished) step_.Complete();
}

}  // namespace monograph
