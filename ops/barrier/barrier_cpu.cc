// Barriers: elements whose components come one by one, by key. An element that lacks some waits in
// a map by its key; once it has all, it goes into a queue by priority, from which it is taken with
// its index and its key. The index says in which insertion its key was new: the first one has the
// smallest int64.
//
// An insertion adds key by key, as TensorFlow's does: an error leaves in what stands before it. So
// does an aborted step, but for elements that it has completed and not yet put into the queue. The
// map is never locked while the queue runs completions of those who
// wait there; `entering_` counts the elements on the way between the two, so that a barrier that
// was closed closes its queue behind the last of them.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/queue/queue_resource_cpu.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::barrier {
namespace {

using queue::QueueResource;
using variable::FindResource;
using Tuple = QueueResource::Tuple;

// Of the queue: its components are the index, the key and those of the barrier.
struct BarrierSpec : queue::QueueSpec {
  static constexpr const char* kNoun = "barrier";
};
constexpr size_t kBefore = 2;  // components of the queue before those of the barrier

// What a key costs, in units of Looks, beside the bytes of its text.
constexpr int64_t kPerKey = 200;

class Barrier : public Resource {
 public:
  using Spec = BarrierSpec;
  explicit Barrier(BarrierSpec spec)
      : spec_(std::move(spec)), ready_(std::make_shared<QueueResource>(spec_)) {}

  const BarrierSpec& spec() const { return spec_; }
  size_t components() const { return spec_.types.size() - kBefore; }
  std::string Quoted() const { return "Barrier '" + spec_.name + "'"; }

  // Component `component` of the keys: `values`, one for each, whose type is right.
  Status Insert(KernelContext& c, const Tensor& keys, size_t component,
                std::vector<Tensor> values) {
    const size_t n = values.size();
    MG_ASSIGN_OR_RETURN(Tensor index, Tensor::Allocate(DT_INT64, Shape()));
    MG_RETURN_IF_ERROR(ready_->Admit(n));
    std::vector<Tuple> complete;
    Status status;
    {
      MutexLock lock(mutex_);
      status = InsertAll(c, keys, component, std::move(index), &values, &complete);
      entering_ += complete.size();
    }
    const size_t entering = complete.size();
    ready_->Dismiss(n - entering);
    if (entering > 0) {
      // Is through when the call returns, as the queue has no bound.
      ready_->Enqueue(c, std::move(complete), [&status](const Status& entered) {
        if (status.ok()) status = entered;
      });
    }
    bool was_last = false;
    {
      MutexLock lock(mutex_);
      entering_ -= entering;
      was_last = closed_ && Passed();
    }
    if (was_last) CloseQueue(c);
    return status;
  }

  // Calls `done` with n tuples of the queue; of a closed barrier with fewer, if `allow_small_batch`
  // and there are any.
  void Take(KernelContext& c, int64_t n, bool allow_small_batch, const QueueResource::Taken& done) {
    Status status;
    {
      MutexLock lock(mutex_);
      if (closed_) {
        int64_t there = ready_->size();
        if (allow_small_batch) {
          n = std::min(n, there);
        } else {
          there += static_cast<int64_t>(incomplete_.size() + entering_);
        }
        if (there < std::max<int64_t>(n, 1)) {
          status = OutOfRange(Quoted() + " is closed and has insufficient elements (requested " +
                              std::to_string(n) + ", total size " + std::to_string(there) + ")");
        }
      }
    }
    if (!status.ok() || n == 0) return done(status, {});
    ready_->Dequeue(c, n, allow_small_batch, done);
  }

  Status Close(KernelContext& c, bool cancel_pending_enqueues) {
    Incomplete dropped;  // their memory is given back without the lock
    bool passed = false;
    {
      MutexLock lock(mutex_);
      if (closed_ && (cancelled_ || !cancel_pending_enqueues))
        return Cancelled(Quoted() + " is already closed.");
      closed_ = true;
      if (cancel_pending_enqueues) {
        cancelled_ = true;
        std::swap(dropped, incomplete_);
        used_ = 0;
        MG_RETURN_IF_ERROR(room_.Hold(0, named_));
      }
      passed = cancelled_ || Passed();
    }
    if (passed) CloseQueue(c);
    return Status();
  }

  int64_t ready() const { return ready_->size(); }
  int64_t incomplete() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(incomplete_.size());
  }

  std::string DebugString() const override {
    return "barrier " + spec_.name + ": " + spec_.ToString() + " of " + std::to_string(ready()) +
           " elements, and " + std::to_string(incomplete()) + " incomplete ones";
  }
  int64_t bytes() const override {
    MutexLock lock(mutex_);
    size_t total = used_;
    for (const auto& [key, element] : incomplete_) {
      for (const Tensor& value : element.values) total += value.bytes();
    }
    return static_cast<int64_t>(total) + ready_->bytes();
  }
  void OnRemoved() override {
    {
      MutexLock lock(mutex_);
      closed_ = cancelled_ = true;
    }
    ready_->OnRemoved();
  }

 private:
  struct Element {
    Tensor index;  // which all new keys of an insertion share
    Tuple values;  // empty where there is none yet
    size_t there = 0;
  };
  using Incomplete = std::unordered_map<std::string, Element>;

  // In memory beside the values, which count by themselves.
  size_t SizeOf(const std::string& key) const {
    constexpr size_t kNode = 40;
    return kNode + sizeof(Incomplete::value_type) + key.size() + components() * sizeof(Tensor);
  }

  // A closed barrier whose elements have all gone on.
  bool Passed() const MG_REQUIRES(mutex_) { return incomplete_.empty() && entering_ == 0; }

  void CloseQueue(KernelContext& c) {
    ready_->Close(c, /*cancel_pending_enqueues=*/true, [](const Status&) {});
  }

  Status InsertAll(KernelContext& c, const Tensor& keys, size_t component, Tensor index,
                   std::vector<Tensor>* values, std::vector<Tuple>* complete) MG_REQUIRES(mutex_) {
    if (closed_ && (cancelled_ || (!values->empty() && incomplete_.empty())))
      return Cancelled(Quoted() + " is closed.");
    Looks looks(c);
    size_t bytes = used_;
    for (size_t i = 0; i < values->size(); ++i) {
      const std::string& key = keys.strings()[i];
      if (!looks.GoOn(kPerKey + static_cast<int64_t>(key.size()))) return StepAborted();
      if (!incomplete_.contains(key)) bytes += SizeOf(key);
    }
    MG_RETURN_IF_ERROR(room_.Hold(bytes, named_));
    *index.data<int64_t>() = next_index_;
    bool any_new = false;
    Status status;
    for (size_t i = 0; status.ok() && i < values->size(); ++i) {
      const std::string& key = keys.strings()[i];
      if (!looks.GoOn(kPerKey + static_cast<int64_t>(key.size()))) {
        status = StepAborted();
      } else {
        status = InsertOne(key, component, index, std::move((*values)[i]), complete, &any_new);
      }
    }
    if (status.ok() && any_new) ++next_index_;      // a failed insertion does not count
    MG_RETURN_IF_ERROR(room_.Hold(used_, named_));  // no more than it has
    return status;
  }

  Status InsertOne(const std::string& key, size_t component, const Tensor& index, Tensor value,
                   std::vector<Tuple>* complete, bool* any_new) MG_REQUIRES(mutex_) {
    auto at = incomplete_.find(key);
    if (at == incomplete_.end()) {
      if (closed_) {
        return Cancelled(Quoted() + " is closed, but attempted to insert a brand new key: " + key);
      }
      at = incomplete_.emplace(key, Element{index, Tuple(components()), 0}).first;
      used_ += SizeOf(key);
      *any_new = true;
    }
    Element& element = at->second;
    Tensor& place = element.values[component];
    if (place.valid()) {
      return InvalidArgument("Key " + key + " already has a value for component " +
                             std::to_string(component) + " in barrier " + spec_.name);
    }
    if (element.there + 1 < components()) {
      place = std::move(value);
      ++element.there;
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor name, Tensor::Allocate(DT_STRING, Shape()));
    *name.strings() = key;
    MG_RETURN_IF_ERROR(name.CountStrings(StringBytes(key.size())));
    place = std::move(value);
    Tuple tuple{std::move(element.index), std::move(name)};
    for (Tensor& part : element.values) tuple.push_back(std::move(part));
    used_ -= SizeOf(key);
    incomplete_.erase(at);
    // As in TensorFlow only now, and the key is gone.
    for (size_t i = kBefore; i < tuple.size(); ++i) {
      if (spec_.shapes[i].Accepts(tuple[i].shape())) continue;
      return InvalidArgument(Quoted() + ": Shape mismatch in tuple component " + std::to_string(i) +
                             ". Expected " + spec_.shapes[i].ToString() + ", got " +
                             tuple[i].shape().ToString());
    }
    complete->push_back(std::move(tuple));
    return Status();
  }

  const BarrierSpec spec_;
  const std::string named_ = Quoted();
  const std::shared_ptr<QueueResource> ready_;
  mutable Mutex mutex_;  // before the queue's
  Incomplete incomplete_ MG_GUARDED_BY(mutex_);
  size_t used_ MG_GUARDED_BY(mutex_) = 0;  // bytes of it, for which there is room
  Room room_ MG_GUARDED_BY(mutex_);
  size_t entering_ MG_GUARDED_BY(mutex_) = 0;
  int64_t next_index_ MG_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::min();
  bool closed_ MG_GUARDED_BY(mutex_) = false, cancelled_ MG_GUARDED_BY(mutex_) = false;
};

Result<BarrierSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  if (k.attr<int64_t>("capacity") != -1) return InvalidArgument("Barrier only accepts capacity=-1");
  const auto& types = k.attr<std::vector<DType>>("component_types");
  const auto& shapes = k.attr<std::vector<PartialShape>>("shapes");
  if (shapes.size() != types.size()) {
    return InvalidArgument("All of the component shapes must be specified: there are " +
                           std::to_string(types.size()) + " component types and " +
                           std::to_string(shapes.size()) + " shapes");
  }
  BarrierSpec spec;
  spec.kind = "Barrier";
  spec.name = name;
  spec.priority = true;
  spec.types = {DT_INT64, DT_STRING};
  spec.types.insert(spec.types.end(), types.begin(), types.end());
  spec.shapes.assign(kBefore, PartialShape::Scalar());
  for (const PartialShape& shape : shapes) {
    if (shape.known_rank() && (!shape.fully_known() || shape.rank() >= kMaxRank)) {
      return InvalidArgument("Shape " + shape.ToString() +
                             " is not fully defined, or has too many dimensions");
    }
    // TensorFlow reads a shape of which nothing is known as a scalar's.
    spec.shapes.push_back(shape.known_rank() ? shape : PartialShape::Scalar());
  }
  return spec;
}

class InsertKernel : public AsyncKernel {
 public:
  explicit InsertKernel(const KernelConstruction& k)
      : component_(k.attr<int64_t>("component_index")) {}

  // Asynchronous, as it runs what those do who wait for the elements.
  void ComputeAsync(KernelContext& c, Done done) override {
    c.AllowCancel();
    done(Insert(c));
  }

 private:
  Status Insert(KernelContext& c) const {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Barrier> barrier, FindResource<Barrier>(c));
    const Tensor& keys = c.input(1);
    const Tensor& rows = c.input(2);
    if (component_ < 0 || static_cast<size_t>(component_) >= barrier->components()) {
      return InvalidArgument("The component ID is out of range " + std::to_string(component_) +
                             " > num_components (= " + std::to_string(barrier->components()) + ")");
    }
    const auto component = static_cast<size_t>(component_);
    if (const DType type = barrier->spec().types[kBefore + component]; rows.dtype() != type) {
      return InvalidArgument("component " + std::to_string(component) + " of " + barrier->Quoted() +
                             " is " + std::string(DTypeName(type)) + ", not " +
                             std::string(DTypeName(rows.dtype())));
    }
    if (keys.shape().rank() != 1 || rows.shape().rank() < 1 || rows.shape()[0] != keys.shape()[0]) {
      return InvalidArgument("keys of shape " + keys.shape().ToString() + " and values of shape " +
                             rows.shape().ToString() + ": there must be a row for each key");
    }
    if (keys.elements() > 0 && rows.elements() == 0) {
      return InvalidArgument("Tensors with no elements are not supported " + barrier->spec().name +
                             ": received shape " + rows.shape().ToString());
    }
    // Copies, since the elements of a batch may leave at very different times.
    const Shape shape(rows.shape().dims().subspan(1));
    std::vector<Tensor> values;
    Looks looks(c);
    for (int64_t row = 0; row < keys.elements(); ++row) {
      const Tensor value = rows.Slice(row, row + 1).Reshaped(shape);
      if (!looks.GoOn(kPerKey + static_cast<int64_t>(value.bytes() / 8))) return StepAborted();
      MG_ASSIGN_OR_RETURN(Tensor copy, value.Clone(c.allocator()));
      values.push_back(std::move(copy));
    }
    return barrier->Insert(c, keys, component, std::move(values));
  }

  const int64_t component_;
};

class TakeKernel : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    // It would end a wait that the step's deadline ends, too.
    if (k.attr<int64_t>("timeout_ms") != -1) return InvalidArgument("Timeout not supported yet.");
    return std::unique_ptr<Kernel>(std::make_unique<TakeKernel>(k));
  }
  explicit TakeKernel(const KernelConstruction& k)
      : types_(k.attr<std::vector<DType>>("component_types")),
        allow_small_batch_(k.attr<bool>("allow_small_batch")) {}

  // TensorFlow's kernel does not look at wait_for_incomplete either.
  void ComputeAsync(KernelContext& c, Done done) override {
    c.AllowCancel();
    auto found = FindResource<Barrier>(c);
    if (!found.ok()) return done(found.status());
    const std::shared_ptr<Barrier> barrier = std::move(found).value();
    if (Status status = Check(c, *barrier); !status.ok()) return done(status);
    barrier->Take(c, c.input(1).scalar<int32_t>(), allow_small_batch_,
                  [&c, barrier, done = std::move(done)](const Status& status,
                                                        const std::vector<Tuple>& tuples) {
                    done(status.ok() ? queue::StackTuples(c, barrier->spec(), tuples) : status);
                  });
  }

 private:
  Status Check(const KernelContext& c, const Barrier& barrier) const {
    const std::vector<DType>& types = barrier.spec().types;
    if (!std::equal(types.begin() + kBefore, types.end(), types_.begin(), types_.end())) {
      return InvalidArgument("component_types " + AttrToString(types_) + " are not those of " +
                             barrier.Quoted() + ", " + barrier.spec().ToString());
    }
    if (c.input(1).elements() != 1) return InvalidArgument("num_elements must be a scalar.");
    const int32_t n = c.input(1).scalar<int32_t>();
    if (n >= 0) return Status();
    return InvalidArgument("num_elements " + std::to_string(n) + " must not be negative");
  }

  const std::vector<DType> types_;
  const bool allow_small_batch_;
};

class CloseKernel : public AsyncKernel {
 public:
  explicit CloseKernel(const KernelConstruction& k)
      : cancel_(k.attr<bool>("cancel_pending_enqueues")) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto barrier = FindResource<Barrier>(c);
    done(barrier.ok() ? (*barrier)->Close(c, cancel_) : barrier.status());
  }

 private:
  const bool cancel_;
};

template <int64_t (Barrier::*kSize)() const>
class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Barrier> barrier, FindResource<Barrier>(c));
    c.set_output(0, Tensor::Scalar(static_cast<int32_t>(((*barrier).*kSize)())));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::AddHandleKernel, variable::HandleKernel;
  AddHandleKernel<HandleKernel<Barrier, SpecOf>>(registry, "_Barrier");
  AddHandleKernel<InsertKernel>(registry, "_BarrierInsertMany", KernelCost::kExpensive);
  AddHandleKernel<TakeKernel>(registry, "_BarrierTakeMany", KernelCost::kExpensive);
  AddHandleKernel<CloseKernel>(registry, "_BarrierClose");
  AddHandleKernel<SizeKernel<&Barrier::ready>>(registry, "_BarrierReadySize");
  AddHandleKernel<SizeKernel<&Barrier::incomplete>>(registry, "_BarrierIncompleteSize");
}

}  // namespace monograph::ops::barrier
