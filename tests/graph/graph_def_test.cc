// GraphDefs in and out: that nodes, functions, attributes and tensors come back as they were, what
// TensorFlow writes in other ways (references, hints, short lists), and what is refused and how.
#include "graph/graph_def.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "graph/attr_proto.h"
#include "graph/dot.h"
#include "graph/function.h"
#include "graph/graph.pb.h"
#include "graph/graph_file.h"
#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Const;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class GraphDefTest : public ::testing::Test {
 protected:
  Result<Graph> FromText(const std::string& text, const ImportOptions& options = {}) {
    GraphDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def)) << text;
    if (!def.has_versions()) def.mutable_versions()->set_producer(27);
    auto graph = GraphFromDef(def, &TestRegistry(), options);
    ExpectTheSameFromBytes(def, graph, options);
    return graph;
  }
  // Bytes are read without messages, and give what messages do.
  static void ExpectTheSameFromBytes(const GraphDef& def, const Result<Graph>& graph,
                                     const ImportOptions& options = {}) {
    const auto again = ParseGraph(def.SerializeAsString(), &TestRegistry(), options);
    ASSERT_EQ(again.status().ToString(), graph.status().ToString());
    if (graph.ok()) ExpectSame(*graph, *again);
  }
  std::string ErrorOf(const std::string& text, const ImportOptions& options = {}) {
    auto graph = FromText(text, options);
    return graph.ok() ? "no error" : graph.status().ToString();
  }
  // Every node of `a`, in the order of `a`, is in `b` with the same content.
  static void ExpectSame(const Graph& a, const Graph& b) {
    ASSERT_EQ(a.num_nodes(), b.num_nodes());
    for (NodeId id = 0; id < a.num_nodes(); ++id) {
      const NodeId other = b.Find(a.name(id));
      ASSERT_GE(other, 0) << a.name(id);
      EXPECT_EQ(a.op(id).name(), b.op(other).name());
      EXPECT_EQ(a.device(id), b.device(other));
      EXPECT_EQ(a.attrs(id), b.attrs(other)) << a.name(id);
      ASSERT_EQ(a.inputs(id).size(), b.inputs(other).size());
      for (size_t i = 0; i < a.inputs(id).size(); ++i) {
        EXPECT_EQ(a.TensorName(a.inputs(id)[i]), b.TensorName(b.inputs(other)[i]));
      }
      ASSERT_EQ(a.control_inputs(id).size(), b.control_inputs(other).size());
      for (size_t i = 0; i < a.control_inputs(id).size(); ++i) {
        EXPECT_EQ(a.name(a.control_inputs(id)[i]), b.name(b.control_inputs(other)[i]));
      }
      ASSERT_EQ(a.num_outputs(id), b.num_outputs(other));
      for (int i = 0; i < a.num_outputs(id); ++i) {
        EXPECT_EQ(a.dtype({id, i}), b.dtype({other, i}));
        EXPECT_EQ(a.shape({id, i}), b.shape({other, i}));
      }
    }
  }
  Graph Sample() {
    Graph graph(&TestRegistry());
    const Scope root(&graph);
    const Scope worker = root.WithDevice("/job:worker/task:1");
    const Output x = Placeholder(worker.WithOpName("x"), DT_FLOAT, {-1, 3});
    const Output w =
        Const(root.WithOpName("w"), Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
    const Output y = Binary(worker.SubScope("layer").WithOpName("y"), "MatMul", x, w);
    const Operation init =
        OpBuilder(root.WithControlDependencies({y, w}).WithOpName("init"), "NoOp").Build();
    const Operation split = OpBuilder(root.ColocateWith(init), "Split")
                                .Input(Const(root, Tensor::Scalar<int32_t>(0)))
                                .Input(y)
                                .Attr("num_split", 2)
                                .Build();
    Binary(root.WithOpName("sum"), "Add", split.output(0), split.output(1));
    OpBuilder(root, "Conv2D")
        .Input(x)
        .Input(w)
        .Attr("strides", {1, 2, 2, 1})
        .Attr("padding", "SAME")
        .Build();
    EXPECT_TRUE(root.ok()) << root.status();
    return graph;
  }
};

TEST_F(GraphDefTest, AGraphComesBackFromItsBytesAsItWas) {
  const Graph graph = Sample();
  const auto again = ParseGraph(SerializeGraph(graph), &TestRegistry());
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(graph, *again);
  EXPECT_EQ(SerializeGraph(*again), SerializeGraph(graph));
}

TEST_F(GraphDefTest, AGraphComesBackFromFilesOfBothKinds) {
  const Graph graph = Sample();
  const auto folder = std::filesystem::path(::testing::TempDir());
  for (const char* name : {"graph_def_test.pb", "graph_def_test.pbtxt"}) {
    const std::string path = folder / name;
    ASSERT_TRUE(WriteGraph(graph, path).ok());
    const auto again = ReadGraph(path, &TestRegistry());
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSame(graph, *again);
    std::filesystem::remove(path);
  }
}

TEST_F(GraphDefTest, ErrorsOfFilesNameThePathAndTheLine) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / "graph_def_test_bad.pbtxt";
  std::ofstream(path) << "node { name: 'a' op: 'NoOp' }\nnode { name 7 }\n";
  EXPECT_NE(ReadGraph(path, &TestRegistry()).status().message().find(path + ":2:"),
            std::string::npos)
      << ReadGraph(path, &TestRegistry()).status();
  std::filesystem::remove(path);
  EXPECT_EQ(ReadGraph(path, &TestRegistry()).status().ToString(),
            "NOT_FOUND: cannot read graph file '" + path + "': No such file or directory");
  EXPECT_EQ(ReadGraph("graph.json", &TestRegistry()).status().message(),
            "graph file 'graph.json' must end in .pb (binary) or .pbtxt (text)");
  EXPECT_FALSE(WriteGraph(Sample(), "/nonexistent/graph.pb").ok());
}

TEST_F(GraphDefTest, ATextThatIsNestedWithoutEndIsRefusedWithItsPlace) {
  const auto said = [](const std::string& text) {
    GraphDef def;
    return ParseMessageText(text, "g.pbtxt", &def).ToString();
  };
  for (const std::string& level : {std::string("attr { key: \"a\" value { func { "),
                                   std::string("other { other { other { ")}) {
    std::string text = "node { name: \"n\" op: \"NoOp\"\n";
    for (int i = 0; i < 5000; ++i) text += level;
    EXPECT_EQ(said(text).find("INVALID_ARGUMENT: g.pbtxt, line 2, column "), 0u) << said(text);
    EXPECT_NE(said(text).find("brackets are nested more than 100 deep"), std::string::npos);
  }
  EXPECT_EQ(said(std::string("node { }\n\0", 10)),
            "INVALID_ARGUMENT: g.pbtxt, line 2, column 1: a zero byte is no text");
}

TEST_F(GraphDefTest, NodesMayComeInAnyOrder) {
  const auto graph = FromText(R"(
    node { name: "c" op: "Relu" input: "b" input: "^d" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "b" op: "Relu" input: "a:0" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: -1 } dim { size: 4 } } } } }
    node { name: "d" op: "NoOp" })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->shape({graph->Find("c"), 0}), (PartialShape{-1, 4}));
  EXPECT_EQ(graph->name(graph->control_inputs(graph->Find("c"))[0]), "d");
  EXPECT_TRUE(graph->TopologicalOrder().ok());
}

TEST_F(GraphDefTest, ACycleIsRefusedAndItsNodesAreNamed) {
  EXPECT_EQ(ErrorOf(R"(
    node { name: "x" op: "NoOp" }
    node { name: "a" op: "Relu" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "b" op: "Relu" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "c" op: "Relu" input: "b" input: "^x" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "d" op: "Relu" input: "b" attr { key: "T" value { type: DT_FLOAT } } })"),
            "INVALID_ARGUMENT: the graph has a cycle: 'a' -> 'b' -> 'c' -> 'a'");
  EXPECT_EQ(ErrorOf("node { name: 'a' op: 'NoOp' input: '^a' }"),
            "INVALID_ARGUMENT: the graph has a cycle: 'a' -> 'a'");
}

TEST_F(GraphDefTest, DefaultsAreFilledInAndForeignAttributesDropped) {
  const auto graph = FromText(R"(
    node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "b" op: "MatMul" input: "a" input: "a" attr { key: "T" value { type: DT_FLOAT } }
           attr { key: "grad_a" value { b: true } } attr { key: "_XlaCompile" value { b: true } }
           attr { key: "_class" value { list { s: "loc:@a" } } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Attrs& attrs = graph->attrs(graph->Find("b"));
  EXPECT_FALSE(attrs.Get<bool>("transpose_a"));
  EXPECT_EQ(attrs.Find("grad_a"), nullptr);
  EXPECT_EQ(attrs.Find("_XlaCompile"), nullptr);
  EXPECT_EQ(attrs.Get<std::vector<std::string>>("_class"), (std::vector<std::string>{"loc:@a"}));
}

TEST_F(GraphDefTest, AScalarPlaceholderOfAnOldGraphIsOfUnknownRank) {
  const auto shape_of = [&](const std::string& shape, const std::string& versions) {
    const auto graph = FromText(
        "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }"
        " attr { key: 'shape' value { shape { " +
        shape + " } } } } " + versions);
    return graph.ok() ? graph->shape({0, 0}).ToString() : graph.status().ToString();
  };
  EXPECT_EQ(shape_of("", "versions { producer: 22 }"), "[]");
  EXPECT_EQ(shape_of("", "versions { producer: 21 }"), "<unknown>");
  EXPECT_EQ(shape_of("", "versions { }"), "<unknown>");
  EXPECT_EQ(shape_of("dim { size: 3 }", "versions { producer: 21 }"), "[3]");
  EXPECT_EQ(shape_of("unknown_rank: true", "versions { producer: 27 }"), "<unknown>");
}

TEST_F(GraphDefTest, ReferenceTypesAreReadAsPlainOnes) {
  const auto graph = FromText(R"(
    node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT_REF } } }
    node { name: "b" op: "Relu" input: "a" attr { key: "T" value { type: DT_FLOAT } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->dtype({0, 0}), DT_FLOAT);
}

TEST_F(GraphDefTest, NodesOfUnknownOpsAreKeptAndWrittenAgain) {
  const std::string text = R"(
    node { name: "f" op: "Foreign" input: "^g" attr { key: "k" value { i: 7 } } }
    node { name: "g" op: "Foreign" }
    node { name: "b" op: "Relu" input: "f:2" attr { key: "T" value { type: DT_FLOAT } } })";
  const auto graph = FromText(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const NodeId f = graph->Find("f");
  EXPECT_EQ(graph->num_outputs(f), 3);
  EXPECT_EQ(graph->num_outputs(graph->Find("g")), 0);
  EXPECT_EQ(graph->attrs(f).Get<int64_t>("k"), 7);
  const auto again = ParseGraph(SerializeGraph(*graph), &TestRegistry());
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(*graph, *again);
  EXPECT_EQ(ErrorOf(text, {.keep_unknown_ops = false}),
            "UNIMPLEMENTED: node 'g': op 'Foreign' is not registered");
}

TEST_F(GraphDefTest, TypesOfAnUnknownOpAreThoseThatSomeTensorFlowMayHave) {
  const auto with = [](const std::string& value) {
    return "node { name: 'f' op: 'Foreign' attr { key: 'Ts' value { " + value + " } } }";
  };
  // As numbers, since graph.proto does not name all of them: quantized int8 and a reference to it,
  // float4, none.
  for (const char* const known : {"type: 11", "type: 111", "type: 33", "type: 0",
                                  "list { type: 11 type: 111 type: 133 type: 0 }"}) {
    const auto graph = FromText(with(known));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto again = ParseGraph(SerializeGraph(*graph), &TestRegistry());
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSame(*graph, *again);
  }
  for (const int none : {-1, 100, 200, 201, 1497381786}) {
    const std::string number = std::to_string(none);
    const std::string why =
        "INVALID_ARGUMENT: node 'f' (Foreign): attribute 'Ts': there is no type " + number;
    EXPECT_EQ(ErrorOf(with("type: " + number)), why);
    EXPECT_EQ(ErrorOf(with("list { type: 3 type: " + number + " }")), why);
    EXPECT_EQ(ErrorOf("library { function { signature { name: 'g' } node_def { name: 'f' op: "
                      "'Foreign' attr { key: 'Ts' value { type: " +
                      number + " } } } } }"),
              "INVALID_ARGUMENT: function 'g', node 'f' (Foreign): attribute 'Ts': there is no "
              "type " +
                  number);
  }
  // What becomes of an attribute that a known op does not declare shows in the same way.
  EXPECT_EQ(ErrorOf("node { name: 'n' op: 'NoOp' attr { key: '_mg_x' value { type: 1000 } } }"),
            "INVALID_ARGUMENT: node 'n' (NoOp): attribute '_mg_x': there is no type 1000");
}

// Outputs of an unknown op have names of which we know no order: they are numbered, and keep their
// numbers from then on. By name: "mask" twice, and "output", by which we write numbers.
TEST_F(GraphDefTest, OutputsOfAnUnknownOpInAFunctionKeepTheirNumbers) {
  const auto graph = FromText(R"(
    library { function {
      signature { name: "f" input_arg { name: "x" type: DT_FLOAT }
        output_arg { name: "a" type: DT_FLOAT } output_arg { name: "b" type: DT_FLOAT }
        output_arg { name: "c" type: DT_FLOAT } output_arg { name: "d" type: DT_FLOAT } }
      node_def { name: "u" op: "Foreign" input: "x" }
      node_def { name: "v" op: "Foreign" input: "u:7" }
      ret { key: "a" value: "u:mask:3" } ret { key: "b" value: "u:output:1" }
      ret { key: "c" value: "u:mask:0" } ret { key: "d" value: "v:550" } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Graph& body = *graph->functions().Find("f")->body;
  const NodeId u = body.Find("u"), v = body.Find("v");
  EXPECT_EQ(body.inputs(v)[0], (Endpoint{u, 7}));
  EXPECT_EQ(body.num_outputs(u), 8);
  EXPECT_EQ(body.num_outputs(v), 551);
  std::set<int32_t> numbers;
  for (const NodeId result : graph->functions().Find("f")->results) {
    const Endpoint source = body.inputs(result)[0];
    if (source.node == u) numbers.insert(source.index);
  }
  EXPECT_EQ(numbers, (std::set<int32_t>{0, 1, 2}));
  const std::string text = SerializeGraph(*graph);
  const auto again = ParseGraph(text, &TestRegistry());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(SerializeGraph(*again), text);
}

TEST_F(GraphDefTest, EachMistakeIsOneErrorThatNamesTheNode) {
  const std::string a =
      "node { name: 'a' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } } ";
  const struct {
    std::string text, error;
  } cases[] = {
      {"node { name: 'b' op: 'Relu' input: 'aa' }",
       "node 'b' (Relu): input 'aa' is not in the graph; did you mean 'a'?"},
      {"node { name: 'b' op: 'Relu' input: 'a:-1' }",
       "node 'b' (Relu): input 'a:-1' is not written as NODE, NODE:OUTPUT or ^NODE"},
      {"node { name: 'b' op: 'Relu' input: 'a:x' }",
       "node 'b' (Relu): input 'a:x' is not written as NODE, NODE:OUTPUT or ^NODE"},
      {"node { name: 'b' op: 'Relu' input: 'a:99999999999999999999' }",
       "node 'b' (Relu): input 'a:99999999999999999999' is not written as NODE, NODE:OUTPUT or "
       "^NODE"},
      {"node { name: 'b' op: 'Relu' input: 'a:1' }",
       "node 'b' (Relu): input 0 is output 1 of node 'a', which has 1 outputs"},
      {"node { name: 'b' op: 'Relu' input: '' }", "node 'b' (Relu): input '' is not in the graph"},
      {"node { name: 'b' op: 'Relu' }",
       "node 'b' (Relu): op takes 1 input, not 0: Relu(features: T) -> (activations: T)"},
      {"node { name: 'b' op: 'Relu' input: 'a' attr { key: 'T' value { type: DT_INT32 } } }",
       "node 'b' (Relu) with inputs float<unknown>: input 0 ('features') must be int32 as "
       "attribute T says, but is "
       "float"},
      {"node { name: 'b' op: 'Relu' input: 'a' attr { key: 'T' value { s: 'float' } } }",
       "node 'b' (Relu) with inputs float<unknown>: attribute 'T' must be of type type, but "
       "'float' is of type string"},
      {"node { name: 'a' op: 'NoOp' }", "node 'a' (NoOp): there are two nodes of that name"},
      {"node { name: '' op: 'NoOp' }", "node '' (NoOp): the name is not valid"},
      {"node { name: 'b' op: 'NoOp' device: 'gpu' }",
       "node 'b' (NoOp): Malformed device specification 'gpu'"},
      {"node { name: 'b' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: "
       "'value' value { tensor "
       "{"
       " dtype: DT_FLOAT tensor_shape { dim { size: 3 } } tensor_content: 'abc' } } } }",
       "node 'b' (Const): attribute 'value': a tensor of type float and shape [3] has 3 bytes of "
       "tensor_content, not "
       "12"},
      {"node { name: 'b' op: '' }", "node 'b' (): the node has no op"},
      {"node { name: 'b' op: 'Relu' input: 'a' attr { key: 'T' value { } } }",
       "node 'b' (Relu): attribute 'T': it has no value"},
      {"node { name: 'b' op: 'Relu' input: 'a' attr { key: 'T' value { type: DT_INVALID } } }",
       "node 'b' (Relu): attribute 'T': there is no type 0"},
      {"node { name: 'd' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT64 } } } "
       "node { name: 'b' op: 'Reshape' input: 'a' input: 'd' attr { key: 'T' value { type: "
       "DT_FLOAT } } }",
       "input 1 ('shape') must be int32 as attribute Tshape says, but is int64"},
      {"node { name: 'b' op: 'NoOp' attr { key: '_class' value { b: true } } }",
       "node 'b' (NoOp): attribute '_class': it is no list of texts"},
      {"node { name: 'b' op: 'NoOp' attr { key: '_class' value { list { i: 3 } } } }",
       "node 'b' (NoOp): attribute '_class': it is no list of texts"},
      {"node { name: 'b' op: 'NoOp' attr { key: '_class' value { list { s: 'loc:@aa' } } } }",
       "node 'b' (NoOp): attribute '_class': it is to be colocated with node 'aa', which is not in "
       "the graph; did you mean 'a'?"},
      {"node { name: 'b' op: 'NoOp' attr { key: '_class' value { list { s: 'loc:@' } } } }",
       "node 'b' (NoOp): attribute '_class': it is to be colocated with node '', which is not in "
       "the graph"},
      {"node { name: 'b' op: 'Placeholder' }",
       "node 'b' (Placeholder): attribute 'dtype' of type type is missing: Placeholder("},
      {"node { name: 'n' op: 'NoOp' } node { name: 'b' op: 'Relu' input: '^n' input: 'a' }",
       "node 'b' (Relu): input 'a' comes after control input '^n'; control inputs come last"},
      {"node { name: 'b' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: "
       "'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 1 "
       "float_val: 2 } } } }",
       "node 'b' (Const): attribute 'value': a tensor of shape [1] has 2 elements in float_val"},
      {"node { name: 'b' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: "
       "'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 1099511627776 } } "
       "float_val: 1 } } } }",
       "node 'b' (Const): attribute 'value': a tensor of type float and shape [1099511627776] has "
       "only 1 elements in float_val; at most "},
      {"node { name: 'b' op: 'Placeholder' attr { key: 'dtype' value { placeholder: 'T' } } }",
       "node 'b' (Placeholder): attribute 'dtype': the placeholder 'T' stands for a value"},
      {"node { name: 'b' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } attr { "
       "key: 'shape' value { "
       "shape {"
       " dim { size: -7 } } } } }",
       "node 'b' (Placeholder): attribute 'shape': a shape has dimension -7"},
  };
  for (const auto& c : cases) {
    const std::string error = ErrorOf(a + c.text);
    EXPECT_NE(error.find(c.error), std::string::npos) << error << "\n  wanted: " << c.error;
  }
}

// A class that is no colocation binds nothing; a function's body may name nodes around it; a part
// of a graph may lack what its nodes are with; and what is added may be with what was there.
TEST_F(GraphDefTest, AColocationWithNobodyIsAnErrorInAWholeGraphOnly) {
  const auto with = [](const std::string& text) {
    return "op: 'NoOp' attr { key: '_class' value { list { s: '" + text + "' } } } ";
  };
  EXPECT_EQ(ErrorOf("node { name: 'b' " + with("loc:@c") + "} node { name: 'c' op: 'NoOp' }"),
            "no error");
  EXPECT_EQ(ErrorOf("node { name: 'b' " + with("other") + "}"), "no error");
  EXPECT_EQ(ErrorOf("library { function { signature { name: 'f' } node_def { name: 'b' " +
                    with("loc:@gone") + "} } }"),
            "no error");
  const std::string lost = "node { name: 'b' " + with("loc:@gone") + "}";
  EXPECT_EQ(ErrorOf(lost),
            "INVALID_ARGUMENT: node 'b' (NoOp): attribute '_class': it is to be colocated with "
            "node 'gone', which is not in the graph");
  EXPECT_EQ(ErrorOf(lost, {.keep_lost_colocations = true}), "no error");
  const auto before = FromText("node { name: 'gone' op: 'NoOp' }");
  ASSERT_TRUE(before.ok()) << before.status();
  GraphDef more;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(lost, &more));
  const auto after = ExtendGraph(*before, more);
  EXPECT_TRUE(after.ok()) << after.status();
}

TEST_F(GraphDefTest, DamagedBytesNeverEndTheProcess) {
  Graph graph = Sample();
  const auto functions = FromText(R"(
    library { function {
      signature { name: "f" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
      node_def { name: "r" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
      ret { key: "y" value: "r:activations:0" } } })");
  ASSERT_TRUE(functions.ok()) << functions.status();
  graph.ShareFunctions(functions->shared_functions());
  const std::string bytes = SerializeGraph(graph);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = ParseGraph(std::string_view(bytes).substr(0, size), &TestRegistry());
    if (parsed.ok()) {
      EXPECT_FALSE(SerializeGraph(*parsed).empty());
    } else {
      EXPECT_FALSE(parsed.status().message().empty());
    }
  }
  std::mt19937 random(7);
  int survived = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 1 + i % 4; ++k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto parsed = ParseGraph(damaged, &TestRegistry());
    if (parsed.ok()) survived += SerializeGraph(*parsed).empty() ? 0 : 1;
    if (GraphDef def; def.ParseFromString(damaged))
      ExpectTheSameFromBytes(def, GraphFromDef(def, &TestRegistry()));
  }
  EXPECT_GT(survived, 0);
}

TEST_F(GraphDefTest, TensorsOfAllTypesComeBack) {
  const Tensor handles = [] {
    Tensor tensor = Tensor::Allocate(DT_RESOURCE, {1}).value();
    tensor.handles()[0] = {"/job:ps/replica:0/task:0/device:CPU:0", "localhost", "w"};
    return tensor;
  }();
  const Tensor strings = [] {
    Tensor tensor = Tensor::Allocate(DT_STRING, {2}).value();
    tensor.strings()[1] = std::string("\xff\0x", 3);
    return tensor;
  }();
  const Tensor tensors[] = {Tensor::Scalar<float>(1.5f),
                            Tensor::Vector<float>({1, 2, -0.0f}),
                            Tensor::Vector<double>({7, 7, 7}),
                            Tensor::Vector<int32_t>({-1, 2}),
                            Tensor::Vector<int64_t>({int64_t{1} << 40}),
                            Tensor::Vector<int16_t>({-5, -5}),
                            Tensor::Vector<uint16_t>({65535}),
                            Tensor::Vector<int8_t>({-128}),
                            Tensor::Vector<uint8_t>({255, 255}),
                            Tensor::Vector<uint32_t>({4000000000u}),
                            Tensor::Vector<uint64_t>({~uint64_t{0}}),
                            Tensor::Vector<bool>({true, true, false}),
                            Tensor::Scalar<bool>(true),
                            Tensor::Vector<half>({half(0.5f), half(0.5f)}),
                            Tensor::Vector<bfloat16>({bfloat16(-2.0f)}),
                            Tensor::FromValues<float>({0, 3}, std::initializer_list<float>{}),
                            strings,
                            handles};
  const auto round_trip = [](const Tensor& tensor) {
    TensorProto proto;
    TensorToProto(tensor, &proto);
    const auto again = TensorFromProto(proto);
    ASSERT_TRUE(again.ok()) << tensor.ToString() << ": " << again.status();
    EXPECT_TRUE(BitEqual(tensor, *again)) << tensor.ToString() << " became " << again->ToString();
  };
  for (const Tensor& tensor : tensors) round_trip(tensor);
  for (const DType dtype :
       {DT_COMPLEX64, DT_COMPLEX128, DT_QINT8, DT_QUINT8, DT_QINT16, DT_QUINT16, DT_QINT32}) {
    Tensor tensor = Tensor::Allocate(dtype, {3}).value();
    std::memset(tensor.raw(), 0x41, tensor.bytes());
    round_trip(tensor);                // all are equal: one in a list
    tensor.data<uint8_t>()[1] = 0x42;  // as content
    round_trip(tensor);
  }
}

TEST_F(GraphDefTest, TensorsThatAreAllEqualAreShort) {
  TensorProto proto;
  const Tensor zeros = TensorFromProto([] {
                         TensorProto empty;
                         empty.set_dtype(pb::DT_FLOAT);
                         empty.mutable_tensor_shape()->add_dim()->set_size(100000);
                         return empty;
                       }())
                           .value();
  EXPECT_EQ(zeros.data<float>()[99999], 0.0f);
  TensorToProto(zeros, &proto);
  EXPECT_LT(proto.ByteSizeLong(), 64u);
}

TEST_F(GraphDefTest, AListThatIsTooShortGoesOnWithItsLastElement) {
  TensorProto proto;
  proto.set_dtype(pb::DT_HALF);
  proto.mutable_tensor_shape()->add_dim()->set_size(4);
  proto.add_half_val(half(1.0f).bits);
  proto.add_half_val(half(2.0f).bits);
  const Tensor tensor = TensorFromProto(proto).value();
  EXPECT_EQ(static_cast<float>(tensor.data<half>()[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(tensor.data<half>()[3]), 2.0f);
  TensorProto pairs;
  pairs.set_dtype(pb::DT_COMPLEX128);
  pairs.mutable_tensor_shape()->add_dim()->set_size(3);
  for (const double part : {1.0, 2.0, 3.0, -4.0}) pairs.add_dcomplex_val(part);
  EXPECT_EQ(TensorFromProto(pairs).value().ToString(), "complex128[3] = (1,2) (3,-4) (3,-4)");
}

TEST_F(GraphDefTest, CopiesOfALongTextAreBounded) {
  TensorProto proto;
  proto.set_dtype(pb::DT_STRING);
  proto.mutable_tensor_shape()->add_dim()->set_size(1 << 20);
  proto.add_string_val(std::string(1 << 20, 'x'));
  EXPECT_NE(TensorFromProto(proto).status().message().find("has only 1 elements in string_val"),
            std::string::npos);
}

TEST_F(GraphDefTest, AHintIsNotSoughtAmongLongNames) {
  const std::string name(1 << 17, 'a');
  EXPECT_NE(ErrorOf("node { name: '" + name +
                    "' op: 'NoOp' } node { name: 'x' op: 'NoOp' input: '^" + name.substr(1) + "' }")
                .find("is not in the graph"),
            std::string::npos);
}

TEST_F(GraphDefTest, TensorsThatLieAboutTheirSizeAreRefused) {
  const auto error = [](const std::string& text) {
    TensorProto proto;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto));
    const auto tensor = TensorFromProto(proto);
    return tensor.ok() ? "no error" : tensor.status().message();
  };
  EXPECT_NE(
      error("dtype: DT_FLOAT tensor_shape { dim { size: 4611686018427387904 } dim { size: 4 } }")
          .find("2^63"),
      std::string::npos);
  EXPECT_NE(error("dtype: DT_FLOAT tensor_shape { dim { size: 1099511627776 } } float_val: 1")
                .find("only 1 elements"),
            std::string::npos);
  EXPECT_NE(error("dtype: DT_FLOAT tensor_shape { dim { size: -1 } }").find("must be fully known"),
            std::string::npos);
  EXPECT_NE(error("dtype: DT_FLOAT tensor_shape { } float_val: 1 float_val: 2")
                .find("2 elements in float_val"),
            std::string::npos);
  EXPECT_NE(
      error("dtype: DT_STRING tensor_shape { } tensor_content: 'abc'").find("has tensor_content"),
      std::string::npos);
  EXPECT_NE(error("dtype: DT_INVALID tensor_shape { }").find("invalid are not supported"),
            std::string::npos);
}

constexpr char kCallGraph[] = R"(
  node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { dim { size: 2 } } } } }
  node { name: "call" op: "PartitionedCall" input: "a" input: "a" attr { key: "f" value { func { name: "outer" } } }
         attr { key: "Tin" value { list { type: DT_FLOAT type: DT_FLOAT } } }
         attr { key: "Tout" value { list { type: DT_FLOAT type: DT_FLOAT } } } }
  node { name: "old" op: "inner" input: "call:1" }
  library {
    function {
      signature { name: "outer" input_arg { name: "x" type: DT_FLOAT } input_arg { name: "y" type: DT_FLOAT }
                  output_arg { name: "sum" type: DT_FLOAT } output_arg { name: "same" type: DT_FLOAT } }
      node_def { name: "both" op: "IdentityN" input: "x" input: "y"
                 attr { key: "T" value { list { type: DT_FLOAT type: DT_FLOAT } } } }
      node_def { name: "inner_call" op: "PartitionedCall" input: "both:output:1" input: "^wait"
                 attr { key: "f" value { func { name: "inner" } } }
                 attr { key: "Tin" value { list { type: DT_FLOAT } } }
                 attr { key: "Tout" value { list { type: DT_FLOAT } } } }
      node_def { name: "wait" op: "NoOp" input: "^x" }
      ret { key: "sum" value: "inner_call:output:0" } ret { key: "same" value: "y" }
      arg_attr { key: 0 value { attr { key: "_output_shapes" value { list { shape { dim { size: 2 } } } } } } }
    }
    function {
      signature { name: "inner" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "x_out" type: DT_FLOAT } }
      node_def { name: "r" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
      ret { key: "x_out" value: "r:activations:0" }
    }
  })";

TEST_F(GraphDefTest, FunctionsAreReadWithTheirOwnNotation) {
  const auto graph = FromText(kCallGraph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->functions().all().size(), 2u);
  const Function* outer = graph->functions().Find("outer");
  ASSERT_NE(outer, nullptr);
  EXPECT_EQ(outer->args.size(), 2u);
  EXPECT_EQ(outer->results.size(), 2u);
  const Graph& body = *outer->body;
  EXPECT_EQ(body.shape({outer->args[0], 0}), (PartialShape{2}));
  const NodeId call = body.Find("inner_call");
  EXPECT_EQ(body.inputs(call)[0], (Endpoint{body.Find("both"), 1}));
  EXPECT_EQ(body.name(body.control_inputs(call)[0]), "wait");
  EXPECT_EQ(body.inputs(outer->results[1])[0], (Endpoint{outer->args[1], 0}));
  EXPECT_TRUE(graph->is(graph->Find("old"), "PartitionedCall"));
  EXPECT_EQ(graph->dtype({graph->Find("old"), 0}), DT_FLOAT);
}

TEST_F(GraphDefTest, FunctionsAreWrittenSoThatTheyComeBack) {
  const auto graph = FromText(kCallGraph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  GraphDef def;
  GraphToDef(*graph, &def);
  ASSERT_EQ(def.library().function_size(), 2);
  const auto& outer = def.library().function(1);
  EXPECT_EQ(outer.signature().name(), "outer");
  EXPECT_EQ(outer.signature().input_arg(1).name(), "y");
  EXPECT_EQ(outer.ret().at("sum"), "inner_call:output:0");
  EXPECT_EQ(outer.ret().at("same"), "y");
  EXPECT_EQ(outer.arg_attr().at(0).attr().at("_output_shapes").list().shape(0).dim(0).size(), 2);
  const auto again = GraphFromDef(def, &TestRegistry());
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(*graph, *again);
  ExpectSame(*graph->functions().Find("outer")->body, *again->functions().Find("outer")->body);
}

TEST_F(GraphDefTest, MistakesInFunctionsNameTheFunction) {
  const auto with = [](const std::string& function) {
    return "library { function { " + function + " } }";
  };
  EXPECT_NE(ErrorOf(with("signature { name: 'f' output_arg { name: 'y' type: DT_FLOAT } }"))
                .find("function 'f': result 'y' comes from nowhere"),
            std::string::npos);
  EXPECT_NE(ErrorOf(with("signature { name: 'f' } node_def { name: 'n' op: 'Relu' input: 'x' }"))
                .find("function 'f', node 'n' (Relu): input 'x' is not in the function"),
            std::string::npos);
  EXPECT_NE(ErrorOf(with("signature { name: 'f' input_arg { name: 'x' type: DT_FLOAT } output_arg "
                         "{ name: 'y' type: "
                         "DT_FLOAT } } node_def { name: 'n' op: 'Relu' input: 'x' } ret { key: 'y' "
                         "value: 'n:output:0' }"))
                .find("function 'f': result 'y': op Relu of node 'n' has no output 'output'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(with("signature { name: 'f' } } function { signature { name: 'f' }"))
                .find("function 'f' is in the library twice"),
            std::string::npos);
}

// "doubled" of any type calls "sum" of any type and number by its name; results are named.
constexpr char kAnyType[] = R"(
  library {
    function {
      signature { name: "doubled" input_arg { name: "x" type_attr: "T" }
        output_arg { name: "y" type_attr: "T" }
        attr { name: "T" type: "type"
               allowed_values { list { type: [DT_FLOAT, DT_DOUBLE] } } } }
      node_def { name: "twice" op: "sum" input: "x" input: "x"
        attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { i: 2 } } }
      ret { key: "y" value: "twice:all:0" }
    }
    function {
      signature { name: "sum" input_arg { name: "parts" type_attr: "T" number_attr: "N" }
        output_arg { name: "first" type_attr: "T" } output_arg { name: "all" type_attr: "T" }
        attr { name: "T" type: "type" }
        attr { name: "N" type: "int" has_minimum: true minimum: 1 } }
      node_def { name: "n" op: "AddN" input: "parts"
        attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "N" } } }
      ret { key: "first" value: "parts:0" } ret { key: "all" value: "n:sum:0" }
    }
  }
  node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } }
)";

TEST_F(GraphDefTest, AFunctionWithAttributesBecomesOneForEachSetOfValues) {
  const auto graph = FromText(std::string(kAnyType) + R"(
    node { name: "by_name" op: "doubled" input: "x" attr { key: "T" value { type: DT_DOUBLE } } }
    node { name: "by_node" op: "PartitionedCall" input: "x"
      attr { key: "f" value { func { name: "doubled"
        attr { key: "T" value { type: DT_DOUBLE } } } } }
      attr { key: "Tin" value { list { type: DT_DOUBLE } } }
      attr { key: "Tout" value { list { type: DT_DOUBLE } } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->functions().all().size(), 2u);
  const Function* const doubled = graph->functions().Find("doubled_T_double");
  const Function* const sum = graph->functions().Find("sum_T_double_N_2");
  ASSERT_TRUE(doubled != nullptr && sum != nullptr);
  for (const char* name : {"by_name", "by_node"})
    EXPECT_EQ(Callee(*graph, graph->Find(name), graph->functions()), doubled) << name;
  EXPECT_EQ(sum->args.size(), 2u);
  EXPECT_EQ(sum->body->dtype({sum->body->Find("n"), 0}), DT_DOUBLE);
  const Endpoint result = doubled->body->inputs(doubled->results[0])[0];
  EXPECT_EQ(result, (Endpoint{doubled->body->Find("twice"), 1}));
}

TEST_F(GraphDefTest, AFunctionWithAttributesNeedsTheirValues) {
  const auto call = [this](const std::string& op, const std::string& attrs) {
    return ErrorOf(kAnyType + ("node { name: 'n' op: '" + op + "' input: 'x' " + attrs + " }"));
  };
  EXPECT_EQ(call("doubled", ""),
            "INVALID_ARGUMENT: node 'n' (doubled) calls function 'doubled' without its attribute "
            "'T' (type)");
  EXPECT_EQ(call("doubled", "attr { key: 'T' value { i: 1 } }"),
            "INVALID_ARGUMENT: node 'n' (doubled) calls function 'doubled', whose attribute 'T' "
            "must be of kind type, but is of kind int");
  EXPECT_EQ(call("doubled", "attr { key: 'T' value { type: DT_INT32 } }"),
            "INVALID_ARGUMENT: node 'n' (doubled) calls function 'doubled', whose attribute 'T' "
            "has a value that the function does not allow");
  EXPECT_EQ(call("sum",
                 "attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'N' value { i: 0 "
                 "} }"),
            "INVALID_ARGUMENT: node 'n' (sum) calls function 'sum', whose attribute 'N' must "
            "be at least 1, but is 0");
  EXPECT_EQ(call("sum",
                 "attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'N' value { i: "
                 "70000 } }"),
            "INVALID_ARGUMENT: function 'sum': argument 'parts' is a list of 70000; it may have 0 "
            "to 65535 elements");
  EXPECT_EQ(ErrorOf("library { function { signature { name: 'f' attr { name: 'T' type: 'type' } } "
                    "node_def { name: 'm' op: 'NoOp' attr { key: '_mg_x' value { placeholder: 'U' "
                    "} } } } } node { name: 'n' op: 'f' attr { key: 'T' value { type: DT_FLOAT } "
                    "} }"),
            "INVALID_ARGUMENT: function 'f', node 'm' (NoOp): the function has no attribute 'U'");
}

TEST_F(GraphDefTest, FunctionsThatCallEachOtherWithEverNewValuesAreBounded) {
  const std::string error = ErrorOf(R"(
    library { function { signature { name: "f" attr { name: "g" type: "func" } }
      node_def { name: "n" op: "f" attr { key: "g" value { func { name: "f"
        attr { key: "g" value { placeholder: "g" } } } } } } } }
    node { name: "y" op: "f" attr { key: "g" value { func { name: "h" } } } })");
  EXPECT_NE(error.find("functions with attributes are called with more than 10000 sets of values"),
            std::string::npos)
      << error;
}

// Each node has a value of its own: the reader of plain nodes makes equal attributes once.
TEST_F(GraphDefTest, WhatShortFormsStandForIsBoundedForTheWholeGraph) {
  const auto with = [this](int nodes, uint64_t most) {
    std::string text = "versions { producer: 27 }";
    for (int i = 0; i < nodes; ++i) {
      text += "node { name: 'c" + std::to_string(i) +
              "' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' "
              "value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 25 } } float_val: " +
              std::to_string(i + 1) + " } } } }";
    }
    return ErrorOf(text, {.most_expanded_bytes = most});
  };
  EXPECT_EQ(with(2, 200), "no error");
  EXPECT_NE(with(2, 199).find("node 'c1' (Const): attribute 'value': a tensor of type float and "
                              "shape [25] has only 1 elements in float_val; at most 99 more bytes"),
            std::string::npos)
      << with(2, 199);
}

TEST_F(GraphDefTest, TensorFlowsOwnGraphsAreRead) {
  int graphs = 0;
  ASSERT_TRUE(std::filesystem::exists(MG_GOLDEN_GRAPHS));
  for (const auto& entry : std::filesystem::directory_iterator(MG_GOLDEN_GRAPHS)) {
    const std::string path = entry.path() / "graph.pb";
    if (!std::filesystem::exists(path)) continue;
    const auto graph = ReadGraph(path, &TestRegistry());
    GraphDef def;
    std::ifstream file(path, std::ios::binary);
    ASSERT_TRUE(def.ParseFromIstream(&file));
    ExpectTheSameFromBytes(def, GraphFromDef(def, &TestRegistry()));
    // This registry knows few ops, and some of those only roughly; an error must then be about a
    // node, or a loop, of which it does not know what closes it.
    if (!graph.ok()) {
      const std::string& error = graph.status().message();
      EXPECT_TRUE(error.find("node '") != std::string::npos ||
                  error.find("NextIteration") != std::string::npos)
          << graph.status();
      continue;
    }
    ++graphs;
    const auto again = ParseGraph(SerializeGraph(*graph), &TestRegistry());
    ASSERT_TRUE(again.ok()) << path << ": " << again.status();
    ExpectSame(*graph, *again);
  }
  EXPECT_GT(graphs, 5);
}

TEST_F(GraphDefTest, TheDrawingShowsNodesDevicesAndEdges) {
  const Graph graph = Sample();
  const std::string dot = GraphToDot(graph);
  EXPECT_TRUE(dot.starts_with("digraph monograph {"));
  EXPECT_NE(dot.find("label=\"/job:worker/task:1\""), std::string::npos);
  EXPECT_NE(dot.find("[label=\"layer/y\\nMatMul\"]"), std::string::npos);
  EXPECT_NE(dot.find("[label=\"float[?,3]\"]"), std::string::npos);
  EXPECT_NE(dot.find("[style=dashed]"), std::string::npos);
}

}  // namespace
}  // namespace monograph
