// CPU kernels. Rows are computed side by side on several threads: TopK and NthElement select within
// a row, LowerBound and UpperBound search it, and Bucketize its boundaries. Counts are made by one
// thread, so that sums do not depend on threads.
#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::order {
namespace {

// Input 0 as rows of its last dimension.
struct Rows {
  int64_t count = 1, columns = 0;
};
Result<Rows> RowsOf(const Shape& shape) {
  if (shape.rank() < 1) return InvalidArgument("input must be >= 1-D, got shape []");
  Rows rows;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows.count *= shape[i];
  rows.columns = shape[shape.rank() - 1];
  return rows;
}

Status TopKRows(KernelContext& c, const Attrs& attrs) {
  const Shape in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(const Rows rows, RowsOf(in));
  int64_t k = 0;
  if (c.num_inputs() > 1) {
    MG_ASSIGN_OR_RETURN(k, IntOf(c.input(1), "k"));
  } else {
    k = attrs.Get<int64_t>("k");
  }
  if (k < 0) return InvalidArgument("Need k >= 0, got " + std::to_string(k));
  if (k > rows.columns) {
    return InvalidArgument("input must have at least k columns. Had " +
                           std::to_string(rows.columns) + ", needed " + std::to_string(k));
  }
  Shape shape = in;
  shape.set_dim(in.rank() - 1, k);
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(0, shape));
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(1, shape));
  if (shape.elements() == 0) return Status();
  const int64_t columns = rows.columns;
  Room room;  // for what each thread orders
  if (k > 1) {
    const int64_t threads = std::min<int64_t>(c.intra_op_threads(), rows.count);
    const int64_t places = threads * (columns + k);
    MG_RETURN_IF_ERROR(room.Hold(static_cast<size_t>(places) * sizeof(int64_t), "TopK"));
  }
  return WithRealType(values->dtype(), [&](auto t) {
    using T = decltype(t);
    c.ParallelFor(rows.count, 10 * columns, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> order(static_cast<size_t>(k == 1 ? 1 : columns));
      for (int64_t r = begin; r < end; ++r) {
        const T* row = c.input(0).data<T>() + r * columns;
        const auto before = [row](int64_t a, int64_t b) {
          return row[b] < row[a] || (!(row[a] < row[b]) && a < b);
        };
        if (k == 1) {
          int64_t best = 0;
          InPieces(c, columns, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
              if (row[best] < row[i]) best = i;
            }
          });
          order[0] = best;
        } else {
          order.resize(static_cast<size_t>(columns));
          InPieces(c, columns, [&](int64_t first, int64_t last) {
            std::iota(order.begin() + first, order.begin() + last, first);
          });
          if (k < columns && !NthElement(c, std::span(order), k, before)) return;
          order.resize(static_cast<size_t>(k));
          if (!StableSort(c, &order, before)) return;
        }
        InPieces(c, k, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            const int64_t from = order[static_cast<size_t>(i)];
            values->data<T>()[r * k + i] = row[from];
            SetIndex(indices, r * k + i, from);
          }
        });
      }
    });
    return Status();
  });
}

Status NthOfRows(KernelContext& c, const Attrs& attrs) {
  const Shape in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(const Rows rows, RowsOf(in));
  MG_ASSIGN_OR_RETURN(int64_t n, IntOf(c.input(1), "n"));
  if (n < 0 || n >= rows.columns) {
    return InvalidArgument("Input must have last dimension > n = " + std::to_string(n) +
                           " (inputs has shape " + in.ToString() + "); n must not be negative");
  }
  if (attrs.Get<bool>("reverse")) n = rows.columns - 1 - n;
  Shape shape;
  for (int i = 0; i + 1 < in.rank(); ++i) shape.AddDim(in[i]);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (out->elements() == 0) return Status();
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    c.ParallelFor(rows.count, 10 * rows.columns, [&](int64_t begin, int64_t end) {
      std::vector<T> row(static_cast<size_t>(rows.columns));
      for (int64_t r = begin; r < end; ++r) {
        const T* const from = c.input(0).data<T>() + r * rows.columns;
        InPieces(c, rows.columns, [&](int64_t first, int64_t last) {
          std::copy(from + first, from + last, row.begin() + first);
        });
        if (!NthElement(c, std::span(row), n, [](const T& a, const T& b) { return a < b; })) return;
        out->data<T>()[r] = row[static_cast<size_t>(n)];
      }
    });
    return Status();
  });
}

template <bool kUpper>
Status Bounds(KernelContext& c, const Attrs&) {
  const Shape sorted = c.input(0).shape(), shape = c.input(1).shape();
  if (sorted.rank() != 2 || shape.rank() != 2 || sorted[0] != shape[0]) {
    return InvalidArgument("sorted_inputs of shape " + sorted.ToString() + " and values of shape " +
                           shape.ToString() + " must be matrices of as many rows");
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  return WithRealType(c.input(0).dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t per_row = shape[1];
    c.ParallelFor(shape.elements(), 50, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* first = c.input(0).data<T>() + i / per_row * sorted[1];
        const T value = c.input(1).data<T>()[i];
        const T* at = kUpper ? std::upper_bound(first, first + sorted[1], value)
                             : std::lower_bound(first, first + sorted[1], value);
        SetIndex(out, i, at - first);
      }
    });
    return Status();
  });
}

template <typename T>
Status CountInto(KernelContext& c, int64_t size) {
  const Tensor &arr = c.input(0), &weights = c.input(2);
  const int64_t n = arr.elements();
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{size}));
  T* const bins = out->data<T>();
  InPieces(c, size, [=](int64_t begin, int64_t end) { std::fill(bins + begin, bins + end, T(0)); });
  const int32_t* const at = arr.data<int32_t>();
  const T* const weight = weights.elements() > 0 ? weights.data<T>() : nullptr;
  int64_t negative = -1;
  InPieces(c, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (at[i] < 0) {
        negative = i;
      } else if (at[i] < size) {
        bins[at[i]] = T(bins[at[i]] + (weight != nullptr ? weight[i] : T(1)));
      }
    }
  });
  if (negative < 0) return Status();
  return InvalidArgument("Input arr must be non-negative! arr[" + std::to_string(negative) +
                         "] = " + std::to_string(at[negative]));
}

Status BincountOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const int64_t size, IntOf(c.input(1), "size"));
  if (size < 0) return InvalidArgument("size (" + std::to_string(size) + ") must be non-negative");
  if (c.input(2).elements() > 0 && c.input(2).shape() != c.input(0).shape()) {
    return InvalidArgument("weights of shape " + c.input(2).shape().ToString() +
                           " must be empty or have the shape of arr, " +
                           c.input(0).shape().ToString());
  }
  return WithRealType(c.output_dtype(0), [&](auto t) { return CountInto<decltype(t)>(c, size); });
}

Status HistogramOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const int64_t bins, IntOf(c.input(2), "nbins"));
  if (bins <= 0)
    return InvalidArgument("nbins should be a positive number, but got '" + std::to_string(bins) +
                           "'");
  if (!(c.input(1).shape() == Shape{2}))
    return InvalidArgument("value_range should be a vector of 2 elements");
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{bins}));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  return WithRealType(c.input(0).dtype(), [&](auto t) {
    using T = decltype(t);
    const T low = c.input(1).data<T>()[0], high = c.input(1).data<T>()[1];
    if (!(low < high)) {
      return InvalidArgument("value_range should satisfy value_range[0] < value_range[1]");
    }
    const double step =
        (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(bins);
    InPieces(c, c.input(0).elements(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T value = c.input(0).data<T>()[i];
        // A NaN counts as the lowest.
        const double at =
            low < value ? (static_cast<double>(value) - static_cast<double>(low)) / step : 0;
        // Infinite by infinite, or 0 by 0, is no number: in the last one, too.
        const int64_t bin = at < static_cast<double>(bins) ? static_cast<int64_t>(at) : bins - 1;
        SetIndex(out, bin, IndexAt(*out, bin) + 1);
      }
    });
    return Status();
  });
}

template <typename T>
class BucketizeKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const auto& boundaries = k.attr<std::vector<float>>("boundaries");
    if (!std::is_sorted(boundaries.begin(), boundaries.end()))
      return InvalidArgument("Expected sorted boundaries");
    auto kernel = std::make_unique<BucketizeKernel>();
    kernel->boundaries_ = boundaries;
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    const T* const from = input.data<T>();
    auto* const to = output->data<int32_t>();
    c.ParallelFor(input.elements(), 5 + 5 * std::bit_width(boundaries_.size()),
                  [&](int64_t begin, int64_t end) {
                    InPieces(c, end - begin, [&](int64_t first, int64_t last) {
                      for (int64_t i = begin + first; i < begin + last; ++i) {
                        const auto above =
                            std::upper_bound(boundaries_.begin(), boundaries_.end(), from[i]);
                        to[i] = static_cast<int32_t>(above - boundaries_.begin());
                      }
                    });
                  });
    return Status();
  }

 private:
  std::vector<float> boundaries_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr DType kCounted[] = {DT_INT32, DT_INT64, DT_FLOAT, DT_DOUBLE};
  AddForTypes<FunctionKernel<TopKRows>>(registry, {.op = "TopK"}, "T", kRealTypes);
  AddForTypes<FunctionKernel<TopKRows>>(registry, {.op = "TopKV2", .host_args = {"k"}}, "T",
                                        kRealTypes);
  AddForTypes<FunctionKernel<NthOfRows>>(registry, {.op = "NthElement", .host_args = {"n"}}, "T",
                                         kRealTypes);
  AddForTypes<FunctionKernel<Bounds<false>>>(registry, {.op = "LowerBound"}, "T", kRealTypes);
  AddForTypes<FunctionKernel<Bounds<true>>>(registry, {.op = "UpperBound"}, "T", kRealTypes);
#define MG_ADD(T) \
  registry->Add<BucketizeKernel<T>>({.op = "Bucketize", .types = {{"T", kDTypeOf<T>}}});
  MG_ADD(int32_t)
  MG_ADD(int64_t)
  MG_ADD(float)
  MG_ADD(double)
#undef MG_ADD
  AddForTypes<FunctionKernel<BincountOf>>(registry, {.op = "Bincount", .host_args = {"size"}}, "T",
                                          kCounted);
  AddForTypes<FunctionKernel<HistogramOf>>(
      registry, {.op = "HistogramFixedWidth", .host_args = {"nbins"}}, "T", kCounted);
}

}  // namespace monograph::ops::order
