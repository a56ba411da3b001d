// Pulse: whether a peer is still there, judged by times alone. Who watches it asks it when Judge
// says so, tells by Heard that something came, and looks again at wake(). A peer from which nothing
// has come for `patience` is lost.
//
// A look that comes late shows that this process did not run: what peers sent meanwhile is not read
// yet. They then get a grace.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>

namespace monograph::control {

class Pulse {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Pace {
    std::chrono::milliseconds interval, patience, grace;
  };
  enum class Verdict { kWait, kAsk, kLost };

  // Watching begins: the peer has its whole patience, and is asked after an interval.
  Pulse(Time now, const Pace& pace) : pace_(pace), heard_(now), next_ask_(now + pace.interval) {}

  void Heard(Time now) { heard_ = std::max(heard_, now); }
  // When to look again at the latest.
  Time wake() const { return std::min(silent_at(), next_ask_); }
  // Whether a look now comes so late that this process cannot have run.
  bool IsLate(Time now) const { return now > wake() + kOwnDelay; }
  // `late`: this process did not run, by this pulse or another one that it looks at.
  Verdict Judge(Time now, bool late) {
    if (late) grace_until_ = now + pace_.grace;
    if (now >= silent_at()) return Verdict::kLost;
    if (now < next_ask_) return Verdict::kWait;
    next_ask_ = now + pace_.interval;
    return Verdict::kAsk;
  }
  Verdict Judge(Time now) { return Judge(now, IsLate(now)); }

 private:
  static constexpr std::chrono::milliseconds kOwnDelay{250};
  Time silent_at() const { return std::max(heard_ + pace_.patience, grace_until_); }

  Pace pace_;
  Time heard_, next_ask_, grace_until_;
};

}  // namespace monograph::control
