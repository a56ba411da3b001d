#include "graph/tower_function.h"

#include <gtest/gtest.h>

#include <functional>

#include "graph/batch_shards.h"
#include "graph/function.h"
#include "graph/gradients.h"
#include "graph/place.h"
#include "graph/placement_log.h"
#include "tests/graph/pass_ops.h"

namespace monograph {
namespace {

#define EXPECT_SAYS(status, part) \
  EXPECT_TRUE((status).message().find(part) != std::string::npos) << (status).message()

std::vector<std::string> Workers(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i)
    devices.push_back("/job:worker/replica:0/task:" + std::to_string(i) + "/device:CPU:0");
  return devices;
}

Value Rows(const std::vector<double>& rows) {
  return {{static_cast<int64_t>(rows.size())}, rows, {}};
}

// loss = sum((w x)^2) over the shard's rows, scaled by 1/rows; returns loss and d loss/dw.
Result<Outputs> Tower(Scope& tower, std::span<const Output> args) {
  const Output wx = Op2(tower.WithOpName("wx"), "Mul", args[0], args[1]);
  const Output sum = Op1(tower.WithOpName("sum"), "Sum", Op1(tower, "Square", wx));
  const Output loss = Op2(tower.WithOpName("loss"), "Mul", sum, args[2]);
  MG_ASSIGN_OR_RETURN(const Outputs gradients,
                      AddGradients(tower, Outputs{loss}, Outputs{args[1]}));
  return Outputs{loss, gradients[0]};
}

using TowerFn = std::function<Result<Outputs>(Scope& tower, std::span<const Output> args)>;

Result<TowerCalls> MakeTower(const Scope& scope, const std::string& name,
                             const std::vector<std::string>& devices,
                             const std::vector<Outputs>& args, const TowerFn& build) {
  MG_ASSIGN_OR_RETURN(TowerFunction tower, TowerFunction::Make(scope, name, devices, args));
  const Result<Outputs> results = build(tower.body(), tower.args());
  return tower.Call(results);
}

class TowerTest : public ::testing::Test {
 protected:
  Graph graph_{&PassOps()};
  Scope root_{&graph_};
};

TEST_F(TowerTest, ATowerIsOneFunctionThatIsCalledPerReplica) {
  const Output w = Placeholder(root_.WithOpName("w"));
  const Output x0 = Placeholder(root_, {4, 3}), x1 = Placeholder(root_, {5, 3});
  const std::vector<Outputs> args = {{x0, w}, {x1, w}};
  const auto replicated = MakeTower(
      root_, "tower", Workers(2), args,
      [&](Scope& tower, std::span<const Output> in) -> Result<Outputs> {
        EXPECT_EQ(in[0].shape(), PartialShape({-1, 3}));
        EXPECT_EQ(in[1].shape(), PartialShape::Scalar());
        return Outputs{Op1(tower.SubScope("layer").WithOpName("y"), "Square", in[0]), in[1]};
      });
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  ASSERT_EQ(replicated->calls.size(), 2u);
  EXPECT_EQ(replicated->calls[1].name(), "tower_1");
  EXPECT_TRUE(graph_.is(replicated->calls[1].id, "PartitionedCall"));
  EXPECT_EQ(replicated->calls[1].attrs().Get<int64_t>("_replica"), 1);
  EXPECT_EQ(graph_.device(replicated->calls[1].id).ToString(), Workers(2)[1]);
  ASSERT_EQ(replicated->results.size(), 2u);
  EXPECT_EQ(replicated->results[0][1], replicated->calls[1].output(0));
  EXPECT_EQ(replicated->results[0][1].shape(), PartialShape({-1, 3}));
  EXPECT_EQ(graph_.functions().all().size(), 1u);

  std::vector<DeviceInfo> devices;
  for (const std::string& name : Workers(2)) devices.push_back({.name = ParsedDevice(name)});
  ASSERT_TRUE(Place(&graph_, devices, {}, nullptr).ok());
  const std::string text = FormatPlacement(graph_, PlacementLog::kFull, {});
  EXPECT_NE(text.find("tower_1/layer/y: (Square): " + Workers(2)[1] + "\n"), std::string::npos)
      << text;
}

TEST_F(TowerTest, ABodyHoldsOnlyWhatItsResultsNeed) {
  const Output x = Placeholder(root_, {4, 3}), unread = Placeholder(root_, {4, 3});
  const std::vector<Outputs> args = {{x, unread}};
  const auto replicated =
      MakeTower(root_, "tower", Workers(1), args,
                [](Scope& tower, std::span<const Output> in) -> Result<Outputs> {
                  Op1(tower.WithOpName("useless"), "Square", in[0]);
                  return Outputs{Op1(tower.WithOpName("useful"), "Square", in[0])};
                });
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  const Function& function = graph_.functions().all().begin()->second;
  EXPECT_EQ(function.args.size(), 2u);
  EXPECT_GE(function.body->Find("useful"), 0);
  EXPECT_EQ(function.body->Find("useless"), -1);
}

TEST_F(TowerTest, ABodyWithEffectsIsCalledStatefully) {
  const Output shape = Constant(root_, Tensor::Vector<int32_t>({2}));
  const std::vector<Outputs> args = {{shape}};
  const TowerFn random = [](Scope& tower, std::span<const Output> in) -> Result<Outputs> {
    return Outputs{
        OpBuilder(tower, "RandomUniform").Input(in[0]).Attr("dtype", DT_FLOAT).BuildOutput()};
  };
  const auto replicated = MakeTower(root_, "tower", Workers(1), args, random);
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  EXPECT_TRUE(graph_.is(replicated->calls[0].id, "StatefulPartitionedCall"));
  const auto again = MakeTower(root_, "tower", Workers(1), args, random);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(graph_.functions().all().size(), 2u);
}

TEST_F(TowerTest, MistakesInATowerAreNamed) {
  const Output x = Placeholder(root_.WithOpName("x")),
               n = Placeholder(root_.WithOpName("n"), PartialShape::Scalar(), DT_INT32);
  const std::vector<Outputs> one = {{x}}, mixed = {{x}, {n}}, uneven = {{x}, {}};
  const TowerFn identity = [](Scope&, std::span<const Output> in) -> Result<Outputs> {
    return Outputs{in[0]};
  };
  EXPECT_SAYS(MakeTower(root_, "t", Workers(2), one, identity).status(),
              "2 devices but arguments for 1 replicas");
  EXPECT_SAYS(MakeTower(root_, "t", Workers(2), mixed, identity).status(),
              "replica 1, argument 0, 'n', is int32");
  EXPECT_SAYS(MakeTower(root_, "t", Workers(2), uneven, identity).status(),
              "replica 1 has 0 arguments");
  EXPECT_SAYS(
      MakeTower(root_, "t", Workers(1), one,
                [&](Scope&, std::span<const Output>) -> Result<Outputs> { return Outputs{x}; })
          .status(),
      "result 0, 'x', is not built in the tower");
  EXPECT_SAYS(MakeTower(root_, "t", Workers(1), one,
                        [&](Scope& tower, std::span<const Output> in) -> Result<Outputs> {
                          return Outputs{Op1(tower, "Squaer", in[0])};
                        })
                  .status(),
              "tower 't'");
  EXPECT_TRUE(graph_.functions().empty());
}

// ---- The batch ----

std::vector<int64_t> Even(int replicas) {
  return std::vector<int64_t>(static_cast<size_t>(replicas), 1);
}

struct BatchCase {
  const char* name;
  PartialShape shape;
  int replicas;
  std::vector<double> rows;
  std::vector<size_t> parts;
};

class SplitBatchTest : public ::testing::TestWithParam<BatchCase> {};

TEST_P(SplitBatchTest, TheMeanOverReplicasIsTheMeanOverTheBatch) {
  const BatchCase& param = GetParam();
  Graph graph(&PassOps());
  Scope root(&graph);
  const Output x = Placeholder(root.WithOpName("x"), param.shape),
               w = Placeholder(root.WithOpName("w"));
  const auto split = SplitBatch(root, Outputs{x}, Even(param.replicas));
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->shards.size(), static_cast<size_t>(param.replicas));

  std::vector<Outputs> args;
  for (size_t r = 0; r < split->shards.size(); ++r) {
    const float rows = static_cast<float>(param.parts[r]);
    args.push_back({split->shards[r][0], w, Constant(root, Tensor::Scalar<float>(1.0f / rows))});
  }
  const auto replicated = MakeTower(root, "tower", Workers(param.replicas), args, Tower);
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  const auto loss = WeightedMean(root, replicated->results[0], split->weights);
  const auto gradient = WeightedMean(root, replicated->results[1], split->weights);
  ASSERT_TRUE(loss.ok()) << loss.status();
  ASSERT_TRUE(gradient.ok()) << gradient.status();

  std::vector<Output> fetches = {*loss, *gradient};
  for (const Outputs& shard : split->shards) fetches.push_back(shard[0]);
  const auto values = Evaluate(graph, {{"x", Rows(param.rows)}, {"w", {{}, {0.5}, {}}}}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  double squares = 0;
  for (double row : param.rows) squares += row * row;
  const double n = static_cast<double>(param.rows.size());
  EXPECT_NEAR((*values)[0].data[0], 0.25 * squares / n, 1e-5);
  EXPECT_NEAR((*values)[1].data[0], 2 * 0.5 * squares / n, 1e-5);
  for (size_t r = 0; r < param.parts.size(); ++r)
    EXPECT_EQ((*values)[2 + r].data.size(), param.parts[r]);
  EXPECT_EQ(split->weights.empty(),
            param.replicas == 1 || (param.shape.known_rank() && param.shape.dim(0) >= 0 &&
                                    param.shape.dim(0) % param.replicas == 0));
}

INSTANTIATE_TEST_SUITE_P(
    Batches, SplitBatchTest,
    ::testing::Values(BatchCase{"EqualParts", {4}, 2, {1, 2, 3, 4}, {2, 2}},
                      BatchCase{"UnequalParts", {7}, 3, {1, 2, 3, 4, 5, 6, 7}, {2, 2, 3}},
                      BatchCase{"OneReplica", {3}, 1, {1, 2, 3}, {3}},
                      BatchCase{"UnknownBatch", {-1}, 3, {1, 2, 3, 4, 5, 6, 7}, {2, 2, 3}},
                      BatchCase{"UnknownBatchThatDivides", {-1}, 2, {1, 2, 3, 4}, {2, 2}},
                      BatchCase{"UnknownRank", PartialShape(), 2, {1, 2, 3}, {1, 2}}),
    [](const auto& batch) { return batch.param.name; });

TEST_F(TowerTest, ABatchSmallerThanItsReplicasIsRefused) {
  EXPECT_EQ(SplitBatch(root_, Outputs{Placeholder(root_.WithOpName("x"), {3, 2})}, Even(4))
                .status()
                .message(),
            "The batch of 3 examples ('x') is smaller than its 4 replicas");
  const Output y = Placeholder(root_.WithOpName("y"), {-1});
  const auto split = SplitBatch(root_, Outputs{y}, Even(4));
  ASSERT_TRUE(split.ok()) << split.status();
  const Status status = Evaluate(graph_, {{"y", Rows({1, 2, 3})}}, {split->shards[0][0]}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_SAYS(status, "[The batch of] [3] [examples is smaller than its] [4] [replicas]");
}

TEST_F(TowerTest, SharesCutTheBatchInProportionAndKeepTheExactMean) {
  const Output x = Placeholder(root_.WithOpName("x"), {8, 2});
  const auto split = SplitBatch(root_, Outputs{x}, std::vector<int64_t>{3, 1});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(RowsByShares(8, std::vector<int64_t>{3, 1}), (std::vector<int64_t>{6, 2}));
  const auto weights = Evaluate(graph_, {}, {split->weights[0], split->weights[1]});
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)[0].data[0], 0.75);
  EXPECT_EQ((*weights)[1].data[0], 0.25);
  EXPECT_SAYS(SplitBatch(root_, Outputs{x}, std::vector<int64_t>{1, 100}).status(),
              "replica 0 with a share of 1 gets no row of a batch of 8");
  EXPECT_SAYS(SplitBatch(root_, Outputs{x}, std::vector<int64_t>{2, 0}).status(), "a share of 0");
  const Output free = Placeholder(root_.WithOpName("free"), {-1, 2});
  EXPECT_SAYS(SplitBatch(root_, Outputs{free}, std::vector<int64_t>{2, 1}).status(),
              "known number of examples");
}

TEST_F(TowerTest, InputsOfDifferentBatchesAreRefused) {
  const Output x = Placeholder(root_.WithOpName("x"), {6, 2}),
               y = Placeholder(root_.WithOpName("y"), {5});
  const Output free = Placeholder(root_.WithOpName("free"), {-1});
  EXPECT_SAYS(SplitBatch(root_, Outputs{x, y}, Even(2)).status(), "'y', has 5 rows, but 'x' has 6");
  EXPECT_SAYS(SplitBatch(root_, Outputs{Placeholder(root_.WithOpName("s"))}, Even(2)).status(),
              "'s', is a scalar");
  const auto split = SplitBatch(root_, Outputs{x, free}, Even(2));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_SAYS(Evaluate(graph_, {{"free", Rows({1, 2, 3, 4, 5})}}, {split->shards[0][1]}).status(),
              "do not sum");
}

}  // namespace
}  // namespace monograph
