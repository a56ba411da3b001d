// Kernels of GPUs that call libraries, and what stands beside them, against the CPU's: values and
// gradients over a table of shapes. Where there is no GPU every test says so and is skipped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "executor/gpu/plugin.h"
#include "graph/gradients.h"
#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "tests/gpu/emulated/injected_failures.h"

namespace monograph {
namespace {

constexpr char kCpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";

using BuildFn = std::function<Output(const Scope&, const Outputs&)>;

struct Case {
  std::string name;
  std::vector<Shape> inputs;
  BuildFn build;
  std::vector<DType> dtypes = {DT_FLOAT, DT_HALF, DT_BFLOAT16};
  int64_t summands = 1;  // how many products are added up for one element of a result
  // What flows back is small where the result is: Relu's slope jumps there, and of two ways to
  // round one may be on the other side.
  bool ends_in_relu = false;
  bool deterministic = false;  // also where it is compared with the CPU
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, shape).value();
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    tensor.data<float>()[i] = static_cast<float>(state >> 40) / float(1 << 23) - 1;
  }
  return tensor;
}

// The value and the gradients with regard to all inputs, as floats.
struct Results {
  std::vector<Tensor> values;

  void Compute(const Case& c, DType dtype, const char* device, const GpuOptions& gpu) {
    Graph graph = NewGraph();
    const Scope root = Scope(&graph).WithDevice(device);
    Outputs wide, inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      // Fed, so that nothing is computed beforehand.
      wide.push_back(Placeholder(root, DT_FLOAT, c.inputs[i]));
      inputs.push_back(Cast(root, wide.back(), dtype));
    }
    const Output y = c.build(root, inputs);
    ASSERT_TRUE(root.ok()) << root.status();
    Output weights = Cast(root, Const(root, Random(y.shape().AsShape(), 99)), y.dtype());
    if (c.ends_in_relu) weights = Mul(root, weights, Tanh(root, y));
    auto gradients = AddGradients(root, Outputs{y}, inputs, Outputs{weights});
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    Outputs wanted{Cast(root, y, DT_FLOAT)};
    for (const Output& gradient : *gradients) wanted.push_back(Cast(root, gradient, DT_FLOAT));
    SessionOptions options;
    options.gpu = gpu;
    auto session = Session::Local(graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    std::vector<Feed> feeds;
    for (size_t i = 0; i < wide.size(); ++i)
      feeds.emplace_back(wide[i], Random(c.inputs[i], i + 1));
    // Twice: the first run looks for algorithms, the second is a steady one.
    for (int i = 0; i < 2; ++i) {
      auto got = (*session)->Run(feeds, wanted);
      ASSERT_TRUE(got.ok()) << got.status();
      if (i == 1) values = *std::move(got);
    }
  }
};

// Differences that rounding explains: each product and each result is rounded to the type's digits,
// and each partial sum to float's, on both sides.
double Tolerance(DType dtype, int64_t summands, bool tf32) {
  const double unit = dtype == DT_FLOAT  ? (tf32 ? 0x1p-10 : 0x1p-21)
                      : dtype == DT_HALF ? 0x1p-10
                                         : 0x1p-7;
  return unit * (2 + 2 * std::sqrt(static_cast<double>(summands)));
}

void ExpectNear(const Tensor& got, const Tensor& expected, double tolerance) {
  ASSERT_EQ(got.shape(), expected.shape());
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double e = expected.data<float>()[i], g = got.data<float>()[i];
    ASSERT_NEAR(g, e, tolerance * std::max(1.0, std::abs(e))) << "element " << i;
  }
}

class GpuKernels : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
  }
  static GpuOptions Options(bool tf32, bool deterministic) {
    GpuOptions options;
    options.allow_tf32 = tf32;
    options.deterministic = deterministic;
    options.allow_growth = true;
    return options;
  }
};

TEST_P(GpuKernels, AgreeWithTheCpus) {
  const Case& c = GetParam();
  for (const DType dtype : c.dtypes) {
    for (const bool tf32 : {false, true}) {
      if (tf32 && dtype != DT_FLOAT) continue;
      SCOPED_TRACE(std::string(DTypeName(dtype)) + (tf32 ? " as TF32" : ""));
      const GpuOptions options = Options(tf32, c.deterministic);
      Results cpu, gpu;
      cpu.Compute(c, dtype, kCpu0, options);
      gpu.Compute(c, dtype, kGpu0, options);
      if (HasFatalFailure()) return;
      ASSERT_EQ(gpu.values.size(), cpu.values.size());
      for (size_t i = 0; i < cpu.values.size(); ++i) {
        SCOPED_TRACE(i == 0 ? "the value" : "gradient " + std::to_string(i - 1));
        ExpectNear(gpu.values[i], cpu.values[i], Tolerance(dtype, c.summands, tf32));
      }
    }
  }
}

TEST_P(GpuKernels, GiveTheSameBitsTwiceIfDeterministic) {
  const Case& c = GetParam();
  const GpuOptions options = Options(/*tf32=*/true, /*deterministic=*/true);
  for (const DType dtype : c.dtypes) {
    Results first, second;
    first.Compute(c, dtype, kGpu0, options);
    second.Compute(c, dtype, kGpu0, options);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < first.values.size(); ++i)
      EXPECT_TRUE(BitEqual(first.values[i], second.values[i])) << DTypeName(dtype) << ", " << i;
  }
}

Case Conv(const std::string& name, const Shape& x, const Shape& w, int64_t stride,
          const char* padding, Conv2DOptions options = {}) {
  const bool first = options.data_format == "NCHW";
  const std::vector<int64_t> strides = first ? std::vector<int64_t>{1, 1, stride, stride}
                                             : std::vector<int64_t>{1, stride, stride, 1};
  return {.name = "Conv2D, " + name,
          .inputs = {x, w},
          .build =
              [=](const Scope& s, const Outputs& in) {
                return Conv2D(s, in[0], in[1], strides, padding, options);
              },
          .summands = std::max(w[0] * w[1] * w[2], x.elements() / x[first ? 1 : 3])};
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      Conv("3x3", {2, 14, 14, 32}, {3, 3, 32, 64}, 1, "SAME"),
      Conv("3x3, stride 2 on an even side", {2, 16, 16, 32}, {3, 3, 32, 32}, 2, "SAME"),
      Conv("7x7 on three channels", {2, 32, 32, 3}, {7, 7, 3, 64}, 2, "EXPLICIT",
           {.explicit_paddings = {0, 0, 3, 3, 3, 3, 0, 0}}),
      Conv("1x1", {2, 7, 7, 64}, {1, 1, 64, 128}, 1, "VALID"),
      Conv("odd everything", {3, 11, 7, 5}, {3, 2, 5, 7}, 1, "SAME"),
      Conv("one channel", {4, 28, 28, 1}, {5, 5, 1, 32}, 1, "SAME"),
      Conv("dilations", {2, 15, 15, 16}, {3, 3, 16, 16}, 1, "SAME", {.dilations = {1, 2, 2, 1}}),
      Conv("padding of two sizes", {2, 9, 9, 8}, {3, 3, 8, 8}, 1, "EXPLICIT",
           {.explicit_paddings = {0, 0, 2, 0, 1, 2, 0, 0}}),
      Conv("channels first", {2, 8, 12, 12}, {3, 3, 8, 16}, 1, "SAME", {.data_format = "NCHW"}),
  };
  cases.push_back({.name = "Conv2D, BiasAdd and Relu",
                   .inputs = {{2, 12, 12, 16}, {3, 3, 16, 32}, {32}},
                   .build =
                       [](const Scope& s, const Outputs& in) {
                         const Output y = Conv2D(s, in[0], in[1], {1, 1, 1, 1}, "SAME");
                         return Relu(s, BiasAdd(s, y, in[2]));
                       },
                   .summands = 288,
                   .ends_in_relu = true});
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      cases.push_back(
          {.name =
               std::string("MatMul") + (ta ? ", a transposed" : "") + (tb ? ", b transposed" : ""),
           .inputs = {ta ? Shape{33, 70} : Shape{70, 33}, tb ? Shape{50, 33} : Shape{33, 50}},
           .build =
               [=](const Scope& s, const Outputs& in) {
                 return MatMul(s, in[0], in[1], {.transpose_a = ta, .transpose_b = tb});
               },
           .summands = 70});
    }
  }
  cases.push_back(
      {.name = "MatMul of odd sizes",
       .inputs = {{1, 129}, {129, 7}},
       .build = [](const Scope& s, const Outputs& in) { return MatMul(s, in[0], in[1]); },
       .summands = 129});
  cases.push_back({.name = "MatMul, BiasAdd and Relu",
                   .inputs = {{64, 256}, {256, 128}, {128}},
                   .build =
                       [](const Scope& s, const Outputs& in) {
                         return Relu(s, BiasAdd(s, MatMul(s, in[0], in[1]), in[2]));
                       },
                   .summands = 256,
                   .ends_in_relu = true});
  cases.push_back(
      {.name = "BatchMatMulV2",
       .inputs = {{3, 1, 17, 20}, {2, 20, 9}},
       .build = [](const Scope& s, const Outputs& in) { return BatchMatMul(s, in[0], in[1]); },
       .summands = 60});
  for (const char* format : {"NHWC", "NCHW"}) {
    for (const bool training : {true, false}) {
      const bool first = std::string(format) == "NCHW";
      cases.push_back({.name = std::string("FusedBatchNormV3, ") + format +
                               (training ? ", training" : ", inference"),
                       .inputs = {first ? Shape{5, 16, 9, 7} : Shape{5, 9, 7, 16}, {16}, {16}},
                       .build =
                           [=](const Scope& s, const Outputs& in) {
                             const Output mean = Zeros(s, {16}),
                                          variance = Add(s, mean, Const(s, 1.f));
                             return FusedBatchNorm(s, in[0], Cast(s, in[1], DT_FLOAT),
                                                   Cast(s, in[2], DT_FLOAT), mean, variance,
                                                   {.data_format = format, .is_training = training})
                                 .y;
                           },
                       .summands = 315});
    }
  }
  for (const bool with_side : {false, true}) {
    cases.push_back(
        {.name = std::string("FusedBatchNormV3, ") + (with_side ? "Add and Relu" : "Relu"),
         .inputs = {{5, 9, 7, 16}, {16}, {16}, {5, 9, 7, 16}},
         .build =
             [=](const Scope& s, const Outputs& in) {
               const Output y = FusedBatchNorm(s, in[0], Cast(s, in[1], DT_FLOAT),
                                               Cast(s, in[2], DT_FLOAT), {}, {})
                                    .y;
               return Relu(s, with_side ? Add(s, y, in[3]) : y);
             },
         .summands = 315,
         .ends_in_relu = true});
    if (!with_side) cases.back().inputs.pop_back();
  }
  for (const char* op : {"MaxPool", "AvgPool"}) {
    for (const Shape& shape : {Shape{2, 15, 14, 16}, Shape{2, 9, 9, 3}}) {
      cases.push_back({.name = std::string(op) + " of " + shape.ToString(),
                       .inputs = {shape},
                       .build =
                           [=](const Scope& s, const Outputs& in) {
                             const std::vector<int64_t> size{1, 3, 3, 1}, strides{1, 2, 2, 1};
                             return op[0] == 'M' ? MaxPool(s, in[0], size, strides, "SAME")
                                                 : AvgPool(s, in[0], size, strides, "SAME");
                           },
                       .summands = 9});
    }
  }
  cases.push_back(
      {.name = "BiasAdd",
       .inputs = {{6, 5, 5, 24}, {24}},
       .build = [](const Scope& s, const Outputs& in) { return BiasAdd(s, in[0], in[1]); },
       .summands = 150});
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    cases.push_back(
        {.name = op,
         .inputs = {{17, 1001}},
         .build = [=](const Scope& s,
                      const Outputs& in) { return OpBuilder(s, op).Input(in[0]).BuildOutput(); },
         .summands = 1001});
  }
  cases.push_back({.name = "SparseSoftmaxCrossEntropyWithLogits",
                   .inputs = {{5, 10}},
                   .build =
                       [](const Scope& s, const Outputs& in) {
                         return SparseSoftmaxCrossEntropyWithLogits(
                             s, in[0], Const<int32_t>(s, {3, 9, 0, 0, 5}));
                       },
                   .summands = 10});
  cases.push_back({.name = "SoftmaxCrossEntropyWithLogits",
                   .inputs = {{5, 300}, {5, 300}},
                   .build =
                       [](const Scope& s, const Outputs& in) {
                         return SoftmaxCrossEntropyWithLogits(s, in[0], Softmax(s, in[1]));
                       },
                   .summands = 300});
  cases.push_back({.name = "LayerNorm",
                   .inputs = {{70, 768}, {768}, {768}},
                   .build =
                       [](const Scope& s, const Outputs& in) {
                         return LayerNorm(s, in[0], Cast(s, in[1], DT_FLOAT),
                                          Cast(s, in[2], DT_FLOAT));
                       },
                   .summands = 768});
  cases.push_back({.name = "Gelu",
                   .inputs = {{70, 24}},
                   .build = [](const Scope& s, const Outputs& in) { return Gelu(s, in[0]); }});
  // cuDNN has two ways for the gradient.
  for (const bool deterministic : {false, true}) {
    for (const int64_t size : {64, 128}) {
      for (const auto& [mask, lengths, causal] : {std::tuple{"", false, false},
                                                  {", lengths", true, false},
                                                  {", causal", false, true},
                                                  {", lengths, causal", true, true}}) {
        const Shape rows{3, 20, 2, size}, columns{3, 24, 2, size};
        const bool has_lengths = lengths, is_causal = causal;
        cases.push_back({.name = "Attention, heads of " + std::to_string(size) + mask +
                                 (deterministic ? ", deterministic" : ""),
                         .inputs = {rows, columns, columns},
                         .build =
                             [=](const Scope& s, const Outputs& in) {
                               AttentionMask seen{.causal = is_causal};
                               if (has_lengths) seen.lengths = Const<int32_t>(s, {7, 0, 24});
                               return Attention(s, in[0], in[1], in[2], 0.125f, seen);
                             },
                         .dtypes = size == 64 ? std::vector<DType>{DT_FLOAT, DT_HALF}
                                              : std::vector{DT_BFLOAT16},
                         .summands = size,
                         .deterministic = deterministic});
      }
    }
  }
  return cases;
}

class GpuAlgorithms : public ::testing::Test {
 protected:
  GpuAlgorithms() {
    options_.deterministic = false;
    options_.allow_growth = true;
    NewFile();
  }
  ~GpuAlgorithms() override {
    for (int i = 1; i <= files_; ++i) std::remove(File(i).c_str());
  }
  void SetUp() override {
    if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
  }
  std::string File(int i) const {
    return ::testing::TempDir() + "gpu_algorithms_" + std::to_string(getpid()) + "_" +
           std::to_string(i);
  }
  void NewFile() { options_.algorithm_cache = File(++files_); }
  std::vector<std::string> Lines() const {
    std::ifstream in(options_.algorithm_cache);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  size_t lines() const { return Lines().size(); }
  void ComputeProduct() {
    Results expected, got;
    expected.Compute(product_, DT_FLOAT, kCpu0, {});
    got.Compute(product_, DT_FLOAT, kGpu0, options_);
    ASSERT_EQ(got.values.size(), expected.values.size());
    for (size_t i = 0; i < got.values.size(); ++i)
      ExpectNear(got.values[i], expected.values[i],
                 Tolerance(DT_FLOAT, product_.summands, /*tf32=*/false));
  }

  const Case product_{
      .name = "product",
      .inputs = {{17, 24}, {24, 40}},
      .build = [](const Scope& s, const Outputs& in) { return MatMul(s, in[0], in[1]); },
      .summands = 40};
  GpuOptions options_;

 private:
  inline static int files_ = 0;  // the process remembers what it has read
};

TEST_F(GpuAlgorithms, AreKeptInAFileALineForEachShape) {
  const Case first = Conv("first", {3, 10, 13, 24}, {3, 3, 24, 40}, 1, "SAME"),
             second = Conv("second", {3, 10, 13, 24}, {3, 3, 24, 56}, 1, "SAME");
  Results results;
  results.Compute(first, DT_FLOAT, kGpu0, options_);
  const size_t of_one = lines();
  EXPECT_GE(of_one, 3u);  // the convolution and its two gradients
  results.Compute(first, DT_FLOAT, kGpu0, options_);
  EXPECT_EQ(lines(), of_one);
  results.Compute(second, DT_FLOAT, kGpu0, options_);
  EXPECT_GE(lines(), of_one + 3);
}

TEST_F(GpuAlgorithms, OfProductsAreKeptUnlessTheLineIsDamagedOrOfAnotherProduct) {
  ComputeProduct();
  const std::vector<std::string> found = Lines();
  ASSERT_EQ(found.size(), 3u);  // the product and its two gradients
  ComputeProduct();
  EXPECT_EQ(lines(), 3u);
  const auto before = [](const std::string& line) { return line.substr(0, line.rfind('\t') + 1); };
  const auto behind = [](const std::string& line) { return line.substr(line.rfind('\t') + 1); };
  NewFile();
  std::ofstream(options_.algorithm_cache) << found[0] << "\n"
                                          << before(found[1]) << "no numbers\n"
                                          << before(found[2]) << behind(found[2]) << " 0\n";
  ComputeProduct();
  const std::vector<std::string> mended = Lines();
  ASSERT_EQ(mended.size(), 5u);
  EXPECT_EQ((std::set{before(mended[3]), before(mended[4])}),
            (std::set{before(found[1]), before(found[2])}));
}

// Of the emulated cuBLASLt's ranking (tests/gpu/emulated/cublaslt.cc) the first adds up in another
// order each time.
TEST_F(GpuAlgorithms, OfProductsAreTheFastestOrIfDeterministicTheFirstThatRepeatsItsBits) {
  emulated::InjectedFailures emulation;
  if (!emulation.Found()) GTEST_SKIP() << "the GPU is a real one";
  const auto ways = [&] {
    std::vector<int> all;
    for (const std::string& line : Lines()) {
      EXPECT_TRUE(line.starts_with("product 1\t")) << line;
      all.push_back(static_cast<int>(std::stoull(line.substr(line.rfind('\t') + 1), nullptr, 16) &
                                     0xffffffff));
    }
    return all;
  };
  emulation.SlowProducts(2);
  ComputeProduct();
  for (const int way : ways()) EXPECT_GE(way, 2);
  EXPECT_EQ(lines(), 3u);
  NewFile();
  options_.deterministic = true;
  ComputeProduct();
  EXPECT_EQ(ways(), (std::vector<int>{1, 1, 1}));
  emulation.SlowProducts(0);
}

TEST_F(GpuAlgorithms, OfProductsAreChosenAmongThoseThatRunWhenTheyAreTimed) {
  emulated::InjectedFailures emulation;
  if (!emulation.Found()) GTEST_SKIP() << "the GPU is a real one";
  constexpr int kNotSupported = 15;
  for (const int call : {1, 5, 9}) {
    NewFile();
    ::testing::internal::CaptureStderr();
    emulation.FailAt(call, kNotSupported, "cublasLtMatmul");
    ComputeProduct();
    EXPECT_EQ(emulation.Failed(), "cublasLtMatmul");
    emulation.Stop();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("a slower way takes its place"), std::string::npos) << log;
    EXPECT_EQ(lines(), 3u);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuKernels, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace monograph
