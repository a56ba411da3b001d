// A Loop is one thread's stretch of work on a step: it runs a ready node, moves the outputs into
// the input slots of consumers, counts down what these wait for, and goes on with the most urgent
// one that is ready now. Others wait on the loop's own list, from which every second one goes to
// another thread when one is idle: to queue a cheap node for all would cost more than to run it.
// With one inter-op thread (kSequential) counts are plain integers: the holder of a token runs the
// step, and what comes from other threads goes through an inbox. The last to let go ends the step.
#include "executor/step/step_executor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "executor/plan/plan_data.h"
#include "executor/step/node_runner.h"
#include "executor/step/pool_std_allocator.h"
#include "executor/step/unfinished.h"
#include "executor/thread_pools.h"
#include "executor/worker/step_ids.h"

namespace monograph {
namespace {

// Budget of cheap nodes for a thread that has other duties.
constexpr int64_t kCallerBudgetNs = 50'000;
// Work on a list (by estimate) from which it pays to wake another thread.
constexpr int64_t kShareNs = 5'000;
// Costs are compared by their number of bits. A node of 2 us or more is worth a thread of its own.
// One below 1 us is not worth sharing, however many there are: two threads lose more on the memory
// that both write.
constexpr uint8_t kExpensiveBits = 12;
constexpr uint8_t kShareableBits = 11;
// Steps of a plan in which kernels are measured: the first ones, and some later ones.
constexpr uint64_t kFirstMeasured = 16;
constexpr uint64_t kMeasureEvery = 64;

std::atomic_ref<uint32_t> Pending(StepState& state, int32_t node) {
  return std::atomic_ref<uint32_t>(state.pending[static_cast<size_t>(node)]);
}

}  // namespace

// One thread's stretch of work on one step, with the list of nodes that this thread has made ready
// and not begun.
//
// `compute`: this thread runs every node. Otherwise it has other duties: it runs cheap nodes within
// a budget and hands the rest over. Loops of one thread nest when a sink or a callback leads into
// another step; what is made ready for a step that has a loop further out on the same thread goes
// to that loop's list, so that the stack stays bounded by the number of steps.
class StepExecutor::Loop {
 public:
  Loop(Step& step, bool compute)
      : step_(step),
        plan_(step.plan_->data()),
        state_(*step.state_),
        compute_(compute),
        special_(step.timed_),
        runner_(plan_, state_, StepNumberOf(step.step_id_), step.trace_, compute),
        outer_(innermost_) {
    budget_ = step.caller_runs_cheap_nodes_ ? kCallerBudgetNs : -1;
    slots_ = state_.slots.get();
    next_ = state_.next.get();
    pending_ = state_.pending.get();
    nodes_ = plan_.nodes.get();
    edges_ = plan_.edges.data();
    successors_ = plan_.successors.data();
    innermost_ = this;
  }
  ~Loop() { innermost_ = outer_; }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  static Loop* Find(const Step& step) {
    Loop* loop = innermost_;
    while (loop != nullptr && &loop->step_ != &step) loop = loop->outer_;
    return loop;
  }

  template <bool kSequential>
  void Push(int32_t node) {
    next(node) = head_;
    head_ = node;
    if constexpr (!kSequential) cost_ += ShareCost(node);
  }
  template <bool kSequential>
  void Adopt(int32_t list) {
    head_ = list;
    if constexpr (kSequential) return;
    for (int32_t node = list; node >= 0; node = next(node)) cost_ += ShareCost(node);
  }

  // Makes ready what waits for nothing but the start of the step.
  template <bool kSequential>
  void PushRoots() {
    for (const int32_t node : plan_.recv_nodes) Arrive<kSequential>(node);
    for (const int32_t node : plan_.roots) Push<kSequential>(node);
  }
  // One of the things that `node` waits for is there.
  template <bool kSequential>
  void Arrive(int32_t node) {
    if (Decrement<kSequential>(node)) Push<kSequential>(node);
  }

  // Runs until no node is ready, the step is aborted, or (sequential, and not computing) an
  // expensive node is met: then that one is at the head of the list, and the result is false.
  template <bool kSequential>
  bool Run() {
    int32_t node = Pop<kSequential>();
    int32_t last = -1;
    while (node >= 0) {
      if (step_.aborted()) {
        head_ = -1;
        break;
      }
      if (!compute_) {
        const uint8_t bits = CostBits(node);
        if (bits >= kExpensiveBits || budget_ < 0) {
          if constexpr (kSequential) {
            Push<kSequential>(node);
            Flush<kSequential>();
            return false;
          }
          Defer(node);
          node = Pop<kSequential>();
          continue;
        }
        budget_ -= int64_t{20} + (int64_t{1} << bits);
      }
      last = node;
      const int32_t ready = Execute<kSequential>(node);
      node = ready >= 0 ? ready : Pop<kSequential>();
      if constexpr (!kSequential) {
        if (compute_ && cost_ >= kShareNs && head_ >= 0 && plan_.pools->hungry()) Share();
      }
    }
    if (step_.aborted() && last >= 0) [[unlikely]]
      Aborted(last);
    if constexpr (!kSequential) HandOverDeferred();
    Flush<kSequential>();
    return true;
  }

  // Hands on the outputs of an asynchronous kernel that has finished.
  template <bool kSequential>
  void CompleteAsync(int32_t id) {
    const PlanNode& node = plan_.nodes[static_cast<size_t>(id)];
    StepState::AsyncFrame& frame = *state_.frames[node.aux];
    runner_.ReleaseInputs(node);
    const int32_t ready = Propagate<kSequential>(id, node, frame.outputs.data());
    for (Tensor& output : frame.outputs) output.Reset();
    if (ready >= 0) Push<kSequential>(ready);
  }

  int32_t TakeList() { return std::exchange(head_, -1); }

 private:
  int32_t& next(int32_t node) { return next_[node]; }
  uint8_t CostBits(int32_t node) const {
    return plan_.cost_bits[static_cast<size_t>(node)].load(std::memory_order_relaxed);
  }
  // What a node adds to the worth of sharing the list.
  int64_t ShareCost(int32_t node) const {
    const uint8_t bits = CostBits(node);
    return bits < kShareableBits ? 0 : int64_t{1} << (bits - 1);
  }
  template <bool kSequential>
  int32_t Pop() {
    const int32_t node = head_;
    if (node < 0) {
      cost_ = 0;  // estimates may have changed meanwhile
      return node;
    }
    head_ = next(node);
    if constexpr (!kSequential) cost_ -= ShareCost(node);
    return node;
  }

  template <bool kSequential>
  bool Decrement(int32_t node) {
    if constexpr (kSequential) return --pending_[node] == 0;
    return std::atomic_ref<uint32_t>(pending_[node]).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  // Subtracts the nodes that this thread has finished: once per stretch, before the thread lets go
  // of the step, and not per node, because all threads share the count.
  template <bool kSequential>
  void Flush() {
    const int32_t finished = std::exchange(finished_, 0);
    if (finished == 0) return;
    int32_t before;
    if constexpr (kSequential) {
      // Relaxed, and no read-modify-write: only the holder of the token comes here.
      before = step_.remaining_.load(std::memory_order_relaxed);
      step_.remaining_.store(before - finished, std::memory_order_relaxed);
    } else {
      before = step_.remaining_.fetch_sub(finished, std::memory_order_acq_rel);
    }
    if (before == finished) step_.Complete();
  }

  // The step was aborted; this thread ran `last` just now.
  [[gnu::noinline]] void Aborted(int32_t last) {
    const NodeKind kind = nodes_[last].kind;
    if (kind == NodeKind::kKernel || kind == NodeKind::kSerial) step_.EndedLate(last, Status());
  }

  void Fail(int32_t node, const Status& status) {
    step_.AbortHeld(status.WithContext(plan_.Describe(node)));
  }

  template <bool kSequential>
  [[gnu::noinline]] int32_t Propagate(int32_t id, const PlanNode& node, Tensor* outputs) {
    return PropagateInline<kSequential>(id, node, outputs);
  }

  // Hands outputs to consumers. Returns the most urgent successor that became ready, pushes the
  // others.
  template <bool kSequential>
  [[gnu::always_inline]] inline int32_t PropagateInline(int32_t id, const PlanNode& node,
                                                        Tensor* outputs) {
    const DataEdge* edge = edges_ + node.first_edge;
    for (const DataEdge* end = edge + node.num_edges; edge != end; ++edge) {
      Tensor& output = outputs[edge->output];
      if (output.dtype() != static_cast<DType>(edge->dtype)) [[unlikely]] {
        Fail(id, Internal("the kernel's output " + std::to_string(edge->output) + " is " +
                          (output.valid() ? std::string(DTypeName(output.dtype()))
                                          : std::string("missing")) +
                          ", not " + std::string(DTypeName(static_cast<DType>(edge->dtype)))));
        return -1;
      }
      // The slot is empty, so it is constructed and not assigned: an assignment would first read
      // it, and that memory is seldom in a cache; a store need not wait for it.
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
      if (!successor->alone && !Decrement<kSequential>(target)) continue;
      if (ready >= 0) Push<kSequential>(ready);
      ready = target;
    }
    return ready;
  }

  template <bool kSequential>
  [[gnu::always_inline]] inline int32_t Execute(int32_t id) {
    const PlanNode& node = nodes_[id];
    if (node.kind != NodeKind::kKernel || special_) [[unlikely]]
      return ExecuteOther<kSequential>(id, node);
    {
      const Status status = runner_.Compute(node);
      if (!status.ok()) [[unlikely]]
        return KernelFailed<kSequential>(id, node, status);
    }
    runner_.ReleaseInputs(node);
    const int32_t ready = PropagateInline<kSequential>(id, node, runner_.outputs());
    runner_.ReleaseOutputs(node);
    return ready;
  }

  template <bool kSequential>
  [[gnu::noinline]] int32_t KernelFailed(int32_t id, const PlanNode& node, const Status& status) {
    if (runner_.TakeBusy()) {
      // The kernel would have to wait. The node comes back from the list at once; without a budget
      // it then leaves this thread, as an expensive one does.
      budget_ = -1;
      Push<kSequential>(id);
      return -1;
    }
    Fail(id, status);
    runner_.ReleaseOutputs(node);
    return -1;
  }

  // A synchronous kernel that is measured, traced or serial.
  template <bool kSequential>
  int32_t ExecuteSpecial(int32_t id, const PlanNode& node) {
    const Status status = runner_.ComputeSpecial(id, node, step_.timed_);
    if (!status.ok()) return KernelFailed<kSequential>(id, node, status);
    runner_.ReleaseInputs(node);
    const int32_t ready = Propagate<kSequential>(id, node, runner_.outputs());
    runner_.ReleaseOutputs(node);
    return ready;
  }

  template <bool kSequential>
  [[gnu::noinline]] int32_t ExecuteOther(int32_t id, const PlanNode& node) {
    switch (node.kind) {
      case NodeKind::kRecv: {
        Tensor* received = &state_.received[node.aux];
        const int32_t ready = Propagate<kSequential>(id, node, received);
        received->Reset();
        return ready;
      }
      case NodeKind::kForward: {
        const int32_t ready = Propagate<kSequential>(
            id, node, node.num_inputs > 0 ? &slots_[node.first_input] : nullptr);
        runner_.ReleaseInputs(node);
        return ready;
      }
      case NodeKind::kSend: {
        Tensor tensor;
        if (node.num_inputs > 0) {
          tensor = std::move(slots_[node.first_input]);
          runner_.ReleaseInputs(node);
        }
        if (StepTrace::Record* record = runner_.Record(id)) {
          const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.bytes() : 0);
          const int64_t start = TraceClockNs();
          step_.sink_->OnSend(step_.step_id_, plan_.send_edges[node.aux], std::move(tensor));
          *record = {start, TraceClockNs(), bytes, TraceThread()};
        } else {
          step_.sink_->OnSend(step_.step_id_, plan_.send_edges[node.aux], std::move(tensor));
        }
        return Propagate<kSequential>(id, node, nullptr);
      }
      case NodeKind::kTrailing:
        ++finished_;
        [[fallthrough]];
      case NodeKind::kAsync: {
        step_.Hold();
        runner_.ComputeAsync(
            node, [step = &step_, id](const Status& status) { AsyncDone(*step, id, status); });
        return -1;
      }
      case NodeKind::kKernel:
      case NodeKind::kSerial:
        return ExecuteSpecial<kSequential>(id, node);
    }
    return -1;
  }

  // Gives every second node of the list, beginning with the most urgent one, to another thread.
  void Share() {
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

  void Defer(int32_t node) {
    next(node) = -1;
    if (plan_.pools->hungry()) return Enqueue(node);
    if (deferred_last_ >= 0) {
      next(deferred_last_) = node;
    } else {
      deferred_first_ = node;
    }
    deferred_last_ = node;
  }
  void HandOverDeferred() {
    if (deferred_first_ >= 0 && !step_.aborted()) Enqueue(deferred_first_);
    deferred_first_ = deferred_last_ = -1;
  }
  void Enqueue(int32_t list) {
    step_.Hold();
    plan_.pools->Enqueue(&RunTask, &step_, list);
  }

  static thread_local Loop* innermost_;

  Step& step_;
  const PlanData& plan_;
  StepState& state_;
  const bool compute_;
  const bool special_;  // kernels are measured
  NodeRunner runner_;
  Loop* const outer_;
  int32_t head_ = -1;
  int32_t deferred_first_ = -1, deferred_last_ = -1;  // in the order of deferring
  int32_t finished_ = 0;
  int64_t cost_ = 0;  // of the list, roughly
  int64_t budget_;
  // Copies of pointers in the plan and the state. Read through those, they would be loaded again
  // after every kernel, since the compiler must assume that a kernel changes them.
  Tensor* slots_;
  int32_t* next_;
  uint32_t* pending_;
  const PlanNode* nodes_;
  const DataEdge* edges_;
  const Successor* successors_;
};

thread_local StepExecutor::Loop* StepExecutor::Loop::innermost_ = nullptr;

void StepExecutor::RunTask(void* context, int32_t head) {
  Step& step = *static_cast<Step*>(context);
  {
    Loop loop(step, /*compute=*/true);
    loop.Adopt<false>(head);
    loop.Run<false>();
  }
  step.Release();
}

void StepExecutor::RunSequentialTask(void* context, int32_t head) {
  Step& step = *static_cast<Step*>(context);
  RunSequential(step, head, /*compute=*/true);
  step.Release();
}

// REQUIRES: the caller holds the token (Post). If an expensive node is met and this thread may not
// compute, the token goes with the list to an inter-op thread.
void StepExecutor::RunSequential(Step& step, int32_t head, bool compute) {
  const PlanData& plan = step.plan_->data();
  StepState& state = *step.state_;
  Loop loop(step, compute);
  loop.Adopt<true>(head);
  for (;;) {
    // Sequentially consistent, here and in Post: this store and the reading of the inbox behind it
    // must not change places. Else an item that is posted between the two would be seen by nobody:
    // not in the inbox, and its 2 in the token would be overwritten by this 1.
    step.token_.store(1, std::memory_order_seq_cst);
    // The inbox is last-in-first-out; reverse it, so that items are handled in the order in which
    // they were posted.
    int32_t item = step.inbox_.exchange(-1, std::memory_order_acquire);
    int32_t oldest = -1;
    while (item >= 0) {
      const int32_t following = std::exchange(state.next[static_cast<size_t>(item)], oldest);
      oldest = item;
      item = following;
    }
    while (oldest >= 0) {
      item = oldest;
      oldest = state.next[static_cast<size_t>(item)];
      if (item == plan.num_nodes) {
        loop.PushRoots<true>();
      } else if (plan.nodes[static_cast<size_t>(item)].kind == NodeKind::kRecv) {
        loop.Arrive<true>(item);
      } else {
        loop.CompleteAsync<true>(item);
      }
    }
    if (!loop.Run<true>()) {
      step.Hold();
      plan.pools->Enqueue(&RunSequentialTask, &step, loop.TakeList());
      return;
    }
    int expected = 1;
    if (step.token_.compare_exchange_strong(expected, 0, std::memory_order_seq_cst)) return;
  }
}

void StepExecutor::Post(Step& step, int32_t item, bool compute) {
  int32_t& link = step.state_->next[static_cast<size_t>(item)];
  // Relaxed: only a first guess for the exchange, which releases the item and its link.
  int32_t first = step.inbox_.load(std::memory_order_relaxed);
  do {
    link = first;
  } while (!step.inbox_.compare_exchange_weak(first, item, std::memory_order_release,
                                              std::memory_order_relaxed));
  if (step.token_.exchange(2, std::memory_order_seq_cst) == 0) RunSequential(step, -1, compute);
}

void StepExecutor::AsyncDone(Step& step, int32_t node, const Status& status) {
  const PlanData& plan = step.plan_->data();
  StepState::AsyncFrame& frame = *step.state_->frames[plan.nodes[static_cast<size_t>(node)].aux];
  frame.cancel.Reset();
  if (step.trace_ != nullptr) {
    step.trace_->records_[static_cast<size_t>(node)] = {frame.start_ns, TraceClockNs(), 0,
                                                        TraceThread()};
  }
  if (step.aborted()) step.EndedLate(node, status);
  if (plan.nodes[static_cast<size_t>(node)].kind == NodeKind::kTrailing) {
    if (!status.ok()) step.TrailingDone(status.WithContext(plan.Describe(node)));
  } else if (!status.ok()) {
    const bool named = plan.nodes[static_cast<size_t>(node)].kernel->AsAsync()->names_node();
    step.AbortHeld(named ? status : status.WithContext(plan.Describe(node)));
  } else if (step.aborted()) {
    // Nothing follows any more.
  } else if (plan.sequential) {
    Post(step, node, /*compute=*/false);
  } else if (Loop* outer = Loop::Find(step)) {
    outer->CompleteAsync<false>(node);
  } else {
    Loop loop(step, /*compute=*/false);
    loop.CompleteAsync<false>(node);
    loop.Run<false>();
  }
  step.Release();
}

std::shared_ptr<Step> StepExecutor::Prepare(std::shared_ptr<const Plan> plan, uint64_t step_id,
                                            StepSink* sink, Done done, StepTrace* trace,
                                            bool caller_runs_cheap_nodes) {
  const PlanData& data = plan->data();
  auto step = std::allocate_shared<Step>(PoolStdAllocator<Step>(), Step::Key());
  step->state_ = data.TakeState();
  const auto nodes = static_cast<size_t>(data.num_nodes);
  if (nodes > 0)
    std::memcpy(step->state_->pending.get(), data.pending.data(), nodes * sizeof(uint32_t));
  // Relaxed, here and below: no other thread knows the step yet.
  for (size_t i = 0; i < data.recv_edges.size(); ++i) {
    step->state_->delivered[i].store(0, std::memory_order_relaxed);
  }
  step->step_id_ = step_id;
  step->sink_ = sink;
  step->done_ = std::move(done);
  step->caller_runs_cheap_nodes_ = caller_runs_cheap_nodes;
  step->remaining_.store(data.num_nodes, std::memory_order_relaxed);
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

std::shared_ptr<Step> StepExecutor::Start(std::shared_ptr<const Plan> plan, uint64_t step_id,
                                          StepSink* sink, Done done, StepTrace* trace,
                                          bool caller_runs_cheap_nodes) {
  auto step =
      Prepare(std::move(plan), step_id, sink, std::move(done), trace, caller_runs_cheap_nodes);
  step->Start();
  return step;
}

namespace {

// Drops the tensors that an ended step still holds. After a success these are at most tensors that
// nobody consumed.
void Clear(const PlanData& plan, StepState& state, bool complete) {
  for (size_t i = 0; i < plan.recv_edges.size(); ++i) state.received[i].Reset();
  for (auto& frame : state.frames) {
    for (Tensor& output : frame->outputs) output.Reset();
    frame->cancel.Reset();
  }
  if (complete) return;
  for (uint32_t i = 0; i < plan.num_slots; ++i) state.slots[i].Reset();
}

}  // namespace

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
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

void Step::Complete() {
  int expected = kOpen;
  if (outcome_.compare_exchange_strong(expected, kComplete, std::memory_order_acq_rel)) {
    if (issued_) std::exchange(issued_, nullptr)();
    holds_.fetch_sub(1, std::memory_order_acq_rel);  // never the last: the caller has one
  }
}

void Step::AbortHeld(const Status& status) {
  {
    std::lock_guard lock(status_mutex_);
    int expected = kOpen;
    const bool first =
        outcome_.compare_exchange_strong(expected, kAborted, std::memory_order_acq_rel);
    if (expected == kComplete) return;
    status_.Update(status);
    if (!first) return;
    if (TimeIsUp(status)) unfinished_ = std::make_unique<Unfinished>();
  }
  for (auto& frame : state_->frames) frame->cancel.Cancel();
  holds_.fetch_sub(1, std::memory_order_acq_rel);
}

// A trailing kernel failed: the step does, even if all else has finished.
void Step::TrailingDone(const Status& status) {
  AbortHeld(status);
  std::lock_guard lock(status_mutex_);
  status_.Update(status);
}

void Step::EndedLate(int32_t node, const Status& why) {
  const PlanData& plan = plan_->data();
  const auto id = static_cast<size_t>(node);
  std::lock_guard lock(status_mutex_);
  if (unfinished_ != nullptr) unfinished_->Began(plan.names[id], plan.ops[id], why);
}

std::string Step::unfinished() const {
  return unfinished_ == nullptr ? std::string() : unfinished_->ToString();
}

void Step::Finish() {
  // Relaxed, here and below: the last Release, which called this, has acquired what others wrote.
  const bool complete = outcome_.load(std::memory_order_relaxed) == kComplete;
  if (unfinished_ != nullptr) {
    const std::vector<EdgeInfo>& edges = plan_->data().recv_edges;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (state_->delivered[i].load(std::memory_order_relaxed) == 0)
        unfinished_->Awaits(edges[i].name, edges[i].send_device);
    }
  }
  Clear(plan_->data(), *state_, complete);
  plan_->data().ReturnState(std::move(state_));
  const std::shared_ptr<Step> self = std::move(self_);
  const Done done = std::move(done_);
  Status status;
  {
    std::lock_guard lock(status_mutex_);
    status = status_;
  }
  if (done) done(status);
}

void Step::OnIssued(std::function<void()> issued) {
  if (plan_->data().trails) issued_ = std::move(issued);
}

void Step::Start(bool inline_all) {
  MG_CHECK(!started_.exchange(true));  // default order: once per step
  if (!TryHold()) return;
  self_ = shared_from_this();
  const PlanData& plan = plan_->data();
  if (plan.num_nodes == 0) Complete();
  if (inline_all) plan.pools->EnterCaller();
  if (aborted() || plan.num_nodes == 0) {
    // Nothing to run.
  } else if (plan.sequential) {
    StepExecutor::Post(*this, plan.num_nodes, inline_all);
  } else {
    StepExecutor::Loop loop(*this, inline_all);
    loop.PushRoots<false>();
    loop.Run<false>();
  }
  if (inline_all) plan.pools->LeaveCaller();
  Release();
}

void Step::Deliver(int32_t edge_id, Tensor tensor) {
  const PlanData& plan = plan_->data();
  const int64_t offset = static_cast<int64_t>(edge_id) - plan.first_recv_id;
  const bool known = offset >= 0 && offset < static_cast<int64_t>(plan.recv_of_id.size());
  const int32_t index = known ? plan.recv_of_id[static_cast<size_t>(offset)] : -1;
  if (index < 0 || !TryHold()) {
    plan.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto i = static_cast<size_t>(index);
  // Relaxed: it decides only which delivery counts; the tensor is published further down.
  if (aborted() || state_->delivered[i].exchange(1, std::memory_order_relaxed) != 0) {
    plan.dropped.fetch_add(1, std::memory_order_relaxed);
    return Release();
  }
  const EdgeInfo& edge = plan.recv_edges[i];
  const int32_t node = plan.recv_nodes[i];
  if (trace_ != nullptr) {
    const int64_t now = TraceClockNs();
    const auto bytes = static_cast<int64_t>(tensor.valid() ? tensor.bytes() : 0);
    trace_->records_[static_cast<size_t>(node)] = {now, now, bytes, TraceThread()};
  }
  if (!edge.control && (tensor.dtype() != edge.dtype || !edge.shape.Accepts(tensor.shape()))) {
    AbortHeld(InvalidArgument("tensor '" + edge.name + "' arrived as " +
                              std::string(DTypeName(tensor.dtype())) + tensor.shape().ToString() +
                              ", expected is " + std::string(DTypeName(edge.dtype)) +
                              edge.shape.ToString())
                  .WithContext(plan.Describe(node)));
    return Release();
  }
  state_->received[i] = std::move(tensor);
  if (plan.sequential) {
    StepExecutor::Post(*this, node, /*compute=*/false);
  } else if (Pending(*state_, node).fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (StepExecutor::Loop* outer = StepExecutor::Loop::Find(*this)) {
      outer->Push<false>(node);
    } else {
      StepExecutor::Loop loop(*this, /*compute=*/false);
      loop.Push<false>(node);
      loop.Run<false>();
    }
  }
  Release();
}

void Step::Abort(const Status& status) {
  if (!TryHold()) return;
  AbortHeld(status);
  Release();
}

}  // namespace monograph
