// Kernels of accumulators and step gates. They check types and leave waiting to the resources: Take
// and Wait are asynchronous, so that a step that waits holds no thread. What a Take gets is added
// up if it is dense, and put one after the other if it is sparse: adding rows of one index is left
// to the graph.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "ops/accumulator/accumulator_resource_cpu.h"
#include "ops/accumulator/step_gate_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/gpu/moves.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::accumulator {
namespace {

using variable::FindResource;

Result<AccumulatorSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  return AccumulatorSpec{.name = name,
                         .dtype = k.attr<DType>("dtype"),
                         .shape = k.attr<PartialShape>("shape"),
                         .mean = k.attr<std::string>("reduction_type") == "MEAN",
                         .indices = k.attrs().GetOr<DType>("Tindices", DT_INVALID)};
}

Result<AccumulatorSpec> RowSpecOf(const KernelConstruction& k, const std::string& name) {
  MG_ASSIGN_OR_RETURN(AccumulatorSpec spec, SpecOf(k, name));
  spec.indices = DT_INT64;
  spec.by_row = true;
  return spec;
}

Result<std::string> GateSpecOf(const KernelConstruction&, const std::string& name) { return name; }

// `indices`: DT_INVALID for an op on whole gradients.
Status CheckType(const AccumulatorResource& accumulator, DType dtype, DType indices,
                 bool by_row = false) {
  const AccumulatorSpec& spec = accumulator.spec();
  if (by_row != spec.by_row) {
    return InvalidArgument("accumulator '" + spec.name + "' is a " + spec.ToString() +
                           ", which this op does not work on");
  }
  const auto text = [](DType values, DType rows) {
    return rows == DT_INVALID ? std::string(DTypeName(values))
                              : "rows of " + std::string(DTypeName(values)) + " with indices of " +
                                    std::string(DTypeName(rows));
  };
  if (dtype == spec.dtype && indices == spec.indices) return Status();
  return InvalidArgument("accumulator '" + spec.name + "' holds " + text(spec.dtype, spec.indices) +
                         ", this op works on " + text(dtype, indices));
}

// Tensors one after the other along the first dimension.
Status Concatenate(KernelContext& c, int output, std::vector<Tensor> parts) {
  if (parts.size() == 1) {
    c.set_output(output, std::move(parts[0]));
    return Status();
  }
  Shape shape = parts[0].shape();
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.shape().dim(0);
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(output, shape));
  char* to = static_cast<char*>(out->raw());
  for (const Tensor& part : parts) {
    MG_RETURN_IF_ERROR(HostMoves::Copy(c, to, part.raw(), part.bytes()));
    to += part.bytes();
  }
  return Status();
}

class ApplyKernel : public Kernel {
 public:
  explicit ApplyKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")), rank_(k.attrs().GetOr<int64_t>("_mg_rank", -1)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    MG_RETURN_IF_ERROR(CheckType(*accumulator, dtype_, DT_INVALID));
    MG_ASSIGN_OR_RETURN(const int64_t local_step, IntOf(c.input(1), "local_step"));
    return accumulator->Apply(c, local_step, rank_, c.TakeInput(2), {});
  }

 private:
  const DType dtype_;
  const int64_t rank_;
};

class SparseApplyKernel : public Kernel {
 public:
  explicit SparseApplyKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")),
        indices_(k.attr<DType>("Tindices")),
        rank_(k.attrs().GetOr<int64_t>("_mg_rank", -1)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    MG_RETURN_IF_ERROR(CheckType(*accumulator, dtype_, indices_));
    MG_ASSIGN_OR_RETURN(const int64_t local_step, IntOf(c.input(1), "local_step"));
    return accumulator->Apply(c, local_step, rank_, c.TakeInput(3), c.TakeInput(2));
  }

 private:
  const DType dtype_, indices_;
  const int64_t rank_;
};

// Whether a gradient of that whole shape is one of the variable. `shape` is a vector, which may
// have more dimensions than the variable is said to have.
Status CheckWholeShape(const AccumulatorSpec& spec, const Tensor& shape) {
  const std::string who = "accumulator '" + spec.name + "': Shape mismatch: expected ";
  if (shape.shape().rank() != 1)
    return InvalidArgument(who + "a vector for the shape, got " + shape.shape().ToString());
  const auto* dims = shape.data<int64_t>();
  const int rank = spec.shape.known_rank() ? spec.shape.rank() : 0;
  if (rank > shape.elements()) {
    return InvalidArgument(who + "shape rank at least " + std::to_string(rank) + ", got " +
                           std::to_string(shape.elements()));
  }
  for (int i = 0; i < rank; ++i) {
    if (spec.shape.dim(i) < 0 || spec.shape.dim(i) == dims[i]) continue;
    return InvalidArgument(who + "shape dim " + std::to_string(i) + " to be " +
                           std::to_string(spec.shape.dim(i)) + ", got " + std::to_string(dims[i]));
  }
  return Status();
}

class RowApplyKernel : public Kernel {
 public:
  explicit RowApplyKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")), has_shape_(k.attr<bool>("has_known_shape")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    MG_RETURN_IF_ERROR(CheckType(*accumulator, dtype_, DT_INT64, true));
    MG_ASSIGN_OR_RETURN(const int64_t local_step, IntOf(c.input(1), "local_step"));
    if (has_shape_) MG_RETURN_IF_ERROR(CheckWholeShape(accumulator->spec(), c.input(4)));
    return accumulator->Apply(c, local_step, -1, c.TakeInput(3), c.TakeInput(2));
  }

 private:
  const DType dtype_;
  const bool has_shape_;
};

class TakeKernel : public AsyncKernel {
 public:
  explicit TakeKernel(const KernelConstruction& k, bool by_row = false)
      : by_row_(by_row),
        dtype_(k.attr<DType>("dtype")),
        indices_(by_row ? DT_INT64 : k.attrs().GetOr<DType>("Tindices", DT_INVALID)) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto found = FindResource<AccumulatorResource>(c);
    if (!found.ok()) return done(found.status());
    const std::shared_ptr<AccumulatorResource> accumulator = std::move(found).value();
    if (Status status = CheckType(*accumulator, dtype_, indices_, by_row_); !status.ok())
      return done(status);
    const Result<int64_t> required = IntOf(c.input(1), "num_required");
    if (!required.ok()) return done(required.status());
    if (*required < 1) {
      return done(InvalidArgument("num_required is " + std::to_string(*required) +
                                  "; it must be at least 1"));
    }
    // The accumulator itself would hold what `done` holds.
    const AccumulatorSpec& spec = accumulator->spec();
    const bool mean = spec.mean, by_row = by_row_;
    const int64_t rows = spec.shape.known_rank() && spec.shape.rank() > 0 ? spec.shape.dim(0) : -1;
    accumulator->Take(c, *required,
                      [&c, mean, by_row, rows, done = std::move(done)](
                          const Status& status, AccumulatorResource::Taken taken) {
                        if (!status.ok()) return done(status);
                        done(by_row ? GiveRows(c, mean, rows, std::move(taken))
                                    : Reduce(c, mean, std::move(taken)));
                      });
  }

 private:
  // An abort may cut the sum: the gradients have left the accumulator by then, and are lost with
  // the step.
  static Status Reduce(KernelContext& c, bool mean, AccumulatorResource::Taken taken) {
    c.AllowCancel();
    const int64_t divide_by = mean ? taken.count : 1;
    if (!taken.indices.empty()) return Join(c, divide_by, std::move(taken));
    if (taken.gradients.size() == 1 && divide_by == 1) {
      c.set_output(0, std::move(taken.gradients[0]));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, taken.gradients[0].shape()));
    return SumInto(c, taken.gradients, divide_by, out);
  }

  // `num_rows`: of the variable; -1: unknown.
  static Status GiveRows(KernelContext& c, bool mean, int64_t num_rows,
                         AccumulatorResource::Taken taken) {
    c.AllowCancel();
    Tensor& rows = taken.gradients[0];
    MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape({rows.shape().rank()})));
    for (int i = 0; i < rows.shape().rank(); ++i) shape->data<int64_t>()[i] = rows.shape().dim(i);
    shape->data<int64_t>()[0] = num_rows;
    c.set_output(0, std::move(taken.indices[0]));
    if (!mean || taken.count == 1) {
      c.set_output(1, std::move(rows));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * means, c.AllocateOutput(1, rows.shape()));
    return DivideRows(c, rows, taken.row_counts, means);
  }

  // The indices and values of all sparse gradients, one after the other.
  static Status Join(KernelContext& c, int64_t divide_by, AccumulatorResource::Taken taken) {
    MG_RETURN_IF_ERROR(Concatenate(c, 0, std::move(taken.indices)));
    for (Tensor& rows : taken.gradients) {
      if (divide_by == 1 || rows.elements() == 0) continue;
      MG_ASSIGN_OR_RETURN(Tensor mean, Tensor::Allocate(rows.dtype(), rows.shape(), c.allocator()));
      MG_RETURN_IF_ERROR(SumInto(c, {rows}, divide_by, &mean));
      rows = std::move(mean);
    }
    return Concatenate(c, 1, std::move(taken.gradients));
  }

  const bool by_row_;
  const DType dtype_, indices_;
};

class RowTakeKernel : public TakeKernel {
 public:
  explicit RowTakeKernel(const KernelConstruction& k) : TakeKernel(k, /*by_row=*/true) {}
};

class SetGlobalStepKernel : public Kernel {
 public:
  explicit SetGlobalStepKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    MG_ASSIGN_OR_RETURN(const int64_t step, IntOf(c.input(1), "new_global_step"));
    accumulator->SetGlobalStep(step);
    return Status();
  }
};

class NumAccumulatedKernel : public Kernel {
 public:
  explicit NumAccumulatedKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    c.set_output(0, Tensor::Scalar(static_cast<int32_t>(accumulator->num_accumulated())));
    return Status();
  }
};

class RanksKernel : public Kernel {
 public:
  explicit RanksKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto accumulator, FindResource<AccumulatorResource>(c));
    const std::vector<int64_t> ranks = accumulator->ranks();
    c.set_output(0, Tensor::FromValues<int64_t>({static_cast<int64_t>(ranks.size())}, ranks));
    return Status();
  }
};

class GateSetKernel : public Kernel {
 public:
  explicit GateSetKernel(const KernelConstruction& k) : restart_(k.attr<bool>("restart")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto gate, FindResource<StepGateResource>(c));
    MG_ASSIGN_OR_RETURN(const int64_t step, IntOf(c.input(1), "step"));
    gate->Set(step, restart_);
    return Status();
  }

 private:
  const bool restart_;
};

// A replica's presence lives as long as the kernel's graph is registered: until the session that
// registered it ends.
class GateWaitKernel : public AsyncKernel {
 public:
  explicit GateWaitKernel(const KernelConstruction& k)
      : replica_{k.attr<int64_t>("rank"), k.attr<int64_t>("replicas"), k.attr<int64_t>("required"),
                 k.attr<std::string>("replica")} {}
  ~GateWaitKernel() override {
    if (gate_ != nullptr) gate_->Leave(this, replica_);
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    auto gate = FindResource<StepGateResource>(c);
    if (!gate.ok()) return done(gate.status());
    const Result<int64_t> local_step = IntOf(c.input(1), "local_step");
    if (!local_step.ok()) return done(local_step.status());
    if (replica_.rank >= 0) {
      (*gate)->Join(this, replica_);
      MutexLock lock(mutex_);
      gate_ = *gate;
    }
    (*gate)->Wait(c, *local_step, [&c, done = std::move(done)](const Status& status, int64_t step) {
      if (status.ok()) c.set_output(0, Tensor::Scalar(step));
      done(status);
    });
  }

 private:
  const StepGateResource::Replica replica_;
  Mutex mutex_;
  std::shared_ptr<StepGateResource> gate_ MG_GUARDED_BY(mutex_);
};

class GateCloseKernel : public Kernel {
 public:
  explicit GateCloseKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto gate, FindResource<StepGateResource>(c));
    MG_ASSIGN_OR_RETURN(const int64_t code, IntOf(c.input(1), "code"));
    if (code <= 0 || code > static_cast<int>(Code::kUnauthenticated))
      return InvalidArgument(std::to_string(code) + " is not the code of an error");
    if (c.input(2).elements() != 1) {
      return InvalidArgument("message must be one string, not of shape " +
                             c.input(2).shape().ToString());
    }
    gate->Close(Status(static_cast<Code>(code), c.input(2).strings()[0]));
    return Status();
  }
};

class GateStepKernel : public Kernel {
 public:
  explicit GateStepKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto gate, FindResource<StepGateResource>(c));
    c.set_output(0, Tensor::Scalar(gate->step()));
    return Status();
  }
};

// Lives as long as its graph is registered: until the session that registered it ends.
class GateHoldKernel : public Kernel {
 public:
  explicit GateHoldKernel(const KernelConstruction& k) : name_(k.attr<std::string>("holder")) {}
  ~GateHoldKernel() override {
    if (gate_ != nullptr) gate_->LetGo(this, name_);
  }
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(auto gate, FindResource<StepGateResource>(c));
    gate->Hold(this);
    MutexLock lock(mutex_);
    gate_ = std::move(gate);
    return Status();
  }

 private:
  const std::string name_;
  Mutex mutex_;
  std::shared_ptr<StepGateResource> gate_ MG_GUARDED_BY(mutex_);
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::AddHandleKernel, variable::HandleKernel;
  AddHandleKernel<HandleKernel<AccumulatorResource, SpecOf>>(registry,
                                                             "ResourceConditionalAccumulator");
  // The gradient that completes an update also runs the waiting Take, and so computes the sum.
  AddHandleKernel<ApplyKernel>(registry, "ResourceAccumulatorApplyGradient",
                               KernelCost::kExpensive);
  AddHandleKernel<TakeKernel>(registry, "ResourceAccumulatorTakeGradient", KernelCost::kExpensive);
  AddHandleKernel<HandleKernel<AccumulatorResource, SpecOf>>(
      registry, "MonographSparseConditionalAccumulator");
  AddHandleKernel<SparseApplyKernel>(registry, "MonographSparseAccumulatorApplyGradient",
                                     KernelCost::kExpensive);
  AddHandleKernel<TakeKernel>(registry, "MonographSparseAccumulatorTakeGradient",
                              KernelCost::kExpensive);
  AddHandleKernel<HandleKernel<AccumulatorResource, RowSpecOf>>(registry,
                                                                "_SparseConditionalAccumulator");
  AddHandleKernel<RowApplyKernel>(registry, "_SparseAccumulatorApplyGradient",
                                  KernelCost::kExpensive);
  AddHandleKernel<RowTakeKernel>(registry, "_SparseAccumulatorTakeGradient",
                                 KernelCost::kExpensive);
  AddHandleKernel<SetGlobalStepKernel>(registry, "ResourceAccumulatorSetGlobalStep");
  AddHandleKernel<NumAccumulatedKernel>(registry, "ResourceAccumulatorNumAccumulated");
  AddHandleKernel<RanksKernel>(registry, "MonographAccumulatorRanks");
  AddHandleKernel<HandleKernel<StepGateResource, GateSpecOf>>(registry, "MonographStepGate");
  AddHandleKernel<GateSetKernel>(registry, "MonographStepGateSet");
  AddHandleKernel<GateWaitKernel>(registry, "MonographStepGateWait");
  AddHandleKernel<GateCloseKernel>(registry, "MonographStepGateClose");
  AddHandleKernel<GateStepKernel>(registry, "MonographStepGateStep");
  AddHandleKernel<GateHoldKernel>(registry, "MonographStepGateHold");
}

}  // namespace monograph::ops::accumulator
