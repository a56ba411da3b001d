// The `monograph` command: run, graph export, and what it says of mistakes.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/multiprocess/command.h"
#include "transport/control/hello.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

std::string Golden(const std::string& name) { return std::string(MG_GOLDEN_GRAPHS) + "/" + name; }

TEST(MonographCommand, OutputThatIsLostIsAFailure) {
  for (const std::string words : {"devices --json", "--help", "launch --help", "graph ops"}) {
    ChildProcess process({"sh", "-c", MonographPath() + " " + words + " > /dev/full"});
    const std::optional<Exit> exit = process.Wait(20s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 1) << words;
    ExpectText(process.error(), {"standard output could not be written to its end"});
  }
}

TEST(MonographRun, AFailedStepIsRecordedTheNextOneRunsAndTheExitCodeIsOne) {
  TemporaryFolder out;
  const std::string folder = Golden("unknown_op");
  const Ran ran = RunMonograph({"run", folder + "/graph.pb", "--script=" + folder + "/steps.json",
                                "--out=" + out.File("new/folder"), "--tensorflow=none"});
  EXPECT_EQ(ran.code, 1) << ran.error;
  std::ifstream file(out.File("new/folder/result.json"));
  const nlohmann::json result = nlohmann::json::parse(file);
  EXPECT_EQ(result["load"], (nlohmann::json{{"code", "OK"}, {"message", ""}}));
  ASSERT_EQ(result["steps"].size(), 4u);
  EXPECT_EQ(result["steps"][0]["code"], "OK");
  EXPECT_EQ(result["steps"][0]["outputs"], nlohmann::json::array({"0_0.npy"}));
  EXPECT_EQ(result["steps"][1]["code"], "UNIMPLEMENTED");
  EXPECT_EQ(result["steps"][1]["outputs"], nlohmann::json::array());
  ExpectText(result["steps"][1]["message"], {"Cholesky"});
  EXPECT_EQ(result["steps"][2]["code"], "OK");
  EXPECT_EQ(result["steps"][3]["code"], "OK");
}

TEST(MonographRun, AGraphThatIsNoneIsRecordedAsItsLoad) {
  TemporaryFolder folder;
  const std::string graph =
      folder.Write("bad.pbtxt", "node { name: \"a\" op: \"Const\" }\nnode { oops: 1 }\n");
  const std::string script = folder.Write("steps.json", "{\"steps\": [{\"fetches\": [\"a:0\"]}]}");
  const Ran ran = RunMonograph({"run", graph, "--script=" + script, "--out=" + folder.File("out")});
  EXPECT_EQ(ran.code, 1);
  std::ifstream file(folder.File("out/result.json"));
  const nlohmann::json result = nlohmann::json::parse(file);
  EXPECT_NE(result["load"]["code"], "OK");
  ExpectText(result["load"]["message"], {"bad.pbtxt"});
}

TEST(MonographRun, WhatAStepAsksForInVainIsItsOwnErrorAndIsSaid) {
  TemporaryFolder folder;
  const std::string graph =
      folder.Write("graph.pbtxt",
                   "node { name: \"x\" op: \"Placeholder\" attr { key: \"dtype\" value { type: "
                   "DT_FLOAT } } }\nnode { name: \"c\" op: \"Cholesky\" input: \"x\" }\n");
  const std::string script =
      folder.Write("steps.json",
                   "{\"steps\": [{\"fetches\": [\"c:0\"]}, {\"fetches\": [\"c:1\"]}, {\"targets\": "
                   "[\"x:0\"]}, {\"feeds\": {\"x:0\": \".\"}, \"fetches\": [\"x:0\"]}]}");
  const Ran ran = RunMonograph({"run", graph, "--script=" + script, "--out=" + folder.File("out")});
  EXPECT_EQ(ran.code, 1) << ran.error;
  std::ifstream file(folder.File("out/result.json"));
  const nlohmann::json steps = nlohmann::json::parse(file)["steps"];
  ASSERT_EQ(steps.size(), 4u) << ran.error;
  for (int i : {0, 1}) {
    EXPECT_EQ(steps[i]["code"], "UNIMPLEMENTED");
    ExpectText(steps[i]["message"], {"'c'", "Cholesky"});
  }
  EXPECT_EQ(steps[2]["code"], "INVALID_ARGUMENT");
  ExpectText(steps[2]["message"], {"'x:0' is a tensor", "'x'"});
  EXPECT_EQ(steps[3]["code"], "FAILED_PRECONDITION");
  ExpectText(steps[3]["message"], {"feed 'x:0'", "cannot read", "it is a folder"});
  ExpectText(ran.error, {"step 0: UNIMPLEMENTED: ", "step 2: INVALID_ARGUMENT: "});
}

TEST(MonographRun, AMessageThatQuotesBytesThatAreNoTextIsInTheResult) {
  TemporaryFolder folder;
  const std::string graph = folder.Write(
      "graph.pbtxt",
      "node { name: \"w\" op: \"VarHandleOp\" attr { key: \"dtype\" value { type: DT_FLOAT } } "
      "attr { key: \"shape\" value { shape { } } } attr { key: \"shared_name\" value { s: "
      "\"\\377\\376\" } } }\nnode { name: \"r\" op: \"ReadVariableOp\" input: \"w\" attr { key: "
      "\"dtype\" value { type: DT_FLOAT } } }\n");
  const std::string script = folder.Write("steps.json", "{\"steps\": [{\"fetches\": [\"r:0\"]}]}");
  const Ran ran = RunMonograph({"run", graph, "--script=" + script, "--out=" + folder.File("out")});
  EXPECT_EQ(ran.code, 1) << ran.error;
  std::ifstream file(folder.File("out/result.json"));
  const nlohmann::json result = nlohmann::json::parse(file);
  EXPECT_EQ(result["steps"][0]["code"], "FAILED_PRECONDITION");
  ExpectText(result["steps"][0]["message"], {"resource variable \xef\xbf\xbd\xef\xbf\xbd"});
}

TEST(MonographRun, MistakesInWhatItIsGivenAreOneErrorEach) {
  TemporaryFolder folder;
  const std::string graph = Golden("scalar_arithmetic") + "/graph.pb";
  const std::string script = folder.Write("steps.json", "{\"steps\": [}");
  ExpectText(RunMonograph({"run", graph, "--script=" + script, "--out=" + folder.path()}).error,
             {script, "not JSON"});
  ExpectText(RunMonograph({"run", graph, "--script=/nowhere.json", "--out=" + folder.path()}).error,
             {"/nowhere.json"});
  ExpectText(
      RunMonograph({"run", graph, "--script=" + folder.path(), "--out=" + folder.path()}).error,
      {"cannot read script"});
  ExpectText(RunMonograph({"run", graph, "--script=/dev/zero", "--out=" + folder.path()}).error,
             {"cannot read script '/dev/zero': it is a device; a file is expected"});
  const std::string many(60000, '['), closed(60000, ']');
  for (const auto& [steps, words] :
       {std::pair(std::string("1e999"), "line 1, column 24: the number 1e999 is out of range"),
        std::pair(many + closed, "nested more than 100 deep")}) {
    const std::string bad = folder.Write("bad.json", "{\"steps\": [{\"targets\": " + steps + "}]}");
    const Ran ran = RunMonograph({"run", graph, "--script=" + bad, "--out=" + folder.path()});
    EXPECT_EQ(ran.code, 1);
    ExpectText(ran.error, {bad, words});
  }
  std::filesystem::create_directory(folder.File("folder.pb"));
  ExpectText(RunMonograph({"graph", "check", folder.File("folder.pb")}).error,
             {"folder.pb': it is a folder; a file is expected"});
  const Ran slip = RunMonograph({"run", graph, "--scirpt=x"});
  EXPECT_EQ(slip.code, 2);
  ExpectText(slip.error, {"--scirpt", "--script"});
  const Ran command = RunMonograph({"lanch"});
  EXPECT_EQ(command.code, 2);
  ExpectText(command.error, {"'lanch'", "'launch'"});
  const Ran nothing = RunMonograph({"graph", "export", graph, "--out=" + folder.File("part.pb"),
                                    "--partitions", "--fetches=", "--targets="});
  EXPECT_EQ(nothing.code, 2);
  ExpectText(nothing.error, {"--fetches or --targets"});
}

class Export : public ::testing::Test {
 protected:
  Export() : graph_(NewGraph()), root_(&graph_) {
    const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {2});
    const Output a = Neg(root_.WithOpName("a").WithDevice("/job:worker/task:0"), x);
    Square(root_.WithOpName("b").WithDevice("/job:worker/task:1"), a);
    EXPECT_TRUE(root_.ok()) << root_.status();
    EXPECT_TRUE(WriteGraph(graph_, folder_.File("graph.pb")).ok());
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.File(name));
    EXPECT_TRUE(file.good()) << name;
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }
  TemporaryFolder folder_;
  Graph graph_;
  Scope root_;
};

TEST_F(Export, WritesAWholeGraphAsTextAsDotAndBackToTheSameBytes) {
  EXPECT_EQ(RunMonograph({"graph", "export", folder_.File("graph.pb"),
                          "--out=" + folder_.File("graph.pbtxt")})
                .code,
            0);
  ExpectText(Read("graph.pbtxt"), {"name: \"a\"", "op: \"Neg\"", "/job:worker"});
  EXPECT_EQ(RunMonograph(
                {"graph", "export", folder_.File("graph.pb"), "--out=" + folder_.File("graph.dot")})
                .code,
            0);
  ExpectText(Read("graph.dot"), {"digraph", "->"});
  EXPECT_EQ(RunMonograph({"graph", "export", folder_.File("graph.pbtxt"),
                          "--out=" + folder_.File("again.pb")})
                .code,
            0);
  EXPECT_EQ(Read("again.pb"), Read("graph.pb"));
}

TEST_F(Export, WritesThePartOfEachTask) {
  TestCluster cluster({.ps = 0, .workers = 2});
  const Ran ran = RunMonograph({"graph", "export", folder_.File("graph.pb"),
                                "--out=" + folder_.File("part.pbtxt"), "--partitions",
                                "--feeds=x:0", "--fetches=b:0", "--cluster=" + cluster.json()});
  EXPECT_EQ(ran.code, 0) << ran.error;
  const std::string first = Read("part.worker_0.pbtxt"), second = Read("part.worker_1.pbtxt");
  ExpectText(first, {"name: \"a\"", "_Recv", "_Send"});
  EXPECT_EQ(first.find("name: \"b\""), std::string::npos);
  ExpectText(second, {"name: \"b\"", "_Recv", "_Send"});
  EXPECT_EQ(second.find("name: \"a\""), std::string::npos);
}

TEST(MonographDevices, ListsTheCpu) {
  const Ran ran = RunMonograph({"devices"});
  EXPECT_EQ(ran.code, 0);
  ExpectText(ran.output, {"/device:CPU:0"});
}

TEST(MonographDevices, ListsTheCpuAsJson) {
  const Ran ran = RunMonograph({"devices", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  const nlohmann::json json = nlohmann::json::parse(ran.output);
  EXPECT_EQ(json["monograph_devices"], 1);
  ASSERT_GE(json["devices"].size(), 1u);
  EXPECT_EQ(json["devices"][0]["name"], "/device:CPU:0");
  EXPECT_GE(json["devices"][0]["cores"], 1);
  EXPECT_GT(json["devices"][0]["memory_bytes"], 0);
  EXPECT_EQ(json["why_no_gpu"].is_string(), json["devices"].size() == 1) << json;
}

TEST(MonographStatus, TellsEveryTaskAsJsonAlsoOneThatDoesNotAnswer) {
  TestCluster cluster({.ps = 1, .workers = 1, .start = false});
  cluster.Start("worker", 0);
  const Ran ran =
      RunMonograph({"status", "--cluster=" + cluster.json(), "--start_timeout=2", "--json"});
  EXPECT_EQ(ran.code, 1) << ran.error;
  const nlohmann::json json = nlohmann::json::parse(ran.output);
  EXPECT_EQ(json["monograph_status"], 1);
  ASSERT_EQ(json["tasks"].size(), 2u) << json;
  EXPECT_EQ(json["tasks"][0]["task"], "/job:ps/replica:0/task:0");
  EXPECT_EQ(json["tasks"][0]["up"], false);
  EXPECT_EQ(json["tasks"][0]["code"], "UNAVAILABLE");
  EXPECT_FALSE(json["tasks"][0]["error"].get<std::string>().empty());
  const nlohmann::json& worker = json["tasks"][1];
  EXPECT_EQ(worker["address"], cluster.address("worker", 0));
  EXPECT_EQ(worker["up"], true);
  for (const char* field : {"process_id", "uptime_seconds", "cpu_seconds", "resident_bytes",
                            "variable_bytes", "sessions", "graphs", "running_steps", "steps_done",
                            "steps_failed", "bytes_sent", "bytes_received", "messages_sent",
                            "messages_received", "messages_dropped", "cuda_graphs_captured",
                            "cuda_graphs_replayed", "cuda_graph_fallbacks", "cuda_nodes_launched"})
    EXPECT_TRUE(worker[field].is_number()) << field;
}

TEST(MonographStatus, NamesATaskThatDoesNotAnswerOnce) {
  TestCluster cluster({.ps = 0, .workers = 1, .start = false});
  const Ran ran = RunMonograph({"status", "--cluster=" + cluster.json(), "--start_timeout=0.2"});
  EXPECT_EQ(ran.code, 1);
  const std::string name = "/job:worker/replica:0/task:0 at ";
  const std::string said = ran.output + ran.error;
  ExpectText(said, {name});
  EXPECT_EQ(said.find(name), said.rfind(name)) << said;
}

TEST(MonographCommand, SaysItsVersionAndItsHelp) {
  const Ran version = RunMonograph({"--version"});
  EXPECT_EQ(version.code, 0) << version.error;
  ExpectText(version.output, {"monograph " + control::SoftwareVersion()});
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-h"}, {"--help"}, {"help"}}) {
    const Ran help = RunMonograph(words);
    EXPECT_EQ(help.code, 0) << words[0];
    ExpectText(help.output, {"Usage: monograph COMMAND", "launch", "--version"});
  }
}

TEST_F(Export, ShowsItsHelpWithAndWithoutItsWord) {
  const Ran help = RunMonograph({"graph", "export", "--help"});
  EXPECT_EQ(help.code, 0) << help.error;
  ExpectText(help.output, {"Usage: monograph graph export [FLAGS] GRAPH", "--out=FILE"});
  for (const char* word : {"--help", "-h"}) {
    const Ran words = RunMonograph({"graph", word});
    EXPECT_EQ(words.code, 0) << words.error;
    ExpectText(words.output, {"Usage: monograph graph WORD", "check", "export", "ops"});
  }
  const Ran missing = RunMonograph({"graph", "export", "--out=x.dot"});
  EXPECT_EQ(missing.code, 2);
  ExpectText(missing.error, {"the argument GRAPH is missing"});
  const Ran word = RunMonograph({"graph", "exprot", "g.pb"});
  EXPECT_EQ(word.code, 2);
  ExpectText(word.error, {"'exprot'", "export"});
}

TEST_F(Export, RefusesAFileThatItCannotWriteBeforeItReads) {
  const Ran ran = RunMonograph({"graph", "export", "/no/graph.pb", "--out=/nope/graph.dot"});
  EXPECT_EQ(ran.code, 2);
  ExpectText(ran.error, {"--out: cannot write '/nope/graph.dot': there is no folder '/nope'"});
}

TEST(MonographKeygen, RefusesAFolderThatIsNotThere) {
  const Ran ran = RunMonograph({"keygen", "/nope/cluster.key"});
  EXPECT_EQ(ran.code, 2);
  ExpectText(ran.error, {"FILE: cannot write '/nope/cluster.key': there is no folder '/nope'"});
}

TEST(MonographRun, RefusesAFolderThatItCannotMake) {
  const std::string folder = Golden("scalar_arithmetic");
  const Ran ran = RunMonograph({"run", folder + "/graph.pb", "--script=" + folder + "/steps.json",
                                "--out=/dev/null/results"});
  EXPECT_EQ(ran.code, 2);
  ExpectText(ran.error, {"--out: cannot write '/dev/null/results'", "'/dev/null' is not a folder"});
}

}  // namespace
}  // namespace monograph
