// As step_loop.cc, with what control flow adds. Nodes that become ready dead have a list of their
// own (Die), which is emptied first: they only tell their successors (ExecuteDead). Values for
// another iteration (EnterLoop, NextIteration, LeaveLoop) are written into its slots at once. Each
// iteration counts its nodes that are ready and have not ended; when the oldest one's count falls
// to 0 it is retired, and after the last one the loop ends (RetireOver, EndLoop).
#include "executor/step/flow_loop.h"

#include <string>
#include <utility>

#include "executor/step/dead_tensor.h"

namespace monograph {
namespace {

constexpr uint32_t kControlsLeft = ~(kLive | kMergeInputs);

}  // namespace

FlowLoop::FlowLoop(Step& step, bool compute)
    : ReadyLoop(step, compute), flow_(*plan_.flow), root_(state_.flow->root.get()) {}

void FlowLoop::RunTask(void* context, int32_t head) {
  auto* const iteration = static_cast<Iteration*>(context);
  Step& step = *iteration->state->step;
  FlowLoop(step, /*compute=*/true).RunList({iteration, head});
  step.Release();
}

void FlowLoop::PushRoots() {
  for (size_t i = 0; i < plan_.recv_nodes.size(); ++i) {
    if (!plan_.recv_edges[i].in_loop) ArriveRecv(plan_.recv_nodes[i]);
  }
  for (const int32_t node : plan_.roots) Push({root_, node});
}

void FlowLoop::ArriveRecv(int32_t node) {
  Arrive(root_, {.node = static_cast<uint32_t>(node), .kind = FlowSuccessor::kCounted});
}

void FlowLoop::Run() {
  do {
    for (FlowItem item = Next(); item.valid(); item = Next()) {
      if (step_.aborted()) {
        head_ = ready_ = dead_ = {};
        break;
      }
      if (!compute_ && !MayRunHere(item)) {
        Defer(item);
        continue;
      }
      running_.Set(item.node);
      Execute(item);
      if (WorthSharing()) Share();
    }
    HandOverDeferred();
    HandIn();  // may end a loop, and make ready what is behind it
  } while ((ready_.valid() || head_.valid() || dead_.valid()) && !step_.aborted());
  if (step_.aborted()) [[unlikely]]
    Aborted();
}

// ---- the lists

inline FlowItem FlowLoop::Next() {
  while (dead_.valid()) {
    const FlowItem item = dead_;
    dead_ = next(item);
    ExecuteDead(item);
  }
  return ready_.valid() ? std::exchange(ready_, {}) : Pop();
}

// ---- counting
//
// Iteration::outstanding counts the nodes of an iteration that are ready and have not ended, and
// the loops within it. A thread adds up what it changes in one iteration, and hands the sum in when
// it turns to another one, or when another thread could see one of those nodes end: so the count is
// never too small while a node is left.

inline void FlowLoop::Enter(Iteration* iteration) {
  if (iteration == current_) return;
  HandIn();
  current_ = iteration;
  timed_ = step_.timed_ && iteration->first;
  runner_.Enter(iteration->slots.get(), iteration->draw);
}

void FlowLoop::HandIn() {
  Iteration* const iteration = std::exchange(current_, nullptr);
  const int32_t delta = std::exchange(delta_, 0);
  if (delta > 0) Add(iteration, delta);
  if (delta < 0) Drop(iteration, -delta);
}

// Relaxed: whoever takes the last away has seen it come.
void FlowLoop::Add(Iteration* iteration, int32_t nodes) {
  auto& left = iteration->run == nullptr ? step_.remaining_ : iteration->outstanding;
  left.fetch_add(nodes, std::memory_order_relaxed);
}

void FlowLoop::Drop(Iteration* iteration, int32_t nodes) {
  auto& left = iteration->run == nullptr ? step_.remaining_ : iteration->outstanding;
  if (left.fetch_sub(nodes, std::memory_order_acq_rel) == nodes) Over(iteration);
}

// Nothing of the iteration is left.
void FlowLoop::Over(Iteration* iteration) {
  if (iteration->run == nullptr) return step_.Complete();
  LoopRun& run = *iteration->run;
  bool over;
  {
    MutexLock lock(run.mutex);
    over = RetireOver(run);
  }
  if (over) EndLoop(run);
}

// ---- what nodes wait for

inline void FlowLoop::Ready(Iteration* iteration, int32_t node) {
  if (iteration == current_) {
    if (iteration->run != nullptr) ++delta_;  // those outside of loops are counted from the start
  } else if (iteration->run != nullptr) {
    Add(iteration, 1);
  }
  if (ready_.valid()) Push(ready_);
  ready_ = {iteration, node};
}

void FlowLoop::Die(Iteration* iteration, int32_t node) {
  if (iteration->run != nullptr) Add(iteration, 1);
  const FlowItem item{iteration, node};
  next(item) = dead_;
  dead_ = item;
}

inline void FlowLoop::Arrive(Iteration* to, const FlowSuccessor& successor) {
  const auto target = static_cast<int32_t>(successor.node);
  const std::atomic_ref<uint32_t> word(to->pending(target));
  switch (successor.kind) {
    case FlowSuccessor::kAlone:
      return Ready(to, target);
    case FlowSuccessor::kCounted:
    case FlowSuccessor::kTriggered: {
      const uint32_t before = word.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & ~kDead) != 1) return;
      return (before & kDead) != 0 ? Die(to, target) : Ready(to, target);
    }
    case FlowSuccessor::kMergeInput:
      return MergeValue(to, successor);
    case FlowSuccessor::kMergeWaits: {
      const uint32_t before = word.fetch_sub(kMergeControl, std::memory_order_acq_rel);
      if ((before & kControlsLeft) != kMergeControl) return;
      if ((before & kLive) != 0) return Ready(to, target);
      if ((before & kMergeInputs) == 0) Die(to, target);
    }
  }
}

// The first value that comes is the Merge's.
inline void FlowLoop::MergeValue(Iteration* to, const FlowSuccessor& successor) {
  const auto target = static_cast<int32_t>(successor.node);
  const std::atomic_ref<uint32_t> word(to->pending(target));
  uint32_t before = word.load(std::memory_order_relaxed);  // a first guess for the exchange
  do {
    if ((before & kLive) != 0) return;
  } while (!word.compare_exchange_weak(before, kLive | (before & kControlsLeft) | successor.input,
                                       std::memory_order_acq_rel));
  if ((before & kControlsLeft) == 0) Ready(to, target);
}

void FlowLoop::ArriveDead(Iteration* to, const FlowSuccessor& successor) {
  const auto target = static_cast<int32_t>(successor.node);
  const std::atomic_ref<uint32_t> word(to->pending(target));
  switch (successor.kind) {
    case FlowSuccessor::kAlone:
      return Die(to, target);
    case FlowSuccessor::kCounted:
      // Relaxed: the fetch_sub in Arrive publishes it.
      word.fetch_or(kDead, std::memory_order_relaxed);
      [[fallthrough]];
    case FlowSuccessor::kTriggered:
    case FlowSuccessor::kMergeWaits:
      return Arrive(to, successor);
    case FlowSuccessor::kMergeInput: {
      uint32_t before = word.load(std::memory_order_relaxed);  // a first guess for the exchange
      do {
        if ((before & kLive) != 0) return;
      } while (!word.compare_exchange_weak(before, before - 1, std::memory_order_acq_rel));
      if (before == 1) Die(to, target);  // the last input, and nothing else is missing
    }
  }
}

// ---- running one node

[[gnu::always_inline]] inline void FlowLoop::Execute(const FlowItem& item) {
  const PlanNode& node = plan_.nodes[static_cast<size_t>(item.node)];
  Enter(item.iteration);
  if (node.kind != NodeKind::kKernel || timed_) [[unlikely]]
    return ExecuteOther(item.iteration, item.node, node);
  {
    const Status status = runner_.Compute(node);
    if (!status.ok()) [[unlikely]]
      return KernelFailed(item, node, status);
  }
  runner_.ReleaseInputs(node);
  Propagate(item.iteration, item.node, node, runner_.outputs());
  runner_.ReleaseOutputs(node);
  Finished(item.iteration);
}

inline void FlowLoop::Finished(Iteration* iteration) {
  if (iteration == current_) {
    --delta_;
  } else {
    Drop(iteration, 1);
  }
}

void FlowLoop::ExecuteOther(Iteration* iteration, int32_t id, const PlanNode& node) {
  Tensor* const inputs = &iteration->slots[node.first_input];
  switch (node.kind) {
    case NodeKind::kKernel:
    case NodeKind::kStrings:
    case NodeKind::kSerial: {
      const Status status = runner_.ComputeSpecial(id, node, timed_);
      if (!status.ok()) return KernelFailed({iteration, id}, node, status);
      runner_.ReleaseInputs(node);
      Propagate(iteration, id, node, runner_.outputs());
      runner_.ReleaseOutputs(node);
      break;
    }
    case NodeKind::kRecv:
      if (iteration->run != nullptr) return ReceiveInLoop(iteration, id, node);
      ExecuteRecv(iteration, id, node);
      break;
    case NodeKind::kForward:
      Propagate(iteration, id, node, inputs);
      runner_.ReleaseInputs(node);
      break;
    case NodeKind::kSend:
      ExecuteSend(iteration, id, node);
      break;
    case NodeKind::kAsync:
      return StartAsync(iteration, id, node);
    case NodeKind::kTrailing:  // of plans without control flow
      break;
    case NodeKind::kSwitch:
      ExecuteSwitch(iteration, id, node);
      break;
    case NodeKind::kMerge:
      ExecuteMerge(iteration, id, node);
      break;
    case NodeKind::kEnter:
      EnterLoop(iteration, id, node, std::move(inputs[0]));
      break;
    case NodeKind::kExit:
      LeaveLoop(iteration, id, node);
      break;
    case NodeKind::kNextIteration:
      NextIteration(iteration, id, node);
      break;
  }
  Finished(iteration);
}

void FlowLoop::ExecuteSwitch(Iteration* iteration, int32_t id, const PlanNode& node) {
  Tensor* const inputs = &iteration->slots[node.first_input];
  const Tensor& predicate = inputs[1];
  if (predicate.shape().rank() != 0) {
    return Fail(id, InvalidArgument("The second input must be a scalar, but it has shape " +
                                    predicate.shape().ToString()));
  }
  const uint32_t taken = predicate.scalar<bool>() ? 1 : 0;
  const DataEdge* edge = plan_.edges.data() + node.first_edge;
  for (const DataEdge* end = edge + node.num_edges; edge != end; ++edge) {
    if (edge->output != taken) continue;
    Tensor* const slot = &iteration->slots[edge->slot];
    if (edge->last) {
      std::construct_at(slot, std::move(inputs[0]));
    } else {
      std::construct_at(slot, inputs[0]);
    }
  }
  runner_.ReleaseInputs(node);
  const uint32_t dead = uint32_t{1} << (1 - taken);
  const FlowSuccessor* successor = flow_.successors.data() + node.first_successor;
  for (const FlowSuccessor* end = successor + node.num_successors; successor != end; ++successor) {
    if ((successor->outputs & dead) != 0) {
      ArriveDead(iteration, *successor);
    } else {
      Arrive(iteration, *successor);
    }
  }
}

void FlowLoop::ExecuteMerge(Iteration* iteration, int32_t id, const PlanNode& node) {
  const uint32_t input = iteration->pending(id) & kMergeInputs;
  Tensor outputs[2];
  outputs[0] = std::move(iteration->slots[node.first_input + input]);
  const bool tells =
      node.num_edges > 0 && plan_.edges[node.first_edge + node.num_edges - 1].output == 1;
  if (tells) outputs[1] = flow_.value_index[input];
  Propagate(iteration, id, node, outputs);
}

// What a _Recv got.
void FlowLoop::HandOn(Iteration* iteration, int32_t id, const PlanNode& node, Tensor* received) {
  if (IsDead(*received)) {
    PropagateDead(iteration, node);
  } else {
    Propagate(iteration, id, node, received);
  }
}

void FlowLoop::ExecuteRecv(Iteration* iteration, int32_t id, const PlanNode& node) {
  Tensor& received = state_.received[node.aux];
  HandOn(iteration, id, node, &received);
  received.Reset();
}

// If the tensor has not come, the node stays pending and runs again when it does; until then the
// iteration counts it as running.
void FlowLoop::ReceiveInLoop(Iteration* iteration, int32_t id, const PlanNode& node) {
  HandIn();  // the tensor may come at once, on another thread
  Tensor tensor;
  if (!state_.flow->arrivals.Take(node.aux, iteration, &tensor)) return;
  HandOn(iteration, id, node, &tensor);
  Finished(iteration);
}

void FlowLoop::ExecuteSend(Iteration* iteration, int32_t id, const PlanNode& node) {
  Tensor tensor;
  if (node.num_inputs > 0) tensor = std::move(iteration->slots[node.first_input]);
  const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.bytes() : 0);
  auto* const record = runner_.Record(id);
  const int64_t start = record != nullptr ? TraceClockNs() : 0;
  step_.sink_->OnSend(step_.step_id_, plan_.send_edges[node.aux], std::move(tensor), iteration->id);
  if (record != nullptr) *record = {start, TraceClockNs(), bytes, TraceThread()};
  Propagate(iteration, id, node, nullptr);
}

void FlowLoop::StartAsync(Iteration* iteration, int32_t id, const PlanNode& node) {
  step_.Hold();
  HandIn();  // the kernel may end at once, on another thread
  runner_.ComputeAsync(node, *iteration->async[node.aux],
                       [iteration, id](const Status& status) { AsyncDone(iteration, id, status); });
}

void FlowLoop::AsyncDone(Iteration* iteration, int32_t id, const Status& status) {
  Step& step = *iteration->state->step;
  const PlanNode& node = iteration->state->plan.nodes[static_cast<size_t>(id)];
  if (step.AsyncEnded(id, *iteration->async[node.aux], iteration->first, status))
    Continue(step, [&](FlowLoop& loop) { loop.CompleteAsync(iteration, id); });
  step.Release();
}

void FlowLoop::CompleteAsync(Iteration* iteration, int32_t id) {
  const PlanNode& node = plan_.nodes[static_cast<size_t>(id)];
  AsyncFrame& frame = *iteration->async[node.aux];
  for (uint32_t i = 0; i < node.num_inputs; ++i) iteration->slots[node.first_input + i].Reset();
  Propagate(iteration, id, node, frame.outputs.data());
  for (Tensor& output : frame.outputs) output.Reset();
  Finished(iteration);
}

// ---- loops

void FlowLoop::EnterLoop(Iteration* iteration, int32_t id, const PlanNode& node, Tensor value) {
  const auto frame = static_cast<size_t>(node.aux / 2);
  const bool constant = node.aux % 2 != 0;
  LoopRun& run = *iteration->loops[static_cast<size_t>(flow_.frames[frame].child)];
  bool over = false;
  {
    MutexLock lock(run.mutex);
    if (!run.open) {
      run.Open();
      Add(iteration, 1);
      Begin(run);
    }
    --run.enters_left;
    if (constant) {
      run.constants.push_back({id, std::move(value)});
      // Relaxed: `next` is written under run.mutex, which is held.
      for (Iteration* to = run.oldest; to != nullptr; to = to->next.load(std::memory_order_relaxed))
        HandConstant(to, run.constants.back());
    } else if (value.valid()) {
      Propagate(run.oldest, id, node, &value);
    } else {
      PropagateDead(run.oldest, node);
    }
    if (run.enters_left == 0) over = RetireOver(run);
  }
  if (over) EndLoop(run);
}

void FlowLoop::LeaveLoop(Iteration* iteration, int32_t id, const PlanNode& node) {
  const LoopRun& run = *iteration->run;
  // Relaxed: read when the loop is over.
  if (run.left[node.aux].exchange(true, std::memory_order_relaxed))
    return Fail(id, InvalidArgument("leaves its loop in a second iteration"));
  Propagate(run.parent, id, node, &iteration->slots[node.first_input]);
  runner_.ReleaseInputs(node);
}

void FlowLoop::NextIteration(Iteration* iteration, int32_t id, const PlanNode& node) {
  Tensor& value = iteration->slots[node.first_input];
  Iteration* next = iteration->next.load(std::memory_order_acquire);
  if (next == nullptr) {
    LoopRun& run = *iteration->run;
    MutexLock lock(run.mutex);
    next = iteration->next.load(std::memory_order_relaxed);  // written under run.mutex
    if (next == nullptr && run.running >= run.frame->parallel_iterations) {
      run.waiting.push_back({id, std::move(value)});
      runner_.ReleaseInputs(node);
      return;
    }
    if (next == nullptr) next = Begin(run);
  }
  Propagate(next, id, node, &value);
  runner_.ReleaseInputs(node);
}

Iteration* FlowLoop::Begin(LoopRun& run) {
  Iteration* const iteration = run.Begin();
  for (const LoopRun::Value& constant : run.constants) HandConstant(iteration, constant);
  return iteration;
}

void FlowLoop::HandConstant(Iteration* to, const LoopRun::Value& constant) {
  const PlanNode& node = plan_.nodes[static_cast<size_t>(constant.node)];
  if (!constant.tensor.valid()) return PropagateDead(to, node);
  Tensor copy = constant.tensor;
  Propagate(to, constant.node, node, &copy);
}

// Retires the oldest iterations that nothing can come to any more: their count is 0, and all Enters
// have come. Returns whether the loop has ended.
bool FlowLoop::RetireOver(LoopRun& run) {
  if (!run.open || run.enters_left > 0) return false;
  while (run.oldest->outstanding.load(std::memory_order_acquire) == 0) {
    const bool last = run.oldest == run.newest && run.waiting.empty();
    run.Retire();
    if (last) {
      run.open = false;
      run.constants.clear();
      return true;
    }
    if (run.waiting.empty()) continue;
    Iteration* const begun = Begin(run);
    for (LoopRun::Value& value : run.waiting)
      Propagate(begun, value.node, plan_.nodes[static_cast<size_t>(value.node)], &value.tensor);
    run.waiting.clear();
  }
  return false;
}

void FlowLoop::EndLoop(LoopRun& run) {
  for (size_t i = 0; i < run.frame->exits.size(); ++i) {
    if (!run.left[i].load(std::memory_order_relaxed))
      PropagateDead(run.parent, plan_.nodes[static_cast<size_t>(run.frame->exits[i])]);
  }
  Drop(run.parent, 1);
}

// ---- dead nodes

void FlowLoop::ExecuteDead(const FlowItem& item) {
  const PlanNode& node = plan_.nodes[static_cast<size_t>(item.node)];
  Iteration* const iteration = item.iteration;
  Enter(iteration);
  runner_.ReleaseInputs(node);
  switch (node.kind) {
    case NodeKind::kEnter:
      EnterLoop(iteration, item.node, node, Tensor());
      break;
    case NodeKind::kExit:  // only the end of its loop says that it is dead
    case NodeKind::kNextIteration:
      break;
    case NodeKind::kSend:
      SendDead(iteration, item.node, node);
      [[fallthrough]];
    default:
      PropagateDead(iteration, node);
  }
  Finished(iteration);
}

void FlowLoop::SendDead(Iteration* iteration, int32_t id, const PlanNode& node) {
  const EdgeInfo& edge = plan_.send_edges[node.aux];
  if (!edge.may_be_dead) {
    return Fail(id, InvalidArgument("The tensor returned for " + edge.name +
                                    " was not valid: it is on a branch that was not taken"));
  }
  step_.sink_->OnSend(step_.step_id_, edge, DeadTensor(), iteration->id);
}

// ---- what follows from a node

// Hands outputs to consumers in the iteration `to`, and makes ready what waits for nothing else.
[[gnu::always_inline]] inline void FlowLoop::Propagate(Iteration* to, int32_t id,
                                                       const PlanNode& node, Tensor* outputs) {
  const DataEdge* edge = plan_.edges.data() + node.first_edge;
  for (const DataEdge* end = edge + node.num_edges; edge != end; ++edge) {
    Tensor& output = outputs[edge->output];
    if (output.dtype() != static_cast<DType>(edge->dtype)) [[unlikely]]
      return WrongOutput(id, *edge, output);
    // The slot is empty: see StepLoop::PropagateInline.
    if (edge->last) {
      std::construct_at(&to->slots[edge->slot], std::move(output));
    } else {
      std::construct_at(&to->slots[edge->slot], output);
    }
  }
  const FlowSuccessor* successor = flow_.successors.data() + node.first_successor;
  for (const FlowSuccessor* end = successor + node.num_successors; successor != end; ++successor)
    Arrive(to, *successor);
}

void FlowLoop::PropagateDead(Iteration* to, const PlanNode& node) {
  const FlowSuccessor* successor = flow_.successors.data() + node.first_successor;
  for (const FlowSuccessor* end = successor + node.num_successors; successor != end; ++successor)
    ArriveDead(to, *successor);
}

[[gnu::noinline]] void FlowLoop::KernelFailed(const FlowItem& item, const PlanNode& node,
                                              const Status& status) {
  runner_.ReleaseOutputs(node);
  if (!runner_.TakeBusy()) return Fail(item.node, status);
  // The kernel would have to wait: see StepLoop::KernelFailed.
  budget_ = -1;
  Push(item);
}

// ---- other threads

void FlowLoop::Enqueue(const FlowItem& list) {
  HandIn();
  step_.Hold();
  plan_.pools->Enqueue(&RunTask, list.iteration, list.node, plan_.session);
}

}  // namespace monograph
