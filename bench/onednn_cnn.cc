// The constructor builds the step: each layer asks oneDNN for the layout that it likes best, memory
// in it is allocated, and a call of the primitive is added to a list, forward layers first, then
// their gradients. A step runs the list and then Adam over every parameter.
#include "bench/onednn_cnn.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/independent_loop.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"

namespace monograph::bench {

float CnnPattern(size_t i, float scale) {
  return (static_cast<float>((i * 2654435761u >> 16) % 1000) / 500.f - 1.f) * scale;
}

class OnednnCnn::Impl {
 public:
  Impl(int64_t batch, int64_t fc, bool bfloat16)
      : batch_(batch),
        type_(bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32) {
    const ops::onednn::SingleThread single;
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream_ = dnnl::stream(engine_);
    Build(fc);
    for (const Parameter& p : parameters_)
      slots_.push_back({New(p.gradient.get_desc(), 0), New(p.gradient.get_desc(), 0)});
  }

  void Step() {
    const ops::onednn::SingleThread single;
    for (const auto& call : calls_) call();
    power1_ *= 0.9f, power2_ *= 0.999f;
    const float rate = 1e-4f * std::sqrt(1 - power2_) / (1 - power1_);
    for (size_t k = 0; k < parameters_.size(); ++k) {
      const Parameter& parameter = parameters_[k];
      float* w = Data(parameter.value);
      const float* g = Data(parameter.gradient);
      float *m = Data(slots_[k].first), *v = Data(slots_[k].second);
      const auto n = static_cast<int64_t>(parameter.gradient.get_desc().get_size() / sizeof(float));
      MG_INDEPENDENT_LOOP
      for (int64_t i = 0; i < n; ++i) {
        m[i] += (g[i] - m[i]) * 0.1f;
        v[i] += (g[i] * g[i] - v[i]) * 0.001f;
        w[i] -= m[i] * rate / (std::sqrt(v[i]) + 1e-8f);
      }
      if (parameter.narrow) parameter.narrow();
    }
  }

 private:
  using Memory = dnnl::memory;
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  using Dims = dnnl::memory::dims;
  // Convolutions: 5x5 filters, the image's size. Pooling: 2x2 windows without overlap.
  inline static const Dims kOnes{1, 1}, kTwos{2, 2};
  inline static const ops::onednn::Windows kHalves{
      .strides = {2, 2}, .size = {2, 2}, .before = {0, 0}, .after = {0, 0}};
  struct Convolution {
    dnnl::convolution_forward::primitive_desc forward;
    dnnl::pooling_forward::primitive_desc pool;
    Dims src, weights, dst;
    Memory x, w, b, y, workspace, pooled;
  };
  struct Dense {
    dnnl::inner_product_forward::primitive_desc forward;
    Dims src, weights, dst;
    Memory x, w, b, y;
  };

  struct Parameter {
    Memory value, gradient;        // floats
    std::function<void()> narrow;  // writes the value to the layers' weights, if they are bfloat16
  };

  static float* Data(const Memory& m) { return static_cast<float*>(m.get_data_handle()); }
  Desc Of(const Dims& dims, Tag tag = Tag::any) const { return {dims, type_, tag}; }
  static Desc FloatOf(const Dims& dims, Tag tag = Tag::any) {
    return {dims, dnnl::memory::data_type::f32, tag};
  }
  static Desc Vector(int64_t n) { return FloatOf({n}, Tag::x); }

  Memory New(const Desc& desc, float scale = 0.05f) {
    const size_t huge = size_t{2} << 20,
                 bytes = (std::max<size_t>(1, desc.get_size()) + huge - 1) / huge * huge;
    void* data = std::aligned_alloc(huge, bytes);
    madvise(data, bytes, MADV_HUGEPAGE);
    if (ops::onednn::TypeOf(desc) == dnnl::memory::data_type::f32) {
      auto* values = static_cast<float*>(data);
      for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) values[i] = CnnPattern(i, scale);
    } else {
      auto* values = static_cast<monograph::bfloat16*>(data);
      for (size_t i = 0; i < desc.get_size() / sizeof(*values); ++i)
        values[i] = monograph::bfloat16(CnnPattern(i, scale));
    }
    return {desc, engine_, data};
  }
  void Call(const dnnl::primitive& primitive, const std::unordered_map<int, Memory>& args) {
    calls_.push_back([this, primitive, args] { primitive.execute(stream_, args); });
  }
  // `m` in the layout `desc`: itself, or what a reorder in the program makes of it.
  Memory As(Memory m, const Desc& desc) {
    if (m.get_desc() == desc) return m;
    Memory out = New(desc);
    Call(dnnl::reorder(m, out), {{DNNL_ARG_FROM, m}, {DNNL_ARG_TO, out}});
    return out;
  }
  // A weight `w` of a layer with its gradient. Of bfloat16 Adam updates floats that lie as the
  // gradient does, and a reorder makes the weight of them.
  void Add(const Memory& w, const Memory& gradient) {
    if (ops::onednn::TypeOf(w.get_desc()) == dnnl::memory::data_type::f32) {
      parameters_.push_back({w, As(gradient, w.get_desc()), nullptr});
      return;
    }
    const Memory value = New(gradient.get_desc());
    const dnnl::reorder narrow(value, w);
    parameters_.push_back({value, gradient, [this, narrow, value, w] {
                             narrow.execute(stream_, {{DNNL_ARG_FROM, value}, {DNNL_ARG_TO, w}});
                           }});
  }
  dnnl::primitive_attr Relu() const {
    dnnl::primitive_attr attr;
    ops::onednn::AppendRelu(&attr);
    return attr;
  }

  Memory Forward(Convolution* c, const Memory& input, int64_t in, int64_t out, int64_t size) {
    c->src = {batch_, in, size, size}, c->weights = {out, in, 5, 5},
    c->dst = {batch_, out, size, size};
    c->forward = ops::onednn::Describe<dnnl::convolution_forward>(
        engine_, Relu(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
        Of(c->src), Of(c->weights), Vector(out), Of(c->dst), kOnes, kTwos, kTwos);
    c->x = As(input, c->forward.src_desc());
    c->w = New(c->forward.weights_desc()), c->b = New(c->forward.bias_desc()),
    c->y = New(c->forward.dst_desc());
    Call(dnnl::convolution_forward(c->forward), {{DNNL_ARG_SRC, c->x},
                                                 {DNNL_ARG_WEIGHTS, c->w},
                                                 {DNNL_ARG_BIAS, c->b},
                                                 {DNNL_ARG_DST, c->y}});
    c->pool = ops::onednn::DescribePooling(engine_, {}, dnnl::prop_kind::forward_training,
                                           dnnl::algorithm::pooling_max, c->forward.dst_desc(),
                                           Of({batch_, out, size / 2, size / 2}), kHalves);
    c->workspace = New(c->pool.workspace_desc()), c->pooled = New(c->pool.dst_desc());
    Call(dnnl::pooling_forward(c->pool),
         {{DNNL_ARG_SRC, c->y}, {DNNL_ARG_DST, c->pooled}, {DNNL_ARG_WORKSPACE, c->workspace}});
    return c->pooled;
  }

  Memory Forward(Dense* d, const Memory& input, const Dims& src, const Dims& weights, bool relu) {
    d->src = src, d->weights = weights, d->dst = {batch_, weights[0]};
    d->forward = ops::onednn::Describe<dnnl::inner_product_forward>(
        engine_, relu ? Relu() : dnnl::primitive_attr(), dnnl::prop_kind::forward_training, Of(src),
        Of(weights), Vector(weights[0]), Of(d->dst));
    d->x = As(input, d->forward.src_desc());
    d->w = New(d->forward.weights_desc()), d->b = New(d->forward.bias_desc()),
    d->y = New(d->forward.dst_desc());
    Call(dnnl::inner_product_forward(d->forward), {{DNNL_ARG_SRC, d->x},
                                                   {DNNL_ARG_WEIGHTS, d->w},
                                                   {DNNL_ARG_BIAS, d->b},
                                                   {DNNL_ARG_DST, d->y}});
    return d->y;
  }

  Memory Backward(Dense* d, const Memory& gradient) {
    const auto bw = ops::onednn::DescribeBackward<dnnl::inner_product_backward_weights>(
        engine_, {}, d->forward, Of(d->src), FloatOf(d->weights), Vector(d->weights[0]),
        Of(d->dst));
    const auto bd = ops::onednn::DescribeBackward<dnnl::inner_product_backward_data>(
        engine_, {}, d->forward, Of(d->src), Of(d->weights), Of(d->dst));
    const Memory dw = New(bw.diff_weights_desc()), db = New(bw.diff_bias_desc()),
                 dx = New(bd.diff_src_desc());
    Call(dnnl::inner_product_backward_weights(bw),
         {{DNNL_ARG_SRC, As(d->x, bw.src_desc())},
          {DNNL_ARG_DIFF_DST, As(gradient, bw.diff_dst_desc())},
          {DNNL_ARG_DIFF_WEIGHTS, dw},
          {DNNL_ARG_DIFF_BIAS, db}});
    Call(dnnl::inner_product_backward_data(bd),
         {{DNNL_ARG_DIFF_DST, As(gradient, bd.diff_dst_desc())},
          {DNNL_ARG_WEIGHTS, As(d->w, bd.weights_desc())},
          {DNNL_ARG_DIFF_SRC, dx}});
    Add(d->w, dw);
    Add(d->b, db);
    return dx;
  }

  // The gradient through a ReLU whose output is `y`, in place.
  Memory ReluBackward(const Memory& y, const Memory& gradient) {
    const Memory g = As(gradient, y.get_desc());
    Call(dnnl::eltwise_backward(ops::onednn::DescribeReluBackward(engine_, y.get_desc())),
         {{DNNL_ARG_DST, y}, {DNNL_ARG_DIFF_DST, g}, {DNNL_ARG_DIFF_SRC, g}});
    return g;
  }

  Memory Backward(Convolution* c, const Memory& gradient, bool to_input) {
    const auto pool =
        ops::onednn::DescribePoolingBackward(engine_, {}, dnnl::algorithm::pooling_max,
                                             c->y.get_desc(), c->pool.dst_desc(), kHalves, c->pool);
    const Memory spread = New(pool.diff_src_desc());
    Call(dnnl::pooling_backward(pool), {{DNNL_ARG_DIFF_DST, As(gradient, pool.diff_dst_desc())},
                                        {DNNL_ARG_WORKSPACE, c->workspace},
                                        {DNNL_ARG_DIFF_SRC, spread}});
    const Memory dy = ReluBackward(c->y, spread);
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto bw = ops::onednn::DescribeBackward<dnnl::convolution_backward_weights>(
        engine_, {}, c->forward, direct, Of(c->src), FloatOf(c->weights), Vector(c->weights[0]),
        Of(c->dst), kOnes, kTwos, kTwos);
    const Memory dw = New(bw.diff_weights_desc()), db = New(bw.diff_bias_desc());
    Call(dnnl::convolution_backward_weights(bw), {{DNNL_ARG_SRC, As(c->x, bw.src_desc())},
                                                  {DNNL_ARG_DIFF_DST, As(dy, bw.diff_dst_desc())},
                                                  {DNNL_ARG_DIFF_WEIGHTS, dw},
                                                  {DNNL_ARG_DIFF_BIAS, db}});
    Add(c->w, dw);
    Add(c->b, db);
    if (!to_input) return {};
    const auto bd = ops::onednn::DescribeBackward<dnnl::convolution_backward_data>(
        engine_, {}, c->forward, direct, Of(c->src), Of(c->weights), Of(c->dst), kOnes, kTwos,
        kTwos);
    const Memory dx = New(bd.diff_src_desc());
    Call(dnnl::convolution_backward_data(bd), {{DNNL_ARG_DIFF_DST, As(dy, bd.diff_dst_desc())},
                                               {DNNL_ARG_WEIGHTS, As(c->w, bd.weights_desc())},
                                               {DNNL_ARG_DIFF_SRC, dx}});
    return dx;
  }

  void Build(int64_t fc) {
    const Memory images = New(Of({batch_, 1, 28, 28}, Tag::nchw), 1);
    Memory x = Forward(&conv1_, images, 1, 32, 28);
    x = Forward(&conv2_, x, 32, 64, 14);
    x = Forward(&fc1_, x, {batch_, 64, 7, 7}, {fc, 64, 7, 7}, true);
    const Memory logits =
        As(Forward(&fc2_, x, {batch_, fc}, {10, fc}, false), FloatOf({batch_, 10}, Tag::nc));
    const Memory g = New(logits.get_desc());
    calls_.push_back([this, logits, g] { CrossEntropy(Data(logits), Data(g)); });
    Memory d = Backward(&fc2_, g);
    d = Backward(&fc1_, ReluBackward(fc1_.y, d));
    d = Backward(&conv2_, d, true);
    Backward(&conv1_, d, false);
  }

  void CrossEntropy(const float* x, float* g) const {
    for (int64_t i = 0; i < batch_; ++i, x += 10, g += 10) {
      const float top = *std::max_element(x, x + 10);
      float sum = 0;
      for (int k = 0; k < 10; ++k) sum += g[k] = std::exp(x[k] - top);
      for (int k = 0; k < 10; ++k)
        g[k] = (g[k] / sum - (k == i % 10 ? 1.f : 0.f)) / static_cast<float>(batch_);
    }
  }

  const int64_t batch_;
  const dnnl::memory::data_type type_;  // of images, weights and what layers give
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<std::function<void()>> calls_;
  std::vector<Parameter> parameters_;
  std::vector<std::pair<Memory, Memory>> slots_;
  Convolution conv1_, conv2_;
  Dense fc1_, fc2_;
  float power1_ = 1, power2_ = 1;
};

OnednnCnn::OnednnCnn(int64_t batch, int64_t fc, bool bfloat16)
    : impl_(std::make_unique<Impl>(batch, fc, bfloat16)) {}
OnednnCnn::~OnednnCnn() = default;
void OnednnCnn::Step() { impl_->Step(); }

}  // namespace monograph::bench
