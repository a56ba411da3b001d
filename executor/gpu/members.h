// Collectives that go from GPU to GPU, without the host's memory.
//
//   the plan's thread   the inputs are on the GPU, or will be: an event is recorded on kCompute
//   entering            a group whose members are found at run time (one client per worker) forms: each
//                       now knows the others and their links. Is one without, all go through the host
//   roll call           the members meet as in any collective (executor/collective/collective.h): each gathers
//                       a row of every other. Whoever does not come is named, by a deadline
//   numbers             all are there: they meet again, to agree on the collective's place in the
//                       order of launches (LaunchOrder)
//   members thread      one per device. In that order it enqueues on kMembers: exchanges, and sums in
//                       between
//   completing thread   the device has done it: the kernel is done
//
// Sums are made in rank order, unless all members allow any (Communicators::any_order), as in host
// memory, by the device's own kernels. A ring would add up in another order for each share. On one
// node each rank adds up a share of the elements; over several nodes, sums go from node to node
// (executor/gpu/exchange_plan.h). Which node it is on each member says in its row.
//
// Nothing on another queue waits for kMembers, but in joint segments (executor/gpu/joint_launch.h),
// which have their place in the order: who needs a result begins when it is there. So whatever a
// collective waits for on the device comes to an end, and no order of launches but the one of
// collectives matters. A place in the order is asked for only when all members are there: a
// member that waits for the result of another collective keeps that one from its place no longer
// than a message takes.
//
// Groups that are found. Every meeting is one of the round that the member entered
// (CollectiveManager::Enter), so that epochs, the order of rounds and failures are those of host
// memory; their end reaches what is under way on the GPU, too (Broken). Which way a group goes
// follows from the links that its members have told when they joined, so all choose alike. Through
// the host a member copies its inputs there and the outputs back by itself (ThroughHost).
//
// Communicators. A row names the communicator that the member has. If all have the same it is used;
// else the members meet once more, when it is the collective's turn, and make one by an id of rank
// 0's. They meet a last time when all have joined, before the first exchange: joining allocates and
// loads kernels, for which CUDA may wait until the GPU has nothing left to do, and an exchange of
// the others' that runs there would itself wait for this member. One is used for the same
// collectives in the same order by all members, or no more: who leaves out a collective that others
// may have launched (its step was aborted) closes its own, and when a step with a collective under
// way is aborted, or a deadline passes, the communicator is aborted, so that what is enqueued ends.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "executor/collective/collective_kernel.h"
#include "executor/gpu/communicator.h"
#include "executor/gpu/copies.h"
#include "executor/gpu/exchange_plan.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/grains.h"
#include "executor/gpu/launch_order.h"
#include "executor/gpu/launcher.h"
#include "executor/kernel.h"

namespace monograph {

// Links of the devices of a session (DeviceInfo::link), by full name. Devices without are not
// there.
using DeviceLinks = std::map<std::string, std::string>;

// Empty if all of these devices reach each other without the host; else why not, in words.
std::string WhyNoLink(const CollectiveMembers& members, const DeviceLinks& links);
// A number for the node that a link, "library/node/card", names.
uint64_t NodeOfLink(std::string_view link);
// Which way their collectives go, for the log. `why_not`: of WhyNoLink, or another reason.
std::string DescribeWay(const CollectiveMembers& members, const DeviceLinks& links,
                        const std::string& why_not);
// Whether `device` reaches any other one: if not, no group of it that is found goes from GPU to
// GPU.
bool ReachesAny(const std::string& device, const DeviceLinks& links);

// Merges on the device, in rank order.
struct DeviceMerge {
  std::unique_ptr<Kernel> kernel;  // nullptr: nothing is merged
  bool adds = false;               // it is a sum, of any number; else it takes two
};

class JointGraph;
class JointLaunch;

// One member's part in one collective, or in a joint segment's.
struct MemberOperation;
using MemberOperationPtr = std::shared_ptr<MemberOperation>;

class GpuMembers : public DeviceWork, public std::enable_shared_from_this<GpuMembers> {
 public:
  static std::shared_ptr<GpuMembers> Of(GpuDevice* device);
  explicit GpuMembers(GpuDevice* device) : device_(*device), name_(device->name()) {}
  ~GpuMembers() override;  // REQUIRES: Stop was called

  // On the launching thread. `operation->done` is called once, on any thread.
  void Begin(const MemberOperationPtr& operation);
  // The same for a joint segment, on any thread.
  void BeginJoint(const MemberOperationPtr& operation);
  void Cancel(const MemberOperationPtr& operation);
  // Ends what is under way; nothing begins any more.
  void Stop() override;

 private:
  friend struct MemberOperation;
  friend class JointLaunch;
  // A communicator that was joined.
  struct Connection {
    uint64_t key = 0;  // of its id
    std::unique_ptr<Communicator> communicator;
    bool closed = false;     // for what is not under way
    bool broken = false;     // aborted
    bool ended = false;      // the abort is over
    bool launching = false;  // an exchange is not known to be on the queue; of whoever launches
    std::vector<std::weak_ptr<JointGraph>> graphs;  // that refer to it
  };
  // What this member knows of a group (a list of devices): its communicator, and how many
  // collectives of the group it has left out.
  struct Group {
    std::shared_ptr<Connection> connection;
    uint64_t left_out = 0;  // collectives that others may have launched
  };

  Status TakeEvent(MemberOperation& operation);
  Status MarkInputs(MemberOperation& operation);
  void Alone(const MemberOperationPtr& operation);
  void Enter(const MemberOperationPtr& operation);
  void Entered(const MemberOperationPtr& operation, const Status& status);
  void Broken(const MemberOperationPtr& operation, const Status& status);
  void Refuse(const MemberOperationPtr& operation, const Status& status);
  void Announce(const MemberOperationPtr& operation);
  Status MakeRollCall(const MemberOperationPtr& operation);
  void Heard(const MemberOperationPtr& operation, const Status& status,
             const std::vector<Tensor>& rows);
  void Numbered(const MemberOperationPtr& operation, const Status& status,
                const std::vector<Tensor>& rows);
  // OK if the operation may continue after a meeting that ended with `status`.
  Status MayGoOn(const MemberOperation& operation, const Status& status) const MG_REQUIRES(mutex_);
  void LeaveOut(MemberOperation& operation) MG_REQUIRES(mutex_);
  // members_host.cc: a collective through host memory.
  void ThroughHost(const MemberOperationPtr& operation);
  void CopyByHost(const MemberOperationPtr& operation);
  Status CopyDown(MemberOperation& operation);
  Status CopyUp(MemberOperation& operation);
  void OnHost(const MemberOperationPtr& operation, const Status& status);
  void FromHost(const MemberOperationPtr& operation, const Status& status,
                std::vector<Tensor> outputs);
  void NeedThread() MG_REQUIRES(mutex_);
  void Thread();
  void Retire() MG_REQUIRES(mutex_);                   // gives the lock back meanwhile
  void Abort(std::shared_ptr<Connection> connection);  // ends it, without waiting for that
  void AwaitAbort(const Connection& connection);
  void Watch() MG_REQUIRES(mutex_);  // gives the lock back meanwhile
  void Launch(const MemberOperationPtr& operation);
  Status Enqueue(MemberOperation& operation);
  Status IssueJoint(MemberOperation& operation);
  Status Connect(MemberOperation& operation);
  // Which communicator is to be used; one with an id is to be joined.
  struct Agreement {
    uint64_t key = 0;
    std::string id;
  };
  Result<Agreement> Agree(MemberOperation& operation);
  // What the members meet for in one collective.
  enum class Meeting : uint8_t { kRollCall, kNumbers, kCommunicator, kJoined, kWay, kCaptured };
  // Waits on the members thread, or in a joint launch on the launching one, for a meeting; what the
  // members say.
  Result<Tensor> Meet(MemberOperation& operation, Meeting meeting, std::string_view row);
  std::shared_ptr<CollectiveRequest> MeetingFor(const MemberOperation& operation, Meeting meeting,
                                                std::string_view row) const;
  Status WaitUntilReady(MemberOperation& operation);
  Status Exchange(MemberOperation& operation, std::span<const Communicator::Send> sends,
                  std::span<const Communicator::Receive> receives);
  // What `issue` does with the communicator, until it is on the queue.
  template <typename IssueFn>
  Status IssueAndWait(MemberOperation& operation, IssueFn issue);
  Status Reduce(MemberOperation& operation);
  Status ReduceInAnyOrder(MemberOperation& operation);
  Status Broadcast(MemberOperation& operation);
  Status Gather(MemberOperation& operation);
  static NodeRanks NodesOf(const MemberOperation& operation, size_t bytes);
  // Which elements of the inputs and outputs the plan's units are.
  using PartsFn = std::function<std::vector<TensorPart>(UnitRange)>;
  Status Follow(MemberOperation& operation, const ExchangePlan& plan, const PartsFn& parts);
  // Memory that `queue` may write.
  Result<Buffer> Allocate(MemberOperation& operation, size_t bytes, Queue queue = Queue::kMembers);
  Result<Tensor> AllocateTensor(MemberOperation& operation, const Shape& shape);
  Status Merge(MemberOperation& operation, const std::vector<Tensor>& inputs, Tensor output);
  // Aborts it, and fails what is under way on it: `culprit` by `why`.
  void BreakOff(const std::shared_ptr<Connection>& connection, const Status& why,
                const MemberOperation* culprit);
  void Passed(const MemberOperationPtr& operation, const Status& status);
  void End(const MemberOperationPtr& operation, const Status& status);
  void Wake() { changed_.NotifyAll(); }

  GpuDevice& device_;
  const std::string name_;  // the device's; threads that abort may outlive it
  Mutex mutex_;
  CondVar changed_;
  LaunchOrder<MemberOperationPtr> order_ MG_GUARDED_BY(mutex_);
  std::vector<MemberOperationPtr> under_way_ MG_GUARDED_BY(mutex_);
  std::deque<MemberOperationPtr> by_host_ MG_GUARDED_BY(mutex_);  // that the thread is to copy
  std::set<std::string> told_ MG_GUARDED_BY(mutex_);              // of DescribeWay
  // By devices in rank order.
  std::map<std::vector<std::string>, Group> groups_ MG_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Connection>> retired_ MG_GUARDED_BY(mutex_);  // may still be in use
  int aborting_ MG_GUARDED_BY(mutex_) = 0;             // communicators, by threads of their own
  std::vector<EventId> events_ MG_GUARDED_BY(mutex_);  // that are free
  bool stopped_ MG_GUARDED_BY(mutex_) = false;
  std::thread thread_ MG_GUARDED_BY(mutex_);
};

// The kernel of a collective whose inputs and outputs are on the GPU. `kernel`: that of the op.
// `inbounds`: copies that its inputs come from. `owner`: of memory.
std::unique_ptr<AsyncKernel> MakeMemberKernel(GpuDevice* device,
                                              std::unique_ptr<CollectiveKernel> kernel,
                                              DeviceMerge merge,
                                              std::vector<std::shared_ptr<const Inbound>> inbounds,
                                              HostPlaces places, const std::string* owner);

}  // namespace monograph
