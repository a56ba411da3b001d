// KernelContext: memory for outputs, new or that of an input which nobody else holds.
// KernelRegistry: the kernel of a node is the one of the highest priority among those for the
// device type whose type constraints its attributes fulfil; an error lists what is registered, and
// what the node has. Kernels are found when a graph is registered, so that a search by name is fast
// enough.
#include "executor/kernel.h"

#include <algorithm>
#include <functional>
#include <map>

#include "executor/step/cancel_slot.h"
#include "executor/step/outcome.h"
#include "executor/step/string_room.h"
#include "executor/thread_pools.h"

namespace monograph {
namespace {

std::string DefToString(const KernelDef& def) {
  std::string text = def.device.ToString();
  for (const auto& [name, dtype] : def.types)
    text += " " + name + "=" + std::string(DTypeName(dtype));
  return text;
}

bool Matches(const KernelDef& def, DeviceType device, const Attrs& attrs) {
  if (def.device != device) return false;
  return std::all_of(def.types.begin(), def.types.end(), [&](const auto& constraint) {
    const AttrValue* value = attrs.Find(constraint.first);
    if (value == nullptr) return false;
    if (const DType* dtype = std::get_if<DType>(value)) return *dtype == constraint.second;
    if (const auto* list = std::get_if<std::vector<DType>>(value)) {
      return std::all_of(list->begin(), list->end(),
                         [&](DType dtype) { return dtype == constraint.second; });
    }
    return false;
  });
}

// SIZE_MAX, which no allocator has, if 63 bits do not hold it or a dimension is negative.
inline size_t BytesOf(DType dtype, const Shape& shape) {
  auto bytes = static_cast<int64_t>(DTypeSize(dtype));
  int64_t signs = 0;
  bool wraps = false;
  for (const int64_t dim : shape.dims()) {
    signs |= dim;
    wraps |= __builtin_mul_overflow(bytes, dim, &bytes);
  }
  return wraps || signs < 0 ? SIZE_MAX : static_cast<size_t>(bytes);
}

}  // namespace

Result<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  Tensor& output = outputs_[static_cast<size_t>(i)];
  const DType dtype = output_dtypes_[i];
  Allocator* const allocator =
      host_outputs_ != nullptr && host_outputs_[i] ? HostAllocator() : allocator_;
  if (!IsPlainData(dtype)) {
    MG_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MG_ASSIGN_OR_RETURN(output, Tensor::Allocate(dtype, shape, allocator));
    return &output;
  }
  const size_t bytes = BytesOf(dtype, shape);
  if (bytes > kMostOnDriver && !may_wait_ && resumable_) [[unlikely]]
    return Busy();
  Buffer buffer = Buffer::Allocate(allocator, bytes);
  if (buffer) [[likely]] {
    output = Tensor(dtype, shape, std::move(buffer));
  } else {  // says what was asked for; or has it, if some was freed meanwhile
    MG_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MG_ASSIGN_OR_RETURN(output, Tensor::Allocate(dtype, shape, allocator));
  }
  return &output;
}

Result<Tensor*> KernelContext::ForwardOrAllocate(int in, int out, const Shape& shape) {
  const Tensor& input = inputs_[static_cast<size_t>(in)];
  const DType dtype = output_dtypes_[out];
  const bool fits = input.unique() && IsPlainData(dtype) && IsPlainData(input.dtype()) &&
                    (host_inputs_ == nullptr || host_inputs_[in] == host_outputs_[out]) &&
                    DTypeSize(dtype) == DTypeSize(input.dtype()) &&
                    input.bytes() == BytesOf(dtype, shape) &&
                    reinterpret_cast<uintptr_t>(input.raw()) % kBufferAlignment == 0;
  if (!fits) return AllocateOutput(out, shape);
  Tensor& output = outputs_[static_cast<size_t>(out)];
  output = Tensor(dtype, shape, input.buffer(), input.offset());
  return &output;
}

Result<Tensor> KernelContext::AllocateTemp(DType dtype, const Shape& shape) {
  const auto all = [](const bool* host, int count) {
    return std::all_of(host, host + count, std::identity());
  };
  const bool on_host = host_outputs_ != nullptr && all(host_outputs_, num_outputs()) &&
                       host_inputs_ != nullptr && all(host_inputs_, num_inputs());
  return Tensor::Allocate(dtype, shape, on_host ? HostAllocator() : allocator_);
}

void KernelContext::ParallelFor(int64_t total, int64_t cost_ns,
                                const std::function<void(int64_t, int64_t)>& fn) {
  const StepOutcome* const outcome = cancellable_ ? outcome_ : nullptr;
  if (outcome != nullptr && outcome->aborted()) return;
  if (pools_ != nullptr) return pools_->ParallelFor(total, cost_ns, fn, outcome);
  ThreadPools::SerialFor(total, cost_ns, fn, outcome);
}

bool KernelContext::cancelled() const {
  return cancellable_ && outcome_ != nullptr && outcome_->aborted();
}

Status KernelContext::BeginChange() {
  if (cancelled()) return Cancelled("the step was aborted");
  cancellable_ = false;
  return Status();
}

Status KernelContext::Busy() {
  MG_CHECK(!may_wait_);
  static const Status busy = Internal("a kernel was not computed again where it may wait");
  busy_ = true;
  return busy;
}

bool KernelContext::RoomForStrings(size_t bytes) const {
  return strings_ == nullptr || strings_->Take(bytes);
}

bool KernelContext::OnCancel(std::function<void()> cancel) {
  return cancel_ == nullptr || cancel_->Set(std::move(cancel));
}

struct KernelRegistry::Index {
  std::map<std::string, std::vector<std::unique_ptr<Entry>>, std::less<>> by_op;
};

KernelRegistry::KernelRegistry() : index_(std::make_unique<Index>()) {}
KernelRegistry::~KernelRegistry() = default;

void KernelRegistry::Add(KernelDef def, KernelFactory factory) {
  auto& entries = index_->by_op[def.op];
  std::sort(def.types.begin(), def.types.end());
  for (const auto& entry : entries) {
    if (entry->def.device == def.device && entry->def.types == def.types &&
        entry->def.priority == def.priority) {
      FatalBug(__FILE__, __LINE__,
               "a kernel of op '" + def.op + "' is registered twice for " + DefToString(def));
    }
  }
  entries.push_back(std::make_unique<Entry>(Entry{std::move(def), factory}));
}

Result<const KernelRegistry::Entry*> KernelRegistry::Find(std::string_view op, DeviceType device,
                                                          const Attrs& attrs) const {
  const std::string quoted = "op '" + std::string(op) + "'";
  const auto found = index_->by_op.find(op);
  if (found == index_->by_op.end()) return NotFound(quoted + " has no kernel on any device");
  const Entry* best = nullptr;
  for (const auto& entry : found->second) {
    if (Matches(entry->def, device, attrs) &&
        (best == nullptr || entry->def.priority > best->def.priority)) {
      best = entry.get();
    }
  }
  if (best != nullptr) return best;
  // The node's values of the attributes by which kernels differ.
  std::map<std::string, std::string> wanted;
  std::string registered;
  for (const auto& entry : found->second) {
    registered += (registered.empty() ? "" : ", ") + DefToString(entry->def);
    for (const auto& [name, dtype] : entry->def.types) {
      const AttrValue* value = attrs.Find(name);
      const DType* is = value == nullptr ? nullptr : std::get_if<DType>(value);
      wanted[name] = is != nullptr      ? std::string(DTypeName(*is))
                     : value == nullptr ? "(missing)"
                                        : AttrToString(*value);
    }
  }
  std::string types;
  for (const auto& [name, value] : wanted)
    types += (types.empty() ? " for " : ", ") + name + "=" + value;
  return NotFound(quoted + " has no " + device.ToString() + " kernel" + types +
                  "; registered: " + registered);
}

bool KernelRegistry::HasOp(std::string_view op, DeviceType device) const {
  const auto found = index_->by_op.find(op);
  return found != index_->by_op.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const auto& entry) { return entry->def.device == device; });
}

bool KernelRegistry::HasOp(std::string_view op) const { return index_->by_op.contains(op); }

std::vector<const KernelRegistry::Entry*> KernelRegistry::All() const {
  std::vector<const Entry*> all;
  for (const auto& [op, entries] : index_->by_op) {
    for (const auto& entry : entries) all.push_back(entry.get());
  }
  return all;
}

}  // namespace monograph
