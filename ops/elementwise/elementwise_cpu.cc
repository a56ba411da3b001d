// The kernels that all elementwise ops of a CPU share. Where each operand is a single element or as
// large as the result, the elements are one long run, which is cut into pieces for the threads.
// Otherwise Broadcast joins neighbouring dimensions, so that few are left, and calls the row
// function for each row of the last one. The outputs reuse an operand's memory if nobody else holds
// it.
#include <algorithm>
#include <cstring>

#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/tensor_util_cpu.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {
namespace {

template <typename T>
Status FirstWhere(const Tensor& y, bool (*bad)(T), const char* message) {
  for (const T& value : y.values<T>()) {
    if (bad(value)) return InvalidArgument(message);
  }
  return Status();
}

// Calls fn with a value of y's type if that is a signed integer type (also an unsigned one if
// `unsigned_too`).
template <typename Fn>
Status ForInteger(DType dtype, bool unsigned_too, Fn fn) {
  switch (dtype) {
    case DT_INT32:
      return fn(int32_t{});
    case DT_INT64:
      return fn(int64_t{});
    case DT_INT16:
      return fn(int16_t{});
    case DT_INT8:
      return fn(int8_t{});
    case DT_UINT64:
      return unsigned_too ? fn(uint64_t{}) : Status();
    case DT_UINT32:
      return unsigned_too ? fn(uint32_t{}) : Status();
    case DT_UINT16:
      return unsigned_too ? fn(uint16_t{}) : Status();
    case DT_UINT8:
      return unsigned_too ? fn(uint8_t{}) : Status();
    default:
      return Status();
  }
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

// A long run of elements is cut into pieces of this many.
constexpr int64_t kPiece = 4096;

}  // namespace

Status CheckDivisor(const Tensor&, const Tensor& y) {
  return ForInteger(y.dtype(), true, [&](auto zero) {
    using T = decltype(zero);
    return FirstWhere<T>(
        y, [](T value) { return value == 0; }, "Integer division by zero");
  });
}

Status CheckExponent(const Tensor&, const Tensor& y) {
  return ForInteger(y.dtype(), false, [&](auto zero) {
    using T = decltype(zero);
    return FirstWhere<T>(
        y, [](T value) { return value < 0; },
        "Integers to negative integer powers are not allowed");
  });
}

BinaryKernel::BinaryKernel(const KernelConstruction& k, BinaryRowFn row, int64_t cost,
                           CheckFn check)
    : row_(row),
      check_(check),
      cost_(cost),
      in_size_(DTypeSize(k.input_dtype(0))),
      out_size_(DTypeSize(k.output_dtype(0))),
      differ_where_shapes_differ_(k.op() == "NotEqual"),
      equality_without_error_(!k.attrs().GetOr<bool>("incompatible_shape_error", true)) {}

Status BinaryKernel::Compute(KernelContext& c) {
  // No elements: no division, so no error.
  if (check_ != nullptr && c.input(0).elements() > 0)
    MG_RETURN_IF_ERROR(check_(c.input(0), c.input(1)));
  const Shape x = c.input(0).shape(), y = c.input(1).shape();
  Shape z = x;
  if (!(x == y)) {
    auto broadcast = BroadcastShapes(x, y);
    if (!broadcast.ok() && equality_without_error_) {
      MG_ASSIGN_OR_RETURN(Tensor * answer, c.AllocateOutput(0, Shape()));
      *answer->data<bool>() = differ_where_shapes_differ_;
      return Status();
    }
    MG_RETURN_IF_ERROR(broadcast.status());
    z = *broadcast;
  }
  const int64_t n = z.elements();
  const bool x_whole = c.input(0).elements() == n, y_whole = c.input(1).elements() == n;
  const bool forward_x = x_whole && (!y_whole || c.input(0).unique());
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(forward_x ? 0 : 1, 0, z));
  if (n == 0) return Status();
  const bool x_single = c.input(0).elements() == 1, y_single = c.input(1).elements() == 1;
  if ((x_whole || x_single) && (y_whole || y_single)) {
    const RowMode mode = x_whole && y_whole ? RowMode::kBoth
                         : x_whole          ? RowMode::kSecondStays
                                            : RowMode::kFirstStays;
    const char *xs = static_cast<const char*>(c.input(0).raw()),
               *ys = static_cast<const char*>(c.input(1).raw());
    char* zs = static_cast<char*>(out->raw());
    if (n <= kPiece) {
      Row(c, xs, ys, zs, n, mode);
      return Status();
    }
    const size_t x_step = mode == RowMode::kFirstStays ? 0 : in_size_;
    const size_t y_step = mode == RowMode::kSecondStays ? 0 : in_size_;
    c.ParallelFor((n + kPiece - 1) / kPiece, cost_ * (kPiece / 16),
                  [=, this, &c](int64_t begin, int64_t end) {
                    const auto first = static_cast<size_t>(begin * kPiece);
                    Row(c, xs + first * x_step, ys + first * y_step, zs + first * out_size_,
                        std::min(n, end * kPiece) - begin * kPiece, mode);
                  });
    return Status();
  }
  return Broadcast(c, x, y, z, out);
}

Status BinaryKernel::Broadcast(KernelContext& c, const Shape& x, const Shape& y, const Shape& z,
                               Tensor* out) {
  // The dimensions of the result, without those of size 1. Neighbours are joined if each operand
  // either runs on from one to the next or is repeated in both.
  std::array<int64_t, kMaxRank> size{}, xs{}, ys{};
  const auto x_strides = BroadcastStrides(x, z), y_strides = BroadcastStrides(y, z);
  size_t rank = 0;
  for (int i = 0; i < z.rank(); ++i) {
    const auto d = static_cast<size_t>(i);
    const int64_t dim = z.dim(i);
    if (dim == 1) continue;
    if (rank > 0 && xs[rank - 1] == x_strides[d] * dim && ys[rank - 1] == y_strides[d] * dim) {
      size[rank - 1] *= dim;
      xs[rank - 1] = x_strides[d], ys[rank - 1] = y_strides[d];
      continue;
    }
    size[rank] = dim, xs[rank] = x_strides[d], ys[rank] = y_strides[d];
    ++rank;
  }
  const size_t inner = rank - 1;
  const int64_t n = size[inner];
  const int64_t rows = z.elements() / n;
  const RowMode mode = xs[inner] == 0   ? RowMode::kFirstStays
                       : ys[inner] == 0 ? RowMode::kSecondStays
                                        : RowMode::kBoth;
  const char *from_x = static_cast<const char*>(c.input(0).raw()),
             *from_y = static_cast<const char*>(c.input(1).raw());
  char* to = static_cast<char*>(out->raw());
  c.ParallelFor(rows, 3 + cost_ * n / 16, [=, this, &c](int64_t begin, int64_t end) {
    std::array<int64_t, kMaxRank> at{};
    int64_t x_at = 0, y_at = 0;
    for (int64_t rest = begin, d = static_cast<int64_t>(inner) - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      at[k] = rest % size[k];
      rest /= size[k];
      x_at += at[k] * xs[k], y_at += at[k] * ys[k];
    }
    for (int64_t row = begin; row < end; ++row) {
      Row(c, from_x + static_cast<size_t>(x_at) * in_size_,
          from_y + static_cast<size_t>(y_at) * in_size_,
          to + static_cast<size_t>(row * n) * out_size_, n, mode);
      for (size_t k = inner; k-- > 0;) {
        x_at += xs[k], y_at += ys[k];
        if (++at[k] < size[k]) break;
        x_at -= size[k] * xs[k], y_at -= size[k] * ys[k];
        at[k] = 0;
      }
    }
  });
  return Status();
}

void BinaryKernel::Row(const KernelContext& c, const char* x, const char* y, char* z, int64_t n,
                       RowMode mode) const {
  // An element of a costly function takes a hundred times longer than usual for some operands.
  const bool costly = cost_ >= 4000;
  if (costly && c.cancelled()) return;
  const int64_t piece = costly ? 64 : int64_t{1} << 20;
  const size_t x_step = mode == RowMode::kFirstStays ? 0 : in_size_;
  const size_t y_step = mode == RowMode::kSecondStays ? 0 : in_size_;
  InPieces(c, n, piece, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    row_(x + first * x_step, y + first * y_step, z + first * out_size_, end - begin, mode);
  });
}

UnaryKernel::UnaryKernel(const KernelConstruction& k, UnaryRowFn row, int64_t cost)
    : row_(row),
      cost_(cost),
      in_size_(DTypeSize(k.input_dtype(0))),
      out_size_(DTypeSize(k.output_dtype(0))) {}

Status UnaryKernel::Compute(KernelContext& c) {
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
  const int64_t n = out->elements();
  const char* from = static_cast<const char*>(c.input(0).raw());
  char* to = static_cast<char*>(out->raw());
  if (n <= kPiece) {
    row_(from, to, n);
    return Status();
  }
  c.ParallelFor((n + kPiece - 1) / kPiece, cost_ * (kPiece / 16),
                [=, this](int64_t begin, int64_t end) {
                  const auto first = static_cast<size_t>(begin * kPiece);
                  row_(from + first * in_size_, to + first * out_size_,
                       std::min(n, end * kPiece) - begin * kPiece);
                });
  return Status();
}

namespace {

// sum = ((input0 + input1) + input2) + ...
class AddNKernel : public Kernel {
 public:
  AddNKernel(const KernelConstruction& k, BinaryRowFn row)
      : row_(row), size_(DTypeSize(k.output_dtype(0))) {}
  Status Compute(KernelContext& c) override {
    const int count = c.num_inputs();
    const Shape shape = c.input(0).shape();
    for (int i = 1; i < count; ++i) {
      if (!(c.input(i).shape() == shape)) {
        return InvalidArgument("input " + std::to_string(i) + " has shape " +
                               c.input(i).shape().ToString() + ", input 0 " + shape.ToString());
      }
    }
    if (count == 1) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    const int64_t n = shape.elements();
    char* to = static_cast<char*>(out->raw());
    c.ParallelFor((n + kPiece - 1) / kPiece, 1000 * (count - 1),
                  [=, this, &c](int64_t begin, int64_t end) {
                    for (int64_t piece = begin; piece < end; ++piece) {
                      const auto offset = static_cast<size_t>(piece * kPiece) * size_;
                      const int64_t length = std::min(kPiece, n - piece * kPiece);
                      const void* sum = static_cast<const char*>(c.input(0).raw()) + offset;
                      for (int i = 1; i < count; ++i) {
                        row_(sum, static_cast<const char*>(c.input(i).raw()) + offset, to + offset,
                             length, RowMode::kBoth);
                        sum = to + offset;
                      }
                    }
                  });
    return Status();
  }

 private:
  const BinaryRowFn row_;
  const size_t size_;
};

// AddN of variants, by VariantValue::Add.
class AddVariantsKernel : public Kernel {
 public:
  explicit AddVariantsKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    Tensor sum = c.input(0);
    for (int i = 1; i < c.num_inputs(); ++i) {
      MG_ASSIGN_OR_RETURN(sum, AddTensors(c, sum, c.input(i)));
    }
    c.set_output(0, std::move(sum));
    return Status();
  }
};

template <typename T>
struct PlusFn {
  using Out = T;
  T operator()(T x, T y) const { return T(x + y); }
};

template <BinaryRowFn kRow>
Result<std::unique_ptr<Kernel>> MakeAddN(const KernelConstruction& k) {
  return std::unique_ptr<Kernel>(new AddNKernel(k, kRow));
}

template <typename... Ts>
void AddAddN(KernelRegistry* registry) {
  (registry->Add({.op = "AddN", .types = {{"T", kDTypeOf<Ts>}}},
                 &MakeAddN<BinaryRowFor<PlusFn, Ts>()>),
   ...);
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  RegisterArithmetic(registry);
  RegisterDivision(registry);
  RegisterComparisons(registry);
  RegisterUnary(registry);
  RegisterFunctions(registry);
  RegisterSpecialFunctions(registry);
  RegisterBesselFunctions(registry);
  RegisterBitwise(registry);
  RegisterClipAndCross(registry);
  RegisterChains(registry);
  AddAddN<float, double, half, bfloat16, int32_t, int64_t, uint8_t>(registry);
  registry->Add<AddVariantsKernel>({.op = "AddN", .types = {{"T", DT_VARIANT}}});
}

}  // namespace monograph::ops::elementwise
