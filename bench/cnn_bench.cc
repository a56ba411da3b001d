// One training step of the MNIST CNN on one thread: our graph, kernels and executor against the
// same oneDNN primitives called back to back.
//
//   cnn_bench [--rounds=40] [--batch=100] [--fc=1024] [--nodes] [--json=FILE]
//
// The reference has no graph: blocked layouts throughout, ReLU fused, all memory allocated before,
// on huge pages. Both run in one process, in turns; only ratios count. --nodes prints where our
// step's time goes.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "executor/device.h"
#include "executor/plan.h"
#include "executor/resource_manager.h"
#include "executor/step_executor.h"
#include "executor/thread_pools.h"
#include "graph/gradients.h"
#include "graph/prune.h"
#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/fuse.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/register.h"
#include "ops/shape/shape.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of the calling thread.
double CpuNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

float Pattern(size_t i, float scale) {
  return (static_cast<float>((i * 2654435761u >> 16) % 1000) / 500.f - 1.f) * scale;
}

// ---- the reference
// -------------------------------------------------------------------------------------------------

class Reference {
 public:
  Reference(int64_t batch, int64_t fc) : batch_(batch) {
    omp_set_num_threads(1);
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream_ = dnnl::stream(engine_);
    Build(fc);
    for (auto& [w, g] : parameters_) slots_.push_back({New(w.get_desc(), 0), New(w.get_desc(), 0)});
  }

  void Step() {
    omp_set_num_threads(1);
    for (const auto& call : calls_) call();
    power1_ *= 0.9f, power2_ *= 0.999f;
    const float rate = 1e-4f * std::sqrt(1 - power2_) / (1 - power1_);
    for (size_t k = 0; k < parameters_.size(); ++k) {
      const auto& [weights, gradient] = parameters_[k];
      float* w = Data(weights);
      const float* g = Data(gradient);
      float *m = Data(slots_[k].first), *v = Data(slots_[k].second);
      const auto n = static_cast<int64_t>(weights.get_desc().get_size() / sizeof(float));
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        m[i] += (g[i] - m[i]) * 0.1f;
        v[i] += (g[i] * g[i] - v[i]) * 0.001f;
        w[i] -= m[i] * rate / (std::sqrt(v[i]) + 1e-8f);
      }
    }
  }

 private:
  using Memory = dnnl::memory;
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  using Dims = dnnl::memory::dims;
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

  static float* Data(const Memory& m) { return static_cast<float*>(m.get_data_handle()); }
  static Desc Of(const Dims& dims, Tag tag = Tag::any) {
    return {dims, dnnl::memory::data_type::f32, tag};
  }
  static Desc Vector(int64_t n) { return Of({n}, Tag::x); }

  Memory New(const Desc& desc, float scale = 0.05f) {
    const size_t huge = size_t{2} << 20,
                 bytes = (std::max<size_t>(1, desc.get_size()) + huge - 1) / huge * huge;
    void* data = std::aligned_alloc(huge, bytes);
    madvise(data, bytes, MADV_HUGEPAGE);
    auto* values = static_cast<float*>(data);
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) values[i] = Pattern(i, scale);
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
  dnnl::primitive_attr Relu() const {
    dnnl::post_ops ops;
    ops.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f);
    dnnl::primitive_attr attr;
    attr.set_post_ops(ops);
    return attr;
  }

  Memory Forward(Convolution* c, const Memory& input, int64_t in, int64_t out, int64_t size) {
    c->src = {batch_, in, size, size}, c->weights = {out, in, 5, 5},
    c->dst = {batch_, out, size, size};
    c->forward = {dnnl::convolution_forward::desc(
                      dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                      Of(c->src), Of(c->weights), Vector(out), Of(c->dst), {1, 1}, {2, 2}, {2, 2}),
                  Relu(), engine_};
    c->x = As(input, c->forward.src_desc());
    c->w = New(c->forward.weights_desc()), c->b = New(c->forward.bias_desc()),
    c->y = New(c->forward.dst_desc());
    Call(dnnl::convolution_forward(c->forward), {{DNNL_ARG_SRC, c->x},
                                                 {DNNL_ARG_WEIGHTS, c->w},
                                                 {DNNL_ARG_BIAS, c->b},
                                                 {DNNL_ARG_DST, c->y}});
    c->pool = {
        dnnl::pooling_forward::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max,
                                    c->forward.dst_desc(), Of({batch_, out, size / 2, size / 2}),
                                    {2, 2}, {2, 2}, {0, 0}, {0, 0}),
        engine_};
    c->workspace = New(c->pool.workspace_desc()), c->pooled = New(c->pool.dst_desc());
    Call(dnnl::pooling_forward(c->pool),
         {{DNNL_ARG_SRC, c->y}, {DNNL_ARG_DST, c->pooled}, {DNNL_ARG_WORKSPACE, c->workspace}});
    return c->pooled;
  }

  Memory Forward(Dense* d, const Memory& input, const Dims& src, const Dims& weights, bool relu) {
    d->src = src, d->weights = weights, d->dst = {batch_, weights[0]};
    d->forward = {dnnl::inner_product_forward::desc(dnnl::prop_kind::forward_training, Of(src),
                                                    Of(weights), Vector(weights[0]), Of(d->dst)),
                  relu ? Relu() : dnnl::primitive_attr(), engine_};
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
    const dnnl::inner_product_backward_weights::primitive_desc bw(
        dnnl::inner_product_backward_weights::desc(Of(d->src), Of(d->weights),
                                                   Vector(d->weights[0]), Of(d->dst)),
        engine_, d->forward);
    const dnnl::inner_product_backward_data::primitive_desc bd(
        dnnl::inner_product_backward_data::desc(Of(d->src), Of(d->weights), Of(d->dst)), engine_,
        d->forward);
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
    parameters_.push_back({d->w, As(dw, d->w.get_desc())});
    parameters_.push_back({d->b, db});
    return dx;
  }

  // The gradient through a ReLU whose output is `y`, in place.
  Memory ReluBackward(const Memory& y, const Memory& gradient) {
    const Memory g = As(gradient, y.get_desc());
    const auto kind = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
    const dnnl::eltwise_forward::primitive_desc forward(
        dnnl::eltwise_forward::desc(dnnl::prop_kind::forward_training, kind, y.get_desc(), 0.f,
                                    0.f),
        engine_);
    const dnnl::eltwise_backward::primitive_desc backward(
        dnnl::eltwise_backward::desc(kind, y.get_desc(), y.get_desc(), 0.f, 0.f), engine_, forward);
    Call(dnnl::eltwise_backward(backward),
         {{DNNL_ARG_DST, y}, {DNNL_ARG_DIFF_DST, g}, {DNNL_ARG_DIFF_SRC, g}});
    return g;
  }

  Memory Backward(Convolution* c, const Memory& gradient, bool to_input) {
    const dnnl::pooling_backward::primitive_desc pool(
        dnnl::pooling_backward::desc(dnnl::algorithm::pooling_max, c->y.get_desc(),
                                     c->pool.dst_desc(), {2, 2}, {2, 2}, {0, 0}, {0, 0}),
        engine_, c->pool);
    const Memory spread = New(pool.diff_src_desc());
    Call(dnnl::pooling_backward(pool), {{DNNL_ARG_DIFF_DST, As(gradient, pool.diff_dst_desc())},
                                        {DNNL_ARG_WORKSPACE, c->workspace},
                                        {DNNL_ARG_DIFF_SRC, spread}});
    const Memory dy = ReluBackward(c->y, spread);
    const auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_backward_weights::primitive_desc bw(
        dnnl::convolution_backward_weights::desc(direct, Of(c->src), Of(c->weights),
                                                 Vector(c->weights[0]), Of(c->dst), {1, 1}, {2, 2},
                                                 {2, 2}),
        engine_, c->forward);
    const Memory dw = New(bw.diff_weights_desc()), db = New(bw.diff_bias_desc());
    Call(dnnl::convolution_backward_weights(bw), {{DNNL_ARG_SRC, As(c->x, bw.src_desc())},
                                                  {DNNL_ARG_DIFF_DST, As(dy, bw.diff_dst_desc())},
                                                  {DNNL_ARG_DIFF_WEIGHTS, dw},
                                                  {DNNL_ARG_DIFF_BIAS, db}});
    parameters_.push_back({c->w, As(dw, c->w.get_desc())});
    parameters_.push_back({c->b, db});
    if (!to_input) return {};
    const dnnl::convolution_backward_data::primitive_desc bd(
        dnnl::convolution_backward_data::desc(direct, Of(c->src), Of(c->weights), Of(c->dst),
                                              {1, 1}, {2, 2}, {2, 2}),
        engine_, c->forward);
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
    const Memory logits = Forward(&fc2_, x, {batch_, fc}, {10, fc}, false);
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
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<std::function<void()>> calls_;
  std::vector<std::pair<Memory, Memory>> parameters_, slots_;
  Convolution conv1_, conv2_;
  Dense fc1_, fc2_;
  float power1_ = 1, power2_ = 1;
};

// ---- ours
// ----------------------------------------------------------------------------------------------------------

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cnn_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

class Ours {
 public:
  Ours(int64_t batch, int64_t fc) : pools_(1, 1) {
    DefineOps(&ops_);
    RegisterCpuKernels(&kernels_);
    devices_ =
        Check(MakeCpuDevices(Check(DeviceName::Parse("/job:localhost/replica:0/task:0")), 1));

    Graph init(&ops_), train(&ops_);
    init_ = std::make_unique<Scope>(&init);
    Scope root(&train);
    Tensor x = Check(Tensor::Allocate(DT_FLOAT, {batch, 28, 28, 1})),
           y = Check(Tensor::Allocate(DT_INT32, {batch}));
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = Pattern(static_cast<size_t>(i), 1);
    for (int64_t i = 0; i < batch; ++i) y.data<int32_t>()[i] = static_cast<int32_t>(i % 10);

    Output h = Const(root.WithOpName("images"), x);
    h = ConvLayer(root.SubScope("conv1"), h, 1, 32);
    h = ConvLayer(root.SubScope("conv2"), h, 32, 64);
    h = Reshape(root, h, {batch, 7 * 7 * 64});
    h = Relu(root.SubScope("fc1"), DenseLayer(root.SubScope("fc1"), h, 7 * 7 * 64, fc));
    h = DenseLayer(root.SubScope("fc2"), h, fc, 10);
    const Output loss = SparseSoftmaxCrossEntropyWithLogits(root.WithOpName("loss"), h,
                                                            Const(root.WithOpName("labels"), y));
    Tensor share = Check(Tensor::Allocate(DT_FLOAT, {batch}));
    std::fill_n(share.data<float>(), batch, 1.f / static_cast<float>(batch));
    const Output mean = Const(root.WithOpName("mean"), share);
    const Outputs gradients = Check(AddGradients(
        root.SubScope("gradients"), std::vector<Output>{loss}, values_, std::vector<Output>{mean}));
    const Scope adam = root.SubScope("adam");
    const auto scalar = [&](const char* name, float value) {
      return Const(adam.WithOpName(name), value);
    };
    const Output power1 = scalar("beta1_power", 0.9f), power2 = scalar("beta2_power", 0.999f),
                 lr = scalar("lr", 1e-4f), beta1 = scalar("beta1", 0.9f),
                 beta2 = scalar("beta2", 0.999f), epsilon = scalar("epsilon", 1e-8f);
    std::vector<NodeId> updates;
    for (size_t i = 0; i < handles_.size(); ++i) {
      const Shape shape = handles_[i].attrs().Get<PartialShape>("shape").AsShape();
      const std::string name(handles_[i].name());
      const Output m = Variable(adam, name + "/m", shape, 0),
                   v = Variable(adam, name + "/v", shape, 0);
      updates.push_back(ResourceApplyAdam(adam, handles_[i].output(0), m, v, power1, power2, lr,
                                          beta1, beta2, epsilon, gradients[i])
                            .id);
    }
    Check(root.status());
    Check(init_->status());
    init_.reset();
    Compile(std::move(init));
    Step();
    Compile(Check(FuseOps(Check(Prune(train, {}, {}, updates, nullptr)), {}, nullptr)));
  }

  void Step(StepTrace* trace = nullptr) {
    bool finished = false;
    auto step = StepExecutor::Prepare(
        plan_, ++step_id_, nullptr,
        [&](const Status& status) {
          Check(status);
          finished = true;
        },
        trace);
    step->Start(/*inline_all=*/true);
    if (!finished) Check(Internal("a step on one thread did not finish in its Start"));
  }

  void PrintNodes(int steps) {
    std::map<std::string, double> total;
    for (int i = 0; i < steps; ++i) {
      StepTrace trace;
      Step(&trace);
      for (const TraceEvent& e : trace.Events())
        total[e.op + " " + e.name] += static_cast<double>(e.end_ns - e.start_ns) * 1e-6 / steps;
    }
    std::vector<std::pair<double, std::string>> rows;
    for (const auto& [name, ms] : total) rows.push_back({ms, name});
    std::sort(rows.rbegin(), rows.rend());
    double sum = 0;
    for (const auto& [ms, name] : rows) sum += ms;
    std::printf("%zu nodes, %.3f ms inside kernels\n", rows.size(), sum);
    for (const auto& [ms, name] : rows) {
      if (ms >= 0.01) std::printf("  %8.3f ms  %s\n", ms, name.c_str());
    }
  }

 private:
  // A handle in the graph that is built, and its first value in the initialisation.
  Output Variable(const Scope& scope, const std::string& name, const Shape& shape, float scale) {
    Tensor value = Check(Tensor::Allocate(DT_FLOAT, shape));
    for (int64_t i = 0; i < value.elements(); ++i)
      value.data<float>()[i] = Pattern(static_cast<size_t>(i), scale);
    AssignVariable(*init_, VarHandle(*init_, DT_FLOAT, shape, "", name), Const(*init_, value));
    return VarHandle(scope, DT_FLOAT, shape, "", name);
  }
  Output Weights(const Scope& scope, const char* name, const Shape& shape) {
    const Output handle = Variable(scope.WithOpName(name), scope.prefix() + name, shape, 0.05f);
    handles_.push_back(handle);
    values_.push_back(ReadVariable(scope, handle));
    return values_.back();
  }
  Output ConvLayer(const Scope& s, const Output& x, int64_t in, int64_t out) {
    const Output w = Weights(s, "w", {5, 5, in, out}), b = Weights(s, "b", {out});
    return MaxPool(s, Relu(s, BiasAdd(s, Conv2D(s, x, w, {1, 1, 1, 1}, "SAME"), b)), {1, 2, 2, 1},
                   {1, 2, 2, 1}, "SAME");
  }
  Output DenseLayer(const Scope& s, const Output& x, int64_t in, int64_t out) {
    const Output w = Weights(s, "w", {in, out}), b = Weights(s, "b", {out});
    return BiasAdd(s, MatMul(s, x, w), b);
  }
  void Compile(Graph graph) {
    const DeviceIndex device = Check(graph.InternDevice(devices_[0]->name()));
    for (NodeId id = 0; id < graph.num_nodes(); ++id) graph.SetDevice(id, device);
    plan_ = Check(CompilePlan(std::move(graph), {.kernels = &kernels_,
                                                 .devices = {devices_[0].get()},
                                                 .pools = &pools_,
                                                 .resources = &resources_}));
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPools pools_;
  ResourceManager resources_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Scope> init_;
  std::vector<Operation> handles_;
  Outputs values_;
  std::shared_ptr<const Plan> plan_;
  uint64_t step_id_ = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  int64_t rounds = 40, batch = 100, fc = 1024;
  bool nodes = false;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&](const char* name) -> const char* {
      return arg.rfind(name, 0) == 0 ? argv[i] + std::string(name).size() : nullptr;
    };
    if (const char* text = value("--rounds="))
      rounds = std::max(1, std::atoi(text));
    else if (const char* text2 = value("--batch="))
      batch = std::max(1, std::atoi(text2));
    else if (const char* text3 = value("--fc="))
      fc = std::max(1, std::atoi(text3));
    else if (const char* text4 = value("--json="))
      json = text4;
    else if (arg == "--nodes")
      nodes = true;
    else {
      std::fprintf(
          stderr,
          "usage: cnn_bench [--rounds=40] [--batch=100] [--fc=1024] [--nodes] [--json=FILE]\n");
      return 2;
    }
  }
  Ours ours(batch, fc);
  Reference reference(batch, fc);
  // Step by step in turns, so that what else the machine does hits both.
  struct Time {
    double wall, cpu;
  };
  const auto time = [](auto* side) {
    const double start = Now(), cpu = CpuNow();
    side->Step();
    return Time{Now() - start, CpuNow() - cpu};
  };
  for (int i = 0; i < 3; ++i) time(&ours), time(&reference);
  std::vector<double> mine, theirs, ratios, cpu_ratios;
  for (int64_t r = 0; r < rounds; ++r) {
    // Whoever comes first in a round may find the machine in another state: take turns.
    Time a, b;
    if (r % 2 == 0) {
      a = time(&ours), b = time(&reference);
    } else {
      b = time(&reference), a = time(&ours);
    }
    mine.push_back(a.wall), theirs.push_back(b.wall);
    ratios.push_back(b.wall / a.wall), cpu_ratios.push_back(b.cpu / a.cpu);
  }
  if (nodes) ours.PrintNodes(20);
  const double ratio = Median(ratios), low = *std::min_element(ratios.begin(), ratios.end()),
               high = *std::max_element(ratios.begin(), ratios.end());
  const auto images = [&](const std::vector<double>& seconds) {
    return static_cast<double>(batch) / Median(seconds);
  };
  std::printf(
      "mnist cnn, batch %ld, fc %ld, one thread: ours %.0f images/s (%.2f ms), oneDNN back to back "
      "%.0f (%.2f ms): ratio %.3f [%.3f .. %.3f], of processor time %.3f, goal 0.90\n",
      static_cast<long>(batch), static_cast<long>(fc), images(mine), Median(mine) * 1e3,
      images(theirs), Median(theirs) * 1e3, ratio, low, high, Median(cpu_ratios));
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "a");
    if (file == nullptr) {
      std::fprintf(stderr, "cnn_bench: cannot write %s\n", json.c_str());
      return 1;
    }
    std::fprintf(file,
                 "{\"bench\":\"cnn\",\"case\":\"mnist batch %ld fc %ld, one replica, one "
                 "thread\",\"value\":%.1f,\"unit\":\"images/s\",\"reference\":\"oneDNN "
                 "back to "
                 "back\",\"reference_value\":%.1f,\"ratio\":%.4f,\"goal\":0.90,\"goal_is\":\"min\","
                 "\"low\":%.4f,\"high\":%.4f,\"repetitions\":%ld}\n",
                 static_cast<long>(batch), static_cast<long>(fc), images(mine), images(theirs),
                 ratio, low, high, static_cast<long>(rounds));
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
