// A step's life: Prepare lends it memory of the plan; Deliver and Start make nodes ready; loops
// (executor/step/step_loop.h) run them, on this thread and on inter-op threads; when the last hold
// is given up, Finish gives the memory back and tells how it went. A step ends well when every node
// has finished (Complete), or else by the first failure or Abort (AbortHeld): whichever comes first
// settles the outcome. Holds keep the memory until the last thread has left.
#include "executor/step/step_executor.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/plan/flow_plan.h"
#include "executor/plan/plan_data.h"
#include "executor/step/dead_tensor.h"
#include "executor/step/flow_loop.h"
#include "executor/step/iteration.h"
#include "executor/step/pool_std_allocator.h"
#include "executor/step/step_loop.h"
#include "executor/step/unfinished.h"
#include "executor/thread_pools.h"

namespace monograph {
namespace {

// Steps of a plan in which kernels are measured: the first ones, and some later ones.
constexpr uint64_t kFirstMeasured = 16;
constexpr uint64_t kMeasureEvery = 64;

// Drops the tensors that an ended step still holds. After a success these are at most tensors that
// nobody consumed.
void Clear(const PlanData& plan, StepState& state, bool complete) {
  for (size_t i = 0; i < plan.recv_edges.size(); ++i) state.received[i].Reset();
  if (state.flow != nullptr) return state.flow->Clear(complete);
  for (auto& frame : state.frames) {
    for (Tensor& output : frame->outputs) output.Reset();
    frame->cancel.Reset();
  }
  if (complete) return;
  for (uint32_t i = 0; i < plan.num_slots; ++i) state.slots[i].Reset();
}

}  // namespace

std::shared_ptr<Step> StepExecutor::Prepare(std::shared_ptr<const Plan> plan, uint64_t step_id,
                                            StepSink* sink, Done done, StepTrace* trace) {
  const PlanData& data = plan->data();
  auto step = std::allocate_shared<Step>(PoolStdAllocator<Step>(), Step::Key());
  step->state_ = data.TakeState();
  const auto nodes = static_cast<size_t>(data.num_nodes);
  if (data.flow != nullptr) {
    step->state_->flow->Begin(step.get());
  } else if (nodes > 0) {
    std::memcpy(step->state_->pending.get(), data.pending.data(), nodes * sizeof(uint32_t));
  }
  // Relaxed, here and below: no other thread knows the step yet.
  for (size_t i = 0; i < data.recv_edges.size(); ++i) {
    step->state_->delivered[i].store(0, std::memory_order_relaxed);
  }
  step->step_id_ = step_id;
  step->sink_ = sink;
  step->done_ = std::move(done);
  // A running loop counts as one node of the step; its nodes are counted by its iterations.
  step->remaining_.store(data.flow == nullptr ? data.num_nodes : data.flow->frames[0].num_nodes,
                         std::memory_order_relaxed);
  // Relaxed: a counter, by which nothing is published.
  const uint64_t number = data.steps.fetch_add(1, std::memory_order_relaxed);
  step->timed_ = trace != nullptr || number < kFirstMeasured || number % kMeasureEvery == 0;
  if (trace != nullptr) {
    trace->plan_ = plan;
    trace->records_.assign(nodes, {});
    step->trace_ = trace;
  }
  step->plan_ = std::move(plan);
  return step;
}

Step::Step(Key) {}

Step::~Step() {
  if (state_ == nullptr) return;  // it has run
  Clear(plan_->data(), *state_, false);
  plan_->data().ReturnState(std::move(state_));
}

bool Step::TryHold() {
  int holds = holds_.load(std::memory_order_relaxed);  // a first guess for the exchange
  while (holds > 0) {
    if (holds_.compare_exchange_weak(holds, holds + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void Step::Release() {
  if (plan_->data().flow != nullptr) return ReleaseOfFlow();
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

// In a graph whose control flow is wrong, nodes may wait for others that never run.
void Step::ReleaseOfFlow() {
  const int before = holds_.fetch_sub(1, std::memory_order_acq_rel);
  if (before == 1) return Finish();
  // One hold, while the outcome is open, is the outcome's own: then nobody works on the step.
  if (before != 2 || !TryHold()) return;
  if (IsStuck()) {
    AbortHeld(InvalidArgument(
        "the control flow of the graph is wrong: " +
        std::to_string(remaining_.load(std::memory_order_relaxed)) +
        " nodes wait for others that never run; the parts of a loop must agree on when it ends"));
  }
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

// Whether the step is open, and no more can come to it. REQUIRES: nobody else has a hold.
bool Step::IsStuck() const {
  if (!started_ || outcome_.complete() || aborted() || holds_.load(std::memory_order_acquire) > 2)
    return false;
  const std::vector<EdgeInfo>& edges = plan_->data().recv_edges;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!edges[i].in_loop && state_->delivered[i].load(std::memory_order_acquire) == 0)
      return false;
  }
  return !state_->flow->arrivals.any_wait();
}

void Step::Complete() {
  if (outcome_.Settle(StepOutcome::kComplete)) {
    if (issued_) std::exchange(issued_, nullptr)();
    holds_.fetch_sub(1, std::memory_order_acq_rel);  // never the last: the caller has one
  }
}

void Step::AbortHeld(const Status& status) {
  {
    MutexLock lock(status_mutex_);
    const bool first = outcome_.Settle(StepOutcome::kAborted);
    if (outcome_.complete()) return;
    // A kernel that gives up because of an abort does not know its cause.
    const bool gave_up = !first && status.code() == Code::kCancelled;
    status_.Update(gave_up ? status.AsDerived() : status);
    if (!first) return;
    if (TimeIsUp(status)) unfinished_ = std::make_unique<Unfinished>();
  }
  for (auto& frame : state_->frames) frame->cancel.Cancel();
  if (state_->flow != nullptr) {
    state_->flow->ForEachAsync([](int32_t, AsyncFrame& frame) { frame.cancel.Cancel(); });
  }
  holds_.fetch_sub(1, std::memory_order_acq_rel);
}

// A trailing kernel failed: the step does, even if all else has finished.
void Step::TrailingFailed(const Status& status) {
  AbortHeld(status);
  MutexLock lock(status_mutex_);
  if (outcome_.complete()) status_.Update(status);
}

void Step::EndedLate(int32_t node, const Status& why) {
  const PlanData& plan = plan_->data();
  const auto id = static_cast<size_t>(node);
  MutexLock lock(status_mutex_);
  if (unfinished_ != nullptr) unfinished_->Began(plan.names[id], plan.ops[id], why);
}

std::string Step::unfinished() const {
  MutexLock lock(status_mutex_);
  return unfinished_ == nullptr ? std::string() : unfinished_->ToString();
}

void Step::Finish() {
  // Relaxed, here and below: the last Release, which called this, has acquired what others wrote.
  const bool complete = outcome_.complete();
  Status status;
  {
    MutexLock lock(status_mutex_);
    status = status_;
    if (unfinished_ != nullptr) {
      for (const EdgeInfo* edge : Awaited()) unfinished_->Awaits(edge->name, edge->send_device);
    }
  }
  Clear(plan_->data(), *state_, complete);
  plan_->data().ReturnState(std::move(state_));
  const std::shared_ptr<Step> self = std::move(self_);
  const Done done = std::move(done_);
  if (done) done(status);
}

void Step::OnIssued(std::function<void()> issued) {
  if (plan_->data().trails) issued_ = std::move(issued);
}

void Step::Start(bool inline_all) {
  const bool open = TryHold();
  // Default order: once per step; and who sees it started sees the hold, too (IsStuck).
  MG_CHECK(!started_.exchange(true));
  if (!open) return;
  self_ = shared_from_this();
  const PlanData& plan = plan_->data();
  if (plan.num_nodes == 0) Complete();
  if (inline_all) plan.pools->EnterCaller();
  if (!aborted() && plan.flow != nullptr) {
    FlowLoop loop(*this, inline_all);
    loop.PushRoots();
    loop.Run();
  } else if (!aborted() && plan.num_nodes > 0) {
    StepLoop loop(*this, inline_all);
    loop.PushRoots();
    loop.Run();
  }
  if (inline_all) plan.pools->LeaveCaller();
  Release();
}

// What has not come; of edges in loops those that a _Recv waits for.
std::vector<const EdgeInfo*> Step::Awaited() const {
  std::vector<const EdgeInfo*> awaited;
  const std::vector<EdgeInfo>& edges = plan_->data().recv_edges;
  for (size_t i = 0; i < edges.size(); ++i) {
    // Relaxed: what is seen may be a moment old.
    if (!edges[i].in_loop && state_->delivered[i].load(std::memory_order_relaxed) == 0)
      awaited.push_back(&edges[i]);
  }
  if (state_->flow == nullptr) return awaited;
  for (const uint32_t i : state_->flow->arrivals.awaited()) awaited.push_back(&edges[i]);
  return awaited;
}

void Step::Deliver(int32_t edge_id, Tensor tensor, uint64_t iteration) {
  const PlanData& plan = plan_->data();
  const int32_t index = plan.RecvIndex(edge_id);
  if (index < 0 || !TryHold()) {
    plan.dropped.fetch_add(1, std::memory_order_relaxed);  // a counter
    return;
  }
  DeliverHeld(static_cast<size_t>(index), std::move(tensor), iteration);
  Release();
}

void Step::DeliverHeld(size_t index, Tensor tensor, uint64_t iteration) {
  const PlanData& plan = plan_->data();
  const EdgeInfo& edge = plan.recv_edges[index];
  // Relaxed: it decides only which delivery counts; the tensor is published further down.
  if (aborted() ||
      (!edge.in_loop && state_->delivered[index].exchange(1, std::memory_order_relaxed) != 0)) {
    plan.dropped.fetch_add(1, std::memory_order_relaxed);  // a counter
    return;
  }
  const int32_t node = plan.recv_nodes[index];
  if (edge.in_loop != (iteration != 0)) {
    const Status wrong =
        InvalidArgument("tensor '" + edge.name + "' arrived " +
                        (edge.in_loop ? "without an iteration, which it has in a loop"
                                      : "for an iteration of a "
                                        "loop, which it is not in"));
    return AbortHeld(wrong.WithContext(plan.Describe(node)));
  }
  if (trace_ != nullptr && iteration <= 1) {  // of a loop the first one
    const int64_t now = TraceClockNs();
    const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.bytes() : 0);
    trace_->records_[static_cast<size_t>(node)] = {now, now, bytes, TraceThread()};
  }
  const bool dead = IsDead(tensor);
  const bool fits =
      dead ? edge.may_be_dead
           : edge.control || (tensor.dtype() == edge.dtype && edge.shape.Accepts(tensor.shape()));
  if (!fits) {
    const Status wrong = InvalidArgument(
        "tensor '" + edge.name + "' arrived " +
        (dead ? "dead"
              : "as " + std::string(DTypeName(tensor.dtype())) + tensor.shape().ToString()) +
        ", expected is " + std::string(DTypeName(edge.dtype)) + edge.shape.ToString());
    return AbortHeld(wrong.WithContext(plan.Describe(node)));
  }
  if (edge.in_loop) return DeliverInLoop(index, std::move(tensor), iteration);
  state_->received[index] = std::move(tensor);
  if (plan.flow != nullptr)
    return FlowLoop::Continue(*this, [node](FlowLoop& loop) { loop.ArriveRecv(node); });
  if (state_->CountDown(node))
    StepLoop::Continue(*this, [node](StepLoop& loop) { loop.Push(node); });
}

void Step::DeliverInLoop(size_t index, Tensor tensor, uint64_t iteration) {
  using Brought = LoopArrivals::Brought;
  const PlanData& plan = plan_->data();
  const int32_t node = plan.recv_nodes[index];
  Iteration* to = nullptr;
  switch (state_->flow->arrivals.Bring(static_cast<uint32_t>(index), iteration, std::move(tensor),
                                       &to)) {
    case Brought::kKept:
      return;
    case Brought::kAwaited:
      return FlowLoop::Continue(*this, [=](FlowLoop& loop) { loop.ResumeRecv(to, node); });
    case Brought::kTwice:
      plan.dropped.fetch_add(1, std::memory_order_relaxed);  // a counter
      return;
    case Brought::kNoMemory:
      return AbortHeld(ResourceExhausted("no memory for the tensors that came before the loop does")
                           .WithContext(plan.Describe(node)));
  }
}

void Step::AsyncDone(int32_t node, const Status& status) {
  const PlanNode& plan_node = plan_->data().nodes[static_cast<size_t>(node)];
  if (AsyncEnded(node, *state_->frames[plan_node.aux], true, status) &&
      plan_node.kind != NodeKind::kTrailing)
    StepLoop::Continue(*this, [node](StepLoop& loop) { loop.CompleteAsync(node); });
  Release();
}

bool Step::AsyncEnded(int32_t node, AsyncFrame& frame, bool traced, const Status& ended) {
  const PlanData& plan = plan_->data();
  const PlanNode& plan_node = plan.nodes[static_cast<size_t>(node)];
  const Status status = plan_node.strings ? frame.strings.Settle(ended, frame.outputs) : ended;
  frame.cancel.Reset();
  if (trace_ != nullptr && traced) {
    trace_->records_[static_cast<size_t>(node)] = {frame.start_ns, TraceClockNs(), 0,
                                                   TraceThread()};
  }
  if (aborted()) EndedLate(node, status);
  if (status.ok()) return !aborted();
  const bool named = plan_node.kernel->AsAsync()->names_node();
  const Status failure = named ? status : status.WithContext(plan.Describe(node));
  if (plan_node.kind == NodeKind::kTrailing) {
    TrailingFailed(failure);
  } else {
    AbortHeld(failure);
  }
  return false;
}

void Step::Abort(const Status& status) {
  if (!TryHold()) return;
  AbortHeld(status);
  Release();
}

}  // namespace monograph
