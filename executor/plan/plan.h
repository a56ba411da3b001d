// Plan: one task's part of a graph, compiled: kernels made, edges resolved to flat arrays. Steps
// run it (executor/step/step_executor.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/kernel.h"
#include "graph/graph.h"

namespace monograph {

class CollectiveHome;  // executor/collective/collective.h
class MemoryHolder;    // base/memory_holder.h
class RandomStreams;   // executor/random_streams.h
class SessionTensors;  // executor/session_tensors.h
class ThreadPools;
struct PlanData;  // executor/plan/plan_data.h

// A tensor (or, if `control`, a bare signal) that enters or leaves a plan.
struct EdgeInfo {
  int32_t id = -1;
  DType dtype = DT_INVALID;  // DT_INVALID for a control edge
  PartialShape shape;
  int32_t priority = 0;  // smaller is more urgent
  bool control = false;
  bool may_be_dead = false;  // DeadTensor() may come (executor/step/dead_tensor.h)
  bool in_loop = false;      // brings a tensor for each iteration of a loop
  std::string name;          // of the tensor: "conv1/Relu:0"
  // The GPU in whose memory the tensor may leave, or come; nullptr: it is in host memory. Where it
  // comes, the owner that the memory is taken for.
  Device* gpu = nullptr;
  const std::string* gpu_owner = nullptr;
  bool in_parts = false;  // from kLeastInParts on (executor/gpu/copies.h) it leaves so
  std::string send_device, recv_device;  // full names
};

struct PlanOptions {
  const KernelRegistry* kernels = nullptr;
  // Also looked at for nodes on GPUs; may be nullptr.
  const KernelRegistry* gpu_kernels = nullptr;
  std::vector<Device*> devices;  // of this task
  ThreadPools* pools = nullptr;
  ResourceManager* resources = nullptr;
  const CollectiveHome* collectives = nullptr;      // nullptr: kernels meet nobody
  RandomStreams* random_streams = nullptr;          // nullptr: the session does not draw by them
  std::shared_ptr<SessionTensors> session_tensors;  // nullptr: none are kept
  // DeviceInfo::link of the devices of the session, by full name; nullptr: none has one.
  const std::map<std::string, std::string>* links = nullptr;
  // Whether a task that has this device takes tensors from GPUs' memory, and sends to it
  // (Transport::TakesGpuMemory); empty: none does.
  std::function<bool(const std::string& device)> takes_gpu_memory = {};
  // Whether the task that has this device takes large tensors in parts; empty: none does. A part
  // goes to it by `send_part` as soon as it is on the host. `step_id`, `edge`: as
  // StepSink::OnSend's, which follows when all parts have gone. Any thread.
  std::function<bool(const std::string& device)> takes_parts = {};
  std::function<void(uint64_t step_id, int32_t edge, const Tensor& tensor, size_t offset)>
      send_part = {};
  // Whose nodes these are: sessions do not wait for each other's long kernels
  // (ThreadPools::Enqueue).
  uint64_t session = 0;
  // Who holds the memory that they take; nullptr: nobody in particular.
  std::shared_ptr<MemoryHolder> memory = nullptr;
};

// Immutable but for recycled step memory; thread-safe. Devices, pools, resources and collectives of
// its options outlive it.
class Plan {
 public:
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Edges that arrive from elsewhere, and edges that leave. A pair within the plan is in neither:
  // it is linked and costs nothing.
  std::span<const EdgeInfo> recv_edges() const;
  std::span<const EdgeInfo> send_edges() const;
  const EdgeInfo* FindRecvEdge(int32_t id) const;  // nullptr: there is none
  int num_nodes() const;
  // Tensors that were dropped because their edge is unknown, came twice, or belongs to a step that
  // is over.
  int64_t dropped_deliveries() const;

  const PlanData& data() const { return *data_; }

 private:
  friend Result<std::shared_ptr<const Plan>> CompilePlan(const Graph& graph,
                                                         const PlanOptions& options);
  friend class PlanCompiler;
  explicit Plan(std::unique_ptr<PlanData> data);
  std::unique_ptr<PlanData> data_;
};

// REQUIRES: every node has the full name of a device; calls are inlined. Errors name the node, its
// op and its device: a device that the task does not have (InvalidArgument), no kernel for it
// (NotFound, with what is registered), an op that is unknown (Unimplemented), a kernel that refuses
// the node (its own status), an output in host memory whose shape is known and that is larger than
// the memory may ever be (ResourceExhausted).
Result<std::shared_ptr<const Plan>> CompilePlan(const Graph& graph, const PlanOptions& options);

}  // namespace monograph
