// One run of a segment, on the launching thread (Launch, Execute, Enqueue): kCompute waits for the
// copies that come in, the variant for these input shapes is found, its memory script is opened,
// and the ranges follow each other, each launched node by node (segment_nodes.cc) or as a graph
// (segment_graphs.cc).
#include "executor/gpu/segment.h"

#include <algorithm>

#include "executor/gpu/segment_impl.h"
#include "executor/trace.h"

namespace monograph {
namespace {

// Sets of input shapes for which plans and graphs are kept.
constexpr size_t kVariants = 4;
// Runs in a row that made a script stale: from then on nodes are launched one by one.
constexpr int kMostStale = 3;

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
