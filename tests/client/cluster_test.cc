#include "client/cluster.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(ClusterSpec, ReadsTensorFlowsDictionary) {
  auto cluster =
      ClusterSpec::FromJson(R"({"ps": ["a:1"], "worker": {"1": "b:2", "0": "c:3"}})", "test");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->Address("worker", 1).value(), "b:2");
  EXPECT_EQ(cluster->Tasks("worker"),
            (std::vector<std::string>{"/job:worker/task:0", "/job:worker/task:1"}));
  auto again = ClusterSpec::FromJson(cluster->ToJson(), "test");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->jobs(), cluster->jobs());
}

TEST(ClusterSpec, NamesThePlaceOfAMistake) {
  auto message = [](const char* text) {
    return ClusterSpec::FromJson(text, "cluster.json").status().message();
  };
  EXPECT_NE(message("{\"ps\": [\n  oops]}").find("cluster.json, line 2"), std::string::npos)
      << message("{\"ps\": [\n  oops]}");
  EXPECT_NE(message(R"({"ps": ["nohost"]})").find("job 'ps', task 0"), std::string::npos);
  EXPECT_NE(message(R"({"ps": ["nohost"]})").find("\"nohost\" as a host-port pair"),
            std::string::npos);
  EXPECT_NE(message(R"({"1ps": ["a:1"]})").find("1ps"), std::string::npos);
  EXPECT_NE(message(R"({"ps": []})").find("no tasks"), std::string::npos);
  EXPECT_NE(message("[]").find("object"), std::string::npos);
  EXPECT_EQ(ClusterSpec::FromFile("/no/such/file.json").status().message(),
            "cannot read cluster file '/no/such/file.json': No such file or directory");
}

TEST(ClusterSpec, AnAddressIsThatOfOneTask) {
  const Status json =
      ClusterSpec::FromJson(R"({"ps": ["a:1"], "worker": ["b:1", "a:1"]})", "test").status();
  EXPECT_EQ(json.message(), "test, job 'worker', task 1: 'a:1' is already the address of ps/0");
  EXPECT_FALSE(ClusterSpec::FromHosts({{"worker", "b:1,b:1"}}).ok());
}

TEST(ClusterSpec, TensorFlowsWholeTfConfigIsRecognised) {
  const Status status =
      ClusterSpec::FromJson(
          R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})", "tf.json")
          .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("tf.json: this is TensorFlow's TF_CONFIG"), std::string::npos)
      << status;
}

TEST(ClusterSpec, ListsWhatThereIsWhenATaskIsMissing) {
  auto cluster = ClusterSpec::FromHosts({{"ps", "a:1"}, {"worker", "b:1,c:2"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NE(cluster->Address("worker", 5).status().message().find("ps/0, worker/0, worker/1"),
            std::string::npos);
}

}  // namespace
}  // namespace monograph
