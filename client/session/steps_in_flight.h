// StepsInFlight: a session's steps that have begun and not ended, and the numbers and slots that
// they have.
//
// A ring has kStepSlots slots, here and at every worker of the session
// (executor/worker/step_ids.h). A step has one slot until it ends, a row of steps has as many side
// by side; an id says number and slot, so that what arrives for a step finds it without a search.
// At most kMaxStepsInFlight steps are in flight. Slots are taken in turn: the slot of a step that
// was given up here, but has not stopped at some task, is used again as late as possible.
//
// Not thread-safe: the session calls it under its mutex.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "client/master.h"
#include "client/session/late.h"
#include "executor/worker/step_ids.h"

namespace monograph {

struct PartialStep;

// A step, or a row of steps, in flight. It is over when every part has reported and, unless it
// failed, every fetch is here.
struct StepInFlight {
  using Clock = std::chrono::steady_clock;
  // How the end is reported: by calling `done`, or by setting `result` and then `finished`, which
  // belong to the thread that waits.
  struct Listener {
    std::function<void(Result<std::vector<Tensor>>)> done = nullptr;
    std::atomic<bool>* finished = nullptr;
    Result<std::vector<Tensor>>* result = nullptr;
    std::shared_ptr<PartialStep> partial = nullptr;  // of a step that is run in parts
  };

  StepIds steps;
  std::shared_ptr<PreparedStep> prepared;
  std::vector<Tensor> fetched;  // by fetch of `prepared`
  std::vector<bool> part_done;  // by part of `prepared`
  std::vector<Tensor> feeds;    // those that are fetched as they were fed
  int parts_missing = 0;
  int fetches_missing = 0;
  Status status;
  bool aborting = false;
  // All parts have ended with derived errors, because a transfer broke off, or another client has
  // ended. The step waits until it is known which task was lost: until each that may be the cause
  // is lost or has answered a heartbeat that it was asked for since then, for a moment at most.
  bool awaits_cause = false;
  Clock::time_point cause_asked, cause_until;
  Clock::time_point deadline = Clock::time_point::max();
  std::chrono::milliseconds timeout{0};
  // The parts that had not ended at the deadline; `status` lists them.
  std::vector<LatePart> late;
  Listener listener;

  // Forgets the step before and expects all parts and fetches of `step`.
  void Expect(std::shared_ptr<PreparedStep> step);
  // Notes that `peer` does no more for the step. False if that was known, or it has no part in it.
  bool EndParts(int peer);
  bool HasPart(int peer) const;
  // Whether something that `peer` makes may still be on its way to another part, or to be fetched.
  bool MayAwait(int peer) const;
};

class StepsInFlight {
 public:
  // Steps in flight, each step of a row counted.
  int size() const { return size_; }
  // Whether `count` more steps may begin, in a row: there are so many free slots side by side, and
  // no more than kMaxStepsInFlight steps would be in flight.
  bool HasRoom(uint32_t count) const { return FindSlots(count).has_value(); }
  // Begins `count` steps whose numbers are `stride` apart. `number` is the first one's, and larger
  // than all before; 0: the next one. The pointer is valid until End. InvalidArgument for a number
  // that cannot be. REQUIRES: HasRoom(count); 1 <= count <= kMaxStepsInRow; stride > 0.
  Result<StepInFlight*> Begin(uint64_t number, uint32_t count, uint64_t stride);
  // Frees the slots.
  void End(StepInFlight& step);

  // The row in flight that the step with this id belongs to, or nullptr.
  StepInFlight* Find(uint64_t id);
  // The row in flight whose last step has this id, or nullptr.
  StepInFlight* FindLast(uint64_t id);
  // Every row in flight. It may be ended meanwhile.
  std::vector<StepInFlight*> All();

 private:
  static_assert(kStepSlots == 64, "a bit of used_ per slot");

  // The step or row of which this slot has the last step.
  struct Slot {
    bool taken = false;
    StepInFlight step;
  };
  // Index of the first run of `count` free slots from next_ on, or nullopt.
  std::optional<uint64_t> FindSlots(uint32_t count) const;
  static uint64_t Bits(uint64_t first, uint32_t count) {
    return ((uint64_t{1} << count) - 1) << first;
  }

  std::array<Slot, kStepSlots> slots_;
  uint64_t used_ = 0;         // bit i: slot i is in use
  uint64_t next_ = 0;         // slot where the next search begins
  uint64_t last_number_ = 0;  // of the last step begun
  int size_ = 0;
  int rows_ = 0;  // rows in flight of more than one step
};

}  // namespace monograph
