// One run of a segment, on the launching thread (Launch, Execute, Enqueue): kCompute waits for the
// copies that come in, the variant for these input shapes is found, its memory script is opened,
// and the ranges follow each other. A range is launched node by node (RunItems), captured as a
// graph (Capture) or replayed (Replay). RunOnce launches a replayable range node by node in the
// runs that cannot replay it, and holds the same tensors as a graph would, so that both take the
// same memory. A graph that cannot be captured or launched is no error: a warning says why, and its
// nodes are launched one by one. What they do to variables on the host while they are captured is
// taken back before that, since nothing of it has run on the device. A range with joint collectives
// goes the way that all members go (RunJointRange).
#include "executor/gpu/segment.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>

#include "base/free_list.h"
#include "base/log.h"
#include "executor/gpu/joint_launch.h"
#include "executor/gpu/launcher.h"
#include "executor/gpu/node_observer.h"
#include "executor/gpu/segment_replay.h"
#include "executor/resource_manager.h"
#include "executor/trace.h"

namespace monograph {
namespace {

// Sets of input shapes for which plans and graphs are kept.
constexpr size_t kVariants = 4;
// Captures in a row of a range of which none was replayed, and runs in a row that made a script
// stale: from then on nodes are launched one by one.
constexpr int kMostCaptures = 3, kMostStale = 3;

class SegmentImpl : public Segment {
 public:
  explicit SegmentImpl(SegmentSpec spec)
      : spec_(std::move(spec)),
        device_(*spec_.device),
        driver_(device_.shared_driver()),
        memory_(device_.memory()),
        observer_(device_) {}
  // May run after the device is gone, since a thread of another device may hold the plan last: it
  // uses driver_ only.
  ~SegmentImpl() override {
    for (auto& variant : variants_) variant->Forget(*driver_);
    for (const EventId event : exit_events_) {
      if (event >= 0) driver_->DropEvent(event);
    }
  }

  Status Prepare();
  EventId exit_event(uint32_t exit) const override { return exit_events_[exit]; }
  bool names_node() const override { return true; }

  void ComputeAsync(KernelContext& context, Done done) override {
    Job* run = jobs_.Take();
    run->segment = this;
    run->context = &context;
    run->done = std::move(done);
    run->step = GpuLauncher::Step(context);
    run->order = spec_.order;
    if (first_joint_ != nullptr) {
      run->trace = nullptr;
      if (run->joint == nullptr)
        run->joint = std::make_unique<JointLaunch>(&device_, first_joint_, joint_range_ >= 0);
      return run->joint->Begin(context, run, [this, run](const Status& status) {
        run->trace == nullptr ? End(run, status) : Traced(run, status);
      });
    }
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
    // `cancelled` names the life that was cancelled: a late cancel must not hit the next step that
    // has this record. Default order: two accesses per segment.
    std::atomic<uint64_t> life{0}, cancelled{0};
    // Of a traced step.
    StepTrace* trace = nullptr;
    std::vector<EventId> times;
    std::vector<int64_t> bytes;  // of the device that each node reads and writes
    int32_t thread = 0;
    std::unique_ptr<JointLaunch> joint;  // of a segment with joint collectives

    void Run() override { segment->Launch(this); }
    void Arrived(const Status& status) override { segment->Traced(this, status); }
  };

  void Launch(Job* run);
  void Traced(Job* run, const Status& status);
  void LaunchJoint(Job* run);
  void End(Job* run, const Status& status) {
    const Done done = std::move(run->done);
    jobs_.Give(run);
    done(status);
  }
  Status Execute(KernelContext& outer, Job* run);
  Status Enqueue(KernelContext& outer, Job* run);
  Status TakeEntries(SegmentVariant& variant, bool staged);
  Status Stage(const Tensor& tensor, Tensor* copy);
  Status StageKept(const SegmentRange& range, SegmentVariant& variant);
  Result<Tensor> CopyApart(const Tensor& tensor, const SegmentItem& item, const char* kind,
                           uint32_t index);
  Status KeepInputs(const SegmentItem& item, std::span<Tensor> inputs);
  SegmentVariant& FindVariant();
  Status RunRange(KernelContext& outer, SegmentVariant& variant, size_t index);
  Status RunJointRange(KernelContext& outer, SegmentVariant& variant, size_t index, bool replay,
                       Job* run);
  Status RunCollective(KernelContext& outer, const SegmentItem& item);
  // `keep`: where a range that is replayed holds its outputs; nullptr for other ranges.
  Status RunItems(KernelContext& outer, const SegmentRange& range, CapturedRange* keep, Job* run);
  Status RunOnce(KernelContext& outer, const SegmentRange& range, Job* run);
  Status RunItem(KernelContext& outer, const SegmentItem& item, CapturedRange* keep);
  int64_t BytesRead(const SegmentItem& item, ResourceManager& resources) const;
  int64_t BytesWritten(const SegmentItem& item) const;
  Status Fail(const SegmentItem& item, const Status& status);
  void Keep(const SegmentItem& item, const SegmentRange& range, int32_t index, CapturedRange* keep);
  Status PassOn(KernelContext& outer, const SegmentItem& item, bool exits);
  Status Capture(KernelContext& outer, const SegmentRange& range, CapturedRange* captured);
  bool HoldsAll(const CapturedRange& captured, int32_t first_block) const;
  Status LaunchFirst(KernelContext& outer, const SegmentRange& range, CapturedRange* captured);
  Status CaptureItems(KernelContext& outer, const SegmentRange& range, CapturedRange* captured);
  Status Replay(KernelContext& outer, const SegmentRange& range, CapturedRange* captured);
  Status Leave(KernelContext& outer, const SegmentRange& range, CapturedRange* captured, bool fill);

  SegmentSpec spec_;
  GpuDevice& device_;
  const std::shared_ptr<StreamDriver> driver_;
  GpuMemory& memory_;
  std::vector<SegmentRange> ranges_;
  std::vector<bool> keeping_;  // by slot: of a node that keeps()
  size_t staged_ = 0;          // places of SegmentVariant::staging
  JointCollective* first_joint_ = nullptr;
  int32_t joint_range_ = -1;  // the range with all of them, if it may be one graph
  std::vector<EventId> exit_events_;
  FreeList<Job> jobs_;
  // What follows is used on the launching thread only.
  std::vector<Tensor> slots_, outputs_, entries_;
  std::vector<std::unique_ptr<SegmentVariant>> variants_;
  uint64_t uses_ = 0;
  bool named_ = false;                // the failure of this run names its node already
  MemoryScript* script_ = nullptr;    // the open one
  MemoryScript* measured_ = nullptr;  // the same, in a run that measures
  SegmentVariant* variant_ = nullptr;
  // In a run node by node: the tensors that a graph would hold, and those that its capture would,
  // so that all take the same memory.
  std::vector<Tensor> held_, entered_;
  CapturedRange once_;
  JointLaunch* joint_ = nullptr;   // of this run
  bool falls_back_ = false;        // a capture that failed, to launches node by node
  std::vector<Buffer> exchanged_;  // what the collectives of this range read and write
  NodeObserver observer_;
};

Status SegmentImpl::Prepare() {
  slots_.resize(spec_.slots);
  entries_.resize(spec_.entries.size());
  size_t most = 0;
  for (const SegmentItem& item : spec_.items) most = std::max(most, item.outputs.size());
  outputs_.resize(most);
  ranges_ = MakeRanges(spec_);
  for (const SegmentItem& item : spec_.items) {
    if (first_joint_ == nullptr) first_joint_ = item.collective.get();
  }
  const auto joint = [](const SegmentRange& range) { return range.joint; };
  if (std::ranges::count_if(ranges_, joint) == 1) {
    const auto range = std::ranges::find_if(ranges_, joint);
    if (range->replay) joint_range_ = static_cast<int32_t>(range - ranges_.begin());
  }
  staged_ = spec_.entries.size();
  for (const SegmentRange& range : ranges_) staged_ += range.kept_ins.size();
  keeping_.resize(spec_.slots);
  for (const SegmentItem& item : spec_.items) {
    if (!item.keeps()) continue;
    for (size_t i = 0; i < item.inputs.size(); ++i) keeping_[item.first_input + i] = true;
  }
  for (const bool awaited : spec_.awaited_exits) {
    exit_events_.push_back(-1);
    if (!awaited) continue;
    MG_ASSIGN_OR_RETURN(exit_events_.back(), device_.driver().MakeEvent(/*timed=*/false));
  }
  return Status();
}

// ---- one run

// Its collectives' members have agreed that it is its turn. The run ends when the device has done
// it (ComputeAsync).
void SegmentImpl::LaunchJoint(Job* run) {
  JointLaunch& joint = *run->joint;
  run->trace = GpuLauncher::Trace(*run->context);
  run->thread = TraceThread();
  const Status status = Execute(*run->context, run);
  joint.Issued(status);
}

void SegmentImpl::Launch(Job* run) {
  if (first_joint_ != nullptr) return LaunchJoint(run);
  if (run->cancelled.load() == run->life.load())
    return End(run, Cancelled("the step was aborted").AsDerived());
  run->trace = GpuLauncher::Trace(*run->context);
  const Status status = Execute(*run->context, run);
  if (run->trace == nullptr || !status.ok()) {
    for (const EventId event : run->times) device_.driver().DropEvent(event);
    run->times.clear();
    run->bytes.clear();
    return End(run, status);
  }
  run->thread = TraceThread();
  device_.AwaitLast(Queue::kCompute, run);
}

// Adds the device's times of the nodes to the trace, shifted so that the last node ends now: the
// device's clock is another one.
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
                       .bytes = run->bytes[i],
                       .start_ns = now - *begin,
                       .end_ns = std::max(now - *end, now - *begin + 1)});
    }
  }
  for (const EventId event : run->times) driver.DropEvent(event);
  run->times.clear();
  run->bytes.clear();
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
  SegmentVariant& variant = FindVariant();
  const bool measure = !variant.script.planned();
  const bool planned = memory_.Open(&variant.script);
  const bool replay = planned && device_.options().replay && variant.replay && !measure &&
                      run->trace == nullptr &&
                      std::any_of(ranges_.begin(), ranges_.end(),
                                  [](const SegmentRange& range) { return range.replay; });
  script_ = &variant.script;
  variant_ = &variant;
  measured_ = planned && measure ? script_ : nullptr;
  Status status = TakeEntries(variant, replay);
  joint_ = run->joint.get();
  for (size_t i = 0; i < ranges_.size() && status.ok(); ++i) {
    if (planned) memory_.AtPoint(script_, i);
    if (ranges_[i].joint) {
      status = RunJointRange(outer, variant, i, replay, run);
    } else if (!ranges_[i].replay) {
      status = RunItems(outer, ranges_[i], nullptr, run);
    } else if (replay && !script_->stale()) {
      status = RunRange(outer, variant, i);
    } else {
      status = RunOnce(outer, ranges_[i], run);
    }
  }
  if (planned && status.ok()) memory_.AtPoint(script_, ranges_.size());
  if (joint_ != nullptr) status = joint_->EndRun(status);
  exchanged_.clear();
  held_.clear();
  once_.outputs.clear();  // of a run that failed
  measured_ = nullptr;
  for (Tensor& slot : slots_) slot.Reset();
  for (Tensor& output : outputs_) output.Reset();
  if (planned) memory_.Close(&variant.script);
  variant.CheckKept(*driver_);
  if (!status.ok() || variant.script.stale()) {
    variant.Forget(*driver_);
    if (status.ok() && ++variant.stale >= kMostStale) variant.replay = false;
  } else if (!measure) {
    variant.stale = 0;
  }
  return status;
}

SegmentVariant& SegmentImpl::FindVariant() {
  for (auto& variant : variants_) {
    if (!variant->Fits(entries_)) continue;
    variant->used = ++uses_;
    return *variant;
  }
  if (variants_.size() == kVariants) {
    const auto oldest =
        std::min_element(variants_.begin(), variants_.end(),
                         [](const auto& a, const auto& b) { return a->used < b->used; });
    (*oldest)->Forget(*driver_);
    variants_.erase(oldest);
  }
  auto variant = std::make_unique<SegmentVariant>(entries_, ranges_.size());
  variant->used = ++uses_;
  variants_.push_back(std::move(variant));
  return *variants_.back();
}

// A graph reads its inputs at the addresses of its capture: copy them there (`staged`). What may be
// kept is given as it came.
Status SegmentImpl::TakeEntries(SegmentVariant& variant, bool staged) {
  if (staged && variant.staging.empty()) variant.staging.resize(staged_);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::vector<uint32_t>& slots = spec_.entries[i];
    const Tensor* tensor = &entries_[i];
    if (staged && !spec_.host_entries[i] &&
        !std::all_of(slots.begin(), slots.end(), [&](uint32_t slot) { return keeping_[slot]; })) {
      MG_RETURN_IF_ERROR(Stage(*tensor, &variant.staging[i]));
      tensor = &variant.staging[i];
    }
    for (const uint32_t slot : slots) slots_[slot] = keeping_[slot] ? entries_[i] : *tensor;
  }
  return Status();
}

// Copies the tensor to `copy`, which has the memory of an earlier run if the shape is the same.
Status SegmentImpl::Stage(const Tensor& tensor, Tensor* copy) {
  static const std::string kOwner = "(inputs of graphs)";
  if (!copy->valid() || copy->dtype() != tensor.dtype() || !(copy->shape() == tensor.shape())) {
    Buffer buffer = memory_.AllocateApart(tensor.bytes(), &kOwner);
    if (!buffer)
      return ResourceExhausted("no memory for the inputs of a segment. " + memory_.Table());
    *copy = Tensor(tensor.dtype(), tensor.shape(), std::move(buffer));
  }
  if (tensor.bytes() == 0) return Status();
  return device_.Check(
      device_.driver().Copy(Queue::kCompute, copy->raw(), tensor.raw(), tensor.bytes()));
}

Status SegmentImpl::StageKept(const SegmentRange& range, SegmentVariant& variant) {
  for (const SegmentRange::Kept& kept : range.kept_ins) {
    Tensor& copy = variant.staging[kept.staged];
    MG_RETURN_IF_ERROR(Stage(slots_[kept.slots[0]], &copy));
    for (const uint32_t slot : kept.slots) slots_[slot] = copy;
  }
  return Status();
}

// ---- node by node

Status SegmentImpl::RunItems(KernelContext& outer, const SegmentRange& range, CapturedRange* keep,
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
    int64_t bytes = traced ? BytesRead(item, outer.resources()) : 0;
    MG_RETURN_IF_ERROR(RunItem(outer, item, keep));
    if (traced) run->bytes.push_back(bytes + BytesWritten(item));
    if (keep != nullptr) Keep(item, range, i, keep);
    MG_RETURN_IF_ERROR(PassOn(outer, item, /*exits=*/keep == nullptr));
    if (traced) MG_RETURN_IF_ERROR(device_.Check(stamp()));
  }
  if (range.joint) {
    MG_RETURN_IF_ERROR(joint_->LeaveRange());
    exchanged_.clear();
  }
  return Status();
}

// Launches node by node a range that other runs replay.
Status SegmentImpl::RunOnce(KernelContext& outer, const SegmentRange& range, Job* run) {
  once_.outputs.assign(range.live_outs.size(), CapturedRange::Output());
  for (const SegmentRange::Kept& kept : range.kept_ins) held_.push_back(slots_[kept.slots[0]]);
  for (const auto& [slot, host] : range.live_ins) {
    const void* const data = std::as_const(slots_[slot]).buffer().data();
    if (!host && (memory_.InArena(data) || memory_.Owns(*script_, data)))
      entered_.push_back(slots_[slot]);
  }
  const Status ran = RunItems(outer, range, &once_, run);
  entered_.clear();
  MG_RETURN_IF_ERROR(ran);
  MG_RETURN_IF_ERROR(Leave(outer, range, &once_, /*fill=*/false));
  for (CapturedRange::Output& held : once_.outputs) {
    if (held.owned) held_.push_back(std::move(held.tensor));
  }
  once_.outputs.clear();
  return Status();
}

// What the node gets in the device's memory: each tensor once, and each variable, which it also
// writes unless it only reads.
int64_t SegmentImpl::BytesRead(const SegmentItem& item, ResourceManager& resources) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const Tensor& input = slots_[item.first_input + i];
    if (item.inputs[i] == DT_RESOURCE) {
      for (int64_t k = 0; k < input.elements(); ++k) {
        const ResourceHandle& handle = input.handles()[k];
        const auto variable = resources.Find<Variable>(handle.container, handle.name);
        if (!variable.ok()) continue;
        ReaderLock lock((*variable)->mutex);
        bytes += static_cast<int64_t>((*variable)->value.bytes()) * (item.reads_only ? 1 : 2);
      }
    } else if (!item.host_inputs[i]) {
      bytes += static_cast<int64_t>(input.bytes());
    }
  }
  return bytes;
}

int64_t SegmentImpl::BytesWritten(const SegmentItem& item) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    if (!item.host_outputs[i] && item.outputs[i] != DT_RESOURCE)
      bytes += static_cast<int64_t>(outputs_[i].bytes());
  }
  return bytes;
}

Status SegmentImpl::Fail(const SegmentItem& item, const Status& status) {
  named_ = true;
  const Status checked = device_.Check(status);
  if (checked.code() == Code::kResourceExhausted)
    return checked.WithMessage(checked.message() + ". " + memory_.Table()).WithContext(item.who);
  return checked.WithContext(item.who);
}

Status SegmentImpl::RunItem(KernelContext& outer, const SegmentItem& item, CapturedRange* keep) {
  memory_.SetOwner(item.owner);
  if (item.collective != nullptr) return RunCollective(outer, item);
  KernelContext context;
  GpuLauncher::Begin(&context, outer, device_);
  const std::span<Tensor> inputs(slots_.data() + item.first_input, item.inputs.size());
  GpuLauncher::Set(&context, inputs, {outputs_.data(), item.outputs.size()}, item.outputs.data(),
                   item.host_inputs.get(), item.host_outputs.get());
  if (keep != nullptr && keep != &once_) keep->HoldVariables(item, inputs, outer.resources());
  const bool keeps = item.keeps();
  if (keeps) MG_RETURN_IF_ERROR(KeepInputs(item, inputs));
  observer_.Before(item, inputs);
  if (keeps) GpuLauncher::UseMemory(&context, memory_.kept());
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
  observer_.Issued(item, {outputs_.data(), item.outputs.size()}, outer);
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

// What it reads and writes stays in use to the end of the range: kMembers goes on beside kCompute.
Status SegmentImpl::RunCollective(KernelContext& outer, const SegmentItem& item) {
  KernelContext context;
  GpuLauncher::Begin(&context, outer, device_);
  const std::span<Tensor> inputs(slots_.data() + item.first_input, item.inputs.size());
  GpuLauncher::Set(&context, inputs, {outputs_.data(), item.outputs.size()}, item.outputs.data(),
                   item.host_inputs.get(), item.host_outputs.get());
  std::vector<Tensor> outputs;
  const Status status = joint_->Enqueue(*item.collective, context, device_.allocator(), item.owner,
                                        &outputs, &exchanged_);
  for (const Tensor& output : outputs) exchanged_.push_back(output.buffer());
  if (!status.ok()) return Fail(item, status);
  std::ranges::move(outputs, outputs_.begin());
  return Status();
}

// What the node may keep must stay as it is when this segment runs again, maybe in the same step:
// it lies outside the arena, and is copied if a graph will write it.
Status SegmentImpl::KeepInputs(const SegmentItem& item, std::span<Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (item.host_inputs[i]) continue;
    Tensor& input = inputs[i];
    const void* data = std::as_const(input).raw();
    if (measured_ != nullptr) {
      memory_.KeepApart(measured_, data);
    } else if (memory_.InArena(data) || variant_->Rewrites(input.buffer())) {
      MG_ASSIGN_OR_RETURN(input, CopyApart(input, item, "input", static_cast<uint32_t>(i)));
    }
  }
  return Status();
}

// A copy of the node's input or output (`kind`) that no script and no graph knows of.
Result<Tensor> SegmentImpl::CopyApart(const Tensor& tensor, const SegmentItem& item,
                                      const char* kind, uint32_t index) {
  Buffer buffer = memory_.AllocateApart(tensor.bytes(), item.owner);
  if (!buffer) {
    return Fail(item, ResourceExhausted("no memory for " + std::string(kind) + " " +
                                        std::to_string(index)));
  }
  Tensor copy(tensor.dtype(), tensor.shape(), std::move(buffer));
  if (tensor.bytes() > 0) {
    MG_RETURN_IF_ERROR(device_.Check(
        device_.driver().Copy(Queue::kCompute, copy.raw(), tensor.raw(), tensor.bytes())));
  }
  return copy;
}

// Holds what later nodes need of a range that is replayed: it stays at its address from run to run.
void SegmentImpl::Keep(const SegmentItem& item, const SegmentRange& range, int32_t index,
                       CapturedRange* keep) {
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    const SegmentRange::LiveOut& live = range.live_outs[i];
    if (live.item != index) continue;
    CapturedRange::Output& held = keep->outputs[i];
    held.tensor = outputs_[live.output];
    if (item.host_outputs[live.output]) continue;
    held.owned = memory_.Owns(*script_, held.tensor.buffer().data());
    if (held.owned && measured_ != nullptr)
      memory_.KeepApart(measured_, std::as_const(held.tensor).raw());
    // Hold no variable's value that stays within the segment: while held it could not be updated in
    // place.
    if (held.owned || !live.exits.empty()) continue;
    if (keep == &once_) {
      held.tensor.Reset();
    } else {
      keep->HoldView(&held, variant_->staging);
    }
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

Status SegmentImpl::RunRange(KernelContext& outer, SegmentVariant& variant, size_t index) {
  const SegmentRange& range = ranges_[index];
  CapturedRange& captured = variant.ranges[index];
  if (captured.off) return RunOnce(outer, range, nullptr);
  MG_RETURN_IF_ERROR(StageKept(range, variant));
  if (captured.graph >= 0) {
    if (captured.Valid(memory_.arena(), slots_)) return Replay(outer, range, &captured);
    captured.Drop(*driver_);
  }
  if (captured.captures >= kMostCaptures) {
    captured.off = true;
    return RunOnce(outer, range, nullptr);
  }
  return Capture(outer, range, &captured);
}

// A range with joint collectives: all members go the same way.
Status SegmentImpl::RunJointRange(KernelContext& outer, SegmentVariant& variant, size_t index,
                                  bool replay, Job* run) {
  using Way = JointLaunch::Way;
  const SegmentRange& range = ranges_[index];
  CapturedRange& captured = variant.ranges[index];
  MG_RETURN_IF_ERROR(joint_->EnterRange());
  if (joint_range_ < 0) return RunItems(outer, range, nullptr, run);
  Way can = Way::kNodes;
  if (replay && !script_->stale() && !captured.off) {
    MG_RETURN_IF_ERROR(StageKept(range, variant));
    if (captured.has_graph() && joint_->Uses(captured.communicator) &&
        captured.Valid(memory_.arena(), slots_)) {
      can = Way::kReplay;
    } else if (captured.captures < kMostCaptures) {
      can = Way::kCapture;
    } else {
      captured.off = true;
    }
  }
  MG_ASSIGN_OR_RETURN(const Way way, joint_->Agree(can, captured.capture));
  if (way == Way::kReplay) return Replay(outer, range, &captured);
  captured.Drop(*driver_);
  return way == Way::kCapture ? Capture(outer, range, &captured) : RunOnce(outer, range, run);
}

Status SegmentImpl::Capture(KernelContext& outer, const SegmentRange& range,
                            CapturedRange* captured) {
  MG_RETURN_IF_ERROR(captured->Begin(range, slots_, memory_.arena()));
  std::vector<std::pair<uint32_t, const void*>> filled;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].valid()) filled.emplace_back(slot, slots_[slot].buffer().data());
  }
  const int32_t first_block = script_->next();
  if (const Status launched = LaunchFirst(outer, range, captured); !launched.ok()) {
    const Status failed = device_.Check(launched);
    if (!device_.health().ok()) return failed;
    ++device_.graph_counts().fallbacks;
    const SegmentItem &first = spec_.items[static_cast<size_t>(range.begin)],
                      &last = spec_.items[static_cast<size_t>(range.end) - 1];
    const std::string what = "the graph from " + first.who + " to '" + last.name + "'";
    LogWarning(what + " is not captured as a CUDA graph (" + failed.message() +
               (falls_back_ ? "); its nodes are launched one by one" : "); the step fails"));
    const Status restored = captured->RestoreVariables(failed);
    if (restored.ok()) captured->GiveBack(slots_, variant_->staging);
    captured->Drop(*driver_);
    captured->off = true;
    named_ = !restored.ok();
    MG_RETURN_IF_ERROR(restored.WithContext(what));
    if (!falls_back_) return failed;
    script_->SkipTo(first_block);
    return RunOnce(outer, range, nullptr);
  }
  ++device_.graph_counts().captures;
  ++captured->captures;
  const bool stay = captured->HoldPlaces(filled) && !captured->off;
  if (stay && !HoldsAll(*captured, first_block)) script_->SetStale();
  MG_RETURN_IF_ERROR(Leave(outer, range, captured, /*fill=*/false));
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    CapturedRange::Output& held = captured->outputs[i];
    if (!range.live_outs[i].host && !held.owned && held.tensor.valid())
      captured->HoldView(&held, variant_->staging);
  }
  if (!stay) captured->Drop(*driver_);
  return Status();
}

// Whether the graph's blocks outside the arena are its own from run to run. One that is not was
// planned for what outlives the run, and is used for something else now: others may get it.
bool SegmentImpl::HoldsAll(const CapturedRange& captured, int32_t first_block) const {
  if (script_->stale()) return false;
  const std::vector<const void*> taken = script_->Apart(first_block);
  return std::all_of(taken.begin(), taken.end(), [&](const void* data) {
    return std::any_of(captured.outputs.begin(), captured.outputs.end(), [data](const auto& held) {
      return held.owned && held.tensor.buffer().data() == data;
    });
  });
}

// Captures the range and launches the graph. After a failure nothing that was issued meanwhile has
// run, or will.
Status SegmentImpl::LaunchFirst(KernelContext& outer, const SegmentRange& range,
                                CapturedRange* captured) {
  StreamDriver& driver = device_.driver();
  falls_back_ = !range.joint;
  const Status status = CaptureItems(outer, range, captured);
  if (range.joint) {
    // The step's abort tells the others.
    if (const Status failed = device_.Check(status); !failed.ok() && !joint_->usable())
      return failed;
    // All launch their graphs, or none.
    MG_ASSIGN_OR_RETURN(const bool all, joint_->AllHaveCaptured(status.ok()));
    falls_back_ = !all;
    if (status.ok() && !all) return Aborted("another member's is not captured");
  }
  MG_RETURN_IF_ERROR(status);
  captured->next_block = script_->next();
  return captured->Launch(driver);
}

Status SegmentImpl::CaptureItems(KernelContext& outer, const SegmentRange& range,
                                 CapturedRange* captured) {
  StreamDriver& driver = device_.driver();
  MG_RETURN_IF_ERROR(driver.BeginCapture());
  const Status issued = RunItems(outer, range, captured, nullptr);
  const Result<GraphId> graph = driver.EndCapture();
  if (graph.ok() && range.joint) {
    captured->joint = std::make_shared<JointGraph>(driver_, *graph);
    captured->communicator = joint_->communicator();
    captured->capture = joint_->number();
    joint_->Keep(captured->joint);
  } else if (graph.ok()) {
    captured->graph = *graph;
  }
  MG_RETURN_IF_ERROR(issued);
  return graph.status();
}

Status SegmentImpl::Replay(KernelContext& outer, const SegmentRange& range,
                           CapturedRange* captured) {
  captured->captures = 0;
  MG_RETURN_IF_ERROR(device_.Check(captured->Launch(device_.driver())));
  ++device_.graph_counts().replays;
  script_->SkipTo(captured->next_block);
  for (const auto& [slot, host] : range.live_ins) slots_[slot].Reset();
  return Leave(outer, range, captured, /*fill=*/true);
}

// Passes on the range's outputs, to later nodes (`fill`) and out of the segment. What leaves gets
// memory of its own, since the graph writes its own again in the next step.
Status SegmentImpl::Leave(KernelContext& outer, const SegmentRange& range, CapturedRange* captured,
                          bool fill) {
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    const SegmentRange::LiveOut& live = range.live_outs[i];
    if (!fill && live.exits.empty()) continue;
    Tensor output = captured->View(captured->outputs[i], variant_->staging);
    if (fill) {
      for (const uint32_t slot : live.slots) slots_[slot] = output;
    }
    if (live.exits.empty()) continue;
    if (!live.host) {
      const SegmentItem& item = spec_.items[static_cast<size_t>(live.item)];
      MG_ASSIGN_OR_RETURN(output, CopyApart(output, item, "output", live.output));
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
