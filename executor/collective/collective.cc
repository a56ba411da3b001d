// The manager's entry points: messages that arrive, members, steps and sessions that fail or end,
// and deadlines. Joining groups is in collective/groups.cc, the rounds are in collective/rounds.cc.
// Each takes the lock, collects what is to be sent and called in Actions, and does that without it.
#include "executor/collective/collective.h"

#include <algorithm>

#include "base/device_name.h"
#include "base/duration.h"
#include "executor/collective/manager.h"
#include "executor/kernel.h"
#include "executor/worker/step_message.h"

namespace monograph {

using collective::GroupName;
using collective::kLeaderGrace;
using collective::OperationPtr;
using std::chrono::milliseconds;

namespace {

// How often deadlines are looked at while something waits.
constexpr milliseconds kTick{20};

collective::Key KeyOf(const StepMessage& message, const CollectiveMessage& body) {
  return {body.epoch, message.step, static_cast<int32_t>(message.id), body.instance, body.meeting};
}

}  // namespace

namespace collective {

std::string GroupName(int group) { return "collective group " + std::to_string(group); }

uint32_t Milliseconds(milliseconds time) {
  return static_cast<uint32_t>(std::clamp<int64_t>(time.count(), 0, UINT32_MAX));
}

}  // namespace collective

std::string CollectiveMembers::Describe(int rank) const {
  return "rank " + std::to_string(rank) + " (" + devices[static_cast<size_t>(rank)] + ")";
}

Result<std::shared_ptr<const CollectiveMembers>> MakeCollectiveMembers(
    std::vector<std::string> devices) {
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
  return std::shared_ptr<const CollectiveMembers>(members);
}

const CollectiveHome* CollectivesOf(const KernelConstruction& construction) {
  const auto* offers = dynamic_cast<const CollectiveConstruction*>(&construction);
  return offers == nullptr ? nullptr : offers->collectives();
}

// ---- what happens elsewhere

void CollectiveManager::Impl::StepFailed(uint64_t session, uint64_t step, const Status& status) {
  Actions actions;
  // A transfer broke off: what was lost will be known in a moment.
  const bool cause_comes = status.derived() && status.code() == Code::kUnavailable;
  const bool data_ended = status.code() == Code::kOutOfRange;
  const auto cause = [&](const std::string& device) {
    return data_ended ? OutOfRange("the data of " + device + " has ended: " + status.message())
                      : Aborted("a step failed on " + device + ": " + status.message());
  };
  {
    MutexLock lock(mutex_);
    if (!cause_comes) Tell(session, cause, &actions);
    for (auto& [where, member] : members_) {
      if (member.state != Member::State::kIn || member.session != session || member.one_session)
        continue;
      member.last_step = std::max(member.last_step, step);
      Break(member.epoch, cause(where.second).WithContext(GroupName(where.first)), true, &actions,
            data_ended ? EndedRounds(member) : Rounds());
      if (cause_comes) Withhold(where.second, &actions);
    }
    // What others sent for it.
    for (auto it = operations_.lower_bound({session, step, INT32_MIN, INT32_MIN});
         it != operations_.end() && it->first.epoch == session && it->first.round == step;) {
      it = it->second->started ? std::next(it) : operations_.erase(it);
    }
  }
  Do(&actions);
}

std::set<std::string> CollectiveManager::Impl::AwaitedTasks(uint64_t session) {
  std::set<std::string> tasks;
  MutexLock lock(mutex_);
  for (const auto& [key, operation] : operations_) {
    if (!operation->started || operation->over || operation->spec.session != session) continue;
    tasks.insert(operation->members->tasks.begin(), operation->members->tasks.end());
  }
  for (const auto& [where, member] : members_) {
    if (member.session != session) continue;
    if (member.state == Member::State::kJoining) tasks.insert(member.leader);
    if (member.state == Member::State::kIn)
      tasks.insert(member.members->tasks.begin(), member.members->tasks.end());
  }
  tasks.erase(host_->task());
  return tasks;
}

void CollectiveManager::Impl::PeerLost(uint64_t session, const std::string& task,
                                       const Status& status) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    lost_[session].push_back(task);
    Tell(
        session, [&](const std::string&) { return status; }, &actions);
    std::vector<OperationPtr> hit;
    for (const auto& [key, operation] : operations_) {
      if (!operation->started || operation->over || operation->spec.session != session) continue;
      const auto& tasks = operation->members->tasks;
      if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) hit.push_back(operation);
    }
    for (const OperationPtr& operation : hit) Fail(operation, status, &actions);
    const Result<DeviceName> lost = DeviceName::Parse(task);
    for (auto& [where, member] : members_) {
      if (member.session != session) {
        // The other end of that session may have no way to tell it.
        if (member.state == Member::State::kIn && member.Awaits(session, task))
          Break(member.epoch, status.WithContext(GroupName(where.first)), true, &actions);
        continue;
      }
      if (member.state == Member::State::kIn) {
        const auto& tasks = member.members->tasks;
        if (std::find(tasks.begin(), tasks.end(), task) != tasks.end())
          Break(member.epoch, status.WithContext(GroupName(where.first)), true, &actions);
      } else if (lost.ok() && lost->job == DeviceName::Parse(where.second).value().job) {
        StopJoining(&member, status.WithContext("joining " + GroupName(where.first)), &actions);
      }
    }
    for (auto it = forming_.begin(); it != forming_.end();) {
      std::erase_if(it->second.joined, [&](const auto& entry) {
        return entry.second.session == session && entry.second.task == task;
      });
      it = it->second.joined.empty() ? forming_.erase(it) : std::next(it);
    }
  }
  Do(&actions);
}

void CollectiveManager::Impl::SessionClosed(uint64_t session, const Status& why) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    lost_.erase(session);
    std::erase_if(given_up_, [&](const auto& entry) { return entry.first.epoch == session; });
    const auto loss = [&](const std::string& device) {
      return why.ok() ? Status()
                      : Unavailable("the client of " + device + " is lost: " + why.message());
    };
    Tell(session, loss, &actions);
    for (auto& [where, member] : members_) {
      if (member.session != session) continue;
      const Status cause =
          why.ok() ? Aborted("the session of " + where.second + " was closed") : loss(where.second);
      const Status status = cause.WithContext(GroupName(where.first));
      if (member.state == Member::State::kIn)
        Break(member.epoch, status, true, &actions, EndedRounds(member));
      StopJoining(&member, status, &actions);
    }
    EndHeld([&](const CollectiveRequest& held) { return held.session == session; },
            Aborted("the session was closed"), &actions);
    std::erase_if(members_, [&](const auto& entry) { return entry.second.session == session; });
    for (auto it = forming_.begin(); it != forming_.end();) {
      std::erase_if(it->second.joined,
                    [&](const auto& entry) { return entry.second.session == session; });
      it = it->second.joined.empty() ? forming_.erase(it) : std::next(it);
    }
    EraseIdle(session);
  }
  Do(&actions);
}

void CollectiveManager::Impl::EraseIdle(uint64_t session) {
  std::erase_if(operations_, [&](const auto& entry) {
    return entry.first.epoch == session && (!entry.second->started || entry.second->over);
  });
}

void CollectiveManager::Impl::SessionGone(uint64_t session) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    EraseIdle(session);  // again, for what was arriving when it was closed
    for (auto& [where, member] : members_) {
      if (member.session == session || member.state != Member::State::kIn) continue;
      for (const std::string& task : member.members->tasks) {
        if (task == host_->task() || !member.Awaits(session, task)) continue;
        Break(member.epoch,
              Aborted("the session of the client that drives " + task + " was closed")
                  .WithContext(GroupName(where.first)),
              true, &actions);
        break;
      }
    }
  }
  Do(&actions);
}

bool CollectiveManager::Impl::Member::Awaits(uint64_t by, const std::string& task) const {
  for (size_t rank = 0; rank < sessions.size(); ++rank) {
    const int of = members->task_of[rank];
    if (sessions[rank] == by && members->tasks[static_cast<size_t>(of)] == task) return true;
  }
  return false;
}

bool CollectiveManager::Impl::AwaitsPartsOf(uint64_t session) {
  MutexLock lock(mutex_);
  const auto awaits = [&](uint64_t epoch, const CollectiveMembers& of) MG_REQUIRES(mutex_) {
    // Also if the epoch is broken since: rounds that another member has ended go on.
    return std::any_of(members_.begin(), members_.end(), [&](const auto& named) {
      const Member& member = named.second;
      if (member.epoch != epoch || member.session == session) return false;
      return std::any_of(of.tasks.begin(), of.tasks.end(), [&](const std::string& task) {
        return task != host_->task() && member.Awaits(session, task);
      });
    });
  };
  const auto operation_awaits = [&](const auto& entry) MG_REQUIRES(mutex_) {
    const OperationPtr& operation = entry.second;
    return operation->started && !operation->over && awaits(entry.first.epoch, *operation->members);
  };
  return std::any_of(operations_.begin(), operations_.end(), operation_awaits) ||
         std::any_of(entered_.begin(), entered_.end(),
                     [&](const Request& request)
                         MG_REQUIRES(mutex_) { return awaits(request->epoch, *request->members); });
}

// ---- arrivals

bool CollectiveManager::Impl::Awaits(const StepMessage& message) {
  CollectiveMessage decoded;
  if (!DecodeCollective(message.body, &decoded).ok()) return false;
  MutexLock lock(mutex_);
  const bool broken = decoded.what == CollectiveWhat::kBroken;
  if (IsTalk(decoded.what) && !broken) return false;
  // Also for rounds that are still to begin here.
  const bool known = std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    return (member.state == Member::State::kIn && member.epoch == decoded.epoch) ||
           (member.state == Member::State::kJoining && broken);
  });
  if (known || broken) return known;
  const auto found = operations_.find(KeyOf(message, decoded));
  return found != operations_.end() && found->second->started && !found->second->over;
}

bool CollectiveManager::Impl::AwaitsOthers() {
  MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
    const Member& member = entry.second;
    return member.state == Member::State::kJoining ||
           (member.state == Member::State::kIn && !member.one_session);
  });
}

// Sums and prefixes land in the outputs, a prefix only if there are outputs. False: it has to be
// kept. True with no operation: nobody waits for it.
bool CollectiveManager::Impl::Land(Arrival* arrival, size_t payload_bytes) {
  const CollectiveWhat what = arrival->message.what;
  if (what != CollectiveWhat::kSum && what != CollectiveWhat::kPrefix) return false;
  MutexLock lock(mutex_);
  const auto found = operations_.find(arrival->key);
  const bool started = found != operations_.end() && found->second->started;
  if (!started) return what == CollectiveWhat::kSum;
  const Operation& op = *found->second;
  const uint32_t index = arrival->message.index;
  if (op.over) return true;
  const bool fits = arrival->message.signature == op.signature && index < op.pieces.size() &&
                    op.pieces[index].bytes == payload_bytes && !op.small() &&
                    Expects(op, arrival->message);
  if (!fits) return what == CollectiveWhat::kSum;
  arrival->payload = op.SumOf(op.pieces[index]);
  arrival->into = found->second;
  return true;
}

PayloadSink CollectiveManager::Impl::OnMessage(const StepMessage& message, size_t payload_bytes) {
  auto arrival = std::make_shared<Arrival>();
  if (!DecodeCollective(message.body, &arrival->message).ok()) return {};
  arrival->impl = shared_from_this();
  arrival->session = message.session;
  arrival->key = KeyOf(message, arrival->message);
  PayloadSink sink;
  sink.done = [arrival](const Status& status) { arrival->impl->OnArrival(arrival, status); };
  if (Land(arrival.get(), payload_bytes)) {
    if (arrival->into == nullptr) return {};
    sink.data = static_cast<char*>(arrival->payload.buffer.data()) + arrival->payload.offset;
    sink.keep = arrival->payload.buffer;
    return sink;
  }
  arrival->payload = {Buffer::Allocate(HostAllocator(), payload_bytes), 0, payload_bytes};
  if (!arrival->payload.buffer) {
    OnArrival(arrival, ResourceExhausted("no memory for " + std::to_string(payload_bytes) +
                                         " bytes that came"));
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
  arrival->key = KeyOf(message, arrival->message);
  arrival->payload = std::move(payload);
  OnArrival(arrival, Status());
}

void CollectiveManager::Impl::OnArrival(const std::shared_ptr<Arrival>& arrival,
                                        const Status& status) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    const CollectiveMessage& message = arrival->message;
    if (stopped_) return;
    if (message.what == CollectiveWhat::kAsk) {
      AnswerWhoIsHere(*arrival, &actions);
    } else if (message.what == CollectiveWhat::kHere) {
      HandleHere(*arrival, &actions);
    } else if (IsTalk(message.what)) {
      if (status.ok())
        HandleControl(arrival->session, arrival->key.group, message, arrival->payload, &actions);
    } else {
      const auto known = operations_.find(arrival->key);
      const OperationPtr operation = arrival->into != nullptr     ? arrival->into
                                     : known != operations_.end() ? known->second
                                     : status.ok() ? FindOrPark(arrival->key, message.timeout_ms)
                                                   : nullptr;
      if (operation == nullptr || (!operation->started && !status.ok())) {
        // A loss is told otherwise (PeerLost); that there was no memory is told here.
        if (status.code() == Code::kResourceExhausted)
          GiveUp(arrival->key, arrival->session, status, &actions);
      } else if (operation->over) {
        // Too late.
      } else if (!status.ok()) {
        if (message.rank < operation->ranks()) {
          Fail(operation,
               Unavailable("receiving from " + operation->members->Describe(message.rank) + ": " +
                           status.message()),
               &actions);
        }
      } else if (arrival->into != nullptr && message.what == CollectiveWhat::kSum) {
        SumDone(operation, message.index, &actions);
      } else if (arrival->into != nullptr) {
        PrefixDone(operation, message.index, std::move(arrival->payload));
        Schedule(operation, false, &actions);
      } else if (!operation->started) {
        const Status kept =
            Park(operation.get(), arrival->session, message, std::move(arrival->payload));
        if (!kept.ok()) GiveUp(arrival->key, arrival->session, kept, &actions);
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
    if (!operation->over && !AskWhoIsHere(operation, actions)) FailLate(operation, actions);
  }
  std::erase_if(withheld_, [&](Withheld& word) {
    if (word.due > now) return false;
    actions->sends.push_back(std::move(word.send));
    return true;
  });
  EndHeld(
      [&](const CollectiveRequest& held) { return held.deadline <= now; },
      DeadlineExceeded("a collective waited for an earlier step of its session to begin the same"),
      actions);
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
    const auto overdue = [&](const Request& request) {
      return request->deadline + kLeaderGrace <= now;
    };
    if (std::any_of(member.waiting.begin(), member.waiting.end(), overdue)) {
      // Whoever does not answer for so long is lost.
      StopJoining(&member,
                  Status(Code::kDeadlineExceeded,
                         GroupName(where.first) + ": its leader, " + member.leader +
                             ", did not answer " + where.second,
                         member.leader),
                  actions);
    }
  }
}

void CollectiveManager::Impl::TimeLoop() {
  MutexLock lock(mutex_);
  const auto idle = [&]() MG_REQUIRES(mutex_) {
    return operations_.empty() && forming_.empty() && held_.empty() && withheld_.empty();
  };
  const auto joining = [&]() MG_REQUIRES(mutex_) {
    return std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
      return entry.second.state == Member::State::kJoining;
    });
  };
  int idle_ticks = 0;
  while (!stopped_) {
    // A pause between two operations is no reason to be woken up for the next one.
    idle_ticks = idle() && !joining() ? idle_ticks + 1 : 0;
    if (idle_ticks > 100) {
      waiting_ = true;
      changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return stopped_ || !idle() || joining(); });
      waiting_ = false;
      continue;
    }
    changed_.WaitFor(mutex_, kTick, [&]() MG_REQUIRES(mutex_) { return stopped_; });
    Actions actions;
    Tick(Clock::now(), &actions);
    lock.Unlock();
    Do(&actions);
    lock.Lock();
  }
}

void CollectiveManager::Impl::Stop() {
  Actions actions;
  std::thread timer;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    timer.swap(timer_);
    const Status status = Cancelled("the task shuts down");
    for (auto& [key, operation] : operations_) {
      operation->epoch_breaks = false;
      if (operation->started) Fail(operation, status, &actions);
    }
    EndHeld([](const CollectiveRequest&) { return true; }, status, &actions);
    for (auto& [where, member] : members_) {
      for (const Request& request : std::exchange(member.waiting, {}))
        actions.ends.push_back({request, status, {}});
      member.state = Member::State::kOut;
    }
    changed_.NotifyAll();
    drained_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return working_ == 0; });
    operations_.clear();
    forming_.clear();
    members_.clear();
    withheld_.clear();
    for (Request& request : std::exchange(entered_, {})) {
      request->ended = status;
      actions.broken.push_back(std::move(request));
    }
  }
  Do(&actions);
  if (timer.joinable()) timer.join();
}

// ---- the public face

CollectiveManager::CollectiveManager(CollectiveHost* host, ThreadPools* pools)
    : impl_(std::make_shared<Impl>(host, pools)) {}
CollectiveManager::~CollectiveManager() = default;
void CollectiveManager::Start(std::shared_ptr<CollectiveRequest> request) { impl_->Start(request); }
void CollectiveManager::Enter(const std::shared_ptr<CollectiveRequest>& request) {
  request->enters = true;
  impl_->Start(request);
}
void CollectiveManager::Leave(const std::shared_ptr<CollectiveRequest>& request) {
  impl_->Leave(request);
}
void CollectiveManager::Cancel(const std::shared_ptr<CollectiveRequest>& request) {
  impl_->Cancel(request);
}
void CollectiveManager::StepBegins(uint64_t session, uint64_t step, const CollectiveHome* home) {
  impl_->StepBegins(session, step, home);
}
void CollectiveManager::StepEnds(uint64_t session, uint64_t step, bool ok) {
  impl_->StepEnds(session, step, ok);
}
void CollectiveManager::StepFailed(uint64_t session, uint64_t step, const Status& status) {
  impl_->StepFailed(session, step, status);
}
void CollectiveManager::PeerLost(uint64_t session, const std::string& task, const Status& why) {
  impl_->PeerLost(session, task, why);
}
std::set<std::string> CollectiveManager::AwaitedTasks(uint64_t session) const {
  return impl_->AwaitedTasks(session);
}
void CollectiveManager::SessionClosed(uint64_t session, const Status& why) {
  impl_->SessionClosed(session, why);
}
void CollectiveManager::SessionGone(uint64_t session) { impl_->SessionGone(session); }
bool CollectiveManager::Awaits(const StepMessage& message) { return impl_->Awaits(message); }
bool CollectiveManager::AwaitsOthers() { return impl_->AwaitsOthers(); }
bool CollectiveManager::AwaitsPartsOf(uint64_t session) { return impl_->AwaitsPartsOf(session); }
PayloadSink CollectiveManager::OnMessage(const StepMessage& message, size_t payload_bytes) {
  return impl_->OnMessage(message, payload_bytes);
}
void CollectiveManager::OnDelivered(const StepMessage& message, Payload payload) {
  impl_->OnDelivered(message, std::move(payload));
}
void CollectiveManager::Stop() { impl_->Stop(); }

}  // namespace monograph
