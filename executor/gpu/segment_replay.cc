// MakeRanges cuts a segment's launch order into ranges and finds what enters and leaves each. A
// CapturedRange notes, when a graph is captured, all that the graph has fixed (addresses of inputs
// and variables, values of host inputs) and compares it before each replay (Valid). Of a tensor
// that views a variable or a staged input it keeps type, shape and offset and no reference: a
// reference would keep the variable from being updated in place.
#include "executor/gpu/segment_replay.h"

#include <algorithm>
#include <iterator>

#include "base/mutex.h"
#include "executor/gpu/joint_launch.h"
#include "executor/resource_manager.h"

namespace monograph {
namespace {

// Notes which part of its buffer the tensor views, and as what.
void KeepView(const Tensor& tensor, CapturedRange::Output* held) {
  held->dtype = tensor.dtype();
  held->shape = tensor.shape();
  held->offset = tensor.offset();
}

Tensor ViewOf(const CapturedRange::Output& held, const Buffer& buffer) {
  return Tensor(held.dtype, held.shape, buffer, held.offset);
}

}  // namespace

bool SegmentItem::keeps() const {
  const auto any = [](const std::vector<DType>& types) {
    return std::any_of(types.begin(), types.end(),
                       [](DType type) { return type == DT_RESOURCE || type == DT_VARIANT; });
  };
  return !replayable && (any(inputs) || any(outputs));
}

std::vector<SegmentRange> MakeRanges(const SegmentSpec& spec) {
  const GpuDevice::Options& options = spec.device->options();
  std::vector<ReplayItem> replay;
  for (const SegmentItem& item : spec.items) {
    const bool leaves = std::any_of(item.exits.begin(), item.exits.end(), [&](const auto& exit) {
      return spec.awaited_exits[exit.second];
    });
    replay.push_back({options.replay && item.replayable, leaves, item.collective != nullptr});
  }
  std::vector<SegmentRange> ranges;
  for (const ReplayRange& range : PlanReplay(replay, options.min_replayed)) {
    const auto item = [&](int32_t i) { return spec.items.begin() + i; };
    ranges.push_back(
        {range, {}, {}, {}, std::any_of(item(range.begin), item(range.end), [](const auto& each) {
           return each.collective != nullptr;
         })});
  }

  const auto range_of = [&](int32_t item) {
    return std::find_if(ranges.begin(), ranges.end(),
                        [item](const SegmentRange& range) { return item < range.end; });
  };
  size_t staged = spec.entries.size();
  std::vector<int32_t> item_of_slot(spec.slots);
  std::vector<bool> host_slot(spec.slots), inside(spec.slots, false);
  for (size_t i = 0; i < spec.items.size(); ++i) {
    for (size_t k = 0; k < spec.items[i].inputs.size(); ++k) {
      item_of_slot[spec.items[i].first_input + k] = static_cast<int32_t>(i);
      host_slot[spec.items[i].first_input + k] = spec.items[i].host_inputs[k];
    }
  }
  for (size_t i = 0; i < spec.items.size(); ++i) {
    const SegmentItem& item = spec.items[i];
    const auto range = range_of(static_cast<int32_t>(i));
    for (uint32_t output = 0; output < item.outputs.size(); ++output) {
      SegmentRange::LiveOut live{
          static_cast<int32_t>(i), output, item.host_outputs[output], {}, {}};
      for (const auto& use : item.uses) {
        if (use.output != output) continue;
        if (range_of(item_of_slot[use.slot]) == range) {
          inside[use.slot] = true;
        } else {
          live.slots.push_back(use.slot);
        }
      }
      for (const auto& [from, exit] : item.exits) {
        if (from == output) live.exits.push_back(exit);
      }
      const bool is_kept = std::any_of(item.uses.begin(), item.uses.end(), [&](const auto& use) {
        return use.output == output &&
               spec.items[static_cast<size_t>(item_of_slot[use.slot])].keeps();
      });
      if (!live.host && !range->replay && (is_kept || item.keeps())) {
        for (SegmentRange& to : ranges) {
          if (!to.replay) continue;
          SegmentRange::Kept kept{staged, {}};
          std::copy_if(live.slots.begin(), live.slots.end(), std::back_inserter(kept.slots),
                       [&](uint32_t slot) { return &*range_of(item_of_slot[slot]) == &to; });
          if (kept.slots.empty()) continue;
          to.kept_ins.push_back(std::move(kept));
          ++staged;
        }
      }
      if (!live.slots.empty() || !live.exits.empty()) range->live_outs.push_back(std::move(live));
    }
  }
  for (uint32_t slot = 0; slot < spec.slots; ++slot) {
    if (!inside[slot]) range_of(item_of_slot[slot])->live_ins.emplace_back(slot, host_slot[slot]);
  }
  return ranges;
}

// ---- what a graph has fixed

Status CapturedRange::Begin(const SegmentRange& range, std::span<const Tensor> slots,
                            std::shared_ptr<GpuMemory::Arena> now) {
  inputs_.clear();
  entered_.clear();
  variables_.clear();
  outputs.assign(range.live_outs.size(), Output());
  arena_ = std::move(now);
  for (const auto& [slot, host] : range.live_ins) {
    const Tensor& tensor = slots[slot];
    Input held{.slot = slot, .host = host, .dtype = tensor.dtype(), .shape = tensor.shape()};
    if (host) {
      MG_ASSIGN_OR_RETURN(held.tensor, tensor.Clone());
    } else {
      held.data = tensor.raw();
    }
    inputs_.push_back(std::move(held));
    entered_.push_back({.tensor = tensor});
  }
  return Status();
}

void CapturedRange::GiveBack(std::span<Tensor> slots, std::span<const Tensor> staging) const {
  for (size_t i = 0; i < inputs_.size(); ++i) slots[inputs_[i].slot] = View(entered_[i], staging);
}

void CapturedRange::HoldVariables(const SegmentItem& item, std::span<const Tensor> inputs,
                                  ResourceManager& resources) {
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    if (item.inputs[i] != DT_RESOURCE) continue;
    for (int64_t k = 0; k < inputs[i].elements(); ++k) {
      const ResourceHandle& handle = inputs[i].handles()[k];
      auto found = resources.Find<Variable>(handle.container, handle.name);
      if (!found.ok()) {
        off = true;
        continue;
      }
      auto known = std::find_if(variables_.begin(), variables_.end(),
                                [&](const Held& held) { return held.variable == *found; });
      if (known == variables_.end()) {
        known = variables_.emplace(variables_.end());
        known->variable = *found;
        const Variable& variable = **found;
        ReaderLock lock(variable.mutex);
        known->data = variable.value.valid() ? variable.value.raw() : nullptr;
        known->shape = variable.value.shape();
        LetGo(variable.value, static_cast<int32_t>(known - variables_.begin()));
      }
      HoldVariable(item, &*known);
    }
  }
}

// What came in and views the value would keep the variable from being updated in place.
void CapturedRange::LetGo(const Tensor& value, int32_t variable) {
  for (Output& entered : entered_) {
    if (!value.valid() || !entered.tensor.valid() || !(entered.tensor.buffer() == value.buffer()))
      continue;
    KeepView(entered.tensor, &entered);
    entered.variable = variable;
    entered.tensor.Reset();
  }
}

// A value that others hold is not written in place: the node replaces it. Holding it, too, changes
// nothing, while a value that only the variable holds would be replaced because of that.
void CapturedRange::HoldVariable(const SegmentItem& item, Held* held) {
  held->written = held->written || !item.reads_only;
  const Variable& variable = *held->variable;
  ReaderLock lock(variable.mutex);
  const Tensor& value = variable.value;
  held->moved = held->moved || !held->StillAt(value);
  if (held->moved) return;
  held->old.Reset();  // the node before has not replaced it after all
  if (!item.reads_only && value.valid() && !value.unique()) held->old = value;
}

Status CapturedRange::RestoreVariables(const Status& why) {
  Status status;
  for (Held& held : variables_) {
    Variable& variable = *held.variable;
    MutexLock lock(variable.mutex);
    if (!held.moved && held.StillAt(variable.value)) continue;
    if (held.data != nullptr && !held.old.valid()) {
      status.Update(DataLoss("variable '" + variable.name() +
                             "' has lost its value: it was replaced within a CUDA graph that was "
                             "not launched (" +
                             why.message() + "); assign it anew"));
    }
    std::swap(variable.value, held.old);  // the memory that no kernel wrote is freed later
  }
  return status;
}

bool CapturedRange::HoldPlaces(std::span<const std::pair<uint32_t, const void*>> filled) {
  entered_.clear();
  bool stay = true;
  for (Held& held : variables_) {
    const Variable& variable = *held.variable;
    ReaderLock lock(variable.mutex);
    const Tensor& value = variable.value;
    if (held.data == nullptr || held.moved || !held.StillAt(value)) {
      stay = false;
      continue;
    }
    held.old.Reset();
    for (const auto& [slot, data] : filled) {
      if (data == value.buffer().data()) held.slots.push_back(slot);
    }
  }
  return stay;
}

void CapturedRange::HoldView(Output* held, std::span<const Tensor> staging) const {
  const Buffer& buffer = held->tensor.buffer();
  KeepView(held->tensor, held);
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = *variables_[i].variable;
    ReaderLock lock(variable.mutex);
    if (variable.value.buffer() == buffer) held->variable = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < staging.size(); ++i) {
    if (staging[i].valid() && staging[i].buffer() == buffer) held->input = static_cast<int32_t>(i);
  }
  if (held->variable >= 0 || held->input >= 0) held->tensor.Reset();
}

Tensor CapturedRange::View(const Output& held, std::span<const Tensor> staging) const {
  if (held.tensor.valid()) return held.tensor;
  if (held.variable < 0) return ViewOf(held, staging[static_cast<size_t>(held.input)].buffer());
  const Variable& variable = *variables_[static_cast<size_t>(held.variable)].variable;
  ReaderLock lock(variable.mutex);
  return ViewOf(held, variable.value.buffer());
}

bool CapturedRange::Valid(const std::shared_ptr<GpuMemory::Arena>& now, std::span<Tensor> slots) {
  if (arena_ != now) return false;
  for (const Input& held : inputs_) {
    const Tensor& tensor = slots[held.slot];
    if (tensor.dtype() != held.dtype || !(tensor.shape() == held.shape)) return false;
    if (held.host ? !BitEqual(tensor, held.tensor) : tensor.raw() != held.data) return false;
  }
  for (const Held& held : variables_) {
    // Nobody else holds it: the variable was deleted.
    if (held.variable.use_count() < 2) return false;
    const Variable& variable = *held.variable;
    ReaderLock lock(variable.mutex);
    const Tensor& value = variable.value;
    if (!value.valid() || value.raw() != held.data || !(value.shape() == held.shape)) return false;
    if (held.written && !OnlyOurs(value, held.slots, slots)) return false;
  }
  return true;
}

// Whether only the variable and these slots hold the value, so that an update may overwrite it.
bool CapturedRange::OnlyOurs(const Tensor& value, std::span<const uint32_t> held,
                             std::span<Tensor> slots) {
  bool all = true;
  for (const uint32_t slot : held) {
    all = all && slots[slot].valid() && slots[slot].buffer() == value.buffer();
    if (!all) break;
    KeepView(slots[slot], &spare_views_.emplace_back());
    slots[slot].Reset();
  }
  const bool only = all && value.unique();
  for (size_t i = 0; i < spare_views_.size(); ++i)
    slots[held[i]] = ViewOf(spare_views_[i], value.buffer());
  spare_views_.clear();
  return only;
}

Status CapturedRange::Launch(StreamDriver& driver) {
  return joint != nullptr ? joint->Launch() : driver.Launch(graph);
}

void CapturedRange::Drop(StreamDriver& driver) {
  if (graph >= 0) driver.DropGraph(graph);
  graph = -1;
  if (joint != nullptr) joint->Drop();
  joint = nullptr;
  capture = 0;
  arena_ = nullptr;
  inputs_.clear();
  entered_.clear();
  variables_.clear();
  outputs.clear();
}

// ---- one set of input shapes

SegmentVariant::SegmentVariant(std::span<const Tensor> entries, size_t range_count)
    : ranges(range_count) {
  for (const Tensor& entry : entries) key_.emplace_back(entry.dtype(), entry.shape());
}

bool SegmentVariant::Fits(std::span<const Tensor> entries) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (key_[i].first != entries[i].dtype() || !(key_[i].second == entries[i].shape()))
      return false;
  }
  return true;
}

void SegmentVariant::CheckKept(StreamDriver& driver) {
  bool kept = false;
  const auto shared = [](const Tensor& tensor) {
    return tensor.valid() && !tensor.buffer().unique();
  };
  for (const Tensor& tensor : staging) kept = kept || shared(tensor);
  for (const CapturedRange& captured : ranges) {
    for (const CapturedRange::Output& held : captured.outputs)
      kept = kept || (held.owned && shared(held.tensor) && !OnlyKept(held));
  }
  if (!kept) return;
  for (CapturedRange& captured : ranges) {
    captured.Drop(driver);
    captured.off = true;
  }
  staging.clear();
  replay = false;
}

bool SegmentVariant::Rewrites(const Buffer& buffer) const {
  const auto is = [&](const Tensor& tensor) { return tensor.valid() && tensor.buffer() == buffer; };
  if (std::any_of(staging.begin(), staging.end(), is)) return true;
  return std::any_of(ranges.begin(), ranges.end(), [&](const CapturedRange& captured) {
    return std::any_of(captured.outputs.begin(), captured.outputs.end(),
                       [&](const auto& held) { return held.owned && is(held.tensor); });
  });
}

// Whether only the outputs that are held for graphs hold the memory of `first`: several of them may
// view one block, as a Reshape does that of its input.
bool SegmentVariant::OnlyKept(const CapturedRange::Output& first) {
  const Buffer& buffer = first.tensor.buffer();
  for (CapturedRange& captured : ranges) {
    for (CapturedRange::Output& held : captured.outputs) {
      if (&held == &first || !held.tensor.valid() || !(held.tensor.buffer() == buffer)) continue;
      KeepView(held.tensor, &held);
      held.tensor.Reset();
      twins_.push_back(&held);
    }
  }
  const bool only = buffer.unique();
  for (CapturedRange::Output* held : twins_) held->tensor = ViewOf(*held, buffer);
  twins_.clear();
  return only;
}

void SegmentVariant::Forget(StreamDriver& driver) {
  for (CapturedRange& captured : ranges) captured.Drop(driver);
  staging.clear();
  script = MemoryScript();
}

}  // namespace monograph
