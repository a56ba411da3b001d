// StepExecutor: runs a plan once per step. Step: one such run.
//
//   auto step = StepExecutor::Prepare(plan, step_id, &sink, done, /*trace=*/nullptr);
//   step->Deliver(edge, tensor);   // any time from now on, any thread
//   step->Start();
//
// A node runs when all that it waits for has finished. The thread that finishes a node goes on with
// its most urgent ready successor. Others wait on that thread's own list, from which half goes to
// an inter-op thread whenever one is free and there is enough to do. With inter_op == 1 a step that
// is started with `inline_all` and gets nothing from elsewhere runs on the calling thread alone, in
// an order that depends only on the plan. Several steps of one plan may run at once. A steady step
// allocates nothing from the heap.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/done.h"
#include "base/mutex.h"
#include "base/tensor.h"
#include "executor/plan/plan.h"
#include "executor/step/outcome.h"
#include "executor/trace.h"

namespace monograph {

struct AsyncFrame;
struct StepState;
class FlowLoop;
class StepLoop;
class Unfinished;
template <typename Loop, typename Item, Item kNone>
class ReadyLoop;

// Takes what leaves a step.
class StepSink {
 public:
  virtual ~StepSink() = default;
  // Called on the thread that computed the tensor, as soon as it exists; must not block. A control
  // edge brings an invalid tensor. `iteration`: which of its loop's the tensor belongs to, for
  // Step::Deliver; 0 outside of loops. May call Deliver of any step, this one too.
  virtual void OnSend(uint64_t step_id, const EdgeInfo& edge, Tensor tensor,
                      uint64_t iteration) = 0;
};

class Step : public std::enable_shared_from_this<Step> {
 public:
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  uint64_t step_id() const { return step_id_; }

  // `issued` runs when nothing of the step is left but the ends of trailing kernels
  // (AsyncKernel::trails): what it gave to devices with an order of their own is all there, and a
  // step that begins now comes behind it. Before `done`, at most once; not if the step is aborted
  // before, nor if its plan has no such kernel. On the thread that ended the last other node, with
  // no lock held; may start other steps. REQUIRES: before Start.
  void OnIssued(std::function<void()> issued);

  // Starts the step, once. The calling thread runs cheap nodes that are ready, for some tens of
  // microseconds at most, and leaves the others to the inter-op threads; with `inline_all` it
  // computes like one of those until it finds nothing ready. The step keeps itself alive until it
  // is done. `done` may run inside this call.
  void Start(bool inline_all = false);

  // The tensor of an edge of plan->recv_edges() (an invalid one for a control edge). Any thread,
  // before or after Start; runs cheap nodes that it makes ready, as Start does. Each edge once, or
  // in a loop once for each iteration, which its sender's OnSend named; what comes again, comes
  // late or is unknown is counted and dropped. A tensor of another type or
  // shape than the edge's fails the step. Memory that somebody else reads must be held by that
  // somebody too: a tensor that only the step holds may be overwritten in place.
  void Deliver(int32_t edge_id, Tensor tensor, uint64_t iteration = 0);

  // Ends the step: no further kernel starts, asynchronous ones are cancelled, and `done` gets the
  // first failure that is not derived, on the thread that ends the last kernel (this one if none
  // runs). Any thread; nothing happens if the step is over.
  void Abort(const Status& status);

  // Of a step that was aborted because its time was up (executor/step/unfinished.h): what it had
  // begun, or else what it waited for; "" of others. REQUIRES: `done` runs or has run.
  std::string unfinished() const;

  // How far a running step has come (executor/step/step_progress.cc); of one that is over nothing
  // is left. Any thread.
  struct Progress {
    int32_t left = 0;                       // nodes that have not finished
    int64_t brought = 0;                    // tensors that have come for iterations of loops
    std::vector<const EdgeInfo*> awaited;   // of the plan: what has not come
    std::vector<std::string> computing;     // nodes of synchronous kernels that run
    std::vector<std::string> waiting;       // of asynchronous ones that have begun and not ended
    std::shared_ptr<const Plan> plan = {};  // whose edges these are
  };
  Progress progress(bool with_nodes = false);

 private:
  friend class StepExecutor;
  friend class FlowLoop;
  friend class StepLoop;
  template <typename Loop, typename Item, Item kNone>
  friend class ReadyLoop;

  struct Key {};  // only StepExecutor makes steps

 public:
  explicit Step(Key);

 private:
  // Relaxed: the caller has a hold already, so that the step stays.
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  bool TryHold();  // false: the step is over
  void Release();  // the last one finishes the step
  void ReleaseOfFlow();
  bool IsStuck() const;
  std::vector<const EdgeInfo*> Awaited() const;
  void Finish();
  // The caller has a hold.
  void Complete();
  void AbortHeld(const Status& status);
  // Of the plan's recv edges.
  void DeliverHeld(size_t index, Tensor tensor, uint64_t iteration);
  void DeliverInLoop(size_t index, Tensor tensor, uint64_t iteration);
  // The asynchronous kernel of `node` has ended. Gives up the hold that it had.
  void AsyncDone(int32_t node, const Status& status);
  // What its end means for the step; true if its outputs are to be handed on.
  bool AsyncEnded(int32_t node, AsyncFrame& frame, bool traced, const Status& ended);
  void TrailingFailed(const Status& status);
  // Notes that `node`, which was running when the step was aborted, has ended with `why`.
  void EndedLate(int32_t node, const Status& why);
  bool aborted() const { return outcome_.aborted(); }

  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<StepState> state_;
  uint64_t step_id_ = 0;
  StepSink* sink_ = nullptr;
  StepTrace* trace_ = nullptr;
  bool timed_ = false;
  Done done_;
  std::function<void()> issued_;
  std::shared_ptr<Step> self_;  // while it runs
  std::atomic<bool> started_{false};
  StepOutcome outcome_;
  // One while the outcome is open, and one each for a thread at work, a queued list of nodes, an
  // asynchronous kernel.
  std::atomic<int> holds_{1};
  std::atomic<int32_t> remaining_{0};  // nodes that have not finished; trailing ones: not begun
  mutable Mutex status_mutex_;
  Status status_ MG_GUARDED_BY(status_mutex_);
  // Of a step whose time is up.
  std::unique_ptr<Unfinished> unfinished_ MG_GUARDED_BY(status_mutex_);
};

class StepExecutor {
 public:
  // Lends memory for a step of `plan`. `sink` (may be null if the plan has no send edges) and
  // `trace` (may be null) live until done. `done` runs exactly once, when every node has finished
  // or, after a failure, when no kernel of the step runs any more; never if the step is dropped
  // without Start and Abort. It runs with no lock held and may start other steps.
  static std::shared_ptr<Step> Prepare(std::shared_ptr<const Plan> plan, uint64_t step_id,
                                       StepSink* sink, Done done, StepTrace* trace = nullptr);
};

}  // namespace monograph
