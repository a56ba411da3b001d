// AccumulatorResource: the gradients that have come for one variable, and who waits for them.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"

namespace monograph::ops::accumulator {

struct AccumulatorSpec {
  static constexpr const char* kNoun = "accumulator";
  std::string name;
  DType dtype = DT_INVALID;
  PartialShape shape;  // of the variable
  bool mean = true;
  DType indices = DT_INVALID;  // of gradients of rows; DT_INVALID: gradients are whole
  // Rows of one index are added up as they come, and each has a mean of its own. Indices are int64.
  bool by_row = false;

  bool sparse() const { return indices != DT_INVALID; }

  // "ConditionalAccumulator(float[784,10], MEAN)"
  std::string ToString() const;
};

class AccumulatorResource : public Resource,
                            public std::enable_shared_from_this<AccumulatorResource> {
 public:
  using Spec = AccumulatorSpec;
  // What was taken: the sum of `gradients`, in this order, stands for `count` gradients. If they
  // are rows, these one after the other, with their indices. By row there is one gradient, and for
  // each of its rows the number of those that were added up to it (int64).
  struct Taken {
    std::vector<Tensor> gradients, indices;
    int64_t count = 0;
    Tensor row_counts;
  };
  using TakenFn = std::function<void(const Status&, Taken)>;

  explicit AccumulatorResource(AccumulatorSpec spec) : spec_(std::move(spec)) {}

  const AccumulatorSpec& spec() const { return spec_; }

  // `rank` -1: none. `indices`: of rows, else empty. May call completions of others before it
  // returns. An aborted step's gradient is added whole or not at all.
  Status Apply(KernelContext& c, int64_t local_step, int64_t rank, Tensor gradient, Tensor indices);
  // `done` runs once, on the thread that brings the last gradient or ends the step.
  void Take(KernelContext& c, int64_t num_required, TakenFn done);
  void SetGlobalStep(int64_t step);
  int64_t num_accumulated() const;
  std::vector<int64_t> ranks() const;

  std::string DebugString() const override;
  int64_t bytes() const override;
  void OnRemoved() override;  // whoever waits gets Aborted

 private:
  struct Gradient {
    int64_t rank = -1, count = 1;
    Tensor sum, indices;
    Tensor row_counts;  // by row only
  };
  struct Waiter {
    uint64_t id = 0;
    int64_t num_required = 0;
    TakenFn done;
  };

  // Whether the gradient fits the variable.
  Status Check(const KernelContext& c, const Tensor& gradient, const Tensor& indices) const;
  Status AddUnranked(Tensor gradient, Tensor indices, Allocator* allocator) MG_REQUIRES(mutex_);
  Status AddByRow(Tensor gradient, Tensor indices, Allocator* allocator) MG_REQUIRES(mutex_);
  void AddRanked(int64_t rank, Tensor gradient, Tensor indices) MG_REQUIRES(mutex_);
  // The waiter that gets its gradients now, if there is one, and what it gets.
  bool TakeIfReady(Waiter* waiter, Taken* taken) MG_REQUIRES(mutex_);
  void Cancel(uint64_t id);

  const AccumulatorSpec spec_;
  mutable Mutex mutex_;
  int64_t step_ MG_GUARDED_BY(mutex_) = 0;
  std::vector<Gradient> gradients_ MG_GUARDED_BY(mutex_);  // in order of arrival
  int64_t count_ MG_GUARDED_BY(mutex_) = 0;
  std::list<Waiter> waiters_ MG_GUARDED_BY(mutex_);
  uint64_t last_id_ MG_GUARDED_BY(mutex_) = 0;
};

// to = (g0 + g1) + g2 ..., with AddN's bits; divided by `divide_by` if that is more than 1.
Status SumInto(KernelContext& c, const std::vector<Tensor>& gradients, int64_t divide_by,
               Tensor* to);
// Each row of `to` is that of `rows`, divided by its number in `counts` (int64). They may share
// memory.
Status DivideRows(KernelContext& c, const Tensor& rows, const Tensor& counts, Tensor* to);

}  // namespace monograph::ops::accumulator
