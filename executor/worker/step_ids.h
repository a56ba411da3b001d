// What names the steps of a session, in messages and in the rings in which client and workers keep
// those that run.
//
// A session numbers its steps from 1, growing. A step's id is its number and a slot of the rings,
// which the client chooses among the free ones; so a step that waits for long holds up no other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace monograph {

inline constexpr int kMaxStepsInFlight = 32;                 // per session
inline constexpr size_t kStepSlots = 2 * kMaxStepsInFlight;  // of a ring
inline constexpr uint32_t kMaxStepsInRow = 16;  // so that two threads may have a row each in flight
inline constexpr uint64_t kMaxStepNumber = UINT64_MAX / kStepSlots - 1;

inline constexpr uint64_t StepId(uint64_t number, uint64_t slot = 0) {
  return number * kStepSlots + slot;
}
inline constexpr uint64_t StepNumberOf(uint64_t id) { return id / kStepSlots; }

// Steps that run in a row, or the one that runs alone. What speaks of a row says its last id.
struct StepIds {
  uint64_t first = 0, last = 0;
  uint64_t stride = 1;  // odd: the slots of a row's steps differ

  static StepIds Of(uint64_t first, uint32_t count, uint64_t stride) {
    return {first, first + (count - 1) * stride, stride};
  }
  uint32_t count() const { return static_cast<uint32_t>((last - first) / stride) + 1; }
  bool Holds(uint64_t id) const { return first <= id && id <= last && (id - first) % stride == 0; }
};

}  // namespace monograph
