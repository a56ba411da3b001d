// `monograph run` without a script.
#include <fstream>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "tests/multiprocess/command.h"
#include "tools/npy.h"
#include "tools/run_fetches.h"

namespace monograph {
namespace {

class RunFetchesTest : public ::testing::Test {
 protected:
  RunFetchesTest() {
    Graph graph = NewGraph();
    Scope root(&graph);
    const Output x = Placeholder(root.WithOpName("x"), DT_FLOAT, {-1, 2});
    const Output k = Placeholder(root.WithOpName("k"), DT_FLOAT, Shape{});
    Mul(root.WithOpName("y"), x, k);
    Placeholder(root.WithOpName("n"), DT_INT32, {2});
    EXPECT_TRUE(root.ok()) << root.status();
    for (const char* name : {"graph.pb", "graph.pbtxt"})
      EXPECT_TRUE(WriteGraph(graph, folder_.File(name)).ok());
    EXPECT_TRUE(
        WriteNpy(folder_.File("x.npy"), Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4})).ok());
  }
  Ran Run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"run", folder_.File("graph.pb")});
    return RunMonograph(words);
  }
  TemporaryFolder folder_;
};

TEST_F(RunFetchesTest, PrintsNameTypeShapeAndValues) {
  for (const char* name : {"graph.pb", "graph.pbtxt"}) {
    const Ran ran = RunMonograph({"run", folder_.File(name), "--fetches=y:0",
                                  "--feeds=x:0=" + folder_.File("x.npy") + ",k:0=0.5"});
    EXPECT_EQ(ran.code, 0) << ran.error;
    EXPECT_EQ(ran.output, "y:0 float[2,2]\n[[0.5, 1],\n [1.5, 2]]\n");
  }
}

TEST_F(RunFetchesTest, TakesFlagsSeveralTimesAndValuesWithCommas) {
  const Ran ran =
      Run({"--feeds=x:0=[[1, 2]],k=3", "--feeds", "n:0=[7,8]", "--fetches=y,n:0", "--fetches=k:0"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.output, "y float[1,2]\n[[3, 6]]\nn:0 int32[2]\n[7, 8]\nk:0 float[]\n3\n");
}

TEST_F(RunFetchesTest, WritesAFetchToItsFile) {
  const std::string path = folder_.File("y.npy");
  const Ran ran = Run({"--feeds=x:0=[[1,2]],k:0=2", "--fetches=y:0=" + path + ",k:0"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.output, "y:0 float[1,2] in " + path + "\nk:0 float[]\n2\n");
  const Result<Tensor> value = ReadNpy(path);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(BitEqual(*value, Tensor::FromValues<float>({1, 2}, {2, 4})));
}

TEST_F(RunFetchesTest, LooksAtFilesBeforeAnythingRuns) {
  const Ran ran = Run({"--feeds=x:0=[[1,2]],k:0=2", "--fetches=k:0,y:0=/nowhere/y.npy"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.output, "");
  ExpectText(ran.error, {"fetch 'y:0'", "/nowhere"});
  const Ran other = Run({"--feeds=x:0=[[1,2]],k:0=2", "--fetches=y:0=y.txt"});
  EXPECT_EQ(other.code, 2);
  ExpectText(other.error, {"y.txt", ".npy"});
}

TEST_F(RunFetchesTest, NamesTheFeedThatIsWrong) {
  ExpectText(Run({"--fetches=y:0", "--feeds=z:0=1"}).error, {"feed 'z:0'", "no node 'z'"});
  ExpectText(Run({"--fetches=y:0", "--feeds=k:0=hello"}).error,
             {"feed 'k:0'", "'hello' is no value"});
  ExpectText(Run({"--fetches=y:0", "--feeds=k:0"}).error, {"'k:0' is not written as"});
  ExpectText(Run({"--fetches=y:0", "--feeds=n:0=[1.5,2]"}).error,
             {"feed 'n:0'", "1.5 is no int32"});
  ExpectText(Run({"--fetches=y:0", "--feeds=k:0=/nowhere.npy"}).error,
             {"feed 'k:0'", "/nowhere.npy"});
  ExpectText(Run({"--fetches=y:0", "--feeds=x:0=[1,2],k:0=1"}).error, {"'x'", "float[2]"});
  ExpectText(Run({"--fetches=why:0"}).error, {"fetch 'why:0'"});
}

TEST_F(RunFetchesTest, FlagsThatDoNotGoTogetherAreRefused) {
  const Ran nothing = Run({});
  EXPECT_EQ(nothing.code, 2);
  ExpectText(nothing.error, {"--fetches", "--targets", "--script"});
  const Ran both = Run({"--script=steps.json", "--out=out", "--fetches=y:0"});
  EXPECT_EQ(both.code, 2);
  ExpectText(both.error, {"--script"});
  const Ran folder = Run({"--out=out", "--fetches=y:0"});
  EXPECT_EQ(folder.code, 2);
  ExpectText(folder.error, {"--out", "y:0=y.npy"});
}

TEST(RunFetches, InitialisesAndTrainsAGraphOfTensorFlow) {
  const std::string graph = std::string(MG_GOLDEN_CHECKS) + "/resource_variables.pb";
  const Ran ran = RunMonograph({"run", graph, "--init=init", "--feeds=x:0=[[1,1]],y:0=[[1]]",
                                "--fetches=loss:0", "--targets=train"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.output, "loss:0 float[]\n4\n");
}

TEST(SplitArguments, CommasWithinValuesDoNotSeparate) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(SplitArguments("a=1,b=[1,2],c"), (Words{"a=1", "b=[1,2]", "c"}));
  EXPECT_EQ(SplitArguments("a=\"x,\\\",y\",b"), (Words{"a=\"x,\\\",y\"", "b"}));
  EXPECT_EQ(SplitArguments(""), Words{});
}

}  // namespace
}  // namespace monograph
