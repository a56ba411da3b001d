// Kernels of queues. They check types and shapes and turn tensors into tuples and back;
// QueueResource keeps the tuples and does the waiting. QueueEnqueueMany cuts its inputs into rows,
// which share the input's memory in a FIFO queue and are copied in a shuffled one. Dequeuing many
// copies the elements into one tensor per component.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernel.h"
#include "ops/cpu/copy_elements_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/moves.h"
#include "ops/queue/queue_resource_cpu.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::queue {
namespace {

using variable::FindResource;
using Tuple = QueueResource::Tuple;

// What a tuple costs, in units of Looks, beside the copy of its elements.
constexpr int64_t kPerTuple = 50;

enum class Order : uint8_t { kFirst, kPadded, kPriority, kShuffled };

template <Order kOrder>
Result<QueueSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  QueueSpec spec;
  spec.kind = std::string(k.op().substr(0, k.op().size() - 2));  // without V2
  spec.name = name;
  spec.types = k.attr<std::vector<DType>>("component_types");
  spec.shapes = k.attr<std::vector<PartialShape>>("shapes");
  spec.capacity = k.attr<int64_t>("capacity");
  if (spec.capacity < 0) spec.capacity = -1;
  if (spec.capacity == 0) return InvalidArgument("a queue of capacity 0 can hold nothing");
  spec.padding = kOrder == Order::kPadded;
  if (spec.padding && spec.shapes.size() != spec.types.size())
    return InvalidArgument("a PaddingFIFOQueue needs a shape for each component");
  if constexpr (kOrder == Order::kPriority) {
    spec.priority = true;
    spec.types.insert(spec.types.begin(), DT_INT64);
    if (!spec.shapes.empty() || spec.types.size() == 1)
      spec.shapes.insert(spec.shapes.begin(), PartialShape::Scalar());
  }
  if constexpr (kOrder == Order::kShuffled) {
    spec.shuffle = true;
    spec.min_after_dequeue = k.attr<int64_t>("min_after_dequeue");
    spec.seed = k.attr<int64_t>("seed");
    spec.seed2 = k.attr<int64_t>("seed2");
    if (spec.min_after_dequeue < 0) {
      return InvalidArgument("min_after_dequeue " + std::to_string(spec.min_after_dequeue) +
                             " must be >= 0");
    }
    if (spec.capacity > 0 && spec.min_after_dequeue >= spec.capacity) {
      return InvalidArgument("min_after_dequeue " + std::to_string(spec.min_after_dequeue) +
                             " must be < capacity " + std::to_string(spec.capacity));
    }
  }
  return spec;
}

Status Where(const QueueResource& queue, const Status& status) {
  return status.WithContext(queue.spec().kind + " '" + queue.spec().name + "'");
}

Status CheckTypes(const QueueResource& queue, const std::vector<DType>& types) {
  const std::vector<DType>& own = queue.spec().types;
  if (types.size() != own.size()) {
    return Where(queue, InvalidArgument("Wrong number of components in tuple. Expected " +
                                        std::to_string(own.size()) + ", got " +
                                        std::to_string(types.size())));
  }
  for (size_t i = 0; i < own.size(); ++i) {
    if (types[i] == own[i]) continue;
    return Where(queue, InvalidArgument("Type mismatch in tuple component " + std::to_string(i) +
                                        ". Expected " + std::string(DTypeName(own[i])) + ", got " +
                                        std::string(DTypeName(types[i]))));
  }
  return Status();
}

// A small view must not keep a large buffer alive.
Result<Tensor> Compact(Tensor tensor, Allocator* allocator) {
  if (!IsPlainData(tensor.dtype()) || tensor.buffer().size() <= 2 * tensor.bytes() + 4096)
    return tensor;
  return tensor.Clone(allocator);
}

class EnqueueKernel : public AsyncKernel {
 public:
  explicit EnqueueKernel(const KernelConstruction& k)
      : types_(k.attr<std::vector<DType>>("Tcomponents")), many_(k.op() == "QueueEnqueueManyV2") {}

  void ComputeAsync(KernelContext& c, Done done) override {
    c.AllowCancel();
    auto queue = FindResource<QueueResource>(c);
    if (!queue.ok()) return done(queue.status());
    if (Status fits = Check(c, **queue); !fits.ok()) return done(fits);
    const auto rows = many_ ? static_cast<size_t>(c.input(1).shape()[0]) : 1;
    // Without rows there is nothing to wait for, even if the queue is full or closed, as in
    // TensorFlow.
    if (rows == 0) return done(Status());
    if (Status admitted = (*queue)->Admit(rows); !admitted.ok()) return done(admitted);
    auto tuples = Tuples(c, (*queue)->spec(), rows);
    if (!tuples.ok()) {
      (*queue)->Dismiss(rows);
      return done(tuples.status());
    }
    (*queue)->Enqueue(c, std::move(tuples).value(), std::move(done));
  }

 private:
  Status Check(const KernelContext& c, const QueueResource& queue) const {
    MG_RETURN_IF_ERROR(CheckTypes(queue, types_));
    for (int i = 0; i < c.num_inputs() - 1; ++i) MG_RETURN_IF_ERROR(CheckShape(c, queue, i));
    // Checked even if the queue has no shapes.
    if (queue.spec().priority && c.input(1).shape().rank() != (many_ ? 1 : 0))
      return Where(queue, InvalidArgument("the priority of an element must be one number"));
    return Status();
  }

  Result<std::vector<Tuple>> Tuples(KernelContext& c, const QueueSpec& spec, size_t count) const {
    const int components = c.num_inputs() - 1;
    std::vector<Tuple> tuples;
    if (!many_) {
      tuples.emplace_back();
      for (int i = 0; i < components; ++i) {
        MG_ASSIGN_OR_RETURN(Tensor tensor, Compact(c.TakeInput(1 + i), c.allocator()));
        tuples[0].push_back(std::move(tensor));
      }
      return tuples;
    }
    tuples.resize(count);
    Looks looks(c);
    for (int i = 0; i < components; ++i) {
      const Tensor rows = c.TakeInput(1 + i);
      const Shape shape(rows.shape().dims().subspan(1));
      for (size_t row = 0; row < tuples.size(); ++row) {
        const auto at = static_cast<int64_t>(row);
        if (!looks.GoOn(kPerTuple)) return StepAborted();
        Tensor element = rows.Slice(at, at + 1).Reshaped(shape);
        // The rows of a batch leave a shuffled queue at very different times: a copy keeps one row
        // from holding the memory of all.
        if (spec.shuffle) {
          if (!looks.GoOn(static_cast<int64_t>(element.bytes() / 8))) return StepAborted();
          MG_ASSIGN_OR_RETURN(element, element.Clone(c.allocator()));
        }
        tuples[row].push_back(std::move(element));
      }
    }
    return tuples;
  }

  Status CheckShape(const KernelContext& c, const QueueResource& queue, int component) const {
    const Shape& shape = c.input(1 + component).shape();
    const auto mismatch = [&](const PartialShape& expected) {
      return Where(queue, InvalidArgument("Shape mismatch in tuple component " +
                                          std::to_string(component) + ". Expected " +
                                          expected.ToString() + ", got " + shape.ToString()));
    };
    PartialShape expected = queue.spec().shapes.empty()
                                ? PartialShape()
                                : queue.spec().shapes[static_cast<size_t>(component)];
    if (many_) {
      const Shape& first = c.input(1).shape();
      if (shape.rank() < 1 || first.rank() < 1) return mismatch(PartialShape{-1});
      if (shape[0] != first[0]) {
        return Where(
            queue, InvalidArgument("All input tensors must have the same size in the 0th "
                                   "dimension. Component " +
                                   std::to_string(component) + " has " + std::to_string(shape[0]) +
                                   ", and should have " + std::to_string(first[0])));
      }
      if (!expected.known_rank()) return Status();
      if (expected.rank() >= kMaxRank) return mismatch(expected);  // no tensor has rows of it
      PartialShape rows{shape[0]};
      for (int64_t dim : expected.dims()) rows.AddDim(dim);
      expected = rows;
    }
    return expected.Accepts(shape) ? Status() : mismatch(expected);
  }

  const std::vector<DType> types_;
  const bool many_;
};

// Elements that differ in shape are filled up with zeros or empty strings.
bool CanFillUp(DType type) { return IsPlainData(type) || type == DT_STRING; }

void CopyInto(const KernelContext& c, const Tensor& element, int64_t row, Tensor* stacked) {
  CopyElements(c, element.dtype(), static_cast<const char*>(element.raw()),
               static_cast<char*>(stacked->raw()) + static_cast<size_t>(row) * element.bytes(),
               element.bytes());
}

// Component `i` of elements that may differ in shape, in a tensor with room for the largest of them
// along each dimension; what is left is zeros, or empty strings.
Status StackPadded(KernelContext& c, const QueueSpec& spec, size_t i,
                   const std::vector<Tuple>& tuples) {
  const PartialShape& declared = spec.shapes[i];
  SmallInts dims;
  dims.push_back(static_cast<int64_t>(tuples.size()));
  Looks looks(c);
  for (int d = 0; d < declared.rank(); ++d) {
    int64_t size = std::max<int64_t>(0, declared.dim(d));
    for (const Tuple& tuple : tuples) {
      if (!looks.GoOn(10)) return StepAborted();
      size = std::max(size, tuple[i].shape()[d]);
    }
    dims.push_back(size);
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(i), shape));
  const auto strides = StridesOf(shape);
  const bool plain = IsPlainData(out->dtype());
  if (plain) MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  for (size_t row = 0; row < tuples.size(); ++row) {
    const Tensor& element = tuples[row][i];
    const Shape own = element.shape();
    if (!looks.GoOn(kPerTuple)) return StepAborted();
    if (own.elements() == 0) continue;
    const int64_t first = static_cast<int64_t>(row) * strides[0];
    const auto from = StridesOf(own);
    StridedSpace space;
    for (int d = 0; d < own.rank(); ++d)
      space.Add(own[d], from[static_cast<size_t>(d)], strides[static_cast<size_t>(d) + 1]);
    const size_t bytes = DTypeSize(out->dtype());
    if (plain) {
      StridedCopy(c, bytes, element.raw(),
                  static_cast<char*>(out->raw()) + static_cast<size_t>(first) * bytes, space);
      continue;
    }
    for (int64_t k = 0; k < own.elements(); ++k) {
      const std::string& text = element.strings()[k];
      if (!looks.GoOn(text) || !looks.RoomFor(StringBytes(text.size()))) return StepAborted();
      int64_t to = first;
      for (int d = 0; d < own.rank(); ++d) {
        const auto at = static_cast<size_t>(d);
        to += k / from[at] % own[d] * strides[at + 1];
      }
      out->strings()[to] = text;
    }
  }
  return Status();
}

}  // namespace

Status StackTuples(KernelContext& c, const QueueSpec& spec, const std::vector<Tuple>& tuples) {
  Looks looks(c);
  for (size_t i = 0; i < spec.types.size(); ++i) {
    if (spec.padding && CanFillUp(spec.types[i])) {
      MG_RETURN_IF_ERROR(StackPadded(c, spec, i, tuples));
      continue;
    }
    SmallInts dims;
    dims.push_back(static_cast<int64_t>(tuples.size()));
    for (const int64_t dim : spec.shapes[i].dims()) dims.push_back(dim);
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(i), shape));
    for (size_t row = 0; row < tuples.size(); ++row) {
      const Tensor& element = tuples[row][i];
      if (!looks.GoOn(kPerTuple + static_cast<int64_t>(element.bytes() / 8))) return StepAborted();
      CopyInto(c, element, static_cast<int64_t>(row), out);
    }
  }
  return Status();
}

namespace {

class DequeueKernel : public AsyncKernel {
 public:
  explicit DequeueKernel(const KernelConstruction& k)
      : types_(k.attr<std::vector<DType>>("component_types")),
        many_(k.op() != "QueueDequeueV2"),
        up_to_(k.op() == "QueueDequeueUpToV2") {}

  // An abort may cut the copy into one tensor: the elements have left the queue by then, and are
  // lost with the step.
  void ComputeAsync(KernelContext& c, Done done) override {
    c.AllowCancel();
    auto found = FindResource<QueueResource>(c);
    if (!found.ok()) return done(found.status());
    const std::shared_ptr<QueueResource> queue = std::move(found).value();
    if (Status status = Check(c, *queue); !status.ok()) return done(status);
    const int64_t n = many_ ? c.input(1).scalar<int32_t>() : 1;
    if (n == 0) return done(StackTuples(c, queue->spec(), {}));
    queue->Dequeue(c, n, up_to_,
                   [this, &c, queue = queue.get(), done = std::move(done)](
                       const Status& status, std::vector<Tuple> tuples) {
                     if (!status.ok()) return done(status);
                     if (many_) return done(StackTuples(c, queue->spec(), tuples));
                     for (size_t i = 0; i < types_.size(); ++i)
                       c.set_output(static_cast<int>(i), std::move(tuples[0][i]));
                     done(Status());
                   });
  }

 private:
  Status Check(const KernelContext& c, const QueueResource& queue) const {
    MG_RETURN_IF_ERROR(CheckTypes(queue, types_));
    if (!many_) return Status();
    if (c.input(1).elements() != 1) return InvalidArgument("n must be a scalar");
    if (const int n = c.input(1).scalar<int32_t>(); n < 0) {
      return InvalidArgument(std::string(up_to_ ? "DequeueUpToOp" : "DequeueManyOp") +
                             " requested " + std::to_string(n) + " < 0 elements");
    }
    const QueueSpec& spec = queue.spec();
    bool specified = !spec.shapes.empty();
    for (size_t i = 0; i < spec.shapes.size(); ++i) {
      const PartialShape& shape = spec.shapes[i];
      const bool known =
          spec.padding && CanFillUp(spec.types[i]) ? shape.known_rank() : shape.fully_known();
      specified = specified && known && shape.rank() < kMaxRank;
    }
    if (specified) return Status();
    return InvalidArgument(queue.spec().kind +
                           "'s DequeueMany and DequeueUpTo require the components to have "
                           "specified shapes: give '" +
                           queue.spec().name + "' the shapes of its components");
  }

  const std::vector<DType> types_;
  const bool many_, up_to_;
};

class CloseKernel : public AsyncKernel {
 public:
  explicit CloseKernel(const KernelConstruction& k)
      : cancel_(k.attr<bool>("cancel_pending_enqueues")) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto queue = FindResource<QueueResource>(c);
    if (!queue.ok()) return done(queue.status());
    (*queue)->Close(c, cancel_, std::move(done));
  }

 private:
  const bool cancel_;
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<QueueResource> queue, FindResource<QueueResource>(c));
    c.set_output(0, Tensor::Scalar(static_cast<int32_t>(queue->size())));
    return Status();
  }
};

class IsClosedKernel : public Kernel {
 public:
  explicit IsClosedKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<QueueResource> queue, FindResource<QueueResource>(c));
    c.set_output(0, Tensor::Scalar(queue->closed()));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::AddHandleKernel, variable::HandleKernel;
  AddHandleKernel<HandleKernel<QueueResource, SpecOf<Order::kFirst>>>(registry, "FIFOQueueV2");
  AddHandleKernel<HandleKernel<QueueResource, SpecOf<Order::kPadded>>>(registry,
                                                                       "PaddingFIFOQueueV2");
  AddHandleKernel<HandleKernel<QueueResource, SpecOf<Order::kPriority>>>(registry,
                                                                         "PriorityQueueV2");
  AddHandleKernel<HandleKernel<QueueResource, SpecOf<Order::kShuffled>>>(registry,
                                                                         "RandomShuffleQueueV2");
  AddHandleKernel<EnqueueKernel>(registry, "QueueEnqueueV2");
  AddHandleKernel<EnqueueKernel>(registry, "QueueEnqueueManyV2", KernelCost::kExpensive);
  AddHandleKernel<DequeueKernel>(registry, "QueueDequeueV2");
  AddHandleKernel<DequeueKernel>(registry, "QueueDequeueManyV2", KernelCost::kExpensive);
  AddHandleKernel<DequeueKernel>(registry, "QueueDequeueUpToV2", KernelCost::kExpensive);
  AddHandleKernel<CloseKernel>(registry, "QueueCloseV2");
  AddHandleKernel<SizeKernel>(registry, "QueueSizeV2");
  AddHandleKernel<IsClosedKernel>(registry, "QueueIsClosedV2");
}

}  // namespace monograph::ops::queue
