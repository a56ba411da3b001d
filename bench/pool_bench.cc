// Pooling: our kernels against oneDNN's primitives, one thread, at the shapes of the MNIST CNN, in
// one interleaved run.
//
// oneDNN's backward pass of max pooling reads a workspace that its forward pass wrote. TensorFlow's
// MaxPoolGrad gets input and output instead, so the reference of its rows computes the workspace
// anew, as a kernel over oneDNN would have to.
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/harness.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/pool/pool.h"

namespace monograph {
namespace {

constexpr int64_t kBatch = 100;
constexpr int kCalls = 20;  // per repetition and subject

struct Case {
  std::string name;
  int64_t side, channels, window, stride;
};
const Case kCases[] = {{"28x28x32", 28, 32, 2, 2},
                       {"14x14x64", 14, 64, 2, 2},
                       {"14x14x64, 3x3 windows", 14, 64, 3, 2}};

void Check(const Status& status) {
  if (!status.ok()) bench::Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

Tensor Pattern(const Shape& shape) {
  Tensor tensor = Check(Tensor::Allocate(DT_FLOAT, shape));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = static_cast<float>((i * 2654435761 >> 16) % 1000) / 500.f - 1.f;
  return tensor;
}

// Four functions: max forward, max backward, average forward, average backward.
constexpr int kFunctions = 4;
const char* const kFunctionNames[kFunctions] = {"max", "max gradient", "average",
                                                "average gradient"};

class Ours {
 public:
  explicit Ours(const Case& c) : graph_(NewGraph()), scope_(&graph_) {
    const Shape image{kBatch, c.side, c.side, c.channels};
    const int64_t out = (c.side + c.stride - 1) / c.stride;
    const Shape pooled{kBatch, out, out, c.channels};
    const std::vector<int64_t> ksize = {1, c.window, c.window, 1},
                               strides = {1, c.stride, c.stride, 1};
    const Output x = Placeholder(scope_, DT_FLOAT, image),
                 y = Placeholder(scope_, DT_FLOAT, pooled),
                 dy = Placeholder(scope_, DT_FLOAT, pooled);
    const Output shape = Const(scope_, Shape{4},
                               {static_cast<int32_t>(kBatch), static_cast<int32_t>(c.side),
                                static_cast<int32_t>(c.side), static_cast<int32_t>(c.channels)});
    const Output results[kFunctions] = {MaxPool(scope_, x, ksize, strides, "SAME"),
                                        MaxPoolGrad(scope_, x, y, dy, ksize, strides, "SAME"),
                                        AvgPool(scope_, x, ksize, strides, "SAME"),
                                        AvgPoolGrad(scope_, shape, dy, ksize, strides, "SAME")};
    Check(scope_.status());
    SessionOptions options;
    options.inter_op_parallelism_threads = options.intra_op_parallelism_threads = 1;
    session_ = Check(Session::Local(graph_, options));
    const Tensor tx = Pattern(image), tdy = Pattern(pooled);
    const Tensor ty = Check(session_->Run({{x, tx}}, {results[0]}))[0];
    const std::vector<std::pair<Output, Tensor>> feeds[kFunctions] = {
        {{x, tx}}, {{x, tx}, {y, ty}, {dy, tdy}}, {{x, tx}}, {{dy, tdy}}};
    for (int i = 0; i < kFunctions; ++i) {
      std::vector<Output> fed;
      for (const auto& [output, tensor] : feeds[i]) {
        fed.push_back(output);
        values_[i].push_back(tensor);
      }
      calls_[i] = Check(session_->MakeCallable(fed, {results[i]}));
    }
  }
  double Time(int function) {
    const double start = bench::Now();
    for (int i = 0; i < kCalls; ++i)
      Check(session_->RunCallable(calls_[function], values_[function]));
    return (bench::Now() - start) / kCalls;
  }

 private:
  Graph graph_;
  Scope scope_;
  std::unique_ptr<Session> session_;
  Callable calls_[kFunctions];
  std::vector<Tensor> values_[kFunctions];
};

class Theirs {
 public:
  explicit Theirs(const Case& c) {
    Check(ops::onednn::Guarded([&] { Build(c); }));
  }
  double Time(int function) {
    const ops::onednn::SingleThread single;
    const double start = bench::Now();
    for (int i = 0; i < kCalls; ++i) {
      for (auto& [primitive, args] : calls_[function]) primitive.execute(stream_, args);
    }
    return (bench::Now() - start) / kCalls;
  }

 private:
  using Memory = dnnl::memory;
  using Arguments = std::unordered_map<int, Memory>;

  Memory New(const Memory::desc& desc) {
    buffers_.push_back(Pattern(Shape{static_cast<int64_t>(desc.get_size() / 4 + 1)}));
    return Memory(desc, ops::onednn::Engine(), buffers_.back().raw());
  }
  void Build(const Case& c) {
    const int64_t out = (c.side + c.stride - 1) / c.stride;
    const int64_t pad = std::max<int64_t>((out - 1) * c.stride + c.window - c.side, 0);
    const ops::onednn::Windows windows{.strides = {c.stride, c.stride},
                                       .size = {c.window, c.window},
                                       .before = {pad / 2, pad / 2},
                                       .after = {pad - pad / 2, pad - pad / 2}};
    const Memory::desc image({kBatch, c.channels, c.side, c.side}, Memory::data_type::f32,
                             Memory::format_tag::nhwc),
        pooled({kBatch, c.channels, out, out}, Memory::data_type::f32, Memory::format_tag::nhwc);
    const Memory x = New(image), dx = New(image), y = New(pooled), dy = New(pooled);
    const auto& engine = ops::onednn::Engine();
    const auto max = dnnl::algorithm::pooling_max,
               average = dnnl::algorithm::pooling_avg_exclude_padding;
    const auto forward = [&](dnnl::algorithm algorithm, dnnl::prop_kind kind) {
      return ops::onednn::DescribePooling(engine, {}, kind, algorithm, image, pooled, windows);
    };
    const auto backward = [&](dnnl::algorithm algorithm,
                              const dnnl::pooling_forward::primitive_desc& hint) {
      return dnnl::pooling_backward(ops::onednn::DescribePoolingBackward(
          engine, {}, algorithm, image, pooled, windows, hint));
    };
    const auto inference = dnnl::prop_kind::forward_inference,
               training = dnnl::prop_kind::forward_training;
    calls_[0].push_back(
        {dnnl::pooling_forward(forward(max, inference)), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}}});
    const auto hint = forward(max, training);
    const Memory workspace = New(hint.workspace_desc());
    calls_[1].push_back({dnnl::pooling_forward(hint),
                         {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}, {DNNL_ARG_WORKSPACE, workspace}}});
    calls_[1].push_back(
        {backward(max, hint),
         {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}, {DNNL_ARG_WORKSPACE, workspace}}});
    calls_[2].push_back({dnnl::pooling_forward(forward(average, inference)),
                         {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}}});
    calls_[3].push_back({backward(average, forward(average, training)),
                         {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dx}}});
  }

  dnnl::stream stream_{ops::onednn::Engine()};
  std::vector<Tensor> buffers_;
  std::vector<std::pair<dnnl::primitive, Arguments>> calls_[kFunctions];
};

}  // namespace

int Main(int argc, char** argv) {
  const bench::Args args =
      bench::Args::Parse(argc, argv, "pooling kernels against oneDNN's primitives, one thread");
  bench::Report report(args);
  for (const Case& c : kCases) {
    std::vector<bench::Subject> subjects;
    std::vector<int> functions;
    for (int i = 0; i < kFunctions; ++i) {
      const std::string name = std::string(kFunctionNames[i]) + " " + c.name;
      if (!args.Wants(name)) continue;
      subjects.push_back({name, bench::Goal{1.1, bench::Goal::kMax}});
      functions.push_back(i);
    }
    if (subjects.empty()) continue;
    Ours ours(c);
    Theirs theirs(c);
    const auto side = [&](auto& which) {
      return [&which, &functions]() -> std::optional<std::vector<double>> {
        std::vector<double> times;
        for (const int function : functions) times.push_back(which.Time(function) * 1e6);
        return times;
      };
    };
    report.Compare("pool", "us", subjects, {"monograph", side(ours)}, {{"oneDNN", side(theirs)}},
                   args.Repetitions(30));
  }
  return 0;
}

}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
