// The numbers of a session's steps, and their places in the rings in which client and workers keep
// the steps that run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace monograph {

inline constexpr int kMaxStepsInFlight = 32;  // per session
// A step and the one kStepSlots later share a place, and are never in flight together.
inline constexpr size_t kStepSlots = 2 * kMaxStepsInFlight;
inline constexpr uint32_t kMaxStepsInRow = 16;  // so that two threads may have a row each in flight

// Steps that run in a row, or the one that runs alone. What speaks of a row says its last number.
struct StepNumbers {
  uint64_t first = 0, last = 0;
  uint64_t stride = 1;  // odd: places of a row's steps differ

  static StepNumbers Of(uint64_t first, uint32_t count, uint64_t stride = 1) {
    return {first, first + (count - 1) * stride, stride};
  }
  uint32_t count() const { return static_cast<uint32_t>((last - first) / stride) + 1; }
  bool Holds(uint64_t step) const {
    return first <= step && step <= last && (step - first) % stride == 0;
  }
  // A bit for each place that is taken.
  uint64_t Places() const {
    static_assert(kStepSlots == 64);
    uint64_t places = 0;
    for (uint64_t i = 0; i < count(); ++i) places |= uint64_t{1} << (first + i * stride) % kStepSlots;
    return places;
  }
};

}  // namespace monograph
