#include "executor/gpu_options.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

TEST(GpuOptions, AListOfVisibleDevicesIsNumbersWithoutRepetition) {
  EXPECT_EQ(ParseVisibleDeviceList("").value(), std::vector<int>());
  EXPECT_EQ(ParseVisibleDeviceList("2, 0").value(), (std::vector<int>{2, 0}));
  for (const char* wrong : {"a", "0,", "-1", "1,1", "0 1"})
    EXPECT_EQ(ParseVisibleDeviceList(wrong).status().code(), Code::kInvalidArgument) << wrong;
}

TEST(GpuOptions, VirtualGpusAreSizesPerGpu) {
  EXPECT_EQ(ParseVirtualGpus("").value(), Sizes());
  EXPECT_EQ(ParseVirtualGpus("2x4096;8192").value(), (Sizes{{4096, 4096}, {8192}}));
  EXPECT_EQ(ParseVirtualGpus(";100,200").value(), (Sizes{{}, {100, 200}}));
  for (const char* wrong : {"x4", "0x4", "4x", "0", "-5", "many", "1000000x1"})
    EXPECT_EQ(ParseVirtualGpus(wrong).status().code(), Code::kInvalidArgument) << wrong;
}

TEST(GpuOptions, OptionsThatContradictEachOtherAreRefused) {
  EXPECT_TRUE(CheckGpuOptions({}).ok());
  EXPECT_TRUE(
      CheckGpuOptions({.visible_device_list = "0,1", .virtual_device_memory_mb = {{1024, 1024}}})
          .ok());
  for (const GpuOptions& wrong :
       {GpuOptions{.device_count = -2}, GpuOptions{.visible_device_list = "0,0"},
        GpuOptions{.per_process_gpu_memory_fraction = 1.5},
        GpuOptions{.per_process_gpu_memory_fraction = -0.1},
        GpuOptions{.virtual_device_memory_mb = {{0}}},
        GpuOptions{.visible_device_list = "0", .virtual_device_memory_mb = {{1}, {1}}},
        GpuOptions{.per_process_gpu_memory_fraction = 0.5, .virtual_device_memory_mb = {{1}}}})
    EXPECT_EQ(CheckGpuOptions(wrong).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace monograph
