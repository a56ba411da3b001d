// StepWatch: which of a session's steps make no progress here, what they wait for, and whether that
// can still come.
//
// A task looks at its running parts twice a second. Of a part that stands still it asks the peers
// whose tensors have not come what they know of the step (kPing with the step's id). A peer that
// keeps answering that its part is over and all that it sent has left, while nothing is arriving
// here, has sent what got lost: the step can be failed. The client asks in the same way of parts
// whose report has not come, and knows also that a part which has not begun never will, because its
// question came after its run-step. A wait for a peer whose part runs is legitimate, however long;
// it is told once (kTold),
// and again if the step goes on and then stands still for something else.
//
// It only keeps states and times, as PeerWatch does. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/worker/step_sight.h"

namespace monograph {

class StepWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A part that stands still so long is asked about.
  static constexpr std::chrono::milliseconds kStandsStill{500};
  // What a peer has said for so long holds. With two looks before it a step ends within 3 s.
  static constexpr std::chrono::milliseconds kCertain{1000};
  static constexpr std::chrono::milliseconds kTold{10'000};

  using Awaited = StepAwaited;
  using Sight = StepSight;
  using Missing = StepMissing;
  struct Due {
    std::vector<std::pair<int, uint64_t>> ask;  // peers, and the step that each is asked about
    std::vector<uint64_t> tell;                 // steps that have stood still for kTold
    std::vector<Missing> missing;               // what never comes, at most one of a step
  };

  // `steps`: all that run. `arriving`: payloads are on their way to here.
  Due Look(Time now, std::span<const Sight> steps, bool arriving);
  // A peer has said this of its part of `step`.
  void Answered(int peer, uint64_t step, PartState state, Time now);
  // What it said last of a step that is asked about.
  PartState StateOf(int peer, uint64_t step) const;

 private:
  struct Answer {
    PartState state = PartState::kUnknown;
    Time since, last;  // it has said so
  };
  struct Watched {
    int64_t progress = 0;
    Time since;  // of the progress
    bool told = false;
  };

  mutable Mutex mutex_;
  std::map<uint64_t, Watched> steps_ MG_GUARDED_BY(mutex_);
  std::map<std::pair<int, uint64_t>, Answer> answers_ MG_GUARDED_BY(mutex_);  // by peer and step
};

}  // namespace monograph
