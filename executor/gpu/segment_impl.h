// The segment's kernel (executor/gpu/segment.h). One run, on the launching thread: executor/gpu/
// segment.cc; its nodes, one by one: segment_nodes.cc; its graphs: segment_graphs.cc. Private to
// these.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/free_list.h"
#include "executor/gpu/joint_launch.h"
#include "executor/gpu/launcher.h"
#include "executor/gpu/node_observer.h"
#include "executor/gpu/segment.h"
#include "executor/gpu/segment_replay.h"

namespace monograph {

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

}  // namespace monograph
