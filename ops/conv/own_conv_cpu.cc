#include "ops/conv/own_conv_cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>

#include "ops/conv/avx512_tiles.h"

namespace monograph::ops::conv {

namespace {

using avx512::Image;
using avx512::kLanes;
using avx512::kPoints;

Result<Tensor> Floats(KernelContext& c, int64_t count) {
  return c.AllocateTemp(DT_FLOAT, Shape{count});
}

// fn(begin, end) over ranges of [0, count), `flops` for each. The first error is returned.
template <typename Fn>
Status ForRanges(KernelContext& c, int64_t count, int64_t flops, const Fn& fn) {
  std::mutex mutex;
  Status status;
  const auto body = [&](int64_t begin, int64_t end) {
    if (Status one = fn(begin, end); !one.ok()) {
      std::lock_guard lock(mutex);
      status.Update(one);
    }
  };
  c.ParallelFor(count, 1 + flops / 60, std::ref(body));
  return status;
}

// Into how many sums, each over a run of equal length, a filter's gradient is cut. From the shape
// alone, so that its bits do not depend on threads.
struct Runs {
  Runs(int64_t of, int64_t most) : units(of), length((of + most - 1) / most) {}
  int64_t count() const { return (units + length - 1) / length; }
  int64_t begin(int64_t run) const { return run * length; }
  int64_t end(int64_t run) const { return std::min(units, (run + 1) * length); }
  int64_t units, length;
};

void AddTo(float* __restrict sum, const float* __restrict more, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += more[i];
}

bool Plain(const Window& w) { return w.stride == 1 && w.dilation == 1 && w.pad_before < w.size; }
// Many channels; but filters that are too large would not stay in the cache.
bool ManyChannels(const Geometry& g) {
  return g.ic % kLanes == 0 && g.oc % kLanes == 0 && g.ic * g.oc <= 64 * 128;
}
Image In(const Geometry& g) { return {g.rows.in, g.columns.in, g.ic}; }
Image Out(const Geometry& g) { return {g.rows.out, g.columns.out, g.oc}; }

// The filter from output to input channels; `flip`: its last element first.
Result<Tensor> Turned(KernelContext& c, const Geometry& g, const float* filter, bool flip) {
  MG_ASSIGN_OR_RETURN(Tensor turned, Floats(c, g.filter()));
  const int64_t pairs = g.ic * g.oc, pixels = g.rows.size * g.columns.size;
  for (int64_t p = 0; p < pixels; ++p) {
    const float* from = filter + (flip ? pixels - 1 - p : p) * pairs;
    float* to = turned.data<float>() + p * pairs;
    for (int64_t i = 0; i < g.ic; ++i) {
      for (int64_t o = 0; o < g.oc; ++o) to[o * g.ic + i] = from[i * g.oc + o];
    }
  }
  return turned;
}

// ---- Winograd
// ------------------------------------------------------------------------------------------------------

class Winograd {
 public:
  explicit Winograd(const Geometry& g)
      : g_(g), size_(static_cast<int>(g.rows.size)), tile_(7 - size_) {}

  static bool Fits(const Geometry& g) {
    const Window &h = g.rows, &w = g.columns;
    if (!Plain(h) || !Plain(w) || h.size != w.size || (h.size != 3 && h.size != 5)) return false;
    // Borders of tiles beyond the image are lost work.
    return ManyChannels(g) && g.n * Tiles(g) >= 32 &&
           2 * h.out * w.out >= Tiles(g) * (7 - h.size) * (7 - h.size);
  }
  // Multiplications for each pair of channels and image.
  static int64_t Products(const Geometry& g) { return kPoints * Tiles(g); }

  Result<bool> Forward(KernelContext& c, const float* input, const float* filter, const float* bias,
                       bool relu, float* out) const {
    return Convolve(c, In(g_), input, g_.rows.pad_before, g_.columns.pad_before, filter, bias, relu,
                    Out(g_), out);
  }

  Result<bool> InputGradient(KernelContext& c, const float* dy, const float* filter,
                             float* dx) const {
    MG_ASSIGN_OR_RETURN(Tensor turned, Turned(c, g_, filter, /*flip=*/true));
    return Convolve(c, Out(g_), dy, size_ - 1 - g_.rows.pad_before,
                    size_ - 1 - g_.columns.pad_before, turned.data<float>(), nullptr, false, In(g_),
                    dx);
  }

  Result<bool> FilterGradient(KernelContext& c, const float* input, const float* dy,
                              float* gradient) const {
    const int64_t pairs = g_.ic * g_.oc, all = kPoints * pairs;
    const Rows rows(*this, Out(g_), g_.ic + g_.oc);
    const Runs runs(rows.blocks(), 8);
    MG_ASSIGN_OR_RETURN(Tensor partial, Floats(c, runs.count() * all));
    float* const sums = partial.data<float>();
    MG_RETURN_IF_ERROR(ForRanges(
        c, runs.count(), Flops(rows.total) / runs.count(),
        [&](int64_t begin, int64_t end) -> Status {
          MG_ASSIGN_OR_RETURN(Tensor v, rows.Place(c, g_.ic));
          MG_ASSIGN_OR_RETURN(Tensor d, rows.Place(c, g_.oc));
          for (int64_t run = begin; run < end; ++run) {
            for (int64_t block = runs.begin(run); block < runs.end(run); ++block) {
              const avx512::Tiles from = rows.Of(block, v, g_.ic), with = rows.Of(block, d, g_.oc);
              rows.ForEach(block, [&](int64_t n, int64_t row, int64_t first) {
                avx512::Spread(In(g_), input + n * g_.input_image(),
                               row * tile_ - g_.rows.pad_before, -g_.columns.pad_before, tile_,
                               rows.Row(from, first, g_.ic));
                avx512::ExpandTiles(tile_, Out(g_), dy + n * g_.output_image(), row * tile_,
                                    rows.Row(with, first, g_.oc));
              });
              for (int64_t p = 0; p < kPoints; ++p) {
                avx512::Multiply({.rows = g_.ic,
                                  .columns = g_.oc,
                                  .depth = from.count,
                                  .a = from.data + p * from.stride,
                                  .a_row = 1,
                                  .a_step = g_.ic,
                                  .b = with.data + p * with.stride,
                                  .b_step = g_.oc,
                                  .c = sums + run * all + p * pairs,
                                  .c_row = g_.oc,
                                  .accumulate = block != runs.begin(run)});
              }
            }
          }
          return Status();
        }));
    for (int64_t run = 1; run < runs.count(); ++run) AddTo(sums, sums + run * all, all);
    return avx512::ContractFilter(size_, sums, pairs, gradient);
  }

 private:
  static int64_t Tiled(int64_t side, int64_t tile) { return (side + tile - 1) / tile; }
  static int64_t Tiles(const Geometry& g) {
    return Tiled(g.rows.out, 7 - g.rows.size) * Tiled(g.columns.out, 7 - g.rows.size);
  }
  int64_t Flops(int64_t rows) const {
    return 2 * kPoints * rows * Tiled(g_.columns.out, tile_) * g_.ic * g_.oc;
  }

  // The rows of tiles of all images, in blocks whose points fit the second-level cache, beside a
  // filter's.
  struct Rows {
    Rows(const Winograd& w, const Image& tiled, int64_t channels)
        : down(Tiled(tiled.height, w.tile_)),
          across(Tiled(tiled.width, w.tile_)),
          total(w.g_.n * down),
          per_block(
              std::clamp<int64_t>(kCacheBytes / (4 * kPoints * across * channels), 1, total)) {}

    int64_t blocks() const { return (total + per_block - 1) / per_block; }
    // Room for a block with so many channels. Points are not a power of two apart, which would put
    // them all into the same lines of the cache.
    int64_t Stride(int64_t channels) const { return per_block * across * channels + kLanes; }
    Result<Tensor> Place(KernelContext& c, int64_t channels) const {
      return Floats(c, kPoints * Stride(channels));
    }
    avx512::Tiles Of(int64_t block, Tensor& place, int64_t channels) const {
      const int64_t rows = std::min(total, (block + 1) * per_block) - block * per_block;
      return {place.data<float>(), Stride(channels), rows * across};
    }
    avx512::Tiles Row(const avx512::Tiles& block, int64_t first, int64_t channels) const {
      return {block.data + first * channels, block.stride, across};
    }
    // fn(image, row of tiles in it, its first tile in the block)
    template <typename Fn>
    void ForEach(int64_t block, const Fn& fn) const {
      const int64_t begin = block * per_block, end = std::min(total, begin + per_block);
      for (int64_t row = begin; row < end; ++row)
        fn(row / down, row % down, (row - begin) * across);
    }

    static constexpr int64_t kCacheBytes = 512 << 10;
    int64_t down, across, total, per_block;
  };

  // `filter` is HWIO, from the channels of `in` to those of `out`.
  Result<bool> Convolve(KernelContext& c, const Image& in, const float* input, int64_t pad_rows,
                        int64_t pad_columns, const float* filter, const float* bias, bool relu,
                        const Image& out, float* output) const {
    const int64_t pairs = in.channels * out.channels;
    MG_ASSIGN_OR_RETURN(Tensor points, Floats(c, kPoints * pairs));
    const float* const u = points.data<float>();
    avx512::ExpandFilter(size_, filter, pairs, points.data<float>());
    const Rows rows(*this, out, in.channels + out.channels);
    std::atomic<bool> finite = true;
    MG_RETURN_IF_ERROR(ForRanges(
        c, rows.blocks(), Flops(rows.per_block), [&](int64_t begin, int64_t end) -> Status {
          MG_ASSIGN_OR_RETURN(Tensor v, rows.Place(c, in.channels));
          MG_ASSIGN_OR_RETURN(Tensor m, rows.Place(c, out.channels));
          for (int64_t block = begin; block < end; ++block) {
            const avx512::Tiles from = rows.Of(block, v, in.channels),
                                to = rows.Of(block, m, out.channels);
            rows.ForEach(block, [&](int64_t n, int64_t row, int64_t first) {
              avx512::Spread(in, input + n * in.floats(), row * tile_ - pad_rows, -pad_columns,
                             tile_, rows.Row(from, first, in.channels));
            });
            for (int64_t p = 0; p < kPoints; ++p) {
              avx512::Multiply({.rows = from.count,
                                .columns = out.channels,
                                .depth = in.channels,
                                .a = from.data + p * from.stride,
                                .a_row = in.channels,
                                .a_step = 1,
                                .b = u + p * pairs,
                                .b_step = out.channels,
                                .c = to.data + p * to.stride,
                                .c_row = out.channels});
            }
            rows.ForEach(block, [&](int64_t n, int64_t row, int64_t first) {
              if (!avx512::ContractTiles(tile_, rows.Row(to, first, out.channels), bias, relu, out,
                                         output + n * out.floats(), row * tile_))
                finite = false;
            });
          }
          return Status();
        }));
    return finite.load();
  }

  const Geometry& g_;
  const int size_, tile_;  // sides of the filter and of a tile of the output
};

// ---- Fourier
// -------------------------------------------------------------------------------------------------------

// Whole images, by their transforms. The products of a plane need no other plane, so that a
// filter's gradient is one sum over all images of a block, in their order.
class Fourier {
 public:
  explicit Fourier(const Geometry& g)
      : g_(g),
        pairs_(g.ic * g.oc),
        filter_{g.rows.size, g.columns.size, g.rows.pad_before, g.columns.pad_before} {}

  static bool Fits(const Geometry& g) {
    return Period(g.rows) && Period(g.columns) && ManyChannels(g) && g.n >= 8;
  }
  static constexpr int64_t kProducts = 4 * avx512::kComplexPoints + 4;

  Result<bool> Forward(KernelContext& c, const float* input, const float* filter, const float* bias,
                       bool relu, float* out) const {
    return Convolve(c, In(g_), input, filter, false, bias, relu, Out(g_), out);
  }
  Result<bool> InputGradient(KernelContext& c, const float* dy, const float* filter,
                             float* dx) const {
    MG_ASSIGN_OR_RETURN(Tensor turned, Turned(c, g_, filter, /*flip=*/false));
    return Convolve(c, Out(g_), dy, turned.data<float>(), true, nullptr, false, In(g_), dx);
  }

  Result<bool> FilterGradient(KernelContext& c, const float* input, const float* dy,
                              float* gradient) const {
    const Blocks blocks(g_, 16 << 20);
    MG_ASSIGN_OR_RETURN(Tensor sums, Floats(c, kPlanes * pairs_));
    MG_ASSIGN_OR_RETURN(Tensor x, blocks.Place(c, g_.ic));
    MG_ASSIGN_OR_RETURN(Tensor d, blocks.Place(c, g_.oc));
    for (int64_t first = 0; first < g_.n; first += blocks.images) {
      const int64_t images = std::min(blocks.images, g_.n - first);
      MG_RETURN_IF_ERROR(Transform(c, blocks, In(g_), input, first, &x));
      MG_RETURN_IF_ERROR(Transform(c, blocks, Out(g_), dy, first, &d));
      MG_RETURN_IF_ERROR(Multiply(c, {.rows = g_.ic,
                                      .columns = g_.oc,
                                      .depth = images,
                                      .a = x.data<float>(),
                                      .a_imaginary = blocks.Stride(g_.ic),
                                      .a_row = 1,
                                      .a_step = g_.ic,
                                      .b = d.data<float>(),
                                      .b_imaginary = blocks.Stride(g_.oc),
                                      .b_step = g_.oc,
                                      .c = sums.data<float>(),
                                      .c_imaginary = pairs_,
                                      .c_row = g_.oc,
                                      .accumulate = first > 0}));
    }
    return avx512::FilterFromFourier(filter_, sums.data<float>(), kScale, pairs_, gradient);
  }

 private:
  static constexpr int64_t kPeriod = avx512::kPeriod, kPlanes = avx512::kPlanes;
  static constexpr float kScale = 1.f / static_cast<float>(kPlanes);

  // Whether what a window sees beyond one end is, a period further, a zero beyond the other: in the
  // image, and in the result's gradient.
  static bool Period(const Window& w) {
    return Plain(w) && w.in + w.pad_before <= kPeriod &&
           w.out + w.size - 1 - w.pad_before <= kPeriod;
  }

  // Images that are transformed before the products of all.
  struct Blocks {
    Blocks(const Geometry& g, int64_t bytes) {
      const int64_t most = std::clamp<int64_t>(bytes / (4 * kPlanes * (g.ic + g.oc)), 1, g.n),
                    count = (g.n + most - 1) / most;
      images = (g.n + count - 1) / count;
    }
    // Between planes; not a power of two, which would put them all into the same lines of a cache.
    int64_t Stride(int64_t channels) const { return images * channels + kLanes; }
    Result<Tensor> Place(KernelContext& c, int64_t channels) const {
      return Floats(c, kPlanes * Stride(channels));
    }
    int64_t images;
  };

  Status Transform(KernelContext& c, const Blocks& blocks, const Image& shape, const float* images,
                   int64_t first, Tensor* planes) const {
    const int64_t count = std::min(blocks.images, g_.n - first);
    return ForRanges(c, count, kTransformFlops * shape.channels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        avx512::ToFourier(shape, images + (first + i) * shape.floats(),
                          planes->data<float>() + i * shape.channels,
                          blocks.Stride(shape.channels));
      }
      return Status();
    });
  }

  // `first` is the product of the first complex plane; the last four planes are real.
  Status Multiply(KernelContext& c, const avx512::ComplexProduct& first) const {
    constexpr int64_t kComplex = avx512::kComplexPoints;
    const int64_t flops = 8 * first.rows * first.columns * first.depth;
    return ForRanges(c, kComplex + 1, flops, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < std::min(end, kComplex); ++p) {
        avx512::ComplexProduct product = first;
        product.a += 2 * p * first.a_imaginary;
        product.b += 2 * p * first.b_imaginary;
        product.c += 2 * p * first.c_imaginary;
        avx512::MultiplyByConjugate(product);
      }
      for (int64_t p = 2 * kComplex; end > kComplex && p < kPlanes; ++p) {
        avx512::Multiply({.rows = first.rows,
                          .columns = first.columns,
                          .depth = first.depth,
                          .a = first.a + p * first.a_imaginary,
                          .a_row = first.a_row,
                          .a_step = first.a_step,
                          .b = first.b + p * first.b_imaginary,
                          .b_step = first.b_step,
                          .c = first.c + p * first.c_imaginary,
                          .c_row = first.c_row,
                          .accumulate = first.accumulate});
      }
      return Status();
    });
  }

  // `filter` is HWIO, from the channels of `in` to those of `out`.
  Result<bool> Convolve(KernelContext& c, const Image& in, const float* input, const float* filter,
                        bool conjugate, const float* bias, bool relu, const Image& out,
                        float* output) const {
    const Blocks blocks(g_, 2 << 20);
    MG_ASSIGN_OR_RETURN(Tensor u, Floats(c, kPlanes * pairs_));
    MG_ASSIGN_OR_RETURN(Tensor v, blocks.Place(c, in.channels));
    MG_ASSIGN_OR_RETURN(Tensor m, blocks.Place(c, out.channels));
    avx512::FilterToFourier(filter_, filter, conjugate, pairs_, u.data<float>());
    std::atomic<bool> finite = true;
    for (int64_t first = 0; first < g_.n; first += blocks.images) {
      const int64_t images = std::min(blocks.images, g_.n - first);
      MG_RETURN_IF_ERROR(Transform(c, blocks, in, input, first, &v));
      MG_RETURN_IF_ERROR(Multiply(c, {.rows = images,
                                      .columns = out.channels,
                                      .depth = in.channels,
                                      .a = v.data<float>(),
                                      .a_imaginary = blocks.Stride(in.channels),
                                      .a_row = in.channels,
                                      .a_step = 1,
                                      .b = u.data<float>(),
                                      .b_imaginary = pairs_,
                                      .b_step = out.channels,
                                      .c = m.data<float>(),
                                      .c_imaginary = blocks.Stride(out.channels),
                                      .c_row = out.channels}));
      MG_RETURN_IF_ERROR(
          ForRanges(c, images, kTransformFlops * out.channels, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              if (!avx512::FromFourier(m.data<float>() + i * out.channels,
                                       blocks.Stride(out.channels), kScale, bias, relu, out,
                                       output + (first + i) * out.floats()))
                finite = false;
            }
            return Status();
          }));
    }
    return finite.load();
  }

  static constexpr int64_t kTransformFlops = 10'000;  // of one channel, about, with its moves

  const Geometry& g_;
  const int64_t pairs_;
  const avx512::Filter filter_;
};

// ---- few input channels
// --------------------------------------------------------------------------------------------

// Without reordering: a row of a window is a run of adjacent numbers of the padded image.
class FewChannels {
 public:
  explicit FewChannels(const Geometry& g)
      : g_(g),
        pitch_(((g.columns.out - 1) * g.columns.stride + g.columns.size) * g.ic),
        height_((g.rows.out - 1) * g.rows.stride + g.rows.size),
        run_(g.columns.size * g.ic) {}

  static bool Fits(const Geometry& g) {
    return g.ic <= 4 && g.oc % kLanes == 0 && g.rows.dilation == 1 && g.columns.dilation == 1 &&
           g.n * g.rows.out * g.columns.out >= 512;
  }

  Result<bool> Forward(KernelContext& c, const float* input, const float* filter, const float* bias,
                       bool relu, float* out) const {
    std::atomic<bool> finite = true;
    MG_RETURN_IF_ERROR(
        ForRanges(c, g_.n, g_.flops_per_image(), [&](int64_t begin, int64_t end) -> Status {
          MG_ASSIGN_OR_RETURN(Tensor padded, Zeros(c));
          for (int64_t n = begin; n < end; ++n) {
            Pad(input + n * g_.input_image(), padded.data<float>());
            for (int64_t y = 0; y < g_.rows.out; ++y) {
              if (!avx512::Multiply({.rows = g_.columns.out,
                                     .columns = g_.oc,
                                     .outer = g_.rows.size,
                                     .depth = run_,
                                     .a = padded.data<float>() + y * g_.rows.stride * pitch_,
                                     .a_outer = pitch_,
                                     .a_row = g_.columns.stride * g_.ic,
                                     .a_step = 1,
                                     .b = filter,
                                     .b_outer = run_ * g_.oc,
                                     .b_step = g_.oc,
                                     .c = out + n * g_.output_image() + y * g_.columns.out * g_.oc,
                                     .c_row = g_.oc,
                                     .bias = bias,
                                     .relu = relu,
                                     .check = true}))
                finite = false;
            }
          }
          return Status();
        }));
    return finite.load();
  }

  Result<bool> FilterGradient(KernelContext& c, const float* input, const float* dy,
                              float* gradient) const {
    const Runs runs(g_.n, 16);
    MG_ASSIGN_OR_RETURN(Tensor partial, Floats(c, runs.count() * g_.filter()));
    float* const sums = partial.data<float>();
    // As many rows of dy at once as stay in the first-level cache.
    const int64_t most = std::max<int64_t>(1, (16 << 10) / (4 * g_.columns.out * g_.oc));
    MG_RETURN_IF_ERROR(ForRanges(
        c, runs.count(), runs.length * g_.flops_per_image(),
        [&](int64_t begin, int64_t end) -> Status {
          MG_ASSIGN_OR_RETURN(Tensor padded, Zeros(c));
          for (int64_t n = runs.begin(begin); n < runs.end(end - 1); ++n) {
            const int64_t run = n / runs.length;
            Pad(input + n * g_.input_image(), padded.data<float>());
            for (int64_t y = 0; y < g_.rows.out; y += most) {
              for (int64_t r = 0; r < g_.rows.size; ++r) {
                avx512::Multiply({.rows = run_,
                                  .columns = g_.oc,
                                  .outer = std::min(most, g_.rows.out - y),
                                  .depth = g_.columns.out,
                                  .a = padded.data<float>() + (y * g_.rows.stride + r) * pitch_,
                                  .a_outer = g_.rows.stride * pitch_,
                                  .a_row = 1,
                                  .a_step = g_.columns.stride * g_.ic,
                                  .b = dy + n * g_.output_image() + y * g_.columns.out * g_.oc,
                                  .b_outer = g_.columns.out * g_.oc,
                                  .b_step = g_.oc,
                                  .c = sums + run * g_.filter() + r * run_ * g_.oc,
                                  .c_row = g_.oc,
                                  .accumulate = y > 0 || n > runs.begin(run)});
              }
            }
          }
          return Status();
        }));
    for (int64_t run = 1; run < runs.count(); ++run)
      AddTo(sums, sums + run * g_.filter(), g_.filter());
    std::copy_n(sums, g_.filter(), gradient);
    return std::all_of(sums, sums + g_.filter(), [](float x) { return std::isfinite(x); });
  }

 private:
  Result<Tensor> Zeros(KernelContext& c) const {
    MG_ASSIGN_OR_RETURN(Tensor padded, Floats(c, height_ * pitch_));
    std::memset(padded.raw(), 0, padded.bytes());
    return padded;
  }
  // What windows see of an image; `padded` is 0 around it.
  void Pad(const float* image, float* padded) const {
    const Window &h = g_.rows, &w = g_.columns;
    const int64_t rows = std::min(h.in, height_ - h.pad_before),
                  floats = std::min(w.in * g_.ic, pitch_ - w.pad_before * g_.ic);
    for (int64_t y = 0; y < rows; ++y) {
      std::copy_n(image + y * w.in * g_.ic, floats,
                  padded + (y + h.pad_before) * pitch_ + w.pad_before * g_.ic);
    }
  }

  const Geometry& g_;
  const int64_t pitch_, height_;  // of the padded image, in floats and in rows
  const int64_t run_;             // floats of a row of a window
};

// The one with the fewest multiplications, where they are fewer by so much that the transforms pay.
enum class Way { kNone, kWinograd, kFourier, kFewChannels };

Way WayOf(Mode mode, const Geometry& g) {
  if (!avx512::Supported() || g.nchw) return Way::kNone;
  const bool winograd = Winograd::Fits(g);
  const int64_t others =
      winograd ? Winograd::Products(g) : g.rows.out * g.columns.out * g.rows.size * g.columns.size;
  if (Fourier::Fits(g) && 2 * Fourier::kProducts <= others) return Way::kFourier;
  if (winograd) return Way::kWinograd;
  return mode != Mode::kBackpropInput && FewChannels::Fits(g) ? Way::kFewChannels : Way::kNone;
}

template <typename Own>
Result<bool> Run(const Own& own, KernelContext& c, Mode mode, const FusedOps& fused,
                 const float* input, const float* filter, const float* bias, const float* dy,
                 float* out) {
  if (mode == Mode::kForward) return own.Forward(c, input, filter, bias, fused.relu, out);
  if constexpr (requires { own.InputGradient(c, dy, filter, out); }) {
    if (mode == Mode::kBackpropInput) return own.InputGradient(c, dy, filter, out);
  }
  return own.FilterGradient(c, input, dy, out);
}

}  // namespace

bool HasOwn(Mode mode, const Geometry& g) { return WayOf(mode, g) != Way::kNone; }

Result<bool> RunOwn(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused,
                    const float* input, const float* filter, const float* bias, const float* dy,
                    float* out) {
  switch (WayOf(mode, g)) {
    case Way::kWinograd:
      return Run(Winograd(g), c, mode, fused, input, filter, bias, dy, out);
    case Way::kFourier:
      return Run(Fourier(g), c, mode, fused, input, filter, bias, dy, out);
    case Way::kFewChannels:
      return Run(FewChannels(g), c, mode, fused, input, filter, bias, dy, out);
    case Way::kNone:
      break;
  }
  return false;
}

}  // namespace monograph::ops::conv
