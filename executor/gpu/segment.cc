#include "executor/gpu/segment.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>

#include "executor/gpu/launcher.h"
#include "executor/resource_manager.h"
#include "executor/trace.h"

namespace monograph {
namespace {

// Sets of input shapes for which plans and graphs are kept.
constexpr size_t kVariants = 4;
// A range that had to be captured so often without a replay between is launched node by node.
constexpr int kMaxMisses = 3;

// A variable that a captured range works on, where it was.
struct HeldVariable {
  std::shared_ptr<Variable> variable;
  const void* data = nullptr;
  Shape shape;
  bool written = false;
  std::vector<uint32_t> slots;  // that have its value when the range begins
};

// What leaves a captured range. A variable's value, or what came into the segment, is not held
// twice.
struct HeldOutput {
  Tensor tensor;
  int32_t variable = -1, input = -1;  // the tensor views that one's buffer
  DType dtype = DT_INVALID;
  Shape shape;
  size_t offset = 0;
  bool owned = false;  // of the segment's own memory
};

struct HeldInput {
  uint32_t slot = 0;
  bool host = false;
  Tensor tensor;  // a host argument, by value; a device tensor only by address:
  const void* data = nullptr;
  DType dtype = DT_INVALID;
  Shape shape;
};

// What follows from the items alone.
struct Range : ReplayRange {
  struct LiveOut {
    int32_t item;
    uint32_t output;
    bool host;
    std::vector<uint32_t> slots;  // outside the range
    std::vector<uint32_t> exits;
  };
  std::vector<std::pair<uint32_t, bool>> live_ins;  // slots that are filled from outside; on host
  std::vector<LiveOut> live_outs;
};

struct CapturedRange {
  GraphId graph = -1;
  bool off = false;
  int misses = 0;
  std::shared_ptr<GpuMemory::Arena> arena;
  int32_t next_block = 0;  // of the script, behind the range
  std::vector<HeldInput> inputs;
  std::vector<HeldVariable> variables;
  std::vector<HeldOutput> outputs;  // by live-out
};

// One set of input shapes.
struct Variant {
  std::vector<std::pair<DType, Shape>> key;
  MemoryScript script;
  int stale = 0;
  bool replay = true;
  std::vector<Tensor> staging;  // by device input, for replays
  std::vector<CapturedRange> ranges;
  uint64_t used = 0;
};

class SegmentImpl : public Segment {
 public:
  explicit SegmentImpl(SegmentSpec spec)
      : spec_(std::move(spec)),
        device_(*spec_.device),
        driver_(device_.shared_driver()),
        memory_(device_.memory()) {}
  // Maybe after the device: the last one who holds a plan may be another device's thread.
  ~SegmentImpl() override {
    for (auto& variant : variants_) Forget(*variant);
    for (const EventId event : exit_events_) {
      if (event >= 0) driver_->DropEvent(event);
    }
  }

  Status Prepare();
  EventId exit_event(uint32_t exit) const override { return exit_events_[exit]; }

  void ComputeAsync(KernelContext& context, Done done) override {
    Job* run = jobs_.Take();
    run->segment = this;
    run->context = &context;
    run->done = std::move(done);
    run->step = context.step_id();
    run->order = spec_.order;
    const uint64_t life = run->life.fetch_add(1) + 1;
    const bool open = context.OnCancel([run, life] { run->cancelled.store(life); });
    if (!open) run->cancelled.store(life);
    device_.Post(run);
  }

 private:
  struct Job : LaunchTask, Arrival {
    SegmentImpl* segment = nullptr;
    KernelContext* context = nullptr;
    Done done;
    // A late cancel must not hit the next step that has this record.
    std::atomic<uint64_t> life{0}, cancelled{0};
    // Of a traced step.
    StepTrace* trace = nullptr;
    std::vector<EventId> times;
    std::vector<int64_t> launched;
    int32_t thread = 0;

    void Run() override { segment->Launch(this); }
    void Arrived(const Status& status) override { segment->Traced(this, status); }
  };

  void Launch(Job* run);
  void Traced(Job* run, const Status& status);
  void End(Job* run, const Status& status) {
    const Done done = std::move(run->done);
    jobs_.Give(run);
    done(status);
  }
  Status Execute(KernelContext& outer, Job* run);
  Status Enqueue(KernelContext& outer, Job* run);
  Status TakeEntries(Variant& variant, bool staged);
  Variant& FindVariant();
  Status RunRange(KernelContext& outer, Variant& variant, size_t index);
  // `keep`: of a range that is replayed.
  Status RunItems(KernelContext& outer, const Range& range, CapturedRange* keep, Job* run);
  Status RunOnce(KernelContext& outer, const Range& range, Job* run);
  Status RunItem(KernelContext& outer, const SegmentItem& item, CapturedRange* keep);
  Status Fail(const SegmentItem& item, const Status& status);
  void Keep(const SegmentItem& item, const Range& range, int32_t index, CapturedRange* keep);
  Status PassOn(KernelContext& outer, const SegmentItem& item, bool exits);
  Status Capture(KernelContext& outer, const Range& range, CapturedRange* captured);
  Status Replay(KernelContext& outer, const Range& range, CapturedRange* captured);
  Status Leave(KernelContext& outer, const Range& range, CapturedRange* captured, bool fill);
  void HoldView(HeldOutput* held, const CapturedRange& captured);
  Tensor View(const HeldOutput& held, const CapturedRange& captured) const;
  bool Valid(const CapturedRange& captured);
  bool OnlyOurs(const Tensor& value, const std::vector<uint32_t>& slots);
  void HoldVariables(const SegmentItem& item, KernelContext& outer, CapturedRange* capture);
  void Observe(const SegmentItem& item, std::span<const Tensor> inputs, KernelContext& outer);
  void Drop(CapturedRange* captured);
  void Forget(Variant& variant);
  void CheckKept(Variant& variant);
  bool OnlyKept(Variant& variant, const HeldOutput& first);

  SegmentSpec spec_;
  GpuDevice& device_;
  const std::shared_ptr<StreamDriver> driver_;
  GpuMemory& memory_;
  std::vector<Range> ranges_;
  std::vector<EventId> exit_events_;
  Recycled<Job> jobs_;
  // The rest belongs to the launching thread.
  std::vector<Tensor> slots_, outputs_, entries_;
  std::vector<std::unique_ptr<Variant>> variants_;
  uint64_t uses_ = 0;
  bool named_ = false;                // the run's failure names its node
  MemoryScript* script_ = nullptr;    // that is open
  MemoryScript* measured_ = nullptr;  // in the run that measures
  Variant* variant_ = nullptr;
  // In a run node by node: what a graph would hold, so that both take the same memory.
  std::vector<Tensor> held_;
  CapturedRange once_;
  std::vector<Tensor> observed_;
  std::vector<HeldOutput> spare_views_;
  std::vector<HeldOutput*> twins_;
};

Status SegmentImpl::Prepare() {
  slots_.resize(spec_.slots);
  entries_.resize(spec_.entries.size());
  size_t most = 0;
  std::vector<ReplayItem> replay;
  for (const SegmentItem& item : spec_.items) {
    most = std::max(most, item.outputs.size());
    const bool leaves = std::any_of(item.exits.begin(), item.exits.end(), [&](const auto& exit) {
      return spec_.awaited_exits[exit.second];
    });
    replay.push_back({device_.options().replay && item.replayable, leaves});
  }
  outputs_.resize(most);
  for (const ReplayRange& range : PlanReplay(replay, device_.options().min_replayed))
    ranges_.push_back({range, {}, {}});

  const auto range_of = [&](int32_t item) {
    return std::find_if(ranges_.begin(), ranges_.end(),
                        [item](const Range& range) { return item < range.end; });
  };
  std::vector<int32_t> item_of_slot(spec_.slots);
  std::vector<bool> host_slot(spec_.slots), inside(spec_.slots, false);
  for (size_t i = 0; i < spec_.items.size(); ++i) {
    for (size_t k = 0; k < spec_.items[i].inputs.size(); ++k) {
      item_of_slot[spec_.items[i].first_input + k] = static_cast<int32_t>(i);
      host_slot[spec_.items[i].first_input + k] = spec_.items[i].host_inputs[k];
    }
  }
  for (size_t i = 0; i < spec_.items.size(); ++i) {
    const SegmentItem& item = spec_.items[i];
    const auto range = range_of(static_cast<int32_t>(i));
    for (uint32_t output = 0; output < item.outputs.size(); ++output) {
      Range::LiveOut live{static_cast<int32_t>(i), output, item.host_outputs[output], {}, {}};
      for (const auto& use : item.uses) {
        if (use.output != output) continue;
        if (range_of(item_of_slot[use.slot]) == range) {
          inside[use.slot] = true;
        } else {
          live.slots.push_back(use.slot);
        }
      }
      for (const auto& [from, exit] : item.exits) {
        if (from == output) live.exits.push_back(exit);
      }
      if (!live.slots.empty() || !live.exits.empty()) range->live_outs.push_back(std::move(live));
    }
  }
  for (uint32_t slot = 0; slot < spec_.slots; ++slot) {
    if (!inside[slot]) range_of(item_of_slot[slot])->live_ins.emplace_back(slot, host_slot[slot]);
  }
  for (const bool awaited : spec_.awaited_exits) {
    exit_events_.push_back(-1);
    if (!awaited) continue;
    MG_ASSIGN_OR_RETURN(exit_events_.back(), device_.driver().MakeEvent(/*timed=*/false));
  }
  return Status();
}

// ---- one run

void SegmentImpl::Launch(Job* run) {
  if (run->cancelled.load() == run->life.load())
    return End(run, Cancelled("the step was aborted").AsDerived());
  run->trace = GpuLauncher::Trace(*run->context);
  const Status status = Execute(*run->context, run);
  if (run->trace == nullptr || !status.ok()) {
    for (const EventId event : run->times) device_.driver().DropEvent(event);
    run->times.clear();
    return End(run, status);
  }
  run->thread = TraceThread();
  device_.AwaitLast(Queue::kCompute, run);
}

// The device's own times, laid so that the last node ends now.
void SegmentImpl::Traced(Job* run, const Status& status) {
  const int64_t now = TraceClockNs();
  StreamDriver& driver = device_.driver();
  if (status.ok()) {
    for (size_t i = 0; i + 1 < run->times.size(); ++i) {
      const Result<int64_t> begin = driver.ElapsedNs(run->times[i], run->times.back());
      const Result<int64_t> end = driver.ElapsedNs(run->times[i + 1], run->times.back());
      if (!begin.ok() || !end.ok()) continue;
      const SegmentItem& item = spec_.items[i];
      run->trace->Add({.name = item.name,
                       .op = item.op,
                       .device = device_.name(),
                       .thread = run->thread,
                       .start_ns = now - *begin,
                       .end_ns = std::max(now - *end, now - *begin + 1)});
    }
  }
  for (const EventId event : run->times) driver.DropEvent(event);
  run->times.clear();
  End(run, status);
}

Status SegmentImpl::Execute(KernelContext& outer, Job* run) {
  if (const Status health = device_.health(); !health.ok()) return health.WithContext(spec_.what);
  const uint64_t tick = device_.BeginSegment();
  named_ = false;
  Status status = Enqueue(outer, run);
  for (Tensor& slot : slots_) slot.Reset();
  for (Tensor& output : outputs_) output.Reset();
  for (Tensor& entry : entries_) entry.Reset();
  memory_.SetOwner(nullptr);
  const Status ended = device_.EndSegment(tick);
  if (status.ok()) status = ended;
  return named_ ? status : device_.Check(status).WithContext(spec_.what);
}

Status SegmentImpl::Enqueue(KernelContext& outer, Job* run) {
  MG_RETURN_IF_ERROR(WaitForCopies(device_, spec_.inbounds));
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i] = outer.TakeInput(static_cast<int>(i));
  Variant& variant = FindVariant();
  const bool measure = !variant.script.planned();
  const bool planned = memory_.Open(&variant.script);
  const bool replay =
      planned && device_.options().replay && variant.replay && !measure && run->trace == nullptr &&
      std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) { return range.replay; });
  script_ = &variant.script;
  variant_ = &variant;
  measured_ = planned && measure ? script_ : nullptr;
  Status status = TakeEntries(variant, replay);
  for (size_t i = 0; i < ranges_.size() && status.ok(); ++i) {
    if (!ranges_[i].replay) {
      status = RunItems(outer, ranges_[i], nullptr, run);
    } else if (replay) {
      status = RunRange(outer, variant, i);
    } else {
      status = RunOnce(outer, ranges_[i], run);
    }
  }
  held_.clear();
  measured_ = nullptr;
  for (Tensor& slot : slots_) slot.Reset();
  for (Tensor& output : outputs_) output.Reset();
  if (planned) memory_.Close(&variant.script);
  CheckKept(variant);
  if (!status.ok() || variant.script.stale()) {
    Forget(variant);
    if (status.ok() && ++variant.stale >= kMaxMisses) variant.replay = false;
  } else if (!measure) {
    variant.stale = 0;
  }
  return status;
}

Variant& SegmentImpl::FindVariant() {
  const auto fits = [this](const Variant& variant) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (variant.key[i].first != entries_[i].dtype() ||
          !(variant.key[i].second == entries_[i].shape()))
        return false;
    }
    return true;
  };
  for (auto& variant : variants_) {
    if (!fits(*variant)) continue;
    variant->used = ++uses_;
    return *variant;
  }
  if (variants_.size() == kVariants) {
    const auto oldest =
        std::min_element(variants_.begin(), variants_.end(),
                         [](const auto& a, const auto& b) { return a->used < b->used; });
    Forget(**oldest);
    variants_.erase(oldest);
  }
  auto variant = std::make_unique<Variant>();
  for (const Tensor& entry : entries_) variant->key.emplace_back(entry.dtype(), entry.shape());
  variant->ranges.resize(ranges_.size());
  variant->used = ++uses_;
  variants_.push_back(std::move(variant));
  return *variants_.back();
}

// Graphs read their inputs where they were captured: at a place of their own.
Status SegmentImpl::TakeEntries(Variant& variant, bool staged) {
  static const std::string kOwner = "(inputs of graphs)";
  if (staged && variant.staging.empty()) variant.staging.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Tensor* tensor = &entries_[i];
    if (staged && !spec_.host_entries[i]) {
      Tensor& copy = variant.staging[i];
      if (!copy.valid()) {
        Buffer buffer = memory_.AllocateApart(tensor->bytes(), &kOwner);
        if (!buffer)
          return ResourceExhausted("no memory for the inputs of a segment. " + memory_.Table());
        copy = Tensor(tensor->dtype(), tensor->shape(), std::move(buffer));
      }
      if (tensor->bytes() > 0) {
        MG_RETURN_IF_ERROR(device_.Check(device_.driver().Copy(
            Queue::kCompute, copy.raw(), std::as_const(*tensor).raw(), tensor->bytes())));
      }
      tensor = &copy;
    }
    for (const uint32_t slot : spec_.entries[i]) slots_[slot] = *tensor;
  }
  return Status();
}

// ---- node by node

Status SegmentImpl::RunItems(KernelContext& outer, const Range& range, CapturedRange* keep,
                             Job* run) {
  StreamDriver& driver = device_.driver();
  const auto stamp = [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const EventId event, driver.MakeEvent(/*timed=*/true));
    run->times.push_back(event);
    return driver.Record(event, Queue::kCompute);
  };
  const bool traced = run != nullptr && run->trace != nullptr;
  if (traced && run->times.empty()) MG_RETURN_IF_ERROR(device_.Check(stamp()));
  for (int32_t i = range.begin; i < range.end; ++i) {
    const SegmentItem& item = spec_.items[static_cast<size_t>(i)];
    MG_RETURN_IF_ERROR(RunItem(outer, item, keep));
    if (keep != nullptr) Keep(item, range, i, keep);
    MG_RETURN_IF_ERROR(PassOn(outer, item, /*exits=*/keep == nullptr));
    if (traced) MG_RETURN_IF_ERROR(device_.Check(stamp()));
  }
  return Status();
}

// A range that is replayed in other runs, node by node.
Status SegmentImpl::RunOnce(KernelContext& outer, const Range& range, Job* run) {
  once_.outputs.assign(range.live_outs.size(), HeldOutput());
  MG_RETURN_IF_ERROR(RunItems(outer, range, &once_, run));
  MG_RETURN_IF_ERROR(Leave(outer, range, &once_, /*fill=*/false));
  for (HeldOutput& held : once_.outputs) {
    if (held.owned) held_.push_back(std::move(held.tensor));
  }
  once_.outputs.clear();
  return Status();
}

Status SegmentImpl::Fail(const SegmentItem& item, const Status& status) {
  named_ = true;
  const Status checked = device_.Check(status);
  if (checked.code() == Code::kResourceExhausted)
    return Status(checked.code(), checked.message() + ". " + memory_.Table()).WithContext(item.who);
  return checked.WithContext(item.who);
}

Status SegmentImpl::RunItem(KernelContext& outer, const SegmentItem& item, CapturedRange* keep) {
  memory_.SetOwner(item.owner);
  KernelContext context;
  GpuLauncher::Begin(&context, outer, device_);
  const std::span<Tensor> inputs(slots_.data() + item.first_input, item.inputs.size());
  GpuLauncher::Set(&context, inputs, {outputs_.data(), item.outputs.size()}, item.outputs.data(),
                   item.host_inputs.get(), item.host_outputs.get());
  if (keep != nullptr && keep != &once_) HoldVariables(item, outer, keep);
  const bool observes = device_.driver().observes();
  if (observes) observed_.assign(inputs.begin(), inputs.end());
  // Held for the observer, an input would not be written in place.
  if (observes) {
    for (size_t i = 0; i < observed_.size(); ++i) {
      Tensor& tensor = observed_[i];
      if (item.host_inputs[i] || tensor.bytes() == 0) continue;
      tensor = Tensor(tensor.dtype(), tensor.shape(),
                      Buffer::Wrap(tensor.raw(), tensor.bytes(), nullptr));
    }
  }
  const Status status = item.kernel->Compute(context);
  if (!status.ok()) return Fail(item, status);
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    if (outputs_[i].dtype() == item.outputs[i]) continue;
    return Internal("the kernel's output " + std::to_string(i) + " is " +
                    (outputs_[i].valid() ? std::string(DTypeName(outputs_[i].dtype()))
                                         : std::string("missing")) +
                    ", not " + std::string(DTypeName(item.outputs[i])))
        .WithContext(item.who);
  }
  if (observes) {
    Observe(item, observed_, outer);
    observed_.clear();
  }
  if (device_.options().launch_blocking && (keep == nullptr || keep == &once_)) {
    StreamDriver& driver = device_.driver();
    MG_ASSIGN_OR_RETURN(const EventId event, driver.MakeEvent(false));
    Status ran = driver.Record(event, Queue::kCompute);
    for (bool over = false; ran.ok() && !over;) {
      const Result<bool> done = driver.Done(event);
      ran = done.status();
      over = done.ok() && *done;
      if (!over) std::this_thread::yield();
    }
    driver.DropEvent(event);
    if (!ran.ok()) return Fail(item, ran);
  }
  return Status();
}

// What is needed behind a range that is replayed stays where it is from run to run.
void SegmentImpl::Keep(const SegmentItem& item, const Range& range, int32_t index,
                       CapturedRange* keep) {
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    const Range::LiveOut& live = range.live_outs[i];
    if (live.item != index) continue;
    HeldOutput& held = keep->outputs[i];
    held.tensor = outputs_[live.output];
    if (item.host_outputs[live.output]) continue;
    held.owned = memory_.Owns(*script_, held.tensor.buffer().data());
    if (held.owned && measured_ != nullptr)
      memory_.KeepApart(measured_, std::as_const(held.tensor).raw());
    // A variable's value that goes no further than the segment must not be held: it could not be
    // updated in place.
    if (!held.owned && live.exits.empty()) HoldView(&held, *keep);
  }
}

Status SegmentImpl::PassOn(KernelContext& outer, const SegmentItem& item, bool exits) {
  for (size_t i = 0; i < item.inputs.size(); ++i) slots_[item.first_input + i].Reset();
  if (exits) {
    for (const auto& [output, exit] : item.exits) {
      outer.set_output(static_cast<int>(exit), outputs_[output]);
      if (exit_events_[exit] >= 0) {
        MG_RETURN_IF_ERROR(
            device_.Check(device_.driver().Record(exit_events_[exit], Queue::kCompute)));
      }
    }
  }
  for (size_t i = 0; i < item.uses.size(); ++i) {
    const auto& use = item.uses[i];
    const bool last = i + 1 == item.uses.size() || item.uses[i + 1].output != use.output;
    if (last) {
      slots_[use.slot] = std::move(outputs_[use.output]);
    } else {
      slots_[use.slot] = outputs_[use.output];
    }
  }
  for (size_t i = 0; i < item.outputs.size(); ++i) outputs_[i].Reset();
  return Status();
}

// ---- graphs

Status SegmentImpl::RunRange(KernelContext& outer, Variant& variant, size_t index) {
  const Range& range = ranges_[index];
  CapturedRange& captured = variant.ranges[index];
  if (captured.off) return RunOnce(outer, range, nullptr);
  if (captured.graph >= 0) {
    if (Valid(captured)) return Replay(outer, range, &captured);
    Drop(&captured);
    if (++captured.misses >= kMaxMisses) {
      captured.off = true;
      return RunOnce(outer, range, nullptr);
    }
  }
  return Capture(outer, range, &captured);
}

void SegmentImpl::HoldVariables(const SegmentItem& item, KernelContext& outer,
                                CapturedRange* capture) {
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    if (item.inputs[i] != DT_RESOURCE) continue;
    const Tensor& tensor = slots_[item.first_input + i];
    for (int64_t k = 0; k < tensor.elements(); ++k) {
      const ResourceHandle& handle = tensor.handles()[k];
      auto found = outer.resources().Find<Variable>(handle.container, handle.name);
      if (!found.ok()) {
        capture->off = true;
        continue;
      }
      const auto known =
          std::find_if(capture->variables.begin(), capture->variables.end(),
                       [&](const HeldVariable& held) { return held.variable == *found; });
      if (known != capture->variables.end()) {
        known->written = known->written || !item.reads_only;
        continue;
      }
      HeldVariable held;
      held.variable = *found;
      held.written = !item.reads_only;
      std::shared_lock lock(held.variable->mutex);
      const Tensor& value = held.variable->value;
      held.data = value.valid() ? value.raw() : nullptr;
      held.shape = value.shape();
      lock.unlock();
      capture->variables.push_back(std::move(held));
    }
  }
}

Status SegmentImpl::Capture(KernelContext& outer, const Range& range, CapturedRange* captured) {
  StreamDriver& driver = device_.driver();
  captured->inputs.clear();
  captured->variables.clear();
  captured->outputs.assign(range.live_outs.size(), HeldOutput());
  captured->arena = memory_.arena();
  std::vector<Tensor> before;
  for (const auto& [slot, host] : range.live_ins) {
    const Tensor& tensor = slots_[slot];
    before.push_back(tensor);
    HeldInput held{.slot = slot, .host = host, .dtype = tensor.dtype(), .shape = tensor.shape()};
    if (host) {
      MG_ASSIGN_OR_RETURN(held.tensor, tensor.Clone());
    } else {
      held.data = tensor.raw();
    }
    captured->inputs.push_back(std::move(held));
  }
  std::vector<std::pair<uint32_t, const void*>> filled;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].valid()) filled.emplace_back(slot, slots_[slot].buffer().data());
  }
  const int32_t first_block = script_->next();
  MG_RETURN_IF_ERROR(device_.Check(driver.BeginCapture()));
  const Status status = RunItems(outer, range, captured, nullptr);
  Result<GraphId> graph = driver.EndCapture();
  if (!status.ok() || !graph.ok()) {
    // What was issued has not run; node by node it can, or fails by itself.
    const Status failed = device_.Check(status.ok() ? graph.status() : status);
    if (!device_.health().ok()) return failed;
    if (graph.ok()) driver.DropGraph(*graph);
    Drop(captured);
    captured->off = true;
    for (size_t i = 0; i < before.size(); ++i) slots_[range.live_ins[i].first] = before[i];
    script_->SkipTo(first_block);
    named_ = false;
    return RunOnce(outer, range, nullptr);
  }
  before.clear();
  captured->graph = *graph;
  captured->next_block = script_->next();
  MG_RETURN_IF_ERROR(device_.Check(driver.Launch(*graph)));
  for (HeldVariable& held : captured->variables) {
    std::shared_lock lock(held.variable->mutex);
    const Tensor& value = held.variable->value;
    if (held.data == nullptr || !value.valid() || value.raw() != held.data) {
      captured->off = true;  // a variable that moves in every step
      continue;
    }
    for (const auto& [slot, data] : filled) {
      if (data == value.buffer().data()) held.slots.push_back(slot);
    }
  }
  MG_RETURN_IF_ERROR(Leave(outer, range, captured, /*fill=*/false));
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    HeldOutput& held = captured->outputs[i];
    if (!range.live_outs[i].host && !held.owned && held.tensor.valid()) HoldView(&held, *captured);
  }
  if (captured->off) Drop(captured);
  return Status();
}

// Lets go of a tensor that views a variable or an input, and notes which.
void SegmentImpl::HoldView(HeldOutput* held, const CapturedRange& captured) {
  if (&captured == &once_) {
    held->tensor.Reset();
    return;
  }
  const Buffer& buffer = held->tensor.buffer();
  held->dtype = held->tensor.dtype();
  held->shape = held->tensor.shape();
  held->offset = held->tensor.offset();
  for (size_t i = 0; i < captured.variables.size(); ++i) {
    if (captured.variables[i].variable->value.buffer() == buffer)
      held->variable = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < variant_->staging.size(); ++i) {
    if (variant_->staging[i].valid() && variant_->staging[i].buffer() == buffer)
      held->input = static_cast<int32_t>(i);
  }
  if (held->variable >= 0 || held->input >= 0) held->tensor.Reset();
}

Tensor SegmentImpl::View(const HeldOutput& held, const CapturedRange& captured) const {
  if (held.tensor.valid()) return held.tensor;
  const Tensor& of = held.variable >= 0
                         ? captured.variables[static_cast<size_t>(held.variable)].variable->value
                         : variant_->staging[static_cast<size_t>(held.input)];
  return Tensor(held.dtype, held.shape, of.buffer(), held.offset);
}

bool SegmentImpl::Valid(const CapturedRange& captured) {
  if (captured.arena != memory_.arena()) return false;
  for (const HeldInput& held : captured.inputs) {
    const Tensor& tensor = slots_[held.slot];
    if (tensor.dtype() != held.dtype || !(tensor.shape() == held.shape)) return false;
    if (held.host ? !BitEqual(tensor, held.tensor) : tensor.raw() != held.data) return false;
  }
  for (const HeldVariable& held : captured.variables) {
    // Held by us alone: it was deleted.
    if (held.variable.use_count() < 2) return false;
    std::shared_lock lock(held.variable->mutex);
    const Tensor& value = held.variable->value;
    if (!value.valid() || value.raw() != held.data || !(value.shape() == held.shape)) return false;
    if (held.written && !OnlyOurs(value, held.slots)) return false;
  }
  return true;
}

// Whether nobody but the variable and these slots holds the value: an update may write over it.
bool SegmentImpl::OnlyOurs(const Tensor& value, const std::vector<uint32_t>& slots) {
  bool all = true;
  for (const uint32_t slot : slots) {
    all = all && slots_[slot].valid() && slots_[slot].buffer() == value.buffer();
    if (!all) break;
    HeldOutput view{.dtype = slots_[slot].dtype(),
                    .shape = slots_[slot].shape(),
                    .offset = slots_[slot].offset()};
    slots_[slot].Reset();
    spare_views_.push_back(std::move(view));
  }
  const bool only = all && value.unique();
  for (size_t i = 0; i < spare_views_.size(); ++i) {
    const HeldOutput& view = spare_views_[i];
    slots_[slots[i]] = Tensor(view.dtype, view.shape, value.buffer(), view.offset);
  }
  spare_views_.clear();
  return only;
}

Status SegmentImpl::Replay(KernelContext& outer, const Range& range, CapturedRange* captured) {
  captured->misses = 0;
  MG_RETURN_IF_ERROR(device_.Check(device_.driver().Launch(captured->graph)));
  script_->SkipTo(captured->next_block);
  for (const auto& [slot, host] : range.live_ins) slots_[slot].Reset();
  return Leave(outer, range, captured, /*fill=*/true);
}

// What is needed behind the range. Outputs of the segment get memory of their own, since the
// graph's is written again in the next step.
Status SegmentImpl::Leave(KernelContext& outer, const Range& range, CapturedRange* captured,
                          bool fill) {
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    const Range::LiveOut& live = range.live_outs[i];
    if (!fill && live.exits.empty()) continue;
    Tensor output = View(captured->outputs[i], *captured);
    if (fill) {
      for (const uint32_t slot : live.slots) slots_[slot] = output;
    }
    if (live.exits.empty()) continue;
    if (!live.host) {
      const SegmentItem& item = spec_.items[static_cast<size_t>(live.item)];
      Buffer buffer = memory_.AllocateApart(output.bytes(), item.owner);
      if (!buffer)
        return Fail(item, ResourceExhausted("no memory for output " + std::to_string(live.output)));
      Tensor copy(output.dtype(), output.shape(), std::move(buffer));
      if (output.bytes() > 0) {
        MG_RETURN_IF_ERROR(device_.Check(device_.driver().Copy(
            Queue::kCompute, copy.raw(), std::as_const(output).raw(), output.bytes())));
      }
      output = std::move(copy);
    }
    for (const uint32_t exit : live.exits) {
      outer.set_output(static_cast<int>(exit), output);
      if (exit_events_[exit] >= 0) {
        MG_RETURN_IF_ERROR(
            device_.Check(device_.driver().Record(exit_events_[exit], Queue::kCompute)));
      }
    }
  }
  return Status();
}

void SegmentImpl::Drop(CapturedRange* captured) {
  if (captured->graph >= 0) driver_->DropGraph(captured->graph);
  captured->graph = -1;
  captured->arena = nullptr;
  captured->inputs.clear();
  captured->variables.clear();
  captured->outputs.clear();
}

void SegmentImpl::Forget(Variant& variant) {
  for (CapturedRange& captured : variant.ranges) Drop(&captured);
  variant.staging.clear();
  variant.script = MemoryScript();
}

// Memory that graphs write again must be nobody else's. Whoever kept some may have it; the segment
// goes without graphs then.
void SegmentImpl::CheckKept(Variant& variant) {
  bool kept = false;
  const auto shared = [](const Tensor& tensor) {
    return tensor.valid() && !tensor.buffer().unique();
  };
  for (const Tensor& tensor : variant.staging) kept = kept || shared(tensor);
  for (const CapturedRange& captured : variant.ranges) {
    for (const HeldOutput& held : captured.outputs)
      kept = kept || (held.owned && shared(held.tensor) && !OnlyKept(variant, held));
  }
  if (!kept) return;
  for (CapturedRange& captured : variant.ranges) {
    Drop(&captured);
    captured.off = true;
  }
  variant.staging.clear();
  variant.replay = false;
}

// Whether what is kept for graphs is all that holds the memory of `first`: several outputs may view
// one block, as a Reshape's does that of its input.
bool SegmentImpl::OnlyKept(Variant& variant, const HeldOutput& first) {
  const Buffer& buffer = first.tensor.buffer();
  for (CapturedRange& captured : variant.ranges) {
    for (HeldOutput& held : captured.outputs) {
      if (&held == &first || !held.tensor.valid() || !(held.tensor.buffer() == buffer)) continue;
      held.dtype = held.tensor.dtype();
      held.shape = held.tensor.shape();
      held.offset = held.tensor.offset();
      held.tensor.Reset();
      twins_.push_back(&held);
    }
  }
  const bool only = buffer.unique();
  for (HeldOutput* held : twins_)
    held->tensor = Tensor(held->dtype, held->shape, buffer, held->offset);
  twins_.clear();
  return only;
}

// ---- for drivers that check

void SegmentImpl::Observe(const SegmentItem& item, std::span<const Tensor> inputs,
                          KernelContext& outer) {
  std::vector<MemoryAccess> reads, writes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() == DT_RESOURCE) {
      for (int64_t k = 0; k < inputs[i].elements(); ++k) {
        const ResourceHandle& handle = inputs[i].handles()[k];
        auto found = outer.resources().Find<Variable>(handle.container, handle.name);
        if (!found.ok() || !(*found)->value.valid()) continue;
        const Tensor& value = (*found)->value;
        (item.reads_only ? reads : writes).push_back({value.raw(), value.bytes()});
      }
    } else if (!item.host_inputs[i]) {
      reads.push_back({inputs[i].raw(), inputs[i].bytes()});
    }
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const Tensor& output = outputs_[i];
    results.push_back(output);
    if (item.host_outputs[i]) continue;
    (item.reads_only ? reads : writes).push_back({output.raw(), output.bytes()});
  }
  // Computes once more, from what is at the same addresses then, to the same addresses.
  const std::vector<Tensor> again(inputs.begin(), inputs.end());
  for (Tensor& result : results) {
    if (!IsPlainData(result.dtype())) continue;
    result =
        Tensor(result.dtype(), result.shape(), Buffer::Wrap(result.raw(), result.bytes(), nullptr));
  }
  KernelContext base;
  GpuLauncher::Begin(&base, outer, device_);
  GpuLauncher::UseMemory(&base, HostAllocator());  // not the script's
  auto compute = [&item, again, results, base]() mutable -> Status {
    std::vector<Tensor> fresh = again, outputs(results.size());
    KernelContext context = base;
    GpuLauncher::Set(&context, fresh, outputs, item.outputs.data(), item.host_inputs.get(),
                     item.host_outputs.get());
    MG_RETURN_IF_ERROR(item.kernel->Compute(context));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (item.host_outputs[i] || outputs[i].bytes() == 0) continue;
      if (outputs[i].raw() != results[i].raw())
        std::memcpy(results[i].raw(), std::as_const(outputs[i]).raw(), results[i].bytes());
    }
    return Status();
  };
  device_.driver().OnKernel(
      {.name = item.name, .reads = reads, .writes = writes, .again = std::move(compute)});
}

class Launched : public PostedKernel {
 public:
  Launched(GpuDevice* device, std::unique_ptr<Kernel> kernel, HostPlaces places)
      : PostedKernel(device, std::move(places)), kernel_(std::move(kernel)) {}

 private:
  void Begin(KernelContext& context, Done done) override {
    kernel_->AsAsync()->ComputeAsync(context, std::move(done));
  }
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

Result<std::unique_ptr<Segment>> Segment::Make(SegmentSpec spec) {
  auto segment = std::make_unique<SegmentImpl>(std::move(spec));
  MG_RETURN_IF_ERROR(segment->Prepare());
  return std::unique_ptr<Segment>(std::move(segment));
}

std::unique_ptr<AsyncKernel> MakeLaunched(GpuDevice* device, std::unique_ptr<Kernel> kernel,
                                          HostPlaces places) {
  return std::make_unique<Launched>(device, std::move(kernel), std::move(places));
}

}  // namespace monograph
