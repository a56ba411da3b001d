#include "graph/prune.h"

#include <gtest/gtest.h>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class PruneTest : public ::testing::Test {
 protected:
  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};
  Output x_ = Placeholder(root_.WithOpName("x"), DT_FLOAT, {2});
  Output a_ = Unary(root_.WithOpName("a"), "Relu", x_);
  Output b_ = Unary(root_.WithOpName("b"), "Relu", a_);
  Output c_ = Binary(root_.WithOpName("c"), "Add", a_, b_);
};

TEST_F(PruneTest, OnlyWhatIsNeededStays) {
  const Endpoint fetches[] = {b_.endpoint};
  std::vector<NodeId> mapping;
  const auto pruned = Prune(graph_, {}, fetches, {}, &mapping);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->num_nodes(), 3);
  EXPECT_EQ(mapping[static_cast<size_t>(c_.node())], -1);
  EXPECT_EQ(pruned->name(mapping[static_cast<size_t>(b_.node())]), "b");
}

TEST_F(PruneTest, NothingBehindAFeedIsNeeded) {
  const Endpoint fetches[] = {c_.endpoint}, feeds[] = {a_.endpoint};
  const auto pruned = Prune(graph_, feeds, fetches, {}, nullptr);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->num_nodes(), 3);
  EXPECT_EQ(pruned->Find("x"), -1);
  EXPECT_TRUE(pruned->inputs(pruned->Find("a")).empty());
  EXPECT_EQ(pruned->dtype({pruned->Find("a"), 0}), DT_FLOAT);
}

TEST_F(PruneTest, AFedNodeThatIsATargetRunsAllTheSame) {
  const Endpoint feeds[] = {a_.endpoint};
  const NodeId targets[] = {a_.node()};
  const auto pruned = Prune(graph_, feeds, {}, targets, nullptr);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->num_nodes(), 2);
  EXPECT_EQ(pruned->inputs(pruned->Find("a")).size(), 1u);
}

TEST_F(PruneTest, ControlInputsAreNeededToo) {
  const Operation side = OpBuilder(root_.WithOpName("side"), "NoOp").Build();
  const Output d = Unary(root_.WithControlDependencies({side}).WithOpName("d"), "Relu", x_);
  const Endpoint fetches[] = {d.endpoint};
  const auto pruned = Prune(graph_, {}, fetches, {}, nullptr);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->num_nodes(), 3);
  EXPECT_EQ(pruned->control_inputs(pruned->Find("d")).size(), 1u);
}

TEST_F(PruneTest, AnUnknownOpFailsOnlyTheStepThatNeedsIt) {
  const NodeId foreign = graph_.AddUnknownNode({.name = "f", .op = "Relux"}, 1).value();
  const Endpoint fetches[] = {b_.endpoint}, needed[] = {{foreign, 0}};
  EXPECT_TRUE(Prune(graph_, {}, fetches, {}, nullptr).ok());
  EXPECT_EQ(Prune(graph_, {}, needed, {}, nullptr).status().ToString(),
            "UNIMPLEMENTED: node 'f', which this step needs: op 'Relux' is not registered; did you "
            "mean 'Relu'?");
  EXPECT_TRUE(Prune(graph_, needed, needed, {}, nullptr).ok());
}

TEST_F(PruneTest, ACycleThatIsNeededIsNamed) {
  graph_.ReplaceInput(a_.node(), 0, b_.endpoint);
  const Endpoint through[] = {c_.endpoint}, aside[] = {x_.endpoint};
  EXPECT_EQ(Prune(graph_, {}, through, {}, nullptr).status().message(),
            "the graph has a cycle: 'a' -> 'b' -> 'a'");
  EXPECT_TRUE(Prune(graph_, {}, aside, {}, nullptr).ok());
}

}  // namespace
}  // namespace monograph
