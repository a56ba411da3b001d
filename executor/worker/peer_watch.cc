#include "executor/worker/peer_watch.h"

#include <algorithm>

namespace monograph {

using control::Pulse;

PeerWatch::Due PeerWatch::Look(Time now, std::span<const int> peers) {
  Due due;
  MutexLock lock(mutex_);
  const bool late = std::any_of(watched_.begin(), watched_.end(),
                                [now](const auto& entry) { return entry.second.IsLate(now); });
  std::map<int, Pulse> watched;
  for (const int peer : peers) {
    const auto known = watched_.find(peer);
    Pulse pulse =
        known == watched_.end() ? Pulse(now, {kInterval, kPatience, kGrace}) : known->second;
    const Pulse::Verdict verdict = pulse.Judge(now, late);
    if (verdict == Pulse::Verdict::kLost || unheard_.count(peer) != 0) {
      due.lost.push_back(peer);
      continue;
    }
    if (verdict == Pulse::Verdict::kAsk) due.ask.push_back(peer);
    due.next = std::min(pulse.wake(), due.next.value_or(pulse.wake()));
    watched.emplace(peer, pulse);
  }
  watched_.swap(watched);
  unheard_.clear();
  return due;
}

void PeerWatch::Heard(int peer, Time now) {
  MutexLock lock(mutex_);
  if (const auto found = watched_.find(peer); found != watched_.end()) found->second.Heard(now);
}

void PeerWatch::IsUnheard(int peer) {
  MutexLock lock(mutex_);
  unheard_.insert(peer);
}

}  // namespace monograph
