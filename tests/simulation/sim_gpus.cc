// Drivers and communicators over a GpuWorld, the kernels of its GPUs, and the functions by which a
// task finds them.
#include "tests/simulation/sim_gpus.h"

#include <sys/mman.h>

#include <set>

#include "executor/device_stream.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/plugin.h"
#include "executor/kernel.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/register.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scheduler.h"

namespace monograph {
namespace simulation {
namespace {

constexpr size_t kMemory = size_t{64} << 30;  // of a GPU; nobody touches it

Result<void*> Map(size_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return ResourceExhausted("no room in the process's addresses");
  return data;
}

// What a kernel enqueues on: it leaves the step's number there for OnKernel, which follows.
struct StepStream : DeviceStream {
  uint64_t step = 0;
};

class SimDriver;

class SimCommunicator : public Communicator {
 public:
  SimCommunicator(SimDriver* driver, GpuWorld::GroupPtr group, int rank)
      : driver_(*driver), group_(std::move(group)), rank_(rank) {}
  ~SimCommunicator() override { End(); }
  Result<bool> Ready() override;
  Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  Status AllReduce(DType dtype, std::span<const Sum> sums) override;
  Status Abort() override {
    End();
    return Status();
  }
  void Abandon() override { End(); }

 private:
  void End();
  SimDriver& driver_;
  const GpuWorld::GroupPtr group_;
  const int rank_;
  bool aborted_ = false;
};

class SimDriver : public StreamDriver, private Communicators {
 public:
  SimDriver(std::shared_ptr<GpuWorld> world, int gpu)
      : keep_(std::move(world)), world_(*keep_), gpu_(gpu), life_(world_.Revive(gpu)) {}
  ~SimDriver() override {
    if (!lost()) world_.Lose(gpu_);
    for (const auto& [data, bytes] : regions_) Unmap(data, bytes);
  }

  GpuWorld& world() { return world_; }
  int life() const { return life_; }
  Status Alive() const {
    return world_.Lives(gpu_, life_) ? Status() : Unavailable("the simulated GPU is lost");
  }

  DeviceStream* stream() override { return &stream_; }
  DeviceStream* members_stream() override { return &members_stream_; }
  Communicators* communicators() override { return this; }
  Status Enter() override { return Status(); }
  bool lost() override { return !world_.Lives(gpu_, life_); }
  Result<void*> AllocateDevice(size_t bytes) override {
    MG_RETURN_IF_ERROR(Alive());
    MG_ASSIGN_OR_RETURN(void* data, Map(bytes, PROT_NONE));
    regions_[data] = bytes;
    return data;
  }
  void FreeDevice(void* data) override {
    const auto region = regions_.extract(data);
    if (!region.empty()) Unmap(data, region.mapped());
  }
  Result<void*> AllocatePinned(size_t bytes) override {
    MG_ASSIGN_OR_RETURN(void* data, Map(bytes, PROT_READ | PROT_WRITE));
    regions_[data] = bytes;
    return data;
  }
  void FreePinned(void* data) override { FreeDevice(data); }
  Result<EventId> MakeEvent(bool) override {
    MG_RETURN_IF_ERROR(Alive());
    return world_.MakeEvent(gpu_);
  }
  void DropEvent(EventId) override {}
  Status Record(EventId event, Queue queue) override {
    MG_RETURN_IF_ERROR(Alive());
    world_.Record(gpu_, queue, event);
    return Status();
  }
  Status Wait(Queue queue, StreamDriver& other, EventId event) override {
    MG_RETURN_IF_ERROR(Alive());
    MG_RETURN_IF_ERROR(static_cast<SimDriver&>(other).Alive());
    world_.Wait(gpu_, queue, static_cast<SimDriver&>(other).gpu_, event);
    return Status();
  }
  Result<bool> Done(EventId event) override {
    MG_RETURN_IF_ERROR(Alive());
    return world_.Done(gpu_, event);
  }
  Result<int64_t> ElapsedNs(EventId, EventId) override {
    return Unimplemented("simulated events are not timed");
  }
  Status Copy(Queue queue, void* to, const void* from, size_t bytes) override {
    MG_RETURN_IF_ERROR(Alive());
    world_.Copy(gpu_, queue, to, from, bytes);
    return Status();
  }
  Status CopyFromPeer(void* to, StreamDriver&, const void* from, size_t bytes) override {
    return Copy(Queue::kPeer, to, from, bytes);
  }
  Status BeginCapture() override { return NoGraphs(); }
  Result<GraphId> EndCapture() override { return NoGraphs(); }
  Status Launch(GraphId) override { return NoGraphs(); }
  void DropGraph(GraphId) override {}
  bool observes() const override { return true; }
  void OnKernel(IssuedKernel kernel) override {
    if (!lost()) world_.Kernel(gpu_, kernel, stream_.step);
  }

 private:
  static Status NoGraphs() { return Unimplemented("simulated GPUs have no graphs"); }
  void Unmap(void* data, size_t bytes) {
    world_.Forget(data, bytes);
    munmap(data, bytes);
  }
  Result<std::string> NewId() override { return world_.NewId(); }
  bool any_order() const override { return world_.topology().any_order; }
  Result<std::unique_ptr<Communicator>> Join(const std::string& id, int rank, int size) override {
    MG_RETURN_IF_ERROR(Alive());
    return std::unique_ptr<Communicator>(
        std::make_unique<SimCommunicator>(this, world_.Join(id, gpu_, rank, size), rank));
  }

  const std::shared_ptr<GpuWorld> keep_;
  GpuWorld& world_;
  const int gpu_, life_;
  StepStream stream_, members_stream_;
  std::map<void*, size_t> regions_;
};

Result<bool> SimCommunicator::Ready() {
  MG_RETURN_IF_ERROR(driver_.Alive());
  if (aborted_) return Aborted("the communicator was aborted");
  return driver_.world().Ready(group_.get(), rank_);
}

Status SimCommunicator::Exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  MG_ASSIGN_OR_RETURN(const bool ready, Ready());
  if (!ready) return Internal("an exchange on a communicator that is not ready");
  driver_.world().Exchange(group_, rank_, sends, receives);
  return Status();
}

Status SimCommunicator::AllReduce(DType dtype, std::span<const Sum> sums) {
  MG_ASSIGN_OR_RETURN(const bool ready, Ready());
  if (!ready) return Internal("an exchange on a communicator that is not ready");
  driver_.world().AllReduce(group_, rank_, DTypeSize(dtype), sums);
  return Status();
}

void SimCommunicator::End() {
  if (!std::exchange(aborted_, true)) driver_.world().Abort(group_.get(), rank_);
}

// Outputs of the first input's shape.
class ShapedKernel : public Kernel {
 public:
  explicit ShapedKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    static_cast<StepStream*>(c.device_stream())->step = c.step_id();
    return c.AllocateOutput(0, c.input(0).shape()).status();
  }
};

class FillKernel : public Kernel {
 public:
  explicit FillKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    static_cast<StepStream*>(c.device_stream())->step = c.step_id();
    Shape shape;
    for (const int64_t dim : c.input(0).values<int64_t>()) shape.AddDim(dim);
    return c.AllocateOutput(0, shape).status();
  }
};

int WorkerTask(const DeviceName& task) { return task.job == "worker" ? task.task : -1; }

}  // namespace

GpuCluster::GpuCluster(GpuTopology topology, std::function<void(const std::string&)> fault)
    : world_(std::make_shared<GpuWorld>(std::move(topology), std::move(fault))),
      network_({.seed = Draw(~uint64_t{0})}),
      cluster_(&network_, {{"worker", world_->topology().tasks()}}) {
  if (const Status started = cluster_.Start(); !started.ok())
    Fail("the cluster does not start: " + started.ToString());
}

int GpuCluster::task_of(int gpu) const {
  const GpuTopology& topology = world_->topology();
  return topology.process_each ? gpu : topology.nodes[static_cast<size_t>(gpu)];
}

std::string GpuCluster::device(int gpu) const {
  const int of = task_of(gpu);
  return task(of) + "/device:GPU:" + std::to_string(gpu - world_->topology().GpusOf(of).front());
}

void GpuCluster::Kill(int task, bool whole_machine) {
  for (const int gpu : world_->topology().GpusOf(task)) world_->Lose(gpu);
  cluster_.Kill("worker-" + std::to_string(task), whole_machine);
}

void GpuCluster::Restart(int task) {
  if (const Status started = cluster_.Restart("worker-" + std::to_string(task)); !started.ok())
    Fail("a task does not start again: " + started.ToString());
}

Output GpuGraph::Make(int gpu, int collective, int rank, int tensor, int64_t elements,
                      std::chrono::nanoseconds takes, const std::vector<Operation>& after) {
  const Scope place = root_.WithDevice(cluster_.device(gpu));
  Output& value = values_[gpu];
  if (!value.valid()) {
    value = Placeholder(place, DT_FLOAT, {});
    feeds_.emplace_back(value, Tensor::Scalar(1.0f));
  }
  const std::string name = "make_" + std::to_string(collective) + "_" + std::to_string(tensor) +
                           "_" + std::to_string(rank);
  const Output dims =
      Const(root_.WithDevice(cluster_.task(cluster_.task_of(gpu)) + "/device:CPU:0"), {elements});
  cluster_.world().nodes()[name] = {
      .takes = static_cast<GpuWorld::Nanoseconds>(takes.count()),
      .makes = GpuWorld::Content{
          .collective = collective, .first = rank, .last = rank + 1, .tensor = tensor}};
  return Fill(place.WithControlDependencies(after).WithOpName(name), dims, value);
}

Operation GpuGraph::Use(int gpu, const Output& value, int tensor,
                        const std::vector<std::pair<int, int>>& ranks, int collective,
                        std::chrono::nanoseconds takes) {
  const std::string name = "use_" + std::to_string(collective) + "_" + std::to_string(tensor) +
                           "_" + std::to_string(gpu);
  GpuWorld::Node& node = cluster_.world().nodes()[name];
  node.takes = static_cast<GpuWorld::Nanoseconds>(takes.count());
  for (const auto& [first, last] : ranks)
    node.reads.push_back(
        {.collective = collective, .first = first, .last = last, .tensor = tensor});
  return Square(root_.WithDevice(cluster_.device(gpu)).WithOpName(name), value);
}

}  // namespace simulation

using simulation::GpuWorld;

Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions&) {
  std::vector<std::unique_ptr<Device>> devices;
  GpuWorld* const world = GpuWorld::Current();
  if (world == nullptr || simulation::WorkerTask(task) < 0) return devices;
  for (const int gpu : world->topology().GpusOf(simulation::WorkerTask(task))) {
    const int node = world->topology().nodes[static_cast<size_t>(gpu)];
    auto driver = std::make_shared<simulation::SimDriver>(world->shared_from_this(), gpu);
    DeviceInfo info{
        .name = task,
        .description = "a simulated GPU",
        .memory_limit = static_cast<int64_t>(simulation::kMemory),
        .incarnation = static_cast<uint64_t>(driver->life()) << 32 | static_cast<uint64_t>(gpu),
        .link = "simulated/node-" + std::to_string(node) + "/card-" + std::to_string(gpu)};
    info.name.type = kGpu;
    info.name.id = static_cast<int>(devices.size());
    MG_ASSIGN_OR_RETURN(auto device,
                        GpuDevice::Make(std::move(info), std::move(driver),
                                        {.memory_limit = simulation::kMemory, .replay = false}));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::vector<GpuInfo>> ListGpus() { return std::vector<GpuInfo>(); }
std::string WhyNoCuda() { return "the simulation has its own"; }
const char* CudaStamp() { return ""; }
const KernelRegistry* CudaKernels() {
  static const KernelRegistry* kernels = [] {
    auto* made = new KernelRegistry;
    KernelRegistry cpu;
    RegisterCpuKernels(&cpu);
    // What graphs of the scenarios need besides; each task tells its clients of all kernels.
    const std::set<std::string> ops = {"_Arg",
                                       "_Recv",
                                       "_Send",
                                       "CollectiveBcastRecvV2",
                                       "CollectiveBcastSendV2",
                                       "CollectiveGatherV2",
                                       "CollectiveReduceV2",
                                       "Const",
                                       "MonographAllReduce",
                                       "NoOp",
                                       "Placeholder"};
    for (const KernelRegistry::Entry* entry : cpu.All()) {
      const bool has_own = cpu.HasOp(entry->def.op, kGpu);
      if (!ops.contains(entry->def.op) || (has_own && entry->def.device != kGpu)) continue;
      KernelDef def = entry->def;
      def.device = kGpu;
      if (def.op == "Const") {  // shapes and numbers of groups, which are read on the host
        def.types = {{"dtype", DT_INT32}};
        def.host_args = {"output"};
      }
      made->Add(std::move(def), entry->factory);
    }
    const auto def = [](const char* op, std::vector<std::string> host_args = {}) {
      return KernelDef{
          .op = op, .device = kGpu, .types = {{"T", DT_FLOAT}}, .host_args = std::move(host_args)};
    };
    made->Add<simulation::FillKernel>(def("Fill", {"dims"}));
    made->Add<simulation::ShapedKernel>(def("Square"));
    made->Add<simulation::ShapedKernel>(def("AddN"));
    return made;
  }();
  return kernels;
}

}  // namespace monograph
