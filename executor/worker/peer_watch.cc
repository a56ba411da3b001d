#include "executor/worker/peer_watch.h"

#include <algorithm>

namespace monograph {

PeerWatch::Due PeerWatch::Look(Time now, std::span<const int> peers) {
  Due due;
  MutexLock lock(mutex_);
  if (expected_ && now > *expected_ + kOwnDelay) grace_until_ = now + kGrace;
  std::map<int, Watched> watched;
  for (const int peer : peers) {
    if (unheard_.count(peer) != 0) {
      due.lost.push_back(peer);
      continue;
    }
    const auto known = watched_.find(peer);
    Watched state = known == watched_.end() ? Watched{now, now + kInterval} : known->second;
    const Time silent_at = std::max(state.heard + kPatience, grace_until_);
    if (now >= silent_at) {
      due.lost.push_back(peer);
      continue;
    }
    if (now >= state.next_ask) {
      due.ask.push_back(peer);
      state.next_ask = now + kInterval;
    }
    const Time next = std::min(silent_at, state.next_ask);
    due.next = due.next ? std::min(*due.next, next) : next;
    watched.emplace(peer, state);
  }
  watched_.swap(watched);
  unheard_.clear();
  expected_ = due.next;
  return due;
}

void PeerWatch::Heard(int peer, Time now) {
  MutexLock lock(mutex_);
  if (const auto found = watched_.find(peer); found != watched_.end())
    found->second.heard = std::max(found->second.heard, now);
}

void PeerWatch::IsUnheard(int peer) {
  MutexLock lock(mutex_);
  unheard_.insert(peer);
}

}  // namespace monograph
