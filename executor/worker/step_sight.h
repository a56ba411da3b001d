// What is seen of steps that run: how far they have come, and what they await from whom
// (executor/worker/step_watch.h).
#pragma once

#include <cstdint>
#include <vector>

namespace monograph {

// What a task says of its part of a step; the numbers are those of the wire.
enum class PartState : uint8_t {
  kUnknown = 0,   // it has not said
  kNotBegun = 1,  // no run-step has come
  kRunning = 2,
  kSending = 3,  // over, but tensors to the one that asks have not left yet
  kOver = 4
};
// "has not begun the step"
const char* Describe(PartState state);

// Something that has to come from a peer.
struct StepAwaited {
  int peer = 0;
  uint64_t step = 0;  // id of the step to ask about
  int what = 0;       // the caller's name for it
  // What shows that it never comes: that the peer's part is over; that it has not begun.
  bool lost_if_over = true, lost_if_not_begun = false;
};
// A running part, or a step in flight, at one moment.
struct StepSight {
  uint64_t step = 0;
  int64_t progress = 0;  // any number that changes with it
  std::vector<StepAwaited> awaits;
};
// What never comes, and what the peer said of its part.
struct StepMissing {
  uint64_t step = 0;
  StepAwaited awaited;
  PartState state = PartState::kUnknown;
};

}  // namespace monograph
