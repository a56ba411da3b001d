#include "executor/worker/session.h"

#include <algorithm>

#include "executor/trace.h"

namespace monograph {
namespace {

constexpr size_t kTracesKept = 16;

}  // namespace

const SessionPeer* WorkerSession::PeerOf(std::string_view task) const {
  const auto it = std::find_if(peers.begin(), peers.end(),
                               [task](const SessionPeer& peer) { return peer.task == task; });
  return it == peers.end() ? nullptr : &*it;
}

StepRow* WorkerSession::RowOf(uint64_t step) {
  for (StepRow& row : rows) {
    if (row.first <= step && step <= row.last) return &row;
  }
  return nullptr;
}

void WorkerSession::EndRow(uint64_t last, uint64_t step) {
  std::erase_if(rows, [last](const StepRow& row) { return row.last == last; });
  for (uint64_t ahead = step + 1; ahead <= last; ++ahead) {
    StepSlot& slot = SlotOf(ahead);
    if (slot.step <= ahead && slot.state != StepSlot::kRunning) slot.End(ahead);
  }
}

std::shared_ptr<StepTrace> WorkerSession::NewTrace(uint64_t step) {
  auto trace = std::make_shared<StepTrace>();
  traces.emplace_back(step, trace);
  if (traces.size() > kTracesKept) traces.pop_front();
  return trace;
}

}  // namespace monograph
