#include "executor/gpu/node_observer.h"

#include <cstring>
#include <utility>

#include "executor/gpu/launcher.h"
#include "executor/resource_manager.h"

namespace monograph {
Tensor Unheld(const Tensor& tensor) {
  return Tensor(tensor.dtype(), tensor.shape(),
                Buffer::Wrap(const_cast<void*>(tensor.raw()), tensor.bytes(), nullptr));
}

void NodeObserver::Before(const SegmentItem& item, std::span<const Tensor> inputs) {
  if (!device_.driver().observes()) return;
  inputs_.assign(inputs.begin(), inputs.end());
  // Held here, an input would not be written in place.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!item.host_inputs[i] && inputs_[i].bytes() > 0) inputs_[i] = Unheld(inputs_[i]);
  }
}

void NodeObserver::Issued(const SegmentItem& item, std::span<const Tensor> outputs,
                          const KernelContext& outer) {
  if (!device_.driver().observes()) return;
  std::vector<MemoryAccess> reads, writes;
  std::vector<MemoryAccess>& touched = item.reads_only ? reads : writes;
  const auto is_input = [&](const Tensor& tensor) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!item.host_inputs[i] && IsPlainData(inputs_[i].dtype()) &&
          std::as_const(inputs_[i]).raw() == tensor.raw())
        return true;
    }
    return false;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].dtype() == DT_RESOURCE) {
      for (int64_t k = 0; k < inputs_[i].elements(); ++k) {
        const ResourceHandle& handle = inputs_[i].handles()[k];
        auto found = outer.resources().Find<Variable>(handle.container, handle.name);
        if (!found.ok()) continue;
        const Variable& variable = **found;
        ReaderLock lock(variable.mutex);
        const Tensor& value = variable.value;
        if (!value.valid()) continue;
        // What was assigned was taken over as it is, if it lies where the input does.
        (is_input(value) ? reads : touched).push_back({value.raw(), value.bytes()});
      }
    } else if (!item.host_inputs[i]) {
      reads.push_back({std::as_const(inputs_[i]).raw(), inputs_[i].bytes()});
    }
  }
  // Computes once more, from what is at the same addresses then, to the same addresses.
  std::vector<Tensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!item.host_outputs[i]) {
      // What others hold, too, was not written, but taken from a list: unless it is an input's.
      const bool taken = !output.buffer().unique() && !is_input(output);
      (taken ? reads : touched).push_back({output.raw(), output.bytes()});
    }
    results.push_back(IsPlainData(output.dtype()) ? Unheld(output) : output);
  }
  KernelContext base;
  GpuLauncher::Begin(&base, outer, device_);
  GpuLauncher::UseMemory(&base, HostAllocator());  // not the script's
  auto compute = [&item, inputs = std::move(inputs_), results, base]() mutable -> Status {
    std::vector<Tensor> fresh = inputs, again(results.size());
    KernelContext context = base;
    GpuLauncher::Set(&context, fresh, again, item.outputs.data(), item.host_inputs.get(),
                     item.host_outputs.get());
    MG_RETURN_IF_ERROR(item.kernel->Compute(context));
    for (size_t i = 0; i < again.size(); ++i) {
      if (item.host_outputs[i] || again[i].bytes() == 0) continue;
      const void* computed = std::as_const(again[i]).raw();
      if (computed != std::as_const(results[i]).raw())
        std::memcpy(results[i].raw(), computed, results[i].bytes());
    }
    return Status();
  };
  inputs_.clear();
  device_.driver().OnKernel(
      {.name = item.name, .reads = reads, .writes = writes, .again = std::move(compute)});
}

}  // namespace monograph
