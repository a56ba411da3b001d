#include <algorithm>
#include <array>

#include "ops/cpu/kernel_util.h"
#include "ops/elementwise/kernels_cuda.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::elementwise {

void RegisterCpu(KernelRegistry* registry);

namespace {

bool AlignedFor(const void* pointer, int64_t pack, DType dtype) {
  return reinterpret_cast<uintptr_t>(pointer) % (static_cast<size_t>(pack) * DTypeSize(dtype)) == 0;
}

// Elements of 16 bytes of the wider type.
int64_t PackFor(DType in, DType out) {
  return static_cast<int64_t>(16 / std::max(DTypeSize(in), DTypeSize(out)));
}

// One operand's strides in the result's dimensions: 0 where it is broadcast.
std::array<int64_t, kMaxRank> BroadcastStrides(const Shape& shape, const Shape& result) {
  const auto own = StridesOf(shape);
  std::array<int64_t, kMaxRank> strides{};
  const int lead = result.rank() - shape.rank();
  for (int i = lead; i < result.rank(); ++i) {
    if (shape.dim(i - lead) != 1)
      strides[static_cast<size_t>(i)] = own[static_cast<size_t>(i - lead)];
  }
  return strides;
}

}  // namespace

BinaryArgs MakeBinaryArgs(const Tensor& x, const Tensor& y, const Shape& z_shape, Tensor* z,
                          int64_t pack) {
  BinaryArgs args;
  args.x = x.raw(), args.y = y.raw(), args.z = z->raw();
  args.n = z_shape.elements();
  const bool x_whole = x.elements() == args.n, y_whole = y.elements() == args.n;
  int64_t row = args.n;  // elements for which the operands move on or stay
  if ((x_whole || x.elements() == 1) && (y_whole || y.elements() == 1)) {
    args.x_step = x_whole ? 1 : 0;
    args.y_step = y_whole ? 1 : 0;
  } else {
    const auto xs = BroadcastStrides(x.shape(), z_shape), ys = BroadcastStrides(y.shape(), z_shape);
    std::array<int64_t, kMaxRank> size{};
    int rank = 0;
    for (int i = 0; i < z_shape.rank(); ++i) {
      const auto d = static_cast<size_t>(i);
      const int64_t dim = z_shape.dim(i);
      if (dim == 1) continue;
      if (rank > 0 && args.x_stride[rank - 1] == xs[d] * dim &&
          args.y_stride[rank - 1] == ys[d] * dim) {
        size[static_cast<size_t>(rank - 1)] *= dim;
      } else {
        size[static_cast<size_t>(rank++)] = dim;
      }
      args.x_stride[rank - 1] = xs[d];
      args.y_stride[rank - 1] = ys[d];
    }
    args.rank = rank;
    for (int i = 0; i < rank; ++i) args.size[i] = Divisor(size[static_cast<size_t>(i)]);
    args.x_step = args.x_stride[rank - 1];
    args.y_step = args.y_stride[rank - 1];
    row = size[static_cast<size_t>(rank - 1)];
  }
  args.packs = (args.rank == 0 || row % pack == 0) && AlignedFor(args.z, pack, z->dtype()) &&
               (args.x_step == 0 || AlignedFor(args.x, pack, x.dtype())) &&
               (args.y_step == 0 || AlignedFor(args.y, pack, y.dtype()));
  return args;
}

DeviceBinaryKernel::DeviceBinaryKernel(const KernelConstruction& k, BinaryLaunch launch)
    : launch_(launch),
      pack_(PackFor(k.input_dtype(0), k.output_dtype(0))),
      differ_where_shapes_differ_(k.op() == "NotEqual"),
      equality_without_error_(!k.attrs().GetOr<bool>("incompatible_shape_error", true)) {}

Status DeviceBinaryKernel::Compute(KernelContext& c) {
  const Shape x = c.input(0).shape(), y = c.input(1).shape();
  const auto broadcast = BroadcastShapes(x, y);
  if (!broadcast.ok() && equality_without_error_) {
    MG_ASSIGN_OR_RETURN(Tensor * answer, c.AllocateOutput(0, Shape()));
    return DeviceMoves::Fill(c, sizeof(bool), &differ_where_shapes_differ_, answer->raw(), 1);
  }
  MG_RETURN_IF_ERROR(broadcast.status());
  const Shape z = *broadcast;
  const int64_t n = z.elements();
  const bool x_whole = c.input(0).elements() == n, y_whole = c.input(1).elements() == n;
  const bool forward_x = x_whole && (!y_whole || c.input(0).unique());
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(forward_x ? 0 : 1, 0, z));
  if (n == 0) return Status();
  return launch_(c, MakeBinaryArgs(c.input(0), c.input(1), z, out, pack_));
}

DeviceUnaryKernel::DeviceUnaryKernel(const KernelConstruction& k, UnaryLaunch launch)
    : launch_(launch), pack_(PackFor(k.input_dtype(0), k.output_dtype(0))) {}

Status DeviceUnaryKernel::Compute(KernelContext& c) {
  const Tensor& x = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, x.shape()));
  UnaryArgs args;
  args.x = x.raw(), args.y = out->raw(), args.n = x.elements();
  args.packs = AlignedFor(args.x, pack_, x.dtype()) && AlignedFor(args.y, pack_, out->dtype());
  return launch_(c, args);
}

void RegisterCuda(KernelRegistry* registry) {
  RegisterArithmeticCuda(registry);
  RegisterComparisonsCuda(registry);
  RegisterUnaryCuda(registry);
  RegisterSmallIntegersCuda(registry);
  RegisterChainsCuda(registry);
  // Shapes are computed with int32, so that type stays on the host; whole numbers are divided there
  // too, since a division by zero must fail the step.
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  constexpr DType kInt32[] = {DT_INT32};
  for (const char* op : {"AddV2", "Add", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference",
                         "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}) {
    AddOnHost(registry, cpu, op, {"x", "y", "z"}, "T", kInt32);
  }
  constexpr DType kIntegers[] = {DT_INT32, DT_INT64, DT_INT8, DT_INT16, DT_UINT8, DT_UINT16};
  for (const char* op : {"Div", "FloorDiv", "FloorMod", "Pow"})
    AddOnHost(registry, cpu, op, {"x", "y", "z"}, "T", kIntegers);
  for (const char* op : {"Neg", "Abs", "Sign", "Square", "Round"})
    AddOnHost(registry, cpu, op, {"x", "y"}, "T", kInt32);
  AddOnHost(registry, cpu, "AddN", {"inputs", "sum"}, "T", kInt32);
  constexpr DType kVariant[] = {DT_VARIANT};
  AddOnHost(registry, cpu, "AddN", {}, "T", kVariant);
}

}  // namespace monograph::ops::elementwise
