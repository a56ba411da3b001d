// Fractional pooling (Graham, "Fractional Max-Pooling", 2014): rows and columns are cut at random
// into cells of k or k + 1 elements, where k is the whole part of the ratio, and each cell of the
// image gives its largest element, or their mean. A pooling sequence has the places of the cuts,
// with 0 in front and the size behind; its numbers and the order of sums are TensorFlow's.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/pool/fractional_pool.h"
#include "ops/random/philox_stream.h"

namespace monograph::ops::pool {

void RegisterFractional(KernelRegistry* registry);

namespace {

using random::PhiloxStream;
using random::PhiloxWords;

// Integers wrap around.
template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T Mean(T sum, int64_t count) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(int64_t{sum} / count);
  } else {
    return sum / static_cast<T>(count);
  }
}

// The nearest value that there is.
template <typename T>
T Clamped(double value) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    if (value >= static_cast<double>(Limits::max())) return Limits::max();
    if (value <= static_cast<double>(Limits::min())) return Limits::min();
  }
  return static_cast<T>(value);
}

// The cells of rows or columns.
struct Cells {
  const int64_t* cuts;
  int64_t count, size;
  bool overlapping;  // a cell has the first element of the next one, too

  int64_t begin(int64_t i) const { return cuts[i]; }
  int64_t end(int64_t i) const { return std::min(cuts[i + 1] + (overlapping ? 1 : 0), size); }

  // Of a sequence that somebody gives.
  static Result<Cells> Of(const KernelContext& c, int input, int64_t count, int64_t size,
                          bool overlapping) {
    const Tensor& sequence = c.input(input);
    const auto wrong = [&](const std::string& what) {
      return InvalidArgument("pooling sequence (input " + std::to_string(input) + ") " + what);
    };
    if (sequence.shape().rank() != 1 || sequence.elements() != count + 1) {
      return wrong("must have shape [" + std::to_string(count + 1) + "], not " +
                   sequence.shape().ToString());
    }
    const int64_t* const cuts = sequence.data<int64_t>();
    Looks looks(c);
    for (int64_t i = 0; i <= count; ++i) {
      if (!looks.GoOn(2)) return StepAborted();
      if (cuts[i] < 0 || cuts[i] > size || (i > 0 && cuts[i] <= cuts[i - 1])) {
        return wrong("must grow, from 0 or above to " + std::to_string(size) +
                     " or below; element " + std::to_string(i) + " is " + std::to_string(cuts[i]));
      }
    }
    return Cells{cuts, count, size, overlapping};
  }
};

// Lengths of `count` cells of `size` elements in random order. Reads `count` words.
bool DrawLengths(Looks* looks, int64_t size, int64_t count, PhiloxWords words, int64_t* lengths) {
  for (int64_t i = 0; i < count; ++i) {
    if (!looks->GoOn(1)) return false;
    lengths[i] = size / count + (i < size % count ? 1 : 0);
  }
  for (int64_t i = 0; i + 1 < count; ++i) {
    if (!looks->GoOn(10)) return false;
    std::swap(lengths[i], lengths[i + words.Next() % static_cast<uint32_t>(count - i)]);
  }
  return true;
}

// The same by one random number u: the cuts are the ratio times i + u, rounded up, where u is so
// small that the first and last cell are no larger than the others.
bool DrawLengthsByShift(Looks* looks, int64_t size, int64_t count, PhiloxWords words,
                        int64_t* lengths) {
  const double ratio = static_cast<double>(size) / static_cast<double>(count);
  const int64_t shorter = size / count;
  const auto k = static_cast<double>(shorter);
  const double most = std::min((k + 2) / ratio - 1, (static_cast<double>(size) + 1 - k) / ratio -
                                                        (static_cast<double>(count) - 1));
  const uint32_t first = words.Next(), second = words.Next();
  const double u = random::UnitValue<double>(first, second) * most;
  int64_t before = 1;
  for (int64_t i = 1; i <= count; ++i) {
    if (!looks->GoOn(5)) return false;
    const int64_t cut = i == count
                            ? size + 1
                            : static_cast<int64_t>(std::ceil(ratio * (static_cast<double>(i) + u)));
    lengths[i - 1] = cut - before;
    before = cut;
  }
  return true;
}

// For the cells of rows [begin, end), counted over all images: cell(number of the cell, count of
// its elements, each), where each(fn) calls fn(offset in the image batch, in channels' vectors).
template <typename Fn>
void ForCells(const KernelContext& c, const Cells& rows, const Cells& columns, int64_t channels,
              int64_t begin, int64_t end, const Fn& cell) {
  Looks looks(c);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / rows.count, r = row % rows.count;
    const int64_t height = rows.end(r) - rows.begin(r);
    for (int64_t i = 0; i < columns.count; ++i) {
      const int64_t elements = height * (columns.end(i) - columns.begin(i));
      if (!looks.GoOn(1 + elements * channels)) return;
      cell(row * columns.count + i, elements, [&](const auto& fn) {
        for (int64_t h = rows.begin(r); h < rows.end(r); ++h) {
          for (int64_t w = columns.begin(i); w < columns.end(i); ++w)
            fn((image * rows.size + h) * columns.size + w);
        }
      });
    }
  }
}

template <typename T, bool kMax>
class PoolKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::unique_ptr<PoolKernel>(new PoolKernel(k));
    MG_RETURN_IF_ERROR(CheckPoolingRatios(kernel->ratios_, kMax));
    if (!kernel->deterministic_ && (kernel->seed_ != 0 || kernel->seed2_ != 0)) {
      return InvalidArgument("Both seed and seed2 should be 0 if deterministic is false.");
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Tensor& value = c.input(0);
    Shape shape = value.shape();
    if (shape.rank() != 4) {
      return InvalidArgument("tensor_in must be 4-dimensional, got shape " + shape.ToString());
    }
    for (int d = 0; d < 4; ++d) {
      const float ratio = ratios_[static_cast<size_t>(d)];
      if (shape[d] > std::numeric_limits<int32_t>::max())
        return InvalidArgument("tensor_in is too large: " + shape.ToString());
      if (static_cast<float>(shape[d]) < ratio) {
        return InvalidArgument("Pooling ratio is higher than input dimension size for dimension " +
                               std::to_string(d) + ". Input dim size: " + std::to_string(shape[d]) +
                               " pooling ratio: " + std::to_string(ratio));
      }
    }
    const int64_t height = shape[1], width = shape[2], channels = shape[3];
    shape.set_dim(1, FractionOf(height, ratios_[1]));
    shape.set_dim(2, FractionOf(width, ratios_[2]));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    MG_ASSIGN_OR_RETURN(Tensor * row_cuts, c.AllocateOutput(1, Shape{shape[1] + 1}));
    MG_ASSIGN_OR_RETURN(Tensor * column_cuts, c.AllocateOutput(2, Shape{shape[2] + 1}));
    PhiloxStream stream = StreamOfRun(c);
    if (!Draw(c, height, &stream, row_cuts) || !Draw(c, width, &stream, column_cuts))
      return StepAborted();
    if (out->elements() == 0) return Status();
    const Cells rows{row_cuts->data<int64_t>(), shape[1], height, overlapping_};
    const Cells columns{column_cuts->data<int64_t>(), shape[2], width, overlapping_};
    const T* x = value.data<T>();
    T* y = out->data<T>();
    const auto body = [&](int64_t begin, int64_t end) {
      ForCells(c, rows, columns, channels, begin, end,
               [&](int64_t cell, int64_t count, const auto& each) {
                 T* const to = y + cell * channels;
                 std::fill_n(to, channels, kMax ? std::numeric_limits<T>::lowest() : T(0));
                 each([&](int64_t at) {
                   const T* const from = x + at * channels;
                   for (int64_t k = 0; k < channels; ++k)
                     to[k] = kMax ? std::max(to[k], from[k]) : Sum(to[k], from[k]);
                 });
                 if constexpr (!kMax) {
                   for (int64_t k = 0; k < channels; ++k) to[k] = Mean(to[k], count);
                 }
               });
    };
    c.ParallelFor(shape[0] * shape[1], 1 + width * channels * height / shape[1], std::ref(body));
    return Status();
  }

 private:
  explicit PoolKernel(const KernelConstruction& k)
      : ratios_(k.attr<std::vector<float>>("pooling_ratio")),
        by_shift_(k.attr<bool>("pseudo_random")),
        overlapping_(k.attr<bool>("overlapping")),
        deterministic_(k.attr<bool>("deterministic")),
        seed_(static_cast<uint64_t>(k.attr<int64_t>("seed"))),
        seed2_(static_cast<uint64_t>(k.attr<int64_t>("seed2"))),
        of_node_(0, 0, k.node_name(), 0) {}

  // With `deterministic` each run has the same.
  PhiloxStream StreamOfRun(const KernelContext& c) {
    if (seed_ != 0 || seed2_ != 0) return PhiloxStream(seed_, 0, seed2_);
    if (deterministic_) return PhiloxStream(of_node_.key, 0, 0);
    return PhiloxStream(of_node_.key, runs_.fetch_add(1) << 32, c.step_id());
  }

  // The cuts of `size` elements into the cells that `cuts` has room for. False: aborted.
  bool Draw(const KernelContext& c, int64_t size, PhiloxStream* stream, Tensor* cuts) const {
    const int64_t count = cuts->elements() - 1;
    int64_t* const lengths = cuts->data<int64_t>() + 1;
    const PhiloxWords words(*stream);
    const auto taken = static_cast<uint64_t>(by_shift_ ? 1 : (count + 3) / 4);
    *stream = stream->After(taken);
    Looks looks(c);
    lengths[-1] = 0;
    if (!(by_shift_ ? DrawLengthsByShift : DrawLengths)(&looks, size, count, words, lengths))
      return false;
    for (int64_t i = 0; i < count; ++i) {
      if (!looks.GoOn(1)) return false;
      lengths[i] += lengths[i - 1];
    }
    return true;
  }

  const std::vector<float> ratios_;
  const bool by_shift_, overlapping_, deterministic_;
  const uint64_t seed_, seed2_;
  const random::RandomStream of_node_;
  std::atomic<uint64_t> runs_{0};
};

// Of the image: the pooled gradient `dy` and the cells. Its inputs begin at `first`.
struct GradientOf {
  const Tensor* dy;
  Cells rows, columns;

  static Result<GradientOf> Make(const KernelContext& c, const Shape& image, int first,
                                 bool overlapping) {
    const Tensor& dy = c.input(first);
    const Shape& pooled = dy.shape();
    if (image.rank() != 4 || pooled.rank() != 4 || image[0] != pooled[0] || image[3] != pooled[3]) {
      return InvalidArgument("the image and out_backprop must have 4 dimensions, and as many " +
                             std::string("images and channels; got ") + image.ToString() + " and " +
                             pooled.ToString());
    }
    MG_ASSIGN_OR_RETURN(const Cells rows,
                        Cells::Of(c, first + 1, pooled[1], image[1], overlapping));
    MG_ASSIGN_OR_RETURN(const Cells columns,
                        Cells::Of(c, first + 2, pooled[2], image[2], overlapping));
    return GradientOf{&dy, rows, columns};
  }
};

// The gradient of a cell goes to its first largest element, row by row.
template <typename T>
class MaxGradientKernel : public Kernel {
 public:
  explicit MaxGradientKernel(const KernelConstruction& k)
      : overlapping_(k.attr<bool>("overlapping")) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const GradientOf g, GradientOf::Make(c, shape, 2, overlapping_));
    if (!(c.input(1).shape() == g.dy->shape())) {
      return InvalidArgument("orig_output has shape " + c.input(1).shape().ToString() +
                             ", out_backprop " + g.dy->shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    const int64_t channels = shape[3], pixels = shape[1] * shape[2] * channels;
    const T *x = c.input(0).data<T>(), *dy = g.dy->data<T>();
    T* dx = out->data<T>();
    const auto body = [&](int64_t begin, int64_t end) {
      std::fill(dx + begin * pixels, dx + end * pixels, T(0));
      ForCells(c, g.rows, g.columns, channels, begin * g.rows.count, end * g.rows.count,
               [&](int64_t cell, int64_t, const auto& each) {
                 for (int64_t k = 0; k < channels; ++k) {
                   int64_t largest = -1;
                   each([&](int64_t at) {
                     const int64_t here = at * channels + k;
                     if (largest < 0 || x[largest] < x[here]) largest = here;
                   });
                   dx[largest] = Sum(dx[largest], dy[cell * channels + k]);
                 }
               });
    };
    c.ParallelFor(shape[0], 1 + 2 * pixels, std::ref(body));
    return Status();
  }

 private:
  const bool overlapping_;
};

// The gradient of a cell is shared out among its elements. Sums are of doubles.
template <typename T>
class AverageGradientKernel : public Kernel {
 public:
  explicit AverageGradientKernel(const KernelConstruction& k)
      : overlapping_(k.attr<bool>("overlapping")) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Tensor& dims = c.input(0);
    if (dims.shape().rank() != 1 || dims.elements() != 4) {
      return InvalidArgument(
          "original input tensor shape must be 1-dimensional with 4 elements, "
          "got shape " +
          dims.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.values<int64_t>()));
    MG_ASSIGN_OR_RETURN(const GradientOf g, GradientOf::Make(c, shape, 1, overlapping_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    Tensor sums = *out;
    if constexpr (!std::is_same_v<T, double>) {
      MG_ASSIGN_OR_RETURN(sums, c.AllocateTemp(DT_DOUBLE, shape));
    }
    const int64_t channels = shape[3], pixels = shape[1] * shape[2] * channels;
    const T* dy = g.dy->data<T>();
    T* dx = out->data<T>();
    double* sum = sums.data<double>();
    const auto body = [&](int64_t begin, int64_t end) {
      std::fill(sum + begin * pixels, sum + end * pixels, 0.0);
      ForCells(c, g.rows, g.columns, channels, begin * g.rows.count, end * g.rows.count,
               [&](int64_t cell, int64_t count, const auto& each) {
                 const T* const from = dy + cell * channels;
                 each([&](int64_t at) {
                   for (int64_t k = 0; k < channels; ++k) {
                     sum[at * channels + k] +=
                         static_cast<double>(from[k]) / static_cast<double>(count);
                   }
                 });
               });
      if constexpr (!std::is_same_v<T, double>) {
        std::transform(sum + begin * pixels, sum + end * pixels, dx + begin * pixels, Clamped<T>);
      }
    };
    c.ParallelFor(shape[0], 1 + 2 * pixels, std::ref(body));
    return Status();
  }

 private:
  const bool overlapping_;
};

}  // namespace

void RegisterFractional(KernelRegistry* registry) {
#define MG_ADD(T)                                                                                  \
  registry->Add<PoolKernel<T, true>>({.op = "FractionalMaxPool", .types = {{"T", kDTypeOf<T>}}});  \
  registry->Add<PoolKernel<T, false>>({.op = "FractionalAvgPool", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<MaxGradientKernel<T>>(                                                             \
      {.op = "FractionalMaxPoolGrad", .types = {{"T", kDTypeOf<T>}}});                             \
  registry->Add<AverageGradientKernel<T>>({.op = "FractionalAvgPoolGrad",                          \
                                           .types = {{"T", kDTypeOf<T>}},                          \
                                           .host_args = {"orig_input_tensor_shape"}});
  MG_ADD(float)
  MG_ADD(double)
  MG_ADD(int32_t)
  MG_ADD(int64_t)
#undef MG_ADD
}

}  // namespace monograph::ops::pool
