// FlowPlan: what a plan with control flow has beside its nodes and edges. Private to the executor
// folder.
//
// Nodes of one frame have consecutive numbers, so that each iteration has flat arrays for them
// (executor/step/iteration.h). What a node waits for is a word of its iteration:
//   a Merge        kLive, then how many it waits for without their data, then (16 bits) how many
//                  inputs may still come; once kLive is set: which one came
//   other nodes    kDead, then how many predecessors are missing
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace monograph {

inline constexpr uint32_t kDead = uint32_t{1} << 31;  // something that the node waits for is dead
inline constexpr uint32_t kLive = uint32_t{1} << 31;  // an input of the Merge has come
inline constexpr uint32_t kMergeControl = uint32_t{1} << 16;
inline constexpr uint32_t kMergeInputs = kMergeControl - 1;  // mask
inline constexpr size_t kMostMergeInputs = 0xffff, kMostMergeControls = 0x7fff;

// A node that waits for another one.
struct FlowSuccessor {
  enum Kind : uint8_t {
    kAlone,  // it waits for nothing else
    kCounted,
    kTriggered,   // the same, but what it waits for may be dead
    kMergeInput,  // a Merge reads it
    kMergeWaits,  // a Merge waits for it
  };
  uint32_t node;
  uint16_t input = 0;   // kMergeInput: which one
  uint8_t outputs = 0;  // of a Switch, bit i: reads output i; 0: waits for the Switch itself
  Kind kind = kCounted;
};

// A loop, or (the first one) what is outside of all loops.
struct FlowFrame {
  struct Async {
    int32_t node;
    uint32_t outputs;
  };
  struct Slots {
    uint32_t first, count;
  };
  int32_t first_node = 0, num_nodes = 0;
  uint32_t num_slots = 0;
  int32_t child = -1;             // its number among the frames within the one around it
  std::vector<int32_t> children;  // frames within this one
  int32_t enters = 0;             // nodes that lead into it
  int64_t parallel_iterations = 1;
  uint64_t name_hash = 0;
  std::vector<int32_t> exits;  // nodes
  std::vector<Slots> merges;   // their inputs: the only slots that may be left with a tensor
  std::vector<Async> async;    // asynchronous kernels
};

struct FlowPlan {
  std::vector<FlowFrame> frames;
  std::vector<FlowSuccessor> successors;  // in place of PlanData::successors
  std::vector<Tensor> value_index;        // of Merges: the scalars 0, 1, ...
};

// PlanNode::aux of an Enter.
inline constexpr uint32_t EnterAux(int32_t frame, bool constant) {
  return static_cast<uint32_t>(frame) * 2 + (constant ? 1 : 0);
}

}  // namespace monograph
