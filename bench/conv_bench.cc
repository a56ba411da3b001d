// Convolutions: our kernels against oneDNN's primitives, one thread, in one interleaved run, at the
// shapes of the examples' models.
//
// The reference has every tensor in the layout that its primitive likes best, and whichever of its
// algorithms it chooses (convolution_auto); ours reads and writes NHWC and HWIO.
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
#include "ops/conv/conv.h"
#include "ops/onednn_cpu.h"

namespace monograph {
namespace {

struct Case {
  std::string name;
  int64_t batch, side, in, size, out;
  bool to_input = true;  // no layer below needs the input's gradient

  double flops() const {
    return 2e-9 * static_cast<double>(batch * side * side * in * size * size * out);
  }
};
const Case kCases[] = {{"mnist 1", 100, 28, 1, 5, 32, false},   {"mnist 2", 100, 14, 32, 5, 64},
                       {"cifar10 1", 128, 24, 3, 5, 64, false}, {"cifar10 2", 128, 12, 64, 5, 64},
                       {"resnet 0", 32, 32, 3, 3, 16, false},   {"resnet 1", 32, 32, 16, 3, 16},
                       {"resnet 2", 32, 16, 32, 3, 32},         {"resnet 3", 32, 8, 64, 3, 64},
                       {"resnet 4", 8, 14, 128, 3, 128}};

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
Tensor Ints(const Shape& shape) {
  Tensor out = Check(Tensor::Allocate(DT_INT32, Shape{shape.rank()}));
  for (int i = 0; i < shape.rank(); ++i) out.data<int32_t>()[i] = static_cast<int32_t>(shape[i]);
  return out;
}

constexpr int kFunctions = 3;
const char* const kFunctionNames[kFunctions] = {"forward", "filter gradient", "input gradient"};

int Calls(const Case& c) { return std::max(1, static_cast<int>(2 / c.flops())); }

class Ours {
 public:
  explicit Ours(const Case& c) : calls_(Calls(c)), graph_(NewGraph()), scope_(&graph_) {
    const Shape image{c.batch, c.side, c.side, c.in}, filter{c.size, c.size, c.in, c.out},
        result{c.batch, c.side, c.side, c.out};
    const Output x = Placeholder(scope_, DT_FLOAT, image),
                 w = Placeholder(scope_, DT_FLOAT, filter),
                 dy = Placeholder(scope_, DT_FLOAT, result);
    const Output image_sizes = Const(scope_, Ints(image)),
                 filter_sizes = Const(scope_, Ints(filter));
    const std::vector<int64_t> strides{1, 1, 1, 1};
    const Output results[kFunctions] = {
        Conv2D(scope_, x, w, strides, "SAME"),
        Conv2DBackpropFilter(scope_, x, filter_sizes, dy, strides, "SAME"),
        Conv2DBackpropInput(scope_, image_sizes, w, dy, strides, "SAME")};
    Check(scope_.status());
    SessionOptions options;
    options.inter_op_parallelism_threads = options.intra_op_parallelism_threads = 1;
    session_ = Check(Session::Local(graph_, options));
    const Tensor tx = Pattern(image), tw = Pattern(filter), tdy = Pattern(result);
    values_[0] = {tx, tw}, values_[1] = {tx, tdy}, values_[2] = {tw, tdy};
    const std::vector<Output> fed[kFunctions] = {{x, w}, {x, dy}, {w, dy}};
    for (int i = 0; i < kFunctions; ++i)
      callables_[i] = Check(session_->MakeCallable(fed[i], {results[i]}));
  }
  double Time(int function) {
    const double start = bench::Now();
    for (int i = 0; i < calls_; ++i)
      Check(session_->RunCallable(callables_[function], values_[function]));
    return (bench::Now() - start) / calls_;
  }

 private:
  const int calls_;
  Graph graph_;
  Scope scope_;
  std::unique_ptr<Session> session_;
  Callable callables_[kFunctions];
  std::vector<Tensor> values_[kFunctions];
};

class Theirs {
 public:
  explicit Theirs(const Case& c) : calls_(Calls(c)) {
    Check(ops::onednn::Guarded([&] { Build(c); }));
  }
  double Time(int function) {
    const ops::onednn::SingleThread single;
    const double start = bench::Now();
    for (int i = 0; i < calls_; ++i) {
      primitives_[function].first.execute(stream_, primitives_[function].second);
    }
    return (bench::Now() - start) / calls_;
  }

 private:
  using Memory = dnnl::memory;

  Memory New(const Memory::desc& desc) {
    buffers_.push_back(Pattern(Shape{static_cast<int64_t>(desc.get_size() / 4 + 1)}));
    return Memory(desc, ops::onednn::Engine(), buffers_.back().raw());
  }
  static Memory::desc Any(const Memory::dims& dims) {
    return {dims, Memory::data_type::f32, Memory::format_tag::any};
  }
  void Build(const Case& c) {
    const Memory::desc src = Any({c.batch, c.in, c.side, c.side}),
                       dst = Any({c.batch, c.out, c.side, c.side}),
                       weights = Any({c.out, c.in, c.size, c.size});
    const Memory::dims strides{1, 1}, pads{c.size / 2, c.size / 2};
    const auto automatic = dnnl::algorithm::convolution_auto;
    const auto& engine = ops::onednn::Engine();
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, automatic, src, weights, dst, strides, pads, pads},
        engine);
    primitives_[0] = {dnnl::convolution_forward(forward),
                      {{DNNL_ARG_SRC, New(forward.src_desc())},
                       {DNNL_ARG_WEIGHTS, New(forward.weights_desc())},
                       {DNNL_ARG_DST, New(forward.dst_desc())}}};
    const dnnl::convolution_backward_weights::primitive_desc by_filter(
        {automatic, src, weights, dst, strides, pads, pads}, engine, forward);
    primitives_[1] = {dnnl::convolution_backward_weights(by_filter),
                      {{DNNL_ARG_SRC, New(by_filter.src_desc())},
                       {DNNL_ARG_DIFF_DST, New(by_filter.diff_dst_desc())},
                       {DNNL_ARG_DIFF_WEIGHTS, New(by_filter.diff_weights_desc())}}};
    const dnnl::convolution_backward_data::primitive_desc by_input(
        {automatic, src, weights, dst, strides, pads, pads}, engine, forward);
    primitives_[2] = {dnnl::convolution_backward_data(by_input),
                      {{DNNL_ARG_DIFF_DST, New(by_input.diff_dst_desc())},
                       {DNNL_ARG_WEIGHTS, New(by_input.weights_desc())},
                       {DNNL_ARG_DIFF_SRC, New(by_input.diff_src_desc())}}};
  }

  const int calls_;
  dnnl::stream stream_{ops::onednn::Engine()};
  std::vector<Tensor> buffers_;
  std::pair<dnnl::primitive, std::unordered_map<int, Memory>> primitives_[kFunctions];
};

}  // namespace

int Main(int argc, char** argv) {
  const bench::Args args =
      bench::Args::Parse(argc, argv, "convolutions against oneDNN's primitives, one thread");
  bench::Report report(args);
  for (const Case& c : kCases) {
    std::vector<bench::Subject> subjects;
    std::vector<int> functions;
    for (int i = 0; i < (c.to_input ? kFunctions : 2); ++i) {
      const std::string name = c.name + ", " + kFunctionNames[i];
      if (!args.Wants(name)) continue;
      subjects.push_back({name, bench::Goal{1, bench::Goal::kMin}});
      functions.push_back(i);
    }
    if (subjects.empty()) continue;
    Ours ours(c);
    Theirs theirs(c);
    const auto side = [&](auto& which) {
      return [&which, &functions, &c]() -> std::optional<std::vector<double>> {
        std::vector<double> speeds;
        for (const int function : functions) speeds.push_back(c.flops() / which.Time(function));
        return speeds;
      };
    };
    report.Compare("conv", "GFLOP/s", subjects, {"monograph", side(ours)},
                   {{"oneDNN", side(theirs)}}, args.Repetitions(30));
  }
  return 0;
}

}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
