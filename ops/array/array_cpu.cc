// CPU kernels, a function for each op. They are small, and what only moves elements goes by their
// size, whatever their type. EnsureShape, Snapshot and Bitcast hand on the input's memory where
// they can.
#include <algorithm>

#include "ops/array/bitcast.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::array {
namespace {

Status LinSpaceOf(KernelContext& c, const Attrs&) {
  for (int i = 0; i < 3; ++i) {
    if (c.input(i).shape().rank() != 0)
      return InvalidArgument("start, stop and num must be scalars");
  }
  MG_ASSIGN_OR_RETURN(const int64_t num, IntOf(c.input(2), "num"));
  if (num <= 0) return InvalidArgument("Requires num > 0: " + std::to_string(num));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{num}));
  return WithFloatType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const A start = c.input(0).scalar<T>(), stop = c.input(1).scalar<T>();
    T* to = out->data<T>();
    to[0] = T(start);
    if (num == 1) return Status();
    const A step = (stop - start) / static_cast<A>(num - 1);
    InPieces(c, num - 2, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin + 1; i < end + 1; ++i) to[i] = T(start + step * static_cast<A>(i));
    });
    to[num - 1] = T(stop);
    return Status();
  });
}

// Zeros, also where TensorFlow leaves the memory as it is.
Status EmptyOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (out->dtype() == DT_STRING) return Status();
  return HostMoves::Zero(c, out->raw(), out->bytes());
}

Status BitcastOf(KernelContext& c, const Attrs&) {
  const Tensor& input = c.input(0);
  const size_t from = DTypeSize(input.dtype()), to = DTypeSize(c.output_dtype(0));
  MG_ASSIGN_OR_RETURN(const PartialShape cast, ShapeAfterBitcast(input.shape(), from, to));
  const Shape shape = cast.AsShape();
  if (input.offset() % to == 0) {
    c.set_output(0, Tensor(c.output_dtype(0), shape, input.buffer(), input.offset()));
    return Status();
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  return HostMoves::Copy(c, out->raw(), input.raw(), input.bytes());
}

Status EnsureShapeOf(KernelContext& c, const Attrs& attrs) {
  const auto& wanted = attrs.Get<PartialShape>("shape");
  if (!wanted.Accepts(c.input(0).shape())) {
    return InvalidArgument("Shape of tensor " + c.input(0).shape().ToString() +
                           " is not compatible with expected shape " + wanted.ToString() + ".");
  }
  c.set_output(0, c.TakeInput(0));
  return Status();
}

Status Pass(KernelContext& c, const Attrs&) {
  c.set_output(0, c.TakeInput(0));
  return Status();
}

Status UnravelOf(KernelContext& c, const Attrs&) {
  const Tensor &indices = c.input(0), &dims = c.input(1);
  if (dims.shape().rank() != 1 || indices.shape().rank() > 1)
    return InvalidArgument("The indices can only be scalar or vector, and the dims a vector");
  int64_t product = 1;
  for (int64_t d = 0; d < dims.elements(); ++d) {
    if (IndexAt(dims, d) <= 0)
      return InvalidArgument("Input dims cannot contain a dim of zero or less, but contains " +
                             std::to_string(IndexAt(dims, d)));
    if (__builtin_mul_overflow(product, IndexAt(dims, d), &product))
      return InvalidArgument("Input dims product is causing integer overflow");
  }
  const int64_t n = indices.elements();
  Looks looks(c);
  for (int64_t i = 0; i < n; ++i) {
    if (!looks.GoOn(1)) return Status();
    if (IndexAt(indices, i) < 0 || IndexAt(indices, i) >= product) {
      return InvalidArgument("index " + std::to_string(IndexAt(indices, i)) +
                             " is out of bound as with dims");
    }
  }
  Shape shape{dims.elements()};
  if (indices.shape().rank() == 1) shape.AddDim(n);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  for (int64_t i = 0; i < n && looks.GoOn(10 * dims.elements()); ++i) {
    int64_t rest = IndexAt(indices, i);
    for (int64_t d = dims.elements() - 1; d >= 0; --d) {
      SetIndex(out, d * n + i, rest % IndexAt(dims, d));
      rest /= IndexAt(dims, d);
    }
  }
  return Status();
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr auto kCheap = KernelCost::kCheap;
  AddForTypes<FunctionKernel<LinSpaceOf>>(
      registry, {.op = "LinSpace", .host_args = {"start", "stop", "num"}}, "T", kFloatTypes);
  AddForCopiedTypes<FunctionKernel<EmptyOf>>(registry, {.op = "Empty", .host_args = {"shape"}},
                                             "dtype");
  registry->Add<FunctionKernel<BitcastOf>>({.op = "Bitcast", .cost = kCheap});
  registry->Add<FunctionKernel<EnsureShapeOf>>({.op = "EnsureShape", .cost = kCheap});
  registry->Add<FunctionKernel<Pass>>({.op = "Snapshot", .cost = kCheap});
  registry->Add<FunctionKernel<UnravelOf>>({.op = "UnravelIndex"});
}

}  // namespace monograph::ops::array
