#include "executor/plan/plan_data.h"

#include <bit>

#include "executor/device.h"
#include "executor/plan/flow_plan.h"
#include "executor/step/iteration.h"

namespace monograph {

StepState::StepState() = default;
StepState::~StepState() = default;
PlanData::PlanData() = default;
PlanData::~PlanData() = default;

std::unique_ptr<StepState> PlanData::TakeState() const {
  {
    MutexLock lock(mutex);
    if (!free_states.empty()) {
      std::unique_ptr<StepState> state = std::move(free_states.back());
      free_states.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<StepState>();
  const auto count = static_cast<size_t>(num_nodes);
  if (flow != nullptr) {
    state->flow = std::make_unique<FlowState>(*this);
  } else {
    state->pending = std::make_unique<uint32_t[]>(count);
    state->next = std::make_unique<int32_t[]>(count);
    state->slots = std::make_unique<Tensor[]>(num_slots);
  }
  state->received = std::make_unique<Tensor[]>(recv_edges.size());
  state->delivered = std::make_unique<std::atomic<uint8_t>[]>(recv_edges.size());
  for (const uint32_t outputs : frame_outputs) {
    state->frames.push_back(std::make_unique<AsyncFrame>());
    state->frames.back()->outputs.resize(outputs);
  }
  return state;
}

void PlanData::ReturnState(std::unique_ptr<StepState> state) const {
  MutexLock lock(mutex);
  free_states.push_back(std::move(state));
}

// Relaxed: an estimate, which any step may replace at any time.
void PlanData::SetCost(int32_t node, uint32_t ns) const {
  const auto i = static_cast<size_t>(node);
  nodes[i].cost_ns.store(ns, std::memory_order_relaxed);
  cost_bits[i].store(static_cast<uint8_t>(std::bit_width(ns)), std::memory_order_relaxed);
}

std::string PlanData::Describe(int32_t node) const {
  const auto i = static_cast<size_t>(node);
  return "node '" + names[i] + "' (" + std::string(ops[i]) + ") on " +
         devices[nodes[i].device]->name();
}

}  // namespace monograph
