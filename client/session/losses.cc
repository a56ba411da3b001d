// What a session does when a task is lost to it, or to another task. The control plane's heartbeats
// tell of the first (OnTaskLost), and so does the worker here, when nothing comes from the task
// over the data plane (OnPeerLost). A task that cannot reach another one fails its part with the
// other's name (JudgedLocked): if both answer heartbeats, the link between them is cut, and the
// caller is told so; if not, the heartbeats are about to say which of the two is lost. The worker
// also asks for what steps in flight await (InFlight), and tells what never comes (OnAwaitedLost).
// Those that are left disconnect from a lost task. Where it shared memory with them, it may have
// left there what holds up the others; so they make new memory, and are told each other's new
// addresses (RenewAfter). Steps that begin meanwhile wait for that.
#include <algorithm>

#include "base/thread.h"
#include "client/session/impl.h"
#include "client/session/partial_step.h"
#include "executor/worker/worker.pb.h"

namespace monograph {
namespace {

constexpr int kReport = -1;  // StepAwaited::what; else the index of a fetch

}  // namespace

Status Session::Impl::JudgedLocked(int reporter, const Status& status) const {
  const std::string& lost = status.lost_task();
  if (status.code() != Code::kUnavailable || lost.empty() || status.derived() ||
      reporter == kSelf || lost == TaskName(reporter))
    return status;
  const auto& tasks = cluster_->tasks();
  const auto found = std::find_if(tasks.begin(), tasks.end(),
                                  [&](const RemoteTask& task) { return task.task == lost; });
  if (found == tasks.end()) return status;
  const auto task = static_cast<int>(found - tasks.begin());
  if (!lost_[static_cast<size_t>(task)].ok()) return status;
  if (!cluster_->Answers(reporter) || !cluster_->Answers(task)) return status.AsDerived();
  // Each of the two says so of the other: the later one is named, whoever spoke first.
  return TaskLost(TaskName(std::max(reporter, task)),
                  status.message() + "; the client reaches both" + HeldUpLocked());
}

// A task that ends while it writes to shared memory leaves there what holds up later messages.
std::string Session::Impl::HeldUpLocked() const {
  std::string by;
  for (size_t task = 0; task < shares_memory_.size(); ++task) {
    if (!lost_[task].ok() && shares_memory_[task])
      by += (by.empty() ? "" : ", ") + TaskName(static_cast<int>(task));
  }
  if (by.empty()) return by;
  return "; its messages may be held up by " + by +
         ", which was lost in shared memory: a new session works";
}

void Session::Impl::OnPeerLost(int peer, const Status& why) {
  if (!cluster_->Answers(peer)) return OnTaskLost(peer, why);
  std::string held_up;
  {
    MutexLock lock(mutex_);
    held_up = HeldUpLocked();
  }
  OnTaskLost(peer, why.WithMessage(why.message() + "; it answers heartbeats" + held_up));
}

void Session::Impl::OnTaskLost(int task, const Status& why) {
  {
    MutexLock lock(mutex_);
    if (static_cast<size_t>(task) >= lost_.size()) return;  // Start looks at the status itself
    if (lost_[static_cast<size_t>(task)].ok()) lost_[static_cast<size_t>(task)] = why;
  }
  // Messages that the task sent before it was lost may have arrived without having been read.
  transport_->DriveUntil(
      [this, task] {
        MutexLock lock(mutex_);
        const std::vector<StepInFlight*> flights = steps_.All();
        return std::none_of(flights.begin(), flights.end(),
                            [task](const StepInFlight* flight) { return flight->HasPart(task); });
      },
      Clock::now() + kLostGrace);
  {
    MutexLock lock(mutex_);
    to_renew_.push_back(task);
    if (!renewer_.joinable()) renewer_ = StartThread("mg-renew", [this] { Renew(); });
  }
  renewals_.NotifyOne();
  FailSteps(why, [task](StepInFlight& flight) {
    const bool awaited = flight.awaits_cause || (flight.HasPart(task) && flight.MayAwait(task));
    return flight.EndParts(task) || awaited;
  });
}

void Session::Impl::Renew() {
  MutexLock lock(mutex_);
  const auto more = [this]() MG_REQUIRES(mutex_) { return renewer_ends_ || !to_renew_.empty(); };
  while (!renewer_ends_) {
    if (!to_renew_.empty()) {
      const int lost = to_renew_.front();
      lock.Unlock();
      RenewAfter(lost);
      lock.Lock();
      to_renew_.pop_front();
      slot_free_.NotifyAll();
    } else if (suspects_.empty()) {
      renewals_.Wait(mutex_, more);
    } else if (!renewals_.WaitUntil(mutex_, suspects_.front().until, more)) {
      const Suspects suspects = std::move(suspects_.front());
      suspects_.pop_front();
      lock.Unlock();
      EndSuspects(suspects);
      lock.Lock();
    }
  }
}

void Session::Impl::SuspectLocked(int lost, const std::vector<int>& renewed) {
  Suspects suspects{
      .until = Clock::now() + kSuspectedFor,
      .why = TaskLost(TaskName(lost), TaskName(lost) + " was lost in shared memory and may hold "
                                                       "up what the step waits for"),
      .steps = {}};
  for (const StepInFlight* const flight : steps_.All()) {
    const auto& parts = flight->prepared->parts;
    const auto between = std::count_if(parts.begin(), parts.end(), [&](const auto& part) {
      return std::find(renewed.begin(), renewed.end(), part.peer) != renewed.end();
    });
    // A member of a collective may await what a part of another client's step sends.
    if (between > (flight->prepared->has_collectives ? 0 : 1))
      suspects.steps.push_back(flight->steps.last);
  }
  if (!suspects.steps.empty()) suspects_.push_back(std::move(suspects));
}

void Session::Impl::EndSuspects(const Suspects& suspects) {
  FailSteps(suspects.why, [&](const StepInFlight& flight) {
    return std::find(suspects.steps.begin(), suspects.steps.end(), flight.steps.last) !=
           suspects.steps.end();
  });
}

void Session::Impl::RenewAfter(int lost) {
  std::vector<std::string> addresses;
  {
    MutexLock lock(mutex_);
    addresses = addresses_;
  }
  const bool connected = !addresses.empty();  // else the session is not opened at all
  addresses.resize(cluster_->tasks().size() + 1);
  std::vector<int> living;
  for (int task = 0; task < static_cast<int>(cluster_->tasks().size()); ++task) {
    if (task != lost && cluster_->status(task).ok()) living.push_back(task);
  }
  std::vector<int> renewed;
  Status failed;
  const auto take = [&](int peer, const Result<std::string>& address) {
    std::string& known = peer == kSelf ? addresses.back() : addresses[static_cast<size_t>(peer)];
    failed.Update(address.status());
    if (!address.ok() || *address == known) return;
    known = *address;
    renewed.push_back(peer);
  };
  const auto call = [&](std::string_view method, const auto& request_for) {
    std::vector<std::pair<int, std::string>> requests;
    for (const int task : living)
      requests.emplace_back(task, request_for(task).SerializeAsString());
    return cluster_->Call(method, std::move(requests), kControlTimeout);
  };
  take(kSelf, worker_->DropPeer(id_, TaskName(lost)));
  const std::vector<Result<std::string>> dropped = call("DropPeer", [&](int) {
    wire::DropPeerRequest request;
    request.set_session(id_);
    request.set_task(TaskName(lost));
    return request;
  });
  for (size_t i = 0; i < living.size(); ++i) {
    wire::DropPeerResponse response;
    if (!dropped[i].ok()) {
      failed.Update(dropped[i].status());
    } else if (!response.ParseFromString(*dropped[i])) {
      failed.Update(Internal("malformed answer to DropPeer from " + TaskName(living[i])));
    } else {
      take(living[i], response.transport_address());
    }
  }
  if (!connected) return;
  if (!renewed.empty()) {
    std::vector<PeerSpec> all;
    for (const int task : living)
      all.push_back({TaskName(task), addresses[static_cast<size_t>(task)]});
    failed.Update(worker_->ReconnectPeers(id_, all));
    all.push_back({worker_->task(), addresses.back()});
    const std::vector<Result<std::string>> reconnected = call("ReconnectPeers", [&](int to) {
      wire::ReconnectPeersRequest request;
      request.set_session(id_);
      for (const PeerSpec& spec : all) {
        if (spec.task == TaskName(to)) continue;
        wire::Peer* const peer = request.add_peers();
        peer->set_task(spec.task);
        peer->set_transport_address(spec.transport_address);
      }
      return request;
    });
    for (const Result<std::string>& answer : reconnected) failed.Update(answer.status());
  }
  MutexLock lock(mutex_);
  addresses_ = std::move(addresses);
  SuspectLocked(lost, renewed);
  if (!renewed.empty()) {
    renewed_after_ = lost;
    for (const StepInFlight* const flight : steps_.All())
      last_before_renewal_ = std::max(last_before_renewal_, flight->steps.last);
  }
  if (failed.ok()) {
    shares_memory_[static_cast<size_t>(lost)] = false;
  } else if (!closed_) {
    LogWarning("the data plane was not made anew after the loss of " + TaskName(lost) + ": " +
               failed.message());
  }
}

void Session::Impl::AwaitRenewal(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (to_renew_.empty()) return;
  slot_free_.WaitUntil(mutex_, std::min(deadline, Clock::now() + kRenewGrace),
                       [this]() MG_REQUIRES(mutex_) { return to_renew_.empty() || closed_; });
}

void Session::Impl::EndRenewer() {
  {
    MutexLock lock(mutex_);
    renewer_ends_ = true;
  }
  renewals_.NotifyOne();
  if (renewer_.joinable()) renewer_.join();
}

std::vector<StepSight> Session::Impl::InFlight() {
  std::vector<StepSight> sights;
  MutexLock lock(mutex_);
  for (const StepInFlight* const flight : steps_.All()) {
    if (flight->aborting) continue;
    const PreparedStep& prepared = *flight->prepared;
    StepSight& sight = sights.emplace_back();
    sight.step = flight->steps.last;
    sight.progress = flight->parts_missing * int64_t{1 << 20} + flight->fetches_missing;
    const bool row = flight->steps.count() > 1;
    for (size_t i = 0; i < prepared.parts.size(); ++i) {
      const int peer = prepared.parts[i].peer;
      if (flight->part_done[i] || peer == kSelf) continue;
      sight.awaits.push_back({.peer = peer,
                              .step = flight->steps.first,
                              .what = kReport,
                              .lost_if_over = !row,
                              .lost_if_not_begun = true});
      if (row) sight.awaits.push_back({.peer = peer, .step = flight->steps.last, .what = kReport});
    }
    for (int fetch = 0; fetch < prepared.fetches; ++fetch) {
      const int peer = prepared.fetch_from[static_cast<size_t>(fetch)];
      if (peer != kSelf && !flight->fetched[static_cast<size_t>(fetch)].valid())
        sight.awaits.push_back({.peer = peer, .step = flight->steps.last, .what = fetch});
    }
  }
  return sights;
}

PartState Session::Impl::ClientPart(uint64_t step) {
  MutexLock lock(mutex_);
  const StepInFlight* const flight = steps_.Find(step);
  if (flight != nullptr && flight->listener.partial != nullptr &&
      flight->listener.partial->unfed > 0)
    return PartState::kRunning;
  return flight == nullptr || !flight->HasPart(kSelf) ? PartState::kOver : PartState::kNotBegun;
}

void Session::Impl::OnAwaitedLost(const StepMissing& missing) {
  const int peer = missing.awaited.peer;
  const std::string name = TaskName(peer);
  const std::string step = "step " + std::to_string(StepNumberOf(missing.step));
  Status why;
  {
    MutexLock lock(mutex_);
    StepInFlight* const flight = steps_.FindLast(missing.step);
    if (flight == nullptr || flight->aborting) return;
    if (missing.awaited.what != kReport) {
      if (flight->fetched[static_cast<size_t>(missing.awaited.what)].valid()) return;
      why = Unavailable("a fetched tensor is lost on its way from " + name +
                        ", which has ended its part of " + step + " and sends nothing more");
    } else if (flight->EndParts(peer)) {  // nothing more is to be heard of it
      why = Unavailable(missing.state == PartState::kNotBegun
                            ? name + " has not begun its part of " + step +
                                  ": the message that starts it is lost"
                            : name + " has ended its part of " + step + ", and its report is lost");
    } else {
      return;
    }
    if (missing.step <= last_before_renewal_) {
      const std::string lost = TaskName(renewed_after_);
      why = TaskLost(lost, why.message() + "; " + lost +
                               " was lost meanwhile, and the data plane was made anew");
    }
  }
  OnStepFailed(missing.step, why);
}

}  // namespace monograph
