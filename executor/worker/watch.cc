// What a worker does about peers that fall silent and steps that stand still, on a thread of its
// own (mg-watch). While steps of a session run, a round every half second asks each peer that the
// session's graphs or collectives exchange tensors with for an answer (PeerWatch), and each peer
// that a standing part awaits something from for the state of its part (StepWatch). A lost peer and
// a tensor that cannot come end the steps that wait for them. When no step runs, nothing is sent,
// and after a moment the thread sleeps.
#include <algorithm>

#include "base/duration.h"
#include "base/log.h"
#include "base/thread.h"
#include "executor/worker/impl.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

// Steps that follow each other within this time find the thread awake, which then looks so often.
constexpr std::chrono::seconds kStaysAwake{2};
constexpr std::chrono::milliseconds kIdleLook{100};

// "'conv1/Relu:0' (edge 7) from /job:worker/replica:0/task:0"
std::string DescribeEdge(const EdgeInfo& edge) {
  const Result<DeviceName> sender = DeviceName::Parse(edge.send_device);
  return "'" + edge.name + "' (edge " + std::to_string(edge.id) + ") from " +
         (sender.ok() ? sender->TaskName() : edge.send_device);
}

// Whether payloads to the peer have not left yet.
bool Leaving(const WorkerSession& session, int peer) {
  return session.leaving[static_cast<size_t>(peer)].load(std::memory_order_relaxed) > 0;
}

}  // namespace

// ---- the thread

void Worker::Impl::StartWatch() {
  MutexLock lock(watch_mutex_);
  watch_asleep_.store(false, std::memory_order_relaxed);
  if (watch_ends_) return;
  if (!watch_thread_.joinable()) watch_thread_ = StartThread("mg-watch", [this] { Watch(); });
  watch_changed_.NotifyAll();
}

void Worker::Impl::Watch() {
  MutexLock lock(watch_mutex_);
  Clock::time_point busy = Clock::now();
  while (!watch_ends_) {
    watch_looks_ = true;
    ++watch_rounds_;
    lock.Unlock();
    std::vector<std::shared_ptr<WorkerSession>> sessions;
    {
      ReaderLock reader(sessions_mutex_);
      for (const auto& [id, session] : sessions_) {
        if (session->state == WorkerSession::State::kConnected) sessions.push_back(session);
      }
    }
    const Clock::time_point now = Clock::now();
    std::optional<Clock::time_point> next;
    for (const auto& session : sessions) {
      if (const auto due = LookAfter(*session, now)) next = std::min(*due, next.value_or(*due));
    }
    sessions.clear();  // perhaps the last hold, not under the lock
    lock.Lock();
    watch_looks_ = false;
    watch_changed_.NotifyAll();
    const bool asleep = watch_asleep_.load(std::memory_order_relaxed);
    if (next) busy = now;
    if (next || now - busy < kStaysAwake) {
      watch_asleep_.store(false, std::memory_order_relaxed);
      if (!watch_ends_) watch_changed_.WaitUntil(watch_mutex_, next.value_or(now + kIdleLook));
    } else if (!asleep) {
      watch_asleep_.store(true, std::memory_order_relaxed);  // and one more round
    } else {
      watch_changed_.Wait(watch_mutex_, [this]() MG_REQUIRES(watch_mutex_) {
        return watch_ends_ || !watch_asleep_.load(std::memory_order_relaxed);
      });
      busy = Clock::now();
    }
  }
}

void Worker::Impl::StopWatching(WorkerSession& session) {
  session.client_hears = false;
  MutexLock lock(watch_mutex_);
  if (watch_thread_.get_id() == std::this_thread::get_id()) return;
  const uint64_t round = watch_rounds_;
  watch_changed_.Wait(watch_mutex_, [&]() MG_REQUIRES(watch_mutex_) {
    return !watch_looks_ || watch_rounds_ != round;
  });
}

void Worker::Impl::EndWatch() {
  std::thread thread;
  {
    MutexLock lock(watch_mutex_);
    watch_ends_ = true;
    thread.swap(watch_thread_);
    watch_changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

// ---- a round

std::optional<PeerWatch::Time> Worker::Impl::LookAfter(WorkerSession& session,
                                                       PeerWatch::Time now) {
  StepClient* const client = session.client_hears ? session.client.load() : nullptr;
  std::vector<StepWatch::Sight> flights;
  if (client != nullptr) flights = client->InFlight();
  bool active = !flights.empty();
  {
    MutexLock lock(session.mutex);
    if (session.closed) return std::nullopt;
    active = active || session.running > 0 || session.begun != session.begun_before;
    session.begun_before = session.begun;
    if (!active) {
      session.watched.clear();
    } else {
      for (const auto& [handle, graph] : session.graphs)
        session.watched.insert(graph->peers.begin(), graph->peers.end());
    }
  }
  if (active) {
    for (StepWatch::Sight& flight : flights) {
      for (StepWatch::Awaited& awaited : flight.awaits) {
        session.watched.insert(awaited.peer);
        // The ping may arrive before the run-step message, which waits behind unsent payloads: a
        // peer that has not begun the step is not lost then.
        if (Leaving(session, awaited.peer)) awaited.lost_if_not_begun = false;
      }
    }
    for (const std::string& task : collectives_->AwaitedTasks(session.id)) {
      if (const SessionPeer* peer = session.PeerOf(task))
        session.watched.insert(session.IndexOf(*peer));
    }
  }
  // Also watch peers that have not taken all messages yet, even if no step runs: a collective may
  // still send to them.
  for (int peer = 0; peer < static_cast<int>(session.peers.size()); ++peer) {
    if (!Leaving(session, peer)) continue;
    session.watched.insert(peer);
    active = true;
  }
  std::vector<int> peers;
  {
    MutexLock lock(session.mutex);
    std::copy_if(session.watched.begin(), session.watched.end(), std::back_inserter(peers),
                 [&](int peer) MG_REQUIRES(session.mutex) { return !session.lost.contains(peer); });
  }
  const PeerWatch::Due due = session.peer_watch.Look(now, peers);
  for (const int peer : due.ask) SendPing(session, peer, 0);
  for (const int peer : due.lost) {
    const std::string& name = session.peers[static_cast<size_t>(peer)].task;
    const Status why =
        TaskLost(name, task_ + " cannot reach " + name + ": nothing has come from it for " +
                           Seconds(PeerWatch::kPatience) + " over the data plane");
    LogWarning(why.message());
    SendPing(session, peer, 0, kUnheardFlag);
    if (client != nullptr && session.client_hears) client->OnPeerLost(peer, why);
    LosePeer(session, peer, why);
  }
  const bool arriving = session.arriving.load(std::memory_order_relaxed) > 0;
  const std::vector<StepWatch::Sight> parts = SightsOf(session);
  const StepWatch::Due of_parts = session.part_watch.Look(now, parts, arriving);
  const StepWatch::Due of_flights = session.flight_watch.Look(now, flights, arriving);
  std::set<std::pair<int, uint64_t>> asked(of_parts.ask.begin(), of_parts.ask.end());
  asked.insert(of_flights.ask.begin(), of_flights.ask.end());
  for (const auto& [peer, step] : asked) SendPing(session, peer, step);
  for (const uint64_t step : of_parts.tell) TellWait(session, step);
  for (const StepWatch::Missing& missing : of_parts.missing) AwaitedLost(session, missing);
  for (const StepWatch::Missing& missing : of_flights.missing) {
    if (session.client_hears) client->OnAwaitedLost(missing);
  }
  if (!active) return std::nullopt;
  const PeerWatch::Time soon = now + PeerWatch::kInterval;
  return std::min(soon, due.next.value_or(soon));
}

std::vector<StepWatch::Sight> Worker::Impl::SightsOf(WorkerSession& session) const {
  std::vector<std::pair<uint64_t, std::shared_ptr<Step>>> running;
  {
    MutexLock lock(session.mutex);
    for (const StepSlot& slot : session.slots) {
      if (slot.state == StepSlot::kRunning) running.emplace_back(slot.step, slot.running);
    }
  }
  std::vector<StepWatch::Sight> sights;
  for (const auto& [id, step] : running) {
    const Step::Progress progress = step->progress();
    StepWatch::Sight& sight = sights.emplace_back();
    sight.step = id;
    sight.progress = progress.left - progress.brought;
    for (const EdgeInfo* edge : progress.awaited) {
      const Result<DeviceName> device = DeviceName::Parse(edge->send_device);
      const SessionPeer* peer = device.ok() ? session.PeerOf(device->TaskName()) : nullptr;
      if (peer != nullptr)
        sight.awaits.push_back({.peer = session.IndexOf(*peer), .step = id, .what = edge->id});
    }
  }
  return sights;
}

// ---- what follows from it

void Worker::Impl::LosePeer(WorkerSession& session, int peer, const Status& why) {
  const SessionPeer& lost = session.peers[static_cast<size_t>(peer)];
  std::vector<std::shared_ptr<Step>> steps;
  {
    MutexLock lock(session.mutex);
    if (!session.lost.emplace(peer, why).second) return;
    for (const StepSlot& slot : session.slots) {
      if (slot.state != StepSlot::kRunning) continue;
      const std::vector<int>& peers = slot.graph->peers;
      if (std::find(peers.begin(), peers.end(), peer) != peers.end()) steps.push_back(slot.running);
    }
  }
  // First the reason, then what follows from it.
  collectives_->PeerLost(session.id, lost.task, why);
  for (const auto& step : steps) step->Abort(why);
  session.transport->Disconnect(lost.id);
}

std::shared_ptr<Step> Worker::Impl::RunningStep(WorkerSession& session, uint64_t step) const {
  MutexLock lock(session.mutex);
  const StepSlot& slot = session.SlotOf(step);
  return slot.Runs(step) ? slot.running : nullptr;
}

std::string Worker::Impl::DescribeAwaited(WorkerSession& session, uint64_t id, int32_t edge) const {
  const std::string number = "edge " + std::to_string(edge);
  const std::shared_ptr<Step> step = RunningStep(session, id);
  if (step == nullptr) return number;
  for (const EdgeInfo* awaited : step->progress().awaited) {
    if (awaited->id == edge) return DescribeEdge(*awaited);
  }
  return number;
}

void Worker::Impl::AwaitedLost(WorkerSession& session, const StepWatch::Missing& missing) {
  const std::shared_ptr<Step> step = RunningStep(session, missing.step);
  if (step == nullptr) return;
  const std::vector<const EdgeInfo*> awaited = step->progress().awaited;
  if (std::none_of(awaited.begin(), awaited.end(),
                   [&](const EdgeInfo* edge) { return edge->id == missing.awaited.what; }))
    return;  // it has come after all
  FailHere(session, missing.step,
           Unavailable(DescribeAwaited(session, missing.step, missing.awaited.what) +
                       " is lost on its way to " + task_ + ": " +
                       session.peers[static_cast<size_t>(missing.awaited.peer)].task +
                       " has ended its part of step " + std::to_string(StepNumberOf(missing.step)) +
                       " and sends nothing more"));
}

std::string Worker::Impl::DescribeWaits(WorkerSession& session, uint64_t id) const {
  constexpr size_t kMostListed = 3;
  const std::shared_ptr<Step> step = RunningStep(session, id);
  if (step == nullptr) return "";
  const Step::Progress progress = step->progress(/*with_nodes=*/true);
  std::vector<std::string> waits;
  for (const std::string& node : progress.computing)
    waits.push_back("for " + node + ", which computes");
  for (const std::string& node : progress.waiting) waits.push_back("for " + node);
  for (const EdgeInfo* edge : progress.awaited) {
    const Result<DeviceName> device = DeviceName::Parse(edge->send_device);
    const SessionPeer* peer = device.ok() ? session.PeerOf(device->TaskName()) : nullptr;
    if (peer == nullptr) continue;
    waits.push_back("for " + DescribeEdge(*edge) + ", which " +
                    Describe(session.part_watch.StateOf(session.IndexOf(*peer), id)));
  }
  std::string text;
  for (size_t i = 0; i < waits.size() && i < kMostListed; ++i)
    text += (i == 0 ? "it waits " : "; ") + waits[i];
  if (waits.size() > kMostListed)
    text += "; and for " + std::to_string(waits.size() - kMostListed) + " more";
  return text;
}

std::string Worker::Impl::DescribeRunning(WorkerSession& session) const {
  constexpr size_t kMostListed = 8;
  std::vector<uint64_t> running;
  {
    MutexLock lock(session.mutex);
    for (const StepSlot& slot : session.slots) {
      if (slot.state == StepSlot::kRunning) running.push_back(slot.step);
    }
  }
  std::string text;
  for (size_t i = 0; i < running.size() && i < kMostListed; ++i) {
    const std::string waits = DescribeWaits(session, running[i]);
    text += (i == 0 ? "step " : ", step ") + std::to_string(StepNumberOf(running[i])) +
            (waits.empty() ? "" : " (" + waits + ")");
  }
  if (running.size() > kMostListed)
    text += " and " + std::to_string(running.size() - kMostListed) + " more";
  return text;
}

void Worker::Impl::TellWait(WorkerSession& session, uint64_t id) {
  if (RunningStep(session, id) == nullptr) return;
  const std::string waits = DescribeWaits(session, id);
  LogInfo("step " + std::to_string(StepNumberOf(id)) + " of session " + std::to_string(session.id) +
          " has made no progress at " + task_ + " for " + Seconds(StepWatch::kTold) +
          (waits.empty() ? "" : "; " + waits));
}

// ---- messages

void Worker::Impl::SendPing(WorkerSession& session, int peer, uint64_t step, uint8_t flags) {
  StepMessage message;
  message.kind = StepMessageKind::kPing;
  message.flags = flags;
  message.step = step;
  message.body = task_;
  SendMessage(session, peer, std::move(message));
}

void Worker::Impl::OnPing(WorkerSession& session, const StepMessage& message) {
  const SessionPeer* const from = session.PeerOf(message.body);
  if (from == nullptr) return CountDropped("a question of no member of the session");
  const int peer = session.IndexOf(*from);
  const Clock::time_point now = Clock::now();
  session.peer_watch.Heard(peer, now);
  if (message.kind == StepMessageKind::kPong) {
    if (message.step == 0 || message.id > static_cast<uint32_t>(PartState::kOver)) return;
    session.part_watch.Answered(peer, message.step, static_cast<PartState>(message.id), now);
    session.flight_watch.Answered(peer, message.step, static_cast<PartState>(message.id), now);
    return;
  }
  if ((message.flags & kUnheardFlag) != 0) {
    session.peer_watch.IsUnheard(peer);
    StartWatch();
    return;
  }
  PartState state = PartState::kUnknown;
  if (message.step != 0) {
    {
      MutexLock lock(session.mutex);
      state = session.StateOf(message.step);
    }
    StepClient* const client = session.client;
    if (client != nullptr && (state == PartState::kNotBegun || state == PartState::kOver)) {
      const PartState told = client->ClientPart(message.step);
      if (state == PartState::kNotBegun || told == PartState::kRunning) state = told;
    }
    if (state == PartState::kOver && Leaving(session, peer)) state = PartState::kSending;
  }
  StepMessage answer;
  answer.kind = StepMessageKind::kPong;
  answer.id = static_cast<uint32_t>(state);
  answer.step = message.step;
  answer.body = task_;
  SendMessage(session, peer, std::move(answer));
}

}  // namespace monograph
