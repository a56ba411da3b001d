// A range of a segment as a graph: captured (Capture), and replayed from then on (Replay). A graph
// that cannot be captured or launched is no error: a warning says why, and its nodes are launched
// one by one. What they do to variables on the host while they are captured is taken back before
// that, since nothing of it has run on the device. A range with joint collectives goes the way that
// all members go (RunJointRange).
#include <algorithm>

#include "base/log.h"
#include "executor/gpu/segment_impl.h"

namespace monograph {
namespace {

// Captures in a row of a range of which none was replayed: from then on its nodes are launched one
// by one.
constexpr int kMostCaptures = 3;

}  // namespace

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

}  // namespace monograph
