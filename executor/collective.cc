#include "executor/collective.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "base/codec.h"
#include "base/device_name.h"
#include "base/log.h"
#include "base/thread.h"
#include "executor/collective/message.h"
#include "executor/collective/operation.h"
#include "executor/kernel.h"
#include "executor/step_message.h"
#include "executor/thread_pools.h"

namespace monograph {

using collective::Clock;
using collective::Key;
using collective::Operation;
using collective::Piece;
using std::chrono::milliseconds;
using Request = std::shared_ptr<CollectiveRequest>;
using Members = std::shared_ptr<const CollectiveMembers>;
using OperationPtr = std::shared_ptr<Operation>;

namespace {

// How often deadlines are looked at while something waits.
constexpr milliseconds kTick{20};
// A member waits this much longer for its leader, who knows who is missing.
constexpr milliseconds kLeaderGrace{500};
constexpr size_t kBrokenKept = 64;
// Threads that are left to kernels, and to the other tasks of a small machine.
constexpr int kSpareThreads = 2;
// What is merged by the thread that finds it ready.
constexpr size_t kInlineBytes = 64 << 10;

uint64_t RandomNonZero() {
  std::random_device random;
  uint64_t value = 0;
  while (value == 0) value = (uint64_t{random()} << 32) | random();
  return value;
}

uint32_t Milliseconds(milliseconds time) {
  return static_cast<uint32_t>(std::clamp<int64_t>(time.count(), 0, UINT32_MAX));
}

std::string Seconds(milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

auto DeviceOrder(const std::string& name) {
  const DeviceName device = DeviceName::Parse(name).value();
  return std::make_tuple(device.job, device.replica, device.task, device.type, device.id);
}

std::string GroupName(int group) { return "collective group " + std::to_string(group); }

}  // namespace

std::string CollectiveMembers::Describe(int rank) const {
  return "rank " + std::to_string(rank) + " (" + devices[static_cast<size_t>(rank)] + ")";
}

Result<Members> MakeCollectiveMembers(std::vector<std::string> devices) {
  auto members = std::make_shared<CollectiveMembers>();
  for (const std::string& name : devices) {
    MG_ASSIGN_OR_RETURN(const DeviceName device, DeviceName::Parse(name));
    if (!device.full())
      return InvalidArgument("member '" + name + "' of a collective group is no full device name");
    if (std::count(devices.begin(), devices.end(), name) != 1)
      return InvalidArgument("'" + name + "' is a member of a collective group twice");
    const std::string task = device.TaskName();
    const auto found = std::find(members->tasks.begin(), members->tasks.end(), task);
    members->task_of.push_back(static_cast<int>(found - members->tasks.begin()));
    if (found == members->tasks.end()) members->tasks.push_back(task);
  }
  members->devices = std::move(devices);
  return Members(members);
}

const CollectiveHome* CollectivesOf(const KernelConstruction& construction) {
  const auto* offers = dynamic_cast<const CollectiveConstruction*>(&construction);
  return offers == nullptr ? nullptr : offers->collectives();
}

class CollectiveManager::Impl : public std::enable_shared_from_this<CollectiveManager::Impl> {
 public:
  Impl(CollectiveHost* host, ThreadPools* pools) : host_(host), pools_(pools) {}

  void Start(const Request& request);
  void Cancel(const Request& request);
  void StepFailed(uint64_t session, uint64_t step, const Status& status);
  void PeerLost(uint64_t session, const std::string& task);
  void SessionClosed(uint64_t session);
  PayloadSink OnMessage(const StepMessage& message, size_t payload_bytes);
  void OnDelivered(const StepMessage& message, Payload payload);
  void Stop();

 private:
  // What is to be done once the lock is given back, in this order.
  struct Actions {
    struct Send {
      uint64_t session;
      std::string task;
      int32_t group;
      uint64_t round;  // 1 where there is none
      CollectiveMessage message;
      Payload payload;
      OperationPtr operation;  // fails if the payload does not arrive
    };
    struct End {
      Request request;
      Status status;
      std::vector<Tensor> outputs;
    };
    std::vector<Send> sends;
    std::vector<OperationPtr> enqueue;  // threads to start at work
    std::vector<OperationPtr> work;     // for this thread
    std::vector<End> ends;
  };

  // One own device in a group that is found.
  struct Member {
    enum class State { kOut, kJoining, kIn };
    State state = State::kOut;
    uint64_t session = 0;
    int size = 0;
    uint64_t epoch = 0;
    bool one_session = false;
    Members members;
    std::map<int, uint64_t> rounds;  // by instance
    uint64_t last_step = 0;          // that used the epoch
    std::vector<Request> waiting;    // kJoining
    std::string leader;
    // The last epoch that was broken: what the steps that used it are told.
    uint64_t broken_session = 0, broken_step = 0;
    Status broken;
  };

  // At the leader: a group that is not complete.
  struct Joiner {
    uint64_t session = 0;
    std::string task;
    milliseconds timeout{0};
    Clock::time_point deadline;
  };
  struct Forming {
    int size = 0;
    std::map<std::string, Joiner> joined;  // by device
  };

  // A payload on its way.
  struct Arrival {
    std::shared_ptr<Impl> impl;
    Key key;
    uint64_t session = 0;
    CollectiveMessage message;
    Payload payload;
    OperationPtr into;  // a sum that lands in the operation's outputs
  };

  // All with the lock held.
  OperationPtr FindOrPark(const Key& key, uint32_t timeout_ms);
  void Begin(const Request& request, const Key& key, const Members& members, bool epoch_breaks,
             Actions* actions);
  void Contribute(const OperationPtr& operation, int rank, Actions* actions);
  void Apply(const OperationPtr& operation, const CollectiveMessage& message, Payload payload,
             Actions* actions);
  void ApplyReduce(const OperationPtr& operation, const CollectiveMessage& message, Payload payload,
                   Actions* actions);
  void MakeReady(Operation* operation, uint32_t piece);
  void MakeAllReady(Operation* operation);
  void Schedule(const OperationPtr& operation, bool may_enqueue, Actions* actions);
  void SumDone(const OperationPtr& operation, uint32_t piece, Actions* actions);
  void CheckComplete(const OperationPtr& operation, Actions* actions);
  void Fail(const OperationPtr& operation, const Status& status, Actions* actions);
  void EndLocal(const OperationPtr& operation, const Status& status, Actions* actions);
  static CollectiveMessage MessageOf(const Operation& op, CollectiveWhat what, int rank);
  void SendPieces(const OperationPtr& operation, size_t task, Actions* actions);
  void SendToOthers(const OperationPtr& operation, CollectiveMessage message, const Payload& payload,
                    Actions* actions);
  void Join(Member* member, const Request& request, Actions* actions);
  void HandleJoin(uint64_t session, const std::string& task, int32_t group, const CollectiveMessage& m,
                  Actions* actions);
  void HandleLeave(int32_t group, const std::string& device);
  void HandleFormed(int32_t group, const CollectiveMessage& message, const Payload& payload,
                    Actions* actions);
  void HandleRefused(int32_t group, const CollectiveMessage& message, Actions* actions);
  void HandleControl(uint64_t session, int32_t group, const CollectiveMessage& message,
                     const Payload& payload, Actions* actions);
  void Answer(const Joiner& joiner, int32_t group, CollectiveMessage message, Payload payload,
              Actions* actions);
  void Refuse(int32_t group, const std::string& device, const Joiner& joiner, const Status& status,
              Actions* actions);
  void StopJoining(Member* member, const Status& status, Actions* actions);
  void Break(uint64_t epoch, const Status& status, bool tell, Actions* actions);
  void RunInEpoch(int32_t group, Member* member, const Request& request, Actions* actions);
  void Tick(Clock::time_point now, Actions* actions);
  // Something has a deadline from now on.
  void WakeTimer() {
    if (!timer_.joinable() && !stopped_) timer_ = StartThread("mg-collective", [this] { TimeLoop(); });
    if (waiting_) changed_.notify_all();
  }
  Status Overdue(int32_t group, const Forming& forming, const Joiner& joiner) const;

  void Do(Actions* actions);
  void Work(const OperationPtr& operation);
  static void RunTask(void* context, int32_t);
  void OnSent(const OperationPtr& operation, const std::string& task, bool piece, const Status& status);
  void OnArrival(const std::shared_ptr<Arrival>& arrival, const Status& status);
  void TimeLoop();

  CollectiveHost* const host_;
  ThreadPools* const pools_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;  // for the timer
  std::condition_variable drained_;  // after Stop: working_ == 0
  std::map<Key, OperationPtr> operations_;
  std::map<std::pair<int32_t, std::string>, Member> members_;  // by group and device
  std::map<int32_t, Forming> forming_;
  std::map<uint64_t, std::vector<std::string>> lost_;  // tasks, by session
  std::set<uint64_t> broken_;  // epochs that ended before this task was told of them
  int working_ = 0;  // threads inside Work, queued ones too
  bool stopped_ = false;
  bool waiting_ = false;  // the timer sleeps until it is told
  std::thread timer_;
};

// ---- after the lock

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
      done = [self = weak_from_this(), operation = send.operation, task = send.task, piece](const Status& status) {
        if (const std::shared_ptr<Impl> impl = self.lock()) impl->OnSent(operation, task, piece, status);
      };
    }
    const Status status =
        host_->SendCollective(send.session, send.task, std::move(message), std::move(send.payload), std::move(done));
    if (!status.ok() && send.operation != nullptr) OnSent(send.operation, send.task, piece, status);
  }
  for (OperationPtr& operation : actions->enqueue) {
    using Task = std::pair<std::shared_ptr<Impl>, OperationPtr>;
    pools_->Enqueue(&RunTask, new Task(shared_from_this(), std::move(operation)), 0);
  }
  for (Actions::End& end : actions->ends) end.request->done(end.status, std::move(end.outputs));
  for (const OperationPtr& operation : actions->work) Work(operation);
}

void CollectiveManager::Impl::RunTask(void* context, int32_t) {
  const std::unique_ptr<std::pair<std::shared_ptr<Impl>, OperationPtr>> task(
      static_cast<std::pair<std::shared_ptr<Impl>, OperationPtr>*>(context));
  task->first->Work(task->second);
}

// Merges pieces until none is ready. Counted in `workers` and `working_` already.
void CollectiveManager::Impl::Work(const OperationPtr& operation) {
  Operation& op = *operation;
  std::unique_lock lock(mutex_);
  while (!op.over && !op.ready.empty()) {
    Actions actions;
    const uint32_t piece = op.ready.front();
    op.ready.pop_front();
    if (piece == Operation::kAssemble) {
      lock.unlock();
      Result<Tensor> output = op.Assemble();
      lock.lock();
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
      lock.unlock();
      op.Merge(piece, from, to);
      lock.lock();
      if (op.over) break;
      op.pieces[piece].merged = to;
      op.pieces[piece].busy = false;
      if (to < op.ranks()) {
        MakeReady(&op, piece);
      } else {
        SumDone(operation, piece, &actions);
      }
    }
    lock.unlock();
    Do(&actions);
    lock.lock();
  }
  --op.workers;
  if (op.over && op.workers == 0) op.Clear();
  if (--working_ == 0 && stopped_) drained_.notify_all();
}

// ---- operations

OperationPtr CollectiveManager::Impl::FindOrPark(const Key& key, uint32_t timeout_ms) {
  OperationPtr& operation = operations_[key];
  if (operation == nullptr) {
    operation = std::make_shared<Operation>();
    operation->key = key;
    operation->deadline = Clock::now() + milliseconds(timeout_ms) + kLeaderGrace;
    WakeTimer();
  }
  return operation;
}

void CollectiveManager::Impl::Start(const Request& request) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    request->deadline = Clock::now() + request->timeout;
    Member* member = nullptr;
    if (request->members == nullptr) member = &members_[{request->group_key, request->device}];
    if (stopped_ || request->cancelled) {
      actions.ends.push_back({request, Cancelled("the step was aborted").AsDerived(), {}});
    } else if (request->members != nullptr) {
      const Key key{request->session, request->step, request->group_key, request->instance_key};
      Begin(request, key, request->members, false, &actions);
    } else if (member->state == Member::State::kOut && !member->broken.ok() &&
               member->broken_session == request->session && request->step <= member->broken_step) {
      actions.ends.push_back({request, member->broken, {}});
    } else {
      if (member->state == Member::State::kIn &&
          (member->session != request->session || member->size != request->group_size)) {
        Break(member->epoch, Aborted(request->device + " joined " + GroupName(request->group_key) + " anew"), true,
              &actions);
      }
      if (member->state == Member::State::kIn) {
        RunInEpoch(request->group_key, member, request, &actions);
      } else {
        Join(member, request, &actions);
      }
    }
  }
  Do(&actions);
}

void CollectiveManager::Impl::RunInEpoch(int32_t group, Member* member, const Request& request, Actions* actions) {
  Key key{member->epoch, request->step, group, request->instance_key};
  if (!member->one_session) key.round = ++member->rounds[request->instance_key];
  member->last_step = std::max(member->last_step, request->step);
  Begin(request, key, member->members, !member->one_session, actions);
}

void CollectiveManager::Impl::Begin(const Request& request, const Key& key, const Members& members, bool epoch_breaks,
                                    Actions* actions) {
  const auto refuse = [&](const Status& status) { actions->ends.push_back({request, status, {}}); };
  const auto place = std::find(members->devices.begin(), members->devices.end(), request->device);
  const std::string name = GroupName(key.group);
  if (place == members->devices.end())
    return refuse(InvalidArgument(request->device + " is not a member of " + name));
  if (request->group_size != members->size()) {
    return refuse(InvalidArgument(name + " has " + std::to_string(members->size()) + " members, not " +
                                  std::to_string(request->group_size)));
  }
  request->rank = static_cast<int>(place - members->devices.begin());
  const auto rank = static_cast<size_t>(request->rank);
  const OperationPtr operation = FindOrPark(key, 0);
  Operation& op = *operation;
  if (op.over) return refuse(op.status);
  if (!op.started) {
    const auto self = std::find(members->tasks.begin(), members->tasks.end(), host_->task());
    const Status status = op.Begin(request, members, static_cast<int>(self - members->tasks.begin()));
    op.epoch_breaks = epoch_breaks;
    op.deadline = request->deadline;
    if (!status.ok()) {
      op.local[rank] = request;
      return Fail(operation, status, actions);
    }
    if (const auto lost = lost_.find(request->session); lost != lost_.end()) {
      for (const std::string& task : lost->second) {
        if (std::find(members->tasks.begin(), members->tasks.end(), task) == members->tasks.end()) continue;
        op.local[rank] = request;
        return Fail(operation, Unavailable(task + " is lost"), actions);
      }
    }
  } else if (op.local[rank] != nullptr) {
    return refuse(InvalidArgument(op.Describe() + " is run twice in one step on " + request->device));
  } else if (op.signature != collective::SignatureOf(*request)) {
    op.local[rank] = request;
    return Fail(operation,
                InvalidArgument("the members differ in operation, types or shapes: " + members->Describe(request->rank)),
                actions);
  }
  op.deadline = std::min(op.deadline, request->deadline);
  op.local[rank] = request;
  op.heard[rank] = true;
  --op.local_missing;
  Contribute(operation, request->rank, actions);
  auto parked = std::move(op.parked);
  op.parked.clear();
  for (auto& [message, payload] : parked) {
    if (!op.over) Apply(operation, message, std::move(payload), actions);
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
    actions->sends.push_back(
        {op.spec.session, op.members->tasks[task], op.key.group, op.key.round, message, payload, operation});
  }
}

// What an own member's input is to others.
void CollectiveManager::Impl::Contribute(const OperationPtr& operation, int rank, Actions* actions) {
  Operation& op = *operation;
  const CollectiveRequest& request = *op.local[static_cast<size_t>(rank)];
  if (op.spec.kind == CollectiveKind::kBroadcast) {
    if (request.inputs.empty()) return;
    if (op.have_value) {
      return Fail(operation, InvalidArgument("two members send: " + op.members->Describe(rank) + " is the second"),
                  actions);
    }
    op.outputs[0] = request.inputs[0];
    op.have_value = true;
  }
  if (op.alone()) return;
  if (op.spec.kind != CollectiveKind::kReduce || op.small) {
    CollectiveMessage message = MessageOf(op, CollectiveWhat::kWhole, rank);
    if (op.spec.kind != CollectiveKind::kReduce) {
      message.dtype = op.spec.dtype;
      message.shape = request.inputs[0].shape();
    }
    return SendToOthers(operation, message, op.LocalWhole(rank), actions);
  }
  for (uint32_t i = 0; i < op.pieces.size(); ++i) {
    if (!op.owned(op.pieces[i])) op.outgoing[static_cast<size_t>(op.pieces[i].owner)].waiting.emplace_back(i, rank);
  }
  for (size_t task = 0; task < op.outgoing.size(); ++task) SendPieces(operation, task, actions);
}

// Sends what the window has room for: the receiver then works in little memory.
void CollectiveManager::Impl::SendPieces(const OperationPtr& operation, size_t task, Actions* actions) {
  Operation& op = *operation;
  Operation::Outgoing& outgoing = op.outgoing[task];
  for (; outgoing.sent < collective::kWindow && !outgoing.waiting.empty(); ++outgoing.sent) {
    const auto [index, rank] = outgoing.waiting.front();
    outgoing.waiting.pop_front();
    CollectiveMessage message = MessageOf(op, CollectiveWhat::kPiece, rank);
    message.index = index;
    actions->sends.push_back({op.spec.session, op.members->tasks[task], op.key.group, op.key.round, std::move(message),
                              op.LocalPiece(rank, op.pieces[index]), operation});
  }
}

// The payload of a data message has left, or will not.
void CollectiveManager::Impl::OnSent(const OperationPtr& operation, const std::string& task, bool piece,
                                     const Status& status) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    Operation& op = *operation;
    if (op.over) return;
    if (!status.ok()) {
      Fail(operation, Unavailable("sending to " + task + ": " + status.message()), &actions);
    } else if (piece) {
      const auto& tasks = op.members->tasks;
      const auto index = static_cast<size_t>(std::find(tasks.begin(), tasks.end(), task) - tasks.begin());
      --op.outgoing[index].sent;
      SendPieces(operation, index, &actions);
    }
  }
  Do(&actions);
}

CollectiveMessage CollectiveManager::Impl::MessageOf(const Operation& op, CollectiveWhat what, int rank) {
  CollectiveMessage message;
  message.what = what;
  message.kind = static_cast<uint8_t>(op.spec.kind);
  message.rank = static_cast<uint16_t>(rank);
  message.instance = op.key.instance;
  message.epoch = op.key.epoch;
  message.timeout_ms = Milliseconds(op.spec.timeout);
  message.signature = op.signature;
  return message;
}

void CollectiveManager::Impl::Apply(const OperationPtr& operation, const CollectiveMessage& message, Payload payload,
                                    Actions* actions) {
  Operation& op = *operation;
  const auto rank = static_cast<size_t>(message.rank);
  if (message.rank >= op.ranks() || op.is_local(message.rank)) {
    return Fail(operation, DataLoss("a message of rank " + std::to_string(rank) + " came"), actions);
  }
  if (message.signature != op.signature) {
    return Fail(operation,
                InvalidArgument("the members differ in operation, types or shapes: " + op.members->Describe(message.rank)),
                actions);
  }
  op.heard[rank] = true;
  if (op.spec.kind == CollectiveKind::kReduce) return ApplyReduce(operation, message, std::move(payload), actions);
  if (message.what != CollectiveWhat::kWhole || message.dtype != op.spec.dtype ||
      payload.bytes != static_cast<size_t>(message.shape.elements()) * DTypeSize(message.dtype)) {
    return Fail(operation, DataLoss("a tensor of " + op.members->Describe(message.rank) + " does not fit"), actions);
  }
  if (op.spec.kind == CollectiveKind::kGather) {
    op.whole[rank] = std::move(payload);
    op.shapes[rank] = message.shape;
  } else if (op.have_value) {
    return Fail(operation,
                InvalidArgument("two members send: " + op.members->Describe(message.rank) + " is the second"), actions);
  } else {
    if (!payload.buffer) payload.buffer = Buffer::Allocate(HostAllocator(), 0);
    op.outputs[0] = Tensor(message.dtype, message.shape, std::move(payload.buffer), payload.offset);
    op.have_value = true;
  }
}

void CollectiveManager::Impl::ApplyReduce(const OperationPtr& operation, const CollectiveMessage& message,
                                          Payload payload, Actions* actions) {
  Operation& op = *operation;
  const auto rank = static_cast<size_t>(message.rank);
  size_t expected = 0;
  if (message.what == CollectiveWhat::kWhole && op.small) {
    for (const Piece& piece : op.pieces) expected += piece.bytes;
  } else if (message.what != CollectiveWhat::kWhole && !op.small && message.index < op.pieces.size()) {
    expected = op.pieces[message.index].bytes;
  } else {
    return Fail(operation, DataLoss("a message of " + op.members->Describe(message.rank) + " does not fit"), actions);
  }
  if (payload.bytes != expected) {
    return Fail(operation, DataLoss("a piece of " + op.members->Describe(message.rank) + " has " +
                                    std::to_string(payload.bytes) + " bytes, not " + std::to_string(expected)),
                actions);
  }
  if (message.what == CollectiveWhat::kWhole) {
    op.whole[rank] = std::move(payload);
    for (uint32_t i = 0; i < op.pieces.size(); ++i) MakeReady(&op, i);
  } else if (message.what == CollectiveWhat::kPiece) {
    op.slots[message.index * static_cast<size_t>(op.ranks()) + rank] = std::move(payload);
    MakeReady(&op, message.index);
  } else {  // a sum that came by reference
    const Payload place = op.SumOf(op.pieces[message.index]);
    std::copy_n(static_cast<const char*>(payload.data()), payload.bytes,
                static_cast<char*>(place.buffer.data()) + place.offset);
    SumDone(operation, message.index, actions);
  }
}

// Queues the piece if this task merges it and something is there to be merged.
void CollectiveManager::Impl::MakeReady(Operation* op, uint32_t index) {
  Piece& piece = op->pieces[index];
  if (piece.busy || !op->owned(piece)) return;
  const int available = op->Available(index);
  const int least = op->small || piece.merged == 0 ? 2 : 1;
  if (available - piece.merged < std::min(least, op->ranks() - piece.merged)) return;
  if (op->small && available < op->ranks()) return;
  if (piece.merged == op->ranks()) return;
  piece.busy = true;
  op->ready.push_back(index);
}

void CollectiveManager::Impl::MakeAllReady(Operation* op) {
  for (uint32_t i = 0; i < op->pieces.size(); ++i) MakeReady(op, i);
}

void CollectiveManager::Impl::Schedule(const OperationPtr& operation, bool may_enqueue, Actions* actions) {
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
  const auto add = [&](std::vector<OperationPtr>* list) {
    ++op.workers;
    ++working_;
    list->push_back(operation);
  };
  const int wanted = bytes <= kInlineBytes ? 0 : std::min(pools_->intra_op(), static_cast<int>(op.ready.size()));
  // A piece that has just come lies in this core's cache: others help only where there are many.
  int free = may_enqueue ? wanted : std::min(wanted, pools_->idle() - kSpareThreads);
  for (; free > 0 && op.workers < wanted; --free) add(&actions->enqueue);
  if (op.workers == 0) add(&actions->work);
}

void CollectiveManager::Impl::SumDone(const OperationPtr& operation, uint32_t index, Actions* actions) {
  Operation& op = *operation;
  if (op.summed[index]) return;
  op.summed[index] = true;
  --op.pieces_left;
  const Piece& piece = op.pieces[index];
  if (!op.small && op.owned(piece)) {
    const auto ranks = static_cast<size_t>(op.ranks());
    for (size_t rank = 0; rank < ranks; ++rank) op.slots[index * ranks + rank] = {};
    if (!op.alone()) {
      const auto own = std::find(op.members->task_of.begin(), op.members->task_of.end(), op.self);
      CollectiveMessage message =
          MessageOf(op, CollectiveWhat::kSum, static_cast<int>(own - op.members->task_of.begin()));
      message.index = index;
      SendToOthers(operation, message, op.SumOf(piece), actions);
    }
  }
  CheckComplete(operation, actions);
}

void CollectiveManager::Impl::CheckComplete(const OperationPtr& operation, Actions* actions) {
  Operation& op = *operation;
  if (op.over) return;
  const bool all_heard = std::find(op.heard.begin(), op.heard.end(), false) == op.heard.end();
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

// Ends the requests that are here.
void CollectiveManager::Impl::EndLocal(const OperationPtr& operation, const Status& status, Actions* actions) {
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
  // Who gets an output alone may write it in place.
  if (op.workers == 0) {
    op.Clear();
  } else {
    op.outputs.clear();
  }
}

void CollectiveManager::Impl::Fail(const OperationPtr& operation, const Status& status, Actions* actions) {
  Operation& op = *operation;
  if (op.over) return;
  op.over = true;
  op.status = status.WithContext(op.Describe());
  EndLocal(operation, op.status, actions);
  // What still comes for it is dropped for as long as it could come.
  op.deadline = Clock::now() + op.spec.timeout + kLeaderGrace;
  if (op.workers == 0) op.Clear();
  if (op.epoch_breaks) Break(op.key.epoch, op.status, true, actions);
}

void CollectiveManager::Impl::Cancel(const Request& request) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    request->cancelled = true;
    const Status status = Cancelled("the step was aborted").AsDerived();
    for (auto& [key, operation] : operations_) {
      const auto& local = operation->local;
      if (std::find(local.begin(), local.end(), request) == local.end() || request->rank < 0) continue;
      const std::string who = operation->members->Describe(request->rank);
      actions.ends.push_back({request, status, {}});
      request->rank = -1;
      Fail(operation, Aborted("the step of " + who + " was aborted").AsDerived(), &actions);
      break;
    }
    const auto found = members_.find({request->group_key, request->device});
    if (found != members_.end()) {
      Member& member = found->second;
      if (std::erase(member.waiting, request) != 0) {
        actions.ends.push_back({request, status, {}});
        if (member.waiting.empty()) StopJoining(&member, status, &actions);
      }
    }
  }
  Do(&actions);
}

// ---- finding members

void CollectiveManager::Impl::Join(Member* member, const Request& request, Actions* actions) {
  if (member->state == Member::State::kJoining &&
      (member->session != request->session || member->size != request->group_size)) {
    StopJoining(member, Aborted(request->device + " joined " + GroupName(request->group_key) + " anew"), actions);
  }
  member->waiting.push_back(request);
  if (member->state == Member::State::kJoining) return;
  WakeTimer();
  const std::string job = DeviceName::Parse(request->device).value().job;
  const std::vector<std::string> tasks = host_->TasksOfJob(request->session, job);
  member->state = Member::State::kJoining;
  member->session = request->session;
  member->size = request->group_size;
  member->leader = tasks.empty() ? host_->task() : tasks.front();
  CollectiveMessage message;
  message.what = CollectiveWhat::kJoin;
  message.index = static_cast<uint32_t>(request->group_size);
  message.timeout_ms = Milliseconds(request->timeout);
  message.device = request->device;
  if (member->leader == host_->task()) {
    HandleJoin(request->session, host_->task(), request->group_key, message, actions);
  } else {
    actions->sends.push_back({request->session, member->leader, request->group_key, 1, message, {}, nullptr});
  }
}

void CollectiveManager::Impl::StopJoining(Member* member, const Status& status, Actions* actions) {
  if (member->state != Member::State::kJoining) return;
  member->state = Member::State::kOut;
  for (const Request& request : std::exchange(member->waiting, {})) actions->ends.push_back({request, status, {}});
  const auto self = std::find_if(members_.begin(), members_.end(),
                                 [&](const auto& entry) { return &entry.second == member; });
  const auto& [group, device] = self->first;
  if (member->leader == host_->task()) return HandleLeave(group, device);
  CollectiveMessage message;
  message.what = CollectiveWhat::kLeave;
  message.device = device;
  actions->sends.push_back({member->session, member->leader, group, 1, message, {}, nullptr});
}

void CollectiveManager::Impl::HandleLeave(int32_t group, const std::string& device) {
  const auto found = forming_.find(group);
  if (found == forming_.end()) return;
  found->second.joined.erase(device);
  if (found->second.joined.empty()) forming_.erase(found);
}

void CollectiveManager::Impl::Answer(const Joiner& joiner, int32_t group, CollectiveMessage message, Payload payload,
                                     Actions* actions) {
  if (joiner.task == host_->task()) {
    HandleControl(joiner.session, group, message, payload, actions);
  } else {
    actions->sends.push_back({joiner.session, joiner.task, group, 1, std::move(message), std::move(payload), nullptr});
  }
}

void CollectiveManager::Impl::Refuse(int32_t group, const std::string& device, const Joiner& joiner,
                                     const Status& status, Actions* actions) {
  CollectiveMessage message;
  message.what = CollectiveWhat::kRefused;
  message.index = static_cast<uint32_t>(status.code());
  message.device = device;
  message.text = status.message();
  Answer(joiner, group, std::move(message), {}, actions);
}

void CollectiveManager::Impl::HandleJoin(uint64_t session, const std::string& task, int32_t group,
                                         const CollectiveMessage& message, Actions* actions) {
  Forming& forming = forming_[group];
  const int size = static_cast<int>(message.index);
  if (forming.joined.empty()) forming.size = size;
  const milliseconds timeout(message.timeout_ms);
  forming.joined[message.device] = {session, task, timeout, Clock::now() + timeout};
  WakeTimer();
  const auto take = [&] {
    const std::map<std::string, Joiner> joined = std::move(forming.joined);
    forming_.erase(group);
    return joined;
  };
  if (forming.size != size) {
    const std::string text = GroupName(group) + " has " + std::to_string(forming.size) + " members for some and " +
                             std::to_string(size) + " for " + message.device;
    for (const auto& [device, joiner] : take()) Refuse(group, device, joiner, InvalidArgument(text), actions);
    return;
  }
  if (static_cast<int>(forming.joined.size()) < size) return;
  const std::map<std::string, Joiner> joined = take();
  std::vector<std::string> devices;
  bool one_session = true;
  for (const auto& [device, joiner] : joined) {
    devices.push_back(device);
    one_session = one_session && joiner.session == session;
  }
  std::sort(devices.begin(), devices.end(),
            [](const std::string& a, const std::string& b) { return DeviceOrder(a) < DeviceOrder(b); });
  Encoder list;
  for (const std::string& device : devices) list.PutBytes(device);
  const Buffer buffer = Buffer::Allocate(HostAllocator(), list.bytes().size());
  std::copy(list.bytes().begin(), list.bytes().end(), static_cast<char*>(buffer.data()));
  CollectiveMessage answer;
  answer.what = CollectiveWhat::kFormed;
  answer.epoch = RandomNonZero();
  answer.index = one_session ? 1 : 0;
  for (const auto& [device, joiner] : joined) {
    answer.device = device;
    Answer(joiner, group, answer, {buffer, 0, list.bytes().size()}, actions);
  }
}

void CollectiveManager::Impl::HandleFormed(int32_t group, const CollectiveMessage& message, const Payload& payload,
                                           Actions* actions) {
  std::vector<std::string> devices;
  Decoder in(std::string_view(static_cast<const char*>(payload.data()), payload.bytes));
  while (in.ok() && !in.rest().empty()) devices.emplace_back(in.GetBytes());
  Result<Members> members = MakeCollectiveMembers(std::move(devices));
  const auto found = members_.find({group, message.device});
  if (!in.ok() || !members.ok() || found == members_.end()) return;
  Member& member = found->second;
  if (member.state == Member::State::kJoining && broken_.contains(message.epoch)) {
    StopJoining(&member, Aborted(GroupName(group) + " broke while it formed"), actions);
    return;
  }
  if (member.state == Member::State::kJoining) {
    member.state = Member::State::kIn;
    member.epoch = message.epoch;
    member.one_session = message.index != 0;
    member.members = members.value();
    member.rounds.clear();
    member.last_step = 0;
    member.broken = Status();
    for (const Request& request : std::exchange(member.waiting, {})) {
      if (member.state == Member::State::kIn) {
        RunInEpoch(group, &member, request, actions);
      } else {
        actions->ends.push_back({request, member.broken, {}});
      }
    }
    return;
  }
  // It has left meanwhile: the others must not wait for it.
  CollectiveMessage broken;
  broken.what = CollectiveWhat::kBroken;
  broken.epoch = message.epoch;
  broken.index = static_cast<uint32_t>(Code::kAborted);
  broken.text = GroupName(group) + ": " + message.device + " has left";
  for (const std::string& task : members.value()->tasks) {
    if (task != host_->task()) actions->sends.push_back({member.session, task, group, 1, broken, {}, nullptr});
  }
  Break(message.epoch, Aborted(broken.text), false, actions);
}

void CollectiveManager::Impl::HandleRefused(int32_t group, const CollectiveMessage& message, Actions* actions) {
  const auto found = members_.find({group, message.device});
  if (found == members_.end() || found->second.state != Member::State::kJoining) return;
  const Status status(static_cast<Code>(message.index), message.text);
  found->second.state = Member::State::kOut;
  for (const Request& request : std::exchange(found->second.waiting, {})) {
    actions->ends.push_back({request, status, {}});
  }
}

void CollectiveManager::Impl::HandleControl(uint64_t session, int32_t group, const CollectiveMessage& message,
                                            const Payload& payload, Actions* actions) {
  switch (message.what) {
    case CollectiveWhat::kJoin: {
      const Result<DeviceName> device = DeviceName::Parse(message.device);
      if (device.ok() && device->full() && message.index > 0)
        HandleJoin(session, device->TaskName(), group, message, actions);
      return;
    }
    case CollectiveWhat::kLeave:
      return HandleLeave(group, message.device);
    case CollectiveWhat::kFormed:
      return HandleFormed(group, message, payload, actions);
    case CollectiveWhat::kRefused:
      return HandleRefused(group, message, actions);
    default:
      Break(message.epoch, Status(static_cast<Code>(message.index), message.text), false, actions);
      return;
  }
}

void CollectiveManager::Impl::Break(uint64_t epoch, const Status& status, bool tell, Actions* actions) {
  bool told = !tell;
  bool known = false;
  // Others hear what happened here, not that it followed from something.
  const Code code = status.code() == Code::kCancelled ? Code::kAborted : status.code();
  for (auto& [where, member] : members_) {
    if (member.state != Member::State::kIn || member.epoch != epoch) continue;
    known = true;
    member.state = Member::State::kOut;
    member.broken = Status(code, status.message());
    member.broken_session = member.session;
    member.broken_step = member.last_step;
    if (std::exchange(told, true)) continue;
    CollectiveMessage message;
    message.what = CollectiveWhat::kBroken;
    message.epoch = epoch;
    message.index = static_cast<uint32_t>(code);
    message.text = status.message();
    for (const std::string& task : member.members->tasks) {
      if (task != host_->task())
        actions->sends.push_back({member.session, task, where.first, 1, message, {}, nullptr});
    }
  }
  if (!known && !tell) broken_.insert(epoch);
  if (broken_.size() > kBrokenKept) broken_.erase(broken_.begin());
  // Also data that came before its own member did.
  std::vector<OperationPtr> pending;
  for (auto it = operations_.lower_bound({epoch, 0, INT32_MIN, INT32_MIN});
       it != operations_.end() && it->first.epoch == epoch;) {
    if (!it->second->started) {
      it = operations_.erase(it);
      continue;
    }
    pending.push_back(it->second);
    ++it;
  }
  for (const OperationPtr& operation : pending) {
    if (operation->over) continue;
    operation->epoch_breaks = false;
    operation->over = true;
    operation->status = Status(code, status.message());
    EndLocal(operation, operation->status, actions);
    operation->deadline = Clock::now() + operation->spec.timeout;
    if (operation->workers == 0) operation->Clear();
  }
}

// ---- what happens elsewhere

void CollectiveManager::Impl::StepFailed(uint64_t session, uint64_t step, const Status& status) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    for (auto& [where, member] : members_) {
      if (member.state != Member::State::kIn || member.session != session || member.one_session) continue;
      member.last_step = std::max(member.last_step, step);
      Break(member.epoch,
            Aborted(GroupName(where.first) + ": a step failed on " + where.second + ": " + status.message()), true,
            &actions);
    }
    // What others sent for it.
    for (auto it = operations_.lower_bound({session, step, INT32_MIN, INT32_MIN});
         it != operations_.end() && it->first.epoch == session && it->first.round == step;) {
      it = it->second->started ? std::next(it) : operations_.erase(it);
    }
  }
  Do(&actions);
}

void CollectiveManager::Impl::PeerLost(uint64_t session, const std::string& task) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    lost_[session].push_back(task);
    const Status status = Unavailable(task + " is lost");
    std::vector<OperationPtr> hit;
    for (const auto& [key, operation] : operations_) {
      if (!operation->started || operation->over || operation->spec.session != session) continue;
      const auto& tasks = operation->members->tasks;
      if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) hit.push_back(operation);
    }
    for (const OperationPtr& operation : hit) Fail(operation, status, &actions);
    const Result<DeviceName> lost = DeviceName::Parse(task);
    for (auto& [where, member] : members_) {
      if (member.session != session) continue;
      if (member.state == Member::State::kIn) {
        const auto& tasks = member.members->tasks;
        if (std::find(tasks.begin(), tasks.end(), task) != tasks.end())
          Break(member.epoch, status.WithContext(GroupName(where.first)), true, &actions);
      } else if (lost.ok() && lost->job == DeviceName::Parse(where.second).value().job) {
        StopJoining(&member, status.WithContext("joining " + GroupName(where.first)), &actions);
      }
    }
    for (auto it = forming_.begin(); it != forming_.end();) {
      std::erase_if(it->second.joined,
                    [&](const auto& entry) { return entry.second.session == session && entry.second.task == task; });
      it = it->second.joined.empty() ? forming_.erase(it) : std::next(it);
    }
  }
  Do(&actions);
}

void CollectiveManager::Impl::SessionClosed(uint64_t session) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    lost_.erase(session);
    for (auto& [where, member] : members_) {
      if (member.session != session) continue;
      const Status status = Aborted(GroupName(where.first) + ": the session of " + where.second + " was closed");
      if (member.state == Member::State::kIn) Break(member.epoch, status, true, &actions);
      StopJoining(&member, status, &actions);
    }
    std::erase_if(members_, [&](const auto& entry) { return entry.second.session == session; });
    for (auto it = forming_.begin(); it != forming_.end();) {
      std::erase_if(it->second.joined, [&](const auto& entry) { return entry.second.session == session; });
      it = it->second.joined.empty() ? forming_.erase(it) : std::next(it);
    }
    std::erase_if(operations_, [&](const auto& entry) {
      return entry.first.epoch == session && (!entry.second->started || entry.second->over);
    });
  }
  Do(&actions);
}

// ---- arrivals

PayloadSink CollectiveManager::Impl::OnMessage(const StepMessage& message, size_t payload_bytes) {
  auto arrival = std::make_shared<Arrival>();
  if (!DecodeCollective(message.body, &arrival->message).ok()) return {};
  arrival->impl = shared_from_this();
  arrival->session = message.session;
  arrival->key = {arrival->message.epoch, message.step, static_cast<int32_t>(message.id), arrival->message.instance};
  PayloadSink sink;
  sink.done = [arrival](const Status& status) { arrival->impl->OnArrival(arrival, status); };
  if (arrival->message.what == CollectiveWhat::kSum) {
    std::lock_guard lock(mutex_);
    const auto found = operations_.find(arrival->key);
    if (found == operations_.end()) return {};
    const OperationPtr& operation = found->second;
    const Operation& op = *operation;
    const uint32_t index = arrival->message.index;
    if (!op.started || op.over || arrival->message.signature != op.signature || index >= op.pieces.size() ||
        op.pieces[index].bytes != payload_bytes || op.owned(op.pieces[index]))
      return {};
    const Payload place = op.SumOf(op.pieces[index]);
    sink.data = static_cast<char*>(place.buffer.data()) + place.offset;
    sink.keep = place.buffer;
    arrival->into = operation;
    return sink;
  }
  arrival->payload = {Buffer::Allocate(HostAllocator(), payload_bytes), 0, payload_bytes};
  if (!arrival->payload.buffer) {
    OnArrival(arrival, ResourceExhausted("no memory for " + std::to_string(payload_bytes) + " bytes that came"));
    return {};
  }
  sink.data = arrival->payload.buffer.data();
  sink.keep = arrival->payload.buffer;
  return sink;
}

void CollectiveManager::Impl::OnDelivered(const StepMessage& message, Payload payload) {
  auto arrival = std::make_shared<Arrival>();
  if (!DecodeCollective(message.body, &arrival->message).ok()) return;
  arrival->impl = shared_from_this();
  arrival->session = message.session;
  arrival->key = {arrival->message.epoch, message.step, static_cast<int32_t>(message.id), arrival->message.instance};
  arrival->payload = std::move(payload);
  OnArrival(arrival, Status());
}

void CollectiveManager::Impl::OnArrival(const std::shared_ptr<Arrival>& arrival, const Status& status) {
  Actions actions;
  {
    std::lock_guard lock(mutex_);
    const CollectiveMessage& message = arrival->message;
    if (stopped_) return;
    if (message.what >= CollectiveWhat::kJoin) {
      if (status.ok())
        HandleControl(arrival->session, arrival->key.group, message, arrival->payload, &actions);
    } else {
      const OperationPtr operation =
          arrival->into != nullptr ? arrival->into : FindOrPark(arrival->key, message.timeout_ms);
      if (operation->over) {
        // Too late.
      } else if (!status.ok()) {
        if (operation->started && message.rank < operation->ranks()) {
          Fail(operation, Unavailable("receiving from " + operation->members->Describe(message.rank) + ": " + status.message()),
               &actions);
        }
      } else if (arrival->into != nullptr) {
        SumDone(operation, message.index, &actions);
      } else if (!operation->started) {
        operation->parked.emplace_back(message, std::move(arrival->payload));
      } else {
        Apply(operation, message, std::move(arrival->payload), &actions);
        CheckComplete(operation, &actions);
        Schedule(operation, false, &actions);
      }
    }
  }
  Do(&actions);
}

// ---- time

Status CollectiveManager::Impl::Overdue(int32_t group, const Forming& forming, const Joiner& joiner) const {
  std::string here, missing;
  std::vector<std::string> tasks;
  for (const auto& [device, other] : forming.joined) {
    here += (here.empty() ? "" : ", ") + device;
    tasks.push_back(other.task);
  }
  const std::string job = DeviceName::Parse(joiner.task).value().job;
  for (const std::string& task : host_->TasksOfJob(joiner.session, job)) {
    if (std::find(tasks.begin(), tasks.end(), task) == tasks.end())
      missing += (missing.empty() ? "" : ", ") + task;
  }
  return DeadlineExceeded(GroupName(group) + " of " + std::to_string(forming.size) + " members: after " +
                          Seconds(joiner.timeout) + " only " + here + " had joined" +
                          (missing.empty() ? "" : "; nobody came from " + missing));
}

void CollectiveManager::Impl::Tick(Clock::time_point now, Actions* actions) {
  std::vector<OperationPtr> late;
  for (auto it = operations_.begin(); it != operations_.end();) {
    const OperationPtr& operation = it->second;
    if (operation->deadline > now) {
      ++it;
    } else if (operation->started && !operation->over) {
      late.push_back(operation);
      ++it;
    } else {
      it = operations_.erase(it);
    }
  }
  for (const OperationPtr& operation : late) {
    if (operation->over) continue;
    Fail(operation,
         DeadlineExceeded("waited " + Seconds(operation->spec.timeout) + " for " + operation->Missing()),
         actions);
  }
  for (auto it = forming_.begin(); it != forming_.end();) {
    auto& [group, forming] = *it;
    std::vector<std::pair<std::string, Joiner>> overdue;
    for (const auto& entry : forming.joined) {
      if (entry.second.deadline <= now) overdue.push_back(entry);
    }
    for (const auto& [device, joiner] : overdue) {
      Refuse(group, device, joiner, Overdue(group, forming, joiner), actions);
    }
    for (const auto& entry : overdue) forming.joined.erase(entry.first);
    it = forming.joined.empty() ? forming_.erase(it) : std::next(it);
  }
  for (auto& [where, member] : members_) {
    if (member.state != Member::State::kJoining) continue;
    const auto overdue = [&](const Request& request) { return request->deadline + kLeaderGrace <= now; };
    if (std::any_of(member.waiting.begin(), member.waiting.end(), overdue)) {
      StopJoining(&member,
                  DeadlineExceeded(GroupName(where.first) + ": its leader, " + member.leader +
                                   ", did not answer " + where.second),
                  actions);
    }
  }
}

void CollectiveManager::Impl::TimeLoop() {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return operations_.empty() && forming_.empty(); };
  const auto joining = [&] {
    return std::any_of(members_.begin(), members_.end(),
                       [](const auto& entry) { return entry.second.state == Member::State::kJoining; });
  };
  int idle_ticks = 0;
  while (!stopped_) {
    // A pause between two operations is no reason to be woken up for the next one.
    idle_ticks = idle() && !joining() ? idle_ticks + 1 : 0;
    if (idle_ticks > 100) {
      waiting_ = true;
      changed_.wait(lock, [&] { return stopped_ || !idle() || joining(); });
      waiting_ = false;
      continue;
    }
    changed_.wait_for(lock, kTick, [&] { return stopped_; });
    Actions actions;
    Tick(Clock::now(), &actions);
    lock.unlock();
    Do(&actions);
    lock.lock();
  }
}

void CollectiveManager::Impl::Stop() {
  Actions actions;
  std::thread timer;
  {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    timer.swap(timer_);
    const Status status = Cancelled("the task shuts down");
    for (auto& [key, operation] : operations_) {
      operation->epoch_breaks = false;
      if (operation->started) Fail(operation, status, &actions);
    }
    for (auto& [where, member] : members_) {
      for (const Request& request : std::exchange(member.waiting, {})) actions.ends.push_back({request, status, {}});
      member.state = Member::State::kOut;
    }
    changed_.notify_all();
    drained_.wait(lock, [&] { return working_ == 0; });
    operations_.clear();
    forming_.clear();
    members_.clear();
  }
  Do(&actions);
  if (timer.joinable()) timer.join();
}

// ---- the public face

CollectiveManager::CollectiveManager(CollectiveHost* host, ThreadPools* pools)
    : impl_(std::make_shared<Impl>(host, pools)) {}
CollectiveManager::~CollectiveManager() = default;
void CollectiveManager::Start(std::shared_ptr<CollectiveRequest> request) { impl_->Start(request); }
void CollectiveManager::Cancel(const std::shared_ptr<CollectiveRequest>& request) { impl_->Cancel(request); }
void CollectiveManager::StepFailed(uint64_t session, uint64_t step, const Status& status) {
  impl_->StepFailed(session, step, status);
}
void CollectiveManager::PeerLost(uint64_t session, const std::string& task) { impl_->PeerLost(session, task); }
void CollectiveManager::SessionClosed(uint64_t session) { impl_->SessionClosed(session); }
PayloadSink CollectiveManager::OnMessage(const StepMessage& message, size_t payload_bytes) {
  return impl_->OnMessage(message, payload_bytes);
}
void CollectiveManager::OnDelivered(const StepMessage& message, Payload payload) {
  impl_->OnDelivered(message, std::move(payload));
}
void CollectiveManager::Stop() { impl_->Stop(); }

}  // namespace monograph
