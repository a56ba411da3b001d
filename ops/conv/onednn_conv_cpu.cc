// oneDNN is faster on blocked layouts than on our NHWC and HWIO. So the batch is cut into chunks of
// images that fit the second-level cache, and each chunk is reordered, computed and reordered back:
// within 2 % of blocked layouts throughout, where plain NHWC loses 5 to 13 % (PlainIsFaster says
// when it wins). Threads share out chunks. Their number follows from the shape alone, and the
// filter's gradient adds them up in a fixed order, so that bits do not depend on threads.
#include "ops/conv/onednn_conv_cpu.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <type_traits>

#include "base/first_failure.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/plan_cache.h"
#include "ops/pool/max_gradient.h"

namespace monograph::ops::conv {
namespace {

using dnnl::memory;

// One size of chunk: a primitive on `images` images, between reorders. T: float or bfloat16.
template <typename T>
class Chunk {
 public:
  Chunk(Mode mode, const Geometry& g, const FusedOps& fused, int64_t images)
      : mode_(mode), images_(images), bias_(fused.bias) {
    constexpr auto kType = onednn::kTypeOf<T>;
    const auto filter_type = mode == Mode::kBackpropFilter ? memory::data_type::f32 : kType;
    const auto any = memory::format_tag::any;
    using Tag = memory::format_tag;
    const auto plain = g.volume ? g.nchw ? Tag::ncdhw : Tag::ndhwc : g.nchw ? Tag::nchw : Tag::nhwc;
    // What has one channel: all plain orders are the same bytes.
    const auto channels_first = g.volume ? Tag::ncdhw : Tag::nchw;
    // `lead`, and a value for each dimension that windows move along.
    const auto dims = [&](memory::dims lead, auto value) {
      if (g.volume) lead.push_back(value(g.depth));
      lead.push_back(value(g.rows));
      lead.push_back(value(g.columns));
      return lead;
    };
    const memory::dims src = dims({images, g.ic}, [](const Window&w) { return w.in; }),
                       dst = dims({images, g.oc}, [](const Window&w) { return w.out; });
    const bool grouped = g.groups > 1;
    const int64_t fc = g.filter_channels();
    const memory::dims weights =
        dims(grouped ? memory::dims{g.groups, g.oc / g.groups, fc} : memory::dims{g.oc, fc},
             [](const Window& w) { return w.size; });
    const memory::dims strides = dims({}, [](const Window&w) { return w.stride; }),
                       dilations = dims({}, [](const Window&w) { return w.dilation - 1; }),
                       before = dims({}, [](const Window&w) { return w.pad_before; }),
                       after = dims({}, [](const Window&w) { return w.pad_after; });
    const auto images_tag = PlainIsFaster(mode, g) ? plain : any;
    const memory::desc src_any(src, kType, images_tag), dst_any(dst, kType, images_tag),
        weights_any(weights, kType, any), filter_gradient(weights, memory::data_type::f32, any),
        bias(memory::dims{g.oc}, kType, memory::format_tag::x);
    const auto direct = dnnl::algorithm::convolution_direct;

    dnnl::primitive_attr attr = onednn::UserScratchpad();
    if (fused.relu) onednn::AppendRelu(&attr);
    const auto training = dnnl::prop_kind::forward_training;
    using Forward = dnnl::convolution_forward;
    const Forward::primitive_desc forward =
        bias_ ? onednn::Describe<Forward>(onednn::Engine(), attr, training, direct, src_any,
                                          weights_any, bias, dst_any, strides, dilations, before,
                                          after)
              : onednn::Describe<Forward>(onednn::Engine(), attr, training, direct, src_any,
                                          weights_any, dst_any, strides, dilations, before, after);
    switch (mode) {
      case Mode::kForward:
        RefuseSlow(forward);
        src_ = forward.src_desc(), dst_ = forward.dst_desc(), weights_ = forward.weights_desc(),
        bias_desc_ = bias;
        scratchpad_ = forward.scratchpad_desc();
        primitive_ = dnnl::convolution_forward(forward);
        break;
      case Mode::kBackpropInput: {
        const auto backward = onednn::DescribeBackward<dnnl::convolution_backward_data>(
            onednn::Engine(), onednn::UserScratchpad(), forward, direct, src_any, weights_any,
            dst_any, strides, dilations, before, after);
        RefuseSlow(backward);
        src_ = backward.diff_src_desc(), dst_ = backward.diff_dst_desc(),
        weights_ = backward.weights_desc();
        scratchpad_ = backward.scratchpad_desc();
        primitive_ = dnnl::convolution_backward_data(backward);
        break;
      }
      case Mode::kBackpropFilter: {
        const auto backward = onednn::DescribeBackward<dnnl::convolution_backward_weights>(
            onednn::Engine(), onednn::UserScratchpad(), forward, direct, src_any, filter_gradient,
            dst_any, strides, dilations, before, after);
        RefuseSlow(backward);
        src_ = backward.src_desc(), dst_ = backward.diff_dst_desc(),
        weights_ = backward.diff_weights_desc();
        scratchpad_ = backward.scratchpad_desc();
        primitive_ = dnnl::convolution_backward_weights(backward);
        break;
      }
    }
    plain_src_ = memory::desc(src, kType, plain);
    plain_dst_ = memory::desc(dst, kType, plain);
    plain_weights_ = memory::desc(weights, filter_type,
                                  g.volume  ? Tag::dhwio
                                  : grouped ? Tag::hwigo
                                            : Tag::hwio);
    same_src_ =
        src_ == plain_src_ || (g.ic == 1 && src_ == memory::desc(src, kType, channels_first));
    same_dst_ =
        dst_ == plain_dst_ || (g.oc == 1 && dst_ == memory::desc(dst, kType, channels_first));
    same_weights_ = weights_ == plain_weights_;
  }

  int64_t images() const { return images_; }
  size_t weights_bytes() const { return weights_.get_size(); }
  bool same_weights() const { return same_weights_; }

  // Filter between HWIO and the primitive's layout. REQUIRES: SingleThread.
  Status PackFilter(const T* hwio, void* packed) {
    return Move(&packers_, plain_weights_, hwio, weights_, packed);
  }
  // A gradient, which is of floats.
  Status UnpackFilter(const void* packed, float* hwio) {
    return Move(&unpackers_, weights_, packed, plain_weights_, hwio);
  }

  // `src` and `dst` are the chunk's images in plain layout, whichever of them the mode reads or
  // writes; `filter` is packed. REQUIRES: SingleThread.
  Status Run(const T* src, const void* filter, const T* bias, const T* dst) {
    std::unique_ptr<onednn::Frame> frame;
    MG_RETURN_IF_ERROR(onednn::Guarded([&] { frame = frames_.Take([&] { return MakeFrame(); }); }));
    frame->Bind(0, src);
    frame->Bind(1, dst);
    frame->Bind(2, filter);
    if (bias_) frame->Bind(3, bias);
    Status status = frame->Run();
    frames_.Give(std::move(frame));
    return status;
  }

  // Both gradients of a chunk, of which the second one may be missing.
  struct BackpropFrame {
    onednn::Frame frame;
    int x = -1, dy = -1, filter_gradient = -1, filter = -1, dx = -1;
  };
  // The steps of two chunks of the same images, with one copy of the gradient. `dy` has memory of
  // its own if `own_gradient`. Throws as Frame does.
  static std::unique_ptr<BackpropFrame> MakeBackpropFrame(const Chunk& filter, const Chunk* input,
                                                          bool own_gradient) {
    auto made = std::make_unique<BackpropFrame>();
    onednn::Frame& frame = made->frame;
    const auto plain_dst = filter.same_dst_ ? filter.dst_ : filter.plain_dst_;
    made->dy = own_gradient ? frame.Owned(plain_dst) : frame.Bound(plain_dst);
    const auto gradient = [&](const Chunk& chunk) {
      if (chunk.same_dst_) return made->dy;
      const int dst = frame.Owned(chunk.dst_);
      frame.AddReorder(made->dy, dst);
      return dst;
    };
    made->x = frame.Bound(filter.same_src_ ? filter.src_ : filter.plain_src_);
    made->filter_gradient = frame.Bound(filter.weights_);
    const int dst = gradient(filter);
    int src = made->x;
    if (!filter.same_src_) {
      src = frame.Owned(filter.src_);
      frame.AddReorder(made->x, src);
    }
    frame.Add(filter.primitive_,
              {{DNNL_ARG_SRC, src},
               {DNNL_ARG_DIFF_DST, dst},
               {DNNL_ARG_DIFF_WEIGHTS, made->filter_gradient}},
              filter.scratchpad_);
    if (input == nullptr) return made;
    made->filter = frame.Bound(input->weights_);
    made->dx = frame.Bound(input->same_src_ ? input->src_ : input->plain_src_);
    const int dx = input->same_src_ ? made->dx : frame.Owned(input->src_);
    frame.Add(input->primitive_,
              {{DNNL_ARG_DIFF_DST, input->dst_ == filter.dst_ ? dst : gradient(*input)},
               {DNNL_ARG_WEIGHTS, made->filter},
               {DNNL_ARG_DIFF_SRC, dx}},
              input->scratchpad_);
    if (!input->same_src_) frame.AddReorder(dx, made->dx);
    return made;
  }

 private:
  // Of some layers oneDNN has only its reference code for bfloat16; as floats they are faster.
  static void RefuseSlow(const dnnl::primitive_desc_base& desc) {
    if (std::is_same_v<T, bfloat16> && std::string_view(desc.impl_info_str()).starts_with("ref"))
      throw dnnl::error(dnnl_unimplemented, "a convolution of bfloat16 by reference code");
  }

  // With few input channels blocks would stay half empty: plain NHWC wins by 0.03 to 0.1 forward
  // and by 0.05 to 0.6 for the filter's gradient. On Intel's cores with AVX-512, oneDNN 2.6, time
  // of plain NHWC relative to that of blocked layouts with their reorders, in chunks, for the
  // layers of ResNet-50 and of the MNIST CNN: forward 0.58 to 0.95, but 1.64 with a filter of 9 MB;
  // gradients 0.60 to 1.04.
  // Of bfloat16 plain NHWC takes the time of blocked layouts alone (MNIST CNN, AMD, oneDNN 2.6).
  static bool PlainIsFaster(Mode mode, const Geometry& g) {
    constexpr int64_t kLargeFilter = 1 << 20;  // elements
    if (g.nchw) return false;
    if (!onednn::PlainConvolutionIsRight(g.ic, g.columns.stride, g.columns.out)) return false;
    if (std::is_same_v<T, bfloat16>) return true;
    if (onednn::IntelAvx512()) return mode != Mode::kForward || g.filter() < kLargeFilter;
    if (mode == Mode::kBackpropInput) return false;
    return g.ic <= (mode == Mode::kForward ? 8 : 16);
  }

  std::unique_ptr<onednn::Frame> MakeFrame() const {
    auto frame = std::make_unique<onednn::Frame>();
    const int plain_src = frame->Bound(same_src_ ? src_ : plain_src_),
              plain_dst = frame->Bound(same_dst_ ? dst_ : plain_dst_);
    const int weights = frame->Bound(weights_), bias = bias_ ? frame->Bound(bias_desc_) : -1;
    const int src = same_src_ ? plain_src : frame->Owned(src_),
              dst = same_dst_ ? plain_dst : frame->Owned(dst_);
    if (mode_ != Mode::kBackpropInput && !same_src_) frame->AddReorder(plain_src, src);
    if (mode_ != Mode::kForward && !same_dst_) frame->AddReorder(plain_dst, dst);
    switch (mode_) {
      case Mode::kForward:
        if (bias_) {
          frame->Add(primitive_,
                     {{DNNL_ARG_SRC, src},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_BIAS, bias},
                      {DNNL_ARG_DST, dst}},
                     scratchpad_);
        } else {
          frame->Add(primitive_,
                     {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}},
                     scratchpad_);
        }
        if (!same_dst_) frame->AddReorder(dst, plain_dst);
        break;
      case Mode::kBackpropInput:
        frame->Add(
            primitive_,
            {{DNNL_ARG_DIFF_DST, dst}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, src}},
            scratchpad_);
        if (!same_src_) frame->AddReorder(src, plain_src);
        break;
      case Mode::kBackpropFilter:
        frame->Add(
            primitive_,
            {{DNNL_ARG_SRC, src}, {DNNL_ARG_DIFF_DST, dst}, {DNNL_ARG_DIFF_WEIGHTS, weights}},
            scratchpad_);
        break;
    }
    return frame;
  }

  static Status Move(onednn::FramePool<onednn::Frame>* pool, const memory::desc& from,
                     const void* source, const memory::desc& to, void* target) {
    std::unique_ptr<onednn::Frame> frame;
    MG_RETURN_IF_ERROR(onednn::Guarded([&] {
      frame = pool->Take([&] {
        auto made = std::make_unique<onednn::Frame>();
        const int a = made->Bound(from), b = made->Bound(to);
        made->AddReorder(a, b);
        return made;
      });
    }));
    frame->Bind(0, source);
    frame->Bind(1, target);
    Status status = frame->Run();
    pool->Give(std::move(frame));
    return status;
  }

  const Mode mode_;
  const int64_t images_;
  const bool bias_;
  memory::desc src_, dst_, weights_, bias_desc_, scratchpad_, plain_src_, plain_dst_,
      plain_weights_;
  bool same_src_ = false, same_dst_ = false, same_weights_ = false;
  dnnl::primitive primitive_;
  onednn::FramePool<onednn::Frame> frames_, packers_, unpackers_;
};

// A whole batch: equal chunks, and perhaps a smaller last one.
template <typename T>
class Batch {
  using Chunk = conv::Chunk<T>;

 public:
  static Result<std::shared_ptr<Batch>> Make(Mode mode, const Geometry& g, const FusedOps& fused) {
    auto batch = std::make_shared<Batch>();
    batch->mode_ = mode;
    batch->g_ = g;
    const int64_t images = std::max(
        ImagesPerChunk(g), mode == Mode::kForward ? 1 : (g.n + MostSums(g) - 1) / MostSums(g));
    batch->whole_chunks_ = g.n / images;
    batch->chunks_ = (g.n + images - 1) / images;
    MG_RETURN_IF_ERROR(onednn::Guarded([&] {
      batch->whole_ = std::make_unique<Chunk>(mode, g, fused, images);
      if (g.n % images != 0) batch->tail_ = std::make_unique<Chunk>(mode, g, fused, g.n % images);
    }));
    return batch;
  }

  // A filter in the layout of the whole chunks, and of the last one if that is smaller.
  struct Packed {
    Tensor whole, tail;
    const void *of_whole = nullptr, *of_tail = nullptr;
  };
  Result<Packed> Pack(KernelContext& c, const T* filter) {
    Packed packed{.of_whole = filter, .of_tail = filter};
    const auto pack = [&](Chunk& chunk, Tensor* memory, const void** result) -> Status {
      if (chunk.same_weights()) return Status();
      MG_ASSIGN_OR_RETURN(*memory, Bytes(c, chunk.weights_bytes()));
      *result = memory->raw();
      onednn::SingleThread single;
      return chunk.PackFilter(filter, memory->raw());
    };
    MG_RETURN_IF_ERROR(pack(*whole_, &packed.whole, &packed.of_whole));
    if (tail_ != nullptr) MG_RETURN_IF_ERROR(pack(*tail_, &packed.tail, &packed.of_tail));
    return packed;
  }

  // Forward and the input's gradient: chunks are independent.
  Status RunImages(KernelContext& c, const T* src, const T* filter, const T* bias, const T* dst) {
    MG_ASSIGN_OR_RETURN(const Packed packed, Pack(c, filter));
    return ForChunks(c, chunks_, [&](int64_t i) {
      const int64_t first = i * whole_->images();
      const bool whole = i < whole_chunks_;
      return (whole ? *whole_ : *tail_)
          .Run(src + first * g_.input_image(), whole ? packed.of_whole : packed.of_tail, bias,
               dst + first * g_.output_image());
    });
  }

  // The filter's gradient: each of `sums` adds up a run of chunks; then the sums are added in
  // order.
  Status RunFilter(KernelContext& c, const T* src, const T* dst, T* gradient) {
    return SumChunks(c, gradient, [&](Chunk& chunk, int64_t first, void* sum) {
      return chunk.Run(src + first * g_.input_image(), sum, nullptr,
                       dst + first * g_.output_image());
    });
  }

  // run(chunk, its first image, memory for its packed gradient of the filter).
  template <typename Fn>
  Status SumChunks(KernelContext& c, T* gradient, const Fn& run) {
    if constexpr (std::is_same_v<T, float>) {
      return SumToFloats(c, gradient, run);
    } else {
      MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_FLOAT, Shape{g_.filter()}));
      MG_RETURN_IF_ERROR(SumToFloats(c, sums.data<float>(), run));
      FromFloats(sums.data<float>(), gradient, g_.filter());
      return Status();
    }
  }

  Chunk& whole() { return *whole_; }
  Chunk* tail() { return tail_.get(); }

 private:
  // Of the filter's gradient. With more chunks than sums a large filter would be added up again and
  // again: 8 MB for each of 1024 times 2048 channels, which take 0.4 MB of an image.
  static int64_t MostSums(const Geometry& g) {
    constexpr int64_t kMostBytes = 32 << 20;
    const auto bytes = g.filter() * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(kMostBytes / bytes, 1, 16);
  }

  template <typename Fn>
  Status SumToFloats(KernelContext& c, float* gradient, const Fn& run) {
    const auto bytes = static_cast<int64_t>(whole_->weights_bytes());
    const int64_t floats = bytes / static_cast<int64_t>(sizeof(float));
    const int64_t sums = std::clamp<int64_t>(whole_chunks_, 1, MostSums(g_));
    const int64_t length = (whole_chunks_ + sums - 1) / sums;
    // Sum k lies at k; a scratch place for a further chunk of the same run beside it.
    const int64_t places = length > 1 ? 2 : 1;
    MG_ASSIGN_OR_RETURN(Tensor partial, Bytes(c, static_cast<size_t>(sums * places * bytes)));
    auto* const base = static_cast<float*>(partial.raw());
    const auto add_run = [&](int64_t k) -> Status {
      float* const sum = base + k * places * floats;
      for (int64_t i = k * length; i < std::min(whole_chunks_, (k + 1) * length); ++i) {
        if (c.cancelled()) return Status();
        float* const target = i == k * length ? sum : sum + floats;
        MG_RETURN_IF_ERROR(run(*whole_, i * whole_->images(), target));
        if (target != sum) AddTo(sum, target, floats);
      }
      return Status();
    };
    MG_RETURN_IF_ERROR(ForChunks(c, sums, add_run));
    onednn::SingleThread single;
    for (int64_t k = 1; k < sums; ++k) {
      if (k * length < whole_chunks_) AddTo(base, base + k * places * floats, floats);
    }
    if (whole_->same_weights()) {
      std::copy_n(base, g_.filter(), gradient);
    } else {
      MG_RETURN_IF_ERROR(whole_->UnpackFilter(base, gradient));
    }
    if (tail_ == nullptr || c.cancelled()) return Status();
    MG_ASSIGN_OR_RETURN(Tensor packed, Bytes(c, tail_->weights_bytes()));
    MG_ASSIGN_OR_RETURN(Tensor plain, c.AllocateTemp(DT_FLOAT, Shape{g_.filter()}));
    MG_RETURN_IF_ERROR(run(*tail_, whole_chunks_ * whole_->images(), packed.raw()));
    if (tail_->same_weights()) {
      AddTo(gradient, static_cast<float*>(packed.raw()), g_.filter());
    } else {
      MG_RETURN_IF_ERROR(tail_->UnpackFilter(packed.raw(), plain.data<float>()));
      AddTo(gradient, plain.data<float>(), g_.filter());
    }
    return Status();
  }

  static int64_t ImagesPerChunk(const Geometry& g) {
    constexpr int64_t kChunkBytes = 1 << 20;
    const int64_t image =
        std::max<int64_t>(1, (g.input_image() + g.output_image()) * int64_t{sizeof(T)});
    const int64_t most = std::clamp<int64_t>(kChunkBytes / image, 1, g.n);
    for (int64_t images = most; images > most / 2; --images) {
      if (g.n % images == 0) return images;
    }
    return most;
  }

  static Result<Tensor> Bytes(KernelContext& c, size_t bytes) {
    return c.AllocateTemp(DT_UINT8, Shape{static_cast<int64_t>(bytes)});
  }

  static void AddTo(float* __restrict sum, const float* __restrict more, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sum[i] += more[i];
  }

  template <typename Fn>
  Status ForChunks(KernelContext& c, int64_t count, const Fn& fn) {
    FirstFailure failure;
    const auto body = [&](int64_t begin, int64_t end) {
      onednn::SingleThread single;
      for (int64_t i = begin; i < end && !c.cancelled(); ++i) {
        if (Status one = fn(i); !one.ok()) return failure.Update(one);
      }
    };
    c.ParallelFor(count, 1 + g_.n * g_.flops_per_image() / count / 60, std::ref(body));
    return failure.status();
  }

  Mode mode_{};
  Geometry g_;
  int64_t chunks_ = 0, whole_chunks_ = 0;
  std::unique_ptr<Chunk> whole_, tail_;
};

// Whether oneDNN may compute it: it keeps offsets in 32 bits, and an abort of the step waits until
// an image is done (minutes at most within this limit).
Status CheckFits(const Geometry& g) {
  constexpr int64_t kMostElements = int64_t{1} << 29;
  constexpr double kMostFlops = 4e12;
  const double pixels = static_cast<double>(g.depth.out) * static_cast<double>(g.rows.out) *
                        static_cast<double>(g.columns.out);
  const bool fits = FitsOnednn(g.depth) && FitsOnednn(g.rows) && FitsOnednn(g.columns) &&
                    std::max({g.input_image(), g.output_image(), g.filter()}) < kMostElements &&
                    2 * pixels * static_cast<double>(g.filter()) <= kMostFlops;
  return fits ? Status() : Unimplemented("a convolution that is too large for oneDNN");
}

// The bits of the largest magnitude, as a float; those of a NaN are above infinity's.
uint32_t LargestBits(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return largest;
}
uint32_t LargestBits(const bfloat16* x, int64_t n) {
  uint16_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, static_cast<uint16_t>(x[i].bits & 0x7fff));
  return uint32_t{largest} << 16;
}
// False if no sum of products can leave the range of floats, even for a moment.
template <typename T>
bool MayGiveNaN(KernelContext& c, const Geometry& g, const T* input, const T* filter,
                const T* bias) {
  // Default order: once per block, and read after the loop. The relaxed load is a first guess.
  std::atomic<uint32_t> largest{0};
  const auto images = [&](int64_t begin, int64_t end) {
    const uint32_t here =
        LargestBits(input + begin * g.input_image(), (end - begin) * g.input_image());
    uint32_t known = largest.load(std::memory_order_relaxed);
    while (known < here && !largest.compare_exchange_weak(known, here)) {
    }
  };
  c.ParallelFor(g.n, 1 + g.input_image() / 16, std::ref(images));
  const auto value = [](uint32_t bits) { return double{std::bit_cast<float>(bits)}; };
  const int64_t products = g.filter() / g.oc;  // in the sum that is one element
  const double sum =
      value(largest) * value(LargestBits(filter, g.filter())) * static_cast<double>(products) +
      value(LargestBits(bias, g.oc));
  return !(sum < std::numeric_limits<float>::max() / 2);
}

}  // namespace

template <typename T>
struct OnednnConv<T>::Plans {
  Status Run(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused, const T* input,
             const T* filter, const T* bias, const T* dy, T* out) {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Batch<T>> batch,
                        cache.Get(g.key(), [&] { return Batch<T>::Make(mode, g, fused); }));
    switch (mode) {
      case Mode::kForward:
        return batch->RunImages(c, input, filter, bias, out);
      case Mode::kBackpropInput:
        return batch->RunImages(c, out, filter, nullptr, dy);
      case Mode::kBackpropFilter:
        break;
    }
    return batch->RunFilter(c, input, dy, out);
  }

  PlanCache<Geometry::Key, Batch<T>> cache;
};

template <typename T>
OnednnConv<T>::OnednnConv()
    : plain_(std::make_unique<Plans>()), without_relu_(std::make_unique<Plans>()) {}
template <typename T>
OnednnConv<T>::~OnednnConv() = default;

template <typename T>
Status OnednnConv<T>::Run(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused,
                          const T* input, const T* filter, const T* bias, const T* dy, T* out) {
  MG_RETURN_IF_ERROR(CheckFits(g));
  // oneDNN's fused relu makes 0 of a NaN.
  if (!fused.relu || !MayGiveNaN(c, g, input, filter, bias))
    return plain_->Run(c, mode, g, fused, input, filter, bias, dy, out);
  MG_RETURN_IF_ERROR(
      without_relu_->Run(c, mode, g, {.bias = fused.bias}, input, filter, bias, dy, out));
  c.ParallelFor(g.n * g.output_image(), 1,
                [out](int64_t begin, int64_t end) { ReluInPlace(out + begin, end - begin); });
  return Status();
}

template <typename T>
class OnednnBackprop<T>::Plan {
  using Batch = conv::Batch<T>;
  using Chunk = conv::Chunk<T>;

 public:
  static Result<std::shared_ptr<Plan>> Make(const Geometry& g, bool input_gradient, bool pooled) {
    auto made = std::make_shared<Plan>();
    made->g_ = g;
    made->pooled_ = pooled;
    MG_ASSIGN_OR_RETURN(made->filter_, Batch::Make(Mode::kBackpropFilter, g, {}));
    if (input_gradient) {
      MG_ASSIGN_OR_RETURN(made->input_, Batch::Make(Mode::kBackpropInput, g, {}));
    }
    return made;
  }

  Status Run(KernelContext& c, const pool::Geometry& pool, const BackpropData<T>& data) {
    typename Batch::Packed packed;
    if (input_ != nullptr) {
      MG_ASSIGN_OR_RETURN(packed, input_->Pack(c, data.filter));
    }
    return filter_->SumChunks(
        c, data.filter_gradient, [&](Chunk& chunk, int64_t first, void* sum) -> Status {
          const bool whole = &chunk == &filter_->whole();
          auto& frames = whole ? whole_frames_ : tail_frames_;
          std::unique_ptr<typename Chunk::BackpropFrame> f;
          MG_RETURN_IF_ERROR(onednn::Guarded([&] {
            f = frames.Take([&] {
              Chunk* input = input_ == nullptr ? nullptr
                             : whole           ? &input_->whole()
                                               : input_->tail();
              return Chunk::MakeBackpropFrame(chunk, input, pooled_);
            });
          }));
          f->frame.Bind(f->x, data.x + first * g_.input_image());
          f->frame.Bind(f->filter_gradient, sum);
          if (pooled_) {
            const int64_t at = first * pool.pooled.sn;
            pool::MaxGradient<T>::Run(pool, chunk.images(), data.pool_x + first * pool.image.sn,
                                      data.pool_y + at, data.dy + at,
                                      static_cast<T*>(f->frame.data(f->dy)));
          } else {
            f->frame.Bind(f->dy, data.dy + first * g_.output_image());
          }
          if (input_ != nullptr) {
            f->frame.Bind(f->filter, whole ? packed.of_whole : packed.of_tail);
            f->frame.Bind(f->dx, data.dx + first * g_.input_image());
          }
          Status status = f->frame.Run();
          frames.Give(std::move(f));
          return status;
        });
  }

 private:
  Geometry g_;
  bool pooled_ = false;
  std::shared_ptr<Batch> filter_, input_;
  onednn::FramePool<typename Chunk::BackpropFrame> whole_frames_, tail_frames_;
};

template <typename T>
struct OnednnBackprop<T>::Plans {
  PlanCache<Geometry::Key, Plan> cache;
};

template <typename T>
OnednnBackprop<T>::OnednnBackprop() : plans_(std::make_unique<Plans>()) {}
template <typename T>
OnednnBackprop<T>::~OnednnBackprop() = default;

template <typename T>
Status OnednnBackprop<T>::Run(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
                              const BackpropData<T>& data) {
  MG_RETURN_IF_ERROR(CheckFits(g));
  MG_ASSIGN_OR_RETURN(const std::shared_ptr<Plan> plan, plans_->cache.Get(g.key(), [&] {
    return Plan::Make(g, data.dx != nullptr, data.pool_x != nullptr);
  }));
  return plan->Run(c, pool, data);
}

template class OnednnConv<float>;
template class OnednnConv<bfloat16>;
template class OnednnBackprop<float>;
template class OnednnBackprop<bfloat16>;

}  // namespace monograph::ops::conv
