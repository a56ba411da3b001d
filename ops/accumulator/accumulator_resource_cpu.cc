// Gradients with ranks are kept apart until enough are there and are then sorted by rank, so that
// the sum's bits do not depend on who came first. Dense gradients without ranks are added as they
// come, which needs the memory of one. TakeIfReady finds the Take that can be served; its
// completion, which adds up gradients with ranks, runs after the lock is released.
#include "ops/accumulator/accumulator_resource_cpu.h"

#include <algorithm>
#include <utility>

#include "ops/cpu/slices_cpu.h"

namespace monograph::ops::accumulator {
namespace {

constexpr int64_t kBlock = 16384;

template <typename T>
void SumTyped(KernelContext* c, const std::vector<const T*>& from, int64_t divide_by, int64_t n,
              T* to) {
  const auto body = [&](int64_t first, int64_t end) {
    const int64_t last = std::min(n, end * kBlock);
    for (int64_t begin = first * kBlock; begin < last; begin += kBlock) {
      const int64_t stop = std::min(last, begin + kBlock);
      const T* sum = from[0];
      for (size_t k = 1; k < from.size(); ++k) {
        const T* term = from[k];
        for (int64_t i = begin; i < stop; ++i) to[i] = T(sum[i] + term[i]);
        sum = to;
      }
      if (divide_by > 1) {
        const T divisor = T(static_cast<float>(divide_by));
        for (int64_t i = begin; i < stop; ++i) to[i] = T(sum[i] / divisor);
      } else if (sum != to) {
        std::copy(sum + begin, sum + stop, to + begin);
      }
    }
  };
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  if (c == nullptr) return body(0, blocks);
  c->ParallelFor(blocks, 4000 * static_cast<int64_t>(from.size()), body);
}

// run(T()) for the type T of the elements.
template <typename Run>
Status WithType(DType dtype, const Run& run) {
  switch (dtype) {
    case DT_FLOAT:
      return run(float());
    case DT_DOUBLE:
      return run(double());
    case DT_HALF:
      return run(half());
    case DT_BFLOAT16:
      return run(bfloat16());
    case DT_INT32:
      return run(int32_t());
    case DT_INT64:
      return run(int64_t());
    default:
      return Unimplemented("no sums of " + std::string(DTypeName(dtype)));
  }
}

// With `c` nullptr the sum is made on this thread alone.
Status Sum(KernelContext* c, const std::vector<Tensor>& gradients, int64_t divide_by, Tensor* to) {
  return WithType(to->dtype(), [&]<typename T>(T) {
    std::vector<const T*> from;
    for (const Tensor& gradient : gradients) from.push_back(gradient.data<T>());
    SumTyped<T>(c, from, divide_by, to->elements(), to->data<T>());
    return Status();
  });
}

// A row of a sum of two gradients: row a of the one, row b of the other, or both; -1: none.
struct RowPair {
  int64_t a, b;
};

// Both lists of indices are gone through side by side, as if they ascended; where they do not, an
// index may stay there twice. That is TensorFlow's sum, which relies on the order.
std::vector<RowPair> PairRows(const Tensor& a_indices, const Tensor& b_indices) {
  const int64_t a_rows = a_indices.elements(), b_rows = b_indices.elements();
  const auto *a = a_indices.data<int64_t>(), *b = b_indices.data<int64_t>();
  std::vector<RowPair> pairs;
  pairs.reserve(static_cast<size_t>(a_rows + b_rows));
  int64_t i = 0, j = 0;
  while (i < a_rows || j < b_rows) {
    const bool has_a = j == b_rows || (i < a_rows && a[i] <= b[j]);
    const bool has_b = i == a_rows || (j < b_rows && b[j] <= a[i]);
    pairs.push_back({has_a ? i : -1, has_b ? j : -1});
    if (has_a) ++i;
    if (has_b) ++j;
  }
  return pairs;
}

template <typename T>
void SumRows(const std::vector<RowPair>& pairs, int64_t size, const T* a, const T* b, T* to) {
  for (const RowPair& pair : pairs) {
    const T* only = pair.a < 0 ? b + pair.b * size : a + pair.a * size;
    if (pair.a < 0 || pair.b < 0) {
      std::copy(only, only + size, to);
    } else {
      const T* other = b + pair.b * size;
      for (int64_t k = 0; k < size; ++k) to[k] = T(only[k] + other[k]);
    }
    to += size;
  }
}

}  // namespace

Status DivideRows(KernelContext& c, const Tensor& rows, const Tensor& counts, Tensor* to) {
  const int64_t n = counts.elements(), size = n == 0 ? 0 : rows.elements() / n;
  return WithType(rows.dtype(), [&]<typename T>(T) {
    const T* from = rows.data<T>();
    T* out = to->data<T>();
    const auto* count = counts.data<int64_t>();
    c.ParallelFor(n, 1 + size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T divisor = T(static_cast<float>(count[row]));
        for (int64_t k = row * size; k < (row + 1) * size; ++k) out[k] = T(from[k] / divisor);
      }
    });
    return Status();
  });
}

Status SumInto(KernelContext& c, const std::vector<Tensor>& gradients, int64_t divide_by,
               Tensor* to) {
  return Sum(&c, gradients, divide_by, to);
}

std::string AccumulatorSpec::ToString() const {
  return std::string(sparse() ? "SparseConditionalAccumulator(" : "ConditionalAccumulator(") +
         std::string(DTypeName(dtype)) + shape.ToString() +
         (sparse() ? ", indices " + std::string(DTypeName(indices)) : "") +
         (by_row ? ", by row" : "") + (mean ? ", MEAN)" : ", SUM)");
}

Status AccumulatorResource::Check(const KernelContext& c, const Tensor& gradient,
                                  const Tensor& indices) const {
  const std::string who = "accumulator '" + spec_.name + "': ";
  PartialShape expected = spec_.shape;
  // SyncReplicasOptimizer says of a variable of any shape that it is a scalar.
  if (spec_.by_row && expected.rank() == 0) expected = PartialShape();
  if (spec_.sparse() && expected.known_rank()) expected.set_dim(0, -1);
  if (!expected.Accepts(gradient.shape()) || (spec_.sparse() && gradient.shape().rank() == 0)) {
    return InvalidArgument(who + "Shape mismatch: expected " + expected.ToString() + ", got " +
                           gradient.shape().ToString());
  }
  if (!spec_.sparse()) return Status();
  if (indices.shape().rank() != 1 || indices.shape().dim(0) != gradient.shape().dim(0)) {
    return InvalidArgument(who + "rows of shape " + gradient.shape().ToString() +
                           " with indices of shape " + indices.shape().ToString());
  }
  const int64_t rows = expected.known_rank() ? spec_.shape.dim(0) : -1;
  return rows < 0
             ? Status()
             : CheckRowIndices(c, rows, indices).WithContext("accumulator '" + spec_.name + "'");
}

Status AccumulatorResource::Apply(KernelContext& c, int64_t local_step, int64_t rank,
                                  Tensor gradient, Tensor indices) {
  c.AllowCancel();
  MG_RETURN_IF_ERROR(Check(c, gradient, indices));
  MG_RETURN_IF_ERROR(c.BeginChange());
  Waiter waiter;
  Taken taken;
  {
    MutexLock lock(mutex_);
    if (local_step < step_ || (rank >= 0 && local_step > step_)) return Status();  // stale
    if (!gradients_.empty()) {
      // Rows, of which there may be any number, are put one after the other.
      Shape expected = gradients_[0].sum.shape();
      if (spec_.sparse()) expected.set_dim(0, gradient.shape().dim(0));
      if (!(expected == gradient.shape())) {
        return InvalidArgument("accumulator '" + spec_.name + "': Shape mismatch: expected " +
                               expected.ToString() + ", got " + gradient.shape().ToString());
      }
    }
    if (!gradients_.empty() && (gradients_[0].rank < 0) != (rank < 0)) {
      return InvalidArgument("accumulator '" + spec_.name +
                             "' gets gradients with and without ranks");
    }
    if (rank >= 0) {
      AddRanked(rank, std::move(gradient), std::move(indices));
    } else {
      MG_RETURN_IF_ERROR(spec_.by_row
                             ? AddByRow(std::move(gradient), std::move(indices), c.allocator())
                             : AddUnranked(std::move(gradient), std::move(indices), c.allocator()));
    }
    if (!TakeIfReady(&waiter, &taken)) return Status();
  }
  waiter.done(Status(), std::move(taken));
  return Status();
}

Status AccumulatorResource::AddUnranked(Tensor gradient, Tensor indices, Allocator* allocator) {
  if (gradients_.empty() || spec_.sparse()) {
    gradients_.push_back(
        {.rank = -1, .count = 1, .sum = std::move(gradient), .indices = std::move(indices)});
  } else {
    Gradient& all = gradients_.front();
    Tensor fresh;  // made first: without memory for it the sum stays as it is
    if (!all.sum.unique()) {
      MG_ASSIGN_OR_RETURN(fresh, Tensor::Allocate(spec_.dtype, all.sum.shape(), allocator));
    }
    std::vector<Tensor> terms = {std::move(all.sum), std::move(gradient)};
    all.sum = fresh.valid() ? std::move(fresh) : terms[0];
    MG_RETURN_IF_ERROR(Sum(nullptr, terms, 1, &all.sum));
    ++all.count;
  }
  ++count_;
  return Status();
}

Status AccumulatorResource::AddByRow(Tensor gradient, Tensor indices, Allocator* allocator) {
  const auto counts_of = [allocator](int64_t rows) {
    return Tensor::Allocate(DT_INT64, Shape({rows}), allocator);
  };
  if (gradients_.empty()) {
    MG_ASSIGN_OR_RETURN(Tensor counts, counts_of(indices.elements()));
    std::fill_n(counts.data<int64_t>(), counts.elements(), 1);
    gradients_.push_back({.sum = std::move(gradient),
                          .indices = std::move(indices),
                          .row_counts = std::move(counts)});
    ++count_;
    return Status();
  }
  Gradient& all = gradients_.front();
  const std::vector<RowPair> pairs = PairRows(all.indices, indices);
  const auto rows = static_cast<int64_t>(pairs.size());
  Shape shape = gradient.shape();
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor sum, Tensor::Allocate(spec_.dtype, shape, allocator));
  const int64_t size = rows == 0 ? 0 : sum.elements() / rows;
  MG_ASSIGN_OR_RETURN(Tensor counts, counts_of(rows));
  MG_ASSIGN_OR_RETURN(Tensor places, counts_of(rows));
  const auto *a = all.indices.data<int64_t>(), *b = indices.data<int64_t>(),
             *count = all.row_counts.data<int64_t>();
  for (int64_t i = 0; i < rows; ++i) {
    const RowPair& pair = pairs[static_cast<size_t>(i)];
    places.data<int64_t>()[i] = pair.a < 0 ? b[pair.b] : a[pair.a];
    counts.data<int64_t>()[i] = (pair.a < 0 ? 0 : count[pair.a]) + (pair.b < 0 ? 0 : 1);
  }
  MG_RETURN_IF_ERROR(WithType(spec_.dtype, [&]<typename T>(T) {
    SumRows<T>(pairs, size, std::as_const(all.sum).data<T>(), std::as_const(gradient).data<T>(),
               sum.data<T>());
    return Status();
  }));
  all.sum = std::move(sum);
  all.indices = std::move(places);
  all.row_counts = std::move(counts);
  ++all.count;
  ++count_;
  return Status();
}

void AccumulatorResource::AddRanked(int64_t rank, Tensor gradient, Tensor indices) {
  for (Gradient& known : gradients_) {
    if (known.rank != rank) continue;
    known.sum = std::move(gradient);
    known.indices = std::move(indices);
    return;
  }
  gradients_.push_back(
      {.rank = rank, .count = 1, .sum = std::move(gradient), .indices = std::move(indices)});
  ++count_;
}

bool AccumulatorResource::TakeIfReady(Waiter* waiter, Taken* taken) {
  if (waiters_.empty() || count_ < waiters_.front().num_required) return false;
  *waiter = std::move(waiters_.front());
  waiters_.pop_front();
  if (gradients_.front().rank >= 0) {
    gradients_.resize(static_cast<size_t>(waiter->num_required));
    std::sort(gradients_.begin(), gradients_.end(),
              [](const Gradient& a, const Gradient& b) { return a.rank < b.rank; });
  }
  for (Gradient& gradient : gradients_) {
    taken->count += gradient.count;
    taken->gradients.push_back(std::move(gradient.sum));
    if (spec_.sparse()) taken->indices.push_back(std::move(gradient.indices));
    if (spec_.by_row) taken->row_counts = std::move(gradient.row_counts);
  }
  gradients_.clear();
  count_ = 0;
  ++step_;
  return true;
}

void AccumulatorResource::Take(KernelContext& c, int64_t num_required, TakenFn done) {
  Waiter waiter;
  Taken taken;
  uint64_t id = 0;
  bool ready = false;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    waiters_.push_back({id, num_required, std::move(done)});
    ready = TakeIfReady(&waiter, &taken);
  }
  if (ready) return waiter.done(Status(), std::move(taken));
  // From here on somebody else may complete it; cancelling is then without effect.
  if (!c.OnCancel([self = shared_from_this(), id] { self->Cancel(id); })) Cancel(id);
}

void AccumulatorResource::Cancel(uint64_t id) {
  Waiter waiter;
  int64_t count = 0;
  {
    MutexLock lock(mutex_);
    count = count_;
    const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                    [id](const Waiter& w) { return w.id == id; });
    if (found == waiters_.end()) return;
    waiter = std::move(*found);
    waiters_.erase(found);
  }
  waiter.done(Cancelled("accumulator '" + spec_.name + "' has " + std::to_string(count) + " of " +
                        std::to_string(waiter.num_required) + " gradients")
                  .AsDerived(),
              {});
}

void AccumulatorResource::SetGlobalStep(int64_t step) {
  MutexLock lock(mutex_);
  step_ = step;
}

int64_t AccumulatorResource::num_accumulated() const {
  MutexLock lock(mutex_);
  return count_;
}

std::vector<int64_t> AccumulatorResource::ranks() const {
  std::vector<int64_t> ranks;
  MutexLock lock(mutex_);
  for (const Gradient& gradient : gradients_) {
    if (gradient.rank >= 0) ranks.push_back(gradient.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string AccumulatorResource::DebugString() const {
  MutexLock lock(mutex_);
  return "accumulator " + spec_.name + ": " + spec_.ToString() + " with " + std::to_string(count_) +
         " gradients of step " + std::to_string(step_);
}

int64_t AccumulatorResource::bytes() const {
  MutexLock lock(mutex_);
  size_t total = 0;
  for (const Gradient& gradient : gradients_) {
    total += gradient.sum.bytes();
    if (spec_.sparse()) total += gradient.indices.bytes();
    if (spec_.by_row) total += gradient.row_counts.bytes();
  }
  return static_cast<int64_t>(total);
}

void AccumulatorResource::OnRemoved() {
  std::list<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters)
    waiter.done(Aborted("accumulator '" + spec_.name + "' was removed from its task"), {});
}

}  // namespace monograph::ops::accumulator
