// A block of images at a time is transformed, multiplied at each frequency, and transformed back;
// all three are shared out among threads. A transform yields [frequency][image][2 C]: real parts of
// the channels, then imaginary parts. So a complex product X conj(W) is one real product with a
// matrix B (TransformFilter). The input's gradient is dY B^T; the filter's comes out of X^T dY.
//
// T is the type of images and filters, and of their spectra, which so take half the memory and half
// the time with bfloat16. Transforms, and sums of the filter's gradient, are of floats.
#include "ops/conv/fourier_conv_cpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>

#include "base/first_failure.h"
#include "ops/conv/fourier.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/plan_cache.h"
#include "ops/pool/max_gradient.h"

namespace monograph::ops::conv {
namespace {

using dnnl::memory;
using fourier::Extent;
using fourier::kLanes;
using fourier::Lanes;

constexpr int64_t kPair = 2 * kLanes;  // channels of one transform: two vectors
// Keeps matrices from being a power of two apart, which would put them into the same cache lines.
constexpr int64_t kGap = 16;
// Spectra of a block of images: about what a core's second-level cache holds. Blocks of 2.5 MB and
// of 10 MB take the same time within 5 %; blocks of 1 MB take 10 % longer.
constexpr int64_t kBlockBytes = 4 << 20;

Lanes Load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
void Store(float* to, Lanes v) { std::memcpy(to, &v, sizeof(v)); }

using Words = uint32_t __attribute__((vector_size(sizeof(Lanes))));
using HalfWords = uint16_t __attribute__((vector_size(sizeof(Lanes) / 2)));

Lanes Load(const bfloat16* from) {
  HalfWords upper;
  std::memcpy(&upper, from, sizeof(upper));
  return std::bit_cast<Lanes>(__builtin_convertvector(upper, Words) << 16);
}
// Rounded to the nearest. A NaN stays one: its lower half is zero, as in all that come of bfloat16.
void Store(bfloat16* to, Lanes v) {
  const Words bits = std::bit_cast<Words>(v);
  const auto upper = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, HalfWords);
  std::memcpy(static_cast<void*>(to), &upper, sizeof(upper));
}

// Pixels after which what a window sees beyond one border is the zeros beyond the other one; 0: too
// many.
int64_t Period(const Window& w) {
  const int64_t least = std::max(w.in + std::max(w.pad_before, w.pad_after), w.out);
  return least <= 16 ? 16 : least <= 32 ? 32 : 0;
}

// The transform of images with so many channels, for one image after another.
template <typename T>
struct Spectrum {
  int64_t channels, step;  // between frequencies
  Tensor memory;
  T* at(int64_t image) { return memory.data<T>() + image * 2 * channels; }
};

struct Images {
  Extent rows, columns;
  int64_t channels;
  int64_t floats() const { return rows.count * columns.count * channels; }
};

struct Sizes {
  // `size`: of an element, in bytes.
  Sizes(const Geometry& g, int64_t size)
      : n(std::max(Period(g.rows), Period(g.columns))),
        frequencies(fourier::Frequencies(n)),
        input{Whole(g.rows.in), Whole(g.columns.in), g.ic},
        output{Whole(g.rows.out), Whole(g.columns.out), g.oc},
        rows(Taps(g.rows)),
        columns(Taps(g.columns)),
        filter_step(4 * g.ic * g.oc + kGap) {
    const int64_t image = frequencies * 2 * (g.ic + g.oc) * size;
    const int64_t most = std::clamp<int64_t>(kBlockBytes / image, 1, g.n);
    const int64_t blocks = (g.n + most - 1) / most;
    images = (g.n + blocks - 1) / blocks;
  }
  static Extent Whole(int64_t side) { return {0, static_cast<int>(side)}; }
  Extent Taps(const Window& w) const {
    return {static_cast<int>(n - w.pad_before), static_cast<int>(w.size)};
  }
  template <typename T>
  Result<Spectrum<T>> MakeSpectrum(KernelContext& c, int64_t channels) const {
    Spectrum<T> made{channels, images * 2 * channels + kGap, {}};
    MG_ASSIGN_OR_RETURN(made.memory, c.AllocateTemp(kDTypeOf<T>, Shape{frequencies * made.step}));
    return made;
  }
  template <typename T>
  Result<Tensor> MakeFilter(KernelContext& c) const {
    return c.AllocateTemp(kDTypeOf<T>, Shape{frequencies * filter_step});
  }

  int64_t n, frequencies;
  Images input, output;
  Extent rows, columns;  // of the filter, around pixel 0
  int64_t filter_step;
  int64_t images;  // of a block
};

// Transforms cost about this many nanoseconds for a pair of vectors.
int64_t Cost(int64_t n) { return n == 16 ? 2000 : 9000; }

template <typename Load, typename Put>
void Forward(int64_t n, Extent rows, Extent columns, const Load& load, const Put& put) {
  n == 16 ? fourier::Forward<16>(rows, columns, load, put)
          : fourier::Forward<32>(rows, columns, load, put);
}
template <typename Get, typename Store>
void Backward(int64_t n, Extent rows, Extent columns, const Get& get, const Store& store) {
  n == 16 ? fourier::Backward<16>(rows, columns, get, store)
          : fourier::Backward<32>(rows, columns, get, store);
}

template <typename T>
void TransformImage(const Sizes& s, const Images& shape, const T* image, Spectrum<T>& to,
                    int64_t index) {
  const int64_t channels = shape.channels;
  for (int64_t channel = 0; channel < channels; channel += kPair) {
    T* const target = to.at(index) + channel;
    Forward(
        s.n, shape.rows, shape.columns,
        [&](int i, int j, Lanes* a, Lanes* b) {
          const T* pixel = image + (i * shape.columns.count + j) * channels + channel;
          *a = Load(pixel), *b = Load(pixel + kLanes);
        },
        [&](int f, Lanes re_a, Lanes im_a, Lanes re_b, Lanes im_b) {
          T* const p = target + f * to.step;
          Store(p, re_a), Store(p + kLanes, re_b);
          Store(p + channels, im_a), Store(p + channels + kLanes, im_b);
        });
  }
}

// What a transform and its product multiply a result by: each forward one gives twice its value.
float Scale(const Sizes& s) { return 1.f / static_cast<float>(4 * s.n * s.n); }

bool AllZero(const Lanes& v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum == 0;
}

// Returns whether all is finite.
template <typename T>
bool RestoreImage(const Sizes& s, Spectrum<T>& from, int64_t index, const T* bias, bool relu,
                  const Images& shape, T* image) {
  const int64_t channels = shape.channels;
  const float scale = Scale(s);
  Lanes excess{};  // NaN where a value is not finite
  for (int64_t channel = 0; channel < channels; channel += kPair) {
    const T* const source = from.at(index) + channel;
    Lanes bias_a{}, bias_b{};
    if (bias != nullptr) bias_a = Load(bias + channel), bias_b = Load(bias + channel + kLanes);
    Backward(
        s.n, shape.rows, shape.columns,
        [&](int f, Lanes* re_a, Lanes* im_a, Lanes* re_b, Lanes* im_b) {
          const T* const p = source + f * from.step;
          *re_a = Load(p), *re_b = Load(p + kLanes);
          *im_a = Load(p + channels), *im_b = Load(p + channels + kLanes);
        },
        [&](int i, int j, Lanes a, Lanes b) {
          T* const pixel = image + (i * shape.columns.count + j) * channels + channel;
          a = a * scale + bias_a, b = b * scale + bias_b;
          excess += (a - a) + (b - b);
          if (relu) a = a < 0 ? Lanes{} : a, b = b < 0 ? Lanes{} : b;
          Store(pixel, a), Store(pixel + kLanes, b);
        });
  }
  return AllZero(excess);
}

// The matrices B, one per frequency:
//
//         [ Re W  -Im W ]
//     B = [ Im W   Re W ]      (2 C rows, 2 O columns)
template <typename T>
void TransformFilter(KernelContext& c, const Sizes& s, const T* filter, T* to) {
  const int64_t ic = s.input.channels, oc = s.output.channels, pairs = oc / kPair;
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = k / pairs, o = k % pairs * kPair;
      T *const upper = to + i * 2 * oc + o, *const lower = upper + ic * 2 * oc;
      Forward(
          s.n, s.rows, s.columns,
          [&](int row, int column, Lanes* a, Lanes* b) {
            const T* tap = filter + ((row * s.columns.count + column) * ic + i) * oc + o;
            *a = Load(tap), *b = Load(tap + kLanes);
          },
          [&](int f, Lanes re_a, Lanes im_a, Lanes re_b, Lanes im_b) {
            T *const u = upper + f * s.filter_step, *const l = lower + f * s.filter_step;
            Store(u, re_a), Store(u + kLanes, re_b);
            Store(u + oc, -im_a), Store(u + oc + kLanes, -im_b);
            Store(l, im_a), Store(l + kLanes, im_b);
            Store(l + oc, re_a), Store(l + oc + kLanes, re_b);
          });
    }
  };
  c.ParallelFor(ic * pairs, Cost(s.n), std::ref(body));
}

// The filter's gradient, X conj(dY) summed over images, of X^T dY: its four quarters are added and
// subtracted on the way back. Returns whether all is finite.
template <typename T>
bool RestoreFilter(KernelContext& c, const Sizes& s, const float* from, T* gradient) {
  const int64_t ic = s.input.channels, oc = s.output.channels, pairs = oc / kPair;
  const float scale = Scale(s);
  std::atomic<bool> finite = true;  // default order: rarely written, read after the loop
  const auto body = [&](int64_t begin, int64_t end) {
    Lanes excess{};
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = k / pairs, o = k % pairs * kPair;
      const float *const upper = from + i * 2 * oc + o, *const lower = upper + ic * 2 * oc;
      Backward(
          s.n, s.rows, s.columns,
          [&](int f, Lanes* re_a, Lanes* im_a, Lanes* re_b, Lanes* im_b) {
            const float *const u = upper + f * s.filter_step, *const l = lower + f * s.filter_step;
            *re_a = Load(u) + Load(l + oc), *re_b = Load(u + kLanes) + Load(l + oc + kLanes);
            *im_a = Load(l) - Load(u + oc), *im_b = Load(l + kLanes) - Load(u + oc + kLanes);
          },
          [&](int row, int column, Lanes a, Lanes b) {
            T* const tap = gradient + ((row * s.columns.count + column) * ic + i) * oc + o;
            a = a * scale, b = b * scale;
            excess += (a - a) + (b - b);
            Store(tap, a), Store(tap + kLanes, b);
          });
    }
    if (!AllZero(excess)) finite = false;
  };
  c.ParallelFor(ic * pairs, Cost(s.n), std::ref(body));
  return finite;
}

}  // namespace

// A product at every frequency, of which one primitive computes a few.
class FourierConv::Products {
 public:
  enum class Kind { kForward, kInput, kFilter };
  struct Key {
    int64_t n, ic, oc, images, block;  // `block`: images that spectra have room for
    Kind kind;
    bool add;  // to what is there
    memory::data_type type;
    friend bool operator==(const Key&, const Key&) = default;
  };

  static Result<std::shared_ptr<Products>> Make(const Key& k) {
    auto made = std::make_shared<Products>();
    MG_RETURN_IF_ERROR(onednn::Guarded([&] { made->Build(k); }));
    return made;
  }

  template <typename T, typename Sum>
  Status Run(KernelContext& c, const T* a, const T* b, Sum* to) {
    FirstFailure failure;
    const auto body = [&](int64_t begin, int64_t end) {
      onednn::SingleThread single;
      for (int64_t i = begin; i < end; ++i) {
        failure.Update(RunGroup(a + i * a_step_, b + i * b_step_, to + i * to_step_));
      }
    };
    c.ParallelFor(groups_, cost_, std::ref(body));
    return failure.status();
  }

 private:
  void Build(const Key& k) {
    const int64_t frequencies = fourier::Frequencies(k.n);
    int64_t group = 16;  // of frequencies: enough to hide what a call costs
    while (frequencies % group != 0) --group;
    groups_ = frequencies / group;
    const int64_t c = 2 * k.ic, o = 2 * k.oc, x = k.block * c + kGap, y = k.block * o + kGap,
                  w = c * o + kGap;
    const auto matrix = [&](int64_t rows, int64_t columns, int64_t step, bool turned) {
      const memory::dims strides =
          turned ? memory::dims{step, 1, rows} : memory::dims{step, columns, 1};
      return memory::desc({group, rows, columns}, k.type, strides);
    };
    switch (k.kind) {
      case Kind::kForward:
        a_ = matrix(k.images, c, x, false), b_ = matrix(c, o, w, false);
        to_ = matrix(k.images, o, y, false);
        a_step_ = x, b_step_ = w, to_step_ = y;
        break;
      case Kind::kInput:
        a_ = matrix(k.images, o, y, false), b_ = matrix(o, c, w, true);
        to_ = matrix(k.images, c, x, false);
        a_step_ = y, b_step_ = w, to_step_ = x;
        break;
      case Kind::kFilter:
        a_ = matrix(c, k.images, x, true), b_ = matrix(k.images, o, y, false);
        to_ = memory::desc({group, c, o}, memory::data_type::f32, memory::dims{w, o, 1});
        a_step_ = x, b_step_ = y, to_step_ = w;
        break;
    }
    a_step_ *= group, b_step_ *= group, to_step_ *= group;
    cost_ = 1 + 2 * group * k.images * c * o / 60;
    dnnl::primitive_attr attr = onednn::UserScratchpad();
    if (k.add) {
      dnnl::post_ops ops;
      ops.append_sum(1.f);
      attr.set_post_ops(ops);
    }
    const auto desc = onednn::Describe<dnnl::matmul>(onednn::Engine(), attr, a_, b_, to_);
    scratchpad_ = desc.scratchpad_desc();
    primitive_ = dnnl::matmul(desc);
  }

  Status RunGroup(const void* a, const void* b, void* to) {
    std::unique_ptr<onednn::Frame> frame;
    MG_RETURN_IF_ERROR(onednn::Guarded([&] {
      frame = frames_.Take([&] {
        auto made = std::make_unique<onednn::Frame>();
        const int ia = made->Bound(a_), ib = made->Bound(b_), ic = made->Bound(to_);
        made->Add(primitive_, {{DNNL_ARG_SRC, ia}, {DNNL_ARG_WEIGHTS, ib}, {DNNL_ARG_DST, ic}},
                  scratchpad_);
        return made;
      });
    }));
    frame->Bind(0, a);
    frame->Bind(1, b);
    frame->Bind(2, to);
    Status status = frame->Run();
    frames_.Give(std::move(frame));
    return status;
  }

  int64_t groups_ = 0, a_step_ = 0, b_step_ = 0, to_step_ = 0, cost_ = 0;
  memory::desc a_, b_, to_, scratchpad_;
  dnnl::primitive primitive_;
  onednn::FramePool<onednn::Frame> frames_;
};

struct FourierConv::Plans {
  template <typename T>
  Result<std::shared_ptr<Products>> Get(const Sizes& s, Products::Kind kind, int64_t images,
                                        bool add = false) {
    const Products::Key key{s.n, s.input.channels,  s.output.channels, images, s.images, kind,
                            add, onednn::kTypeOf<T>};
    return cache.Get(key, [&] { return Products::Make(key); });
  }
  PlanCache<Products::Key, Products> cache;
};

FourierConv::FourierConv() : plans_(std::make_unique<Plans>()) {}
FourierConv::~FourierConv() = default;

bool FourierConv::Fits(const Geometry& g) {
  const auto fits = [](const Window& w) {
    return w.stride == 1 && w.dilation == 1 && w.size >= 5 && Period(w) != 0;
  };
  const auto many = [](int64_t channels) { return channels >= 32 && channels % kPair == 0; };
  if (g.nchw || g.volume || g.groups != 1 || !fits(g.rows) || !fits(g.columns)) return false;
  // Images enough to pay for the filter's transform, which must not be too large for a cache.
  if (!many(g.ic) || !many(g.oc) || g.n < 32) return false;
  const int64_t products = 4 * fourier::Frequencies(std::max(Period(g.rows), Period(g.columns)));
  if (products * g.ic * g.oc * int64_t{sizeof(float)} > 32 << 20) return false;
  // And multiplications saved enough to pay for those of images.
  return g.rows.out * g.columns.out * g.rows.size * g.columns.size >= 4 * products;
}

template <typename T>
Result<bool> FourierConv::Forward(KernelContext& c, const Geometry& g, const FusedOps& fused,
                                  const T* input, const T* filter, const T* bias, T* out) {
  const Sizes s(g, sizeof(T));
  MG_ASSIGN_OR_RETURN(Tensor weights, s.MakeFilter<T>(c));
  MG_ASSIGN_OR_RETURN(Spectrum<T> x, s.MakeSpectrum<T>(c, g.ic));
  MG_ASSIGN_OR_RETURN(Spectrum<T> y, s.MakeSpectrum<T>(c, g.oc));
  TransformFilter(c, s, filter, weights.data<T>());
  std::atomic<bool> finite = true;  // default order: rarely written, read after the loop
  for (int64_t first = 0; first < g.n; first += s.images) {
    const int64_t images = std::min(s.images, g.n - first);
    const auto transform = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        TransformImage(s, s.input, input + (first + i) * g.input_image(), x, i);
    };
    const auto restore = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (!RestoreImage(s, y, i, bias, fused.relu, s.output,
                          out + (first + i) * g.output_image()))
          finite = false;
      }
    };
    MG_ASSIGN_OR_RETURN(const auto products, plans_->Get<T>(s, Products::Kind::kForward, images));
    c.ParallelFor(images, Cost(s.n) * g.ic / kPair, std::ref(transform));
    MG_RETURN_IF_ERROR(products->Run(c, x.at(0), weights.data<T>(), y.at(0)));
    c.ParallelFor(images, Cost(s.n) * g.oc / kPair, std::ref(restore));
  }
  return finite.load();
}

template <typename T>
Result<bool> FourierConv::Backprop(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
                                   const BackpropData<T>& data) {
  const Sizes s(g, sizeof(T));
  MG_ASSIGN_OR_RETURN(Spectrum<T> x, s.MakeSpectrum<T>(c, g.ic));
  MG_ASSIGN_OR_RETURN(Spectrum<T> dy, s.MakeSpectrum<T>(c, g.oc));
  Tensor weights, sums, spread;
  if (data.dx != nullptr) {
    MG_ASSIGN_OR_RETURN(weights, s.MakeFilter<T>(c));
    TransformFilter(c, s, data.filter, weights.data<T>());
  }
  if (data.filter_gradient != nullptr) {
    MG_ASSIGN_OR_RETURN(sums, s.MakeFilter<float>(c));
  }
  if (data.pool_x != nullptr) {
    MG_ASSIGN_OR_RETURN(spread, c.AllocateTemp(kDTypeOf<T>, Shape{s.images * g.output_image()}));
  }
  std::atomic<bool> finite = true;  // default order: rarely written, read after the loop
  for (int64_t first = 0; first < g.n; first += s.images) {
    const int64_t images = std::min(s.images, g.n - first);
    const auto transform = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = first + i, at = image * pool.pooled.sn;
        const T* gradient = data.dy + image * g.output_image();
        if (data.pool_x != nullptr) {
          T* const own = spread.data<T>() + i * g.output_image();
          pool::MaxGradient<T>::Run(pool, 1, data.pool_x + image * pool.image.sn, data.pool_y + at,
                                    data.dy + at, own);
          gradient = own;
        }
        TransformImage(s, s.output, gradient, dy, i);
        if (data.filter_gradient != nullptr)
          TransformImage(s, s.input, data.x + image * g.input_image(), x, i);
      }
    };
    c.ParallelFor(images, Cost(s.n) * (g.ic + g.oc) / kPair, std::ref(transform));
    if (data.filter_gradient != nullptr) {
      MG_ASSIGN_OR_RETURN(const auto products,
                          plans_->Get<T>(s, Products::Kind::kFilter, images, first > 0));
      MG_RETURN_IF_ERROR(products->Run(c, x.at(0), dy.at(0), sums.data<float>()));
    }
    if (data.dx == nullptr) continue;
    const auto restore = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* const no_bias = nullptr;
        if (!RestoreImage(s, x, i, no_bias, false, s.input,
                          data.dx + (first + i) * g.input_image()))
          finite = false;
      }
    };
    MG_ASSIGN_OR_RETURN(const auto products, plans_->Get<T>(s, Products::Kind::kInput, images));
    MG_RETURN_IF_ERROR(products->Run(c, dy.at(0), weights.data<T>(), x.at(0)));
    c.ParallelFor(images, Cost(s.n) * g.ic / kPair, std::ref(restore));
  }
  if (data.filter_gradient != nullptr &&
      !RestoreFilter(c, s, sums.data<float>(), data.filter_gradient))
    finite = false;
  return finite.load();
}

#define MG_INSTANTIATE(T)                                                                      \
  template Result<bool> FourierConv::Forward(KernelContext&, const Geometry&, const FusedOps&, \
                                             const T*, const T*, const T*, T*);                \
  template Result<bool> FourierConv::Backprop(KernelContext&, const Geometry&,                 \
                                              const pool::Geometry&, const BackpropData<T>&);
MG_INSTANTIATE(float)
MG_INSTANTIATE(bfloat16)
#undef MG_INSTANTIATE

}  // namespace monograph::ops::conv
