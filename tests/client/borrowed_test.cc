// Ops that we lack run by TensorFlow's kernels (executor/borrowed.h). Needs a TensorFlow: the
// environment's MONOGRAPH_TENSORFLOW names a Python interpreter that has one.
#include "executor/borrowed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "client/registries.h"
#include "executor/resource_manager.h"
#include "executor/tensorflow/library.h"
#include "executor/tensorflow/tensors.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "tests/client/session_fixture.h"
#include "tests/temporary_folder.h"
#include "tools/op_table.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class BorrowedTest : public LocalSessionTest {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "AddressSanitizer refuses the way in which it is opened";
    const char* const python = std::getenv("MONOGRAPH_TENSORFLOW");
    if (python == nullptr || *python == '\0')
      GTEST_SKIP() << "MONOGRAPH_TENSORFLOW names no interpreter that has TensorFlow";
    ASSERT_TRUE(TensorFlowVersion().ok()) << TensorFlowVersion().status();
  }

  // A session of a GraphDef in text.
  std::unique_ptr<Session> Read(const std::string& text, SessionOptions options = {}) {
    read_.push_back(std::make_unique<Graph>(
        ReadGraph(folder_.Write("graph.pbtxt", text), &DefaultRegistries().ops).value()));
    return Session::Local(*read_.back(), std::move(options)).value();
  }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Graph>> read_;
};

TEST_F(BorrowedTest, AnOpThatWeLackGivesTensorFlowsNumbers) {
  const Output x = Placeholder(root_, DT_FLOAT, {2, -1});
  const Output y = OpBuilder(root_, "Dawsn").Input(x).BuildOutput();
  ASSERT_TRUE(root_.ok()) << root_.status();
  EXPECT_EQ(y.shape().ToString(), "[2,?]");
  const Tensor fed = Tensor::FromValues<float>({2, 2}, {0, 0.5f, 1, 2});
  for (int step = 0; step < 3; ++step) {
    const auto fetched = session().Run({{x, fed}}, {y, Add(root_, y, y)});
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    const auto values = (*fetched)[0].values<float>();
    EXPECT_FLOAT_EQ(values[0], 0);
    EXPECT_FLOAT_EQ(values[1], 0.42443638f);
    EXPECT_FLOAT_EQ(values[2], 0.53807951f);
    EXPECT_FLOAT_EQ(values[3], 0.30134039f);
    EXPECT_FLOAT_EQ((*fetched)[1].data<float>()[3], 2 * 0.30134039f);
  }
}

TEST_F(BorrowedTest, StringsCrossInBothDirections) {
  const Output in = Placeholder(root_, DT_STRING, {-1});
  const Output out = OpBuilder(root_, "StringUpper").Input(in).BuildOutput();
  Tensor fed = Tensor::Allocate(DT_STRING, Shape{3}).value();
  fed.strings()[0] = "short";
  fed.strings()[1] = std::string(1000, 'a');
  const auto fetched = session().Run({{in, fed}}, {out});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ((*fetched)[0].strings()[0], "SHORT");
  EXPECT_EQ((*fetched)[0].strings()[1], std::string(1000, 'A'));
  EXPECT_EQ((*fetched)[0].strings()[2], "");
}

TEST_F(BorrowedTest, WhatCanNeverFitIsRefusedWhereTheGraphIsBuilt) {
  const Output x = Placeholder(root_, DT_FLOAT, {2, 3});
  OpBuilder(root_.WithOpName("bad"), "Lu").Input(x).Build();
  EXPECT_EQ(root_.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(root_.status().message(), HasSubstr("node 'bad' (Lu)"));
  EXPECT_THAT(root_.status().message(), HasSubstr("Dimensions must be equal"));
}

TEST_F(BorrowedTest, AKernelsFailureNamesTheNode) {
  const Output y = OpBuilder(root_.WithOpName("picture"), "DecodeGif")
                       .Input(Placeholder(root_.WithOpName("bytes"), DT_STRING, {}))
                       .BuildOutput();
  const Status status =
      session().RunByName({{"bytes", Tensor::String("no picture")}}, {y.name()}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'picture' (DecodeGif (borrowed))"));
  EXPECT_THAT(status.message(), HasSubstr("GIF"));
}

// Where the library has the values of a tensor.
const void* DataOf(const tensorflow::Library& library, tensorflow::TFE_TensorHandle* handle) {
  tensorflow::TF_Status* const status = library->TF_NewStatus();
  tensorflow::TF_Tensor* const tensor = library->TFE_TensorHandleResolve(handle, status);
  EXPECT_TRUE(library.StatusOf(status).ok()) << library.StatusOf(status);
  library->TF_DeleteStatus(status);
  const void* const data = library->TF_TensorData(tensor);
  library->TF_DeleteTensor(tensor);
  return data;
}

TEST_F(BorrowedTest, TensorsCrossWithoutACopyUnlessTheyAreNotAligned) {
  const auto opened = tensorflow::Library::Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  const tensorflow::Library& library = **opened;
  const ResourceManager resources;
  Tensor whole = Tensor::Allocate(DT_FLOAT, Shape{1025}).value();
  for (int i = 0; i < 1025; ++i) whole.data<float>()[i] = static_cast<float>(i);
  for (const int skipped : {0, 1}) {
    float* const at = whole.data<float>() + skipped;
    const Tensor part(DT_FLOAT, Shape{1024},
                      Buffer::Wrap(at, 1024 * sizeof *at, [whole]() mutable { whole = Tensor(); }));
    const auto in = tensorflow::InputHandle::Make(library, part, resources);
    ASSERT_TRUE(in.ok()) << in.status();
    const void* const there = DataOf(library, in->get());
    EXPECT_EQ(there == at, skipped == 0);
    EXPECT_EQ(std::memcmp(there, at, 1024 * sizeof *at), 0);
    // Out of the library.
    tensorflow::TF_Status* const status = library->TF_NewStatus();
    tensorflow::TFE_Op* const op = library->TFE_NewOp(library.context(), "Dawsn", status);
    library->TFE_OpAddInput(op, in->get(), status);
    tensorflow::TFE_TensorHandle* out = nullptr;
    int count = 1;
    library->TFE_Execute(op, &out, &count, status);
    library->TFE_DeleteOp(op);
    ASSERT_TRUE(library.StatusOf(status).ok()) << library.StatusOf(status);
    library->TF_DeleteStatus(status);
    const void* const made = DataOf(library, out);
    const auto tensor = tensorflow::TensorOf(library, out, DT_FLOAT);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->raw(), made);
  }
}

TEST_F(BorrowedTest, TheTableOfOpsHasTheTypesOfTensorFlowsKernels) {
  const std::string table = OpTable();
  EXPECT_THAT(table, HasSubstr("| Dawsn | T: float double | CPU | no | borrowed |\n"));
  EXPECT_THAT(table, HasSubstr("| Cholesky | T: float double complex | CPU | no | "
                               "borrowed |\n"));
  EXPECT_THAT(table, HasSubstr("| BatchCholesky |  | none |  | neither: TensorFlow's kernel "));
}

// The file is TensorFlow 1.15's list; docs/borrowed_ops.md gives a reason for what is left out.
TEST_F(BorrowedTest, WhatTensorFlow115KnowsIsOursOrBorrowedOrHasAReason) {
  std::ifstream list(MG_TENSORFLOW_OPS), document(MG_BORROWED_OPS);
  std::stringstream text;
  text << document.rdbuf();
  const std::string reasons = text.str().substr(text.str().find("## What neither has"));
  std::set<std::string> rows;  // of what is ours or borrowed
  std::istringstream table(OpTable());
  for (std::string line; std::getline(table, line);) {
    if (!line.ends_with("| ours |") && !line.ends_with("| borrowed |")) continue;
    const size_t op = line.find("| ", 1) + 2;
    rows.insert(line.substr(op, line.find(" |", op) - op));
  }
  int count = 0;
  for (std::string op; std::getline(list, op); ++count) {
    const bool has_reason = reasons.find("`" + op + "`") != std::string::npos;
    EXPECT_NE(rows.contains(op), has_reason) << op;
    EXPECT_EQ(DefaultRegistries().ops.Find(op) == nullptr, has_reason) << op;
  }
  EXPECT_EQ(count, 1248);
}

// They have a kernel for CPUs, which fails.
TEST_F(BorrowedTest, AKernelThatCannotComputeHereIsNotBorrowed) {
  const auto refused = RefusedOps();
  for (const auto& [op, why] : {std::pair("BatchCholesky", "GraphDefs of today"),
                                std::pair("StatefulUniform", "it works on a variable"),
                                std::pair("XlaReplicaId", "XLA compiles")}) {
    EXPECT_EQ(DefaultRegistries().ops.Find(op), nullptr) << op;
    ASSERT_TRUE(refused.contains(op)) << op;
    EXPECT_THAT(refused.find(op)->second, HasSubstr(why)) << op;
  }
}

TEST_F(BorrowedTest, NoBorrowedOpIsFolded) {
  const Output y = OpBuilder(root_, "Dawsn").Input(Const(root_, 4.0f)).BuildOutput();
  const auto parts = session().PartitionsByName({}, {y.name()}, {});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_GE((*parts)[0].second.Find("Dawsn"), 0);
}

TEST_F(BorrowedTest, ThePlacementLogAndTracesTellWhatIsBorrowed) {
  const Output y = OpBuilder(root_, "Dawsn").Input(Const(root_, 4.0f)).BuildOutput();
  std::string placement;
  Session& of = session({.log_device_placement = PlacementLog::kFull,
                         .placement_sink = [&](const std::string& text) { placement = text; }});
  RunMetadata metadata;
  const auto fetched = of.Run({}, {y}, {}, {.trace = true}, &metadata);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_THAT(placement, HasSubstr("Dawsn: (Dawsn): /job:localhost/replica:0/task:0/device:CPU:0 "
                                   "(borrowed)\n"));
  EXPECT_THAT(metadata.trace_json, HasSubstr("\"op\":\"Dawsn (borrowed)\""));
}

TEST_F(BorrowedTest, ACrashNamesTheNode) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        tensorflow::NameRunningInCrashes();
        const tensorflow::Running running("node 'x' (Lgamma)");
        std::raise(SIGSEGV);
      },
      "crashes while TensorFlow's library computes node 'x' \\(Lgamma\\)");
}

// Bounds are loose: the machine may be busy. Alone it takes about 3 us.
TEST_F(BorrowedTest, ACallCostsMicroseconds) {
  constexpr int kCalls = 500;
  const Output x = Placeholder(root_, DT_FLOAT, {4});
  Output y = x;
  for (int i = 0; i < kCalls; ++i) y = OpBuilder(root_, "Dawsn").Input(y).BuildOutput();
  double best = 1e9;
  for (int step = 0; step < 50; ++step) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(session().Run({{x, Tensor::Vector<float>({1, 2, 3, 4})}}, {y}).ok());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / kCalls);
  }
  RecordProperty("microseconds", std::to_string(best));
  EXPECT_LT(best, 20);
}

constexpr char kTable[] = R"(
node { name: "keys" op: "Const" attr { key: "dtype" value { type: DT_STRING } } attr { key: "value" value {
  tensor { dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: "one" string_val: "two" } } } }
node { name: "values" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { dim { size: 2 } } int64_val: 1 int64_val: 2 } } } }
node { name: "table" op: "HashTableV2" attr { key: "key_dtype" value { type: DT_STRING } }
  attr { key: "value_dtype" value { type: DT_INT64 } } attr { key: "container" value { s: "CONTAINER" } } }
node { name: "fill" op: "LookupTableImportV2" input: "table" input: "keys" input: "values"
  attr { key: "Tin" value { type: DT_STRING } } attr { key: "Tout" value { type: DT_INT64 } } }
node { name: "words" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }
node { name: "default" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: -1 } } } }
node { name: "found" op: "LookupTableFindV2" input: "table" input: "words" input: "default"
  attr { key: "Tin" value { type: DT_STRING } } attr { key: "Tout" value { type: DT_INT64 } } }
versions { producer: 134 }
)";

TEST_F(BorrowedTest, ATableLivesFromStepToStep) {
  const auto session = Read(kTable);
  Tensor words = Tensor::Allocate(DT_STRING, Shape{2}).value();
  words.strings()[0] = "two";
  words.strings()[1] = "three";
  EXPECT_EQ(session->RunByName({{"words", words}}, {"found"}, {}).status().code(),
            Code::kFailedPrecondition);
  const auto filled = session->RunByName({}, {}, {"fill"});
  ASSERT_TRUE(filled.ok()) << filled.status();
  for (int step = 0; step < 2; ++step) {
    const auto found = session->RunByName({{"words", words}}, {"found"}, {});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT((*found)[0].values<int64_t>(), ElementsAre(2, -1));
  }
  // Another session, which is another task here, has a table of its own.
  EXPECT_EQ(Read(kTable)->RunByName({{"words", words}}, {"found"}, {}).status().code(),
            Code::kFailedPrecondition);
}

// 0, 1, ... 4 squared, in batches of 2.
constexpr char kDataset[] = R"(
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 0 } } } }
node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 1 } } } }
node { name: "two" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 2 } } } }
node { name: "five" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 5 } } } }
node { name: "false" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value {
  tensor { dtype: DT_BOOL tensor_shape { } bool_val: false } } } }
node { name: "range" op: "RangeDataset" input: "zero" input: "five" input: "one"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "map" op: "MapDataset" input: "range"
  attr { key: "f" value { func { name: "square" } } } attr { key: "Targuments" value { list { } } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "batch" op: "BatchDatasetV2" input: "map" input: "two" input: "false"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { dim { size: -1 } } } } } }
node { name: "prefetch" op: "PrefetchDataset" input: "batch" input: "two"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { dim { size: -1 } } } } } }
node { name: "iterator" op: "IteratorV2" attr { key: "shared_name" value { s: "" } } attr { key: "container" value { s: "" } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { dim { size: -1 } } } } } }
node { name: "init" op: "MakeIterator" input: "prefetch" input: "iterator" }
node { name: "next" op: "IteratorGetNext" input: "iterator"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { dim { size: -1 } } } } } }
library { function {
  signature { name: "square" input_arg { name: "x" type: DT_INT64 } output_arg { name: "y" type: DT_INT64 } }
  node_def { name: "mul" op: "Mul" input: "x" input: "x" attr { key: "T" value { type: DT_INT64 } } }
  ret { key: "y" value: "mul:z:0" } } }
versions { producer: 134 }
)";

TEST_F(BorrowedTest, ADatasetWithAFunctionIsIterated) {
  const auto session = Read(kDataset);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Status init = session->RunByName({}, {}, {"init"}).status();
    ASSERT_TRUE(init.ok()) << init;
    std::vector<int64_t> all;
    for (;;) {
      const auto next = session->RunByName({}, {"next"}, {});
      if (!next.ok()) {
        EXPECT_EQ(next.status().code(), Code::kOutOfRange) << next.status();
        break;
      }
      for (const int64_t value : (*next)[0].values<int64_t>()) all.push_back(value);
    }
    EXPECT_THAT(all, ElementsAre(0, 1, 4, 9, 16));
  }
}

// Two iterators over 7, of equal attributes but for their names.
constexpr char kOneShot[] = R"(
node { name: "a" op: "OneShotIterator" attr { key: "dataset_factory" value { func { name: "sevens" } } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "b" op: "OneShotIterator" attr { key: "dataset_factory" value { func { name: "sevens" } } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "next_a" op: "IteratorGetNext" input: "a"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "next_b" op: "IteratorGetNext" input: "b"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
library { function {
  signature { name: "sevens" output_arg { name: "dataset" type: DT_VARIANT } }
  node_def { name: "seven" op: "Const" attr { key: "dtype" value { type: DT_INT64 } }
    attr { key: "value" value { tensor { dtype: DT_INT64 tensor_shape { } int64_val: 7 } } } }
  node_def { name: "one" op: "TensorDataset" input: "seven:output:0"
    attr { key: "Toutput_types" value { list { type: DT_INT64 } } }
    attr { key: "output_shapes" value { list { shape { } } } } }
  ret { key: "dataset" value: "one:handle:0" } } }
versions { producer: 134 }
)";

TEST_F(BorrowedTest, AOneShotIteratorIsItsNodesOwn) {
  const auto session = Read(kOneShot);
  for (const char* next : {"next_a", "next_b"}) {
    const auto first = session->RunByName({}, {next}, {});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)[0].scalar<int64_t>(), 7);
    EXPECT_EQ(session->RunByName({}, {next}, {}).status().code(), Code::kOutOfRange);
  }
}

TEST_F(BorrowedTest, AVariantCannotBeFetched) {
  const Status status = Read(kDataset)->RunByName({}, {"range"}, {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("the variant 'range' cannot be fetched"));
}

// An element after a minute.
constexpr char kSlow[] = R"(
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 0 } } } }
node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 1 } } } }
node { name: "minute" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 60000000 } } } }
node { name: "range" op: "RangeDataset" input: "zero" input: "minute" input: "one"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "sleep" op: "SleepDataset" input: "range" input: "minute"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "iterator" op: "IteratorV2" attr { key: "shared_name" value { s: "" } } attr { key: "container" value { s: "" } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "init" op: "MakeIterator" input: "sleep" input: "iterator" }
node { name: "next" op: "IteratorGetNext" input: "iterator"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
versions { producer: 134 }
)";

TEST_F(BorrowedTest, AnIteratorThatWaitsIsCancelledWithTheStep) {
  const auto session = Read(kSlow, {.operation_timeout = std::chrono::milliseconds(300)});
  const Status init = session->RunByName({}, {}, {"init"}).status();
  ASSERT_TRUE(init.ok()) << init;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(session->RunByName({}, {"next"}, {}).status().code(), Code::kDeadlineExceeded);
  const Status closed = session->Close();
  EXPECT_TRUE(closed.ok()) << closed;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(BorrowedTest, FunctionsThatEachNameTheNextTwiceAreGivenOnceEach) {
  constexpr int kCount = 40;
  std::string text = R"(
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 0 } } } }
node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT64 } } attr { key: "value" value {
  tensor { dtype: DT_INT64 tensor_shape { } int64_val: 1 } } } }
node { name: "range" op: "RangeDataset" input: "zero" input: "one" input: "one"
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "map" op: "MapDataset" input: "range" attr { key: "f" value { func { name: "f0" } } }
  attr { key: "Targuments" value { list { } } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "iterator" op: "IteratorV2" attr { key: "shared_name" value { s: "" } } attr { key: "container" value { s: "" } }
  attr { key: "output_types" value { list { type: DT_INT64 } } }
  attr { key: "output_shapes" value { list { shape { } } } } }
node { name: "init" op: "MakeIterator" input: "map" input: "iterator" }
versions { producer: 134 }
library {
)";
  const auto node = [](const std::string& name, const std::string& input, int to) {
    return "node_def { name: '" + name + "' op: 'PartitionedCall' input: '" + input +
           "' attr { key: 'Tin' value { list { type: DT_INT64 } } } attr { key: 'Tout' value { "
           "list "
           "{ type: DT_INT64 } } } attr { key: 'f' value { func { name: 'f" +
           std::to_string(to) + "' } } } }\n";
  };
  for (int i = 0; i <= kCount; ++i) {
    text += "function { signature { name: 'f" + std::to_string(i) +
            "' input_arg { name: 'x' type: DT_INT64 } output_arg { name: 'y' type: DT_INT64 } }\n";
    if (i < kCount) text += node("a", "x", i + 1) + node("b", "a:output:0", i + 1);
    text +=
        i < kCount ? "ret { key: 'y' value: 'b:output:0' } }\n" : "ret { key: 'y' value: 'x' } }\n";
  }
  // Prepared only: TensorFlow itself would copy them 2^40 times.
  const auto session = Read(text + "}\n");
  Graph& graph = *read_.back();
  const auto start = std::chrono::steady_clock::now();
  const auto callable = session->MakeCallable({}, {}, {Operation(&graph, graph.Find("init"))});
  EXPECT_TRUE(callable.ok()) << callable.status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace monograph
