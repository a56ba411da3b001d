// Collectives: operations in which devices take part together: all-reduce, broadcast and gather
// over the members of a group, which are devices of one task, of the tasks of one session, or of
// tasks that different clients drive, each by a session of its own.
//
// A group is a number, `group_key`; its members are devices, and a member's rank is its position
// in the group's order. An operation of a group is a number, too, `instance_key`: every member
// begins it once per round, and it ends when all have.
//
// Who the members are. Either the request says so (`members`); then one client drives them all, and
// a round is a step of its session. Or they are found: each member joins at the group's leader, the
// first task of the member's job in its session, which answers when `group_size` devices have
// joined: ranks follow the devices' names, and the group gets an epoch, a random number. If one
// session drives all members, a round of the epoch is a step; otherwise each member counts the
// rounds, in the order of its steps, several of which may be in flight.
//
// Order of sums. Element k of the result is merge(...merge(merge(r0, r1), r2)..., rN-1) on every
// route: the bits are those of AddN of the inputs in rank order.
//
// How it moves (executor/collective/route.h, with the floor of each): small inputs go from each
// member to all; larger ones to the task that sums its share of the elements, which sends the sums
// to the others; where several tasks share a host's wire, or many have a host each, sums grow along
// a chain of hosts, so that a host sends each byte twice, however many ranks there are. Payloads go
// from and into the tensors' own memory; within a task they do not move at all. A broadcast goes
// from its sender to each task, and what is gathered from each member to all: their bytes are few
// or travel once (the first values of a run, the rows of a batch).
//
// Failures. A member that does not come fails the round on those that wait, by DeadlineExceeded
// with its name (where members do not hear from all others, along a chain or of a broadcast, tasks
// are asked who is there once the deadline has passed); a task that is lost, or whose client is, by
// Unavailable with its name. In a group that was found a failure, or a step of a member that fails,
// ends the epoch on every member: rounds of it that wait fail, as do later operations of the same
// step; the next step joins anew. After a task was lost no step of the session joins anew: all fail
// at once, naming it. The same holds at the end of the data: a step of a member that fails with
// OutOfRange ends the epoch with that code, except for the rounds that the member has ended, and
// later steps fail with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/done.h"
#include "base/tensor.h"
#include "transport/transport.h"

namespace monograph {

class CollectiveHome;
class KernelConstruction;  // executor/kernel.h
class ThreadPools;         // executor/thread_pools.h
struct StepMessage;        // executor/worker/step_message.h

enum class CollectiveKind : uint8_t { kReduce = 1, kBroadcast = 2, kGather = 3 };

// z[i] = merge(x[i], y[i]) for i in [0, n); z may be x.
using CollectiveMerge = void (*)(const void* x, const void* y, void* z, int64_t n);
// Turns n merged elements into results, in place.
using CollectiveFinal = void (*)(void* z, int64_t n, int ranks);

// A group's devices in rank order. Immutable.
struct CollectiveMembers {
  std::vector<std::string> devices;  // full names, by rank
  std::vector<std::string> tasks;    // distinct, in order of their first rank
  std::vector<int> task_of;          // by rank: index into tasks

  int size() const { return static_cast<int>(devices.size()); }
  // "rank 1 (/job:worker/replica:0/task:1/device:CPU:0)"
  std::string Describe(int rank) const;
};
// InvalidArgument for a name that is not full or comes twice.
Result<std::shared_ptr<const CollectiveMembers>> MakeCollectiveMembers(
    std::vector<std::string> devices);

// One member's part in one operation.
struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::kReduce;
  std::string_view op;  // for messages; lives as long as the kernels
  std::string device;   // the member: a full device name of this task
  uint64_t step = 0;
  int group_size = 0;
  int group_key = 0;
  int instance_key = 0;
  // Tells apart operations of one instance in one round, where `members` are given or `entered` is.
  uint8_t meeting = 0;
  std::shared_ptr<const CollectiveMembers> members;  // nullptr: to be found
  DType dtype = DT_INVALID;
  std::vector<Tensor>
      inputs;   // reduce: one or more; gather and a broadcast's sender: one; its receivers: none
  Shape shape;  // of what a broadcast's receiver expects
  uint8_t merge_op = 0;             // any number: members must agree
  CollectiveMerge merge = nullptr;  // reduce
  CollectiveFinal final = nullptr;  // nullptr: none
  std::chrono::milliseconds timeout{30'000};
  // Called once, on any thread, perhaps inside the call. The outputs (reduce: one for each input;
  // else one) may share memory with those of other members.
  std::function<void(const Status&, std::vector<Tensor> outputs)> done;
  // Of a request that enters: called at most once, on any thread, if the group's epoch ends before
  // Leave. It may come before `done`.
  std::function<void(const Status&)> broken;
  // The request that has entered the round in which this one takes part; nullptr: none has.
  std::shared_ptr<CollectiveRequest> entered;

  // Set by the manager.
  uint64_t session = 0;
  bool cancelled = false;
  int rank = -1;  // while it takes part in an operation
  std::chrono::steady_clock::time_point deadline;
  // Of one that enters: the round and, by rank, CollectiveHost::LinkOf.
  bool enters = false;
  bool epoch_breaks = false;  // if an operation of the round fails
  uint64_t epoch = 0, round = 0;
  std::vector<std::string> links;
  Status ended;  // how the epoch did, before Leave
};

// What the manager needs of its worker. Thread-safe.
class CollectiveHost {
 public:
  virtual ~CollectiveHost() = default;
  virtual const std::string& task() const = 0;
  // The tasks of `job` in a session, this one among them if it is of the job, by name.
  virtual std::vector<std::string> TasksOfJob(uint64_t session, std::string_view job) const = 0;
  // By task: a number that names its host; 0: not known.
  virtual std::vector<uint64_t> HostsOf(uint64_t session,
                                        const std::vector<std::string>& tasks) const = 0;
  // DeviceInfo::link of a device of this task, for other members of its groups.
  virtual std::string LinkOf(uint64_t /*session*/, const std::string& /*device*/) const {
    return "";
  }
  // Unavailable, and `done` is not called, if the session or the task is not there.
  virtual Status SendCollective(uint64_t session, std::string_view task, StepMessage message,
                                Payload payload, Done done) = 0;
};

// All collectives of a task. Thread-safe.
class CollectiveManager {
 public:
  CollectiveManager(CollectiveHost* host, ThreadPools* pools);
  ~CollectiveManager();  // REQUIRES: Stop was called

  void Start(std::shared_ptr<CollectiveRequest> request);
  // Of a group that is found: joins it and takes this member's place in its next round, as Start,
  // but begins nothing. When `done` is called with OK, `members`, `links`, `epoch` and `round` of
  // the request are set, and the member can meet the others of the round, any number of times, by
  // requests with `entered` and a `meeting` of their own. This way a member learns who the others
  // are before it chooses how to exchange with them (executor/gpu/members.h).
  void Enter(const std::shared_ptr<CollectiveRequest>& request);
  // What the request entered is over for this member.
  void Leave(const std::shared_ptr<CollectiveRequest>& request);
  // The request's step was aborted: its operation fails, unless it is over.
  void Cancel(const std::shared_ptr<CollectiveRequest>& request);

  // Called before and after each step of a graph with collectives. `home` is the graph's and
  // outlives the step. Steps begin in the order of their numbers.
  void StepBegins(uint64_t session, uint64_t step, const CollectiveHome* home);
  void StepEnds(uint64_t session, uint64_t step, bool ok);
  // A step of the session failed here; only steps that could have had collectives need be told.
  void StepFailed(uint64_t session, uint64_t step, const Status& status);
  void PeerLost(uint64_t session, const std::string& task, const Status& why);
  // The tasks that operations of the session under way, or members that join, exchange messages
  // with.
  std::set<std::string> AwaitedTasks(uint64_t session) const;
  // `why`: how its client was lost; OK if it closed the session itself.
  void SessionClosed(uint64_t session, const Status& why = Status());
  // Its data plane is closed here: no part comes by it any more. Members of other sessions do not
  // wait for those that are in its steps elsewhere.
  void SessionGone(uint64_t session);

  // Whether a message is for something that waits here. Only such a message is taken from a session
  // that is closed: a client that has its own result may go while others still get theirs.
  bool Awaits(const StepMessage& message);
  // Whether some member here may await messages of members that other sessions drive.
  bool AwaitsOthers();
  // An operation here awaits parts that members in steps of `session` elsewhere send by it.
  bool AwaitsPartsOf(uint64_t session);
  // For the transport: messages of kind collective whose session and incarnation are right.
  PayloadSink OnMessage(const StepMessage& message, size_t payload_bytes);
  void OnDelivered(const StepMessage& message, Payload payload);

  // Fails what is pending, waits for sums that run. REQUIRES: no message comes any more.
  void Stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

// What a kernel of a registered graph finds: the task's collectives and the session that it belongs
// to.
class CollectiveHome {
 public:
  CollectiveHome(CollectiveManager* manager, uint64_t session)
      : manager_(manager), session_(session) {}
  CollectiveManager* manager() const {
    used_.store(true, std::memory_order_relaxed);
    return manager_;
  }
  uint64_t session() const { return session_; }
  // Whether some kernel has asked for it.
  bool used() const { return used_.load(std::memory_order_relaxed); }

  // Used by the manager, under its lock: what steps of the graph do in groups that are found.
  using Use = std::tuple<int32_t, int32_t, std::string>;  // group, instance, device
  struct Order {
    std::set<Use> uses;
    bool learned = false;  // a whole step has run
  };
  Order& order() const { return order_; }

 private:
  CollectiveManager* const manager_;
  const uint64_t session_;
  // Relaxed: set first when kernels are made; the lock under which the graph is registered
  // publishes it to steps.
  mutable std::atomic<bool> used_{false};
  mutable Order order_;
};

// Offered by the constructions of kernels that are made for a task.
class CollectiveConstruction {
 public:
  virtual ~CollectiveConstruction() = default;
  virtual const CollectiveHome* collectives() const = 0;
};
// nullptr for a kernel that runs by itself (executor/step/kernel_runner.h).
const CollectiveHome* CollectivesOf(const KernelConstruction& construction);

}  // namespace monograph
