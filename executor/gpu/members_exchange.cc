// What a collective enqueues on the GPU. Reduce, unless any order of additions will do, exchanges
// shares of the inputs, merges its own share in rank order (Merge), and exchanges the results;
// Broadcast cuts the tensor into shares, so that nobody sends much more than the tensor once;
// Gather is one exchange. All run on the members thread.
#include <algorithm>
#include <utility>

#include "executor/gpu/member_operation.h"

namespace monograph {
namespace {

constexpr size_t kSlotAlignment = 64;

// Memory at one place, for a kernel's one output.
class PlaceAllocator : public Allocator {
 public:
  explicit PlaceAllocator(Tensor* place) : data_(place->raw()), bytes_(place->bytes()) {}
  std::string name() const override { return "a part of a tensor"; }
  void* Allocate(size_t bytes) override { return bytes <= bytes_ ? data_ : nullptr; }
  void Deallocate(void*, size_t) noexcept override {}
  bool on_host() const override { return false; }

 private:
  void* const data_;
  const size_t bytes_;
};

Tensor ViewOf(const Tensor& tensor, const TensorPart& part) {
  return Tensor(tensor.dtype(), Shape{part.elements()}, tensor.buffer(),
                tensor.offset() + static_cast<size_t>(part.begin) * DTypeSize(tensor.dtype()));
}

}  // namespace

template <typename IssueFn>
Status GpuMembers::IssueAndWait(MemberOperation& op, IssueFn issue) {
  op.connection->launching = true;
  MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, issue));
  MG_RETURN_IF_ERROR(WaitUntilReady(op));
  op.connection->launching = false;
  return Status();
}

Status GpuMembers::Exchange(MemberOperation& op, std::span<const Communicator::Send> sends,
                            std::span<const Communicator::Receive> receives) {
  if (sends.empty() && receives.empty()) return Status();
  return IssueAndWait(op, [&] { return op.connection->communicator->Exchange(sends, receives); });
}

// By the library's own all-reduce.
Status GpuMembers::ReduceInAnyOrder(MemberOperation& op) {
  std::vector<Communicator::Sum> sums;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& input = op.inputs[i];
    if (input.bytes() > 0)
      sums.push_back(
          {input.raw(), op.outputs[i].raw(), static_cast<size_t>(input.shape().elements())});
  }
  if (sums.empty()) return Status();
  return IssueAndWait(
      op, [&] { return op.connection->communicator->AllReduce(op.request->dtype, sums); });
}

Result<Buffer> GpuMembers::Allocate(MemberOperation& op, size_t bytes, Queue queue) {
  const auto deadline = std::chrono::steady_clock::now() + op.request->timeout;
  for (;;) {
    uint64_t wait_tick = 0;
    bool busy = false;
    Buffer memory = device_.memory().AllocateFor(bytes, op.owner, &wait_tick, &busy);
    if (memory) {
      MG_RETURN_IF_ERROR(
          device_.Issue(queue, [&] { return device_.WaitForTick(queue, wait_tick); }));
      return memory;
    }
    // `busy`: a segment that is being launched holds memory, which it gives back soon.
    if (!busy || std::chrono::steady_clock::now() > deadline) {
      return ResourceExhausted("no memory for " + std::to_string(bytes) + " bytes. " +
                               device_.memory().Table());
    }
    MutexLock lock(mutex_);
    if (op.cancelled || stopped_) return Cancelled("the step was aborted").AsDerived();
    changed_.WaitFor(mutex_, kMembersPoll);
  }
}

Result<Tensor> GpuMembers::AllocateTensor(MemberOperation& op, const Shape& shape) {
  const DType dtype = op.request->dtype;
  MG_ASSIGN_OR_RETURN(Buffer memory,
                      Allocate(op, static_cast<size_t>(shape.elements()) * DTypeSize(dtype)));
  return Tensor(dtype, shape, std::move(memory));
}

Status GpuMembers::Reduce(MemberOperation& op) {
  std::vector<Shape> shapes;
  for (const Tensor& input : op.inputs) {
    shapes.push_back(input.shape());
    MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, input.shape()));
    op.outputs.push_back(std::move(output));
  }
  const bool any_order = std::all_of(op.rows.begin(), op.rows.end(),
                                     [](const MemberRow& row) { return row.any_order; });
  if (any_order && op.merge->adds) return ReduceInAnyOrder(op);
  const auto shares = CutShares(shapes, op.size());
  const auto& own = shares[static_cast<size_t>(op.rank)];
  const size_t element = DTypeSize(op.request->dtype);
  // The others' inputs of the own share: by rank, then by part.
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (int rank = 0; rank < op.size(); ++rank) {
    for (const TensorPart& part : own) {
      offsets.push_back(bytes);
      if (rank != op.rank)
        bytes += (static_cast<size_t>(part.elements()) * element + kSlotAlignment - 1) /
                 kSlotAlignment * kSlotAlignment;
    }
  }
  if (bytes > 0) {
    MG_ASSIGN_OR_RETURN(op.scratch, Allocate(op, bytes));
  }
  const auto slot = [&](int rank, size_t part) {
    return Tensor(op.request->dtype, Shape{own[part].elements()}, op.scratch,
                  offsets[static_cast<size_t>(rank) * own.size() + part]);
  };

  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    for (const TensorPart& part : shares[static_cast<size_t>(rank)]) {
      const Tensor view = ViewOf(op.inputs[part.tensor], part);
      sends.push_back({rank, view.raw(), view.bytes()});
    }
    for (size_t part = 0; part < own.size(); ++part) {
      Tensor view = slot(rank, part);
      receives.push_back({rank, view.raw(), view.bytes()});
    }
  }
  MG_RETURN_IF_ERROR(Exchange(op, sends, receives));

  for (size_t part = 0; part < own.size(); ++part) {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < op.size(); ++rank) {
      inputs.push_back(rank == op.rank ? ViewOf(op.inputs[own[part].tensor], own[part])
                                       : slot(rank, part));
    }
    MG_RETURN_IF_ERROR(Merge(op, inputs, ViewOf(op.outputs[own[part].tensor], own[part])));
  }

  sends.clear();
  receives.clear();
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    for (const TensorPart& part : own) {
      const Tensor view = ViewOf(op.outputs[part.tensor], part);
      sends.push_back({rank, view.raw(), view.bytes()});
    }
    for (const TensorPart& part : shares[static_cast<size_t>(rank)]) {
      Tensor view = ViewOf(op.outputs[part.tensor], part);
      receives.push_back({rank, view.raw(), view.bytes()});
    }
  }
  return Exchange(op, sends, receives);
}

// The sender cuts the tensor into a share for each rank; then every rank sends its share to the
// others, so that nobody sends much more than the tensor once.
Status GpuMembers::Broadcast(MemberOperation& op) {
  const auto sender =
      std::find_if(op.rows.begin(), op.rows.end(), [](const MemberRow& r) { return r.sends; });
  const int root = static_cast<int>(sender - op.rows.begin());
  if (op.rank == root) {
    op.outputs.push_back(op.inputs[0]);
  } else {
    MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, sender->shape));
    op.outputs.push_back(std::move(output));
  }
  Tensor& whole = op.outputs[0];
  const auto shares = CutShares({&sender->shape, 1}, op.size());
  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  const auto send = [&](int share, int to) {
    for (const TensorPart& part : shares[static_cast<size_t>(share)]) {
      const Tensor view = ViewOf(whole, part);
      sends.push_back({to, view.raw(), view.bytes()});
    }
  };
  const auto receive = [&](int share, int from) {
    for (const TensorPart& part : shares[static_cast<size_t>(share)]) {
      Tensor view = ViewOf(whole, part);
      receives.push_back({from, view.raw(), view.bytes()});
    }
  };
  for (int rank = 0; rank < op.size() && op.rank == root; ++rank) {
    if (rank != root) send(rank, rank);
  }
  if (op.rank != root) receive(op.rank, root);
  MG_RETURN_IF_ERROR(Exchange(op, sends, receives));
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    if (rank != root) send(op.rank, rank);
    if (op.rank != root) receive(rank, rank);
  }
  return Exchange(op, sends, receives);
}

Status GpuMembers::Gather(MemberOperation& op) {
  Shape shape = op.rows[0].shape;
  int64_t rows = 0;
  for (const MemberRow& row : op.rows) rows += row.shape.dim(0);
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, shape));
  op.outputs.push_back(std::move(output));
  const Tensor& own = op.inputs[0];
  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  auto* to = static_cast<char*>(op.outputs[0].raw());
  for (int rank = 0; rank < op.size(); ++rank) {
    const size_t bytes = static_cast<size_t>(op.rows[static_cast<size_t>(rank)].shape.elements()) *
                         DTypeSize(op.request->dtype);
    if (rank != op.rank) {
      if (own.bytes() > 0) sends.push_back({rank, own.raw(), own.bytes()});
      if (bytes > 0) receives.push_back({rank, to, bytes});
    } else if (bytes > 0) {
      MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, [&] {
        return device_.driver().Copy(Queue::kMembers, to, own.raw(), bytes);
      }));
    }
    to += bytes;
  }
  return Exchange(op, sends, receives);
}

Status GpuMembers::Merge(MemberOperation& op, const std::vector<Tensor>& inputs, Tensor output) {
  StreamDriver& driver = device_.driver();
  Kernel& kernel = *op.merge->kernel;
  PlaceAllocator place(&output);
  const DType dtype = output.dtype();
  const auto nowhere = std::make_unique<bool[]>(inputs.size());  // all false: nothing on the host
  const auto compute = [&](std::vector<Tensor> from) -> Status {
    std::vector<Tensor> to(1);
    KernelContext context;
    GpuLauncher::Begin(&context, *op.context, device_);
    GpuLauncher::UseMemory(&context, &place);
    GpuLauncher::UseStream(&context, driver.members_stream());
    GpuLauncher::Set(&context, from, to, &dtype, nowhere.get(), nowhere.get());
    MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, [&] { return kernel.Compute(context); }));
    return to[0].raw() == output.raw() ? Status() : Internal("a merged share went elsewhere");
  };
  if (driver.observes()) {
    std::vector<MemoryAccess> reads;
    for (const Tensor& input : inputs) reads.push_back({input.raw(), input.bytes()});
    const MemoryAccess write{std::as_const(output).raw(), output.bytes()};
    driver.OnKernel(
        {.name = "merge", .reads = reads, .writes = {&write, 1}, .queue = Queue::kMembers});
  }
  if (op.merge->all_at_once) return compute(inputs);
  MG_RETURN_IF_ERROR(compute({inputs[0], inputs[1]}));
  for (size_t rank = 2; rank < inputs.size(); ++rank)
    MG_RETURN_IF_ERROR(compute({output, inputs[rank]}));
  return Status();
}

}  // namespace monograph
