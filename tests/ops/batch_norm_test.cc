#include "ops/batch_norm/batch_norm.h"

#include <map>

#include "graph/gradients.h"
#include "graph/scope.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/lrn/lrn.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

// Every node in the order of its id; nothing here depends on a later one.
std::vector<Tensor> Compute(const Graph& graph, const Outputs& wanted) {
  KernelRunner runner(&Kernels());
  std::map<Endpoint, Tensor> values;
  const auto order = graph.TopologicalOrder();
  EXPECT_TRUE(order.ok()) << order.status();
  for (NodeId node : *order) {
    std::vector<Tensor> inputs;
    for (Endpoint e : graph.inputs(node)) inputs.push_back(values.at(e));
    auto outputs = runner.Run(graph, node, std::move(inputs));
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    for (size_t i = 0; i < outputs->size(); ++i)
      values[{node, static_cast<int32_t>(i)}] = (*outputs)[i];
  }
  std::vector<Tensor> results;
  for (const Output& output : wanted) results.push_back(values.at(output.endpoint));
  return results;
}

struct NormCase {
  const char* name;
  Shape shape;
  bool training;
  const char* format = "NHWC";
};
std::ostream& operator<<(std::ostream& out, const NormCase& c) { return out << c.name; }

class BatchNormTest : public ::testing::TestWithParam<NormCase> {};

// y, dx, dscale and doffset in float, against the same from elementary ops in double.
TEST_P(BatchNormTest, ValueAndGradientsAreThoseOfElementaryOps) {
  const NormCase& p = GetParam();
  const bool first = std::string(p.format) == "NCHW";
  const int64_t channels = p.shape[first ? 1 : 3];
  const Tensor x = Random<float>(p.shape, 1), scale = Random<float>({channels}, 2),
               offset = Random<float>({channels}, 3), mean = Random<float>({channels}, 4),
               weight = Random<float>(p.shape, 6);
  Tensor variance = Random<float>({channels}, 5);
  for (int64_t i = 0; i < channels; ++i) variance.data<float>()[i] += 1.5f;
  constexpr float kEpsilon = 0.01f;

  Graph graph(&Ops());
  const Scope root(&graph);
  const Outputs in{Const(root, x), Const(root, scale), Const(root, offset)};
  const FusedBatchNormOutputs fused =
      FusedBatchNorm(root, in[0], in[1], in[2], Const(root, mean), Const(root, variance),
                     {.epsilon = kEpsilon, .data_format = p.format, .is_training = p.training});
  Outputs results = AddGradients(root, Outputs{fused.y}, in, Outputs{Const(root, weight)}).value();
  results.push_back(fused.y);

  const auto wide = [&](const Tensor& t) { return Const(root, AsDouble(t)); };
  const auto column = [&](const Output& v) {
    return first ? Reshape(root, v, {1, channels, 1, 1}) : v;
  };
  const Outputs in64{wide(x), wide(scale), wide(offset)};
  const auto average = [&](const Output& v) {
    return first ? Mean(root, v, {0, 2, 3}, true) : Mean(root, v, {0, 1, 2}, true);
  };
  const Output m = p.training ? average(in64[0]) : column(wide(mean));
  const Output v =
      p.training ? average(Square(root, Sub(root, in64[0], m))) : column(wide(variance));
  const Output inverse = Rsqrt(root, Add(root, v, Const(root, static_cast<double>(kEpsilon))));
  const Output y = Add(root, Mul(root, Mul(root, Sub(root, in64[0], m), inverse), column(in64[1])),
                       column(in64[2]));
  for (const Output& g : AddGradients(root, Outputs{y}, in64, Outputs{wide(weight)}).value())
    results.push_back(g);
  results.push_back(y);
  ASSERT_TRUE(root.ok()) << root.status();
  const std::vector<Tensor> values = Compute(graph, results);
  ASSERT_EQ(values.size(), 8u);
  const int64_t summed = p.shape.elements() / channels;  // elements of a mean
  const double tolerance = 2e-6 * std::sqrt(static_cast<double>(summed)) + 5e-6;
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    ExpectNear(values[i], values[i + 4], tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BatchNormTest,
    ::testing::Values(NormCase{"training", {3, 5, 4, 7}, true},
                      NormCase{"many rows", {9, 13, 11, 3}, true},
                      NormCase{"channels first", {3, 5, 4, 7}, true, "NCHW"},
                      NormCase{"large planes", {2, 2, 33, 31}, true, "NCHW"},
                      NormCase{"inference", {3, 5, 4, 7}, false},
                      NormCase{"inference, channels first", {3, 5, 4, 7}, false, "NCHW"}));

TEST(BatchNorm, OlderVersionsAreTheThirdOne) {
  const Shape shape{2, 3, 4, 5};
  const Tensor x = Random<float>(shape, 1), scale = Random<float>({5}, 2),
               offset = Random<float>({5}, 3), mean = Random<float>({5}, 4),
               weight = Random<float>(shape, 5);
  Tensor variance = Random<float>({5}, 6);
  for (int64_t i = 0; i < 5; ++i) variance.data<float>()[i] += 1.5f;
  for (bool training : {true, false}) {
    SCOPED_TRACE(training);
    std::vector<Tensor> third;
    for (const char* op : {"FusedBatchNormV3", "FusedBatchNormV2", "FusedBatchNorm"}) {
      SCOPED_TRACE(op);
      Graph graph(&Ops());
      const Scope root(&graph);
      const Outputs in{Const(root, x), Const(root, scale), Const(root, offset)};
      const Output y = OpBuilder(root, op)
                           .Input(in[0])
                           .Input(in[1])
                           .Input(in[2])
                           .Input(Const(root, mean))
                           .Input(Const(root, variance))
                           .Attr("is_training", training)
                           .Build()
                           .output(0);
      Outputs results = AddGradients(root, Outputs{y}, in, Outputs{Const(root, weight)}).value();
      results.push_back(y);
      ASSERT_TRUE(root.ok()) << root.status();
      const std::vector<Tensor> values = Compute(graph, results);
      ASSERT_EQ(values.size(), 4u);
      if (third.empty()) third = values;
      for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(BitEqual(values[i], third[i])) << i;
    }
  }
}

// LRN and its gradient in float, against the same from elementary ops in double: sums over
// neighbouring channels are products with a band of ones.
TEST(LocalResponseNormalisation, ValueAndGradientAreThoseOfElementaryOps) {
  const Shape shape{2, 3, 2, 9};
  const Tensor x = Random<float>(shape, 1), weight = Random<float>(shape, 2);
  const LRNOptions options{.depth_radius = 2, .bias = 1.5f, .alpha = 0.5f, .beta = 0.75f};
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output in = Const(root, x), in64 = Const(root, AsDouble(x));
  const Output y = LRN(root, in, options);
  Outputs results =
      AddGradients(root, Outputs{y}, Outputs{in}, Outputs{Const(root, weight)}).value();
  results.push_back(y);
  std::vector<double> band(81);
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t j = 0; j < 9; ++j) band[static_cast<size_t>(9 * i + j)] = std::abs(i - j) <= 2;
  }
  const Output ones =
      Const(root, Tensor::FromValues<double>(Shape{9, 9}, std::span<const double>(band)));
  const Output rows = Reshape(root, Square(root, in64), {12, 9});
  const Output sums = Reshape(root, MatMul(root, rows, ones), {2, 3, 2, 9});
  const Output norm = Add(root, Const(root, 1.5), Mul(root, Const(root, 0.5), sums));
  const Output y64 = Mul(root, in64, Pow(root, norm, Const(root, -0.75)));
  const Outputs weight64{Const(root, AsDouble(weight))};
  for (const Output& g : AddGradients(root, Outputs{y64}, Outputs{in64}, weight64).value())
    results.push_back(g);
  results.push_back(y64);
  ASSERT_TRUE(root.ok()) << root.status();
  const std::vector<Tensor> values = Compute(graph, results);
  ASSERT_EQ(values.size(), 4u);
  for (size_t i = 0; i < 2; ++i) ExpectNear(values[i], values[i + 2], 2e-6);
}

TEST(SparseMatMul, HasTheGradientsOfMatMul) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Tensor a = Random<float>(ta ? Shape{4, 3} : Shape{3, 4}, 1),
                   b = Random<float>(tb ? Shape{5, 4} : Shape{4, 5}, 2),
                   weight = Random<float>({3, 5}, 3);
      std::vector<Tensor> dense;
      for (const char* op : {"MatMul", "SparseMatMul"}) {
        Graph graph(&Ops());
        const Scope root(&graph);
        const Outputs in{Const(root, a), Const(root, b)};
        const Output y = OpBuilder(root, op)
                             .Input(in[0])
                             .Input(in[1])
                             .Attr("transpose_a", ta)
                             .Attr("transpose_b", tb)
                             .BuildOutput();
        Outputs results = AddGradients(root, Outputs{y}, in, Outputs{Const(root, weight)}).value();
        results.push_back(y);
        ASSERT_TRUE(root.ok()) << root.status();
        const std::vector<Tensor> values = Compute(graph, results);
        if (dense.empty()) dense = values;
        ASSERT_EQ(values.size(), 3u);
        for (size_t i = 0; i < 3; ++i) ExpectNear(values[i], dense[i], 1e-5);
      }
    }
  }
}

TEST(BatchNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  const Shape shape{16, 20, 20, 24};
  const Tensor x = Random<float>(shape, 1), dy = Random<float>(shape, 2),
               vector = Random<float>({24}, 3), none = Tensor::Vector<float>({});
  Tensor variance = Random<float>({24}, 4);
  for (int64_t i = 0; i < 24; ++i) variance.data<float>()[i] += 1.5f;
  const auto forward = [&](ThreadPools* pools) {
    return RunOp("FusedBatchNormV3", {x, vector, vector, none, none}, {}, pools).value();
  };
  const auto backward = [&](ThreadPools* pools) {
    return RunOp("FusedBatchNormGradV3", {dy, x, vector, vector, variance, none}, {}, pools)
        .value();
  };
  const auto y = forward(nullptr), dx = backward(nullptr);
  for (int threads : {2, 3}) {
    ThreadPools pools(1, threads);
    const auto y2 = forward(&pools), dx2 = backward(&pools);
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(BitEqual(y[i], y2[i])) << i;
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(BitEqual(dx[i], dx2[i])) << i;
  }
}

TEST(BatchNorm, ALargeMeanCostsNoDigitsOfTheVariance) {
  Tensor x = Random<float>({4, 16, 16, 2}, 1);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] += 1000.f;
  const Tensor one = Tensor::Vector<float>({1, 1}), none = Tensor::Vector<float>({});
  const auto out = RunOp("FusedBatchNormV3", {x, one, one, none, none}).value();
  double expected[2] = {}, mean[2] = {};
  for (int64_t i = 0; i < x.elements(); ++i) mean[i % 2] += x.data<float>()[i] / 1024.0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double d = x.data<float>()[i] - mean[i % 2];
    expected[i % 2] += d * d / 1024;
  }
  for (int k = 0; k < 2; ++k) EXPECT_NEAR(out[4].data<float>()[k], expected[k], 1e-5);
}

TEST(BatchNorm, RefusesAGradientThroughItsStatistics) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = Const(root, Random<float>({2, 2, 2, 3})), one = Const(root, Random<float>({3}));
  const FusedBatchNormOutputs norm = FusedBatchNorm(root, x, one, one);
  const auto gradients = AddGradients(root, Outputs{norm.y, norm.batch_mean}, Outputs{x});
  EXPECT_EQ(gradients.status().code(), Code::kUnimplemented) << gradients.status();
}

}  // namespace
}  // namespace monograph
