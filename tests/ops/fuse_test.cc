// Fusion of layers: which nodes become one, under whose name, and what keeps them apart; the fused
// graph and the other are run and have the same values.
#include "ops/rewrites/fuse.h"

#include <cmath>
#include <limits>
#include <map>

#include "graph/gradients.h"
#include "graph/prune.h"
#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/bias/bias.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/shape/shape.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

// Computes every node in order, one kernel at a time.
std::map<std::string, Tensor> Evaluate(const Graph& graph) {
  KernelRunner runner(&Kernels());
  std::vector<std::vector<Tensor>> values(static_cast<size_t>(graph.num_nodes()));
  std::map<std::string, Tensor> named;
  const auto order = graph.TopologicalOrder();
  EXPECT_TRUE(order.ok()) << order.status();
  for (NodeId id : *order) {
    if (graph.is(id, "Const")) {
      values[static_cast<size_t>(id)] = {graph.attrs(id).Get<Tensor>("value")};
    } else {
      std::vector<Tensor> inputs;
      for (Endpoint e : graph.inputs(id))
        inputs.push_back(values[static_cast<size_t>(e.node)][static_cast<size_t>(e.index)]);
      auto result = runner.Run(graph, id, inputs);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return named;
      values[static_cast<size_t>(id)] = *result;
    }
    if (!values[static_cast<size_t>(id)].empty())
      named.emplace(std::string(graph.name(id)), values[static_cast<size_t>(id)][0]);
  }
  return named;
}

int Count(const Graph& graph, std::string_view op) {
  int count = 0;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) count += graph.is(id, op) ? 1 : 0;
  return count;
}

class FuseTest : public ::testing::Test {
 protected:
  FuseTest() : graph_(&Ops()), root_(&graph_) {}
  Output Value(const char* name, const Shape& shape, uint64_t seed) {
    return Const(root_.WithOpName(name), Random<float>(shape, seed));
  }
  Output Layer(const char* name, Output x, const Shape& filter) {
    const Scope s = root_.SubScope(name);
    const Output w = Const(s.WithOpName("w"), Random<float>(filter, 5)),
                 b = Const(s.WithOpName("b"), Random<float>({filter[3]}, 6));
    return Relu(
        s.WithOpName("relu"),
        BiasAdd(s.WithOpName("bias"), Conv2D(s.WithOpName("conv"), x, w, {1, 1, 1, 1}, "SAME"), b));
  }
  Graph Fuse() {
    EXPECT_TRUE(root_.ok()) << root_.status();
    auto fused = FuseOps(graph_);
    EXPECT_TRUE(fused.ok()) << fused.status();
    return std::move(fused).value();
  }

  Graph graph_;
  Scope root_;
};

TEST_F(FuseTest, AProductWithBiasAndReluBecomesOneNodeUnderTheLastName) {
  const Output x = Value("x", {2, 6, 6, 3}, 1);
  Layer("one", x, {3, 3, 3, 4});
  const Output flat = Value("flat", {5, 7}, 2);
  BiasAdd(root_.WithOpName("z"), MatMul(root_, flat, Value("v", {7, 4}, 3)), Value("c", {4}, 4));
  const Graph fused = Fuse();
  EXPECT_EQ(Count(fused, "_FusedConv2D"), 1);
  EXPECT_EQ(Count(fused, "_FusedMatMul"), 1);
  EXPECT_EQ(Count(fused, "BiasAdd") + Count(fused, "Relu") + Count(fused, "Conv2D") +
                Count(fused, "MatMul"),
            0);
  ASSERT_GE(fused.Find("one/relu"), 0);
  EXPECT_TRUE(fused.is(fused.Find("one/relu"), "_FusedConv2D"));
  auto plain = Evaluate(graph_), quick = Evaluate(fused);
  ExpectNear(quick["one/relu"], plain["one/relu"], 1e-5);
  ExpectNear(quick["z"], plain["z"], 1e-5);
}

// CPUs compute half in float, one op at a time; libraries of GPUs take it.
TEST_F(FuseTest, ProductsOfBfloat16FuseEverywhereAndThoseOfHalfOnGpusOnly) {
  for (const auto& [type, dtype] :
       {std::pair{kCpu, DT_BFLOAT16}, {kGpu, DT_BFLOAT16}, {kCpu, DT_HALF}, {kGpu, DT_HALF}}) {
    Graph graph(&Ops());
    const Scope root = Scope(&graph).WithDevice(
        "/job:localhost/replica:0/task:0/device:" + type.ToString() + ":0");
    const Output a = Placeholder(root, dtype, {4, 8}), b = Placeholder(root, dtype, {8, 16}),
                 bias = Placeholder(root, dtype, {16});
    Relu(root, BiasAdd(root, MatMul(root, a, b), bias));
    ASSERT_TRUE(root.ok()) << root.status();
    const auto fused = FuseOps(graph);
    ASSERT_TRUE(fused.ok()) << fused.status();
    EXPECT_EQ(Count(*fused, "_FusedMatMul"), type == kGpu || dtype == DT_BFLOAT16 ? 1 : 0)
        << type.name() << " " << DTypeName(dtype);
  }
}

// Three normalised layers with a way around the second and one around the third, which is
// normalised, too, as a residual network has them.
TEST_F(FuseTest, OnAGpuANormalisationTakesTheAdditionAndReluBehindIt) {
  Graph graph(&Ops());
  const Scope root = Scope(&graph).WithDevice("/job:localhost/replica:0/task:0/device:GPU:0");
  const Shape shape{3, 4, 5, 6};
  const Outputs in{Const(root, Random<float>(shape, 1)), Const(root, Random<float>({6}, 2)),
                   Const(root, Random<float>({6}, 3)),   Const(root, Random<float>({6}, 4)),
                   Const(root, Random<float>({6}, 5)),   Const(root, Random<float>({6}, 7)),
                   Const(root, Random<float>({6}, 8)),   Const(root, Random<float>({6}, 9)),
                   Const(root, Random<float>({6}, 10))};
  const FusedBatchNormOutputs one = FusedBatchNorm(root, in[0], in[1], in[2]);
  const Output a = Relu(root.WithOpName("a"), one.y);
  const Output y = FusedBatchNorm(root, a, in[3], in[4]).y;
  const Output joined = Relu(root.WithOpName("joined"), Add(root, y, in[0]));
  const Output z = Relu(root.WithOpName("z"),
                        Add(root, FusedBatchNorm(root, Square(root, joined), in[5], in[6]).y,
                            FusedBatchNorm(root, joined, in[7], in[8]).y));
  const Output mean = Identity(root.WithOpName("mean"), one.batch_mean);
  Outputs kept;
  for (const Output& gradient :
       AddGradients(root, Outputs{z}, in, Outputs{Const(root, Random<float>(shape, 6))}).value())
    kept.push_back(Identity(root, gradient));
  kept.push_back(z);
  kept.push_back(mean);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto fused = FuseOps(graph);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(Count(*fused, "_FusedBatchNormEx"), 3);
  EXPECT_EQ(Count(*fused, "_FusedBatchNormGradEx"), 3);
  EXPECT_EQ(Count(*fused, "FusedBatchNormGradV3"), 1);  // of the way around
  EXPECT_EQ(Count(*fused, "FusedBatchNormV3"), 1);
  EXPECT_EQ(Count(*fused, "Relu") + Count(*fused, "ReluGrad"), 0);
  EXPECT_EQ(Count(graph, "AddN") - Count(*fused, "AddN"), 1);  // before the ReLU of `joined`
  auto plain = Evaluate(graph), quick = Evaluate(*fused);
  for (const Output& output : kept) {
    const std::string name(graph.name(output.node()));
    SCOPED_TRACE(name);
    ASSERT_TRUE(quick.contains(name));
    ExpectNear(quick[name], plain[name], 1e-5);
  }
}

TEST_F(FuseTest, ANormalisationWhoseValueOthersReadStays) {
  Graph graph(&Ops());
  const Scope root = Scope(&graph).WithDevice("/job:localhost/replica:0/task:0/device:GPU:0");
  const Output x = Const(root, Random<float>({2, 3, 3, 4}, 1)),
               scale = Const(root, Random<float>({4}, 2)),
               offset = Const(root, Random<float>({4}, 3));
  const FusedBatchNormOutputs norm = FusedBatchNorm(root, x, scale, offset);
  Relu(root, norm.y);
  Identity(root, norm.y);
  const auto fused = FuseOps(graph);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(Count(*fused, "_FusedBatchNormEx"), 0);
}

TEST_F(FuseTest, ANaNPassesReluFusedAsUnfused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, std::numeric_limits<float>::infinity(), 3e38f}) {
    Graph graph(&Ops());
    Scope root(&graph);
    Tensor image = Random<float>({2, 8, 8, 16}, 1), matrix = Random<float>({32, 64}, 2);
    image.data<float>()[5] = bad;
    matrix.data<float>()[70] = bad;
    const Output x = Const(root, image), w = Const(root, Random<float>({3, 3, 16, 16}, 3)),
                 a = Const(root, matrix), b = Const(root, Random<float>({64, 48}, 4));
    Relu(root.WithOpName("y"), BiasAdd(root, Conv2D(root, x, w, {1, 1, 1, 1}, "SAME"),
                                       Const(root, Random<float>({16}, 5))));
    Relu(root.WithOpName("z"),
         BiasAdd(root, MatMul(root, a, b), Const(root, Random<float>({48}, 6))));
    ASSERT_TRUE(root.ok()) << root.status();
    auto fused = FuseOps(graph);
    ASSERT_TRUE(fused.ok()) << fused.status();
    ASSERT_EQ(Count(*fused, "_FusedConv2D") + Count(*fused, "_FusedMatMul"), 2);
    auto plain = Evaluate(graph), quick = Evaluate(*fused);
    for (const char* name : {"y", "z"}) {
      int nans = 0;
      for (int64_t i = 0; i < plain[name].elements(); ++i) {
        const float p = plain[name].data<float>()[i], q = quick[name].data<float>()[i];
        nans += std::isnan(p);
        ASSERT_EQ(std::isnan(p), std::isnan(q))
            << name << "[" << i << "]: " << p << ", fused " << q;
      }
      EXPECT_EQ(nans > 0, std::isnan(bad)) << name;
    }
  }
}

TEST_F(FuseTest, WhatSomebodyElseUsesStays) {
  Layer("one", Value("x", {2, 6, 6, 3}, 1), {3, 3, 3, 4});
  Identity(root_, Output{&graph_, {graph_.Find("one/bias"), 0}});
  const Graph half = Fuse();
  EXPECT_EQ(Count(half, "_FusedConv2D"), 1);
  EXPECT_EQ(Count(half, "Relu"), 1);
  Identity(root_, Output{&graph_, {graph_.Find("one/conv"), 0}});
  EXPECT_EQ(Count(Fuse(), "_FusedConv2D"), 0);
}

TEST_F(FuseTest, NodesOfTwoDevicesAreNotFused) {
  const Output a = Value("a", {2, 3}, 1), b = Value("b", {3, 4}, 2), c = Value("c", {4}, 3);
  const Output product = MatMul(root_.WithDevice("/job:worker/task:0"), a, b);
  BiasAdd(root_.WithDevice("/job:worker/task:1"), product, c);
  EXPECT_EQ(Count(Fuse(), "_FusedMatMul"), 0);
}

TEST_F(FuseTest, ControlEdgesOfTheFusedNodesAreKept) {
  const Output a = Value("a", {2, 3}, 1), b = Value("b", {3, 4}, 2), c = Value("c", {4}, 3);
  const Output before = Value("before", {1}, 4);
  const Output product = MatMul(root_.WithControlDependencies({before}), a, b);
  BiasAdd(root_.WithOpName("sum"), product, c);
  const Graph fused = Fuse();
  const NodeId node = fused.Find("sum");
  ASSERT_TRUE(fused.is(node, "_FusedMatMul"));
  ASSERT_EQ(fused.control_inputs(node).size(), 1u);
  EXPECT_EQ(fused.name(fused.control_inputs(node)[0]), "before");
}

TEST_F(FuseTest, TheReluGradientMovesBeforeThePoolingGradient) {
  const Output x = Value("x", {2, 6, 5, 3}, 1);
  const Output y = Layer("one", x, {3, 3, 3, 4});
  const Output pooled = MaxPool(root_.WithOpName("pool"), y, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
  const Output g = Value("g", {2, 3, 3, 4}, 7);
  const Output dp =
      MaxPoolGrad(root_.WithOpName("dpool"), y, pooled, g, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
  const Output dr = ReluGrad(root_.WithOpName("drelu"), dp, y);
  BiasAddGrad(root_.WithOpName("db"), dr);
  const Graph fused = Fuse();
  EXPECT_TRUE(fused.is(fused.Find("drelu"), "MaxPoolGrad"));
  EXPECT_TRUE(fused.is(fused.inputs(fused.Find("db"))[0].node, "ReluGrad"));
  auto plain = Evaluate(graph_), quick = Evaluate(fused);
  EXPECT_TRUE(BitEqual(plain["drelu"], quick["drelu"]) || [&] {
    ExpectNear(quick["drelu"], plain["drelu"], 0);
    return true;
  }());
  ExpectNear(quick["db"], plain["db"], 1e-5);
}

// Two convolutions, each with a pooling behind it: conv -> bias -> relu -> pool -> conv -> pool.
Output Sizes(const Scope& root, const Output& value) {
  std::vector<int32_t> dims;
  for (const int64_t dim : value.shape().dims()) dims.push_back(static_cast<int32_t>(dim));
  return Const(root, Tensor::FromValues<int32_t>({4}, dims));
}

// Gives the gradients of the weights, and of what the first pooling reads if that is asked for.
Outputs AddPooledNet(const Scope& root, const Shape& image, const char* padding,
                     bool fetch_spread) {
  const Output x = Const(root, Random<float>(image, 1)),
               w1 = Const(root, Random<float>({3, 3, image[3], 24}, 2)),
               b1 = Const(root, Random<float>({24}, 3)),
               w2 = Const(root, Random<float>({5, 5, 24, 16}, 4));
  const auto pool = [&](const Output& y) {
    return MaxPool(root, y, {1, 2, 2, 1}, {1, 2, 2, 1}, padding);
  };
  const Output relu = Relu(root, BiasAdd(root, Conv2D(root, x, w1, {1, 1, 1, 1}, "SAME"), b1));
  const Output y = pool(Conv2D(root, pool(relu), w2, {1, 1, 1, 1}, "SAME"));
  Outputs of{w1, b1, w2};
  if (fetch_spread) of.push_back(relu);
  Outputs kept;
  const Output dy = Const(root, Random<float>(y.shape().AsShape(), 5));
  for (const Output& gradient : AddGradients(root, Outputs{y}, of, Outputs{dy}).value())
    kept.push_back(Identity(root, gradient));
  return kept;
}

TEST_F(FuseTest, TheGradientsOfAConvolutionAndOfThePoolingBehindItAreOneNode) {
  for (const char* padding : {"SAME", "VALID"}) {
    // A last chunk that is smaller; rows that VALID leaves out; one image.
    for (const Shape& image : {Shape{7, 29, 29, 32}, Shape{5, 9, 6, 3}, Shape{1, 4, 4, 1}}) {
      SCOPED_TRACE(image.ToString() + " " + padding);
      Graph graph(&Ops());
      const Scope root(&graph);
      const Outputs kept = AddPooledNet(root, image, padding, false);
      ASSERT_TRUE(root.ok()) << root.status();
      std::vector<NodeId> keep;
      for (const Output& output : kept) keep.push_back(output.node());
      const auto pruned = Prune(graph, {}, {}, keep, nullptr);
      ASSERT_TRUE(pruned.ok()) << pruned.status();
      const auto fused = FuseOps(*pruned);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_EQ(Count(*fused, "_Conv2DBackprop"), 2);
      EXPECT_EQ(Count(*fused, "MaxPoolGrad") + Count(*fused, "Conv2DBackpropFilter") +
                    Count(*fused, "Conv2DBackpropInput"),
                0);
      auto plain = Evaluate(*pruned), quick = Evaluate(*fused);
      for (const Output& output : kept) {
        const std::string name(graph.name(output.node()));
        ASSERT_TRUE(quick.contains(name)) << name;
        ExpectNear(quick[name], plain[name], 1e-3);  // of sums of thousands
      }
    }
  }
}

TEST_F(FuseTest, TheGradientsInOneNodeHaveTheBitsOfSeparateOnes) {
  // A last chunk that is smaller; with a filter's gradient alone; blocked and plain layouts;
  // groups; by transforms.
  struct Case {
    int64_t images, height, width, channels, groups;
    DType dtype = DT_FLOAT;
  };
  for (const auto& [images, height, width, channels, groups, dtype] :
       {Case{7, 29, 28, 32, 1}, Case{7, 29, 28, 3, 1}, Case{7, 29, 28, 32, 4},
        Case{50, 13, 14, 48, 1}, Case{7, 29, 28, 32, 1, DT_BFLOAT16},
        Case{7, 29, 28, 3, 1, DT_BFLOAT16}, Case{50, 13, 14, 48, 1, DT_BFLOAT16}}) {
    const auto values = [&, type = dtype](const Shape& shape, uint64_t seed) {
      return type == DT_FLOAT ? Random<float>(shape, seed) : Random<bfloat16>(shape, seed);
    };
    for (const bool wants_input : {true, false}) {
      Graph graph(&Ops());
      const Scope root(&graph);
      const Output x = Const(root, values({images, height, width, channels}, 1)),
                   w = Const(root, values({5, 5, channels / groups, 32}, 2)),
                   y = Const(root, values({images, height, width, 32}, 3));
      const Output pooled = MaxPool(root, y, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
      const Output dp =
          MaxPoolGrad(root, y, pooled, Const(root, values(pooled.shape().AsShape(), 4)),
                      {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
      Outputs kept{
          Identity(root, Conv2DBackpropFilter(root, x, Sizes(root, w), dp, {1, 1, 1, 1}, "SAME"))};
      if (wants_input)
        kept.push_back(
            Identity(root, Conv2DBackpropInput(root, Sizes(root, x), w, dp, {1, 1, 1, 1}, "SAME")));
      ASSERT_TRUE(root.ok()) << root.status();
      const auto fused = FuseOps(graph);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_EQ(Count(*fused, "_Conv2DBackprop"), 1);
      EXPECT_EQ(Count(*fused, "MaxPoolGrad"), 0);
      auto plain = Evaluate(graph), quick = Evaluate(*fused);
      for (const Output& output : kept) {
        const std::string name(graph.name(output.node()));
        EXPECT_TRUE(BitEqual(quick[name], plain[name]))
            << name << ", " << channels << " channels of " << DTypeName(dtype);
      }
    }
  }
}

TEST_F(FuseTest, ASpreadGradientThatIsReadElsewhereIsComputed) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Outputs kept = AddPooledNet(root, {4, 9, 8, 3}, "SAME", true);
  ASSERT_TRUE(root.ok()) << root.status();
  std::vector<NodeId> keep;
  for (const Output& output : kept) keep.push_back(output.node());
  const auto fused = FuseOps(Prune(graph, {}, {}, keep, nullptr).value());
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(Count(*fused, "MaxPoolGrad"), 1);
  EXPECT_EQ(Count(*fused, "Conv2DBackpropFilter"), 1);
  EXPECT_EQ(Count(*fused, "_Conv2DBackprop"), 1);
  auto plain = Evaluate(graph), quick = Evaluate(*fused);
  for (const Output& output : kept) {
    const std::string name(graph.name(output.node()));
    ExpectNear(quick[name], plain[name], 1e-5);
  }
}

TEST_F(FuseTest, GradientsOfTwoConvolutionsStayApart) {
  const Output dy = Value("dy", {2, 6, 6, 4}, 1), x = Value("x", {2, 6, 6, 3}, 2),
               w = Value("w", {3, 3, 3, 4}, 3), v = Value("v", {5, 5, 3, 4}, 4),
               wide = Value("wide", {2, 12, 12, 3}, 5);
  const std::vector<int64_t> one{1, 1, 1, 1}, two{1, 2, 2, 1};
  const Output filter = Conv2DBackpropFilter(root_, x, Sizes(root_, w), dy, one, "SAME");
  const Output other = Conv2DBackpropInput(root_, Sizes(root_, x), v, dy, one, "SAME");
  const Output strided = Conv2DBackpropInput(root_, Sizes(root_, wide), w, dy, two, "SAME");
  for (const Output& output : {filter, other, strided}) Identity(root_, output);
  EXPECT_EQ(Count(Fuse(), "_Conv2DBackprop"), 0);
  Conv2DBackpropInput(root_, Sizes(root_, x), w, dy, one, "SAME");
  EXPECT_EQ(Count(Fuse(), "_Conv2DBackprop"), 1);
}

// As TensorFlow's own gradient names sizes.
TEST_F(FuseTest, SizesMayBeTheShapesOfTheVeryTensors) {
  const Output dy = Value("dy", {2, 6, 6, 4}, 1), x = Value("x", {2, 6, 6, 3}, 2),
               w = Value("w", {3, 3, 3, 4}, 3), x2 = Value("x2", {2, 6, 6, 3}, 4);
  const std::vector<int64_t> one{1, 1, 1, 1};
  const Outputs sizes = ShapeN(root_, Outputs{x, w}), others = ShapeN(root_, Outputs{x2, w});
  const Output input = Conv2DBackpropInput(root_, others[0], w, dy, one, "SAME");
  const Output filter = Conv2DBackpropFilter(root_, x, sizes[1], dy, one, "SAME");
  Identity(root_, input);
  EXPECT_EQ(Count(Fuse(), "_Conv2DBackprop"), 0) << "sizes of another tensor";
  Conv2DBackpropInput(root_, sizes[0], w, dy, one, "SAME");
  const Graph fused = Fuse();
  EXPECT_EQ(Count(fused, "_Conv2DBackprop"), 1);
  EXPECT_EQ(Count(fused, "Conv2DBackpropInput"), 1);
  auto plain = Evaluate(graph_), quick = Evaluate(fused);
  const std::string name(graph_.name(filter.node()));
  EXPECT_TRUE(BitEqual(quick[name], plain[name]));
}

}  // namespace
}  // namespace monograph
