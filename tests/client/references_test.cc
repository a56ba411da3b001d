// Variables by reference in sessions: where they are placed, what feeds and fetches of them are,
// and how often they are read. What they compute: tests/golden/graphs/ref_*.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "client/registries.h"
#include "client/session.h"
#include "graph/gradients.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "graph/scope.h"
#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Node(const std::string& name, const std::string& op,
                 const std::vector<std::string>& inputs, const std::string& attrs) {
  std::string text = "node { name: '" + name + "' op: '" + op + "' ";
  for (const std::string& input : inputs) text += "input: '" + input + "' ";
  return text + attrs + " }\n";
}
std::string Type(const char* attr) {
  return std::string("attr { key: '") + attr + "' value { type: DT_FLOAT } } ";
}

// w, a variable of two elements, with its initializer `init` (1, 2), and `add`, which adds (10,
// 20).
std::string WithVariable(const std::string& device = "") {
  const auto constant = [](const char* name, const char* values) {
    return Node(name, "Const", {},
                Type("dtype") + "attr { key: 'value' value { tensor { dtype: DT_FLOAT " + values +
                    " tensor_shape { dim { size: 2 } } } } }");
  };
  return Node("w", "VariableV2", {},
              Type("dtype") +
                  "attr { key: 'shape' value { shape { dim { size: 2 } } } } device: '" + device +
                  "'") +
         constant("first", "float_val: 1 float_val: 2") +
         constant("more", "float_val: 10 float_val: 20") +
         Node("init", "Assign", {"w", "first"}, Type("T")) +
         Node("add", "AssignAdd", {"w", "more"}, Type("T"));
}

class ReferencesTest : public ::testing::Test {
 protected:
  void Load(const std::string& text, SessionOptions options = {}) {
    GraphDef def;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
    auto graph = GraphFromDef(def, &DefaultRegistries().ops);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = std::make_unique<Graph>(std::move(*graph));
    auto session = Session::Local(*graph_, std::move(options));
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(*session);
  }
  std::vector<float> Fetch(const std::string& name,
                           const std::vector<std::pair<std::string, Tensor>>& feeds = {}) {
    const auto values = session_->RunByName(feeds, {name});
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    const auto got = values->at(0).values<float>();
    return {got.begin(), got.end()};
  }
  // How many nodes of an op a step has.
  int Count(const char* op, const std::vector<std::string>& fetches,
            const std::vector<std::string>& targets = {}) {
    const auto parts = session_->PartitionsByName({}, fetches, targets);
    EXPECT_TRUE(parts.ok()) << parts.status();
    int count = 0;
    for (const auto& [task, graph] : *parts) {
      for (NodeId id = 0; id < graph.num_nodes(); ++id) count += graph.is(id, op);
    }
    return count;
  }

  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Session> session_;
};

TEST_F(ReferencesTest, AFetchOfAVariableIsItsValueAndThatOfAnUpdateTheValueAfterIt) {
  Load(WithVariable());
  const Status early = session_->RunByName({}, {"w:0"}).status();
  EXPECT_EQ(early.code(), Code::kFailedPrecondition);
  EXPECT_THAT(early.message(), HasSubstr("Attempting to use uninitialized value w"));
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("w:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("add:0"), ElementsAre(11, 22));
  EXPECT_THAT(Fetch("w"), ElementsAre(11, 22));
}

TEST_F(ReferencesTest, AFedVariableIsAValueThatCannotBeChanged) {
  Load(WithVariable() + Node("twice", "AddV2", {"w", "w"}, Type("T")));
  const Tensor value = Tensor::FromValues<float>({2}, {3, 4});
  EXPECT_THAT(Fetch("twice", {{"w:0", value}}), ElementsAre(6, 8));
  const Status both = session_->RunByName({{"w:0", value}}, {"add:0"}).status();
  EXPECT_EQ(both.code(), Code::kInvalidArgument);
  EXPECT_THAT(both.message(),
              HasSubstr("'add' (AssignAdd): Input 0 was passed float from w:0 incompatible with "
                        "expected float_ref."));
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("add:0", {{"add:0", value}}), ElementsAre(3, 4));
  EXPECT_THAT(Fetch("twice"), ElementsAre(2, 4)) << "add has not run";
}

TEST_F(ReferencesTest, TheLogHasTheUsersNodesAndAnUpdateIsWhereItsVariableIs) {
  std::string log;
  Load(WithVariable("/device:CPU:1"),
       {.log_device_placement = PlacementLog::kFull,
        .placement_sink = [&log](const std::string& text) { log += text; },
        .device_count = {{kCpu, 2}}});
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  const std::string cpu1 = "/job:localhost/replica:0/task:0/device:CPU:1";
  for (const char* node : {"w: (VariableV2): ", "init: (Assign): ", "add: (AssignAdd): "})
    EXPECT_THAT(log, HasSubstr(node + cpu1));
}

TEST_F(ReferencesTest, WithoutUpdatesInTheStepAllReadersShareOneRead) {
  Load(WithVariable() + Node("read", "Identity", {"w"}, Type("T")) +
       Node("sum", "AddV2", {"w", "more"}, Type("T")) +
       Node("product", "Mul", {"w", "sum"}, Type("T")));
  EXPECT_EQ(Count("ReadVariableOp", {"product:0"}), 1);
  EXPECT_EQ(Count("Identity", {"read:0"}), 0) << "an Identity is the read itself";
  EXPECT_EQ(Count("ReadVariableOp", {"product:0"}, {"add"}), 1);
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("product:0"), ElementsAre(11, 44));
}

TEST_F(ReferencesTest, ADebugIdentityOfAReferenceIsTheVariable) {
  Load(WithVariable() + Node("debug", "DebugGradientRefIdentity", {"w"}, Type("T")) +
       Node("through", "AssignAdd", {"debug", "more"}, Type("T")));
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("through:0"), ElementsAre(11, 22));
  EXPECT_THAT(Fetch("debug:0"), ElementsAre(11, 22));
}

TEST_F(ReferencesTest, AReaderSeesWhatItWaitsFor) {
  Load(WithVariable() + Node("after", "Neg", {"w", "^add"}, Type("T")) +
       Node("behind", "AddV2", {"w", "add"}, Type("T")) +
       Node("read", "Identity", {"w"}, Type("T")) +
       Node("read_behind", "Neg", {"read", "^add"}, Type("T")));
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  EXPECT_THAT(Fetch("after:0"), ElementsAre(-11, -22));
  EXPECT_THAT(Fetch("behind:0"), ElementsAre(42, 84));
  EXPECT_THAT(Fetch("read_behind:0"), ElementsAre(-31, -62));
  const auto beside = session_->RunByName({}, {"w:0", "read:0"}, {"add"});
  ASSERT_TRUE(beside.ok()) << beside.status();
  for (const Tensor& value : *beside) EXPECT_THAT(value.values<float>(), ElementsAre(41, 82));
}

// `clip` assigns w the smaller of its value and (15, 15); `twice` adds to w what it was when the
// step began, after a long way.
std::string WithClip() {
  std::string text = WithVariable() +
                     Node("most", "Const", {},
                          Type("dtype") +
                              "attr { key: 'value' value { tensor { dtype: DT_FLOAT float_val: 15 "
                              "tensor_shape { dim { size: 2 } } } } }") +
                     Node("less", "Minimum", {"w", "most"}, Type("T")) +
                     Node("clip", "Assign", {"w", "less"}, Type("T")) +
                     Node("way0", "Identity", {"w"}, Type("T"));
  constexpr int kLength = 50;
  for (int i = 0; i < kLength; ++i)
    text += Node("way" + std::to_string(i + 1), "Neg", {"way" + std::to_string(i)}, Type("T"));
  return text + Node("twice", "AssignAdd", {"w", "way" + std::to_string(kLength)}, Type("T"));
}

TEST_F(ReferencesTest, AnUpdateIsNotLostInAnAssignmentOfWhatWasReadBeforeIt) {
  Load(WithClip());
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  for (const auto& [first, second] : {std::pair(2, 4), {4, 8}, {8, 16}, {16, 15 + 16}}) {
    ASSERT_TRUE(session_->RunByName({}, {}, {"twice", "clip"}).ok());
    EXPECT_THAT(Fetch("w:0"), ElementsAre(first, second));
  }
}

TEST_F(ReferencesTest, AnAssignmentThatWaitsForTheUpdateComesAfterIt) {
  Load(WithClip() + Node("late", "Assign", {"w", "less", "^add"}, Type("T")));
  EXPECT_THAT(Fetch("init:0"), ElementsAre(1, 2));
  ASSERT_TRUE(session_->RunByName({}, {}, {"add", "late"}).ok());
  EXPECT_THAT(Fetch("w:0"), ElementsAre(1, 2)) << "what it assigns was read before";
}

// q, a queue of the first kind, of floats; put, which takes `x`, and get.
std::string WithQueue(const std::string& device = "") {
  const std::string types = "{ list { type: DT_FLOAT } } }";
  return Node("q", "FIFOQueue", {},
              "attr { key: 'component_types' value " + types + " device: '" + device + "'") +
         Node("x", "Const", {},
              Type("dtype") +
                  "attr { key: 'value' value { tensor { dtype: DT_FLOAT float_val: 5 "
                  "tensor_shape { } } } }") +
         Node("put", "QueueEnqueue", {"q", "x"}, "attr { key: 'Tcomponents' value " + types) +
         Node("get", "QueueDequeue", {"q"}, "attr { key: 'component_types' value " + types);
}

TEST_F(ReferencesTest, WhatWorksOnAQueueOfTheFirstKindIsWhereTheQueueIs) {
  std::string log;
  Load(WithQueue("/device:CPU:1"),
       {.log_device_placement = PlacementLog::kFull,
        .placement_sink = [&log](const std::string& text) { log += text; },
        .device_count = {{kCpu, 2}}});
  EXPECT_TRUE(session_->RunByName({}, {}, {"put"}).ok());
  EXPECT_THAT(Fetch("get:0"), ElementsAre(5));
  const std::string cpu1 = "/job:localhost/replica:0/task:0/device:CPU:1";
  for (const char* node : {"q: (FIFOQueue): ", "put: (QueueEnqueue): ", "get: (QueueDequeue): "})
    EXPECT_THAT(log, HasSubstr(node + cpu1));
}

TEST_F(ReferencesTest, AHandleByReferenceReadsAsItsContainerAndName) {
  const std::string string_type = "attr { key: 'T' value { type: DT_STRING } }";
  const std::string two = string_type + " attr { key: 'N' value { i: 2 } }";
  const std::string named =
      "attr { key: 'component_types' value { list { type: DT_FLOAT } } } "
      "attr { key: 'container' value { s: 'box' } } attr { key: 'shared_name' value { s: 'it' } }";
  Load(WithQueue() + Node("other", "FIFOQueue", {}, named) +
       Node("copy", "Identity", {"q"}, string_type) +
       Node("either", "RefMerge", {"other", "other"}, two) +
       Node("both", "Pack", {"q", "either"}, two));
  const auto values = session_->RunByName({}, {"q:0", "copy:0", "both:0"}, {"put"});
  ASSERT_TRUE(values.ok()) << values.status();
  for (const size_t i : {0, 1})
    EXPECT_THAT(values->at(i).values<std::string>(), ElementsAre("localhost", "q"));
  EXPECT_EQ(values->at(2).shape(), Shape({2, 2}));
  EXPECT_EQ(Count("_HandleStrings", {"copy:0"}), 1);
  EXPECT_THAT(values->at(2).values<std::string>(), ElementsAre("localhost", "q", "box", "it"));
  EXPECT_THAT(Fetch("get:0"), ElementsAre(5));
}

TEST_F(ReferencesTest, AHandleIsNeitherAStringNorAVariableNorAResource) {
  const std::string text = "attr { key: 'dtype' value { type: DT_STRING } } ";
  const std::string two = "{ dim { size: 2 } } } }";
  Load(WithQueue() +
       Node("words", "Const", {},
            text +
                "attr { key: 'value' value { tensor { dtype: DT_STRING string_val: 'a' "
                "tensor_shape " +
                two + " }") +
       Node("w", "VariableV2", {}, text + "attr { key: 'shape' value { shape " + two) +
       Node("of_words", "QueueSize", {"words"}, "") + Node("of_w", "QueueSize", {"w"}, "") +
       Node("init", "Assign", {"q", "words"}, "attr { key: 'T' value { type: DT_STRING } }") +
       Node("table", "LookupTableSize", {"q"}, ""));
  const Status words = session_->RunByName({}, {"of_words:0"}).status();
  EXPECT_EQ(words.code(), Code::kInvalidArgument);
  EXPECT_THAT(words.message(), HasSubstr("Input 0 was passed string from words:0 incompatible "
                                         "with expected string_ref."));
  EXPECT_TRUE(session_->RunByName({}, {}, {"put"}).ok());
  for (const char* name : {"of_w:0", "table:0", "init:0"})
    EXPECT_FALSE(session_->RunByName({}, {name}).ok()) << name;
  EXPECT_THAT(Fetch("get:0"), ElementsAre(5));
}

TEST(ReferencesInGraphs, HandlesOfTheTwoKindsAreNotMixed) {
  const auto load = [](const std::string& text) {
    GraphDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
    return GraphFromDef(def, &DefaultRegistries().ops).status();
  };
  EXPECT_TRUE(load(WithQueue()).ok());
  const std::string types = "attr { key: 'component_types' value { list { type: DT_FLOAT } } }";
  EXPECT_FALSE(load(WithQueue() + Node("n", "QueueSizeV2", {"q"}, "")).ok());
  EXPECT_FALSE(load(Node("q", "FIFOQueueV2", {}, types) + Node("n", "QueueSize", {"q"}, "")).ok());
  const std::string text = "attr { key: 'dtype' value { type: DT_STRING } } ";
  const Status three =
      load(Node("w", "VariableV2", {},
                text + "attr { key: 'shape' value { shape { dim { size: 3 } } } }") +
           Node("n", "QueueSize", {"w"}, ""));
  EXPECT_EQ(three.code(), Code::kInvalidArgument);
  EXPECT_THAT(three.message(), HasSubstr("the handle handle must have shape [2], not [3]"));
}

TEST_F(ReferencesTest, AReaderOfTheFirstKindReadsFilesOfAQueueAndATableItsLines) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("lines", "one\ntwo\n");
  const std::string strings = "{ list { type: DT_STRING } } }";
  const auto type = [](const char* attr, const char* dtype) {
    return std::string("attr { key: '") + attr + "' value { type: " + dtype + " } } ";
  };
  const auto number = [](const char* attr, int value) {
    return std::string("attr { key: '") + attr + "' value { i: " + std::to_string(value) + " } } ";
  };
  const auto constant = [&](const std::string& name, const std::string& value) {
    return Node(name, "Const", {},
                type("dtype", "DT_STRING") +
                    "attr { key: 'value' value { tensor { dtype: "
                    "DT_STRING string_val: '" +
                    value + "' tensor_shape { } } } }");
  };
  Load(Node("q", "FIFOQueue", {}, "attr { key: 'component_types' value " + strings) +
       constant("path", path) + constant("word", "two") +
       Node("put", "QueueEnqueue", {"q", "path"}, "attr { key: 'Tcomponents' value " + strings) +
       Node("reader", "TextLineReader", {}, "") + Node("read", "ReaderRead", {"reader", "q"}, "") +
       Node("count", "ReaderNumRecordsProduced", {"reader"}, "") +
       Node("table", "HashTable", {},
            type("key_dtype", "DT_STRING") + type("value_dtype", "DT_INT64")) +
       Node("fill", "InitializeTableFromTextFile", {"table", "path"},
            number("key_index", -2) + number("value_index", -1)) +
       Node("none", "Const", {},
            type("dtype", "DT_INT64") + "attr { key: 'value' value { tensor { dtype: DT_INT64 "
                                        "int64_val: -1 tensor_shape { } } } }") +
       Node("find", "LookupTableFind", {"table", "word", "none"},
            type("Tin", "DT_STRING") + type("Tout", "DT_INT64")));
  EXPECT_TRUE(session_->RunByName({}, {}, {"put", "fill"}).ok());
  for (const char* line : {"one", "two"}) {
    const auto read = session_->RunByName({}, {"read:0", "read:1"});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT((*read)[0].strings()[0], HasSubstr("lines:"));
    EXPECT_EQ((*read)[1].strings()[0], line);
  }
  const auto found = session_->RunByName({}, {"count:0", "find:0"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT((*found)[0].values<int64_t>(), ElementsAre(2));
  EXPECT_THAT((*found)[1].values<int64_t>(), ElementsAre(1));
}

std::string TypeOf(const char* attr, const char* dtype) {
  return std::string("attr { key: '") + attr + "' value { type: " + dtype + " } } ";
}
std::string Flag(const char* attr, bool value) {
  return std::string("attr { key: '") + attr + "' value { b: " + (value ? "true" : "false") +
         " } }";
}
std::string Constant(const char* name, const std::string& dtype, const std::string& values,
                     const std::string& dims = "") {
  return Node(name, "Const", {},
              TypeOf("dtype", dtype.c_str()) + "attr { key: 'value' value { tensor { dtype: " +
                  dtype + " " + values + " tensor_shape { " + dims + " } } } }");
}

// Arrays of the first version of TensorFlow's ops (`v` is "") or of the second ("V2").
std::string WithArrays(const std::string& v) {
  const std::string ref = v.empty() ? "Ref" : "";
  const std::string f = TypeOf("dtype", "DT_FLOAT"), t = TypeOf("T", "DT_FLOAT");
  const std::string strings = TypeOf("T", "DT_STRING"), ints = TypeOf("T", "DT_INT32");
  const auto array = [&](const char* name, const char* size, bool clear) {
    return Node(name, "TensorArray" + v, {size}, f + Flag("clear_after_read", clear));
  };
  const auto op = [&](const char* name, const std::string& what,
                      const std::vector<std::string>& inputs, const std::string& attrs) {
    return Node(name, "TensorArray" + what + v, inputs, attrs);
  };
  const auto source = [](const char* text) {
    return std::string("attr { key: 'source' value { s: '") + text + "' } }";
  };
  const std::string frame = "attr { key: 'frame_name' value { s: 'loop' } } ";
  const auto enter = [&](const char* name, const char* what, const std::string& type,
                         bool constant) {
    const std::string by = type == strings ? ref : "";
    return Node(name, by + "Enter", {what}, type + frame + Flag("is_constant", constant));
  };
  std::string text =
      Node("x", "Placeholder", {},
           f + "attr { key: 'shape' value { shape { dim { size: 3 } dim { size: 2 } } } }") +
      Constant("zero", "DT_FLOAT", "float_val: 0") + Constant("n", "DT_INT32", "int_val: 3") +
      Constant("two", "DT_INT32", "int_val: 2") + Constant("i0", "DT_INT32", "int_val: 0") +
      Constant("i1", "DT_INT32", "int_val: 1") +
      Constant("row", "DT_FLOAT", "float_val: 7 float_val: 8", "dim { size: 2 }") +
      Constant("indices", "DT_INT32", "int_val: 2 int_val: 0 int_val: 1", "dim { size: 3 }") +
      Constant("lengths", "DT_INT64", "int64_val: 1 int64_val: 2", "dim { size: 2 }") +
      // Rows of x in another order, and what is read of them.
      array("rows", "n", false) + op("rows/in", "Scatter", {"rows", "indices", "x", "zero"}, t) +
      op("read", "Read", {"rows", "i1", "rows/in"}, f) +
      op("gathered", "Gather", {"rows", "indices", "rows/in"}, f) +
      op("size", "Size", {"rows", "rows/in"}, "") +
      // Gradients, under the handle and under a copy of it.
      op("grad", "Grad", {"rows", "rows/in"}, source("gradients")) +
      op("grad/in", "Write", {"grad", "i0", "row", "zero"}, t) +
      op("grad/more", "Write", {"grad", "i0", "row", "grad/in"}, t) +
      op("grad/read", "Read", {"grad", "i0", "grad/more"}, f) +
      Node("copy", "Identity", {"rows"}, strings) +
      op("copy/grad", "Grad", {"copy", "rows/in"}, source("other")) +
      op("copy/read", "Read", {"copy/grad", "i0", "rows/in"}, f) + array("parts", "two", true) +
      op("parts/in", "Split", {"parts", "x", "lengths", "zero"}, t) +
      op("joined", "Concat", {"parts", "parts/in"}, f) +
      op("close", "Close", {"parts", "^joined"}, "");
  // sum += rows[i], with the handle from outside the loop.
  text += enter("loop/i", "i0", ints, false) + enter("loop/sum", "row", t, false) +
          enter("loop/n", "n", ints, true) + enter("loop/one", "i1", ints, true) +
          enter("loop/rows", "rows", strings, true) + enter("loop/flow", "rows/in", t, true) +
          Node("i", "Merge", {"loop/i", "i/next"}, ints + "attr { key: 'N' value { i: 2 } }") +
          Node("sum", "Merge", {"loop/sum", "sum/next"}, t + "attr { key: 'N' value { i: 2 } }") +
          Node("less", "Less", {"i", "loop/n"}, ints) + Node("go_on", "LoopCond", {"less"}, "") +
          Node("i/switch", "Switch", {"i", "go_on"}, ints) +
          Node("sum/switch", "Switch", {"sum", "go_on"}, t) +
          Node("i/body", "Identity", {"i/switch:1"}, ints) +
          op("sum/read", "Read", {"loop/rows", "i/body", "loop/flow"}, f) +
          Node("sum/add", "Add", {"sum/switch:1", "sum/read"}, t) +
          Node("i/add", "Add", {"i/body", "loop/one"}, ints) +
          Node("i/next", "NextIteration", {"i/add"}, ints) +
          Node("sum/next", "NextIteration", {"sum/add"}, t) +
          Node("summed", "Exit", {"sum/switch"}, t);
  if (!v.empty()) return text;
  return text + array("all", "n", true) + op("all/in", "Unpack", {"all", "x", "zero"}, t) +
         op("all/size", "Size", {"all", "all/in"}, "") +
         op("packed", "Pack", {"all", "all/in"}, f) + array("few", "two", true) +
         op("few/in", "Unpack", {"few", "x", "zero"}, t);
}

TEST_F(ReferencesTest, TensorArraysOfTheFirstTwoVersionsAreThoseOfTheThird) {
  const Tensor x = Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  for (const std::string v : {"", "V2"}) {
    SCOPED_TRACE(v);
    Load(WithArrays(v));
    const auto fetch = [&](const char* name) { return Fetch(name, {{"x:0", x}}); };
    EXPECT_THAT(fetch("read:0"), ElementsAre(5, 6));
    EXPECT_THAT(fetch("gathered:0"), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(fetch("grad/read:0"), ElementsAre(14, 16));
    EXPECT_THAT(fetch("copy/read:0"), ElementsAre(0, 0));
    EXPECT_THAT(fetch("joined:0"), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(fetch("summed:0"), ElementsAre(16, 20));
    const auto counts = session_->RunByName({{"x:0", x}}, {"size:0", "joined:1"}, {"close"});
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->at(0).scalar<int32_t>(), 3);
    EXPECT_THAT(counts->at(1).values<int64_t>(), ElementsAre(1, 2));
    EXPECT_EQ(graph_->op(graph_->Find("rows")).name(), "TensorArrayV3");
    if (!v.empty()) continue;
    EXPECT_TRUE(graph_->is(graph_->Find("packed"), "TensorArrayPack"));
    EXPECT_TRUE(graph_->is(graph_->Find("all/in"), "TensorArrayUnpack"));
    EXPECT_THAT(fetch("packed:0"), ElementsAre(1, 2, 3, 4, 5, 6));
    const Status few = session_->RunByName({{"x:0", x}}, {}, {"few/in"}).status();
    EXPECT_EQ(few.code(), Code::kInvalidArgument);
    EXPECT_THAT(few.message(), HasSubstr("TensorArray's size is not equal to the size of "
                                         "tensor_value (2 vs. 3), and the TensorArray is not "
                                         "marked as dynamically resizeable"));
  }
}

TEST_F(ReferencesTest, GradientsFlowThroughTensorArraysOfTheFirstVersion) {
  Load(WithArrays(""));
  const auto at = [&](const char* name) { return Output{graph_.get(), {graph_->Find(name), 0}}; };
  const Scope root(graph_.get());
  const auto packed = AddGradients(root, {{at("packed")}}, {{at("x")}});
  const auto summed = AddGradients(root, {{at("summed")}}, {{at("x")}});
  ASSERT_TRUE(packed.ok() && summed.ok()) << packed.status() << summed.status();
  session_ = Session::Local(*graph_).value();
  const Tensor x = Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto values = session_->Run({{at("x"), x}}, {packed->at(0), summed->at(0)});
  ASSERT_TRUE(values.ok()) << values.status();
  for (const Tensor& value : *values)
    EXPECT_THAT(value.values<float>(), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(ReferencesInGraphs, AHandleOfAnArrayIsNoText) {
  GraphDef def;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      WithArrays("V2") +
          Node("joined_text", "StringJoin", {"rows"}, "attr { key: 'N' value { i: 1 } }"),
      &def));
  const Status status = GraphFromDef(def, &DefaultRegistries().ops).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("input 0 ('inputs') must be string, but is resource"));
}

}  // namespace
}  // namespace monograph
