// Where a program finds its cluster: flags, the environment, or nothing.
#include "tools/session_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

constexpr char kJson[] = R"({"ps": ["a:1"], "worker": ["b:1", "b:2"]})";

class SessionFlagsTest : public ::testing::Test {
 protected:
  ~SessionFlagsTest() override {
    unsetenv("MONOGRAPH_CLUSTER");
    unsetenv("OMPI_COMM_WORLD_SIZE");
  }
  // What a program returns that takes the flags; its error in error_.
  std::optional<int> Parse(const std::vector<std::string>& arguments) {
    flags_ = SessionFlags();
    Flags flags("program", "Does things.");
    flags_.AddTo(&flags);
    ::testing::internal::CaptureStderr();
    const std::optional<int> exit = flags.Parse(arguments);
    error_ = ::testing::internal::GetCapturedStderr();
    return exit;
  }
  void ExpectWorkers(int workers) {
    const auto cluster = flags_.Cluster();
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    ASSERT_TRUE(cluster->has_value());
    EXPECT_EQ((*cluster)->num_tasks("worker"), workers);
  }
  TemporaryFolder folder_;
  SessionFlags flags_;
  std::string error_;
};

TEST_F(SessionFlagsTest, TheEnvironmentsClusterIsJsonOrAPath) {
  for (const std::string& value : {std::string(kJson), folder_.Write("cluster.json", kJson)}) {
    setenv("MONOGRAPH_CLUSTER", value.c_str(), 1);
    EXPECT_EQ(Parse({}), std::nullopt) << error_;
    ExpectWorkers(2);
  }
  setenv("MONOGRAPH_CLUSTER", "/nowhere/cluster.json", 1);
  const std::optional<int> exit = Parse({});
  const std::string message = exit ? error_ : flags_.Cluster().status().message();
  for (const char* part : {"MONOGRAPH_CLUSTER", "/nowhere/cluster.json"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  setenv("MONOGRAPH_CLUSTER", kJson, 1);
  EXPECT_EQ(Parse({"--worker_hosts=c:1"}), std::nullopt) << error_;
  ExpectWorkers(1);
}

TEST_F(SessionFlagsTest, TheEnvironmentsClusterMayBeNone) {
  setenv("MONOGRAPH_CLUSTER", "none", 1);
  EXPECT_EQ(Parse({}), std::nullopt) << error_;
  EXPECT_FALSE(flags_.Cluster().value().has_value());
}

TEST_F(SessionFlagsTest, WhatIsWrongIsNamedByItsFlag) {
  const auto refused = [&](const std::string& flag, const std::string& why) {
    EXPECT_EQ(Parse({flag}), 2) << flag;
    EXPECT_NE(error_.find(why), std::string::npos) << error_;
  };
  refused("--device_filters=worker", "--device_filters: Malformed device specification 'worker'");
  refused("--operation_timeout=1e300", "--operation_timeout is a number of seconds, 0 to 1e9");
  refused("--gpu_devices=-2", "--gpu_devices: must be at least -1, not -2");
  refused("--placement_file=" + folder_.File("p"), "--placement_file needs --log_device_placement");
}

TEST_F(SessionFlagsTest, AmongSeveralProcessesAProgramNeedsAClusterOrSaysThatItNeedsNone) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_EQ(Parse({}), 2);
  EXPECT_NE(error_.find("OMPI_COMM_WORLD_SIZE=2"), std::string::npos) << error_;
  EXPECT_EQ(SessionFlags().Cluster().status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Parse({"--cluster=none"}), std::nullopt) << error_;
  ASSERT_TRUE(flags_.Cluster().ok()) << flags_.Cluster().status();
  EXPECT_FALSE(flags_.Cluster()->has_value());
  EXPECT_EQ(Parse({std::string("--cluster=") + kJson}), std::nullopt) << error_;
  ExpectWorkers(2);
}

TEST_F(SessionFlagsTest, NoClusterHidesThatOfTheEnvironment) {
  setenv("MONOGRAPH_CLUSTER", kJson, 1);
  EXPECT_EQ(Parse({"--cluster=none"}), std::nullopt) << error_;
  ASSERT_TRUE(flags_.Cluster().ok());
  EXPECT_FALSE(flags_.Cluster()->has_value());
}

}  // namespace
}  // namespace monograph
