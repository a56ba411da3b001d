// What a plan is made of, and the memory of one step of it. Private to the executor folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_holder.h"
#include "base/mutex.h"
#include "base/tensor.h"
#include "executor/plan/plan.h"
#include "executor/step/cancel_slot.h"
#include "executor/step/string_room.h"

namespace monograph {

struct FlowPlan;   // executor/plan/flow_plan.h
struct FlowState;  // executor/step/iteration.h

enum class NodeKind : uint8_t {
  kKernel,    // a synchronous kernel
  kStrings,   // the same, with outputs of strings
  kSerial,    // a synchronous kernel that one thread at a time runs; aux: its mutex
  kAsync,     // an asynchronous kernel; aux: its frame
  kTrailing,  // the same, for which nothing waits but the end of the step
  kRecv,      // a tensor from outside; aux: index of the edge
  kSend,      // a tensor to outside; aux: index of the edge
  kForward,   // hands its input on, if it has one: what is left of a linked pair that also orders
  // Of plans with control flow (executor/step/flow_loop.h).
  kSwitch,
  kMerge,
  kEnter,  // aux: EnterAux (executor/plan/flow_plan.h)
  kExit,   // aux: its index in FlowFrame::exits
  kNextIteration,
};

// Estimate before the first measurement.
inline constexpr uint32_t kUnknownCost = 100'000;

// Everything that running a node reads, in one cache line. Inputs are `num_inputs` consecutive
// slots of the step.
struct alignas(64) PlanNode {
  Kernel* kernel = nullptr;
  uint32_t first_input = 0;
  uint32_t first_edge = 0;
  uint32_t first_successor = 0;
  uint32_t num_edges = 0;
  uint32_t num_successors = 0;
  uint32_t first_dtype = 0;
  uint32_t num_inputs = 0;
  uint32_t num_outputs = 0;
  uint32_t aux = 0;
  mutable std::atomic<uint32_t> cost_ns{0};  // a running estimate, from the steps that are measured
  uint16_t device = 0;
  NodeKind kind = NodeKind::kKernel;
  bool resumable = false;  // KernelContext::resumable_
  bool strings = false;    // some output is of strings

  PlanNode() = default;
  PlanNode(const PlanNode&) = delete;
  PlanNode& operator=(const PlanNode&) = delete;
};

// One consumer of one output. Edges of a node are ordered by output; `last` is the output's last
// one, which takes the tensor over.
struct DataEdge {
  uint32_t slot;
  uint16_t output;
  uint8_t dtype;
  bool last;
};

// A node that waits for another one; `alone`: it waits for nothing else, and so needs no count of
// missing predecessors. The successors of a node are ordered by urgency, the most urgent one last.
struct Successor {
  uint32_t node : 31;
  uint32_t alone : 1;
};

// A run of an asynchronous kernel.
struct AsyncFrame {
  KernelContext context;
  std::vector<Tensor> outputs;
  CancelSlot cancel;
  StringRoom strings;
  int64_t start_ns = 0;
};

// The memory of one step: recycled from step to step, so that a steady step allocates none.
struct StepState {
  std::unique_ptr<uint32_t[]> pending;  // by node: how many predecessors are missing
  std::unique_ptr<int32_t[]> next;      // by node: links of ready lists
  std::unique_ptr<Tensor[]> slots;
  std::unique_ptr<Tensor[]> received;                 // by recv edge
  std::unique_ptr<std::atomic<uint8_t>[]> delivered;  // by recv edge
  std::vector<std::unique_ptr<AsyncFrame>> frames;
  // Of a plan with control flow, in place of `pending`, `next`, `slots` and `frames`.
  std::unique_ptr<FlowState> flow;

  StepState();
  ~StepState();
  // One of the things that `node` waits for is there. True if nothing else is missing.
  bool CountDown(int32_t node) {
    std::atomic_ref<uint32_t> missing(pending[static_cast<size_t>(node)]);
    return missing.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
};

struct PlanData {
  PlanData();
  ~PlanData();

  std::unique_ptr<PlanNode[]> nodes;  // in topological order
  int32_t num_nodes = 0;
  std::vector<uint32_t> pending;
  // By node: the number of bits of cost_ns. What scheduling looks at, small enough to stay in the
  // nearest cache.
  std::unique_ptr<std::atomic<uint8_t>[]> cost_bits;
  std::vector<DataEdge> edges;
  std::vector<Successor> successors;
  std::vector<DType> dtypes;
  std::vector<int32_t> roots;       // the most urgent one last
  std::vector<int32_t> recv_nodes;  // by recv edge
  std::vector<int32_t> recv_of_id;  // recv edge by id - first_recv_id, -1 if there is none
  int32_t first_recv_id = 0;
  int32_t RecvIndex(int32_t id) const {
    const int64_t offset = static_cast<int64_t>(id) - first_recv_id;
    const bool known = offset >= 0 && offset < static_cast<int64_t>(recv_of_id.size());
    return known ? recv_of_id[static_cast<size_t>(offset)] : -1;
  }
  uint32_t num_slots = 0;
  uint32_t max_outputs = 0;
  std::vector<uint32_t> frame_outputs;  // by frame
  bool trails = false;                  // some node is kTrailing
  // Of a plan with control flow; then `pending` holds its words, slots are numbered by frame, and
  // `successors` and `frame_outputs` are empty.
  std::unique_ptr<FlowPlan> flow;

  std::vector<EdgeInfo> recv_edges, send_edges;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> names;
  std::vector<std::string_view> ops;
  std::vector<Device*> devices;
  ThreadPools* pools = nullptr;
  ResourceManager* resources = nullptr;
  uint64_t session = 0;  // PlanOptions::session
  std::shared_ptr<MemoryHolder> memory;

  std::unique_ptr<Mutex[]> serial_mutexes;
  mutable std::atomic<uint64_t> steps{0};
  mutable std::atomic<int64_t> dropped{0};
  mutable Mutex mutex;
  mutable std::vector<std::unique_ptr<StepState>> free_states MG_GUARDED_BY(mutex);

  std::unique_ptr<StepState> TakeState() const;
  void ReturnState(std::unique_ptr<StepState> state) const;
  void SetCost(int32_t node, uint32_t ns) const;
  // "node 'x' (Op) on /job:..."
  std::string Describe(int32_t node) const;
};

}  // namespace monograph
