#include "tools/run_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"

namespace monograph {
namespace {

RunResult Everything() {
  RunResult result;
  result.program = "mnist_replica";
  result.flags = {{"replication", "between_graph"}, {"sync", "true"}};
  result.client = 1;
  result.clients = 2;
  result.workers = 2;
  result.batch_size = 100;
  result.started_at = 1700000000.25;
  result.seconds = 0.5;
  result.cpu_seconds = 0.125;
  result.images = 200;
  result.steps = {{0, 1000.5}, {1001, 999}};
  result.display = {{100, 2000, 0.5, 0.75}};
  result.test_accuracy = 0.875;
  result.tasks = {{"/job:client/replica:0/task:0", 1, 2, 3, 4, 0.125},
                  {"/job:ps/replica:0/task:0", 5, 6, 7, 8, 0.25}};
  result.variables = {{"fc/weights", "ab"}, {"fc/biases", "cd"}};
  result.digest = "ef";
  result.critical_path =
      CriticalPath{.total_us = 3,
                   .compute_us = 1,
                   .transfer_us = 1,
                   .wait_us = 1,
                   .segments = {{PathSegment::Kind::kCompute, "a", "MatMul", "/job:a", 0, 1},
                                {PathSegment::Kind::kTransfer, "a:0", "_Recv", "/job:b", 1, 1},
                                {PathSegment::Kind::kWait, "b", "", "/job:b", 2, 1}}};
  return result;
}

TEST(RunResult, ComesBackFromJsonAsItWas) {
  const std::string json = ToJson(Everything());
  const Result<RunResult> again = ParseRunResult(json, "test");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJson(*again), json);
  EXPECT_EQ(again->steps[0].us, 1000.5);
  EXPECT_EQ(again->tasks[1].messages_received, 8u);
  EXPECT_EQ(again->critical_path->segments[2].kind, PathSegment::Kind::kWait);
  EXPECT_EQ(again->images_per_second(), 400);
}

TEST(RunResult, ALossThatIsNoNumberComesBackAsNone) {
  RunResult result = Everything();
  result.display[0].loss = NAN;
  result.test_accuracy.reset();
  result.critical_path.reset();
  const Result<RunResult> again = ParseRunResult(ToJson(result), "test");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(std::isnan(again->display[0].loss));
  EXPECT_FALSE(again->test_accuracy.has_value());
  EXPECT_FALSE(again->critical_path.has_value());
}

TEST(RunResult, OtherTextIsRefusedByNameAndReason) {
  const Status text = ParseRunResult("[1]", "out.json").status();
  EXPECT_EQ(text.code(), Code::kInvalidArgument);
  EXPECT_NE(text.message().find("out.json"), std::string::npos);
  EXPECT_EQ(ParseRunResult("{\"monograph_result\": 99}", "x").status().code(),
            Code::kUnimplemented);
  EXPECT_EQ(ParseRunResult("{\"monograph_result\": 1}", "x").status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ReadRunResult("/nowhere/result").status().code(), Code::kNotFound);
}

class RunMetricsTest : public ::testing::Test {
 protected:
  RunMetricsTest() : graph_(NewGraph()), root_(&graph_) {}
  std::string DigestOf(float a, float b) {
    const std::vector<ModelVariable> variables = {
        MakeVariable(root_, "w" + std::to_string(++made_), Const(root_, a)),
        MakeVariable(root_, "v" + std::to_string(made_), Const(root_, b))};
    auto session = Session::Local(graph_).value();
    EXPECT_TRUE(session->Run({}, {}, {variables[0].initializer, variables[1].initializer}).ok());
    RunMetrics metrics({});
    std::vector<ModelVariable> renamed = variables;  // the digest knows names, not nodes
    renamed[0].name = "w";
    renamed[1].name = "v";
    EXPECT_TRUE(metrics.ReadVariables(session.get(), renamed).ok());
    EXPECT_EQ(metrics.result().variables.size(), 2u);
    return metrics.result().digest;
  }
  Graph graph_;
  Scope root_;
  int made_ = 0;
};

TEST_F(RunMetricsTest, TheDigestIsOfNamesAndBits) {
  const std::string digest = DigestOf(1, 2);
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(DigestOf(1, 2), digest);
  EXPECT_NE(DigestOf(2, 1), digest);
  EXPECT_NE(DigestOf(0.0f, 2), DigestOf(-0.0f, 2)) << "equal numbers, other bits";
}

TEST_F(RunMetricsTest, CountsStepsAndImagesOfTheTimedPartAndWritesThem) {
  (void)MakeVariable(root_, "w", Const(root_, 1.0f));
  auto session = Session::Local(graph_).value();
  RunMetrics metrics({.program = "p", .client = 1, .clients = 2, .batch_size = 10});
  ASSERT_TRUE(metrics.Begin(session.get()).ok());
  const auto begin = RunMetrics::Clock::now();
  metrics.Step(begin + std::chrono::milliseconds(5), begin + std::chrono::milliseconds(9), 10);
  metrics.Step(begin, begin + std::chrono::milliseconds(5), 10);
  metrics.Display(2, 0.5, 0.25);
  ASSERT_TRUE(metrics.End(session.get()).ok());
  EXPECT_GT(metrics.result().seconds, 0);
  ASSERT_EQ(metrics.result().tasks.size(), 1u);
  EXPECT_EQ(metrics.result().tasks[0].bytes_sent, 0u) << "nothing leaves this process";

  const std::string path =
      ::testing::TempDir() + "run_metrics_" + std::to_string(getpid()) + ".json";
  EXPECT_EQ(ResultPath(path, 0), path);
  ASSERT_TRUE(metrics.Write(ResultPath(path, 1)).ok());
  const Result<RunResult> read = ReadRunResult(path + ".1");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->images, 20);
  ASSERT_EQ(read->steps.size(), 2u);
  EXPECT_NEAR(read->steps[0].us, 5000, 0.1) << "in order of their begin";
  EXPECT_FALSE(std::filesystem::exists(path)) << "client 1 writes a file of its own";
  EXPECT_FALSE(std::filesystem::exists(path + ".1.part"));
  std::filesystem::remove(path + ".1");
  EXPECT_EQ(metrics.Write("/nowhere/result").code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace monograph
