// How the members of a group find each other, and how a group breaks. The leader is the first task
// of the members' job. Each member sends it kJoin; when all have come, it puts the devices in order
// (which gives the ranks), draws a random epoch, so that late messages of an earlier life of the
// group are not taken for this one's, and sends kFormed, or kRefused if the members disagree about
// the size. A failure ends the epoch: kBroken tells the others, and the members join anew.
#include <algorithm>

#include "base/codec.h"
#include "base/device_name.h"
#include "base/duration.h"
#include "base/random.h"
#include "executor/collective/manager.h"

namespace monograph {

using collective::GroupName;
using collective::Milliseconds;
using std::chrono::milliseconds;

namespace {

constexpr size_t kBrokenKept = 64;
constexpr size_t kGivenUpKept = 4096;
// After a transfer has broken off, it is known within this time what was lost.
constexpr milliseconds kCauseGrace{1000};

// Keeps why `key` has failed, and in its place forgets the lowest other one if there are too many.
template <typename Map>
void Remember(Map* map, const typename Map::key_type& key, const Status& why, size_t most) {
  const auto kept = map->emplace(key, why).first;
  if (map->size() > most) map->erase(map->begin() == kept ? std::next(kept) : map->begin());
}

Payload RoundsToSend(const std::map<int32_t, uint64_t>& rounds) {
  Encoder out;
  for (const auto& [instance, round] : rounds) {
    out.Put(instance);
    out.Put(round);
  }
  if (out.bytes().empty()) return {};
  return PayloadOf(out.Take());
}

}  // namespace

void CollectiveManager::Impl::Join(Member* member, const Request& request, Actions* actions) {
  if (member->state == Member::State::kJoining &&
      (member->session != request->session || member->size != request->group_size)) {
    StopJoining(member,
                Aborted(request->device + " joined " + GroupName(request->group_key) + " anew"),
                actions);
  }
  const std::string job = DeviceName::Parse(request->device).value().job;
  // A task that was lost between two rounds is not waited for in the next one.
  const auto lost = lost_.find(request->session);
  for (const std::string& task : lost == lost_.end() ? std::vector<std::string>() : lost->second) {
    if (const Result<DeviceName> name = DeviceName::Parse(task); !name.ok() || name->job != job)
      continue;
    const Status status =
        TaskLost(task, "joining " + GroupName(request->group_key) + ": " + task + " is lost");
    actions->ends.push_back({request, status, {}});
    return;
  }
  member->waiting.push_back(request);
  if (member->state == Member::State::kJoining) return;
  WakeTimer();
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
  message.text = host_->LinkOf(request->session, request->device);
  if (member->leader == host_->task()) {
    HandleJoin(request->session, host_->task(), request->group_key, message, actions);
  } else {
    actions->sends.push_back(
        {request->session, member->leader, request->group_key, 1, message, {}, nullptr});
  }
}

void CollectiveManager::Impl::StopJoining(Member* member, const Status& status, Actions* actions) {
  if (member->state != Member::State::kJoining) return;
  member->state = Member::State::kOut;
  for (const Request& request : std::exchange(member->waiting, {}))
    actions->ends.push_back({request, status, {}});
  const auto self = std::find_if(members_.begin(), members_.end(),
                                 [&](const auto& entry) { return &entry.second == member; });
  const auto& [group, device] = self->first;
  if (member->leader == host_->task()) return HandleLeave(member->session, group, device);
  CollectiveMessage message;
  message.what = CollectiveWhat::kLeave;
  message.device = device;
  actions->sends.push_back({member->session, member->leader, group, 1, message, {}, nullptr});
}

void CollectiveManager::Impl::HandleLeave(uint64_t session, int32_t group,
                                          const std::string& device) {
  const auto found = forming_.find(group);
  if (found == forming_.end()) return;
  auto& joined = found->second.joined;
  if (const auto joiner = joined.find(device);
      joiner != joined.end() && joiner->second.session == session)
    joined.erase(joiner);
  if (joined.empty()) forming_.erase(found);
}

void CollectiveManager::Impl::Answer(const Joiner& joiner, int32_t group, CollectiveMessage message,
                                     Payload payload, Actions* actions) {
  if (joiner.task == host_->task()) {
    HandleControl(joiner.session, group, message, payload, actions);
  } else {
    actions->sends.push_back(
        {joiner.session, joiner.task, group, 1, std::move(message), std::move(payload), nullptr});
  }
}

void CollectiveManager::Impl::Refuse(int32_t group, const std::string& device, const Joiner& joiner,
                                     const Status& status, Actions* actions) {
  CollectiveMessage message;
  message.what = CollectiveWhat::kRefused;
  message.device = device;
  message.SetFailure(status);
  Answer(joiner, group, std::move(message), {}, actions);
}

void CollectiveManager::Impl::HandleJoin(uint64_t session, const std::string& task, int32_t group,
                                         const CollectiveMessage& message, Actions* actions) {
  size_t waiting = 0;
  for (const auto& [key, other] : forming_) waiting += other.joined.size();
  if (waiting >= collective::kMostJoining ||
      (forming_.size() >= collective::kMostForming && !forming_.contains(group))) {
    return Refuse(group, message.device, {session, task},
                  ResourceExhausted(std::to_string(waiting) + " devices wait at " + host_->task() +
                                    " for " + std::to_string(forming_.size()) +
                                    " collective groups; more are not taken"),
                  actions);
  }
  Forming& forming = forming_[group];
  // A member whose client has begun anew joins by a new session, while messages of the old one may
  // still come. The session that comes last counts; if it was the older one, the other is told to
  // join again.
  if (const auto before = forming.joined.find(message.device);
      before != forming.joined.end() && before->second.session != session) {
    Refuse(group, message.device, before->second,
           Aborted(message.device + " joined " + GroupName(group) + " by another session"),
           actions);
    forming.joined.erase(before);
  }
  const int size = static_cast<int>(message.index);
  if (forming.joined.empty()) forming.size = size;
  const milliseconds timeout(message.timeout_ms);
  forming.joined[message.device] = {session, task, timeout, Clock::now() + timeout, message.text};
  WakeTimer();
  const auto take = [&]() MG_REQUIRES(mutex_) {
    const std::map<std::string, Joiner> joined = std::move(forming.joined);
    forming_.erase(group);
    return joined;
  };
  if (forming.size != size) {
    const std::string text = GroupName(group) + " has " + std::to_string(forming.size) +
                             " members for some and " + std::to_string(size) + " for " +
                             message.device;
    for (const auto& [device, joiner] : take())
      Refuse(group, device, joiner, InvalidArgument(text), actions);
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
  std::sort(devices.begin(), devices.end(), [](const std::string& a, const std::string& b) {
    return DeviceName::Parse(a).value() < DeviceName::Parse(b).value();
  });
  Encoder list;
  for (const std::string& device : devices) {
    list.PutBytes(device);
    list.Put(joined.at(device).session);
    list.PutBytes(joined.at(device).link);
  }
  const Payload payload = PayloadOf(list.Take());
  CollectiveMessage answer;
  answer.what = CollectiveWhat::kFormed;
  answer.epoch = RandomNonZero();
  answer.index = one_session ? 1 : 0;
  for (const auto& [device, joiner] : joined) {
    answer.device = device;
    Answer(joiner, group, answer, payload, actions);
  }
}

void CollectiveManager::Impl::HandleFormed(uint64_t session, int32_t group,
                                           const CollectiveMessage& message, const Payload& payload,
                                           Actions* actions) {
  std::vector<std::string> devices, links;
  std::vector<uint64_t> sessions;
  Decoder in(std::string_view(static_cast<const char*>(payload.data()), payload.bytes));
  while (in.ok() && !in.rest().empty()) {
    devices.emplace_back(in.GetBytes());
    sessions.push_back(in.Get<uint64_t>());
    links.emplace_back(in.GetBytes());
  }
  Result<Members> members = MakeCollectiveMembers(std::move(devices));
  const auto found = members_.find({group, message.device});
  if (!in.ok() || !members.ok() || found == members_.end()) return;
  Member& member = found->second;
  const bool joins = member.state == Member::State::kJoining && member.session == session;
  if (const auto broken = broken_.find(message.epoch); joins && broken != broken_.end()) {
    StopJoining(&member, broken->second, actions);
    return;
  }
  if (joins) {
    member.state = Member::State::kIn;
    member.epoch = message.epoch;
    member.one_session = message.index != 0;
    member.members = members.value();
    member.sessions = std::move(sessions);
    member.links = std::move(links);
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
  // This member has left meanwhile: tell the others not to wait for it.
  CollectiveMessage broken;
  broken.what = CollectiveWhat::kBroken;
  broken.epoch = message.epoch;
  const Status left = Aborted(GroupName(group) + ": " + message.device + " has left");
  broken.SetFailure(left);
  for (const std::string& task : members.value()->tasks) {
    if (task != host_->task())
      actions->sends.push_back({member.session, task, group, 1, broken, {}, nullptr});
  }
  Break(message.epoch, left, false, actions);
}

void CollectiveManager::Impl::HandleRefused(uint64_t session, int32_t group,
                                            const CollectiveMessage& message, Actions* actions) {
  const auto found = members_.find({group, message.device});
  if (found == members_.end()) return;
  Member& member = found->second;
  if (member.state != Member::State::kJoining || member.session != session) return;
  Status status = message.failure();
  if (!member.broken.ok() && member.broken_session == member.session) {
    status =
        status.WithMessage(message.text + "; before, it ended with: " + member.broken.message());
  }
  member.state = Member::State::kOut;
  for (const Request& request : std::exchange(member.waiting, {})) {
    actions->ends.push_back({request, status, {}});
  }
}

void CollectiveManager::Impl::HandleControl(uint64_t session, int32_t group,
                                            const CollectiveMessage& message,
                                            const Payload& payload, Actions* actions) {
  switch (message.what) {
    case CollectiveWhat::kJoin: {
      const Result<DeviceName> device = DeviceName::Parse(message.device);
      if (device.ok() && device->full() && static_cast<int>(message.index) > 0)
        HandleJoin(session, device->TaskName(), group, message, actions);
      return;
    }
    case CollectiveWhat::kLeave:
      return HandleLeave(session, group, message.device);
    case CollectiveWhat::kFormed:
      return HandleFormed(session, group, message, payload, actions);
    case CollectiveWhat::kRefused:
      return HandleRefused(session, group, message, actions);
    default: {
      Rounds ended;
      Decoder in(std::string_view(static_cast<const char*>(payload.data()), payload.bytes));
      while (in.ok() && !in.rest().empty()) {
        const auto instance = in.Get<int32_t>();
        ended[instance] = in.Get<uint64_t>();
      }
      Break(message.epoch, message.failure(), false, actions, in.ok() ? ended : Rounds());
      return;
    }
  }
}

CollectiveManager::Impl::Rounds CollectiveManager::Impl::EndedRounds(const Member& member) const {
  if (member.one_session) return {};
  Rounds ended(member.rounds.begin(), member.rounds.end());
  for (auto it = operations_.lower_bound({member.epoch, 0, INT32_MIN, INT32_MIN});
       it != operations_.end() && it->first.epoch == member.epoch; ++it) {
    uint64_t& round = ended[it->first.instance];
    round = std::min(round, it->first.round - 1);
  }
  for (const Request& request : entered_) {
    if (request->epoch != member.epoch) continue;
    uint64_t& round = ended[request->instance_key];
    round = std::min(round, request->round - 1);
  }
  return ended;
}

void CollectiveManager::Impl::Break(uint64_t epoch, const Status& why, bool tell, Actions* actions,
                                    const Rounds& ended) {
  bool told = !tell;
  bool known = false;
  // To the other members this is a cause and not a consequence: they get it neither as Cancelled
  // nor as derived.
  const Status status(why.code() == Code::kCancelled ? Code::kAborted : why.code(), why.message(),
                      why.lost_task());
  for (auto& [where, member] : members_) {
    if (member.state != Member::State::kIn || member.epoch != epoch) continue;
    known = true;
    member.state = Member::State::kOut;
    member.broken = status;
    member.broken_session = member.session;
    member.broken_step = member.last_step;
    if (std::exchange(told, true)) continue;
    CollectiveMessage message;
    message.what = CollectiveWhat::kBroken;
    message.epoch = epoch;
    message.SetFailure(status);
    const Payload rounds = RoundsToSend(ended);
    for (const std::string& task : member.members->tasks) {
      if (task != host_->task())
        actions->sends.push_back({member.session, task, where.first, 1, message, rounds, nullptr});
    }
  }
  if (!known && !tell) Remember(&broken_, epoch, status, kBrokenKept);
  std::erase_if(entered_, [&](const Request& request) {
    const auto round = ended.find(request->instance_key);
    if (request->epoch != epoch || (round != ended.end() && request->round <= round->second))
      return false;
    request->ended = status;
    actions->broken.push_back(request);
    return true;
  });
  // End the operations of the epoch, including those for which data came before their own member
  // began.
  std::vector<OperationPtr> pending;
  for (auto it = operations_.lower_bound({epoch, 0, INT32_MIN, INT32_MIN});
       it != operations_.end() && it->first.epoch == epoch;) {
    if (const auto round = ended.find(it->first.instance);
        round != ended.end() && it->first.round <= round->second) {
      it->second->epoch_breaks = false;
      ++it;
      continue;
    }
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
    operation->status = status;
    EndLocal(operation, operation->status, actions);
    operation->deadline = Clock::now() + operation->spec.timeout;
    if (operation->workers == 0) operation->Clear();
  }
}

void CollectiveManager::Impl::GiveUp(const Key& key, uint64_t session, const Status& status,
                                     Actions* actions) {
  if (key.epoch != session) {
    Remember(&broken_, key.epoch, status, kBrokenKept);
    return Break(key.epoch, status, true, actions);
  }
  operations_.erase(key);
  Remember(&given_up_, key, status, kGivenUpKept);
}

void CollectiveManager::Impl::Withhold(const std::string& device, Actions* actions) {
  std::erase_if(actions->sends, [&](Actions::Send& send) MG_REQUIRES(mutex_) {
    if (send.message.what != CollectiveWhat::kBroken) return false;
    withheld_.push_back({device, Clock::now() + kCauseGrace, std::move(send)});
    return true;
  });
  WakeTimer();
}

void CollectiveManager::Impl::Tell(uint64_t session,
                                   const std::function<Status(const std::string& device)>& cause,
                                   Actions* actions) {
  std::erase_if(withheld_, [&](Withheld& word) {
    if (word.send.session != session) return false;
    if (const Status status = cause(word.device); !status.ok())
      word.send.message.SetFailure(status.WithContext(GroupName(word.send.group)));
    actions->sends.push_back(std::move(word.send));
    return true;
  });
}

Status CollectiveManager::Impl::Overdue(int32_t group, const Forming& forming,
                                        const Joiner& joiner) const {
  std::string here, absent, lost;
  std::vector<std::string> tasks;
  int absent_tasks = 0;
  for (const auto& [device, other] : forming.joined) {
    here += (here.empty() ? "" : ", ") + device;
    tasks.push_back(other.task);
  }
  const std::string job = DeviceName::Parse(joiner.task).value().job;
  for (const std::string& task : host_->TasksOfJob(joiner.session, job)) {
    if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) continue;
    absent += (absent.empty() ? "" : ", ") + task;
    if (absent_tasks++ == 0) lost = task;
  }
  std::string text = GroupName(group) + " of " + std::to_string(forming.size) + " members: after " +
                     Seconds(joiner.timeout) + " only " + here + " had joined";
  const int missing = forming.size - static_cast<int>(forming.joined.size());
  if (absent_tasks > missing) {  // the group has not all tasks of the job; which, only members know
    text += "; " + std::to_string(missing) + " of these had to come, too: " + absent;
  } else if (absent_tasks > 0) {
    text += "; nobody came from " + absent;
  }
  return Status(Code::kDeadlineExceeded, text, absent_tasks > missing ? std::string() : lost);
}

}  // namespace monograph
