// A run's operation begins as that of any collective does (GpuMembers::BeginJoint); when its turn
// has come the members thread posts the task and waits (IssueJoint), so that on the launching
// thread the communicator and kMembers are this run's alone. Each collective follows kCompute by an
// event (Enqueue), and kCompute follows all of them where the range ends (LeaveRange).
#include "executor/gpu/joint_launch.h"

#include <algorithm>
#include <utility>

#include "base/codec.h"
#include "executor/collective/operation.h"
#include "executor/gpu/member_operation.h"

namespace monograph {

Status JointGraph::Launch() {
  GraphId graph = -1;
  {
    MutexLock lock(mutex_);
    if (dropped_) return Aborted("the communicator was aborted").AsDerived();
    graph = graph_;
    launching_ = true;
  }
  const Status status = driver_->Launch(graph);
  bool drop = false;
  {
    MutexLock lock(mutex_);
    launching_ = false;
    drop = dropped_ && std::exchange(graph_, -1) >= 0;
  }
  if (drop) driver_->DropGraph(graph);
  return status;
}

void JointGraph::Drop() {
  GraphId graph = -1;
  {
    MutexLock lock(mutex_);
    dropped_ = true;
    if (!launching_) graph = std::exchange(graph_, -1);
  }
  if (graph >= 0) driver_->DropGraph(graph);
}

JointLaunch::JointLaunch(GpuDevice* device, JointCollective* first, bool may_capture)
    : device_(*device),
      driver_(device->shared_driver()),
      members_(GpuMembers::Of(device)),
      first_(*first),
      may_capture_(may_capture) {}

void JointLaunch::Begin(KernelContext& context, LaunchTask* task, Done done) {
  // Once begun, the run may end, and this begin the next one.
  const auto operation = std::make_shared<MemberOperation>();
  operation_ = operation;
  MemberOperation& op = *operation;
  op.request = std::make_shared<CollectiveRequest>();
  KernelContext empty;  // all of the request but the inputs
  GpuLauncher::Begin(&empty, context, device_);
  if (const Status filled = first_.kernel->Fill(empty, op.request.get()); !filled.ok())
    return done(filled);
  op.members = members_;
  op.manager = first_.kernel->manager();
  op.context = &context;
  op.task = task;
  op.captures = may_capture_;
  op.done = std::move(done);
  if (!context.OnCancel([operation] { operation->members->Cancel(operation); }))
    return op.done(Cancelled("the step was aborted").AsDerived());
  op.members->BeginJoint(operation);
}

JointLaunch::~JointLaunch() {
  for (const EventId event : {fork_, join_}) {
    if (event >= 0) driver_->DropEvent(event);
  }
}

Status JointLaunch::Follow(Queue queue, Queue other, EventId event) {
  StreamDriver& driver = device_.driver();
  MG_RETURN_IF_ERROR(device_.Issue(other, [&] { return driver.Record(event, other); }));
  return device_.Issue(queue, [&] { return driver.Wait(queue, driver, event); });
}

Status JointLaunch::EnterRange() {
  StreamDriver& driver = device_.driver();
  for (EventId* event : {&fork_, &join_}) {
    if (*event >= 0) continue;
    MG_ASSIGN_OR_RETURN(*event, driver.MakeEvent(/*timed=*/false));
  }
  MG_RETURN_IF_ERROR(Follow(Queue::kCompute, Queue::kMembers, join_));
  // The deadline counts from here.
  return device_.Issue(Queue::kCompute,
                       [&] { return driver.Record(operation_->ready, Queue::kCompute); });
}

// A row as bytes: can:u8 capture:u64
Result<JointLaunch::Way> JointLaunch::Agree(Way can, uint64_t capture) {
  MemberOperation& op = *operation_;
  if (!std::ranges::all_of(op.rows, [](const MemberRow& row) { return row.captures; }))
    return Way::kNodes;
  Encoder row;
  row.Put(static_cast<uint8_t>(can));
  row.Put(capture);
  MG_ASSIGN_OR_RETURN(const Tensor rows,
                      members_->Meet(op, GpuMembers::Meeting::kWay, row.bytes()));
  Decoder in(BytesOf(rows));
  Way way = Way::kReplay;
  bool same = true;
  for (int rank = 0; rank < op.size(); ++rank) {
    way = std::min(way, static_cast<Way>(in.Get<uint8_t>()));
    same = in.Get<uint64_t>() == capture && same;
  }
  if (!in.ok() || !in.rest().empty())
    return DataLoss(op.Describe() + ": ways of a joint launch that are none");
  return way == Way::kReplay && !same ? Way::kCapture : way;
}

bool JointLaunch::usable() const {
  return device_.health().ok() && !operation_->connection->launching;
}

Result<bool> JointLaunch::AllHaveCaptured(bool captured) {
  MemberOperation& op = *operation_;
  const char row = captured ? 1 : 0;
  MG_ASSIGN_OR_RETURN(const Tensor rows,
                      members_->Meet(op, GpuMembers::Meeting::kCaptured, {&row, 1}));
  return std::ranges::all_of(BytesOf(rows), [](char each) { return each != 0; });
}

Status JointLaunch::Enqueue(JointCollective& collective, KernelContext& context, Allocator* memory,
                            const std::string* owner, std::vector<Tensor>* outputs,
                            std::vector<Buffer>* held) {
  MemberOperation& op = *operation_;
  CollectiveRequest filled;
  MG_RETURN_IF_ERROR(collective.kernel->Fill(context, &filled));
  op.inputs = std::move(filled.inputs);
  op.request->dtype = filled.dtype;
  op.merge = &collective.merge;
  op.owner = owner;
  op.memory = memory;
  Status status = Follow(Queue::kMembers, Queue::kCompute, fork_);
  if (status.ok()) status = members_->Reduce(op);
  for (const Tensor& input : op.inputs) held->push_back(input.buffer());
  if (op.scratch) held->push_back(std::exchange(op.scratch, Buffer()));
  op.inputs.clear();
  *outputs = std::exchange(op.outputs, {});
  op.memory = nullptr;
  return status;
}

Status JointLaunch::LeaveRange() { return Follow(Queue::kCompute, Queue::kMembers, join_); }

Status JointLaunch::EndRun(const Status& status) {
  MemberOperation& op = *operation_;
  if (!status.ok()) {
    {
      MutexLock lock(members_->mutex_);
      if (op.failure.ok()) op.failure = status;
    }
    members_->BreakOff(op.connection, status, &op);
    // A thread of NCCL may still be enqueuing an exchange, which would come behind what follows.
    if (op.connection->launching) members_->AwaitAbort(*op.connection);
  }
  if (join_ < 0) return status;  // no run has come to the range
  MG_RETURN_IF_ERROR(device_.health());
  Status ordered = status.ok() ? Status() : LeaveRange();
  if (ordered.ok()) ordered = Follow(Queue::kMembers, Queue::kCompute, fork_);
  return ordered.ok() ? status : device_.LoseTrack(ordered);
}

void JointLaunch::Issued(const Status& status) {
  const MemberOperationPtr operation = std::move(operation_);
  MutexLock lock(members_->mutex_);
  operation->issued = status;
  members_->Wake();
}

// Steps of a session have numbers of their own, from 1.
uint64_t JointLaunch::number() const { return operation_->request->step + 1; }

bool JointLaunch::Uses(const std::weak_ptr<void>& communicator) const {
  return operation_->connection != nullptr && communicator.lock() == operation_->connection;
}

std::weak_ptr<void> JointLaunch::communicator() const { return operation_->connection; }

void JointLaunch::Keep(const std::shared_ptr<JointGraph>& graph) {
  MutexLock lock(members_->mutex_);
  auto& graphs = operation_->connection->graphs;
  std::erase_if(graphs, [](const auto& known) { return known.expired(); });
  graphs.push_back(graph);
}

}  // namespace monograph
