// CPU kernels. One thread goes over the rows in their order, so that results do not depend on
// threads; rows are combined by ops/cpu/slices_cpu.h, and those of sparse segments are added up in
// float or wider.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/check_indices.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/slices_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::segment {
namespace {

enum class Start : uint8_t { kZero, kOne, kHighest, kLowest };

template <typename T>
T Highest() {
  if constexpr (std::is_same_v<T, half>) {
    return T(65504.0f);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return std::bit_cast<T>(uint16_t{0x7f7f});
  } else {
    return std::numeric_limits<T>::max();
  }
}
template <typename T>
T Lowest() {
  if constexpr (kIs16Bit<T>) {
    return T(-static_cast<float>(Highest<T>()));
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// Sets n elements from element `first` on.
Status FillWith(const KernelContext& c, Start start, Tensor* out, int64_t first, int64_t n) {
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    const T value = start == Start::kZero      ? T(0)
                    : start == Start::kOne     ? T(1)
                    : start == Start::kHighest ? Highest<T>()
                                               : Lowest<T>();
    T* const to = out->data<T>() + first;
    InPieces(c, n, [=](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
    return Status();
  });
}

// The row's elements divided by a count.
Status DivideRow(const KernelContext& c, Tensor* out, int64_t row, int64_t columns, int64_t count) {
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    // An integer that holds the count, too.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    using A = std::conditional_t<std::is_integral_v<T>, Wide, Accumulator<T>>;
    T* at = out->data<T>() + row * columns;
    InPieces(c, columns, [=](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        at[k] = T(static_cast<A>(at[k]) / static_cast<A>(count));
    });
    return Status();
  });
}

// Ids that ascend from 0 on; returns the last one + 1. Cancelled once the step is aborted.
Result<int64_t> CheckAscending(const KernelContext& c, const Tensor& ids) {
  int64_t last = 0;
  Looks looks(c);
  for (int64_t i = 0; i < ids.elements(); ++i) {
    if (!looks.GoOn(1)) return Cancelled("the step was aborted");
    const int64_t id = IndexAt(ids, i);
    if (id < 0 || id < last) {
      return InvalidArgument(i == 0 ? "segment ids must be >= 0"
                                    : "segment ids are not increasing: segment_ids[" +
                                          std::to_string(i) + "] = " + std::to_string(id) +
                                          " follows " + std::to_string(last));
    }
    last = id;
  }
  return ids.elements() == 0 ? 0 : last + 1;
}

Result<Shape> RowsShape(int64_t rows, const Shape& data, int dropped) {
  SmallInts dims;
  dims.push_back(rows);
  for (int i = dropped; i < data.rank(); ++i) dims.push_back(data[i]);
  return Shape::Make(dims.span());
}

template <SliceUpdate kUpdate, bool kMean, Start kGap>
class SegmentKernel : public Kernel {
 public:
  explicit SegmentKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &data = c.input(0), &ids = c.input(1);
    if (ids.shape().rank() != 1) return InvalidArgument("segment_ids should be a vector");
    if (data.shape().rank() < 1 || data.shape()[0] != ids.elements())
      return InvalidArgument("segment_ids should be the same size as dimension 0 of input.");
    MG_ASSIGN_OR_RETURN(const int64_t rows, CheckAscending(c, ids));
    MG_ASSIGN_OR_RETURN(const Shape shape, RowsShape(rows, data.shape(), 1));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const int64_t columns = rows == 0 ? 0 : shape.elements() / rows;
    if (shape.elements() == 0) return Status();
    const CombineFn set = CombineOf(SliceUpdate::kSet, data.dtype()),
                    combine = CombineOf(kUpdate, data.dtype());
    const size_t bytes = static_cast<size_t>(columns) * DTypeSize(data.dtype());
    const auto row = [&](int64_t i) {
      return static_cast<const char*>(data.raw()) + static_cast<size_t>(i) * bytes;
    };
    Looks looks(c);
    const size_t element = DTypeSize(data.dtype());
    int64_t next = 0;  // the first row that nothing is written to yet
    for (int64_t i = 0, end = 0; i < ids.elements(); i = end) {
      if (c.cancelled()) return Status();
      const int64_t id = IndexAt(ids, i);
      MG_RETURN_IF_ERROR(FillWith(c, kGap, out, next * columns, (id - next) * columns));
      CombineSlice(c, set, element, out->raw(), id, row(i), columns);
      for (end = i + 1; end < ids.elements() && IndexAt(ids, end) == id; ++end) {
        if (!looks.GoOn(5 + columns)) return Status();
        CombineSlice(c, combine, element, out->raw(), id, row(end), columns);
      }
      if (kMean) MG_RETURN_IF_ERROR(DivideRow(c, out, id, columns, end - i));
      next = id + 1;
    }
    return Status();
  }
};

template <SliceUpdate kUpdate, Start kStart>
class UnsortedKernel : public Kernel {
 public:
  explicit UnsortedKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &data = c.input(0), &ids = c.input(1);
    MG_ASSIGN_OR_RETURN(const int64_t segments, IntOf(c.input(2), "num_segments"));
    if (segments < 0) return InvalidArgument("num_segments must not be negative");
    bool fits = ids.shape().rank() <= data.shape().rank();
    for (int i = 0; fits && i < ids.shape().rank(); ++i) fits = ids.shape()[i] == data.shape()[i];
    if (!fits) {
      return InvalidArgument("data of shape " + data.shape().ToString() +
                             " does not begin with the shape " + ids.shape().ToString() +
                             " of segment_ids");
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, RowsShape(segments, data.shape(), ids.shape().rank()));
    Looks looks(c);
    for (int64_t i = 0; i < ids.elements(); ++i) {
      if (!looks.GoOn(1)) return Status();
      if (IndexAt(ids, i) >= segments) {
        return InvalidArgument("segment_ids[" + std::to_string(i) +
                               "] = " + std::to_string(IndexAt(ids, i)) + " is out of range [0, " +
                               std::to_string(segments) + ")");
      }
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    MG_RETURN_IF_ERROR(FillWith(c, kStart, out, 0, shape.elements()));
    if (shape.elements() == 0 || ids.elements() == 0) return Status();
    const int64_t columns = data.elements() / ids.elements();
    const CombineFn combine = CombineOf(kUpdate, data.dtype());
    const size_t bytes = static_cast<size_t>(columns) * DTypeSize(data.dtype());
    for (int64_t i = 0; i < ids.elements() && looks.GoOn(5 + columns); ++i) {
      const int64_t id = IndexAt(ids, i);
      if (id < 0) continue;
      CombineSlice(c, combine, DTypeSize(data.dtype()), out->raw(), id,
                   static_cast<const char*>(data.raw()) + static_cast<size_t>(i) * bytes, columns);
    }
    return Status();
  }
};

enum class Scale : uint8_t { kSum, kMean, kSqrtN };

template <typename A>
A ScaleOf(Scale scale, int64_t count) {
  if (scale == Scale::kMean) return static_cast<A>(count);
  if (scale == Scale::kSqrtN) return static_cast<A>(std::sqrt(static_cast<double>(count)));
  return 1;
}

Status CheckSparse(const Tensor& indices, const Tensor& ids, int64_t limit) {
  if (indices.shape().rank() != 1 || ids.shape().rank() != 1 ||
      indices.elements() != ids.elements()) {
    return InvalidArgument("segment_ids and indices should have same size");
  }
  return WithIndices(indices, [&](auto span) { return CheckIndices(span, limit); });
}

template <Scale kScale>
class SparseSegmentKernel : public Kernel {
 public:
  explicit SparseSegmentKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &data = c.input(0), &indices = c.input(1), &ids = c.input(2);
    if (data.shape().rank() < 1) return InvalidArgument("data must have at least one dimension");
    MG_RETURN_IF_ERROR(CheckSparse(indices, ids, data.shape()[0]));
    MG_ASSIGN_OR_RETURN(const int64_t needed, CheckAscending(c, ids));
    int64_t rows = needed;
    if (c.num_inputs() > 3) {
      MG_ASSIGN_OR_RETURN(rows, IntOf(c.input(3), "num_segments"));
      if (rows < needed) {
        return InvalidArgument("segment ids must be < num_segments: " + std::to_string(needed - 1) +
                               " is not below " + std::to_string(rows));
      }
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, RowsShape(rows, data.shape(), 1));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    if (shape.elements() == 0) return Status();
    const int64_t columns = shape.elements() / rows;
    return WithRealType(out->dtype(), [&](auto t) {
      using T = decltype(t);
      using A = Accumulator<T>;
      // A part of the columns of one segment after the other.
      std::vector<A> sum(static_cast<size_t>(std::min(columns, kPiece)));
      Looks looks(c);
      for (int64_t i = 0, end = 0; i < ids.elements(); i = end) {
        const int64_t id = IndexAt(ids, i);
        for (int64_t first = 0; first < columns; first += kPiece) {
          const int64_t size = std::min(kPiece, columns - first);
          std::fill(sum.begin(), sum.end(), A(0));
          for (end = i; end < ids.elements() && IndexAt(ids, end) == id; ++end) {
            if (!looks.GoOn(5 + size)) return Status();
            const T* row = data.data<T>() + IndexAt(indices, end) * columns + first;
            for (int64_t k = 0; k < size; ++k)
              sum[static_cast<size_t>(k)] =
                  static_cast<A>(sum[static_cast<size_t>(k)] + static_cast<A>(row[k]));
          }
          const A scale = ScaleOf<A>(kScale, end - i);
          T* to = out->data<T>() + id * columns + first;
          for (int64_t k = 0; k < size; ++k) to[k] = T(sum[static_cast<size_t>(k)] / scale);
        }
      }
      return Status();
    });
  }
};

template <Scale kScale>
class SparseSegmentGradKernel : public Kernel {
 public:
  explicit SparseSegmentGradKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &grad = c.input(0), &indices = c.input(1), &ids = c.input(2);
    if (grad.shape().rank() < 1) return InvalidArgument("grad must have at least one dimension");
    MG_ASSIGN_OR_RETURN(const int64_t rows, IntOf(c.input(3), "output_dim0"));
    if (rows < 0) return InvalidArgument("output_dim0 must not be negative");
    MG_RETURN_IF_ERROR(CheckSparse(indices, ids, rows));
    const int64_t segments = grad.shape()[0];
    MG_RETURN_IF_ERROR(
        WithIndices(ids, [&](auto span) { return CheckIndices(span, segments, "segment_ids"); }));
    MG_ASSIGN_OR_RETURN(const Shape shape, RowsShape(rows, grad.shape(), 1));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    if (shape.elements() == 0) return Status();
    const int64_t columns = shape.elements() / rows;
    std::vector<int64_t> counts(static_cast<size_t>(segments));
    Looks looks(c);
    for (int64_t i = 0; i < ids.elements() && looks.GoOn(1); ++i)
      ++counts[static_cast<size_t>(IndexAt(ids, i))];
    return WithFloatType(out->dtype(), [&](auto t) {
      using T = decltype(t);
      using A = Accumulator<T>;
      for (int64_t i = 0; i < ids.elements() && looks.GoOn(5); ++i) {
        const int64_t id = IndexAt(ids, i);
        const A scale = ScaleOf<A>(kScale, counts[static_cast<size_t>(id)]);
        const T* from = grad.data<T>() + id * columns;
        T* to = out->data<T>() + IndexAt(indices, i) * columns;
        for (int64_t first = 0; first < columns; first += kPiece) {
          const int64_t last = std::min(columns, first + kPiece);
          if (!looks.GoOn(last - first)) break;
          for (int64_t k = first; k < last; ++k)
            to[k] = T(static_cast<A>(to[k]) + static_cast<A>(from[k]) / scale);
        }
      }
      return Status();
    });
  }
};

template <Scale kScale>
void AddSparse(KernelRegistry* registry, const std::string& op, std::span<const DType> types) {
  AddForTypes<SparseSegmentKernel<kScale>>(registry, {.op = op}, "T", types);
  AddForTypes<SparseSegmentKernel<kScale>>(
      registry, {.op = op + "WithNumSegments", .host_args = {"num_segments"}}, "T", types);
  AddForTypes<SparseSegmentGradKernel<kScale>>(
      registry, {.op = op + "Grad", .host_args = {"output_dim0"}}, "T", kFloatTypes);
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using enum SliceUpdate;
  const auto add = [registry]<typename K>(const char* op) {
    AddForTypes<K>(registry, {.op = op}, "T", kRealTypes);
  };
  add.operator()<SegmentKernel<kAdd, false, Start::kZero>>("SegmentSum");
  add.operator()<SegmentKernel<kAdd, true, Start::kZero>>("SegmentMean");
  add.operator()<SegmentKernel<kMul, false, Start::kOne>>("SegmentProd");
  add.operator()<SegmentKernel<kMin, false, Start::kZero>>("SegmentMin");
  add.operator()<SegmentKernel<kMax, false, Start::kZero>>("SegmentMax");
  const auto unsorted = [registry]<typename K>(const char* op) {
    AddForTypes<K>(registry, {.op = op, .host_args = {"num_segments"}}, "T", kRealTypes);
  };
  unsorted.operator()<UnsortedKernel<kMul, Start::kOne>>("UnsortedSegmentProd");
  unsorted.operator()<UnsortedKernel<kMin, Start::kHighest>>("UnsortedSegmentMin");
  unsorted.operator()<UnsortedKernel<kMax, Start::kLowest>>("UnsortedSegmentMax");
  AddSparse<Scale::kSum>(registry, "SparseSegmentSum", kRealTypes);
  AddSparse<Scale::kMean>(registry, "SparseSegmentMean", kFloatTypes);
  AddSparse<Scale::kSqrtN>(registry, "SparseSegmentSqrtN", kFloatTypes);
}

}  // namespace monograph::ops::segment
