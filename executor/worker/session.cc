#include "executor/worker/session.h"

#include <algorithm>
#include <utility>

#include "base/pool_allocator.h"
#include "executor/trace.h"

namespace monograph {
namespace {

constexpr size_t kTracesKept = 16;

}  // namespace

bool StepSlot::Keep(int32_t edge, uint64_t iteration, Tensor* tensor) {
  constexpr size_t kPlaces = 8192;  // that one reservation is for
  if (parked.size() % kPlaces == kPlaces - 1 &&
      room.emplace_back(HostPool().Reserve(kPlaces * sizeof(parked[0]))) == nullptr) {
    room.pop_back();
    return false;
  }
  parked.push_back({edge, iteration, std::move(*tensor)});
  return true;
}

const SessionPeer* WorkerSession::PeerOf(std::string_view task) const {
  const auto it = std::find_if(peers.begin(), peers.end(),
                               [task](const SessionPeer& peer) { return peer.task == task; });
  return it == peers.end() ? nullptr : &*it;
}

StepRow* WorkerSession::RowOf(uint64_t step) {
  for (StepRow& row : rows) {
    if (row.numbers.Holds(step)) return &row;
  }
  return nullptr;
}

bool WorkerSession::ParkEarly(uint64_t step) {
  StepSlot& slot = SlotOf(step);
  const bool over = slot.step > step || (slot.step == step && !slot.Waits(step));
  if (closed || over || slot.state == StepSlot::kRunning) return false;
  if (slot.step != step) slot.Park(step);
  return true;
}

bool WorkerSession::AllAreNew(const StepIds& numbers) {
  uint64_t step = numbers.first;
  for (uint32_t left = numbers.count(); left > 0; --left, step += numbers.stride) {
    const StepSlot& slot = SlotOf(step);
    if (slot.step > step || (slot.step == step && !slot.Waits(step)) || RowOf(step) != nullptr)
      return false;
  }
  return true;
}

void WorkerSession::BeginRow(const StepIds& numbers) {
  rows.push_back({.numbers = numbers, .current = numbers.first});
  // An abort that came first has the last one's number.
  StepSlot& end = SlotOf(numbers.last);
  if (end.Waits(numbers.last)) rows.back().status = std::exchange(end.aborted, Status());
}

std::vector<std::shared_ptr<Step>> WorkerSession::RunningOf(const StepRow& row) {
  std::vector<std::shared_ptr<Step>> steps;
  for (uint64_t step = row.numbers.first; step <= row.current; step += row.numbers.stride) {
    StepSlot& slot = SlotOf(step);
    if (slot.Runs(step)) steps.push_back(slot.running);
  }
  return steps;
}

PartState WorkerSession::StateOf(uint64_t step) {
  const StepSlot& slot = SlotOf(step);
  if (slot.step < step || slot.Waits(step)) return PartState::kNotBegun;
  return slot.Runs(step) ? PartState::kRunning : PartState::kOver;
}

void WorkerSession::EndRow(const StepIds& numbers) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&numbers](const StepRow& other) {
    return other.numbers.last == numbers.last;
  });
  for (uint64_t ahead = row->current; ahead != numbers.last;) {
    ahead += numbers.stride;
    StepSlot& slot = SlotOf(ahead);
    if (slot.step <= ahead && slot.state != StepSlot::kRunning) slot.End(ahead);
  }
  rows.erase(row);
}

std::shared_ptr<StepTrace> WorkerSession::NewTrace(uint64_t step) {
  auto trace = std::make_shared<StepTrace>();
  traces.emplace_back(step, trace);
  if (traces.size() > kTracesKept) traces.pop_front();
  return trace;
}

}  // namespace monograph
