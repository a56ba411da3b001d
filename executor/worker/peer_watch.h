// PeerWatch: which of a session's peers have fallen silent. While a step runs, the worker asks each
// peer that it exchanges tensors with for an answer (kPing, executor/worker/step_message.h) every
// `interval`; a peer from which nothing at all has come for `patience` is lost.
//
// It only keeps the times: its caller says what time it is, which peers are watched and from whom
// something came, and sends the messages (executor/worker/watch.cc). Thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "transport/control/pulse.h"

namespace monograph {

class PeerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kInterval{500}, kPatience{2500}, kGrace{500};

  struct Due {
    std::vector<int> ask;   // peers to be asked now
    std::vector<int> lost;  // peers that are lost, each told once and then forgotten
    // When to look again at the latest; nothing if no peer is watched.
    std::optional<Time> next;
  };
  // `peers` are watched from now on, others no more. A peer has its whole patience from the first
  // look that has it.
  Due Look(Time now, std::span<const int> peers);
  // Something came from the peer.
  void Heard(int peer, Time now);
  // The peer says that it hears nothing from here: the next look finds it lost.
  void IsUnheard(int peer);

 private:
  mutable Mutex mutex_;
  std::map<int, control::Pulse> watched_ MG_GUARDED_BY(mutex_);
  std::set<int> unheard_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph
