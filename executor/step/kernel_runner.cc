// Runs one kernel without a plan: makes it, gives it a context, waits if it is asynchronous, and
// checks the outputs against the types and shapes that were inferred for the node. With a
// DeviceMemory all tensors but host arguments are moved to the device, and the outputs back.
#include "executor/step/kernel_runner.h"

#include <algorithm>
#include <optional>

#include "base/device_name.h"
#include "base/mutex.h"
#include "executor/node_construction.h"
#include "executor/resource_manager.h"
#include "executor/step/string_room.h"
#include "executor/thread_pools.h"

namespace monograph {

namespace {

// One flag for each tensor: whether it lies in host memory. `args` are an op's inputs or outputs.
std::vector<unsigned char> HostArguments(const std::vector<ArgDef>& args, const Attrs& attrs,
                                         const KernelDef& def) {
  std::vector<unsigned char> host;
  for (const ArgDef& arg : args) {
    size_t count = 1;
    if (!arg.number_attr.empty()) count = static_cast<size_t>(attrs.Get<int64_t>(arg.number_attr));
    if (!arg.type_list_attr.empty())
      count = attrs.Get<std::vector<DType>>(arg.type_list_attr).size();
    const bool on_host =
        std::find(def.host_args.begin(), def.host_args.end(), arg.name) != def.host_args.end();
    host.insert(host.end(), count, on_host);
  }
  return host;
}

}  // namespace

KernelRunner::KernelRunner(const KernelRegistry* kernels, Options options)
    : kernels_(kernels), options_(std::move(options)) {
  if (options_.resources == nullptr) {
    own_resources_ = std::make_unique<ResourceManager>();
    options_.resources = own_resources_.get();
  }
}

KernelRunner::~KernelRunner() = default;

Result<std::vector<Tensor>> KernelRunner::Run(const Graph& graph, NodeId node,
                                              std::vector<Tensor> inputs) {
  const std::string who = "node " + graph.NodeText(node);
  MG_ASSIGN_OR_RETURN(const DeviceName device, DeviceName::Parse(options_.device));
  const NodeConstruction construction(graph, node, options_.device);
  if (static_cast<int>(inputs.size()) != construction.num_inputs()) {
    return InvalidArgument(who + ": got " + std::to_string(inputs.size()) + " inputs, needs " +
                           std::to_string(construction.num_inputs()));
  }
  for (int i = 0; i < construction.num_inputs(); ++i) {
    if (inputs[static_cast<size_t>(i)].dtype() != construction.input_dtype(i)) {
      return InvalidArgument(who + ": input " + std::to_string(i) + " is " +
                             std::string(DTypeName(inputs[static_cast<size_t>(i)].dtype())) +
                             ", needs " + std::string(DTypeName(construction.input_dtype(i))));
    }
  }
  auto entry = kernels_->Find(construction.op(), device.type, construction.attrs());
  if (!entry.ok()) return entry.status().WithContext(who);
  auto kernel = (*entry)->factory(construction);
  if (!kernel.ok()) return kernel.status().WithContext(who);

  std::vector<Tensor> outputs(static_cast<size_t>(construction.num_outputs()));
  std::vector<DType> dtypes(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    dtypes[i] = construction.output_dtype(static_cast<int>(i));
  KernelContext context;
  context.inputs_ = inputs;
  context.outputs_ = outputs;
  context.output_dtypes_ = dtypes.data();
  context.allocator_ = HostAllocator();
  context.resources_ = options_.resources;
  context.pools_ = options_.pools;
  context.device_ = options_.device;
  context.step_id_ = options_.step_id;
  context.outcome_ = options_.outcome;
  context.resumable_ = context.cancellable_ =
      std::none_of(inputs.begin(), inputs.end(),
                   [](const Tensor& input) { return input.dtype() == DT_RESOURCE; });
  context.intra_op_threads_ = options_.pools == nullptr ? 1 : options_.pools->intra_op();
  StringRoom strings;
  strings.Begin(MemoryHolder::Current());
  context.strings_ = &strings;
  std::vector<unsigned char> host_inputs, host_outputs;
  if (DeviceMemory* memory = options_.memory) {
    const KernelDef& def = (*entry)->def;
    host_inputs = HostArguments(graph.op(node).inputs(), construction.attrs(), def);
    host_outputs = HostArguments(graph.op(node).outputs(), construction.attrs(), def);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!IsPlainData(inputs[i].dtype())) continue;
      MG_ASSIGN_OR_RETURN(inputs[i], host_inputs[i] != 0 ? memory->HostArgument(inputs[i])
                                                         : memory->ToDevice(inputs[i]));
    }
    static_assert(sizeof(bool) == 1);
    context.host_inputs_ = reinterpret_cast<const bool*>(host_inputs.data());
    context.host_outputs_ = reinterpret_cast<const bool*>(host_outputs.data());
    context.allocator_ = memory->allocator();
    context.device_stream_ = memory->stream();
  }

  Status status;
  if (AsyncKernel* async = (*kernel)->AsAsync()) {
    struct {
      Mutex mutex;
      CondVar changed;
      std::optional<Status> status MG_GUARDED_BY(mutex);
    } end;
    async->ComputeAsync(context, [&](const Status& result) {
      MutexLock lock(end.mutex);
      end.status = result;
      end.changed.NotifyOne();  // under the lock: `end` may be gone right after
    });
    MutexLock lock(end.mutex);
    while (!end.status) end.changed.Wait(end.mutex);
    status = *end.status;
  } else {
    status = (*kernel)->Compute(context);
  }
  status = strings.Settle(status, outputs);
  if (!status.ok()) return status.WithContext(who);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const PartialShape& inferred = construction.output_shape(static_cast<int>(i));
    if (outputs[i].valid() && outputs[i].dtype() == dtypes[i] &&
        inferred.Accepts(outputs[i].shape()))
      continue;
    return Internal(who + ": the kernel's output " + std::to_string(i) + " is " +
                    (outputs[i].valid() ? std::string(DTypeName(outputs[i].dtype())) +
                                              outputs[i].shape().ToString()
                                        : std::string("missing")) +
                    ", inferred was " + std::string(DTypeName(dtypes[i])) + inferred.ToString());
  }
  for (size_t i = 0; i < host_outputs.size(); ++i) {
    if (host_outputs[i] != 0 || !IsPlainData(outputs[i].dtype())) continue;
    MG_ASSIGN_OR_RETURN(outputs[i], options_.memory->ToHost(outputs[i]));
  }
  return outputs;
}

Evaluator KernelRunner::evaluator() {
  return [this](const Graph& graph, NodeId node, std::span<const Tensor> inputs) {
    return Run(graph, node, std::vector<Tensor>(inputs.begin(), inputs.end()));
  };
}

}  // namespace monograph
