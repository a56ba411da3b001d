// ReadyLoop: what StepLoop (executor/step/step_loop.h) and FlowLoop (executor/step/flow_loop.h)
// have in common: the list of nodes that one thread has made ready for a step and not begun, which
// of them it leaves to other threads, and how loops of one thread nest.
//
// Loops of one thread nest when a sink or a callback leads into another step; what is made ready
// for a step that has a loop further out on the same thread goes to that loop's list, so that the
// stack stays bounded by the number of steps. Private to the step folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "executor/plan/plan_data.h"
#include "executor/step/node_runner.h"
#include "executor/step/running_node.h"
#include "executor/step/step_executor.h"
#include "executor/thread_pools.h"
#include "executor/worker/step_ids.h"

namespace monograph {

// `Loop` derives from this. An `Item` names a node that is ready; kNone none. Loop has
//   static int32_t NodeOf(Item), -1 for none,
//   Item& next(Item), the link of lists,
//   void Enqueue(Item list), which gives the list to the inter-op threads, and
//   void Run(), which runs nodes until none of the list is left or the step is aborted.
template <typename Loop, typename Item, Item kNone>
class ReadyLoop {
 public:
  ReadyLoop(const ReadyLoop&) = delete;
  ReadyLoop& operator=(const ReadyLoop&) = delete;

  // Lets add(loop) put nodes on the list of this thread's loop for the step, which runs them later,
  // or else of a loop made here, which has run when this returns.
  template <typename Add>
  static void Continue(Step& step, Add add) {
    Loop* outer = innermost_;
    while (outer != nullptr && &outer->step_ != &step) outer = outer->outer_;
    if (outer != nullptr) return add(*outer);
    Loop loop(step, /*compute=*/false);
    add(loop);
    loop.Run();
  }

 protected:
  // `compute`: this thread runs every node. Otherwise it has other duties: it runs cheap nodes
  // within a budget and leaves the others to the inter-op threads. REQUIRES: the caller has a hold
  // of the step until the loop is destroyed.
  ReadyLoop(Step& step, bool compute)
      : step_(step),
        plan_(step.plan_->data()),
        state_(*step.state_),
        compute_(compute),
        memory_(plan_.memory.get()),
        runner_(plan_, state_, step.step_id_, step.trace_, &step.outcome_, compute),
        outer_(innermost_),
        running_(RunningNode::Mine()),
        outer_step_(running_.step()),
        outer_node_(running_.node()) {
    innermost_ = &self();
    running_.Set(-1);
    running_.SetStep(&step);
  }
  ~ReadyLoop() {
    innermost_ = outer_;
    running_.Set(outer_node_);
    running_.SetStep(outer_step_);
  }

  // Makes the node ready.
  void Push(Item item) {
    self().next(item) = head_;
    head_ = item;
    cost_ += ShareCost(item);
  }
  Item Pop() {
    const Item item = head_;
    if (!IsNode(item)) {
      cost_ = 0;  // estimates may have changed meanwhile
      return item;
    }
    head_ = self().next(item);
    cost_ -= ShareCost(item);
    return item;
  }
  // Runs `head` and what its links lead to.
  void RunList(Item head) {
    head_ = head;
    for (Item item = head; IsNode(item); item = self().next(item)) cost_ += ShareCost(item);
    self().Run();
  }

  // Whether a thread with other duties may run the node itself; takes it off the budget.
  bool MayRunHere(Item item) {
    // Costs are compared by their number of bits. A node of 2 us or more is worth a thread of its
    // own.
    constexpr uint8_t kExpensiveBits = 12;
    const uint8_t bits = CostBits(item);
    if (bits >= kExpensiveBits || budget_ < 0) return false;
    budget_ -= int64_t{20} + (int64_t{1} << bits);
    return true;
  }
  // Leaves the node to an inter-op thread: now if one is idle, else with the others.
  void Defer(Item item) {
    self().next(item) = kNone;
    if (plan_.pools->hungry()) return self().Enqueue(item);
    if (IsNode(deferred_last_)) {
      self().next(deferred_last_) = item;
    } else {
      deferred_first_ = item;
    }
    deferred_last_ = item;
  }
  void HandOverDeferred() {
    if (IsNode(deferred_first_) && !step_.aborted()) self().Enqueue(deferred_first_);
    deferred_first_ = deferred_last_ = kNone;
  }
  bool WorthSharing() const {
    // Work on a list (by estimate) from which it pays to wake another thread.
    constexpr int64_t kShareNs = 5'000;
    return compute_ && cost_ >= kShareNs && IsNode(head_) && plan_.pools->hungry();
  }
  // Gives every second node of the list, beginning with the most urgent one, to another thread.
  void Share() {
    Item kept_first = kNone, given_first = kNone;
    Item* kept = &kept_first;
    Item* given = &given_first;
    int64_t kept_cost = 0;
    bool give = true;
    for (Item item = head_; IsNode(item); item = self().next(item)) {
      if (give) {
        *given = item;
        given = &self().next(item);
      } else {
        *kept = item;
        kept = &self().next(item);
        kept_cost += ShareCost(item);
      }
      give = !give;
    }
    *kept = *given = kNone;
    head_ = kept_first;
    cost_ = kept_cost;
    self().Enqueue(given_first);
  }

  [[gnu::noinline]] void WrongOutput(int32_t id, const DataEdge& edge, const Tensor& output) {
    Fail(id, Internal("the kernel's output " + std::to_string(edge.output) + " is " +
                      (output.valid() ? std::string(DTypeName(output.dtype()))
                                      : std::string("missing")) +
                      ", not " + std::string(DTypeName(static_cast<DType>(edge.dtype)))));
  }
  // Not with a loop's mutex held: what passes values on, under it, cannot fail.
  void Fail(int32_t id, const Status& status) {
    step_.AbortHeld(status.WithContext(plan_.Describe(id)));
  }
  // The step was aborted, perhaps while this thread ran its last node.
  [[gnu::noinline]] void Aborted() {
    const int32_t last = running_.node();
    if (last < 0) return;
    const NodeKind kind = plan_.nodes[static_cast<size_t>(last)].kind;
    if (kind == NodeKind::kKernel || kind == NodeKind::kStrings || kind == NodeKind::kSerial)
      step_.EndedLate(last, Status());
  }

  Step& step_;
  const PlanData& plan_;
  StepState& state_;
  const bool compute_;
  const MemoryHolder::Scope memory_;
  NodeRunner runner_;
  Loop* const outer_;             // of this thread
  RunningNode& running_;          // of this thread
  const Step* const outer_step_;  // what the thread is about otherwise
  const int32_t outer_node_;
  Item head_ = kNone;                                    // of the list
  Item deferred_first_ = kNone, deferred_last_ = kNone;  // in the order of deferring
  int64_t cost_ = 0;                                     // of the list, roughly
  int64_t budget_ = 50'000;  // of nanoseconds, for cheap nodes of a thread with other duties

 private:
  Loop& self() { return static_cast<Loop&>(*this); }
  static bool IsNode(Item item) { return Loop::NodeOf(item) >= 0; }
  // Relaxed: an estimate, which any step may replace at any time.
  uint8_t CostBits(Item item) const {
    return plan_.cost_bits[static_cast<size_t>(Loop::NodeOf(item))].load(std::memory_order_relaxed);
  }
  // What a node adds to the worth of sharing the list. One below 1 us adds nothing, however many
  // there are: two threads lose more on the memory that both write.
  int64_t ShareCost(Item item) const {
    constexpr uint8_t kShareableBits = 11;
    const uint8_t bits = CostBits(item);
    return bits < kShareableBits ? 0 : int64_t{1} << (bits - 1);
  }

  static inline constinit thread_local Loop* innermost_ = nullptr;
};

}  // namespace monograph
