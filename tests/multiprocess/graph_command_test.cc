// `monograph graph check` and `graph ops`.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/multiprocess/command.h"

namespace monograph {
namespace {

std::string Sample(const std::string& name) {
  return std::string(MG_GOLDEN_CHECKS) + "/" + name + ".pb";
}

// The row of the table that begins with `op`, its spaces made one.
std::string Row(const std::string& text, const std::string& op) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row;
    for (std::string word; words >> word;) row += (row.empty() ? "" : " ") + word;
    if (row.starts_with(op + " ")) return row;
  }
  return "";
}

TEST(GraphCheck, AGraphThatRunsIsOneLine) {
  for (const char* name : {"resource_variables", "ref_variables"}) {
    const Ran ran = RunMonograph({"graph", "check", Sample(name)});
    EXPECT_EQ(ran.code, 0) << ran.output << ran.error;
    ExpectText(ran.output, {std::string(name) + ".pb: all is there ("});
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1);
  }
}

TEST(GraphCheck, EveryGraphOfTheGoldenTestsIsAllThere) {
  for (const auto& entry : std::filesystem::directory_iterator(MG_GOLDEN_GRAPHS)) {
    if (!entry.is_directory() || entry.path().filename() == "unknown_op") continue;
    const Ran ran = RunMonograph({"graph", "check", entry.path().string() + "/graph.pb"});
    EXPECT_EQ(ran.code, 0) << entry.path() << ran.output << ran.error;
  }
}

TEST(GraphCheck, ALoopIsNoCycle) {
  const Ran ran = RunMonograph({"graph", "check", Sample("control_flow")});
  EXPECT_EQ(ran.code, 0) << ran.output << ran.error;
  ExpectText(ran.output, {"all is there ("});
}

TEST(GraphCheck, LooksIntoFunctionsAndAtTypes) {
  const Ran ran = RunMonograph({"graph", "check", Sample("ops_in_a_function")});
  EXPECT_EQ(ran.code, 1) << ran.error;
  ExpectText(Row(ran.output, "Cholesky"), {"Cholesky 3 no such op outside,", "(function "});
  ExpectText(Row(ran.output, "MatMul"), {"MatMul 1 ", "complex64", " complex"});
}

TEST(GraphCheck, AttributesThatAreNotKnownAreTold) {
  TemporaryFolder folder;
  const auto check = [&folder](const std::string& attrs) {
    const std::string path =
        folder.Write("graph.pbtxt",
                     "node { name: \"x\" op: \"Placeholder\" attr { key: \"dtype\" value { type: "
                     "DT_FLOAT } } }\n"
                     "node { name: \"y\" op: \"BiasAdd\" input: [\"x\", \"x\"] "
                     "attr { key: \"T\" value { type: DT_FLOAT } } " +
                         attrs + "}\n");
    return RunMonograph({"graph", "check", path});
  };
  EXPECT_EQ(check("").code, 0);
  const Ran value = check("attr { key: \"data_format\" value { s: \"NWHC\" } }");
  EXPECT_EQ(value.code, 1);
  ExpectText(Row(value.output, "BiasAdd"), {"attribute 'data_format' is 'NWHC'"});
  const Ran fresh = check("attr { key: \"fresh\" value { b: true } }");
  EXPECT_EQ(fresh.code, 1);
  ExpectText(Row(fresh.output, "BiasAdd"), {"attribute 'fresh' is not known here, and is true"});
  EXPECT_EQ(check("attr { key: \"fresh\" value { b: false } }").code, 0);
  EXPECT_EQ(check("attr { key: \"_note\" value { b: true } }").code, 0);
}

TEST(GraphCheck, FunctionsThatCallEachOtherAreTold) {
  TemporaryFolder folder;
  const auto function = [](const std::string& name, const std::string& callee) {
    return "function { signature { name: \"" + name +
           "\" input_arg { name: \"x\" type: DT_FLOAT } output_arg { name: \"y\" type: DT_FLOAT } "
           "} "
           "node_def { name: \"call\" op: \"PartitionedCall\" input: \"x\" "
           "attr { key: \"Tin\" value { list { type: DT_FLOAT } } } "
           "attr { key: \"Tout\" value { list { type: DT_FLOAT } } } "
           "attr { key: \"f\" value { func { name: \"" +
           callee + "\" } } } } ret { key: \"y\" value: \"call:output:0\" } }\n";
  };
  const std::string path =
      folder.Write("graph.pbtxt", "library { " + function("f", "g") + function("g", "f") + "}\n" +
                                      "node { name: \"x\" op: \"Placeholder\" attr { key: "
                                      "\"dtype\" value { type: DT_FLOAT } } }\n"
                                      "node { name: \"call\" op: \"f\" input: \"x\" }\n");
  const Ran ran = RunMonograph({"graph", "check", path});
  EXPECT_EQ(ran.code, 1) << ran.error;
  ExpectText(ran.output, {"Its calls cannot run: function 'f' calls itself: 'f' -> 'g' -> 'f'"});
}

TEST(GraphCheck, NamesThatWouldSteerTheTerminalAreShownAsTheirBytes) {
  TemporaryFolder folder;
  const std::string path = folder.Write(
      "graph.pbtxt", "node { name: \"x\\033[2J\" op: \"Foo\\007\\nmonograph: all is well\" }\n");
  const Ran ran = RunMonograph({"graph", "check", path});
  EXPECT_EQ(ran.code, 1) << ran.error;
  ExpectText(ran.output, {"Foo\\x07\\x0amonograph: all is well", "x\\x1b[2J"});
  for (const char c : ran.output + ran.error) EXPECT_TRUE(c == '\n' || c >= ' ') << int{c};
  EXPECT_EQ(ran.output.find("\nmonograph: all"), std::string::npos) << ran.output;
}

TEST(GraphCheck, AFileThatIsNoGraphIsOneErrorAndTwo) {
  TemporaryFolder folder;
  const auto expect = [](const Ran& ran, const std::string& words) {
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(ran.output, "");
    ExpectText(ran.error, {words});
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  };
  expect(RunMonograph({"graph", "check", "/nowhere.pb"}), "'/nowhere.pb': No such file");
  expect(RunMonograph({"graph", "check", "graph.txt"}), "must end in .pb");
  expect(RunMonograph({"graph", "check", folder.Write("bad.pb", "no graph")}), "no GraphDef");
  expect(RunMonograph({"graph", "check", folder.Write("bad.pbtxt", "node { oops")}), "bad.pbtxt:1");
  expect(RunMonograph(
             {"graph", "check",
              folder.Write("loose.pbtxt", "node { name: \"y\" op: \"NoOp\" input: \"^gone\" }")}),
         "'^gone' is not in the graph");
  expect(RunMonograph({"graph", "check"}), "graph");
  EXPECT_EQ(RunMonograph({"graph", "chekc", "graph.pb"}).code, 2);
}

TEST(GraphCheck, AGraphThatIsNestedFiveThousandDeepIsOneErrorAndTwo) {
  TemporaryFolder folder;
  std::string lists = "node { name: \"x\" op: \"NoOp\" attr { key: \"f\" value { ";
  for (int i = 0; i < 5'000; ++i) lists += "func { name: \"f\" attr { key: \"f\" value { ";
  std::string braces;
  for (int i = 0; i < 5'000; ++i) braces += "node { ";
  for (const std::string& text :
       {lists, lists + std::string(3 * 5'000 + 3, '}'), braces, braces + std::string(5'000, '}')}) {
    const Ran ran = RunMonograph({"graph", "check", folder.Write("deep.pbtxt", text)});
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(ran.output, "");
    ExpectText(ran.error, {"deep.pbtxt", "nested more than 100 deep"});
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  }
}

TEST(GraphOps, TheListInTheDocumentsIsWhatThisProgramHas) {
  std::ifstream file(MG_LIST_OF_OPS);
  std::stringstream document;
  document << file.rdbuf();
  const Ran ran = RunMonograph({"ops"}, {{"MONOGRAPH_TENSORFLOW", "none"}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  // Where they differ: gtest would print both whole.
  const std::string expected = document.str();
  const auto at =
      std::mismatch(expected.begin(), expected.end(), ran.output.begin(), ran.output.end());
  EXPECT_TRUE(expected == ran.output)
      << "write the output of `MONOGRAPH_TENSORFLOW=none monograph ops` into docs/ops.md; line "
      << std::count(expected.begin(), at.first, '\n') + 1 << " differs";
}

TEST(GraphOps, DescribesAnOp) {
  const Ran ran = RunMonograph({"graph", "ops", "MatMul"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output,
             {"MatMul(a: T, b: T) -> (product: T)", "types on a CPU:", "T: floats int32 int64"});
  const Ran wrong = RunMonograph({"graph", "ops", "MatMull"});
  EXPECT_EQ(wrong.code, 1);
  ExpectText(wrong.error, {"'MatMul'"});
}

TEST(GraphOps, AnOpThatWeLackSaysWhoCouldLendIt) {
  const auto describe = [](const std::string& interpreter) {
    const Ran ran = RunMonograph({"ops", "Dawsn"}, {{"MONOGRAPH_TENSORFLOW", interpreter}});
    EXPECT_EQ(ran.code, 1) << ran.output;
    return ran.error;
  };
  ExpectText(describe("none"), {"op 'Dawsn' is not registered",
                                "MONOGRAPH_TENSORFLOW can name a Python interpreter"});
  ExpectText(describe("/nowhere/python"),
             {"'/nowhere/python'", "lends no TensorFlow: No such file or directory"});
  ExpectText(describe("false"), {"'false'", "it ended without an answer"});
}

// A stand-in for the interpreter, which says that TensorFlow has one op, and one that no longer
// runs, and ends.
std::string FakeInterpreter(const TemporaryFolder& folder) {
  // An OpList and a KernelList: {name: "Dawsn" input_arg {name: "x" type: DT_FLOAT} output_arg
  // {the same}}, {name: "Stale" deprecation {version: 9}}, and their kernels for CPUs.
  const std::string arg("\x0a\x01x\x18\x01", 5);
  const std::string op =
      "\x0a\x05"
      "Dawsn"
      "\x12\x05" +
      arg + "\x1a\x05" + arg;
  const std::string stale =
      "\x0a\x05"
      "Stale"
      "\x42\x02\x08\x09";
  const auto kernel = [](const std::string& name) {
    return "\x0a\x05" + name +
           "\x12\x03"
           "CPU";
  };
  const auto answer = [](const std::string& text) {
    const auto size = static_cast<uint32_t>(text.size());
    return "+" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
  };
  const auto message = [](const std::string& text) {
    return "\x0a" + std::string(1, static_cast<char>(text.size())) + text;
  };
  const std::string answers = folder.Write(
      "answers", answer("/nowhere.so") + answer("9.9") + answer(message(op) + message(stale)) +
                     answer(message(kernel("Dawsn")) + message(kernel("Stale"))));
  std::string interpreter = folder.Write("interpreter", "#!/bin/sh\ncat " + answers + " >&0\n");
  std::filesystem::permissions(interpreter, std::filesystem::perms::owner_all);
  return interpreter;
}

TEST(GraphOps, DefinitionsAreThoseThatTheInterpreterGives) {
  const TemporaryFolder folder;
  const Ran ran =
      RunMonograph({"ops", "Dawsn"}, {{"MONOGRAPH_TENSORFLOW", FakeInterpreter(folder)}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"Dawsn(x: float) -> (x: float)", "borrowed from TensorFlow"});
}

TEST(GraphOps, AnOpThatTensorFlowsKernelRefusesIsNotBorrowed) {
  const TemporaryFolder folder;
  const Ran ran = RunMonograph({"ops"}, {{"MONOGRAPH_TENSORFLOW", FakeInterpreter(folder)}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output,
             {"| TensorFlow 9.9 | Dawsn | fixed | CPU | no | borrowed |\n",
              "| TensorFlow 9.9 | Stale |  | none |  | neither: TensorFlow's kernel refuses it in "
              "GraphDefs of today |\n"});
}

TEST(GraphOps, ARowForEachOpSaysItsTypesDevicesGradientAndWhoseItIs) {
  const Ran ran = RunMonograph({"ops"}, {{"MONOGRAPH_TENSORFLOW", "none"}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output,
             {"| family | op | types | devices | gradient | whose |\n",
              "| activation | Relu | T: floats int32 int64 | CPU, GPU | yes | ours |\n",
              "| concat | Pack | T: floats ints uints complex quantized bool string | CPU, GPU "
              "(T: floats ints uints bool) | yes | ours |\n",
              // By reference, what the op by handles takes.
              "| training | ApplyAdam | T: floats | CPU, GPU | none flows | ours |\n"});
}

TEST(GraphOps, ATaskThatLacksABorrowedOpIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.Write(
      "graph.pbtxt",
      "node { name: \"x\" op: \"Const\" attr { key: \"dtype\" value { type: DT_FLOAT } }\n"
      "  attr { key: \"value\" value { tensor { dtype: DT_FLOAT tensor_shape { } } } } }\n"
      "node { name: \"y\" op: \"Dawsn\" input: \"x\" device: \"/job:worker/task:0\" }\n");
  // Only the client has it, which opens no library: that of the stand-in does not exist.
  const Ran ran = RunMonograph({"launch", "--ps=0", "--workers=1", "--", "env",
                                "MONOGRAPH_TENSORFLOW=" + FakeInterpreter(folder), MonographPath(),
                                "run", path, "--fetches=y:0"},
                               {{"MONOGRAPH_TENSORFLOW", "none"}});
  EXPECT_EQ(ran.code, 1) << ran.output;
  ExpectText(ran.output + ran.error,
             {"/job:worker/replica:0/task:0: node 'y': op 'Dawsn' is not registered",
              "MONOGRAPH_TENSORFLOW can name"});
}

// The flag names the interpreter, whatever the environment says. The library of the stand-in, which
// a task opens that computes the node, does not exist.
TEST(TensorFlowFlag, NamesTheInterpreterInPlaceOfTheEnvironment) {
  const TemporaryFolder folder;
  const std::string path = folder.Write(
      "graph.pbtxt",
      "node { name: \"x\" op: \"Const\" attr { key: \"dtype\" value { type: DT_FLOAT } }\n"
      "  attr { key: \"value\" value { tensor { dtype: DT_FLOAT tensor_shape { } } } } }\n"
      "node { name: \"y\" op: \"Dawsn\" input: \"x\" }\n");
  const auto run = [&](const std::string& named, const std::string& environment) {
    const Ran ran = RunMonograph({"run", path, "--fetches=y:0", "--tensorflow=" + named},
                                 {{"MONOGRAPH_TENSORFLOW", environment}});
    EXPECT_EQ(ran.code, 1) << ran.output;
    return ran.error;
  };
  const std::string interpreter = FakeInterpreter(folder);
  ExpectText(run(interpreter, "none"), {"node 'y'", "/nowhere.so"});
  ExpectText(run("none", interpreter), {"node 'y': op 'Dawsn' is not registered"});
}

}  // namespace
}  // namespace monograph
