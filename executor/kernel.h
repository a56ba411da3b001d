// Kernel: the code of one op on one kind of device. KernelRegistry: all kernels of a program.
//
// One kernel object is made per node when its graph is registered, and computes many steps, also
// several at once when steps overlap: Compute must be safe to call concurrently, unless the kernel
// declares `serial`. What can be prepared once (oneDNN primitives, strides, parsed attributes) is
// prepared in the constructor or on first use of a shape, and kept.
//
//   class ReluKernel : public Kernel {
//    public:
//     explicit ReluKernel(const KernelConstruction&) {}
//     Status Compute(KernelContext& c) override {
//       MG_ASSIGN_OR_RETURN(Tensor * y, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
//       ...
//     }
//   };
//   registry.Add<ReluKernel>({.op = "Relu", .device = kCpu, .types = {{"T", DT_FLOAT}}});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/device_type.h"
#include "base/done.h"
#include "base/shape.h"
#include "base/tensor.h"
#include "graph/attr.h"

namespace monograph {

class DeviceStream;     // executor/device_stream.h
class ResourceManager;  // executor/resource_manager.h
class StepOutcome;      // executor/step/outcome.h
class StringRoom;       // executor/step/string_room.h
class ThreadPools;      // executor/thread_pools.h
struct CancelSlot;      // executor/step/cancel_slot.h

// What is known when the kernel is made.
class KernelConstruction {
 public:
  virtual ~KernelConstruction() = default;
  virtual std::string_view node_name() const = 0;
  virtual std::string_view op() const = 0;
  virtual const Attrs& attrs() const = 0;
  virtual std::string_view device() const = 0;  // full device name
  virtual int num_inputs() const = 0;
  virtual int num_outputs() const = 0;
  virtual DType input_dtype(int i) const = 0;
  virtual DType output_dtype(int i) const = 0;
  virtual const PartialShape& input_shape(int i) const = 0;  // as inferred
  virtual const PartialShape& output_shape(int i) const = 0;

  template <typename T>
  const T& attr(std::string_view name) const {
    return attrs().Get<T>(name);
  }
};

// One run of one kernel. The executor owns it; valid during Compute, or until Done of ComputeAsync.
class KernelContext {
 public:
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  const Tensor& input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  std::span<const Tensor> inputs() const { return inputs_; }
  // Takes the input out of the step: the caller then owns it (and may write it if unique()).
  Tensor TakeInput(int i) { return std::move(inputs_[static_cast<size_t>(i)]); }

  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // A new tensor of the output's type in the device's memory, or in the host's for an output that
  // KernelDef::host_args names. The pointer is valid until the kernel
  // ends.
  Result<Tensor*> AllocateOutput(int i, const Shape& shape);
  // Input's own buffer if nobody else needs it and type and size fit, else a new one. REQUIRES:
  // same element size. The input stays readable through `input(in)`: it is then the same memory, so
  // only kernels that read element k before writing element k may use it.
  Result<Tensor*> ForwardOrAllocate(int in, int out, const Shape& shape);
  void set_output(int i, Tensor tensor) { outputs_[static_cast<size_t>(i)] = std::move(tensor); }
  // In the device's memory, or in the host's for a kernel whose inputs and outputs all lie there.
  Result<Tensor> AllocateTemp(DType dtype, const Shape& shape);

  // Runs fn(begin, end) over [0, total) on the intra-op threads, the calling thread too; returns
  // when all is done. `cost_ns` is the rough cost of one unit: work below ~20 us stays on the
  // calling thread. The split depends only on total, cost and the thread budget's *setting*, never
  // on which threads are free; kernels whose result depends on the split (reductions) must use
  // fixed blocks instead. Long work is cut into pieces of some milliseconds; once the step is
  // aborted, the pieces that have not begun are left out, but for kernels with resources
  // (AllowCancel).
  void ParallelFor(int64_t total, int64_t cost_ns,
                   const std::function<void(int64_t begin, int64_t end)>& fn);
  int intra_op_threads() const { return intra_op_threads_; }

  // The step is aborted and nobody will read what this kernel computes: a long loop outside
  // ParallelFor looks now and then, and returns whatever it has. One relaxed load. Always false for
  // a kernel with a resource among its inputs, but from AllowCancel to BeginChange.
  bool cancelled() const;
  // For kernels with a resource. AllowCancel: until BeginChange the kernel changes nothing but its
  // outputs and memory of its own, or makes changes of which each is whole without the next ones.
  // BeginChange: Cancelled if the step is aborted, as what was computed so far may lack parts;
  // else all that follows is done to its end, whatever becomes of the step.
  void AllowCancel() { cancellable_ = true; }
  Status BeginChange();

  // Before a kernel puts so many more bytes of strings into its outputs, where these may be many
  // times what its inputs hold: takes room for them in the limit of memory. False: there is none.
  // The kernel then leaves the rest out and returns whatever it has; it fails with
  // RESOURCE_EXHAUSTED. What outputs hold at last is counted anyway. Thread-safe.
  bool RoomForStrings(size_t bytes) const;

  // For asynchronous kernels: `cancel` runs at most once, on the aborting thread, if the step is
  // aborted before Done; it may race with Done, and makes the kernel call Done soon. False, and
  // nothing is kept, if the step is aborted already: call Done(Cancelled) then.
  bool OnCancel(std::function<void()> cancel);

  // False on a thread that has other duties, as the one that drives the transport. A kernel that
  // would have to wait there (for a lock that another kernel holds while it computes) returns
  // Busy() instead, before it takes an input or sets an output, and is computed anew on a thread
  // that may wait. So does AllocateOutput there for an output of more than kMostOnDriver bytes:
  // such a kernel takes long.
  static constexpr size_t kMostOnDriver = size_t{1} << 20;
  bool may_wait() const { return may_wait_; }
  Status Busy();  // REQUIRES: !may_wait()

  uint64_t step_id() const { return step_id_; }  // dense per session, from 1; not in loops
  ResourceManager& resources() const { return *resources_; }
  std::string_view device() const { return device_; }
  Allocator* allocator() const { return allocator_; }
  // Where a kernel for a GPU enqueues its work (cuda::StreamOf, executor/gpu/cuda/stream.h);
  // nullptr on a CPU. Such a kernel returns when all is enqueued and never waits for the device.
  // Its inputs and outputs are device memory, but for those that KernelDef::host_args names.
  DeviceStream* device_stream() const { return device_stream_; }
  DType output_dtype(int i) const { return output_dtypes_[static_cast<size_t>(i)]; }

 private:
  friend class NodeRunner;    // executor/step/node_runner.h: runs the nodes of a step
  friend class KernelRunner;  // executor/step/kernel_runner.h: runs one kernel by itself (tests,
                              // constant folding)
  friend class GpuLauncher;   // executor/gpu/launcher.h: enqueues kernels on a GPU
  std::span<Tensor> inputs_;
  std::span<Tensor> outputs_;
  const DType* output_dtypes_ = nullptr;
  Allocator* allocator_ = nullptr;
  // On a GPU: by input and by output, whether it lies in host memory; nullptr: all do.
  const bool* host_inputs_ = nullptr;
  const bool* host_outputs_ = nullptr;
  DeviceStream* device_stream_ = nullptr;
  ResourceManager* resources_ = nullptr;
  ThreadPools* pools_ = nullptr;          // nullptr: ParallelFor runs on this thread
  CancelSlot* cancel_ = nullptr;          // nullptr: nothing cancels
  const StepOutcome* outcome_ = nullptr;  // nullptr: of no step
  StringRoom* strings_ = nullptr;         // nullptr: no output is of strings
  std::string_view device_;
  uint64_t step_id_ = 0;
  int intra_op_threads_ = 1;
  bool may_wait_ = true;
  bool busy_ = false;       // Busy was called
  bool resumable_ = false;  // it changes nothing but its outputs: may be left unfinished, or redone
  bool cancellable_ = false;  // an abort may cut it now (AllowCancel)
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Compute(KernelContext& context) = 0;
  // nullptr unless this kernel is asynchronous.
  virtual class AsyncKernel* AsAsync() { return nullptr; }
};

// A kernel that waits for something (a queue). Computes by ComputeAsync, which must not block;
// `done` runs exactly once, on any thread.
class AsyncKernel : public Kernel {
 public:
  Status Compute(KernelContext&) final {
    return Internal("asynchronous kernel was called synchronously");
  }
  AsyncKernel* AsAsync() final { return this; }
  virtual void ComputeAsync(KernelContext& context, Done done) = 0;
  // Whether it does nothing but put off the end of the step (Step::OnIssued). REQUIRES: no outputs.
  virtual bool trails() const { return false; }
  // Whether its failures name a node already: it computes several.
  virtual bool names_node() const { return false; }
};

enum class KernelCost : uint8_t {
  kCheap,      // a microsecond or less: run inline on whichever thread made it ready
  kExpensive,  // worth a thread of its own
};

struct KernelDef {
  std::string op;
  DeviceType device = kCpu;
  // Type constraints: attribute name to the type that this kernel handles.
  std::vector<std::pair<std::string, DType>> types = {};
  // Names of arguments that live in host memory on a device with memory of its own (shapes, axes,
  // resources).
  std::vector<std::string> host_args = {};
  KernelCost cost = KernelCost::kExpensive;
  int priority = 0;  // among several that match, the highest wins
  bool serial =
      false;  // Compute is never called concurrently for one node (synchronous kernels only)
  // GPU kernels only: what Compute enqueues depends on nothing but shapes, addresses and host
  // arguments, so that a step may replay what an earlier one enqueued (CUDA graphs) without calling
  // Compute. False for a kernel that counts steps, draws seeds or reads state of its own on the
  // host. A variable's address may be used: the step looks whether it is still the same.
  bool replayable = true;
};

using KernelFactory = Result<std::unique_ptr<Kernel>> (*)(const KernelConstruction&);

// Filled by explicit calls at start (ops/register.h), read-only afterwards.
class KernelRegistry {
 public:
  KernelRegistry();
  ~KernelRegistry();
  KernelRegistry(const KernelRegistry&) = delete;
  KernelRegistry& operator=(const KernelRegistry&) = delete;

  void Add(KernelDef def, KernelFactory factory);

  // K has a constructor from KernelConstruction, or a static `Result<unique_ptr<Kernel>> Make(const
  // KernelConstruction&)`.
  template <typename K>
  void Add(KernelDef def) {
    if constexpr (requires(const KernelConstruction& c) { K::Make(c); }) {
      Add(std::move(def), &K::Make);
    } else {
      Add(
          std::move(def), +[](const KernelConstruction& c) -> Result<std::unique_ptr<Kernel>> {
            return std::unique_ptr<Kernel>(new K(c));
          });
    }
  }

  struct Entry {
    KernelDef def;
    KernelFactory factory;
  };
  // The kernel for a node; NotFound "op 'X' has no CPU kernel for T=string; registered: ...".
  Result<const Entry*> Find(std::string_view op, DeviceType device, const Attrs& attrs) const;
  bool HasOp(std::string_view op, DeviceType device) const;
  bool HasOp(std::string_view op) const;  // on any type of device
  std::vector<const Entry*> All() const;

 private:
  struct Index;
  std::unique_ptr<Index> index_;
};

// For each type of the list calls MG_CALL<type>:  #define ADD(T) registry->Add<Relu<T>>({...});
// MG_FLOAT_TYPES(ADD)
#define MG_REAL_FLOAT_TYPES(M) M(float) M(double)
#define MG_FLOAT_TYPES(M) M(float) M(double) M(half) M(bfloat16)
#define MG_INDEX_TYPES(M) M(int32_t) M(int64_t)
#define MG_NUMBER_TYPES(M) MG_FLOAT_TYPES(M) MG_INDEX_TYPES(M)
#define MG_ALL_TYPES(M) MG_NUMBER_TYPES(M) M(bool) M(uint8_t) M(int8_t) M(int16_t) M(uint16_t)

}  // namespace monograph
