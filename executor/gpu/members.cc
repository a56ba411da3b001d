// A collective from GPU to GPU, as far as it happens on the host: Begin records that the inputs are
// ready; where members are to be found, Enter finds them and Entered chooses the way. Announce
// writes this member's row; Heard checks the rows of all members; Numbered
// fixes the place in the order of launches. From there the members thread goes on
// (members_thread.cc, members_exchange.cc), and Passed ends the collective when the device has done
// it. All agreement is reached on the host, where there are deadlines and a member that is missing
// can be named. The kernel is at the end of the file.
#include "executor/gpu/members.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/codec.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "executor/collective/operation.h"
#include "executor/gpu/member_operation.h"

namespace monograph {

using collective::GroupName;

namespace {

// A row as bytes:
//   signature:u64 current:u64 node:u64 sends:u8 any_order:u8 captures:u8 dims:u8 dim:i64*dims
std::string EncodeRow(const MemberRow& row) {
  Encoder out;
  out.Put(row.signature);
  out.Put(row.current);
  out.Put(row.node);
  out.Put(static_cast<uint8_t>(row.sends));
  out.Put(static_cast<uint8_t>(row.any_order));
  out.Put(static_cast<uint8_t>(row.captures));
  out.Put(static_cast<uint8_t>(row.shape.rank()));
  for (int i = 0; i < row.shape.rank(); ++i) out.Put(row.shape.dim(i));
  return out.Take();
}

Result<std::vector<MemberRow>> DecodeRows(std::string_view bytes, int ranks) {
  std::vector<MemberRow> rows;
  Decoder in(bytes);
  for (int rank = 0; rank < ranks && in.ok(); ++rank) {
    MemberRow& row = rows.emplace_back();
    row.signature = in.Get<uint64_t>();
    row.current = in.Get<uint64_t>();
    row.node = in.Get<uint64_t>();
    row.sends = in.Get<uint8_t>() != 0;
    row.any_order = in.Get<uint8_t>() != 0;
    row.captures = in.Get<uint8_t>() != 0;
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

Tensor TensorOf(std::string_view bytes) {
  return Tensor::FromValues<uint8_t>(
      Shape{static_cast<int64_t>(bytes.size())},
      std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
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

uint64_t NodeOfLink(std::string_view link) {
  const size_t begin = std::min(link.find('/'), link.size());
  return Fnv1a(link.substr(begin, std::max(link.rfind('/'), begin) - begin));
}

std::string DescribeWay(const CollectiveMembers& members, const DeviceLinks& links,
                        const std::string& why_not) {
  std::string text = "collectives of " + members.devices.front() + " and " +
                     std::to_string(members.size() - 1) + " other GPUs go ";
  if (!why_not.empty()) return text + "through host memory: " + why_not;
  const std::string& link = links.at(members.devices.front());
  text += "from GPU to GPU by " + link.substr(0, link.find('/'));
  std::vector<uint64_t> nodes;
  for (const std::string& device : members.devices) nodes.push_back(NodeOfLink(links.at(device)));
  const std::string count =
      std::to_string(std::set<uint64_t>(nodes.begin(), nodes.end()).size()) + " nodes";
  switch (NodeOrderOf(nodes)) {
    case NodeOrder::kOneNode:
      return text;
    case NodeOrder::kOneEach:
      return text + ", on " + count;
    case NodeOrder::kRuns:
      return text + ", along " + count;
    case NodeOrder::kScattered:
      return text + ", on " + count +
             ", each with all: the ranks of a node do not follow each other";
  }
  return text;
}

bool ReachesAny(const std::string& device, const DeviceLinks& links) {
  const auto own = links.find(device);
  if (own == links.end()) return false;
  return std::any_of(links.begin(), links.end(), [&](const auto& other) {
    return other.second != own->second && other.second.substr(0, other.second.find('/')) ==
                                              own->second.substr(0, own->second.find('/'));
  });
}

std::shared_ptr<GpuMembers> GpuMembers::Of(GpuDevice* device) {
  return std::static_pointer_cast<GpuMembers>(
      device->members([device] { return std::make_shared<GpuMembers>(device); }));
}

GpuMembers::~GpuMembers() { MG_CHECK(!thread_.joinable()); }

void GpuMembers::Begin(const MemberOperationPtr& operation) {
  const CollectiveRequest& request = *operation->request;
  const Status status = MarkInputs(*operation);
  if (!status.ok()) return Refuse(operation, status);
  if (request.members != nullptr) return Announce(operation);
  return request.group_size == 1 ? Alone(operation) : Enter(operation);
}

void GpuMembers::BeginJoint(const MemberOperationPtr& operation) {
  const Status status = TakeEvent(*operation);
  return status.ok() ? Announce(operation) : Refuse(operation, status);
}

// It has not met anybody yet.
void GpuMembers::Refuse(const MemberOperationPtr& operation, const Status& status) {
  {
    MutexLock lock(mutex_);
    operation->state = MemberOperation::State::kOver;
  }
  End(operation, status);
}

Status GpuMembers::TakeEvent(MemberOperation& op) {
  {
    MutexLock lock(mutex_);
    if (!events_.empty()) {
      op.ready = events_.back();
      events_.pop_back();
    }
  }
  if (op.ready < 0) {
    MG_ASSIGN_OR_RETURN(op.ready, device_.driver().MakeEvent(/*timed=*/false));
  }
  return Status();
}

// Records the event behind the inputs.
Status GpuMembers::MarkInputs(MemberOperation& op) {
  StreamDriver& driver = device_.driver();
  MG_RETURN_IF_ERROR(TakeEvent(op));
  return device_.Issue(Queue::kCompute, [&] { return driver.Record(op.ready, Queue::kCompute); });
}

// A group of one member: the outputs are the inputs, once they are there.
void GpuMembers::Alone(const MemberOperationPtr& operation) {
  MemberOperation& op = *operation;
  if (op.inputs.empty())
    return End(operation, InvalidArgument("a group of one member has nobody to send"));
  op.outputs = op.inputs;
  op.self = operation;
  StreamDriver& driver = device_.driver();
  const Status status = device_.IssueAndAwait(
      Queue::kMembers, operation.get(),
      [&] { return driver.Wait(Queue::kMembers, driver, op.ready); }, [](EventId, uint64_t) {});
  if (!status.ok()) {
    op.self = nullptr;
    Passed(operation, status);
  }
}

void GpuMembers::Enter(const MemberOperationPtr& operation) {
  MemberOperation& op = *operation;
  const auto entry = std::make_shared<CollectiveRequest>();
  entry->kind = op.request->kind;
  entry->op = op.request->op;
  entry->device = op.request->device;
  entry->session = op.request->session;
  entry->step = op.request->step;
  entry->group_size = op.request->group_size;
  entry->group_key = op.request->group_key;
  entry->instance_key = op.request->instance_key;
  entry->timeout = op.request->timeout;
  entry->done = [self = shared_from_this(), operation](const Status& status, std::vector<Tensor>) {
    self->Entered(operation, status);
  };
  entry->broken = [self = shared_from_this(), operation](const Status& status) {
    self->Broken(operation, status);
  };
  {
    MutexLock lock(mutex_);
    op.entry = op.meeting = entry;
    entry->cancelled = op.cancelled;
  }
  op.manager->Enter(entry);
}

// The members are known, and so is which way they all go.
void GpuMembers::Entered(const MemberOperationPtr& operation, const Status& status) {
  MemberOperation& op = *operation;
  Status failure;
  {
    MutexLock lock(mutex_);
    op.meeting = nullptr;
    failure = MayGoOn(op, status);
  }
  if (failure.ok()) {
    const CollectiveMembers& members = *op.entry->members;
    op.request->members = op.entry->members;
    DeviceLinks links;
    for (size_t rank = 0; rank < op.entry->links.size(); ++rank) {
      if (!op.entry->links[rank].empty()) links[members.devices[rank]] = op.entry->links[rank];
    }
    const std::string why = WhyNoLink(members, links);
    const std::string way = DescribeWay(members, links, why);
    {
      MutexLock lock(mutex_);
      if (told_.insert(way).second) LogInfo(way);
    }
    return why.empty() ? Announce(operation) : ThroughHost(operation);
  }
  Refuse(operation, failure);
}

// The epoch of the group is over. A meeting that is under way ends by itself.
void GpuMembers::Broken(const MemberOperationPtr& operation, const Status& status) {
  MemberOperation& op = *operation;
  bool over = false;
  {
    MutexLock lock(mutex_);
    op.broken = status;
    if (op.state == MemberOperation::State::kWaits) {
      order_.Remove(op.place);
      op.state = MemberOperation::State::kOver;
      LeaveOut(op);
      over = true;
    }
    Wake();
  }
  if (over) End(operation, status);
}

void GpuMembers::NeedThread() {
  if (thread_.joinable()) return;
  thread_ = StartThread("mg-gpu" + std::to_string(device_.info().name.id) + "-peers",
                        [this] { Thread(); });
}

// Begins the roll call.
void GpuMembers::Announce(const MemberOperationPtr& operation) {
  const Status status = MakeRollCall(operation);
  return status.ok() ? operation->manager->Start(operation->meeting) : Refuse(operation, status);
}

Status GpuMembers::MakeRollCall(const MemberOperationPtr& operation) {
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
  MemberRow row;
  row.signature = collective::SignatureOf(request);
  row.sends = request.kind == CollectiveKind::kBroadcast && !op.inputs.empty();
  row.node = NodeOfLink(device_.info().link);
  row.any_order = device_.driver().communicators()->any_order();
  row.captures = op.captures;
  if (!op.inputs.empty()) row.shape = op.inputs[0].shape();
  op.request->inputs.clear();
  MutexLock lock(mutex_);
  if (stopped_ || op.cancelled) return Cancelled("the step was aborted").AsDerived();
  const Group& group = groups_[devices];
  if (group.connection != nullptr && !group.connection->closed) row.current = group.connection->key;
  op.left_out = group.left_out;
  NeedThread();
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
  call->entered = op.entry;
  call->dtype = DT_UINT8;
  call->timeout = request.timeout;
  call->inputs.push_back(TensorOf(row));
  return call;
}

// Other members may launch the collective on their communicator. This one skips it, so that its own
// communicator no longer has the same sequence of collectives: close it.
void GpuMembers::LeaveOut(MemberOperation& op) {
  Group& group = groups_[op.request->members->devices];
  ++group.left_out;
  if (group.connection != nullptr) group.connection->closed = true;
}

Status GpuMembers::MayGoOn(const MemberOperation& op, const Status& status) const {
  if (status.ok() && (stopped_ || op.cancelled))
    return Cancelled("the step was aborted").AsDerived();
  return status.ok() ? op.broken : status;
}

void GpuMembers::Heard(const MemberOperationPtr& operation, const Status& status,
                       const std::vector<Tensor>& rows) {
  MemberOperation& op = *operation;
  Status failure = status;
  if (status.ok()) {
    Result<std::vector<MemberRow>> decoded = DecodeRows(BytesOf(rows[0]), op.size());
    if (decoded.ok()) {
      op.rows = std::move(decoded).value();
    } else {
      failure = decoded.status().WithContext(op.Describe());
    }
  }
  int senders = 0;
  for (int rank = 0; rank < static_cast<int>(op.rows.size()); ++rank) {
    const MemberRow& row = op.rows[static_cast<size_t>(rank)];
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
    MutexLock lock(mutex_);
    op.meeting = nullptr;
    failure = MayGoOn(op, failure);
    if (failure.ok()) {
      const CollectiveRequest& request = *op.request;
      const bool found = op.entry != nullptr;
      op.place = order_.Propose(
          {found ? op.entry->epoch : request.session, found ? op.entry->round : request.step,
           request.group_key, request.instance_key},
          operation);
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
    MutexLock lock(mutex_);
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
    MutexLock lock(mutex_);
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

// ---- ends

// The device has done what was enqueued, or is lost.
void GpuMembers::Passed(const MemberOperationPtr& operation, const Status& status) {
  Status ended;
  {
    MutexLock lock(mutex_);
    std::erase(under_way_, operation);
    operation->state = MemberOperation::State::kOver;
    ended = operation->failure.ok() ? status : operation->failure;
    if (ended.ok() && operation->connection != nullptr && operation->connection->broken)
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
  op.request->inputs.clear();
  op.outputs.clear();
  op.on_host.clear();
  op.scratch = Buffer();
  op.rows.clear();
  if (op.entry != nullptr) op.manager->Leave(op.entry);
  {
    MutexLock lock(mutex_);
    op.entry = nullptr;  // which holds the operation
    op.connection = nullptr;
    if (op.ready >= 0) events_.push_back(std::exchange(op.ready, -1));
  }
  done(status);
}

void GpuMembers::Stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    Wake();
  }
  if (thread.joinable()) thread.join();
  MutexLock lock(mutex_);
  for (const EventId event : std::exchange(events_, {})) device_.driver().DropEvent(event);
}

// ---- the kernel

namespace {

class MemberKernel : public PostedKernel {
 public:
  MemberKernel(GpuDevice* device, std::unique_ptr<CollectiveKernel> kernel, DeviceMerge merge,
               std::vector<std::shared_ptr<const Inbound>> inbounds, HostPlaces places,
               const std::string* owner)
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
    // OnCancel comes before Begin: once begun, the operation may end and the context be gone.
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
  const std::vector<std::shared_ptr<const Inbound>> inbounds_;
  const std::string* const owner_;
};

}  // namespace

std::unique_ptr<AsyncKernel> MakeMemberKernel(GpuDevice* device,
                                              std::unique_ptr<CollectiveKernel> kernel,
                                              DeviceMerge merge,
                                              std::vector<std::shared_ptr<const Inbound>> inbounds,
                                              HostPlaces places, const std::string* owner) {
  return std::make_unique<MemberKernel>(device, std::move(kernel), std::move(merge),
                                        std::move(inbounds), std::move(places), owner);
}

}  // namespace monograph
