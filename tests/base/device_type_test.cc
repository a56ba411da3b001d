#include "base/device_type.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(DeviceType, IsParsedAndPrintedByName) {
  EXPECT_EQ(DeviceType::Parse("GPU").value(), kGpu);
  EXPECT_EQ(kCpu.name(), "CPU");
  EXPECT_EQ(DeviceType::Parse("XLA_GPU_JIT")->ToString(), "XLA_GPU_JIT");
  EXPECT_NE(DeviceType::Parse("gpu").value(), kGpu);
  EXPECT_TRUE(DeviceType().empty());
  EXPECT_EQ(DeviceType().name(), "");
}

TEST(DeviceType, WhatNamesNoneIsRefused) {
  for (const char* bad : {"", "1GPU", "_GPU", "G PU", "ATypeOf16Letters"}) {
    const Result<DeviceType> type = DeviceType::Parse(bad);
    ASSERT_FALSE(type.ok()) << bad;
    EXPECT_NE(type.status().message().find("'" + std::string(bad) + "' is no type of device"),
              std::string::npos)
        << type.status();
  }
  EXPECT_TRUE(DeviceType::Parse("ATypeOf15Letter").ok());
}

TEST(DeviceType, OnlyTypesOfThisBuildHaveAShortForm) {
  EXPECT_EQ(DeviceType::FromShortForm("gpu"), kGpu);
  EXPECT_EQ(DeviceType::FromShortForm("CPU"), kCpu);
  EXPECT_TRUE(DeviceType::FromShortForm("Gpu").empty());
  EXPECT_TRUE(DeviceType::FromShortForm("tpu").empty());
}

TEST(DeviceType, AcceleratorsComeBeforeTheHost) {
  const DeviceType other = DeviceType::Parse("TPU").value();
  EXPECT_GT(kGpu.priority(), other.priority());
  EXPECT_GT(other.priority(), kCpu.priority());
}

}  // namespace
}  // namespace monograph
