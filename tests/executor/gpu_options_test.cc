#include "executor/gpu_options.h"

#include <gtest/gtest.h>

#include <string>

namespace monograph {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

// That it is refused, and that the text has the value and what would be right.
void ExpectRefused(const Status& status, const std::string& value, const std::string& right) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << value;
  EXPECT_NE(status.message().find(value), std::string::npos) << status;
  EXPECT_NE(status.message().find(right), std::string::npos) << status;
}

TEST(GpuOptions, AListOfVisibleDevicesIsNumbersWithoutRepetition) {
  EXPECT_EQ(ParseVisibleDeviceList("").value(), std::vector<int>());
  EXPECT_EQ(ParseVisibleDeviceList("2, 0").value(), (std::vector<int>{2, 0}));
  for (const char* wrong : {"a", "0,", "-1", "0 1"})
    ExpectRefused(ParseVisibleDeviceList(wrong).status(),
                  "visible_device_list '" + std::string(wrong) + "'", "write, for instance, '1,0'");
  ExpectRefused(ParseVisibleDeviceList("1,1").status(), "visible_device_list '1,1'",
                "GPU 1 is there twice");
}

TEST(GpuOptions, VirtualGpusAreSizesPerGpu) {
  EXPECT_EQ(ParseVirtualGpus("").value(), Sizes());
  EXPECT_EQ(ParseVirtualGpus("2x4096;8192").value(), (Sizes{{4096, 4096}, {8192}}));
  EXPECT_EQ(ParseVirtualGpus(";100,200").value(), (Sizes{{}, {100, 200}}));
  for (const char* wrong : {"x4", "0x4", "4x", "0", "-5", "many", "1000000x1"})
    ExpectRefused(ParseVirtualGpus(wrong).status(), "virtual_gpus '" + std::string(wrong) + "'",
                  "write, for instance, '2x4096;8192'");
}

TEST(GpuOptions, AShareIsOneOfSeveral) {
  EXPECT_EQ(ParseGpuShare("1/4").value(), (GpuShare{1, 4}));
  EXPECT_EQ(ParseGpuShare("0/1").value(), GpuShare());
  for (const char* wrong : {"", "1", "4/4", "-1/2", "1/0", "1/2/3", "a/2"})
    ExpectRefused(ParseGpuShare(wrong).status(), "gpu_share '" + std::string(wrong) + "'",
                  "write, for instance, '1/4'");
}

TEST(GpuOptions, OptionsThatContradictEachOtherAreRefused) {
  EXPECT_TRUE(CheckGpuOptions({}).ok());
  EXPECT_TRUE(
      CheckGpuOptions({.visible_device_list = "0,1", .virtual_device_memory_mb = {{1024, 1024}}})
          .ok());
  ExpectRefused(CheckGpuOptions({.device_count = -2}), "device_count[kGpu] is -2", "-1 for all");
  ExpectRefused(CheckGpuOptions({.visible_device_list = "0,0"}), "'0,0'", "twice");
  for (const double wrong : {1.5, -0.1})
    ExpectRefused(CheckGpuOptions({.per_process_gpu_memory_fraction = wrong}),
                  "per_process_gpu_memory_fraction is " + std::to_string(wrong), "from 0 to 1");
  ExpectRefused(CheckGpuOptions({.virtual_device_memory_mb = {{0}}}), "virtual_gpus",
                "at least 1 MiB, not 0");
  ExpectRefused(
      CheckGpuOptions({.visible_device_list = "0", .virtual_device_memory_mb = {{1}, {1}}}),
      "virtual_gpus splits 2 GPUs", "names only 1");
  ExpectRefused(
      CheckGpuOptions({.per_process_gpu_memory_fraction = 0.5, .virtual_device_memory_mb = {{1}}}),
      "per_process_gpu_memory_fraction is 0.5", "give one of the two");
}

}  // namespace
}  // namespace monograph
