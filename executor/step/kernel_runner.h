// KernelRunner: runs one kernel by itself, on the calling thread: for constant folding, and for
// tests of kernels (tests/executor/run_op.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/kernel.h"
#include "graph/graph.h"
#include "graph/optimize.h"

namespace monograph {

class DeviceStream;  // executor/device_stream.h
class StepOutcome;   // executor/step/outcome.h

// Memory that the CPU may not touch, and the queue of work beside it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual Allocator* allocator() = 0;
  virtual DeviceStream* stream() = 0;
  virtual Result<Tensor> ToDevice(const Tensor& on_host) = 0;
  // Waits for what is enqueued.
  virtual Result<Tensor> ToHost(const Tensor& on_device) = 0;
  // A host argument as kernels get it.
  virtual Result<Tensor> HostArgument(const Tensor& on_host) { return on_host; }
};

class KernelRunner {
 public:
  struct Options {
    std::string device = "/job:localhost/replica:0/task:0/device:CPU:0";
    ThreadPools* pools = nullptr;          // nullptr: everything on the calling thread
    ResourceManager* resources = nullptr;  // nullptr: one of the runner's own
    uint64_t step_id = 1;
    const StepOutcome* outcome = nullptr;  // of the step that kernels are said to be of
    // Of the device, if it has memory of its own: what the kernel does not name as host arguments
    // is moved there, and what it computed back.
    DeviceMemory* memory = nullptr;
  };
  explicit KernelRunner(const KernelRegistry* kernels) : KernelRunner(kernels, Options()) {}
  KernelRunner(const KernelRegistry* kernels, Options options);
  ~KernelRunner();

  // Makes the kernel of `node` and runs it once. An input that the caller has moved in may be
  // written in place. Checks count and types of the inputs, and that every output came with the
  // right type and a shape that was inferred. Waits for an asynchronous kernel.
  Result<std::vector<Tensor>> Run(const Graph& graph, NodeId node, std::vector<Tensor> inputs);

  // For Optimize; refers to this runner.
  Evaluator evaluator();
  ResourceManager& resources() { return *options_.resources; }

 private:
  const KernelRegistry* const kernels_;
  Options options_;
  std::unique_ptr<ResourceManager> own_resources_;
};

}  // namespace monograph
