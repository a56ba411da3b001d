#include "base/device_name.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(DeviceName, ParsesAFullNameAndPrintsItBack) {
  const std::string text = "/job:worker/replica:0/task:1/device:GPU:3";
  Result<DeviceName> name = DeviceName::Parse(text);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_TRUE(name->full());
  EXPECT_EQ(name->ToString(), text);
  EXPECT_EQ(name->TaskName(), "/job:worker/replica:0/task:1");
}

TEST(DeviceName, TakesPartsInAnyOrderAndTheLegacyForm) {
  EXPECT_EQ(DeviceName::Parse("/task:2/job:w")->ToString(), "/job:w/task:2");
  EXPECT_EQ(DeviceName::Parse("/gpu:1")->ToString(), "/device:GPU:1");
  EXPECT_EQ(DeviceName::Parse("/CPU:0")->ToString(), "/device:CPU:0");
  EXPECT_EQ(DeviceName::Parse("/job:a/task:1/gpu:*")->ToString(), "/job:a/task:1/device:GPU:*");
  EXPECT_TRUE(DeviceName::Parse("")->empty());
  EXPECT_TRUE(DeviceName::Parse("/")->empty());
}

TEST(DeviceName, NamesWhatIsMalformed) {
  for (const char* bad :
       {"/gpu", "/job:1a", "/job:", "job:w", "/task:-1", "/task:x", "/device::0", "//", "/foo:1"}) {
    Result<DeviceName> name = DeviceName::Parse(bad);
    EXPECT_FALSE(name.ok()) << bad;
    EXPECT_NE(name.status().message().find(bad), std::string::npos) << name.status();
  }
}

TEST(DeviceName, MergesConstraintsFieldByField) {
  auto parse = [](const char* text) { return DeviceName::Parse(text).value(); };
  EXPECT_EQ(MergeConstraints(parse("/job:w"), parse("/device:GPU:0"), false)->ToString(),
            "/job:w/device:GPU:0");
  EXPECT_EQ(MergeConstraints(parse("/job:w"), parse("/job:ps"), true).status().message(),
            "Cannot merge devices with incompatible jobs: '/job:w' and '/job:ps'");
  EXPECT_FALSE(MergeConstraints(parse("/gpu:0"), parse("/gpu:1"), false).ok());
  EXPECT_EQ(MergeConstraints(parse("/gpu:0"), parse("/gpu:1"), true)->ToString(), "/device:GPU:*");
  EXPECT_TRUE(MergeConstraints(parse("/gpu:0"), parse("/cpu:0"), true)->empty());
}

TEST(DeviceName, AnOuterScopeFillsOnlyWhatTheInnerLeavesOpen) {
  auto parse = [](const char* text) { return DeviceName::Parse(text).value(); };
  EXPECT_EQ(MergeScope(parse("/cpu:0"), parse("/job:w/task:1/gpu:2")).ToString(),
            "/job:w/task:1/device:CPU:0");
}

TEST(DeviceName, TheHostOfADeviceIsTheFirstCpuOfItsTask) {
  auto host = [](const char* text) { return HostOf(DeviceName::Parse(text).value()).ToString(); };
  EXPECT_EQ(host("/job:w/task:1/gpu:2"), "/job:w/task:1/device:CPU:0");
  EXPECT_EQ(host("/job:w/device:TPU:*"), "/job:w/device:CPU:0");
  EXPECT_EQ(host("/job:w/task:1/cpu:3"), "/job:w/task:1/device:CPU:3");
  EXPECT_EQ(host("/job:w/task:1"), "/job:w/task:1");
}

}  // namespace
}  // namespace monograph
