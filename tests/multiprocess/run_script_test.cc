// `monograph run` with a script: what a feed may be, models by their signature, limits of time.
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "tests/multiprocess/command.h"
#include "tools/npy.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

class RunScriptTest : public ::testing::Test {
 protected:
  // Runs these steps; result.json.
  Json Run(const std::string& model, const Json& steps, int code,
           std::vector<std::string> more = {}) {
    std::ofstream(folder_.File("steps.json")) << Json{{"steps", steps}};
    more.insert(more.begin(), {"run", model, "--script=" + folder_.File("steps.json"),
                               "--out=" + folder_.File("out")});
    const Ran ran = RunMonograph(more);
    EXPECT_EQ(ran.code, code) << ran.error;
    std::ifstream file(folder_.File("out/result.json"));
    return Json::parse(file, nullptr, false);
  }
  Tensor Fetched(const char* name) {
    const Result<Tensor> value = ReadNpy(folder_.File(std::string("out/") + name));
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : Tensor();
  }
  std::string GraphOfStrings() {
    Graph graph = NewGraph();
    Scope root(&graph);
    Identity(root.WithOpName("y"), Placeholder(root.WithOpName("x"), DT_STRING, Shape{}));
    EXPECT_TRUE(root.ok()) << root.status();
    EXPECT_TRUE(WriteGraph(graph, folder_.File("strings.pb")).ok());
    return folder_.File("strings.pb");
  }
  TemporaryFolder folder_;
};

TEST_F(RunScriptTest, AFeedMayBeAStringOrTheBytesOfAFile) {
  const std::string bytes("\x89PNG\0\xff", 6);
  std::ofstream(folder_.File("picture.png"), std::ios::binary) << bytes;
  const Json result =
      Run(GraphOfStrings(),
          {{{"feeds", {{"x:0", {{"string", "some text"}}}}}, {"fetches", {"y:0"}}},
           {{"feeds", {{"x:0", {{"bytes_file", "picture.png"}}}}}, {"fetches", {"y:0"}}}},
          0);
  EXPECT_EQ(*Fetched("0_0.npy").strings(), "some text");
  EXPECT_EQ(*Fetched("1_0.npy").strings(), bytes);
}

TEST_F(RunScriptTest, WhatIsNoFeedAndNoTimeIsNamed) {
  const auto step = [](const Json& feed) {
    return Json{{"feeds", {{"x:0", feed}}}, {"fetches", {"y:0"}}};
  };
  Json timed = step({{"string", "a"}});
  timed["timeout_ms"] = 0;
  const Json result =
      Run(GraphOfStrings(),
          {step(3.5), step({{"bytes_file", "no.png"}}),
           step({{"string", "a"}, {"bytes_file", "b"}}), step({{"string", 1}}), timed},
          1);
  ASSERT_EQ(result["steps"].size(), 5u) << result;
  const char* const expected[] = {"feed 'x:0': it must be the name of a .npy file", "no.png",
                                  "{\"string\": \"text\"}", "not {\"string\":1}",
                                  "step 4: 'timeout_ms' must be a number of milliseconds"};
  for (size_t i = 0; i < 5; ++i) {
    const auto message = result["steps"][i]["message"].get<std::string>();
    EXPECT_NE(message.find(expected[i]), std::string::npos) << message;
  }
}

TEST_F(RunScriptTest, AStepEndsWithItsTimeAndTheNextOneRuns) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output one = Const(root.WithOpName("one"), 1.0f);
  const Outputs forever = While(
      root, {one}, [](const Scope& s, const Outputs&) { return Const(s, true); },
      [](const Scope& s, const Outputs& x) { return Outputs{Identity(s, x[0])}; });
  Identity(root.WithOpName("never"), forever.at(0));
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_TRUE(WriteGraph(graph, folder_.File("loop.pb")).ok());
  const Json result =
      Run(folder_.File("loop.pb"),
          {{{"fetches", {"never:0"}}, {"timeout_ms", 200}}, {{"fetches", {"one:0"}}}}, 1);
  EXPECT_EQ(result["steps"][0]["code"], "DEADLINE_EXCEEDED") << result;
  EXPECT_EQ(result["steps"][1]["code"], "OK") << result;
}

TEST_F(RunScriptTest, ASavedModelRunsByItsSignature) {
  ASSERT_TRUE(
      WriteNpy(folder_.File("x.npy"), Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4})).ok());
  ASSERT_TRUE(WriteNpy(folder_.File("two.npy"), Tensor::Scalar(2.0f)).ok());
  const std::string model = std::string(MG_GOLDEN_SAVED_MODELS) + "/resource_variables";
  Run(model,
      {{{"feeds", {{"input", "x.npy"}, {"scale", "two.npy"}}}},
       {{"feeds", {{"input", "x.npy"}}}, {"fetches", {"output"}}}},
      0, {"--signature=scaled"});
  const Tensor plain = Tensor::FromValues<float>({2, 1}, {8.5f, 18.5f}),
               doubled = Tensor::FromValues<float>({2, 1}, {17.0f, 37.0f});
  EXPECT_TRUE(BitEqual(Fetched("0_0.npy"), plain));
  EXPECT_TRUE(BitEqual(Fetched("0_1.npy"), doubled));
  EXPECT_TRUE(BitEqual(Fetched("1_0.npy"), plain));
  const Json none = Run(model, Json::array({Json::object()}), 1, {"--signature=nobodys"});
  EXPECT_NE(none["steps"][0]["message"].get<std::string>().find("it has 'asset'"),
            std::string::npos)
      << none;
}

}  // namespace
}  // namespace monograph
