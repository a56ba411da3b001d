// Graphs that TensorFlow wrote, with the values that TensorFlow gave: through RunScript in this
// process, and with the `monograph` command on a cluster.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/multiprocess/cluster_fixture.h"
#include "tools/npy.h"
#include "tools/run_script.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json ReadJson(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

double At(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DT_FLOAT:
      return static_cast<double>(tensor.data<float>()[i]);
    case DT_DOUBLE:
      return tensor.data<double>()[i];
    case DT_INT32:
      return tensor.data<int32_t>()[i];
    case DT_INT64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    case DT_BOOL:
      return tensor.data<bool>()[i] ? 1 : 0;
    default:
      ADD_FAILURE() << "no comparison of " << DTypeName(tensor.dtype());
      return 0;
  }
}

// As tests/golden/README.md says.
void ExpectClose(const std::string& got_path, const std::string& expected_path, double rtol,
                 double atol, const std::string& where) {
  const Result<Tensor> got = ReadNpy(got_path), expected = ReadNpy(expected_path);
  ASSERT_TRUE(got.ok()) << where << ": " << got.status();
  ASSERT_TRUE(expected.ok()) << where << ": " << expected.status();
  ASSERT_EQ(got->dtype(), expected->dtype()) << where;
  ASSERT_EQ(got->shape().ToString(), expected->shape().ToString()) << where;
  if (!IsFloating(got->dtype())) {
    rtol = 0;
    atol = 0;
  }
  for (int64_t i = 0; i < got->elements(); ++i) {
    const double a = At(*got, i), b = At(*expected, i);
    if (std::isnan(b) ? std::isnan(a) : a == b) continue;
    ASSERT_LE(std::fabs(a - b), atol + rtol * std::fabs(b))
        << where << ", element " << i << ": " << a << " instead of " << b;
  }
}

void CompareWithTensorFlow(const fs::path& folder, const std::string& out) {
  const Json script = ReadJson(folder / "steps.json"),
             result = ReadJson(fs::path(out) / "result.json");
  ASSERT_FALSE(result.is_discarded());
  ASSERT_EQ(result["load"]["code"], "OK") << result["load"]["message"];
  ASSERT_EQ(result["steps"].size(), script["steps"].size());
  for (size_t i = 0; i < script["steps"].size(); ++i) {
    const Json& step = script["steps"][i];
    const Json& outcome = result["steps"][i];
    const std::string where = folder.filename().string() + " step " + std::to_string(i) + " (" +
                              step.value("name", "") + ")";
    if (step.contains("error")) {
      EXPECT_EQ(outcome["code"], step["error"]) << where << ": " << outcome["message"];
      if (step.contains("error_contains")) {
        const Json words = step["error_contains"].is_array()
                               ? step["error_contains"]
                               : Json::array({step["error_contains"]});
        for (const Json& word : words) {
          EXPECT_NE(outcome["message"].get<std::string>().find(word.get<std::string>()),
                    std::string::npos)
              << where << ": " << outcome["message"];
        }
      }
      continue;
    }
    EXPECT_EQ(outcome["code"], "OK") << where << ": " << outcome["message"];
    if (outcome["code"] != "OK" || !step.contains("expect")) continue;
    ASSERT_EQ(outcome["outputs"].size(), step["expect"].size()) << where;
    for (size_t j = 0; j < step["expect"].size(); ++j) {
      ExpectClose(out + "/" + outcome["outputs"][j].get<std::string>(),
                  (folder / step["expect"][j].get<std::string>()).string(), step.value("rtol", 0.0),
                  step.value("atol", 0.0), where + " fetch " + std::to_string(j));
    }
  }
}

class GoldenGraph : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenGraph, GivesTensorFlowsValuesInOneProcess) {
  const fs::path folder = fs::path(MG_GOLDEN_GRAPHS) / GetParam();
  TemporaryFolder out;
  RunScriptOptions options;
  options.model.path = (folder / "graph.pb").string();
  options.script = (folder / "steps.json").string();
  options.out = out.path();
  const Json script = ReadJson(folder / "steps.json");
  options.model.session.tensorflow_random_streams =
      script.value("tensorflow_random_streams", false);
  // A graph for a cluster runs here too when its tasks are waived.
  if (script.contains("cluster"))
    GTEST_SKIP() << "its device names need a cluster; see GoldenGraphOnCluster";
  const Result<bool> good = RunScript(options);
  ASSERT_TRUE(good.ok()) << good.status();
  CompareWithTensorFlow(folder, out.path());
}

std::vector<std::string> Graphs() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(MG_GOLDEN_GRAPHS)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, GoldenGraph, ::testing::ValuesIn(Graphs()),
                         [](const auto& graph) { return graph.param; });

class GoldenGraphOnCluster : public ::testing::TestWithParam<std::string> {};

// Adam on a CNN, conds over tasks with a loop behind them, variables by reference.
INSTANTIATE_TEST_SUITE_P(All, GoldenGraphOnCluster,
                         ::testing::Values("control_flow_cluster", "mnist_cnn_cluster",
                                           "ref_cluster"),
                         [](const auto& graph) { return graph.param; });

TEST_P(GoldenGraphOnCluster, GivesTensorFlowsValuesOverOnePsAndTwoWorkers) {
  const fs::path folder = fs::path(MG_GOLDEN_GRAPHS) / GetParam();
  TestCluster cluster({.ps = 1, .workers = 2});
  TemporaryFolder out;
  ChildProcess run({MonographPath(), "run", (folder / "graph.pb").string(),
                    "--script=" + (folder / "steps.json").string(), "--out=" + out.path(),
                    "--cluster=" + cluster.json(), "--log_device_placement=summary"});
  const std::optional<Exit> exit = run.Wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << run.error();
  CompareWithTensorFlow(folder, out.path());
  for (const char* task : {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0",
                           "/job:worker/replica:0/task:1"}) {
    EXPECT_NE(run.output().find(task), std::string::npos) << run.output();
  }
}

}  // namespace
}  // namespace monograph
