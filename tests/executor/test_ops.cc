#include "tests/executor/test_ops.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph::testing {
namespace {

std::atomic<int64_t> in_place{0};

Status LikeFirst(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return Status();
}

Status LikeValue(ShapeContext& c) {
  c.set_output(0, c.attr<Tensor>("value").shape());
  return Status();
}

class ConstKernel : public Kernel {
 public:
  explicit ConstKernel(const KernelConstruction& c) : value_(c.attr<Tensor>("value")) {}
  Status Compute(KernelContext& c) override {
    c.set_output(0, value_);
    return Status();
  }

 private:
  const Tensor value_;
};

class IncKernel : public Kernel {
 public:
  explicit IncKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    const float* x = c.input(0).data<float>();
    float* out = y->data<float>();
    if (x == out) in_place.fetch_add(1, std::memory_order_relaxed);
    for (int64_t i = 0; i < y->elements(); ++i) out[i] = x[i] + 1;
    return Status();
  }
};

class AddKernel : public Kernel {
 public:
  explicit AddKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    const float* a = c.input(0).data<float>();
    const float* b = c.input(1).data<float>();
    for (int64_t i = 0; i < y->elements(); ++i) y->data<float>()[i] = a[i] + b[i];
    return Status();
  }
};

class LessKernel : public Kernel {
 public:
  explicit LessKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    *y->data<bool>() = c.input(0).scalar<float>() < c.input(1).scalar<float>();
    return Status();
  }
};

class SumKernel : public Kernel {
 public:
  explicit SumKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    float sum = 0;
    for (const Tensor& x : c.inputs()) sum += x.scalar<float>();
    *y->data<float>() = sum;
    return Status();
  }
};

class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (int i = 0; i < c.num_outputs(); ++i) {
      MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(i, Shape()));
      *y->data<float>() = c.input(0).scalar<float>();
    }
    return Status();
  }
};

class NoOpKernel : public Kernel {
 public:
  explicit NoOpKernel(const KernelConstruction&) {}
  Status Compute(KernelContext&) override { return Status(); }
};

class FailKernel : public Kernel {
 public:
  explicit FailKernel(const KernelConstruction& c) : message_(c.attr<std::string>("message")) {}
  Status Compute(KernelContext&) override { return OutOfRange(message_); }

 private:
  const std::string message_;
};

class GateKernel : public AsyncKernel {
 public:
  explicit GateKernel(const KernelConstruction& c) : gate_(c.attr<std::string>("gate")) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto gate = c.resources().Find<Gate>("test", gate_);
    if (!gate.ok()) return done(gate.status());
    // Open and cancel race: whoever is first calls done.
    struct Wait {
      std::atomic<bool> over{false};
      Done done;
    };
    auto wait = std::make_shared<Wait>();
    wait->done = std::move(done);
    const bool going = c.OnCancel([wait] {
      if (!wait->over.exchange(true)) wait->done(Cancelled("gate cancelled").AsDerived());
    });
    if (!going) {
      if (!wait->over.exchange(true)) wait->done(Cancelled("gate cancelled").AsDerived());
      return;
    }
    (*gate)->WhenOpen([wait, context = &c] {
      if (wait->over.exchange(true)) return;
      context->set_output(0, context->input(0));
      wait->done(Status());
    });
  }

 private:
  const std::string gate_;
};

class BlockKernel : public Kernel {
 public:
  explicit BlockKernel(const KernelConstruction& c)
      : gate_(c.attr<std::string>("gate")),
        polite_(c.op() == "TWait"),
        changes_(c.op() == "TChange") {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(auto gate, c.resources().Find<Gate>("test", gate_));
    if (polite_ && !c.may_wait()) return c.Busy();
    gate->Block();
    if (changes_) MG_RETURN_IF_ERROR(c.BeginChange());
    c.set_output(0, c.input(0));
    return Status();
  }

 private:
  const std::string gate_;
  const bool polite_, changes_;
};

class SerialKernel : public Kernel {
 public:
  explicit SerialKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    if (inside_.fetch_add(1) != 0) return Internal("two threads met in a serial kernel");
    for (int i = 0; i < 1000; ++i) calls_ += 1;  // unguarded on purpose
    c.set_output(0, c.input(0));
    inside_.fetch_sub(1);
    return Status();
  }

 private:
  std::atomic<int> inside_{0};
  int64_t calls_ = 0;
};

class RefuseKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction&) {
    return InvalidArgument("strides must be positive");
  }
  Status Compute(KernelContext&) override { return Status(); }
};

}  // namespace

void AddTestOps(OpRegistry* ops, KernelRegistry* kernels) {
  ops->Add(OpDef("TConst").Output("y: float").Attr("value: tensor").Shape(LikeValue));
  for (const char* op : {"TInc", "TIncSlow", "TMissing", "TSerial"}) {
    ops->Add(OpDef(op).Input("x: float").Output("y: float").Shape(LikeFirst));
  }
  for (const char* op : {"TGate", "TBlock", "TWait", "TChange"}) {
    ops->Add(OpDef(op)
                 .Input("x: float")
                 .Output("y: float")
                 .Attr("gate: string")
                 .Stateful()
                 .Shape(LikeFirst));
  }
  ops->Add(OpDef("TAdd").Input("a: float").Input("b: float").Output("y: float").Shape(LikeFirst));
  ops->Add(OpDef("TSum")
               .Input("xs: N * float")
               .Output("y: float")
               .Attr("N: int >= 1")
               .Shape(ScalarShape));
  ops->Add(OpDef("TSplit")
               .Input("x: float")
               .Output("y: N * float")
               .Attr("N: int >= 1")
               .Shape(ScalarShape));
  ops->Add(OpDef("TLess").Input("a: float").Input("b: float").Output("y: bool").Shape(LikeFirst));
  ops->Add(OpDef("TSwitch")
               .Input("data: T")
               .Input("pred: bool")
               .Output("output_false: T")
               .Output("output_true: T")
               .Attr("T: type")
               .Shape(LikeFirst)
               .Flow(FlowOp::kSwitch));
  ops->Add(OpDef("TMerge")
               .Input("inputs: N * T")
               .Output("output: T")
               .Output("value_index: int32")
               .Attr("T: type")
               .Attr("N: int >= 1")
               .Flow(FlowOp::kMerge));
  ops->Add(OpDef("TEnter")
               .Input("data: T")
               .Output("output: T")
               .Attr("T: type")
               .Attr("frame_name: string")
               .Attr("is_constant: bool = false")
               .Attr("parallel_iterations: int = 10")
               .Flow(FlowOp::kEnter));
  for (const auto& [name, flow] :
       {std::pair("TExit", FlowOp::kExit), std::pair("TNext", FlowOp::kNextIteration)}) {
    ops->Add(OpDef(name).Input("data: T").Output("output: T").Attr("T: type").Flow(flow));
  }
  ops->Add(OpDef("TLoopCond").Input("input: bool").Output("output: bool").Flow(FlowOp::kLoopCond));
  ops->Add(OpDef("TTrigger").Flow(FlowOp::kTrigger));
  ops->Add(OpDef("TNoOp").Shape(NoOutputs));
  ops->Add(OpDef("TFail").Attr("message: string").Stateful().Shape(NoOutputs));
  ops->Add(
      OpDef("TDouble").Input("x: T").Output("y: T").Attr("T: {float, double}").Shape(LikeFirst));
  ops->Add(OpDef("TRefuse").Shape(NoOutputs));
  ops->Add(OpDef("TNowhere").Shape(NoOutputs));
  const auto cheap = KernelCost::kCheap;
  kernels->Add<ConstKernel>({.op = "TConst", .cost = cheap});
  kernels->Add<IncKernel>({.op = "TInc", .cost = cheap});
  kernels->Add<IncKernel>({.op = "TIncSlow"});
  kernels->Add<AddKernel>({.op = "TAdd", .cost = cheap});
  kernels->Add<LessKernel>({.op = "TLess", .cost = cheap});
  kernels->Add<SumKernel>({.op = "TSum", .cost = cheap});
  kernels->Add<SplitKernel>({.op = "TSplit", .cost = cheap});
  kernels->Add<NoOpKernel>({.op = "TNoOp", .cost = cheap});
  kernels->Add<FailKernel>({.op = "TFail"});
  kernels->Add<NoOpKernel>({.op = "TMissing", .cost = cheap});
  kernels->Add<GateKernel>({.op = "TGate"});
  for (const char* op : {"TBlock", "TChange"}) kernels->Add<BlockKernel>({.op = op});
  kernels->Add<BlockKernel>({.op = "TWait", .cost = cheap});
  kernels->Add<SerialKernel>({.op = "TSerial", .serial = true});
  kernels->Add<IncKernel>({.op = "TDouble", .types = {{"T", DT_FLOAT}}});
  kernels->Add<RefuseKernel>({.op = "TRefuse"});
}

int64_t TakeInPlaceCount() { return in_place.exchange(0); }

void Gate::Open() {
  std::vector<std::function<void()>> run;
  {
    std::lock_guard lock(mutex_);
    open_ = true;
    run.swap(waiting_);
    changed_.notify_all();
  }
  for (auto& fn : run) fn();
}

bool Gate::WaitForArrivals(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return arrivals_ >= count; });
}

void Gate::Arrive() {
  std::lock_guard lock(mutex_);
  ++arrivals_;
  changed_.notify_all();
}

void Gate::Block() {
  Arrive();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_; });
}

void Gate::WhenOpen(std::function<void()> fn) {
  {
    std::lock_guard lock(mutex_);
    ++arrivals_;
    changed_.notify_all();
    if (!open_) {
      waiting_.push_back(std::move(fn));
      return;
    }
  }
  fn();
}

int Gate::arrivals() {
  std::lock_guard lock(mutex_);
  return arrivals_;
}

TestTask::TestTask(int inter_op, int intra_op)
    : pools_(std::make_unique<ThreadPools>(inter_op, intra_op)) {
  AddTestOps(&ops_, &kernels_);
  devices_ = MakeCpuDevices(DeviceName::Parse("/job:test/replica:0/task:0").value(), 2).value();
}

TestTask::~TestTask() = default;

PlanOptions TestTask::options() {
  PlanOptions options;
  options.kernels = &kernels_;
  for (const auto& device : devices_) options.devices.push_back(device.get());
  options.pools = pools_.get();
  options.resources = &resources_;
  return options;
}

std::shared_ptr<Gate> TestTask::gate(const std::string& name) {
  return resources_.FindOrCreate<Gate>("test", name, [] { return std::make_shared<Gate>(); })
      .value();
}

NodeId Builder::Add(std::string_view op, std::vector<Endpoint> inputs, Attrs attrs,
                    std::vector<NodeId> controls, std::string_view device) {
  const std::string name = graph_->UniqueName(op);
  return graph_
      ->AddNode({.name = name,
                 .op = op,
                 .inputs = inputs,
                 .control_inputs = controls,
                 .attrs = std::make_shared<const Attrs>(std::move(attrs)),
                 .device = device})
      .value();
}

namespace {

Attrs Transfer(int64_t edge, std::string_view from, std::string_view to, int64_t priority) {
  return Attrs{{"edge_id", edge},
               {"send_device", std::string(from)},
               {"recv_device", std::string(to)},
               {"tensor_name", "edge_" + std::to_string(edge)},
               {"priority", priority},
               {"T", DT_FLOAT}};
}

}  // namespace

NodeId Builder::Send(int64_t edge, Endpoint source, int64_t priority, std::vector<NodeId> controls,
                     std::string_view device, std::string_view to) {
  Attrs attrs = Transfer(edge, device, to, priority);
  attrs.Set("N", int64_t{1});
  return Add("_Send", {source}, std::move(attrs), std::move(controls), device);
}

Endpoint Builder::Recv(int64_t edge, std::vector<NodeId> controls, std::string_view device,
                       PartialShape shape, std::string_view from) {
  Attrs attrs = Transfer(edge, from, device, 0);
  attrs.Set("shape", std::move(shape));
  return {Add("_Recv", {}, std::move(attrs), std::move(controls), device), 0};
}

NodeId Builder::SendControl(int64_t edge, std::vector<NodeId> controls, std::string_view device) {
  Attrs attrs = Transfer(edge, device, kElsewhere, 0);
  attrs.Set("N", int64_t{0});
  attrs.Set("control", true);
  return Add("_Send", {}, std::move(attrs), std::move(controls), device);
}

NodeId Builder::RecvControl(int64_t edge, std::string_view device) {
  Attrs attrs = Transfer(edge, kElsewhere, device, 0);
  attrs.Set("control", true);
  return Add("_Recv", {}, std::move(attrs), {}, device);
}

void Collector::OnSend(uint64_t, const EdgeInfo& edge, Tensor tensor, uint64_t) {
  std::lock_guard lock(mutex_);
  EXPECT_EQ(sent_.count(edge.id), 0u) << "edge " << edge.id << " was sent twice";
  sent_[edge.id] = std::move(tensor);
}

Done Collector::done() {
  return [this](const Status& status) {
    std::lock_guard lock(mutex_);
    status_ = status;
    ++done_;
    changed_.notify_all();
  };
}

Status Collector::Wait() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return done_ > 0; })) {
    ADD_FAILURE() << "the step did not end";
    return DeadlineExceeded("the step did not end");
  }
  return status_;
}

bool Collector::finished() { return done_count() > 0; }

int Collector::done_count() {
  std::lock_guard lock(mutex_);
  return done_;
}

std::map<int32_t, Tensor> Collector::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(sent_, {});
}

float Collector::Value(int32_t edge) {
  std::lock_guard lock(mutex_);
  const auto found = sent_.find(edge);
  if (found == sent_.end() || !found->second.valid()) {
    ADD_FAILURE() << "nothing was sent on edge " << edge;
    return -1;
  }
  return found->second.scalar<float>();
}

std::shared_ptr<Step> StartStep(const std::shared_ptr<const Plan>& plan, StepSink* sink,
                                Done done) {
  auto step = StepExecutor::Prepare(plan, 1, sink, std::move(done));
  step->Start();
  return step;
}

Result<std::map<int32_t, float>> RunStep(const std::shared_ptr<const Plan>& plan,
                                         std::map<int32_t, float> feeds, uint64_t step_id,
                                         bool inline_all, StepTrace* trace) {
  Collector collector;
  {
    const auto step = StepExecutor::Prepare(plan, step_id, &collector, collector.done(), trace);
    bool before = true;  // half of the feeds before the start, half after
    size_t fed = 0;
    for (const auto& [edge, value] : feeds) {
      if (before && ++fed * 2 > feeds.size()) {
        step->Start(inline_all);
        before = false;
      }
      step->Deliver(edge, Tensor::Scalar(value));
    }
    if (before) step->Start(inline_all);
  }
  MG_RETURN_IF_ERROR(collector.Wait());
  std::map<int32_t, float> values;
  for (const auto& [edge, tensor] : collector.Take())
    values[edge] = tensor.valid() ? tensor.scalar<float>() : 0;
  return values;
}

}  // namespace monograph::testing
