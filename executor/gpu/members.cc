#include "executor/gpu/members.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/codec.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/thread.h"
#include "executor/collective/manager.h"
#include "executor/collective/operation.h"

namespace monograph {

using Clock = std::chrono::steady_clock;
using collective::GroupName;

namespace {

// How often deadlines and connections are looked at while something is under way, and while it is
// being put on the queue.
constexpr std::chrono::milliseconds kTick{20};
constexpr std::chrono::microseconds kPoll{50};
// A device that is destroyed while a collective is under way is waited for so long.
constexpr std::chrono::seconds kDrain{10};
constexpr size_t kSlotAlignment = 64;

// What each member says of itself in the roll call. A row as bytes:
//   signature:u64 current:u64 sends:u8 dims:u8 dim:i64*dims
struct Row {
  uint64_t signature = 0;  // of what members must agree on
  uint64_t current = 0;    // the communicator that it has; 0: none
  bool sends = false;      // a broadcast's sender
  Shape shape;             // of the first input
};

std::string EncodeRow(const Row& row) {
  Encoder out;
  out.Put(row.signature);
  out.Put(row.current);
  out.Put(static_cast<uint8_t>(row.sends));
  out.Put(static_cast<uint8_t>(row.shape.rank()));
  for (int i = 0; i < row.shape.rank(); ++i) out.Put(row.shape.dim(i));
  return out.Take();
}

Result<std::vector<Row>> DecodeRows(std::string_view bytes, int ranks) {
  std::vector<Row> rows;
  Decoder in(bytes);
  for (int rank = 0; rank < ranks && in.ok(); ++rank) {
    Row& row = rows.emplace_back();
    row.signature = in.Get<uint64_t>();
    row.current = in.Get<uint64_t>();
    row.sends = in.Get<uint8_t>() != 0;
    std::vector<int64_t> dims(in.Get<uint8_t>());
    for (int64_t& dim : dims) dim = in.Get<int64_t>();
    if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; }) ||
        dims.size() > static_cast<size_t>(kMaxRank))
      return DataLoss("a member's shape in a roll call is none");
    row.shape = Shape(std::span<const int64_t>(dims));
  }
  if (!in.ok() || !in.rest().empty()) return DataLoss("a roll call with rows that are none");
  return rows;
}

// FNV-1a, which all members compute alike; never 0.
uint64_t KeyOf(std::string_view id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash | 1;
}

Tensor TensorOf(std::string_view bytes) {
  return Tensor::FromValues<uint8_t>(
      Shape{static_cast<int64_t>(bytes.size())},
      std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

std::string_view BytesOf(const Tensor& tensor) {
  const auto values = tensor.values<uint8_t>();
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

// Memory at one place, for a kernel's one output.
class PlaceAllocator : public Allocator {
 public:
  explicit PlaceAllocator(Tensor* place) : data_(place->raw()), bytes_(place->bytes()) {}
  std::string name() const override { return "a part of a tensor"; }
  void* Allocate(size_t bytes) override { return bytes <= bytes_ ? data_ : nullptr; }
  void Deallocate(void*, size_t) noexcept override {}
  bool on_host() const override { return false; }

 private:
  void* const data_;
  const size_t bytes_;
};

Tensor ViewOf(const Tensor& tensor, const TensorPart& part) {
  return Tensor(tensor.dtype(), Shape{part.elements()}, tensor.buffer(),
                tensor.offset() + static_cast<size_t>(part.begin) * DTypeSize(tensor.dtype()));
}

}  // namespace

std::string WhyNoLink(const CollectiveMembers& members, const DeviceLinks& links) {
  std::map<std::string_view, const std::string*> cards;
  std::string_view kind;
  const std::string* first = nullptr;
  for (const std::string& device : members.devices) {
    const auto link = links.find(device);
    if (link == links.end()) return device + " has no link to other GPUs";
    const std::string_view text = link->second;
    const std::string_view own = text.substr(0, text.find('/'));
    if (first == nullptr) {
      first = &device;
      kind = own;
    } else if (own != kind) {
      return device + " has " + std::string(own) + ", " + *first + " " + std::string(kind);
    }
    const auto [card, fresh] = cards.emplace(text, &device);
    if (!fresh) return *card->second + " and " + device + " are parts of one card";
  }
  return "";
}

// ---- an operation

struct MemberOperation : Arrival, std::enable_shared_from_this<MemberOperation> {
  enum class State {
    kRollCall,  // not all are there
    kNumbers,   // all are; its place in the order is not known
    kWaits,     // it is; it is not its turn
    kUnderWay,  // the members thread has it, then the device
    kOver,
  };
  std::shared_ptr<GpuMembers> members;
  std::shared_ptr<CollectiveRequest> request;
  CollectiveManager* manager = nullptr;
  const DeviceMerge* merge = nullptr;
  const std::string* owner = nullptr;
  KernelContext* context = nullptr;  // until done
  Done done;
  std::vector<Tensor> inputs, outputs;
  Buffer scratch;
  EventId ready = -1;  // the inputs are there
  int rank = -1;

  // Guarded by the members' mutex.
  State state = State::kRollCall;
  bool cancelled = false;
  std::shared_ptr<CollectiveRequest> meeting;  // under way: kRollCall, kNumbers
  LaunchOrder<MemberOperationPtr>::Place place;
  uint64_t left_out = 0;         // of the group, when it was announced
  std::optional<Status> agreed;  // the meeting for a communicator is over
  std::vector<Tensor> agreement;
  Status failure;
  Clock::time_point deadline = Clock::time_point::max();  // when under way
  bool inputs_there = false;                              // the deadline counts
  MemberOperationPtr self;                                // while the device has it
  std::shared_ptr<GpuMembers::Connection> connection;

  // The members thread's, once all are there.
  std::vector<Row> rows;

  int size() const { return request->members->size(); }
  std::string Describe() const {
    return "collective '" + std::string(request->op) + "' (group " +
           std::to_string(request->group_key) + ", instance " +
           std::to_string(request->instance_key) + ")";
  }
  void Arrived(const Status& status) override {
    const MemberOperationPtr keep = std::move(self);
    members->Passed(keep, status);
  }
};

std::shared_ptr<GpuMembers> GpuMembers::Of(GpuDevice* device) {
  return std::static_pointer_cast<GpuMembers>(
      device->members([device] { return std::make_shared<GpuMembers>(device); }));
}

GpuMembers::~GpuMembers() { MG_CHECK(!thread_.joinable()); }

void GpuMembers::Begin(const MemberOperationPtr& operation) {
  if (const Status status = Announce(operation); !status.ok()) {
    {
      std::lock_guard lock(mutex_);
      operation->state = MemberOperation::State::kOver;
    }
    return End(operation, status);
  }
  operation->manager->Start(operation->meeting);
}

// Writes the row.
Status GpuMembers::Announce(const MemberOperationPtr& operation) {
  MemberOperation& op = *operation;
  const CollectiveRequest& request = *op.request;
  const auto& devices = request.members->devices;
  const auto place = std::find(devices.begin(), devices.end(), request.device);
  if (place == devices.end())
    return InvalidArgument(request.device + " is not a member of " + GroupName(request.group_key));
  if (request.group_size != request.members->size()) {
    return InvalidArgument(GroupName(request.group_key) + " has " +
                           std::to_string(request.members->size()) + " members, not " +
                           std::to_string(request.group_size));
  }
  op.rank = static_cast<int>(place - devices.begin());
  StreamDriver& driver = device_.driver();
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      op.ready = events_.back();
      events_.pop_back();
    }
  }
  if (op.ready < 0) {
    MG_ASSIGN_OR_RETURN(op.ready, driver.MakeEvent(/*timed=*/false));
  }
  MG_RETURN_IF_ERROR(
      device_.Issue(Queue::kCompute, [&] { return driver.Record(op.ready, Queue::kCompute); }));

  Row row;
  row.signature = collective::SignatureOf(request);
  row.sends = request.kind == CollectiveKind::kBroadcast && !op.inputs.empty();
  if (!op.inputs.empty()) row.shape = op.inputs[0].shape();
  op.request->inputs.clear();
  std::lock_guard lock(mutex_);
  if (stopped_ || op.cancelled) return Cancelled("the step was aborted").AsDerived();
  const Group& group = groups_[devices];
  if (group.connection != nullptr && !group.connection->closed) row.current = group.connection->key;
  op.left_out = group.left_out;
  if (!thread_.joinable()) {
    thread_ = StartThread("mg-gpu" + std::to_string(device_.info().name.id) + "-peers",
                          [this] { Thread(); });
  }
  op.meeting = MeetingFor(op, Meeting::kRollCall, EncodeRow(row));
  op.meeting->done = [self = shared_from_this(), operation](const Status& status,
                                                            std::vector<Tensor> outputs) {
    self->Heard(operation, status, outputs);
  };
  return Status();
}

std::shared_ptr<CollectiveRequest> GpuMembers::MeetingFor(const MemberOperation& op,
                                                          Meeting meeting,
                                                          std::string_view row) const {
  const CollectiveRequest& request = *op.request;
  auto call = std::make_shared<CollectiveRequest>();
  call->kind = CollectiveKind::kGather;
  call->op = request.op;
  call->device = request.device;
  call->session = request.session;
  call->step = request.step;
  call->group_size = request.group_size;
  call->group_key = request.group_key;
  call->instance_key = request.instance_key;
  call->meeting = static_cast<uint8_t>(meeting);
  call->members = request.members;
  call->dtype = DT_UINT8;
  call->timeout = request.timeout;
  call->inputs.push_back(TensorOf(row));
  return call;
}

// Others may launch it, and use their communicators for it: this member's is not that of the same
// collectives any more.
void GpuMembers::LeaveOut(MemberOperation& op) {
  Group& group = groups_[op.request->members->devices];
  ++group.left_out;
  if (group.connection != nullptr) group.connection->closed = true;
}

Status GpuMembers::MayGoOn(const MemberOperation& op, const Status& status) const {
  if (status.ok() && (stopped_ || op.cancelled))
    return Cancelled("the step was aborted").AsDerived();
  return status;
}

void GpuMembers::Heard(const MemberOperationPtr& operation, const Status& status,
                       const std::vector<Tensor>& rows) {
  MemberOperation& op = *operation;
  Status failure = status;
  if (status.ok()) {
    Result<std::vector<Row>> decoded = DecodeRows(BytesOf(rows[0]), op.size());
    if (decoded.ok()) {
      op.rows = std::move(decoded).value();
    } else {
      failure = decoded.status().WithContext(op.Describe());
    }
  }
  int senders = 0;
  for (int rank = 0; rank < static_cast<int>(op.rows.size()); ++rank) {
    const Row& row = op.rows[static_cast<size_t>(rank)];
    senders += row.sends ? 1 : 0;
    if (failure.ok() && row.signature != op.rows[0].signature) {
      failure = InvalidArgument(op.Describe() + ": the members differ in operation, types or " +
                                "shapes: " + op.request->members->Describe(rank));
    }
  }
  if (failure.ok() && op.request->kind == CollectiveKind::kBroadcast && senders != 1) {
    failure =
        InvalidArgument(op.Describe() + ": " + std::to_string(senders) + " members send; one must");
  }
  std::shared_ptr<CollectiveRequest> numbers;
  {
    std::lock_guard lock(mutex_);
    op.meeting = nullptr;
    failure = MayGoOn(op, failure);
    if (failure.ok()) {
      const CollectiveRequest& request = *op.request;
      op.place = order_.Propose(
          {request.session, request.step, request.group_key, request.instance_key}, operation);
      op.state = MemberOperation::State::kNumbers;
      Encoder number;
      number.Put(op.place.first);
      numbers = op.meeting = MeetingFor(op, Meeting::kNumbers, number.bytes());
      numbers->done = [self = shared_from_this(), operation](const Status& met,
                                                             std::vector<Tensor> outputs) {
        self->Numbered(operation, met, outputs);
      };
    } else {
      op.state = MemberOperation::State::kOver;
      LeaveOut(op);
    }
  }
  if (numbers != nullptr) {
    op.manager->Start(numbers);
  } else {
    End(operation, failure);
  }
}

void GpuMembers::Numbered(const MemberOperationPtr& operation, const Status& status,
                          const std::vector<Tensor>& rows) {
  MemberOperation& op = *operation;
  Status failure = status;
  uint64_t number = 0;
  if (status.ok()) {
    Decoder in(BytesOf(rows[0]));
    for (int rank = 0; rank < op.size(); ++rank) number = std::max(number, in.Get<uint64_t>());
    if (!in.ok() || !in.rest().empty())
      failure = DataLoss(op.Describe() + ": numbers of its place that are none");
  }
  {
    std::lock_guard lock(mutex_);
    op.meeting = nullptr;
    failure = MayGoOn(op, failure);
    if (failure.ok()) {
      op.place = order_.Decide(op.place, number);
      op.state = MemberOperation::State::kWaits;
    } else {
      order_.Remove(op.place);
      op.state = MemberOperation::State::kOver;
      LeaveOut(op);
    }
    Wake();
  }
  if (!failure.ok()) End(operation, failure);
}

void GpuMembers::Cancel(const MemberOperationPtr& operation) {
  std::shared_ptr<CollectiveRequest> meeting;
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    operation->cancelled = true;
    if (operation->state == MemberOperation::State::kRollCall ||
        operation->state == MemberOperation::State::kNumbers) {
      meeting = operation->meeting;
    } else if (operation->state == MemberOperation::State::kWaits) {
      order_.Remove(operation->place);
      operation->state = MemberOperation::State::kOver;
      LeaveOut(*operation);
      over = true;
    }
    Wake();
  }
  if (meeting != nullptr) operation->manager->Cancel(meeting);
  if (over) End(operation, Cancelled("the step was aborted").AsDerived());
}

// ---- the members thread

void GpuMembers::Thread() {
  (void)device_.driver().Enter();  // what fails there fails below
  auto stopped_at = Clock::time_point::max();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const MemberOperationPtr* next = order_.Next(); next != nullptr) {
      const MemberOperationPtr operation = *next;
      order_.Remove(operation->place);
      operation->state = MemberOperation::State::kUnderWay;
      lock.unlock();
      Launch(operation);
      lock.lock();
      continue;
    }
    Watch(&lock);
    Retire(&lock);
    if (stopped_) {
      if (under_way_.empty()) break;
      stopped_at = std::min(stopped_at, Clock::now());
      if (Clock::now() > stopped_at + kDrain) break;
    }
    if (order_.Next() != nullptr) continue;
    if (under_way_.empty() && !stopped_) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kTick);
    }
  }
  for (auto& [devices, group] : groups_) {
    if (group.connection != nullptr) retired_.push_back(std::move(group.connection));
  }
  const auto until = Clock::now() + kDrain;
  do {
    Retire(&lock);
  } while (aborting_ > 0 && changed_.wait_until(lock, until) == std::cv_status::no_timeout);
  if (aborting_ > 0) LogError(device_.name() + ": a communicator's abort does not end");
}

// Destroys what nobody uses any more.
void GpuMembers::Retire(std::unique_lock<std::mutex>* lock) {
  std::vector<std::shared_ptr<Connection>> gone;
  std::erase_if(retired_, [&gone](std::shared_ptr<Connection>& connection) {
    if (connection.use_count() > 1) return false;
    gone.push_back(std::move(connection));
    return true;
  });
  if (gone.empty()) return;
  lock->unlock();
  for (auto& connection : gone) Abort(std::move(connection));
  gone.clear();
  lock->lock();
}

// On a thread of its own: NCCL frees memory of the GPU, and CUDA may wait for every kernel first.
// One of another communicator may be waiting for a member that is gone, and must be aborted then.
void GpuMembers::Abort(std::shared_ptr<Connection> connection) {
  if (!device_.health().ok()) {
    connection->communicator->Abandon();
    std::lock_guard lock(mutex_);
    connection->ended = true;
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ++aborting_;
  }
  StartThread("mg-gpu" + std::to_string(device_.info().name.id) + "-abort",
              [self = shared_from_this(), driver = device_.shared_driver(),
               connection = std::move(connection)]() mutable {
                (void)driver->Enter();
                connection->communicator->Abort();
                {
                  std::lock_guard lock(self->mutex_);
                  connection->ended = true;
                }
                connection = nullptr;
                std::lock_guard lock(self->mutex_);
                --self->aborting_;
                self->Wake();
              })
      .detach();
}

// The abort may wait for what others have on the GPU: they are looked at meanwhile, and end by
// their deadlines.
void GpuMembers::AwaitAbort(const Connection& connection) {
  std::unique_lock lock(mutex_);
  for (auto until = Clock::now() + kDrain; !connection.ended && Clock::now() < until;) {
    Watch(&lock);
    for (const MemberOperationPtr& operation : under_way_) {
      if (operation->failure.ok()) until = Clock::now() + kDrain;
    }
    if (!connection.ended) changed_.wait_for(lock, kTick);
  }
  if (!connection.ended) LogError(device_.name() + ": a communicator's abort does not end");
}

// Looks for what must not go on.
void GpuMembers::Watch(std::unique_lock<std::mutex>* lock) {
  const auto now = Clock::now();
  std::vector<std::pair<MemberOperationPtr, Status>> broken;
  for (const MemberOperationPtr& operation : under_way_) {
    MemberOperation& op = *operation;
    if (!op.failure.ok() || op.connection == nullptr) continue;
    if (!op.inputs_there) {
      const Result<bool> there = device_.driver().Done(op.ready);
      op.inputs_there = there.ok() && *there;
      if (op.inputs_there) op.deadline = now + op.request->timeout;
    }
    const Result<bool> ready = op.connection->communicator->Ready();
    if (op.cancelled || stopped_) {
      broken.emplace_back(operation, Cancelled("the step was aborted").AsDerived());
    } else if (!ready.ok()) {
      broken.emplace_back(operation, ready.status());
    } else if (op.inputs_there && now > op.deadline) {
      broken.emplace_back(operation, DeadlineExceeded("waited " + Seconds(op.request->timeout) +
                                                      " for what the other members' GPUs send"));
    }
  }
  if (broken.empty()) return;
  lock->unlock();
  for (const auto& [operation, why] : broken) BreakOff(operation->connection, why, operation.get());
  lock->lock();
}

void GpuMembers::BreakOff(const std::shared_ptr<Connection>& connection, const Status& why,
                          const MemberOperation* culprit) {
  // Unavailable, if it was a loss: who hears of it first waits for the cause.
  const Status consequence =
      Status(why.code() == Code::kUnavailable ? Code::kUnavailable : Code::kAborted,
             "the members' GPUs were disconnected because " + culprit->Describe() +
                 " ended: " + why.message())
          .AsDerived();
  {
    std::lock_guard lock(mutex_);
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
    std::lock_guard lock(mutex_);
    op.self = operation;
    under_way_.push_back(operation);
  }
  Status status = Enqueue(op);
  if (!status.ok()) {
    {
      std::lock_guard lock(mutex_);
      if (op.failure.ok()) op.failure = status;
    }
    // What is enqueued waits for what does not come.
    if (op.connection != nullptr) {
      BreakOff(op.connection, status, &op);
      // A thread of the library's may still put the exchange on the queue, behind the event below,
      // which gives its memory to others.
      if (op.connection->launching) AwaitAbort(*op.connection);
    } else {
      std::lock_guard lock(mutex_);
      LeaveOut(op);
    }
  }
  // After a failure, too: what is enqueued has to have ended.
  status = device_.IssueAndAwait(
      Queue::kMembers, operation.get(), [] { return Status(); }, [](EventId, uint64_t) {});
  if (!status.ok()) {
    op.self = nullptr;
    Passed(operation, status);
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

// The communicator that all have, or a new one.
Status GpuMembers::Connect(MemberOperation& op) {
  const auto& devices = op.request->members->devices;
  const std::string name = GroupName(op.request->group_key);
  const uint64_t first = op.rows[0].current;
  const bool all_have = first != 0 && std::all_of(op.rows.begin(), op.rows.end(),
                                                  [&](const Row& r) { return r.current == first; });
  const auto use = [&](uint64_t key) {  // with the lock held
    const Group& group = groups_[devices];
    if (group.connection == nullptr || group.connection->closed || group.connection->key != key)
      return false;
    op.connection = group.connection;
    return true;
  };
  {
    std::lock_guard lock(mutex_);
    if (groups_[devices].left_out != op.left_out || (all_have && !use(first)))
      return Aborted(name + ": its GPUs were disconnected meanwhile").AsDerived();
  }
  if (op.connection != nullptr) return WaitUntilReady(op);
  MG_ASSIGN_OR_RETURN(const Agreement agreed, Agree(op));
  {
    std::lock_guard lock(mutex_);
    if (!use(agreed.key) && groups_[devices].connection != nullptr)
      retired_.push_back(std::exchange(groups_[devices].connection, nullptr));
  }
  if (op.connection == nullptr) {
    if (agreed.id.empty())
      return Aborted(name + ": its GPUs are connected anew in the next step").AsDerived();
    MG_ASSIGN_OR_RETURN(auto joined,
                        device_.driver().communicators()->Join(agreed.id, op.rank, op.size()));
    auto connection = std::make_shared<Connection>();
    connection->key = agreed.key;
    connection->communicator = std::move(joined);
    std::lock_guard lock(mutex_);
    groups_[devices].connection = op.connection = std::move(connection);
  }
  return WaitUntilReady(op).WithContext("connecting the GPUs of " + name);
}

// The members' last meeting, when all have launched what comes before: each says which
// communicator it has now, and rank 0 the id of a new one, unless it thinks that there is one since
// the first meeting. A row as bytes:
//   current:u64 id   (length:u32 bytes)
Result<GpuMembers::Agreement> GpuMembers::Agree(MemberOperation& op) {
  uint64_t current = 0;
  {
    std::lock_guard lock(mutex_);
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
  const auto call = MeetingFor(op, Meeting::kCommunicator, row.bytes());
  call->done = [self = shared_from_this(), operation = op.shared_from_this()](
                   const Status& status, std::vector<Tensor> outputs) {
    std::lock_guard lock(self->mutex_);
    operation->agreed = status;
    operation->agreement = std::move(outputs);
    self->Wake();
  };
  op.manager->Start(call);
  {
    // Bounded by the call's deadline.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return op.agreed.has_value() || op.cancelled || stopped_; });
    if (!op.agreed.has_value()) {
      lock.unlock();
      op.manager->Cancel(call);
      return Cancelled("the step was aborted").AsDerived();
    }
  }
  MG_RETURN_IF_ERROR(*op.agreed);
  Decoder in(BytesOf(op.agreement[0]));
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

Status GpuMembers::WaitUntilReady(MemberOperation& op) {
  const auto deadline = Clock::now() + op.request->timeout;
  std::unique_lock lock(mutex_);
  for (;;) {
    MG_ASSIGN_OR_RETURN(const bool ready, op.connection->communicator->Ready());
    if (ready) return Status();
    if (op.cancelled || stopped_) return Cancelled("the step was aborted").AsDerived();
    if (Clock::now() > deadline) {
      return DeadlineExceeded("waited " + Seconds(op.request->timeout) +
                              " for the other members' GPUs");
    }
    // A lost context may be all that the library waits for, and nobody else may look at the device.
    if (const auto there = device_.driver().Done(op.ready); !there.ok())
      return device_.Check(there.status());
    MG_RETURN_IF_ERROR(device_.health());
    changed_.wait_for(lock, kPoll);
  }
}

Status GpuMembers::Exchange(MemberOperation& op, std::span<const Communicator::Send> sends,
                            std::span<const Communicator::Receive> receives) {
  if (sends.empty() && receives.empty()) return Status();
  op.connection->launching = true;
  MG_RETURN_IF_ERROR(device_.Issue(
      Queue::kMembers, [&] { return op.connection->communicator->Exchange(sends, receives); }));
  MG_RETURN_IF_ERROR(WaitUntilReady(op));
  op.connection->launching = false;
  return Status();
}

// ---- what is enqueued

Result<Buffer> GpuMembers::Allocate(MemberOperation& op, size_t bytes) {
  const auto deadline = Clock::now() + op.request->timeout;
  for (;;) {
    uint64_t wait_tick = 0;
    bool busy = false;
    Buffer memory = device_.memory().AllocateFor(bytes, op.owner, &wait_tick, &busy);
    if (memory) {
      MG_RETURN_IF_ERROR(device_.Issue(
          Queue::kMembers, [&] { return device_.WaitForTick(Queue::kMembers, wait_tick); }));
      return memory;
    }
    // A segment that is being launched has the rest.
    if (!busy || Clock::now() > deadline) {
      return ResourceExhausted("no memory for " + std::to_string(bytes) + " bytes. " +
                               device_.memory().Table());
    }
    std::unique_lock lock(mutex_);
    if (op.cancelled || stopped_) return Cancelled("the step was aborted").AsDerived();
    changed_.wait_for(lock, kPoll);
  }
}

Result<Tensor> GpuMembers::AllocateTensor(MemberOperation& op, const Shape& shape) {
  const DType dtype = op.request->dtype;
  MG_ASSIGN_OR_RETURN(Buffer memory,
                      Allocate(op, static_cast<size_t>(shape.elements()) * DTypeSize(dtype)));
  return Tensor(dtype, shape, std::move(memory));
}

Status GpuMembers::Reduce(MemberOperation& op) {
  std::vector<Shape> shapes;
  for (const Tensor& input : op.inputs) {
    shapes.push_back(input.shape());
    MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, input.shape()));
    op.outputs.push_back(std::move(output));
  }
  const auto shares = CutShares(shapes, op.size());
  const auto& own = shares[static_cast<size_t>(op.rank)];
  const size_t element = DTypeSize(op.request->dtype);
  // The others' inputs of the own share: by rank, then by part.
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (int rank = 0; rank < op.size(); ++rank) {
    for (const TensorPart& part : own) {
      offsets.push_back(bytes);
      if (rank != op.rank)
        bytes += (static_cast<size_t>(part.elements()) * element + kSlotAlignment - 1) /
                 kSlotAlignment * kSlotAlignment;
    }
  }
  if (bytes > 0) {
    MG_ASSIGN_OR_RETURN(op.scratch, Allocate(op, bytes));
  }
  const auto slot = [&](int rank, size_t part) {
    return Tensor(op.request->dtype, Shape{own[part].elements()}, op.scratch,
                  offsets[static_cast<size_t>(rank) * own.size() + part]);
  };

  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    for (const TensorPart& part : shares[static_cast<size_t>(rank)]) {
      const Tensor view = ViewOf(op.inputs[part.tensor], part);
      sends.push_back({rank, view.raw(), view.bytes()});
    }
    for (size_t part = 0; part < own.size(); ++part) {
      Tensor view = slot(rank, part);
      receives.push_back({rank, view.raw(), view.bytes()});
    }
  }
  MG_RETURN_IF_ERROR(Exchange(op, sends, receives));

  for (size_t part = 0; part < own.size(); ++part) {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < op.size(); ++rank) {
      inputs.push_back(rank == op.rank ? ViewOf(op.inputs[own[part].tensor], own[part])
                                       : slot(rank, part));
    }
    MG_RETURN_IF_ERROR(Merge(op, inputs, ViewOf(op.outputs[own[part].tensor], own[part])));
  }

  sends.clear();
  receives.clear();
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    for (const TensorPart& part : own) {
      const Tensor view = ViewOf(op.outputs[part.tensor], part);
      sends.push_back({rank, view.raw(), view.bytes()});
    }
    for (const TensorPart& part : shares[static_cast<size_t>(rank)]) {
      Tensor view = ViewOf(op.outputs[part.tensor], part);
      receives.push_back({rank, view.raw(), view.bytes()});
    }
  }
  return Exchange(op, sends, receives);
}

// The sender cuts the tensor into a share for each rank; then every rank sends its share to the
// others, so that nobody sends much more than the tensor once.
Status GpuMembers::Broadcast(MemberOperation& op) {
  const auto sender =
      std::find_if(op.rows.begin(), op.rows.end(), [](const Row& r) { return r.sends; });
  const int root = static_cast<int>(sender - op.rows.begin());
  if (op.rank == root) {
    op.outputs.push_back(op.inputs[0]);
  } else {
    MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, sender->shape));
    op.outputs.push_back(std::move(output));
  }
  Tensor& whole = op.outputs[0];
  const auto shares = CutShares({&sender->shape, 1}, op.size());
  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  const auto send = [&](int share, int to) {
    for (const TensorPart& part : shares[static_cast<size_t>(share)]) {
      const Tensor view = ViewOf(whole, part);
      sends.push_back({to, view.raw(), view.bytes()});
    }
  };
  const auto receive = [&](int share, int from) {
    for (const TensorPart& part : shares[static_cast<size_t>(share)]) {
      Tensor view = ViewOf(whole, part);
      receives.push_back({from, view.raw(), view.bytes()});
    }
  };
  for (int rank = 0; rank < op.size() && op.rank == root; ++rank) {
    if (rank != root) send(rank, rank);
  }
  if (op.rank != root) receive(op.rank, root);
  MG_RETURN_IF_ERROR(Exchange(op, sends, receives));
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < op.size(); ++rank) {
    if (rank == op.rank) continue;
    if (rank != root) send(op.rank, rank);
    if (op.rank != root) receive(rank, rank);
  }
  return Exchange(op, sends, receives);
}

Status GpuMembers::Gather(MemberOperation& op) {
  Shape shape = op.rows[0].shape;
  int64_t rows = 0;
  for (const Row& row : op.rows) rows += row.shape.dim(0);
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor output, AllocateTensor(op, shape));
  op.outputs.push_back(std::move(output));
  const Tensor& own = op.inputs[0];
  std::vector<Communicator::Send> sends;
  std::vector<Communicator::Receive> receives;
  auto* to = static_cast<char*>(op.outputs[0].raw());
  for (int rank = 0; rank < op.size(); ++rank) {
    const size_t bytes = static_cast<size_t>(op.rows[static_cast<size_t>(rank)].shape.elements()) *
                         DTypeSize(op.request->dtype);
    if (rank != op.rank) {
      if (own.bytes() > 0) sends.push_back({rank, own.raw(), own.bytes()});
      if (bytes > 0) receives.push_back({rank, to, bytes});
    } else if (bytes > 0) {
      MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, [&] {
        return device_.driver().Copy(Queue::kMembers, to, own.raw(), bytes);
      }));
    }
    to += bytes;
  }
  return Exchange(op, sends, receives);
}

Status GpuMembers::Merge(MemberOperation& op, const std::vector<Tensor>& inputs, Tensor output) {
  StreamDriver& driver = device_.driver();
  Kernel& kernel = *op.merge->kernel;
  PlaceAllocator place(&output);
  const DType dtype = output.dtype();
  const auto nowhere = std::make_unique<bool[]>(inputs.size());  // all false: nothing on the host
  const auto compute = [&](std::vector<Tensor> from) -> Status {
    std::vector<Tensor> to(1);
    KernelContext context;
    GpuLauncher::Begin(&context, *op.context, device_);
    GpuLauncher::UseMemory(&context, &place);
    GpuLauncher::UseStream(&context, driver.members_stream());
    GpuLauncher::Set(&context, from, to, &dtype, nowhere.get(), nowhere.get());
    MG_RETURN_IF_ERROR(device_.Issue(Queue::kMembers, [&] { return kernel.Compute(context); }));
    return to[0].raw() == output.raw() ? Status() : Internal("a merged share went elsewhere");
  };
  if (driver.observes()) {
    std::vector<MemoryAccess> reads;
    for (const Tensor& input : inputs) reads.push_back({input.raw(), input.bytes()});
    const MemoryAccess write{std::as_const(output).raw(), output.bytes()};
    driver.OnKernel(
        {.name = "merge", .reads = reads, .writes = {&write, 1}, .queue = Queue::kMembers});
  }
  if (op.merge->all_at_once) return compute(inputs);
  MG_RETURN_IF_ERROR(compute({inputs[0], inputs[1]}));
  for (size_t rank = 2; rank < inputs.size(); ++rank)
    MG_RETURN_IF_ERROR(compute({output, inputs[rank]}));
  return Status();
}

// ---- ends

// The device has done what was enqueued, or is lost.
void GpuMembers::Passed(const MemberOperationPtr& operation, const Status& status) {
  Status ended;
  {
    std::lock_guard lock(mutex_);
    std::erase(under_way_, operation);
    operation->state = MemberOperation::State::kOver;
    ended = operation->failure.ok() ? status : operation->failure;
    if (ended.ok() && operation->connection->broken)
      ended = Aborted("the members' GPUs were disconnected").AsDerived();
    Wake();
  }
  End(operation, ended.ok() ? ended : device_.Check(ended.WithContext(operation->Describe())));
}

void GpuMembers::End(const MemberOperationPtr& operation, const Status& status) {
  MemberOperation& op = *operation;
  const Done done = std::move(op.done);
  for (size_t i = 0; i < op.outputs.size() && status.ok(); ++i)
    op.context->set_output(static_cast<int>(i), std::move(op.outputs[i]));
  op.inputs.clear();
  op.outputs.clear();
  op.scratch = Buffer();
  op.rows.clear();
  {
    std::lock_guard lock(mutex_);
    op.connection = nullptr;
    if (op.ready >= 0) events_.push_back(std::exchange(op.ready, -1));
  }
  done(status);
}

void GpuMembers::Stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    Wake();
  }
  if (thread.joinable()) thread.join();
  for (const EventId event : std::exchange(events_, {})) device_.driver().DropEvent(event);
}

// ---- the kernel

namespace {

class MemberKernel : public PostedKernel {
 public:
  MemberKernel(GpuDevice* device, std::unique_ptr<CollectiveKernel> kernel, DeviceMerge merge,
               std::vector<const Inbound*> inbounds, HostPlaces places, const std::string* owner)
      : PostedKernel(device, std::move(places)),
        kernel_(std::move(kernel)),
        merge_(std::move(merge)),
        inbounds_(std::move(inbounds)),
        owner_(owner) {}

 private:
  void Begin(KernelContext& c, Done done) override {
    auto operation = std::make_shared<MemberOperation>();
    operation->request = std::make_shared<CollectiveRequest>();
    if (const Status status = Prepare(c, operation.get()); !status.ok()) return done(status);
    operation->done = std::move(done);
    const std::shared_ptr<GpuMembers> members = operation->members;
    // The order matters: once begun, the context may be gone.
    if (!c.OnCancel([operation] { operation->members->Cancel(operation); }))
      return operation->done(Cancelled("the step was aborted").AsDerived());
    members->Begin(operation);
  }

  Status Prepare(KernelContext& c, MemberOperation* operation) {
    MG_RETURN_IF_ERROR(device().health());
    MG_RETURN_IF_ERROR(WaitForCopies(device(), inbounds_));
    MG_RETURN_IF_ERROR(kernel_->Fill(c, operation->request.get()));
    operation->members = GpuMembers::Of(&device());
    operation->manager = kernel_->manager();
    operation->merge = &merge_;
    operation->owner = owner_;
    operation->context = &c;
    operation->inputs = operation->request->inputs;
    return Status();
  }

  const std::unique_ptr<CollectiveKernel> kernel_;
  const DeviceMerge merge_;
  const std::vector<const Inbound*> inbounds_;
  const std::string* const owner_;
};

}  // namespace

std::unique_ptr<AsyncKernel> MakeMemberKernel(GpuDevice* device,
                                              std::unique_ptr<CollectiveKernel> kernel,
                                              DeviceMerge merge,
                                              std::vector<const Inbound*> inbounds,
                                              HostPlaces places, const std::string* owner) {
  return std::make_unique<MemberKernel>(device, std::move(kernel), std::move(merge),
                                        std::move(inbounds), std::move(places), owner);
}

}  // namespace monograph
