// What happens in one round of a collective: a member begins (Start, Begin) and its input goes to
// those who need it (Contribute); messages of other tasks are applied (Apply); a piece is merged as
// soon as the input of the next rank is there (MakeReady, Schedule, Work); the round ends
// (CheckComplete, EndLocal) or fails (Fail). Functions that fill `actions` hold the manager's lock
// and only note what is to be sent or called; Do does it once the lock is released, because a
// callback may begin the next round.
#include <algorithm>

#include "base/byte_size.h"
#include "base/codec.h"
#include "base/device_name.h"
#include "base/duration.h"
#include "base/pool_allocator.h"
#include "executor/collective/manager.h"
#include "executor/thread_pools.h"
#include "executor/worker/step_message.h"

namespace monograph {

using collective::GroupName;
using collective::kLeaderGrace;
using collective::kMostParked;
using collective::Milliseconds;
using collective::OperationPtr;
using collective::ParkedCount;
using collective::Piece;
using collective::Route;
using collective::Station;
using std::chrono::milliseconds;

namespace {

// Threads that are left to kernels, and to the other tasks of a small machine.
constexpr int kSpareThreads = 2;
// Up to so many ready bytes are merged by the thread that made them ready.
constexpr size_t kInlineBytes = 64 << 10;
// How long other tasks have to answer which of their members have begun.
constexpr milliseconds kAskTime{1000};

}  // namespace

void CollectiveManager::Impl::Do(Actions* actions) {
  for (Actions::Send& send : actions->sends) {
    const std::string body = EncodeCollective(send.message);
    StepMessage message;
    message.kind = StepMessageKind::kCollective;
    message.id = static_cast<uint32_t>(send.group);
    message.step = send.round;
    message.body = body;
    const bool piece = send.message.what == CollectiveWhat::kPiece;
    Done done;
    if (send.operation != nullptr && send.payload.bytes > 0) {
      done = [self = weak_from_this(), operation = send.operation, task = send.task,
              piece](const Status& status) {
        if (const std::shared_ptr<Impl> impl = self.lock())
          impl->OnSent(operation, task, piece, status);
      };
    }
    const Status status = host_->SendCollective(send.session, send.task, std::move(message),
                                                std::move(send.payload), std::move(done));
    if (!status.ok() && send.operation != nullptr) OnSent(send.operation, send.task, piece, status);
  }
  for (OperationPtr& operation : actions->enqueue) {
    using Task = std::pair<std::shared_ptr<Impl>, OperationPtr>;
    const uint64_t session = operation->spec.session;
    pools_->Enqueue(&RunTask, new Task(shared_from_this(), std::move(operation)), 0, session);
  }
  for (Actions::End& end : actions->ends) end.request->done(end.status, std::move(end.outputs));
  for (const Request& request : actions->broken) request->broken(request->ended);
  for (const OperationPtr& operation : actions->work) Work(operation);
}

void CollectiveManager::Impl::RunTask(void* context, int32_t) {
  const std::unique_ptr<std::pair<std::shared_ptr<Impl>, OperationPtr>> task(
      static_cast<std::pair<std::shared_ptr<Impl>, OperationPtr>*>(context));
  task->first->Work(task->second);
}

// Merges pieces until none is ready. The caller has counted this thread in `workers` and
// `working_`.
void CollectiveManager::Impl::Work(const OperationPtr& operation) {
  Operation& op = *operation;
  MutexLock lock(mutex_);
  while (!op.over && !op.ready.empty()) {
    Actions actions;
    const uint32_t piece = op.ready.front();
    op.ready.pop_front();
    if (piece == Operation::kAssemble) {
      lock.Unlock();
      Result<Tensor> output = op.Assemble();
      lock.Lock();
      if (op.over) break;
      if (output.ok()) {
        op.outputs[0] = std::move(output).value();
        EndLocal(operation, Status(), &actions);
      } else {
        Fail(operation, output.status(), &actions);
      }
    } else {
      const int from = op.pieces[piece].merged;
      const int to = op.Available(piece);
      lock.Unlock();
      op.Merge(piece, from, to);
      lock.Lock();
      if (op.over) break;
      op.pieces[piece].merged = to;
      op.pieces[piece].busy = false;
      if (to < op.mine(op.pieces[piece])->end) {
        MakeReady(&op, piece);
      } else {
        StationDone(operation, piece, &actions);
      }
    }
    lock.Unlock();
    Do(&actions);
    lock.Lock();
  }
  --op.workers;
  if (op.over && op.workers == 0) op.Clear();
  if (--working_ == 0 && stopped_) drained_.NotifyAll();
}

// ---- operations

OperationPtr CollectiveManager::Impl::FindOrPark(const Key& key, uint32_t timeout_ms) {
  OperationPtr& operation = operations_[key];
  if (operation == nullptr) {
    operation = std::make_shared<Operation>();
    operation->key = key;
    operation->deadline =
        Clock::now() +
        std::min<milliseconds>(milliseconds(timeout_ms), collective::kLongestParked) + kLeaderGrace;
    WakeTimer();
  }
  return operation;
}

Status CollectiveManager::Impl::Park(Operation* operation, uint64_t session,
                                     const CollectiveMessage& message, Payload payload) {
  std::shared_ptr<ParkedCount>& count = parked_[session];
  if (count == nullptr) {
    count = std::make_shared<ParkedCount>();
    std::erase_if(parked_, [&](const auto& entry) {
      return entry.first != session && entry.second.use_count() == 1;
    });
  }
  const int64_t most_bytes = HostPool().limit() / 2;
  if (count->messages >= kMostParked ||
      count->bytes + static_cast<int64_t>(payload.bytes) > most_bytes) {
    return ResourceExhausted(
        "the tasks of session " + std::to_string(session) + " are too far ahead of " +
        host_->task() + ", which has not begun instance " +
        std::to_string(operation->key.instance) + " of " + GroupName(operation->key.group) + ": " +
        std::to_string(count->messages) + " messages of " + BytesText(count->bytes) +
        " wait here, and one of " + BytesText(static_cast<int64_t>(payload.bytes)) +
        " came; at most " + std::to_string(kMostParked) + " messages of " + BytesText(most_bytes) +
        " are kept");
  }
  operation->parked.emplace_back(message, std::move(payload), count);
  return Status();
}

void CollectiveManager::Impl::Start(const Request& request) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    request->deadline = Clock::now() + request->timeout;
    if (stopped_ || request->cancelled) {
      actions.ends.push_back({request, Cancelled("the step was aborted").AsDerived(), {}});
    } else if (const CollectiveRequest* round = request->entered.get(); round != nullptr) {
      const Key key{round->epoch, round->round, request->group_key, request->instance_key,
                    request->meeting};
      if (round->ended.ok()) {
        Begin(request, key, round->members, round->epoch_breaks, &actions);
      } else {
        actions.ends.push_back({request, round->ended, {}});
      }
    } else if (request->members != nullptr) {
      const Key key{request->session, request->step, request->group_key, request->instance_key,
                    request->meeting};
      Begin(request, key, request->members, false, &actions);
    } else if (MustWait(*request)) {
      held_.push_back(request);
      WakeTimer();
    } else {
      TakePart(request, &actions);
      LetGo(&actions);
    }
  }
  Do(&actions);
}

void CollectiveManager::Impl::RunInEpoch(int32_t group, Member* member, const Request& request,
                                         Actions* actions) {
  Key key{member->epoch, request->step, group, request->instance_key};
  if (!member->one_session) key.round = ++member->rounds[request->instance_key];
  member->last_step = std::max(member->last_step, request->step);
  if (!request->enters) return Begin(request, key, member->members, !member->one_session, actions);
  request->members = member->members;
  request->links = member->links;
  request->epoch = key.epoch;
  request->round = key.round;
  request->epoch_breaks = !member->one_session;
  entered_.push_back(request);
  actions->ends.push_back({request, Status(), {}});
}

void CollectiveManager::Impl::Leave(const Request& request) {
  MutexLock lock(mutex_);
  std::erase(entered_, request);
}

void CollectiveManager::Impl::Begin(const Request& request, const Key& key, const Members& members,
                                    bool epoch_breaks, Actions* actions) {
  const auto refuse = [&](const Status& status) { actions->ends.push_back({request, status, {}}); };
  const auto found = std::find(members->devices.begin(), members->devices.end(), request->device);
  const std::string name = GroupName(key.group);
  if (found == members->devices.end())
    return refuse(InvalidArgument(request->device + " is not a member of " + name));
  if (request->group_size != members->size()) {
    return refuse(InvalidArgument(name + " has " + std::to_string(members->size()) +
                                  " members, not " + std::to_string(request->group_size)));
  }
  request->rank = static_cast<int>(found - members->devices.begin());
  const auto rank = static_cast<size_t>(request->rank);
  if (const auto broken = broken_.find(key.epoch); broken != broken_.end())
    return refuse(broken->second);
  if (const auto given_up = given_up_.find(key); given_up != given_up_.end())
    return refuse(given_up->second);
  const OperationPtr operation = FindOrPark(key, 0);
  Operation& op = *operation;
  if (op.over) return refuse(op.status);
  if (!op.started) {
    const auto self = std::find(members->tasks.begin(), members->tasks.end(), host_->task());
    const Status status =
        op.Begin(request, members, static_cast<int>(self - members->tasks.begin()),
                 [&] { return host_->HostsOf(request->session, members->tasks); });
    op.epoch_breaks = epoch_breaks;
    op.deadline = request->deadline;
    if (!status.ok()) {
      op.local[rank] = request;
      return Fail(operation, status, actions);
    }
    if (const auto lost = lost_.find(request->session); lost != lost_.end()) {
      for (const std::string& task : lost->second) {
        if (std::find(members->tasks.begin(), members->tasks.end(), task) == members->tasks.end())
          continue;
        op.local[rank] = request;
        return Fail(operation, TaskLost(task, task + " is lost"), actions);
      }
    }
  } else if (op.local[rank] != nullptr) {
    return refuse(
        InvalidArgument(op.Describe() + " is run twice in one step on " + request->device));
  } else if (op.signature != collective::SignatureOf(*request)) {
    op.local[rank] = request;
    return Fail(operation,
                InvalidArgument("the members differ in operation, types or shapes: " +
                                members->Describe(request->rank)),
                actions);
  }
  op.deadline = std::min(op.deadline, request->deadline);
  op.local[rank] = request;
  op.heard[rank] = true;
  --op.local_missing;
  Contribute(operation, request->rank, actions);
  auto parked = std::move(op.parked);
  op.parked.clear();
  for (collective::Parked& early : parked) {
    if (!op.over) Apply(operation, early.message, std::move(early.payload), actions);
  }
  if (op.over) return;
  if (op.spec.kind == CollectiveKind::kReduce) MakeAllReady(&op);
  CheckComplete(operation, actions);
  Schedule(operation, true, actions);
}

void CollectiveManager::Impl::SendToOthers(const OperationPtr& operation, CollectiveMessage message,
                                           const Payload& payload, Actions* actions) {
  const Operation& op = *operation;
  for (size_t task = 0; task < op.members->tasks.size(); ++task) {
    if (static_cast<int>(task) == op.self) continue;
    actions->sends.push_back({op.spec.session, op.members->tasks[task], op.key.group, op.key.round,
                              message, payload, operation});
  }
}

// Passes on the input of this task's member `rank`: to the other tasks, as a whole or in pieces; a
// broadcast's input is the value for the members here, too.
void CollectiveManager::Impl::Contribute(const OperationPtr& operation, int rank,
                                         Actions* actions) {
  Operation& op = *operation;
  const CollectiveRequest& request = *op.local[static_cast<size_t>(rank)];
  if (op.spec.kind == CollectiveKind::kBroadcast) {
    if (request.inputs.empty()) return;
    if (op.have_value) {
      return Fail(
          operation,
          InvalidArgument("two members send: " + op.members->Describe(rank) + " is the second"),
          actions);
    }
    op.outputs[0] = request.inputs[0];
    op.have_value = true;
  }
  if (op.alone()) return;
  if (op.spec.kind != CollectiveKind::kReduce || op.small()) {
    CollectiveMessage message = MessageOf(op, CollectiveWhat::kWhole, rank);
    if (op.spec.kind != CollectiveKind::kReduce) {
      message.dtype = op.spec.dtype;
      message.shape = request.inputs[0].shape();
    }
    return SendToOthers(operation, message, op.LocalWhole(rank), actions);
  }
  for (uint32_t i = 0; i < op.pieces.size(); ++i) {
    const int task = op.StationOf(op.pieces[i], rank).task;
    if (task != op.self) op.outgoing[static_cast<size_t>(task)].waiting.emplace_back(i, rank);
  }
  for (size_t task = 0; task < op.outgoing.size(); ++task) SendPieces(operation, task, actions);
}

// Sends waiting pieces as long as fewer than kWindow are on their way to the task; this bounds the
// memory of the receiver.
void CollectiveManager::Impl::SendPieces(const OperationPtr& operation, size_t task,
                                         Actions* actions) {
  Operation& op = *operation;
  Operation::Outgoing& outgoing = op.outgoing[task];
  for (; outgoing.sent < collective::kWindow && !outgoing.waiting.empty(); ++outgoing.sent) {
    const auto [index, rank] = outgoing.waiting.front();
    outgoing.waiting.pop_front();
    CollectiveMessage message = MessageOf(op, CollectiveWhat::kPiece, rank);
    message.index = index;
    actions->sends.push_back({op.spec.session, op.members->tasks[task], op.key.group, op.key.round,
                              std::move(message), op.LocalPiece(rank, op.pieces[index]),
                              operation});
  }
}

// The payload of a data message was sent, or could not be (`status`).
void CollectiveManager::Impl::OnSent(const OperationPtr& operation, const std::string& task,
                                     bool piece, const Status& status) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    Operation& op = *operation;
    if (op.over) return;
    if (!status.ok()) {
      Fail(operation, Unavailable("sending to " + task + ": " + status.message()), &actions);
    } else if (piece) {
      const auto& tasks = op.members->tasks;
      const auto index =
          static_cast<size_t>(std::find(tasks.begin(), tasks.end(), task) - tasks.begin());
      --op.outgoing[index].sent;
      SendPieces(operation, index, &actions);
    }
  }
  Do(&actions);
}

CollectiveMessage CollectiveManager::Impl::MessageOf(const Operation& op, CollectiveWhat what,
                                                     int rank) {
  CollectiveMessage message;
  message.what = what;
  message.kind = static_cast<uint8_t>(op.spec.kind);
  message.rank = static_cast<uint16_t>(rank);
  message.instance = op.key.instance;
  message.meeting = op.key.meeting;
  message.epoch = op.key.epoch;
  message.timeout_ms = Milliseconds(op.spec.timeout);
  message.signature = op.signature;
  return message;
}

void CollectiveManager::Impl::Apply(const OperationPtr& operation, const CollectiveMessage& message,
                                    Payload payload, Actions* actions) {
  Operation& op = *operation;
  const auto rank = static_cast<size_t>(message.rank);
  if (message.rank >= op.ranks() || op.is_local(message.rank)) {
    return Fail(operation, DataLoss("a message of rank " + std::to_string(rank) + " came"),
                actions);
  }
  if (message.signature != op.signature) {
    return Fail(operation,
                InvalidArgument("the members differ in operation, types or shapes: " +
                                op.members->Describe(message.rank)),
                actions);
  }
  op.heard[rank] = true;
  if (op.spec.kind == CollectiveKind::kReduce)
    return ApplyReduce(operation, message, std::move(payload), actions);
  if (message.what != CollectiveWhat::kWhole || message.dtype != op.spec.dtype ||
      payload.bytes != static_cast<size_t>(message.shape.elements()) * DTypeSize(message.dtype)) {
    return Fail(operation,
                DataLoss("a tensor of " + op.members->Describe(message.rank) + " does not fit"),
                actions);
  }
  if (op.spec.kind == CollectiveKind::kGather) {
    op.whole[rank] = std::move(payload);
    op.shapes[rank] = message.shape;
  } else if (op.have_value) {
    return Fail(operation,
                InvalidArgument("two members send: " + op.members->Describe(message.rank) +
                                " is the second"),
                actions);
  } else {
    if (!payload.buffer) payload.buffer = Buffer::Allocate(HostAllocator(), 0);
    op.outputs[0] = Tensor(message.dtype, message.shape, std::move(payload.buffer), payload.offset);
    op.have_value = true;
  }
}

void CollectiveManager::Impl::ApplyReduce(const OperationPtr& operation,
                                          const CollectiveMessage& message, Payload payload,
                                          Actions* actions) {
  Operation& op = *operation;
  const auto rank = static_cast<size_t>(message.rank);
  size_t expected = 0;
  if (message.what == CollectiveWhat::kWhole && op.small()) {
    for (const Piece& piece : op.pieces) expected += piece.bytes;
  } else if (message.what != CollectiveWhat::kWhole && !op.small() &&
             message.index < op.pieces.size() && Expects(op, message)) {
    expected = op.pieces[message.index].bytes;
  } else {
    return Fail(operation,
                DataLoss("a message of " + op.members->Describe(message.rank) + " does not fit"),
                actions);
  }
  if (payload.bytes != expected) {
    return Fail(operation,
                DataLoss("a piece of " + op.members->Describe(message.rank) + " has " +
                         std::to_string(payload.bytes) + " bytes, not " + std::to_string(expected)),
                actions);
  }
  if (message.what == CollectiveWhat::kWhole) {
    op.whole[rank] = std::move(payload);
    for (uint32_t i = 0; i < op.pieces.size(); ++i) MakeReady(&op, i);
  } else if (message.what == CollectiveWhat::kPiece) {
    op.slots[message.index * static_cast<size_t>(op.ranks()) + rank] = std::move(payload);
    MakeReady(&op, message.index);
  } else if (message.what == CollectiveWhat::kPrefix) {
    PrefixDone(operation, message.index, std::move(payload));
  } else {  // a sum that came by reference
    const Payload sum = op.SumOf(op.pieces[message.index]);
    std::copy_n(static_cast<const char*>(payload.data()), payload.bytes,
                static_cast<char*>(sum.buffer.data()) + sum.offset);
    SumDone(operation, message.index, actions);
  }
}

// Whether a piece, a prefix or a sum is one that this task waits for.
bool CollectiveManager::Impl::Expects(const Operation& op, const CollectiveMessage& message) {
  const Piece& piece = op.pieces[message.index];
  const Station* mine = op.mine(piece);
  switch (message.what) {
    case CollectiveWhat::kPiece:
      return mine != nullptr && mine->begin <= message.rank && message.rank < mine->end;
    case CollectiveWhat::kPrefix:
      return mine != nullptr && mine->begin > 0 && piece.merged == mine->begin &&
             !op.prefixes[message.index].buffer;
    default:
      return mine == nullptr || op.next(piece) != nullptr;
  }
}

// Queues the piece if this task merges it and something is there to be merged.
void CollectiveManager::Impl::MakeReady(Operation* op, uint32_t index) {
  Piece& piece = op->pieces[index];
  const Station* mine = op->mine(piece);
  if (mine == nullptr || piece.busy || piece.merged == mine->end) return;
  const bool begins = piece.merged == mine->begin;
  if (begins && mine->begin > 0 && !op->prefixes[index].buffer) return;
  // The first merge needs two inputs.
  const int least = op->small() ? op->ranks() : begins && mine->begin == 0 ? 2 : 1;
  if (op->Available(index) - piece.merged < std::min(least, mine->end - piece.merged)) return;
  piece.busy = true;
  op->ready.push_back(index);
}

void CollectiveManager::Impl::MakeAllReady(Operation* op) {
  for (uint32_t i = 0; i < op->pieces.size(); ++i) MakeReady(op, i);
}

void CollectiveManager::Impl::Schedule(const OperationPtr& operation, bool may_enqueue,
                                       Actions* actions) {
  Operation& op = *operation;
  if (op.over || op.ready.empty()) return;
  size_t bytes = 0;
  for (const uint32_t piece : op.ready) {
    if (piece != Operation::kAssemble) {
      bytes += op.pieces[piece].bytes;
    } else {
      for (const Payload& part : op.whole) bytes += part.bytes;
    }
  }
  const auto add = [&](std::vector<OperationPtr>* list) MG_REQUIRES(mutex_) {
    ++op.workers;
    ++working_;
    list->push_back(operation);
  };
  const int wanted =
      bytes <= kInlineBytes ? 0 : std::min(pools_->intra_op(), static_cast<int>(op.ready.size()));
  // A piece that has just arrived is in the cache of this core, so other threads help only if
  // enough of them are idle.
  int free = may_enqueue ? wanted : std::min(wanted, pools_->idle() - kSpareThreads);
  for (; free > 0 && op.workers < wanted; --free) add(&actions->enqueue);
  if (op.workers == 0) add(&actions->work);
}

// The prefix has arrived that the station before this task sends.
void CollectiveManager::Impl::PrefixDone(const OperationPtr& operation, uint32_t index,
                                         Payload prefix) {
  Operation& op = *operation;
  op.HearUpTo(op.mine(op.pieces[index])->begin);
  op.prefixes[index] = std::move(prefix);
  MakeReady(&op, index);
}

// This task has merged its station's ranks into the piece.
void CollectiveManager::Impl::StationDone(const OperationPtr& operation, uint32_t index,
                                          Actions* actions) {
  Operation& op = *operation;
  const Piece& piece = op.pieces[index];
  if (!op.small()) {
    const auto ranks = static_cast<size_t>(op.ranks());
    for (size_t rank = 0; rank < ranks; ++rank) op.slots[index * ranks + rank] = {};
  }
  op.prefixes[index] = {};
  const Station* next = op.next(piece);
  if (next == nullptr) return SumDone(operation, index, actions);
  SendPart(operation, CollectiveWhat::kPrefix, index, next->task, op.PrefixFor(piece), actions);
}

void CollectiveManager::Impl::SendPart(const OperationPtr& operation, CollectiveWhat what,
                                       uint32_t index, int task, Payload payload,
                                       Actions* actions) {
  const Operation& op = *operation;
  const auto own = std::find(op.members->task_of.begin(), op.members->task_of.end(), op.self);
  CollectiveMessage message =
      MessageOf(op, what, static_cast<int>(own - op.members->task_of.begin()));
  message.index = index;
  actions->sends.push_back({op.spec.session, op.members->tasks[static_cast<size_t>(task)],
                            op.key.group, op.key.round, std::move(message), std::move(payload),
                            operation});
}

void CollectiveManager::Impl::SumDone(const OperationPtr& operation, uint32_t index,
                                      Actions* actions) {
  Operation& op = *operation;
  if (op.summed[index]) return;
  op.summed[index] = true;
  --op.pieces_left;
  op.HearUpTo(op.ranks());
  const Piece& piece = op.pieces[index];
  for (const int task : op.lane(piece).passes_on[static_cast<size_t>(op.self)])
    SendPart(operation, CollectiveWhat::kSum, index, task, op.SumOf(piece), actions);
  CheckComplete(operation, actions);
}

void CollectiveManager::Impl::CheckComplete(const OperationPtr& operation, Actions* actions) {
  Operation& op = *operation;
  if (op.over) return;
  const bool all_heard = op.all_heard();
  switch (op.spec.kind) {
    case CollectiveKind::kReduce:
      if (op.local_missing > 0 || op.pieces_left > 0 || (op.pieces.empty() && !all_heard)) return;
      return EndLocal(operation, Status(), actions);
    case CollectiveKind::kGather:
      if (!all_heard || op.assembling) return;
      op.assembling = true;
      op.ready.push_back(Operation::kAssemble);
      return;
    case CollectiveKind::kBroadcast:
      if (op.have_value) EndLocal(operation, Status(), actions);
      return;
  }
}

// Ends the requests of this task's members.
void CollectiveManager::Impl::EndLocal(const OperationPtr& operation, const Status& status,
                                       Actions* actions) {
  Operation& op = *operation;
  for (size_t rank = 0; rank < op.local.size(); ++rank) {
    const Request& request = op.local[rank];
    if (request == nullptr || request->rank < 0) continue;
    request->rank = -1;  // it has ended; it stays, because its inputs may be in use
    actions->ends.push_back({request, status, status.ok() ? op.outputs : std::vector<Tensor>()});
  }
  if (!status.ok() || op.local_missing > 0) return;
  op.over = true;
  operations_.erase(op.key);
  // Release the outputs: a kernel that holds the only reference may write its output in place.
  if (op.workers == 0) {
    op.Clear();
  } else {
    op.outputs.clear();
  }
}

void CollectiveManager::Impl::Fail(const OperationPtr& operation, const Status& status,
                                   Actions* actions) {
  Operation& op = *operation;
  if (op.over) return;
  op.over = true;
  op.status = status.WithContext(op.Describe());
  EndLocal(operation, op.status, actions);
  // The operation stays in the table for as long as messages for it can come; these are dropped.
  op.deadline = Clock::now() + op.spec.timeout + kLeaderGrace;
  if (op.workers == 0) op.Clear();
  if (op.epoch_breaks) Break(op.key.epoch, op.status, true, actions);
}

// The deadline has passed. If not every member sends to all others, this task does not know who is
// late: it asks the tasks of the members that it has not heard of which of theirs have begun. False
// if there is nobody to ask.
bool CollectiveManager::Impl::AskWhoIsHere(const OperationPtr& operation, Actions* actions) {
  Operation& op = *operation;
  const bool all_tell =
      op.spec.kind == CollectiveKind::kGather ||
      (op.spec.kind == CollectiveKind::kReduce && op.route.way != Route::Way::kChain);
  if (op.asked || all_tell || op.all_heard()) return false;
  op.asked = true;
  op.deadline = Clock::now() + kAskTime;
  const auto own = std::find(op.members->task_of.begin(), op.members->task_of.end(), op.self) -
                   op.members->task_of.begin();
  CollectiveMessage message = MessageOf(op, CollectiveWhat::kAsk, static_cast<int>(own));
  message.device = op.members->devices[static_cast<size_t>(own)];
  std::vector<bool> ask(op.members->tasks.size());
  for (size_t rank = 0; rank < op.heard.size(); ++rank) {
    if (!op.heard[rank]) ask[static_cast<size_t>(op.members->task_of[rank])] = true;
  }
  for (size_t task = 0; task < ask.size(); ++task) {
    if (!ask[task] || static_cast<int>(task) == op.self) continue;
    ++op.answers;
    actions->sends.push_back({op.spec.session,
                              op.members->tasks[task],
                              op.key.group,
                              op.key.round,
                              message,
                              {},
                              nullptr});
  }
  return op.answers > 0;
}

void CollectiveManager::Impl::AnswerWhoIsHere(const Arrival& arrival, Actions* actions) {
  const Result<DeviceName> asker = DeviceName::Parse(arrival.message.device);
  if (!asker.ok() || !asker->full()) return;
  Encoder ranks;
  const auto found = operations_.find(arrival.key);
  if (found != operations_.end() && found->second->started) {
    const Operation& op = *found->second;
    for (int rank = 0; rank < op.ranks(); ++rank) {
      if (op.is_local(rank) && op.heard[static_cast<size_t>(rank)])
        ranks.Put(static_cast<uint16_t>(rank));
    }
  }
  CollectiveMessage answer = arrival.message;
  answer.what = CollectiveWhat::kHere;
  answer.text = ranks.Take();
  actions->sends.push_back({arrival.session,
                            asker->TaskName(),
                            arrival.key.group,
                            arrival.key.round,
                            std::move(answer),
                            {},
                            nullptr});
}

void CollectiveManager::Impl::HandleHere(const Arrival& arrival, Actions* actions) {
  const auto found = operations_.find(arrival.key);
  if (found == operations_.end() || found->second->over || !found->second->asked) return;
  Operation& op = *found->second;
  Decoder ranks(arrival.message.text);
  while (!ranks.rest().empty()) {
    const auto rank = ranks.Get<uint16_t>();
    if (!ranks.ok() || rank >= op.ranks()) break;
    op.heard[rank] = true;
  }
  if (--op.answers == 0) FailLate(found->second, actions);
}

void CollectiveManager::Impl::FailLate(const OperationPtr& operation, Actions* actions) {
  std::string task;
  const std::string missing = operation->Missing(&task);
  // Whoever does not come for so long is lost.
  Fail(operation,
       Status(Code::kDeadlineExceeded,
              "waited " + Seconds(operation->spec.timeout) + " for " + missing, std::move(task)),
       actions);
}

void CollectiveManager::Impl::Cancel(const Request& request) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    request->cancelled = true;
    const Status status = Cancelled("the step was aborted").AsDerived();
    for (auto& [key, operation] : operations_) {
      const auto& local = operation->local;
      if (std::find(local.begin(), local.end(), request) == local.end() || request->rank < 0)
        continue;
      const std::string who = operation->members->Describe(request->rank);
      const std::string missing = operation->Missing();
      actions.ends.push_back(
          {request,
           missing.empty() ? status
                           : Cancelled(operation->Describe() + " waits for " + missing).AsDerived(),
           {}});
      request->rank = -1;
      Fail(operation, Aborted("the step of " + who + " was aborted").AsDerived(), &actions);
      Withhold(request->device, &actions);  // StepFailed comes, with the reason
      break;
    }
    EndHeld([&](const CollectiveRequest& held) { return &held == request.get(); },
            Cancelled("waits for an earlier step of its session to begin the same").AsDerived(),
            &actions);
    const auto found = members_.find({request->group_key, request->device});
    if (found != members_.end()) {
      Member& member = found->second;
      if (std::erase(member.waiting, request) != 0) {
        const std::string group = GroupName(request->group_key);
        actions.ends.push_back(
            {request, Cancelled(group + " has not formed: members are missing").AsDerived(), {}});
        if (member.waiting.empty()) StopJoining(&member, status, &actions);
      }
    }
  }
  Do(&actions);
}

}  // namespace monograph
