// Random ops: the right distributions, from seed, node and step alone.
#include "ops/random/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/thread_pools.h"
#include "ops/constant/constant.h"
#include "ops/pool/pool.h"
#include "ops/random/philox.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/executor/run_op.h"

namespace monograph::optest {
namespace {

struct Draw {
  std::string op = "RandomUniform";
  std::string name = "x";
  int64_t seed = 1, seed2 = 2;
  uint64_t step = 1;
  DType dtype = DT_FLOAT;
  int64_t n = 20000;
  ThreadPools* pools = nullptr;
};

Tensor Values(const Draw& draw) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = OpBuilder(root.WithOpName(draw.name), draw.op)
                       .Input(IntsConst(root, {draw.n}))
                       .Attr("seed", draw.seed)
                       .Attr("seed2", draw.seed2)
                       .Attr("dtype", draw.dtype)
                       .BuildOutput();
  EXPECT_TRUE(root.ok()) << root.status();
  KernelRunner runner(&Kernels(), {.pools = draw.pools, .step_id = draw.step});
  auto outputs =
      runner.Run(graph, x.node(), {Tensor::Vector<int32_t>({static_cast<int32_t>(draw.n)})});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return (*outputs)[0];
}

struct Moments {
  double mean = 0, deviation = 0, low = 1e9, high = -1e9;
};
Moments MomentsOf(const Tensor& tensor) {
  Moments m;
  const int64_t n = tensor.elements();
  for (int64_t i = 0; i < n; ++i) {
    const double x = ElementAsDouble(tensor, i);
    m.mean += x / static_cast<double>(n);
    m.low = std::min(m.low, x);
    m.high = std::max(m.high, x);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double d = ElementAsDouble(tensor, i) - m.mean;
    m.deviation += d * d / static_cast<double>(n);
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(Philox, GivesThePublishedNumbers) {
  // The known answers of the authors' library (Random123, kat_vectors).
  const auto zero = ops::random::Philox(0, 0, 0, 0, 0);
  EXPECT_EQ(zero.words[0], 0x6627e8d5u);
  EXPECT_EQ(zero.words[1], 0xe169c58du);
  EXPECT_EQ(zero.words[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.words[3], 0x9b00dbd8u);
  const auto ones = ops::random::Philox(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u);
  EXPECT_EQ(ones.words[0], 0x408f276du);
  EXPECT_EQ(ones.words[1], 0x41c83b0eu);
  EXPECT_EQ(ones.words[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.words[3], 0x6d5451fdu);
}

TEST(RandomOps, DependOnSeedNodeAndStepAlone) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    const Tensor x = Values({.op = op});
    EXPECT_TRUE(BitEqual(x, Values({.op = op}))) << op;
    EXPECT_FALSE(BitEqual(x, Values({.op = op, .name = "y"}))) << op;
    EXPECT_FALSE(BitEqual(x, Values({.op = op, .seed = 3}))) << op;
    EXPECT_FALSE(BitEqual(x, Values({.op = op, .seed2 = 3}))) << op;
    EXPECT_FALSE(BitEqual(x, Values({.op = op, .step = 2}))) << op;
    // A shorter draw is the beginning of a longer one.
    EXPECT_TRUE(BitEqual(x.Slice(0, 777), Values({.op = op, .n = 777}))) << op;
    EXPECT_EQ(Values({.op = op, .n = 0}).elements(), 0) << op;
  }
}

TEST(RandomOps, UniformValuesFillTheUnitInterval) {
  for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16}) {
    const Moments m = MomentsOf(Values({.dtype = dtype}));
    EXPECT_NEAR(m.mean, 0.5, 0.01) << DTypeName(dtype);
    EXPECT_NEAR(m.deviation, std::sqrt(1.0 / 12), 0.01) << DTypeName(dtype);
    EXPECT_GE(m.low, 0) << DTypeName(dtype);
    EXPECT_LT(m.high, 1) << DTypeName(dtype);
  }
}

TEST(RandomOps, NormalValuesHaveMeanZeroAndDeviationOne) {
  for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16}) {
    const Moments m = MomentsOf(Values({.op = "RandomStandardNormal", .dtype = dtype}));
    EXPECT_NEAR(m.mean, 0, 0.03) << DTypeName(dtype);
    EXPECT_NEAR(m.deviation, 1, 0.03) << DTypeName(dtype);
    EXPECT_GT(m.high, 3) << DTypeName(dtype);
  }
}

TEST(RandomOps, TruncatedValuesStayWithinTwoDeviations) {
  for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16}) {
    const Moments m = MomentsOf(Values({.op = "TruncatedNormal", .dtype = dtype}));
    EXPECT_NEAR(m.mean, 0, 0.03) << DTypeName(dtype);
    EXPECT_NEAR(m.deviation, 0.8796, 0.03) << DTypeName(dtype);
    EXPECT_LE(m.high, 2) << DTypeName(dtype);
    EXPECT_GE(m.low, -2) << DTypeName(dtype);
  }
}

TEST(RandomOps, IntegersCoverTheirRangeAndNothingElse) {
  KernelRunner runner(&Kernels());
  const auto draw = [&](int32_t low, int32_t high) {
    return testing::RunOp(
        runner, Ops(), "RandomUniformInt",
        {Tensor::Vector<int32_t>({5000}), Tensor::Scalar(low), Tensor::Scalar(high)},
        {{"seed", int64_t{1}}, {"seed2", int64_t{2}}});
  };
  const auto x = draw(-2, 4);
  ASSERT_TRUE(x.ok()) << x.status();
  std::array<int, 6> counts{};
  for (int32_t value : (*x)[0].values<int32_t>()) {
    ASSERT_GE(value, -2);
    ASSERT_LT(value, 4);
    ++counts[static_cast<size_t>(value + 2)];
  }
  for (int count : counts) EXPECT_NEAR(count, 5000.0 / 6, 150);
  EXPECT_EQ(draw(4, 4).status().code(), Code::kInvalidArgument);
}

TEST(Dropout, KeepsAndScalesOrDrops) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = Ones(root, Shape{10000});
  const Output y = Dropout(root, x, 0.8);
  ASSERT_TRUE(root.ok()) << root.status();
  const Output wanted[] = {y};
  const auto values = Evaluate(graph, {}, wanted);
  ASSERT_TRUE(values.ok()) << values.status();
  int kept = 0;
  for (float value : (*values)[0].values<float>()) {
    ASSERT_TRUE(value == 0.0f || value == 1.25f) << value;
    kept += value != 0.0f ? 1 : 0;
  }
  EXPECT_NEAR(kept, 8000, 200);
  Dropout(root, x, 0.0);
  EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
}

std::vector<Tensor> RunNode(const char* op, const Attrs& attrs, std::vector<Tensor> inputs,
                            uint64_t step) {
  Graph graph(&Ops());
  const Scope root(&graph);
  OpBuilder node(root.WithOpName("x"), op);
  for (const Tensor& input : inputs) node.Input(Placeholder(root, input.dtype(), input.shape()));
  for (const auto& [name, value] : attrs.values()) node.Attr(name, value);
  const Operation built = node.Build();
  EXPECT_TRUE(root.ok()) << root.status();
  KernelRunner runner(&Kernels(), {.step_id = step});
  auto outputs = runner.Run(graph, built.id, std::move(inputs));
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return *outputs;
}

TEST(RandomShuffle, PutsTheSameRowsInAnOrderOfTheStep) {
  const int64_t n = 100;
  Tensor rows = Tensor::Allocate(DT_INT32, Shape{n, 2}).value();
  for (int64_t i = 0; i < 2 * n; ++i) rows.data<int32_t>()[i] = static_cast<int32_t>(i);
  const auto shuffled = [&](uint64_t step) {
    const Tensor out = RunNode("RandomShuffle", {{"seed", int64_t{7}}}, {rows}, step)[0];
    std::vector<int32_t> first;
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(out.data<int32_t>()[2 * i] + 1, out.data<int32_t>()[2 * i + 1]);
      first.push_back(out.data<int32_t>()[2 * i] / 2);
    }
    return first;
  };
  std::vector<int32_t> one = shuffled(1);
  EXPECT_EQ(one, shuffled(1));
  EXPECT_NE(one, shuffled(2));
  std::sort(one.begin(), one.end());
  for (int32_t i = 0; i < n; ++i) EXPECT_EQ(one[static_cast<size_t>(i)], i);
}

// What cuts follow from seeds: tests/golden/ops/more_pools.
TEST(FractionalPools, WithoutSeedsAreCutAnewInEachStepUnlessTheyAreDeterministic) {
  const auto cuts = [](bool deterministic, uint64_t step) {
    Graph graph(&Ops());
    const Scope root(&graph);
    const Output x = Placeholder(root, DT_FLOAT, {1, 1, 100, 1});
    const FractionalPoolOptions options{.deterministic = deterministic};
    const Output pooled = FractionalMaxPool(root, x, {1, 1, 1.5f, 1}, options).output;
    EXPECT_TRUE(root.ok()) << root.status();
    KernelRunner runner(&Kernels(), {.step_id = step});
    auto outputs = runner.Run(graph, pooled.node(),
                              {Tensor::FromValues<float>({1, 1, 100, 1}, std::vector<float>(100))});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    const auto cut = (*outputs)[2].values<int64_t>();
    return std::vector<int64_t>(cut.begin(), cut.end());
  };
  const std::vector<int64_t> one = cuts(false, 1);
  ASSERT_EQ(one.size(), 67u);
  EXPECT_EQ(one.front(), 0);
  EXPECT_EQ(one.back(), 100);
  for (size_t i = 1; i < one.size(); ++i) {
    EXPECT_GE(one[i], one[i - 1] + 1);
    EXPECT_LE(one[i], one[i - 1] + 2);
  }
  EXPECT_EQ(one, cuts(false, 1));
  EXPECT_NE(one, cuts(false, 2));
  EXPECT_EQ(cuts(true, 1), cuts(true, 2));
}

TEST(Multinomial, DrawsByProbability) {
  const Tensor logits = Tensor::FromValues<float>(Shape{2, 3}, {0, std::log(3.0f), -40, 1, 1, 1});
  const int32_t n = 30000;
  const Tensor out = RunNode("Multinomial", {}, {logits, Tensor::Scalar<int32_t>(n)}, 1)[0];
  ASSERT_EQ(out.shape(), (Shape{2, n}));
  std::vector<int> counts(6);
  for (int64_t i = 0; i < 2 * n; ++i)
    ++counts[static_cast<size_t>(i / n * 3 + out.data<int64_t>()[i])];
  EXPECT_NEAR(counts[0], n / 4.0, 300);
  EXPECT_EQ(counts[2], 0);
  for (size_t k = 3; k < 6; ++k) EXPECT_NEAR(counts[k], n / 3.0, 350);
}

}  // namespace
}  // namespace monograph::optest
