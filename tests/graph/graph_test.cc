#include "graph/graph.h"

#include <gtest/gtest.h>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Const;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class GraphTest : public ::testing::Test {
 protected:
  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};

  std::string ErrorOf(const NodeSpec& spec) {
    auto added = graph_.AddNode(spec);
    return added.ok() ? "no error" : added.status().ToString();
  }
};

TEST_F(GraphTest, ANodeGetsItsTypesAttributesAndShapesFromItsInputs) {
  const Output a = Placeholder(root_.WithOpName("a"), DT_FLOAT, {-1, 784});
  const Output b = Placeholder(root_.WithOpName("b"), DT_FLOAT, {784, 10});
  const Output product = Binary(root_.WithOpName("logits"), "MatMul", a, b);
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(product.name(), "logits");
  EXPECT_EQ(product.dtype(), DT_FLOAT);
  EXPECT_EQ(product.shape(), (PartialShape{-1, 10}));
  EXPECT_EQ(graph_.attrs(product.node()).Get<DType>("T"), DT_FLOAT);
  EXPECT_FALSE(graph_.attrs(product.node()).Get<bool>("transpose_a"));
  EXPECT_EQ(graph_.TensorName(product.endpoint), "logits");
  EXPECT_EQ(graph_.inputs(product.node())[1], b.endpoint);
}

TEST_F(GraphTest, NodesWithTheSameAttributesShareThem) {
  const Output a = Placeholder(root_, DT_FLOAT, {2, 2});
  const Output x = Unary(root_, "Relu", a), y = Unary(root_, "Relu", x);
  EXPECT_EQ(graph_.shared_attrs(x.node()).get(), graph_.shared_attrs(y.node()).get());
}

TEST_F(GraphTest, CountsAndTypeListsFollowFromTheInputs) {
  const Output a = Placeholder(root_, DT_FLOAT, {2}), i = Placeholder(root_, DT_INT32, {});
  const Outputs three = {a, a, a}, mixed = {a, i}, concat = {a, a, i};
  const Operation sum = OpBuilder(root_, "AddN").Inputs(three).Build();
  EXPECT_EQ(sum.attrs().Get<int64_t>("N"), 3);
  const Operation both = OpBuilder(root_, "IdentityN").Inputs(mixed).Build();
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(both.attrs().Get<std::vector<DType>>("T"), (std::vector<DType>{DT_FLOAT, DT_INT32}));
  EXPECT_EQ(both.output(1).dtype(), DT_INT32);
  const Operation joined = OpBuilder(root_, "ConcatV2").Inputs(concat).Build();
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(joined.attrs().Get<int64_t>("N"), 2);
  const Operation split = OpBuilder(root_, "Split").Input(i).Input(a).Attr("num_split", 4).Build();
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(split.num_outputs(), 4);
  EXPECT_EQ(split.output(3).dtype(), DT_FLOAT);
  EXPECT_EQ(split.output(3).name(), "Split:3");
}

TEST_F(GraphTest, AnEmptyListTakesTheTypeThatTheOpDeclares) {
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Operation conv = OpBuilder(root_, "Conv2D")
                             .Input(x)
                             .Input(x)
                             .Attr("strides", {1, 2, 2, 1})
                             .Attr("padding", "SAME")
                             .Attr("explicit_paddings", EmptyList())
                             .Build();
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_TRUE(conv.attrs().Get<std::vector<int64_t>>("explicit_paddings").empty());
  EXPECT_EQ(conv.attrs().Get<std::vector<int64_t>>("dilations").size(), 4u);
  EXPECT_EQ(conv.attrs().Get<std::string>("data_format"), "NHWC");
}

TEST_F(GraphTest, AWrongTypeIsNamedWithNodeOpInputsAndAttribute) {
  const Output a = Placeholder(root_, DT_FLOAT, {2, 3}), b = Placeholder(root_, DT_INT32, {4});
  Binary(root_.SubScope("a"), "MatMul", a, b);
  EXPECT_EQ(root_.status().ToString(),
            "INVALID_ARGUMENT: node 'a/MatMul' (MatMul) with inputs float[2,3], int32[4]: input 1 "
            "('b') must be float as "
            "attribute T says, but is int32");
}

TEST_F(GraphTest, AShapeMismatchIsNamedWhileBuilding) {
  const Output a = Placeholder(root_, DT_FLOAT, {2, 3}), b = Placeholder(root_, DT_FLOAT, {4, 5});
  Binary(root_.WithOpName("y"), "MatMul", a, b);
  EXPECT_EQ(root_.status().ToString(),
            "INVALID_ARGUMENT: node 'y' (MatMul) with inputs float[2,3], float[4,5]: inner "
            "dimensions 3 and 4 differ");
}

TEST_F(GraphTest, AnUnknownOpIsUnimplementedAndTheNearestNameIsOffered) {
  EXPECT_EQ(ErrorOf({.name = "x", .op = "MatMull"}),
            "UNIMPLEMENTED: node 'x': op 'MatMull' is not registered; did you mean 'MatMul'?");
}

TEST_F(GraphTest, AnUnknownAttributeListsThoseOfTheOp) {
  const Output a = Placeholder(root_, DT_FLOAT, {2, 2});
  OpBuilder(root_, "MatMul").Input(a).Input(a).Attr("transpose", true).Build();
  EXPECT_EQ(root_.status().message(),
            "node 'MatMul' (MatMul) with inputs float[2,2], float[2,2]: op MatMul has no attribute "
            "'transpose'; it has "
            "'transpose_a', 'transpose_b', 'T'");
}

TEST_F(GraphTest, ErrorsOfAttributesSayWhatWouldBeRight) {
  const Output f = Placeholder(root_, DT_FLOAT, {}), s = Placeholder(root_, DT_STRING, {});
  const Endpoint one[] = {f.endpoint}, two[] = {f.endpoint, f.endpoint}, text[] = {s.endpoint};
  const auto attrs = [](Attrs values) { return std::make_shared<const Attrs>(std::move(values)); };
  EXPECT_NE(ErrorOf({.name = "a", .op = "Relu", .inputs = text})
                .find("attribute 'T' is string; it must be one of [float"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "Relu", .inputs = two}).find("op takes 1 input, not 2"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "AddN"}).find("attribute 'N' is 0; it must be at least 1"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf({.name = "a", .op = "Placeholder"}).find("attribute 'dtype' of type type is missing"),
      std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "Relu", .inputs = one, .attrs = attrs({{"T", int64_t{1}}})})
                .find("attribute 'T' must be of type type, but 1 is of type int"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a",
                     .op = "Conv2D",
                     .inputs = two,
                     .attrs = attrs({{"strides", std::vector<int64_t>{1}}, {"padding", "FULL"}})})
                .find("attribute 'padding' is 'FULL'; it must be one of ['SAME', 'VALID']"),
            std::string::npos);
  EXPECT_EQ(graph_.num_nodes(), 2);
}

TEST_F(GraphTest, BadNamesInputsAndDevicesAreRefused) {
  const Output f = Placeholder(root_.WithOpName("f"), DT_FLOAT, {});
  const Endpoint no_output[] = {{f.node(), 3}}, no_node[] = {{17, 0}};
  const NodeId no_control[] = {-1};
  EXPECT_NE(ErrorOf({.name = "a b", .op = "NoOp"}).find("the name is not valid"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "", .op = "NoOp"}).find("the name is not valid"), std::string::npos);
  EXPECT_NE(ErrorOf({.name = "/a", .op = "NoOp"}).find("the name is not valid"), std::string::npos);
  EXPECT_NE(ErrorOf({.name = "f", .op = "NoOp"})
                .find("there is a node (Placeholder) of that name already"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "Relu", .inputs = no_output})
                .find("input 0 is output 3 of node 'f', which has 1"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "Relu", .inputs = no_node}).find("an output of no node"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "NoOp", .control_inputs = no_control})
                .find("a control input is no node"),
            std::string::npos);
  EXPECT_NE(ErrorOf({.name = "a", .op = "NoOp", .device = "/jib:x"})
                .find("Malformed device specification '/jib:x'"),
            std::string::npos);
  EXPECT_EQ(graph_.num_nodes(), 1);
}

TEST_F(GraphTest, TensorsAreFoundByNameAndNearNamesAreOffered) {
  Unary(root_.SubScope("tower_0").WithOpName("logits"), "Relu",
        Placeholder(root_.WithOpName("x"), DT_FLOAT, {}));
  EXPECT_TRUE(graph_.FindOutput("tower_0/logits:0").ok());
  EXPECT_EQ(graph_.FindOutput("logits").status().ToString(),
            "NOT_FOUND: there is no node 'logits' in the graph; did you mean 'tower_0/logits'?");
  EXPECT_EQ(graph_.FindOutput("x:1").status().message(),
            "there is no tensor 'x:1': node 'x' (Placeholder) has 1 output");
  EXPECT_EQ(graph_.FindOutput("x:-1").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(graph_.FindOutput("x:99999999999999999999").status().code(), Code::kInvalidArgument);
}

TEST_F(GraphTest, ManyNodesAreAllFoundAgain) {
  std::vector<std::string> names;
  for (int i = 0; i < 20000; ++i) {
    names.push_back(graph_.UniqueName("n"));
    ASSERT_TRUE(graph_.AddNode({.name = names.back(), .op = "NoOp"}).ok());
  }
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(graph_.Find(names[static_cast<size_t>(i)]), i);
  EXPECT_EQ(names.back(), "n_19999");
  EXPECT_EQ(graph_.Find("n_20000"), -1);
}

TEST_F(GraphTest, ControlInputsGrowWithoutDuplicates) {
  std::vector<NodeId> nodes;
  for (const char* name : {"a", "b", "c", "d"})
    nodes.push_back(*graph_.AddNode({.name = name, .op = "NoOp"}));
  const NodeId twice[] = {nodes[0], nodes[0], nodes[1]};
  const NodeId e = *graph_.AddNode({.name = "e", .op = "NoOp", .control_inputs = twice});
  const NodeId f = *graph_.AddNode({.name = "f", .op = "NoOp", .control_inputs = twice});
  graph_.AddControlInput(e, nodes[2]);
  graph_.AddControlInput(e, nodes[2]);
  graph_.AddControlInput(f, nodes[3]);
  graph_.AddControlInput(e, nodes[3]);
  const auto list = [&](NodeId id) {
    return std::vector<NodeId>(graph_.control_inputs(id).begin(), graph_.control_inputs(id).end());
  };
  EXPECT_EQ(list(e), nodes);
  EXPECT_EQ(list(f), (std::vector<NodeId>{nodes[0], nodes[1], nodes[3]}));
  graph_.SetControlInputs(e, {});
  EXPECT_TRUE(list(e).empty());
}

TEST_F(GraphTest, OutEdgesListEveryConsumer) {
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Output y = Binary(root_, "Mul", x, x);
  const Output z = Unary(root_.WithControlDependencies({x}), "Relu", y);
  const OutEdges edges(graph_);
  ASSERT_EQ(edges.of(x.node()).size(), 3u);
  EXPECT_EQ(edges.of(x.node())[1].target, y.node());
  EXPECT_EQ(edges.of(x.node())[1].input, 1);
  EXPECT_EQ(edges.of(x.node())[2].target, z.node());
  EXPECT_EQ(edges.of(x.node())[2].input, -1);
  EXPECT_TRUE(edges.of(z.node()).empty());
}

TEST_F(GraphTest, TheTopologicalOrderPutsSourcesFirstAndNamesACycle) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output a = Unary(root_.WithOpName("a"), "Relu", x),
               b = Unary(root_.WithOpName("b"), "Relu", a);
  EXPECT_EQ(*graph_.TopologicalOrder(), (std::vector<NodeId>{0, 1, 2}));
  graph_.ReplaceInput(b.node(), 0, x.endpoint);
  graph_.ReplaceInput(a.node(), 0, b.endpoint);
  EXPECT_EQ(*graph_.TopologicalOrder(), (std::vector<NodeId>{0, 2, 1}));
  graph_.ReplaceInput(b.node(), 0, a.endpoint);
  const auto cyclic = graph_.TopologicalOrder();
  ASSERT_FALSE(cyclic.ok());
  EXPECT_EQ(cyclic.status().ToString(),
            "INVALID_ARGUMENT: the graph has a cycle: 'a' -> 'b' -> 'a'");
}

TEST_F(GraphTest, CopiedNodesKeepTypesShapesAttributesAndDevice) {
  const Scope gpu = root_.WithDevice("/job:worker/task:1/gpu:0");
  const Output x = Placeholder(gpu.WithOpName("x"), DT_FLOAT, {-1, 3});
  const Output y = Unary(gpu.WithOpName("y"), "Relu", x);
  Graph copy(&TestRegistry());
  ASSERT_TRUE(copy.InternDevice("/job:ps").ok());
  const NodeId cx = copy.CopyNode(graph_, x.node(), "p/x", {}, {});
  const Endpoint inputs[] = {{cx, 0}};
  const NodeId control[] = {cx};
  const NodeId cy = copy.CopyNode(graph_, y.node(), "p/y", inputs, control);
  EXPECT_EQ(copy.name(cy), "p/y");
  EXPECT_EQ(copy.dtype({cy, 0}), DT_FLOAT);
  EXPECT_EQ(copy.shape({cy, 0}), (PartialShape{-1, 3}));
  EXPECT_EQ(copy.shared_attrs(cy).get(), graph_.shared_attrs(y.node()).get());
  EXPECT_EQ(copy.device(cy).ToString(), "/job:worker/task:1/device:GPU:0");
  EXPECT_EQ(copy.control_inputs(cy).size(), 1u);
}

TEST_F(GraphTest, ANodeMayBeCopiedWithinItsOwnGraph) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output y = Binary(root_.WithOpName("y"), "Mul", x, x);
  for (int i = 0; i < 1000; ++i) {
    const NodeId copy =
        graph_.CopyNode(graph_, y.node(), graph_.UniqueName("y"), graph_.inputs(y.node()), {});
    ASSERT_EQ(graph_.inputs(copy)[0], x.endpoint);
    ASSERT_EQ(graph_.inputs(copy)[1], x.endpoint);
  }
}

TEST_F(GraphTest, AnUnknownOpIsKeptWithUntypedOutputs) {
  const auto foreign = graph_.AddUnknownNode({.name = "f", .op = "Foreign"}, 2);
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  EXPECT_FALSE(graph_.op(*foreign).known());
  EXPECT_EQ(graph_.num_outputs(*foreign), 2);
  const Endpoint input[] = {{*foreign, 1}};
  const auto typed =
      graph_.AddNode({.name = "r",
                      .op = "Relu",
                      .inputs = input,
                      .attrs = std::make_shared<const Attrs>(Attrs{{"T", DT_FLOAT}})});
  ASSERT_TRUE(typed.ok()) << typed.status();
  EXPECT_EQ(graph_.dtype({*typed, 0}), DT_FLOAT);
  EXPECT_NE(ErrorOf({.name = "s", .op = "Relu", .inputs = input})
                .find("attribute 'T' of type type is missing"),
            std::string::npos);
}

TEST_F(GraphTest, DevicesAreInternedByMeaningAndNotBySpelling) {
  EXPECT_EQ(*graph_.InternDevice(""), 0);
  const DeviceIndex a = *graph_.InternDevice("/task:1/job:w");
  EXPECT_EQ(*graph_.InternDevice("/job:w/task:1"), a);
  EXPECT_EQ(*graph_.InternDevice("/task:1/job:w"), a);
  EXPECT_EQ(graph_.devices().size(), 2u);
}

TEST_F(GraphTest, AMovedGraphKeepsItsNodes) {
  Placeholder(root_.WithOpName("x"), DT_FLOAT, {4});
  Graph moved = std::move(graph_);
  EXPECT_EQ(moved.name(0), "x");
  EXPECT_EQ(moved.Find("x"), 0);
  EXPECT_EQ(moved.shape({0, 0}), (PartialShape{4}));
}

}  // namespace
}  // namespace monograph
