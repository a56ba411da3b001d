// A stretch of work, in the phases of Run: take the most urgent node of the list; run it (Execute);
// move its outputs into the input slots of consumers and count down what these wait for
// (Propagate); go on with the most urgent one that is ready now, and put the others on the list.
// From the list every second node goes to another thread when one is idle (Share): to queue a cheap
// node for all would cost more than to run it. A thread with other duties defers expensive nodes
// and hands them over at last, so that it wakes another thread once.
#include "executor/step/step_loop.h"

#include <memory>
#include <string>
#include <utility>

#include "executor/thread_pools.h"
#include "executor/worker/step_ids.h"

namespace monograph {
namespace {

// Budget of cheap nodes for a thread that has other duties.
constexpr int64_t kCallerBudgetNs = 50'000;
// Work on a list (by estimate) from which it pays to wake another thread.
constexpr int64_t kShareNs = 5'000;
// Costs are compared by their number of bits. A node of 2 us or more is worth a thread of its own.
constexpr uint8_t kExpensiveBits = 12;

}  // namespace

thread_local StepLoop* StepLoop::innermost_ = nullptr;

StepLoop::StepLoop(Step& step, bool compute)
    : step_(step),
      plan_(step.plan_->data()),
      state_(*step.state_),
      compute_(compute),
      timed_(step.timed_),
      memory_(plan_.memory.get()),
      runner_(plan_, state_, StepNumberOf(step.step_id_), step.trace_, &step.outcome_, compute),
      outer_(innermost_),
      running_(RunningNode::Mine()),
      outer_step_(running_.step()),
      outer_node_(running_.node()),
      budget_(kCallerBudgetNs),
      slots_(state_.slots.get()),
      next_(state_.next.get()),
      pending_(state_.pending.get()),
      nodes_(plan_.nodes.get()),
      edges_(plan_.edges.data()),
      successors_(plan_.successors.data()) {
  innermost_ = this;
  running_.Set(-1);
  running_.SetStep(&step);
}

StepLoop* StepLoop::Find(const Step& step) {
  StepLoop* loop = innermost_;
  while (loop != nullptr && &loop->step_ != &step) loop = loop->outer_;
  return loop;
}

void StepLoop::RunTask(void* context, int32_t head) {
  Step& step = *static_cast<Step*>(context);
  {
    StepLoop loop(step, /*compute=*/true);
    loop.head_ = head;
    for (int32_t node = head; node >= 0; node = loop.next(node)) loop.cost_ += loop.ShareCost(node);
    loop.Run();
  }
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
  int32_t last = -1;
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
    last = node;
    running_.Set(node);
    const int32_t ready = Execute(node);
    node = ready >= 0 ? ready : Pop();
    if (compute_ && cost_ >= kShareNs && head_ >= 0 && plan_.pools->hungry()) Share();
  }
  if (step_.aborted() && last >= 0) [[unlikely]]
    Aborted(last);
  HandOverDeferred();
  Flush();
}

// ---- the list, and what nodes wait for

inline int32_t StepLoop::Pop() {
  const int32_t node = head_;
  if (node < 0) {
    cost_ = 0;  // estimates may have changed meanwhile
    return node;
  }
  head_ = next(node);
  cost_ -= ShareCost(node);
  return node;
}

// Whether a thread with other duties may run the node itself; takes it off the budget.
inline bool StepLoop::MayRunHere(int32_t node) {
  const uint8_t bits = CostBits(node);
  if (bits >= kExpensiveBits || budget_ < 0) return false;
  budget_ -= int64_t{20} + (int64_t{1} << bits);
  return true;
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

// A synchronous kernel that is measured, traced or serial.
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
    step_.sink_->OnSend(step_.step_id_, edge, std::move(tensor));
    *record = {start, TraceClockNs(), bytes, TraceThread()};
  } else {
    step_.sink_->OnSend(step_.step_id_, edge, std::move(tensor));
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

[[gnu::noinline]] void StepLoop::WrongOutput(int32_t id, const DataEdge& edge,
                                             const Tensor& output) {
  Fail(id,
       Internal("the kernel's output " + std::to_string(edge.output) + " is " +
                (output.valid() ? std::string(DTypeName(output.dtype())) : std::string("missing")) +
                ", not " + std::string(DTypeName(static_cast<DType>(edge.dtype)))));
}

void StepLoop::Fail(int32_t id, const Status& status) {
  step_.AbortHeld(status.WithContext(plan_.Describe(id)));
}

// The step was aborted; this thread ran `last` just now.
[[gnu::noinline]] void StepLoop::Aborted(int32_t last) {
  const NodeKind kind = nodes_[last].kind;
  if (kind == NodeKind::kKernel || kind == NodeKind::kSerial) step_.EndedLate(last, Status());
}

// ---- other threads

// Gives every second node of the list, beginning with the most urgent one, to another thread.
void StepLoop::Share() {
  int32_t kept_first = -1, given_first = -1;
  int32_t* kept = &kept_first;
  int32_t* given = &given_first;
  int64_t kept_cost = 0;
  bool give = true;
  for (int32_t node = head_; node >= 0; node = next(node)) {
    if (give) {
      *given = node;
      given = &next(node);
    } else {
      *kept = node;
      kept = &next(node);
      kept_cost += ShareCost(node);
    }
    give = !give;
  }
  *kept = *given = -1;
  head_ = kept_first;
  cost_ = kept_cost;
  Enqueue(given_first);
}

void StepLoop::Defer(int32_t node) {
  next(node) = -1;
  if (plan_.pools->hungry()) return Enqueue(node);
  if (deferred_last_ >= 0) {
    next(deferred_last_) = node;
  } else {
    deferred_first_ = node;
  }
  deferred_last_ = node;
}

void StepLoop::HandOverDeferred() {
  if (deferred_first_ >= 0 && !step_.aborted()) Enqueue(deferred_first_);
  deferred_first_ = deferred_last_ = -1;
}

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
