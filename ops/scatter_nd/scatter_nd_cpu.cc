// CPU kernels on ops/cpu/slices_cpu.h, which turns indices into slice numbers. GatherNd reads
// slices on several threads. Updates are made by one thread in the order of their indices, so that
// slices that come twice have a certain result; they change a copy of the input, or its own memory
// where nobody else has it.
#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/slices_cpu.h"
#include "ops/gpu/moves.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::scatter_nd {
namespace {

// Output 0: the slices of `params` that input 1 names.
Status GatherSlices(KernelContext& c, const Tensor& params) {
  const Tensor& indices = c.input(1);
  const Shape whole = params.shape();
  if (whole.rank() < 1 || indices.shape().rank() < 1)
    return InvalidArgument("params and indices must have at least one dimension");
  const int depth = DepthOf(indices);
  if (depth > whole.rank()) {
    return InvalidArgument("index innermost dimension length must be <= params rank; saw: " +
                           std::to_string(depth) + " vs. " + std::to_string(whole.rank()));
  }
  SmallInts dims;
  for (int i = 0; i + 1 < indices.shape().rank(); ++i) dims.push_back(indices.shape()[i]);
  for (int i = depth; i < whole.rank(); ++i) dims.push_back(whole[i]);
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
  int64_t n = 1, size = 1;
  for (int i = 0; i + 1 < indices.shape().rank(); ++i) n *= indices.shape()[i];
  for (int i = depth; i < whole.rank(); ++i) size *= whole[i];
  if (params.elements() == 0 && n > 0)
    return InvalidArgument("Requested more than 0 entries, but params is empty");
  MG_RETURN_IF_ERROR(CheckNdIndices(c, whole, indices));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  const DType dtype = params.dtype();
  const size_t bytes = static_cast<size_t>(size) * DTypeSize(dtype);
  if (out->bytes() == 0) return Status();
  const char* from = static_cast<const char*>(params.raw());
  char* to = static_cast<char*>(out->raw());
  c.ParallelFor(n, 5 + static_cast<int64_t>(bytes / 8), [&](int64_t begin, int64_t end) {
    std::array<int64_t, 256> places;
    for (int64_t first = begin; first < end; first += 256) {
      const int64_t count = std::min<int64_t>(256, end - first);
      NdPlaces(whole, indices, depth, first, count, places.data());
      for (int64_t i = 0; i < count; ++i) {
        if (bytes > size_t{kPiece} && c.cancelled()) return;
        CopyElements(c, dtype, from + static_cast<size_t>(places[static_cast<size_t>(i)]) * bytes,
                     to + static_cast<size_t>(first + i) * bytes, bytes);
      }
    }
  });
  return Status();
}

class GatherNdKernel : public Kernel {
 public:
  explicit GatherNdKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override { return GatherSlices(c, c.input(0)); }
};

class ResourceGatherNdKernel : public Kernel {
 public:
  explicit ResourceGatherNdKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("dtype")) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<const Variable> variable,
                        variable::FindTyped(c, dtype_));
    // Held to the end: a snapshot would make the next update copy all of the variable.
    if (!variable::LockToRead(*variable, c)) return c.Busy();
    ReaderLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(variable::RequireValue(*variable, c, 0));
    return GatherSlices(c, variable->value);
  }

 private:
  const DType dtype_;
};

// Changes slices of `out`, which holds a tensor of its shape already.
Status Change(KernelContext& c, SliceUpdate update, const Tensor& indices, const Tensor& updates,
              Tensor* out) {
  const Shape shape = out->shape();
  MG_RETURN_IF_ERROR(CheckNdShapes(shape, indices.shape(), updates.shape(), "a tensor"));
  const int depth = DepthOf(indices);
  int64_t size = 1;
  for (int i = depth; i < shape.rank(); ++i) size *= shape[i];
  if (size == 0) return Status();
  MG_RETURN_IF_ERROR(CheckNdIndices(c, shape, indices));
  CombineNd(c, CombineOf(update, out->dtype()), out->raw(), shape, indices, depth,
            updates.elements() / size, updates.raw(), DTypeSize(out->dtype()), size, size);
  return Status();
}

class ScatterNdKernel : public Kernel {
 public:
  explicit ScatterNdKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(2), "the shape"));
    if (c.input(0).shape().rank() < 1)
      return InvalidArgument("indices must have at least one dimension");
    if (shape.elements() == 0 && c.input(1).elements() > 0)
      return InvalidArgument("Indices and updates specified for empty output");
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->dtype() != DT_STRING) MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    return Change(c, SliceUpdate::kAdd, c.input(0), c.input(1), out);
  }
};

Status CopyAll(KernelContext& c, const Tensor& x, Tensor* out) {
  if (x.dtype() != DT_STRING) return HostMoves::Copy(c, out->raw(), x.raw(), x.bytes());
  Looks looks(c);
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (!AppendText(&looks, x.strings()[i], out->strings() + i)) break;
  }
  return Status();
}

// Output 0 with the elements of input 0, to be changed.
Result<Tensor*> Copied(KernelContext& c) {
  const Tensor& x = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, x.shape()));
  if (out->raw() == x.raw()) return out;
  MG_RETURN_IF_ERROR(CopyAll(c, x, out));
  return out;
}

template <SliceUpdate kUpdate>
class TensorScatterKernel : public Kernel {
 public:
  explicit TensorScatterKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * out, Copied(c));
    return Change(c, kUpdate, c.input(1), c.input(2), out);
  }
};

// Rows i of x. Rows out of range wrap around, as in TensorFlow.
template <SliceUpdate kUpdate>
class InplaceKernel : public Kernel {
 public:
  explicit InplaceKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape x = c.input(0).shape(), i = c.input(1).shape(), v = c.input(2).shape();
    bool fits = x.rank() > 0 && i.rank() == 1 && v.rank() == x.rank() && v[0] == i[0];
    for (int d = 1; fits && d < x.rank(); ++d) fits = v[d] == x[d];
    if (!fits) {
      return InvalidArgument("i of shape " + i.ToString() + " and v of shape " + v.ToString() +
                             " do not fit x of shape " + x.ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, Copied(c));
    if (out->elements() == 0) return Status();
    const int64_t rows = x[0], size = x.elements() / rows;
    const CombineFn combine = CombineOf(kUpdate, out->dtype());
    const auto* from = static_cast<const char*>(c.input(2).raw());
    for (const int32_t row : c.input(1).values<int32_t>()) {
      if (c.cancelled()) break;
      const int64_t place = ((row % rows) + rows) % rows;
      CombineSlice(c, combine, DTypeSize(out->dtype()), out->raw(), place, from, size);
      from += static_cast<size_t>(size) * DTypeSize(out->dtype());
    }
    return Status();
  }
};

class DeepCopyKernel : public Kernel {
 public:
  explicit DeepCopyKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, x.shape()));
    return CopyAll(c, x, out);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr DType kBool[] = {DT_BOOL};
  constexpr DType kString[] = {DT_STRING};
  AddForCopiedTypes<GatherNdKernel>(registry, {.op = "GatherNd"}, "Tparams");
  AddForCopiedTypes<ResourceGatherNdKernel>(
      registry, {.op = "ResourceGatherNd", .host_args = {"resource"}}, "dtype");
  const auto add_scatter = [registry](DType dtype) {
    if (CombineOf(SliceUpdate::kAdd, dtype) == nullptr) return;
    registry->Add<ScatterNdKernel>(
        {.op = "ScatterNd", .types = {{"T", dtype}}, .host_args = {"shape"}});
  };
  std::ranges::for_each(kPlainTypes, add_scatter);
  add_scatter(DT_STRING);
  AddForCopiedTypes<TensorScatterKernel<SliceUpdate::kSet>>(registry,
                                                            {.op = "TensorScatterUpdate"});
  for (const char* op : {"TensorScatterAdd", "ScatterNdNonAliasingAdd"})
    AddForTypes<TensorScatterKernel<SliceUpdate::kAdd>>(registry, {.op = op}, "T", kRealTypes);
  AddForTypes<TensorScatterKernel<SliceUpdate::kAdd>>(registry, {.op = "TensorScatterAdd"}, "T",
                                                      kBool);
  AddForTypes<TensorScatterKernel<SliceUpdate::kAdd>>(registry, {.op = "TensorScatterAdd"}, "T",
                                                      kString);
  AddForTypes<TensorScatterKernel<SliceUpdate::kSub>>(registry, {.op = "TensorScatterSub"}, "T",
                                                      kRealTypes);
  AddForTypes<TensorScatterKernel<SliceUpdate::kMin>>(registry, {.op = "TensorScatterMin"}, "T",
                                                      kRealTypes);
  AddForTypes<TensorScatterKernel<SliceUpdate::kMax>>(registry, {.op = "TensorScatterMax"}, "T",
                                                      kRealTypes);
  AddForCopiedTypes<InplaceKernel<SliceUpdate::kSet>>(registry, {.op = "InplaceUpdate"});
  AddForTypes<InplaceKernel<SliceUpdate::kAdd>>(registry, {.op = "InplaceAdd"}, "T", kRealTypes);
  AddForTypes<InplaceKernel<SliceUpdate::kSub>>(registry, {.op = "InplaceSub"}, "T", kRealTypes);
  AddForCopiedTypes<DeepCopyKernel>(registry, {.op = "DeepCopy"});
}

}  // namespace monograph::ops::scatter_nd
