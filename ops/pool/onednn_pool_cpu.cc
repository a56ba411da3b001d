// Pooling by oneDNN. A pass over many images is cut into chunks of equal size, and perhaps a
// smaller last one, which the threads share out; each thread calls oneDNN single-threaded. The
// gradient of max pooling runs the forward pass again, because oneDNN wants a record of where each
// maximum was, which MaxPoolGrad's inputs do not hold.
#include "ops/pool/onednn_pool_cpu.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/first_failure.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/plan_cache.h"

namespace monograph::ops::pool {
namespace {

using dnnl::memory;

// The primitives of a pass over a fixed number of images.
class Chunk {
 public:
  void Build(const PoolPass& pass, int64_t images) {
    const auto tag = pass.nchw ? memory::format_tag::nchw : memory::format_tag::nhwc;
    const auto f32 = memory::data_type::f32;
    const Window &rows = pass.rows, &columns = pass.columns;
    kind_ = pass.kind;
    image_ = memory::desc({images, pass.channels, rows.in, columns.in}, f32, tag);
    pooled_ = memory::desc({images, pass.channels, rows.out, columns.out}, f32, tag);
    const onednn::Windows windows{.strides = {rows.stride, columns.stride},
                                  .size = {rows.size, columns.size},
                                  .before = {rows.pad_before, columns.pad_before},
                                  .after = {After(rows), After(columns)}};
    const bool max = kind_ == PoolPass::kMax || kind_ == PoolPass::kMaxGradient;
    const bool gradient = kind_ == PoolPass::kMaxGradient || kind_ == PoolPass::kAverageGradient;
    const auto algorithm =
        max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
    const dnnl::pooling_forward::primitive_desc forward = onednn::DescribePooling(
        onednn::Engine(), onednn::UserScratchpad(),
        gradient ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
        algorithm, image_, pooled_, windows);
    if (kind_ != PoolPass::kAverageGradient) {
      forward_ = dnnl::pooling_forward(forward);
      forward_scratchpad_ = forward.scratchpad_desc();
    }
    if (!gradient) return;
    const dnnl::pooling_backward::primitive_desc backward = onednn::DescribePoolingBackward(
        onednn::Engine(), onednn::UserScratchpad(), algorithm, image_, pooled_, windows, forward);
    backward_ = dnnl::pooling_backward(backward);
    backward_scratchpad_ = backward.scratchpad_desc();
    if (max) workspace_ = forward.workspace_desc();
  }

  // REQUIRES: SingleThread.
  Status Run(const float* image, const float* pooled, float* image_gradient) {
    std::unique_ptr<onednn::Frame> frame;
    MG_RETURN_IF_ERROR(onednn::Guarded([&] { frame = frames_.Take([&] { return MakeFrame(); }); }));
    frame->Bind(0, image);
    frame->Bind(1, pooled);
    if (kind_ == PoolPass::kMaxGradient) frame->Bind(2, image_gradient);
    Status status = frame->Run();
    frames_.Give(std::move(frame));
    return status;
  }

 private:
  // What the last window needs beyond the image.
  static int64_t After(const Window& w) {
    return std::max<int64_t>(0, (w.out - 1) * w.stride + w.size - w.in - w.pad_before);
  }

  std::unique_ptr<onednn::Frame> MakeFrame() const {
    auto frame = std::make_unique<onednn::Frame>();
    const int image = frame->Bound(image_), pooled = frame->Bound(pooled_);
    switch (kind_) {
      case PoolPass::kMax:
      case PoolPass::kAverage:
        frame->Add(forward_, {{DNNL_ARG_SRC, image}, {DNNL_ARG_DST, pooled}}, forward_scratchpad_);
        break;
      case PoolPass::kAverageGradient:
        frame->Add(backward_, {{DNNL_ARG_DIFF_SRC, image}, {DNNL_ARG_DIFF_DST, pooled}},
                   backward_scratchpad_);
        break;
      case PoolPass::kMaxGradient: {
        const int gradient = frame->Bound(image_), again = frame->Owned(pooled_),
                  workspace = frame->Owned(workspace_);
        frame->Add(forward_,
                   {{DNNL_ARG_SRC, image}, {DNNL_ARG_DST, again}, {DNNL_ARG_WORKSPACE, workspace}},
                   forward_scratchpad_);
        frame->Add(backward_,
                   {{DNNL_ARG_DIFF_SRC, gradient},
                    {DNNL_ARG_DIFF_DST, pooled},
                    {DNNL_ARG_WORKSPACE, workspace}},
                   backward_scratchpad_);
        break;
      }
    }
    return frame;
  }

  PoolPass::Kind kind_{};
  dnnl::primitive forward_, backward_;
  memory::desc image_, pooled_, workspace_, forward_scratchpad_, backward_scratchpad_;
  onednn::FramePool<onednn::Frame> frames_;
};

// How many images one call of oneDNN takes. The gradient of max pooling reads what its forward pass
// has just written, so a call is small enough for that to be in the cache. The other passes touch
// everything once: they make as few calls as keep the threads evenly busy, since a call costs about
// a microsecond. No call takes long, since between two of them an abort of the step is seen.
int64_t ImagesPerCall(const PoolPass& pass, int64_t image_bytes, int threads) {
  constexpr int64_t kInCache = 1 << 20, kWorthACall = 1 << 18, kMost = 1 << 24;
  const int64_t bytes = pass.images * image_bytes;
  int64_t calls = threads <= 1 ? 1 : int64_t{4} * threads;
  if (pass.kind == PoolPass::kMaxGradient) calls = bytes / kInCache;
  calls = std::clamp<int64_t>(calls, bytes / kMost + 1, bytes / kWorthACall + 1);
  return (pass.images + calls - 1) / calls;
}

// Whether oneDNN may compute it: it keeps offsets in 32 bits, asks for images with pixels, and an
// abort of the step waits until an image is done (some ten seconds at most within this limit).
Status CheckFits(const PoolPass& p) {
  constexpr int64_t kMostElements = int64_t{1} << 29;
  constexpr double kMostWork = 1e10;
  const auto reads = [](const Window& w) {
    return static_cast<double>(w.out) * static_cast<double>(std::min(w.size, w.in));
  };
  const bool fits = FitsOnednn(p.rows) && FitsOnednn(p.columns) && p.rows.in > 0 &&
                    p.columns.in > 0 && p.rows.in * p.columns.in < kMostElements / p.channels &&
                    p.rows.out * p.columns.out < kMostElements / p.channels &&
                    reads(p.rows) * reads(p.columns) * static_cast<double>(p.channels) <= kMostWork;
  return fits ? Status() : Unimplemented("a pooling that oneDNN does not do");
}

}  // namespace

// Equal chunks of images, and perhaps a smaller last one.
class OnednnPool::Plan {
 public:
  static Result<std::shared_ptr<Plan>> Make(const PoolPass& pass, int threads) {
    auto plan = std::make_shared<Plan>();
    plan->image_ = pass.channels * pass.rows.in * pass.columns.in;
    plan->pooled_ = pass.channels * pass.rows.out * pass.columns.out;
    plan->images_ = pass.images;
    plan->per_chunk_ = ImagesPerCall(pass, (plan->image_ + plan->pooled_) * 4, threads);
    MG_RETURN_IF_ERROR(onednn::Guarded([&] {
      plan->whole_.Build(pass, plan->per_chunk_);
      if (const int64_t rest = pass.images % plan->per_chunk_; rest != 0)
        plan->tail_.Build(pass, rest);
    }));
    return plan;
  }

  Status Run(KernelContext& c, const float* image, const float* pooled, float* image_gradient) {
    FirstFailure failure;
    const auto body = [&](int64_t begin, int64_t end) {
      onednn::SingleThread single;
      for (int64_t i = begin; i < end && !c.cancelled(); ++i) {
        const int64_t first = i * per_chunk_;
        Chunk& chunk = first + per_chunk_ <= images_ ? whole_ : tail_;
        if (Status one =
                chunk.Run(image + first * image_, pooled + first * pooled_,
                          image_gradient == nullptr ? nullptr : image_gradient + first * image_);
            !one.ok()) {
          return failure.Update(one);
        }
      }
    };
    c.ParallelFor((images_ + per_chunk_ - 1) / per_chunk_, 1 + per_chunk_ * image_ / 8,
                  std::ref(body));
    return failure.status();
  }

 private:
  int64_t image_ = 0, pooled_ = 0;  // floats of one image
  int64_t images_ = 0, per_chunk_ = 1;
  Chunk whole_, tail_;
};

struct OnednnPool::Plans {
  using Key = std::array<int64_t, 14>;
  PlanCache<Key, Plan> cache;
};

OnednnPool::OnednnPool() : plans_(std::make_unique<Plans>()) {}
OnednnPool::~OnednnPool() = default;

Status OnednnPool::Run(KernelContext& c, const PoolPass& pass, const float* image,
                       const float* pooled, float* image_gradient) {
  MG_RETURN_IF_ERROR(CheckFits(pass));
  const Window &r = pass.rows, &w = pass.columns;
  const Plans::Key key = {pass.kind, pass.nchw, pass.images, pass.channels, r.in,
                          r.size,    r.stride,  r.out,       r.pad_before,  w.in,
                          w.size,    w.stride,  w.out,       w.pad_before};
  MG_ASSIGN_OR_RETURN(const std::shared_ptr<Plan> plan, plans_->cache.Get(key, [&] {
    return Plan::Make(pass, c.intra_op_threads());
  }));
  return plan->Run(c, image, pooled, image_gradient);
}

}  // namespace monograph::ops::pool
