// JointLaunch: one run of a segment with joint collectives (graph/joint_collectives.h), which is
// launched together with those of other GPUs. For their order among each other and among other
// collectives the segment is one collective: its members meet (roll call), agree on its place in
// the order of launches (executor/gpu/members.h), and each launches it when it is its turn. So
// what is enqueued may wait on the GPU for the other members: they have all that they wait for, and
// launch this before anything that comes later. Since kCompute then waits for kMembers, what other
// segments of the GPU have behind it waits, too.
//
// The range with the collectives is replayed by all members, captured by all or launched node by
// node by all, as NCCL demands: they meet once more where it begins, and after a capture.
//
// Begin: any thread. The rest: the launching thread, from the task's Run on; it may wait there for
// the other members, which are as far, or will be without this one's help.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_kernel.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/members.h"

namespace monograph {

// A collective that is launched within a segment.
struct JointCollective {
  std::unique_ptr<CollectiveKernel> kernel;
  DeviceMerge merge;
};

// A graph that refers to a communicator, which cannot end before the graph is gone. Thread-safe.
class JointGraph {
 public:
  JointGraph(std::shared_ptr<StreamDriver> driver, GraphId graph)
      : driver_(std::move(driver)), graph_(graph) {}
  JointGraph(const JointGraph&) = delete;
  JointGraph& operator=(const JointGraph&) = delete;
  ~JointGraph() { Drop(); }
  Status Launch();
  void Drop();

 private:
  const std::shared_ptr<StreamDriver> driver_;
  Mutex mutex_;
  GraphId graph_ MG_GUARDED_BY(mutex_);  // -1: dropped
  bool launching_ MG_GUARDED_BY(mutex_) = false;
  bool dropped_ MG_GUARDED_BY(mutex_) = false;
};

class JointLaunch {
 public:
  enum class Way : uint8_t { kNodes, kCapture, kReplay };

  // `first` stands for all collectives of the segment where members meet. `may_capture`: the range
  // with the collectives may be one graph; it is never if a member's may not.
  JointLaunch(GpuDevice* device, JointCollective* first, bool may_capture);
  JointLaunch(const JointLaunch&) = delete;
  JointLaunch& operator=(const JointLaunch&) = delete;
  ~JointLaunch();

  // `task` is posted to the launching thread when it is the segment's turn; its Run calls Issued.
  // `done` is called once, on any thread, when the GPU has done what was issued. After a failure
  // perhaps without the task.
  void Begin(KernelContext& context, LaunchTask* task, Done done);

  // Before the range: kCompute waits for what is on kMembers.
  Status EnterRange();
  // Which way the range goes. `can`: the most that this member can. `capture`: the number of the
  // capture that its graph is of (0: none); all that replay have the same.
  Result<Way> Agree(Way can, uint64_t capture);
  // Whether collectives can still be enqueued, after a failure.
  bool usable() const;
  // Whether all members have captured the range.
  Result<bool> AllHaveCaptured(bool captured);
  // Enqueues a collective, behind what is on kCompute. `context` has its inputs; `memory` is that
  // of kCompute. What is put into `held` stays in use until LeaveRange.
  Status Enqueue(JointCollective& collective, KernelContext& context, Allocator* memory,
                 const std::string* owner, std::vector<Tensor>* outputs, std::vector<Buffer>* held);
  // kCompute waits for the collectives. In a capture, too.
  Status LeaveRange();
  // Ends what is under way if `status` is a failure; memory of kMembers may be freed behind
  // kCompute from here on.
  Status EndRun(const Status& status);
  // The last call of the task.
  void Issued(const Status& status);

  uint64_t number() const;  // of this run, the same for all members; not 0
  // Whether a graph is of the communicator that this run uses.
  bool Uses(const std::weak_ptr<void>& communicator) const;
  std::weak_ptr<void> communicator() const;
  // `graph` goes before the communicator does.
  void Keep(const std::shared_ptr<JointGraph>& graph);

 private:
  // What comes on `queue` runs behind what is on `other`.
  Status Follow(Queue queue, Queue other, EventId event);

  GpuDevice& device_;
  const std::shared_ptr<StreamDriver> driver_;  // which may outlive the device
  const std::shared_ptr<GpuMembers> members_;
  JointCollective& first_;
  const bool may_capture_;
  EventId fork_ = -1, join_ = -1;
  MemberOperationPtr operation_;  // of the run
};

}  // namespace monograph
