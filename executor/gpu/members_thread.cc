// The members thread: what is launched when, over which communicator, and what is ended. It
// launches operations in the order on which the members agreed (Launch, Enqueue); in between it
// looks for deadlines and failures (Watch, BreakOff) and aborts communicators that nobody uses any
// more (Retire, Abort). Connect, Agree and Meet find the communicator of an operation.
#include <algorithm>
#include <utility>

#include "base/codec.h"
#include "base/duration.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "executor/collective/operation.h"
#include "executor/gpu/joint_launch.h"
#include "executor/gpu/member_operation.h"

namespace monograph {

using Clock = std::chrono::steady_clock;
using collective::GroupName;

namespace {

// How often deadlines and connections are looked at while something is under way.
constexpr std::chrono::milliseconds kLookEvery{20};
// A device that is destroyed while a collective is under way is waited for so long.
constexpr std::chrono::seconds kTimeToEnd{10};

// All members compute the same; never 0.
uint64_t KeyOf(std::string_view id) { return Fnv1a(id) | 1; }

}  // namespace

void GpuMembers::Thread() {
  (void)device_.driver().Enter();  // if it fails, so does Connect or a launch, which report it
  auto stopped_at = Clock::time_point::max();
  MutexLock lock(mutex_);
  for (;;) {
    if (!by_host_.empty()) {
      const MemberOperationPtr operation = std::move(by_host_.front());
      by_host_.pop_front();
      lock.Unlock();
      CopyByHost(operation);
      lock.Lock();
      continue;
    }
    if (const MemberOperationPtr* next = order_.Next(); next != nullptr) {
      const MemberOperationPtr operation = *next;
      order_.Remove(operation->place);
      operation->state = MemberOperation::State::kUnderWay;
      lock.Unlock();
      Launch(operation);
      lock.Lock();
      continue;
    }
    Watch();
    Retire();
    if (!by_host_.empty()) continue;
    if (stopped_) {
      if (under_way_.empty()) break;
      stopped_at = std::min(stopped_at, Clock::now());
      if (Clock::now() > stopped_at + kTimeToEnd) break;
    }
    if (order_.Next() != nullptr) continue;
    if (under_way_.empty() && !stopped_) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitFor(mutex_, kLookEvery);
    }
  }
  for (auto& [devices, group] : groups_) {
    if (group.connection != nullptr) retired_.push_back(std::move(group.connection));
  }
  const auto until = Clock::now() + kTimeToEnd;
  do {
    Retire();
  } while (aborting_ > 0 && changed_.WaitUntil(mutex_, until));
  if (aborting_ > 0) LogError(device_.name() + ": a communicator's abort does not end");
}

// Aborts the retired communicators that no operation uses any more.
void GpuMembers::Retire() {
  std::vector<std::shared_ptr<Connection>> gone;
  std::erase_if(retired_, [&gone](std::shared_ptr<Connection>& connection) {
    if (connection.use_count() > 1) return false;
    gone.push_back(std::move(connection));
    return true;
  });
  if (gone.empty()) return;
  mutex_.Unlock();
  for (auto& connection : gone) Abort(std::move(connection));
  gone.clear();
  mutex_.Lock();
}

// On a thread of its own: NCCL frees memory of the GPU, for which CUDA may first wait for every
// kernel there. A kernel of another communicator may itself wait for a member that is gone, until
// this thread aborts that communicator, too.
void GpuMembers::Abort(std::shared_ptr<Connection> connection) {
  std::vector<std::weak_ptr<JointGraph>> graphs;
  {
    MutexLock lock(mutex_);
    graphs = std::exchange(connection->graphs, {});
  }
  for (const auto& graph : graphs) {
    if (const auto held = graph.lock(); held != nullptr) held->Drop();
  }
  // Not health(): a device may count as lost whose context lives, and then what is enqueued goes on
  // until it is aborted.
  if (device_.driver().lost()) {
    connection->communicator->Abandon();
    MutexLock lock(mutex_);
    connection->ended = true;
    return;
  }
  {
    MutexLock lock(mutex_);
    ++aborting_;
  }
  StartThread("mg-gpu" + std::to_string(device_.info().name.id) + "-abort",
              [self = shared_from_this(), driver = device_.shared_driver(),
               connection = std::move(connection)]() mutable {
                (void)driver->Enter();
                const Status aborted = connection->communicator->Abort();
                {
                  MutexLock lock(self->mutex_);
                  connection->ended = true;
                  // What is enqueued may never end. Once stopped, the device may be gone.
                  if (!aborted.ok() && !self->stopped_ &&
                      std::any_of(self->under_way_.begin(), self->under_way_.end(),
                                  [&](const auto& op) { return op->connection == connection; }))
                    (void)self->device_.LoseTrack(aborted);
                }
                if (!aborted.ok()) LogWarning(self->name_ + ": " + aborted.ToString());
                // The driver ends on the thread that ends the device, not later on this one.
                connection = nullptr;
                driver = nullptr;
                MutexLock lock(self->mutex_);
                --self->aborting_;
                self->Wake();
              })
      .detach();
}

// The abort may wait for kernels of other communicators. Watch meanwhile ends those whose deadline
// passes.
void GpuMembers::AwaitAbort(const Connection& connection) {
  MutexLock lock(mutex_);
  for (auto until = Clock::now() + kTimeToEnd; !connection.ended && Clock::now() < until;) {
    Watch();
    for (const MemberOperationPtr& operation : under_way_) {
      if (operation->failure.ok()) until = Clock::now() + kTimeToEnd;
    }
    if (!connection.ended) changed_.WaitFor(mutex_, kLookEvery);
  }
  if (!connection.ended) LogError(device_.name() + ": a communicator's abort does not end");
}

// Breaks off operations that were cancelled, that failed, or whose deadline has passed.
void GpuMembers::Watch() {
  const auto now = Clock::now();
  struct Ending {
    MemberOperationPtr operation;
    std::shared_ptr<Connection> connection;  // the operation may end, and let go of it, meanwhile
    Status why;
  };
  std::vector<Ending> broken;
  for (const MemberOperationPtr& operation : under_way_) {
    MemberOperation& op = *operation;
    if (!op.failure.ok() || op.connection == nullptr) continue;
    if (op.task != nullptr && !op.issued.has_value()) continue;  // IssueJoint looks at it
    if (!op.inputs_there) {
      const Result<bool> there = device_.driver().Done(op.ready);
      op.inputs_there = there.ok() && *there;
      if (op.inputs_there) op.deadline = now + op.request->timeout;
    }
    const Result<bool> ready = op.connection->communicator->Ready();
    if (const Status status = MayGoOn(op, Status()); !status.ok()) {
      broken.push_back({operation, op.connection, status});
    } else if (!ready.ok()) {
      broken.push_back({operation, op.connection, ready.status()});
    } else if (op.inputs_there && now > op.deadline) {
      broken.push_back({operation, op.connection,
                        DeadlineExceeded("waited " + Seconds(op.request->timeout) +
                                         " for what the other members' GPUs send")});
    }
  }
  if (broken.empty()) return;
  mutex_.Unlock();
  for (const auto& [operation, connection, why] : broken)
    BreakOff(connection, why, operation.get());
  broken.clear();  // the last holder of a connection may be this one
  mutex_.Lock();
}

void GpuMembers::BreakOff(const std::shared_ptr<Connection>& connection, const Status& why,
                          const MemberOperation* culprit) {
  // Unavailable if a task or device was lost: a client that gets this derived failure first then
  // waits for its cause.
  const Status consequence =
      Status(why.code() == Code::kUnavailable ? Code::kUnavailable : Code::kAborted,
             "the members' GPUs were disconnected because " + culprit->Describe() +
                 " ended: " + why.message(),
             why.lost_task())
          .AsDerived();
  {
    MutexLock lock(mutex_);
    if (std::exchange(connection->broken, true)) return;
    connection->closed = true;
    for (const MemberOperationPtr& operation : under_way_) {
      if (operation->connection != connection || !operation->failure.ok()) continue;
      operation->failure = operation.get() == culprit ? why : consequence;
    }
  }
  Abort(connection);
}

void GpuMembers::Launch(const MemberOperationPtr& operation) {
  MemberOperation& op = *operation;
  {
    MutexLock lock(mutex_);
    op.self = operation;
    under_way_.push_back(operation);
  }
  Status status = op.task == nullptr ? Enqueue(op) : IssueJoint(op);
  if (!status.ok()) {
    {
      MutexLock lock(mutex_);
      if (op.failure.ok()) op.failure = status;
    }
    // The part that is enqueued waits for other members' data, which will not come: abort it.
    if (op.connection != nullptr) {
      BreakOff(op.connection, status, &op);
      // A thread of NCCL may still be enqueuing the exchange. It would come behind the event below,
      // after which its memory belongs to others.
      if (op.connection->launching) AwaitAbort(*op.connection);
    } else {
      MutexLock lock(mutex_);
      LeaveOut(op);
    }
  }
  // After a failure, too: the operation's memory is in use until what is enqueued has ended.
  status = device_.IssueAndAwait(
      Queue::kMembers, operation.get(), [] { return Status(); }, [](EventId, uint64_t) {});
  if (!status.ok()) {
    op.self = nullptr;
    const Status lost = device_.LoseTrack(status);
    // What is enqueued may wait for members that end now.
    if (op.connection != nullptr) BreakOff(op.connection, lost, &op);
    Passed(operation, lost);
  }
}

Status GpuMembers::Enqueue(MemberOperation& op) {
  MG_RETURN_IF_ERROR(device_.health());
  MG_RETURN_IF_ERROR(Connect(op));
  StreamDriver& driver = device_.driver();
  MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers,
                                   [&] { return driver.Wait(Queue::kMembers, driver, op.ready); }));
  switch (op.request->kind) {
    case CollectiveKind::kReduce:
      return Reduce(op);
    case CollectiveKind::kBroadcast:
      return Broadcast(op);
    case CollectiveKind::kGather:
      return Gather(op);
  }
  return Internal("no kind of collective");
}

// The launching thread enqueues it, which alone may use kCompute. Nothing else is launched
// meanwhile.
Status GpuMembers::IssueJoint(MemberOperation& op) {
  MG_RETURN_IF_ERROR(device_.health());
  MG_RETURN_IF_ERROR(Connect(op));
  device_.Post(op.task);
  // The launching thread sees for itself that the step is aborted. Once stopped it is gone.
  MutexLock lock(mutex_);
  changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return op.issued.has_value() || stopped_; });
  return op.issued.value_or(Cancelled("the step was aborted").AsDerived());
}

// Uses the communicator that all members have already, or makes a new one.
Status GpuMembers::Connect(MemberOperation& op) {
  const auto& devices = op.request->members->devices;
  const std::string name = GroupName(op.request->group_key);
  const uint64_t first = op.rows[0].current;
  const bool all_have =
      first != 0 && std::all_of(op.rows.begin(), op.rows.end(),
                                [&](const MemberRow& r) { return r.current == first; });
  const auto use = [&](uint64_t key) MG_REQUIRES(mutex_) {
    const Group& group = groups_[devices];
    if (group.connection == nullptr || group.connection->closed || group.connection->key != key)
      return false;
    op.connection = group.connection;
    return true;
  };
  {
    MutexLock lock(mutex_);
    if (groups_[devices].left_out != op.left_out || (all_have && !use(first)))
      return Aborted(name + ": its GPUs were disconnected meanwhile").AsDerived();
  }
  if (op.connection != nullptr) return WaitUntilReady(op);
  MG_ASSIGN_OR_RETURN(const Agreement agreed, Agree(op));
  {
    MutexLock lock(mutex_);
    if (!use(agreed.key) && groups_[devices].connection != nullptr)
      retired_.push_back(std::exchange(groups_[devices].connection, nullptr));
  }
  const bool joins = op.connection == nullptr;
  if (joins) {
    if (agreed.id.empty())
      return Aborted(name + ": its GPUs are connected anew in the next step").AsDerived();
    MG_RETURN_IF_ERROR(device_.driver().Enter());  // NCCL joins with the thread's device
    MG_ASSIGN_OR_RETURN(auto joined,
                        device_.driver().communicators()->Join(agreed.id, op.rank, op.size()));
    auto connection = std::make_shared<Connection>();
    connection->key = agreed.key;
    connection->communicator = std::move(joined);
    MutexLock lock(mutex_);
    groups_[devices].connection = op.connection = std::move(connection);
  }
  MG_RETURN_IF_ERROR(WaitUntilReady(op).WithContext("connecting the GPUs of " + name));
  return joins ? Meet(op, Meeting::kJoined, "joined").status() : Status();
}

// The members' last meeting, when all have launched what comes before: each says which
// communicator it has now, and rank 0 the id of a new one, unless it has got one since the first
// meeting. A row as bytes:
//   current:u64 id   (length:u32 bytes)
Result<GpuMembers::Agreement> GpuMembers::Agree(MemberOperation& op) {
  uint64_t current = 0;
  {
    MutexLock lock(mutex_);
    const Group& group = groups_[op.request->members->devices];
    if (group.connection != nullptr && !group.connection->closed) current = group.connection->key;
  }
  Encoder row;
  row.Put(current);
  std::string id;
  if (op.rank == 0 && (current == 0 || op.rows[0].current != 0)) {
    MG_ASSIGN_OR_RETURN(id, device_.driver().communicators()->NewId());
  }
  row.PutBytes(id);
  MG_ASSIGN_OR_RETURN(const Tensor rows, Meet(op, Meeting::kCommunicator, row.bytes()));
  Decoder in(BytesOf(rows));
  Agreement agreement;
  bool same = true;
  for (int rank = 0; rank < op.size(); ++rank) {
    const auto key = in.Get<uint64_t>();
    const std::string_view offered = in.GetBytes();
    if (rank == 0) agreement = {key, std::string(offered)};
    same = same && key != 0 && key == agreement.key;
  }
  if (!in.ok() || !in.rest().empty())
    return DataLoss("a meeting for a communicator with rows that are none");
  if (same) {
    agreement.id.clear();
  } else {
    agreement.key = agreement.id.empty() ? 0 : KeyOf(agreement.id);
  }
  return agreement;
}

Result<Tensor> GpuMembers::Meet(MemberOperation& op, Meeting meeting, std::string_view row) {
  const auto call = MeetingFor(op, meeting, row);
  call->done = [self = shared_from_this(), operation = op.shared_from_this()](
                   const Status& status, std::vector<Tensor> outputs) {
    MutexLock lock(self->mutex_);
    operation->met = status;
    operation->met_rows = std::move(outputs);
    self->Wake();
  };
  {
    MutexLock lock(mutex_);
    op.met.reset();
  }
  op.manager->Start(call);
  {
    // Bounded by the call's deadline.
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) {
      return op.met.has_value() || op.cancelled || stopped_;
    });
    if (!op.met.has_value()) {
      lock.Unlock();
      op.manager->Cancel(call);
      return Cancelled("the step was aborted").AsDerived();
    }
  }
  MG_RETURN_IF_ERROR(*op.met);
  return std::move(op.met_rows[0]);
}

Status GpuMembers::WaitUntilReady(MemberOperation& op) {
  const auto deadline = Clock::now() + op.request->timeout;
  MutexLock lock(mutex_);
  for (;;) {
    MG_ASSIGN_OR_RETURN(const bool ready, op.connection->communicator->Ready());
    if (ready) return Status();
    MG_RETURN_IF_ERROR(MayGoOn(op, Status()));
    if (Clock::now() > deadline) {
      return DeadlineExceeded("waited " + Seconds(op.request->timeout) +
                              " for the other members' GPUs");
    }
    // NCCL may be waiting for a device whose context is lost, and nothing else may notice the loss.
    // While a graph is captured nothing may be asked.
    if (op.task == nullptr) {
      if (const auto there = device_.driver().Done(op.ready); !there.ok())
        return device_.Check(there.status());
    }
    MG_RETURN_IF_ERROR(device_.health());
    changed_.WaitFor(mutex_, kMembersPoll);
  }
}

}  // namespace monograph
