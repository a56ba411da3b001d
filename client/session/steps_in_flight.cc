#include "client/session/steps_in_flight.h"

#include <algorithm>
#include <string>
#include <utility>

namespace monograph {

void StepInFlight::Expect(std::shared_ptr<PreparedStep> step) {
  prepared = std::move(step);
  fetched.assign(static_cast<size_t>(prepared->fetches), Tensor());
  part_done.assign(prepared->parts.size(), false);
  feeds.clear();
  parts_missing = static_cast<int>(prepared->parts.size());
  fetches_missing = prepared->fetches;
  status = Status();
  aborting = awaits_cause = false;
  late.clear();
}

bool StepInFlight::EndParts(int peer) {
  bool expected = false;
  for (size_t i = 0; i < prepared->parts.size(); ++i) {
    if (prepared->parts[i].peer != peer || part_done[i]) continue;
    part_done[i] = true;
    --parts_missing;
    expected = true;
  }
  return expected;
}

bool StepInFlight::HasPart(int peer) const {
  return std::any_of(prepared->parts.begin(), prepared->parts.end(),
                     [peer](const auto& part) { return part.peer == peer; });
}

bool StepInFlight::MayAwait(int peer) const {
  for (size_t fetch = 0; fetch < fetched.size(); ++fetch) {
    if (prepared->fetch_from[fetch] == peer && !fetched[fetch].valid()) return true;
  }
  for (size_t i = 0; i < part_done.size(); ++i) {
    const std::vector<int>& awaits = prepared->parts[i].awaits;
    if (!part_done[i] && std::find(awaits.begin(), awaits.end(), peer) != awaits.end()) return true;
  }
  return false;
}

std::optional<uint64_t> StepsInFlight::FindSlots(uint32_t count) const {
  if (size_ + static_cast<int>(count) > kMaxStepsInFlight) return std::nullopt;
  for (uint64_t i = 0; i < kStepSlots; ++i) {
    const uint64_t slot = (next_ + i) % kStepSlots;
    if (slot + count <= kStepSlots && (used_ & Bits(slot, count)) == 0) return slot;
  }
  return std::nullopt;
}

Result<StepInFlight*> StepsInFlight::Begin(uint64_t number, uint32_t count, uint64_t stride) {
  const uint64_t first = number > 0 ? number : last_number_ + 1;
  if (first <= last_number_) {
    return InvalidArgument("step " + std::to_string(number) + " comes after step " +
                           std::to_string(last_number_) + "; numbers of steps grow");
  }
  if (first > kMaxStepNumber || (count - 1) > (kMaxStepNumber - first) / stride)
    return InvalidArgument("numbers of steps end at " + std::to_string(kMaxStepNumber));
  const uint64_t slot = FindSlots(count).value();
  const StepIds steps = StepIds::Of(StepId(first, slot), count, StepId(stride, 1));
  last_number_ = StepNumberOf(steps.last);
  next_ = (slot + count) % kStepSlots;
  used_ |= Bits(slot, count);
  size_ += static_cast<int>(count);
  if (count > 1) ++rows_;
  Slot& last = slots_[steps.last % kStepSlots];
  last.taken = true;
  last.step.steps = steps;
  return &last.step;
}

void StepsInFlight::End(StepInFlight& step) {
  slots_[step.steps.last % kStepSlots].taken = false;
  step.prepared = nullptr;
  step.fetched.clear();
  step.feeds.clear();
  const uint32_t count = step.steps.count();
  used_ &= ~Bits(step.steps.first % kStepSlots, count);
  size_ -= static_cast<int>(count);
  if (count > 1) --rows_;
}

StepInFlight* StepsInFlight::FindLast(uint64_t id) {
  Slot& slot = slots_[id % kStepSlots];
  return slot.taken && slot.step.steps.last == id ? &slot.step : nullptr;
}

StepInFlight* StepsInFlight::Find(uint64_t id) {
  if (StepInFlight* const found = FindLast(id); found != nullptr || rows_ == 0) return found;
  const auto row = std::find_if(slots_.begin(), slots_.end(), [id](const Slot& slot) {
    return slot.taken && slot.step.steps.Holds(id);
  });
  return row == slots_.end() ? nullptr : &row->step;
}

std::vector<StepInFlight*> StepsInFlight::All() {
  std::vector<StepInFlight*> all;
  for (Slot& slot : slots_) {
    if (slot.taken) all.push_back(&slot.step);
  }
  return all;
}

}  // namespace monograph
