// What a collective enqueues on the GPU. Reduce (unless any order of additions will do), Broadcast
// and Gather make a plan (exchange_plan.h), which Follow does step by step: an exchange, and then
// the sums (Merge). All run on the members thread.
#include <algorithm>
#include <map>
#include <utility>

#include "executor/gpu/grains.h"
#include "executor/gpu/member_operation.h"
#include "executor/gpu/node_observer.h"

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
  if (op.memory != nullptr) {  // kMembers waits for kCompute behind this
    Buffer memory = Buffer::Allocate(op.memory, bytes);
    if (!memory) {
      return ResourceExhausted("no memory for " + std::to_string(bytes) + " bytes. " +
                               device_.memory().Table());
    }
    return memory;
  }
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
  size_t bytes = 0;
  for (const Tensor& output : op.outputs) bytes += output.bytes();
  const Grains grains(shapes);
  NodeRanks nodes = NodesOf(op, bytes);
  const int pieces = ChoosePieces(nodes, bytes);
  return Follow(op, ExchangePlan::Reduce(std::move(nodes), grains.count(), pieces),
                [&](UnitRange units) { return grains.Parts(units.begin, units.end); });
}

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
  const size_t bytes = op.outputs[0].bytes();
  const Grains grains({&sender->shape, 1});
  NodeRanks nodes = NodesOf(op, bytes);
  const int pieces = ChoosePieces(nodes, bytes);
  return Follow(op, ExchangePlan::Broadcast(std::move(nodes), grains.count(), pieces, root),
                [&](UnitRange units) { return grains.Parts(units.begin, units.end); });
}

Status GpuMembers::Gather(MemberOperation& op) {
  Shape shape = op.rows[0].shape;
  std::vector<int64_t> first{0};  // element of each rank's value
  int64_t rows = 0;
  for (const MemberRow& row : op.rows) {
    rows += row.shape.dim(0);
    first.push_back(first.back() + row.shape.elements());
  }
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, shape));
  op.outputs.push_back(std::move(output));
  const auto parts = [&](UnitRange ranks) {
    const TensorPart part{0, first[static_cast<size_t>(ranks.begin)],
                          first[static_cast<size_t>(ranks.end)]};
    return part.elements() == 0 ? std::vector<TensorPart>() : std::vector<TensorPart>{part};
  };
  for (const TensorPart& part : parts({op.rank, op.rank + 1})) {
    Tensor place = ViewOf(op.outputs[0], part);
    const Tensor& own = op.inputs[0];
    MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, [&] {
      return device_.driver().Copy(Queue::kMembers, place.raw(), own.raw(), own.bytes());
    }));
  }
  return Follow(op, ExchangePlan::Gather(NodesOf(op, op.outputs[0].bytes())), parts);
}

NodeRanks GpuMembers::NodesOf(const MemberOperation& op, size_t bytes) {
  std::vector<uint64_t> nodes;
  for (const MemberRow& row : op.rows) nodes.push_back(row.node);
  return ChooseNodes(nodes, bytes);
}

// Each step's terms lie in `scratch`, which the next step uses anew: what is on the queue is done
// in its order.
Status GpuMembers::Follow(MemberOperation& op, const ExchangePlan& plan, const PartsFn& parts) {
  const DType dtype = op.request->dtype;
  const auto slot_bytes = [dtype](const TensorPart& part) {
    return (static_cast<size_t>(part.elements()) * DTypeSize(dtype) + kSlotAlignment - 1) /
           kSlotAlignment * kSlotAlignment;
  };
  size_t most = 0;
  for (int s = 0; s < plan.steps(); ++s) {
    size_t bytes = 0;
    for (const ExchangePlan::Move& move : plan.At(s, op.rank).receives) {
      if (move.place != ExchangePlan::Place::kTerm) continue;
      for (const TensorPart& part : parts(move.units)) bytes += slot_bytes(part);
    }
    most = std::max(most, bytes);
  }
  if (most > 0) {
    MG_ASSIGN_OR_RETURN(op.scratch, Allocate(op, most));
  }
  for (int s = 0; s < plan.steps(); ++s) {
    const ExchangePlan::Step step = plan.At(s, op.rank);
    std::vector<Communicator::Send> sends;
    std::vector<Communicator::Receive> receives;
    for (const ExchangePlan::Move& move : step.sends) {
      const auto& from = move.place == ExchangePlan::Place::kInput ? op.inputs : op.outputs;
      for (const TensorPart& part : parts(move.units)) {
        const Tensor view = ViewOf(from[part.tensor], part);
        sends.push_back({move.rank, view.raw(), view.bytes()});
      }
    }
    std::map<std::pair<int64_t, int>, std::vector<Tensor>> terms;  // by first unit and rank
    size_t used = 0;
    for (const ExchangePlan::Move& move : step.receives) {
      for (const TensorPart& part : parts(move.units)) {
        Tensor view;
        if (move.place == ExchangePlan::Place::kTerm) {
          view = Tensor(dtype, Shape{part.elements()}, op.scratch, used);
          used += slot_bytes(part);
          terms[{move.units.begin, move.rank}].push_back(view);
        } else {
          view = ViewOf(op.outputs[part.tensor], part);
        }
        receives.push_back({move.rank, view.raw(), view.bytes()});
      }
    }
    MG_RETURN_IF_ERROR(Exchange(op, sends, receives));
    for (const ExchangePlan::Sum& sum : step.sums) {
      const std::vector<TensorPart> summed = parts(sum.units);
      for (size_t i = 0; i < summed.size(); ++i) {
        const Tensor result = ViewOf(op.outputs[summed[i].tensor], summed[i]);
        std::vector<Tensor> inputs;
        if (sum.continues) inputs.push_back(result);
        for (int rank = sum.begin; rank < sum.end; ++rank) {
          inputs.push_back(rank == op.rank ? ViewOf(op.inputs[summed[i].tensor], summed[i])
                                           : terms.at({sum.units.begin, rank})[i]);
        }
        MG_RETURN_IF_ERROR(Merge(op, inputs, result));
      }
    }
  }
  return Status();
}

Status GpuMembers::Merge(MemberOperation& op, const std::vector<Tensor>& inputs, Tensor output) {
  StreamDriver& driver = device_.driver();
  Kernel& kernel = *op.merge->kernel;
  const DType dtype = output.dtype();
  KernelContext base;
  GpuLauncher::Begin(&base, *op.context, device_);
  GpuLauncher::UseStream(&base, driver.members_stream());
  const auto merge = [&kernel, dtype, base](std::vector<Tensor> from, Tensor result) -> Status {
    const auto nowhere = std::make_unique<bool[]>(from.size());  // all false: nothing on the host
    PlaceAllocator place(&result);
    std::vector<Tensor> to(1);
    KernelContext context = base;
    GpuLauncher::UseMemory(&context, &place);
    GpuLauncher::Set(&context, from, to, &dtype, nowhere.get(), nowhere.get());
    MG_RETURN_IF_ERROR(kernel.Compute(context));
    return to[0].raw() == result.raw() ? Status() : Internal("a merged share went elsewhere");
  };
  const auto compute = [&](const std::vector<Tensor>& from) {
    return device_.Issue(Queue::kMembers, [&] { return merge(from, output); });
  };
  if (driver.observes()) {
    std::vector<MemoryAccess> reads;
    std::vector<Tensor> again;
    for (const Tensor& input : inputs) {
      reads.push_back({input.raw(), input.bytes()});
      again.push_back(Unheld(input));
    }
    const MemoryAccess write{std::as_const(output).raw(), output.bytes()};
    driver.OnKernel({.name = "merge",
                     .reads = reads,
                     .writes = {&write, 1},
                     .again = [merge, again, to = Unheld(output)] { return merge(again, to); },
                     .queue = Queue::kMembers});
  }
  if (op.merge->adds) return compute(inputs);
  MG_RETURN_IF_ERROR(compute({inputs[0], inputs[1]}));
  for (size_t next = 2; next < inputs.size(); ++next)
    MG_RETURN_IF_ERROR(compute({output, inputs[next]}));
  return Status();
}

}  // namespace monograph
