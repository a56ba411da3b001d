#include "executor/step/iteration.h"

#include <algorithm>
#include <cstring>

namespace monograph {
namespace {

uint64_t MixDraws(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ b) * 0x9e3779b97f4a7c15ull;
  h = (h ^ h >> 32) * 0xff51afd7ed558ccdull;
  return h ^ h >> 29;
}

}  // namespace

FlowState::FlowState(const PlanData& of) : plan(of) {
  root = std::make_unique<Iteration>(this, &plan.flow->frames[0], nullptr);
}
FlowState::~FlowState() = default;

void FlowState::Begin(Step* of) {
  step = of;
  root->Reset(0);
}

void FlowState::Clear(bool complete) {
  root->Clear(complete);
  arrivals.Clear();
}

Iteration::Iteration(FlowState* flow_state, const FlowFrame* of, LoopRun* in)
    : state(flow_state), frame(of), run(in), first_node(of->first_node) {
  const auto nodes = static_cast<size_t>(frame->num_nodes);
  words = std::make_unique<uint32_t[]>(nodes);
  links = std::make_unique<FlowItem[]>(nodes);
  slots = std::make_unique<Tensor[]>(frame->num_slots);
  for (const FlowFrame::Async& kernel : frame->async) {
    async.push_back(std::make_unique<AsyncFrame>());
    async.back()->outputs.resize(kernel.outputs);
  }
  for (const int32_t child : frame->children) {
    loops.push_back(
        std::make_unique<LoopRun>(this, &state->plan.flow->frames[static_cast<size_t>(child)]));
  }
}
Iteration::~Iteration() = default;

void Iteration::Reset(int64_t number) {
  index = number;
  // Relaxed: no other thread knows the iteration yet.
  outstanding.store(0, std::memory_order_relaxed);
  next.store(nullptr, std::memory_order_relaxed);
  if (frame->num_nodes > 0) {
    std::memcpy(words.get(), state->plan.pending.data() + first_node,
                static_cast<size_t>(frame->num_nodes) * sizeof(uint32_t));
  }
  if (run == nullptr) return;
  const Iteration& around = *run->parent;
  first = around.first && number == 0;
  id = static_cast<uint64_t>(number) + 1;
  if (around.run != nullptr) id = std::max<uint64_t>(MixDraws(MixDraws(around.id, 0), id), 1);
  draw = MixDraws(around.draw, MixDraws(frame->name_hash, static_cast<uint64_t>(number) + 1));
}

void Iteration::Clear(bool complete) {
  for (auto& kernel : async) {
    for (Tensor& output : kernel->outputs) output.Reset();
    kernel->cancel.Reset();
  }
  for (const auto& loop : loops) loop->Clear(complete);
  if (complete) {
    for (const FlowFrame::Slots& merge : frame->merges) {
      for (uint32_t i = 0; i < merge.count; ++i) slots[merge.first + i].Reset();
    }
  } else {
    for (uint32_t i = 0; i < frame->num_slots; ++i) slots[i].Reset();
  }
}

LoopRun::LoopRun(Iteration* around, const FlowFrame* of)
    : parent(around), frame(of), left(std::make_unique<std::atomic<bool>[]>(of->exits.size())) {}

void LoopRun::Open() {
  open = true;
  enters_left = frame->enters;
  begun = 0;
  // Relaxed: under `mutex`; the loop's nodes, which write it, become ready later.
  for (size_t i = 0; i < frame->exits.size(); ++i) left[i].store(false, std::memory_order_relaxed);
}

Iteration* LoopRun::Begin() {
  Iteration* iteration;
  if (free.empty()) {
    all.push_back(std::make_unique<Iteration>(parent->state, frame, this));
    iteration = all.back().get();
  } else {
    iteration = free.back();
    free.pop_back();
  }
  iteration->Reset(begun++);
  ++running;
  if (newest != nullptr) {
    newest->next.store(iteration, std::memory_order_release);
  } else {
    oldest = iteration;
  }
  newest = iteration;
  return iteration;
}

void LoopRun::Retire() {
  Iteration* const iteration = oldest;
  for (const FlowFrame::Slots& merge : frame->merges) {
    for (uint32_t i = 0; i < merge.count; ++i) iteration->slots[merge.first + i].Reset();
  }
  // Relaxed: written under `mutex`, which is held.
  oldest = iteration->next.load(std::memory_order_relaxed);
  if (oldest == nullptr) newest = nullptr;
  --running;
  free.push_back(iteration);
}

// No thread runs nodes of the step any more.
void LoopRun::Clear(bool complete) {
  MutexLock lock(mutex);
  constants.clear();
  waiting.clear();
  if (complete && !open) return;  // every iteration was retired
  open = false;
  oldest = newest = nullptr;
  running = 0;
  free.clear();
  for (const auto& iteration : all) {
    iteration->Clear(false);
    free.push_back(iteration.get());
  }
}

}  // namespace monograph
