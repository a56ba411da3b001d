// A range of a segment, launched node by node: as it is (RunItems), while it is captured, or in a
// run that cannot replay what others do (RunOnce), which then holds the same tensors as a graph
// would, so that both take the same memory. A node's outputs go to the slots of those that read
// them, and out of the segment (PassOn); what a node may keep for longer than the run lies apart
// from memory that is used again (KeepInputs).
#include <algorithm>
#include <span>
#include <thread>

#include "executor/gpu/segment_impl.h"
#include "executor/resource_manager.h"

namespace monograph {

Status SegmentImpl::RunItems(KernelContext& outer, const SegmentRange& range, CapturedRange* keep,
                             Job* run) {
  StreamDriver& driver = device_.driver();
  const auto stamp = [&]() -> Status {
    MG_ASSIGN_OR_RETURN(const EventId event, driver.MakeEvent(/*timed=*/true));
    run->times.push_back(event);
    return driver.Record(event, Queue::kCompute);
  };
  const bool traced = run != nullptr && run->trace != nullptr;
  if (traced && run->times.empty()) MG_RETURN_IF_ERROR(device_.Check(stamp()));
  for (int32_t i = range.begin; i < range.end; ++i) {
    const SegmentItem& item = spec_.items[static_cast<size_t>(i)];
    int64_t bytes = traced ? BytesRead(item, outer.resources()) : 0;
    MG_RETURN_IF_ERROR(RunItem(outer, item, keep));
    if (traced) run->bytes.push_back(bytes + BytesWritten(item));
    if (keep != nullptr) Keep(item, range, i, keep);
    MG_RETURN_IF_ERROR(PassOn(outer, item, /*exits=*/keep == nullptr));
    if (traced) MG_RETURN_IF_ERROR(device_.Check(stamp()));
  }
  if (keep == nullptr || keep == &once_) {
    device_.graph_counts().nodes.fetch_add(static_cast<uint64_t>(range.end - range.begin),
                                           std::memory_order_relaxed);
  }
  if (range.joint) {
    MG_RETURN_IF_ERROR(joint_->LeaveRange());
    exchanged_.clear();
  }
  return Status();
}

// Launches node by node a range that other runs replay.
Status SegmentImpl::RunOnce(KernelContext& outer, const SegmentRange& range, Job* run) {
  once_.outputs.assign(range.live_outs.size(), CapturedRange::Output());
  for (const SegmentRange::Kept& kept : range.kept_ins) held_.push_back(slots_[kept.slots[0]]);
  for (const auto& [slot, host] : range.live_ins) {
    const void* const data = std::as_const(slots_[slot]).buffer().data();
    if (!host && (memory_.InArena(data) || memory_.Owns(*script_, data)))
      entered_.push_back(slots_[slot]);
  }
  const Status ran = RunItems(outer, range, &once_, run);
  entered_.clear();
  MG_RETURN_IF_ERROR(ran);
  MG_RETURN_IF_ERROR(Leave(outer, range, &once_, /*fill=*/false));
  for (CapturedRange::Output& held : once_.outputs) {
    if (held.owned) held_.push_back(std::move(held.tensor));
  }
  once_.outputs.clear();
  return Status();
}

// What the node gets in the device's memory: each tensor once, and each variable, which it also
// writes unless it only reads.
int64_t SegmentImpl::BytesRead(const SegmentItem& item, ResourceManager& resources) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const Tensor& input = slots_[item.first_input + i];
    if (item.inputs[i] == DT_RESOURCE) {
      for (int64_t k = 0; k < input.elements(); ++k) {
        const ResourceHandle& handle = input.handles()[k];
        const auto variable = resources.Find<Variable>(handle.container, handle.name);
        if (!variable.ok()) continue;
        ReaderLock lock((*variable)->mutex);
        bytes += static_cast<int64_t>((*variable)->value.bytes()) * (item.reads_only ? 1 : 2);
      }
    } else if (!item.host_inputs[i]) {
      bytes += static_cast<int64_t>(input.bytes());
    }
  }
  return bytes;
}

int64_t SegmentImpl::BytesWritten(const SegmentItem& item) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    if (!item.host_outputs[i] && item.outputs[i] != DT_RESOURCE)
      bytes += static_cast<int64_t>(outputs_[i].bytes());
  }
  return bytes;
}

Status SegmentImpl::Fail(const SegmentItem& item, const Status& status) {
  named_ = true;
  const Status checked = device_.Check(status);
  if (checked.code() == Code::kResourceExhausted)
    return checked.WithMessage(checked.message() + ". " + memory_.Table()).WithContext(item.who);
  return checked.WithContext(item.who);
}

Status SegmentImpl::RunItem(KernelContext& outer, const SegmentItem& item, CapturedRange* keep) {
  memory_.SetOwner(item.owner);
  if (item.collective != nullptr) return RunCollective(outer, item);
  KernelContext context;
  GpuLauncher::Begin(&context, outer, device_);
  const std::span<Tensor> inputs(slots_.data() + item.first_input, item.inputs.size());
  GpuLauncher::Set(&context, inputs, {outputs_.data(), item.outputs.size()}, item.outputs.data(),
                   item.host_inputs.get(), item.host_outputs.get());
  if (keep != nullptr && keep != &once_) keep->HoldVariables(item, inputs, outer.resources());
  const bool keeps = item.keeps();
  if (keeps) MG_RETURN_IF_ERROR(KeepInputs(item, inputs));
  observer_.Before(item, inputs);
  if (keeps) GpuLauncher::UseMemory(&context, memory_.kept());
  const Status status = item.kernel->Compute(context);
  if (!status.ok()) return Fail(item, status);
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    if (outputs_[i].dtype() == item.outputs[i]) continue;
    return Internal("the kernel's output " + std::to_string(i) + " is " +
                    (outputs_[i].valid() ? std::string(DTypeName(outputs_[i].dtype()))
                                         : std::string("missing")) +
                    ", not " + std::string(DTypeName(item.outputs[i])))
        .WithContext(item.who);
  }
  observer_.Issued(item, {outputs_.data(), item.outputs.size()}, outer);
  if (device_.options().launch_blocking && (keep == nullptr || keep == &once_)) {
    StreamDriver& driver = device_.driver();
    MG_ASSIGN_OR_RETURN(const EventId event, driver.MakeEvent(false));
    Status ran = driver.Record(event, Queue::kCompute);
    for (bool over = false; ran.ok() && !over;) {
      const Result<bool> done = driver.Done(event);
      ran = done.status();
      over = done.ok() && *done;
      if (!over) std::this_thread::yield();
    }
    driver.DropEvent(event);
    if (!ran.ok()) return Fail(item, ran);
  }
  return Status();
}

// What it reads and writes stays in use to the end of the range: kMembers goes on beside kCompute.
Status SegmentImpl::RunCollective(KernelContext& outer, const SegmentItem& item) {
  KernelContext context;
  GpuLauncher::Begin(&context, outer, device_);
  const std::span<Tensor> inputs(slots_.data() + item.first_input, item.inputs.size());
  GpuLauncher::Set(&context, inputs, {outputs_.data(), item.outputs.size()}, item.outputs.data(),
                   item.host_inputs.get(), item.host_outputs.get());
  std::vector<Tensor> outputs;
  const Status status = joint_->Enqueue(*item.collective, context, device_.allocator(), item.owner,
                                        &outputs, &exchanged_);
  for (const Tensor& output : outputs) exchanged_.push_back(output.buffer());
  if (!status.ok()) return Fail(item, status);
  std::ranges::move(outputs, outputs_.begin());
  return Status();
}

// What the node may keep must stay as it is when this segment runs again, maybe in the same step:
// it lies outside the arena, and is copied if a graph will write it.
Status SegmentImpl::KeepInputs(const SegmentItem& item, std::span<Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (item.host_inputs[i]) continue;
    Tensor& input = inputs[i];
    const void* data = std::as_const(input).raw();
    if (measured_ != nullptr) {
      memory_.KeepApart(measured_, data);
    } else if (memory_.InArena(data) || variant_->Rewrites(input.buffer())) {
      MG_ASSIGN_OR_RETURN(input, CopyApart(input, item, "input", static_cast<uint32_t>(i)));
    }
  }
  return Status();
}

// A copy of the node's input or output (`kind`) that no script and no graph knows of.
Result<Tensor> SegmentImpl::CopyApart(const Tensor& tensor, const SegmentItem& item,
                                      const char* kind, uint32_t index) {
  Buffer buffer = memory_.AllocateApart(tensor.bytes(), item.owner);
  if (!buffer) {
    return Fail(item, ResourceExhausted("no memory for " + std::string(kind) + " " +
                                        std::to_string(index)));
  }
  Tensor copy(tensor.dtype(), tensor.shape(), std::move(buffer));
  if (tensor.bytes() > 0) {
    MG_RETURN_IF_ERROR(device_.Check(
        device_.driver().Copy(Queue::kCompute, copy.raw(), tensor.raw(), tensor.bytes())));
  }
  return copy;
}

// Holds what later nodes need of a range that is replayed: it stays at its address from run to run.
void SegmentImpl::Keep(const SegmentItem& item, const SegmentRange& range, int32_t index,
                       CapturedRange* keep) {
  for (size_t i = 0; i < range.live_outs.size(); ++i) {
    const SegmentRange::LiveOut& live = range.live_outs[i];
    if (live.item != index) continue;
    CapturedRange::Output& held = keep->outputs[i];
    held.tensor = outputs_[live.output];
    if (item.host_outputs[live.output]) continue;
    held.owned = memory_.Owns(*script_, held.tensor.buffer().data());
    if (held.owned && measured_ != nullptr)
      memory_.KeepApart(measured_, std::as_const(held.tensor).raw());
    // Hold no variable's value that stays within the segment: while held it could not be updated in
    // place.
    if (held.owned || !live.exits.empty()) continue;
    if (keep == &once_) {
      held.tensor.Reset();
    } else {
      keep->HoldView(&held, variant_->staging);
    }
  }
}

Status SegmentImpl::PassOn(KernelContext& outer, const SegmentItem& item, bool exits) {
  for (size_t i = 0; i < item.inputs.size(); ++i) slots_[item.first_input + i].Reset();
  if (exits) {
    for (const auto& [output, exit] : item.exits) {
      outer.set_output(static_cast<int>(exit), outputs_[output]);
      if (exit_events_[exit] >= 0) {
        MG_RETURN_IF_ERROR(
            device_.Check(device_.driver().Record(exit_events_[exit], Queue::kCompute)));
      }
    }
  }
  for (size_t i = 0; i < item.uses.size(); ++i) {
    const auto& use = item.uses[i];
    const bool last = i + 1 == item.uses.size() || item.uses[i + 1].output != use.output;
    if (last) {
      slots_[use.slot] = std::move(outputs_[use.output]);
    } else {
      slots_[use.slot] = outputs_[use.output];
    }
  }
  for (size_t i = 0; i < item.outputs.size(); ++i) outputs_[i].Reset();
  return Status();
}

}  // namespace monograph
