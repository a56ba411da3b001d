// What a task makes of a machine's GPUs by its options; and that such devices take, and refuse, the
// memory that they say, over drivers that record.
#include "executor/gpu/logical_gpus.h"

#include <gtest/gtest.h>

#include <string>

#include "base/buffer.h"
#include "tests/gpu/fake/fake_gpus.h"

namespace monograph {
namespace {

using Logical = std::vector<LogicalGpu>;
constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

// A machine of GPUs of 16 GiB, of each of which 12 are free.
struct Machine {
  int count = 4;
  GpuMemorySize memory = {.free = 12 * kGiB, .total = 16 * kGiB};
  std::vector<int> asked = {};

  Result<Logical> Plan(const GpuOptions& options) {
    EXPECT_TRUE(CheckGpuOptions(options).ok());
    asked.clear();
    return PlanLogicalGpus(options, count, [this](int gpu) -> Result<GpuMemorySize> {
      asked.push_back(gpu);
      return memory;
    });
  }
};

std::vector<int> NumbersOf(const Result<Logical>& logical) {
  std::vector<int> numbers;
  for (const LogicalGpu& gpu : logical.value()) numbers.push_back(gpu.gpu);
  return numbers;
}

void ExpectText(const Status& status, Code code, const std::string& text) {
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), text);
}

TEST(LogicalGpus, AreTheVisibleOnesInTheirOrder) {
  Machine machine;
  EXPECT_EQ(NumbersOf(machine.Plan({})), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(NumbersOf(machine.Plan({.visible_device_list = "2,0"})), (std::vector<int>{2, 0}));
  EXPECT_EQ(machine.asked, (std::vector<int>{2, 0}));  // and the others are left alone
}

TEST(LogicalGpus, AreThePartOfThisProcessOfSeveralAndSharedWhereThereAreFewer) {
  Machine machine;
  const auto part = [&](int index, int count, const std::string& visible = "") {
    return NumbersOf(
        machine.Plan({.visible_device_list = visible, .share = {.index = index, .count = count}}));
  };
  using Gpus = std::vector<int>;
  EXPECT_EQ(part(0, 4), Gpus{0});
  EXPECT_EQ(part(3, 4), Gpus{3});
  EXPECT_EQ(machine.asked, Gpus{3});  // nothing is taken of the others
  EXPECT_EQ(part(0, 2), (Gpus{0, 1}));
  EXPECT_EQ(part(1, 2), (Gpus{2, 3}));
  EXPECT_EQ(part(0, 3), Gpus{0});
  EXPECT_EQ(part(2, 3), (Gpus{2, 3}));
  EXPECT_EQ(part(1, 2, "3,1"), Gpus{1});
  for (int process = 0; process < 8; ++process) EXPECT_EQ(part(process, 8), Gpus{process / 2});
  machine.count = 0;
  EXPECT_EQ(part(1, 2), Gpus());
}

TEST(LogicalGpus, OneThatTheMachineLacksIsNamedWithThoseThatItHas) {
  Machine machine;
  ExpectText(machine.Plan({.visible_device_list = "0,7"}).status(), Code::kInvalidArgument,
             "visible_device_list '0,7' names GPU 7; this machine has GPUs 0 to 3");
  EXPECT_TRUE(machine.asked.empty());
  machine.count = 1;
  ExpectText(machine.Plan({.visible_device_list = "1"}).status(), Code::kInvalidArgument,
             "visible_device_list '1' names GPU 1; this machine has only GPU 0");
  ExpectText(machine.Plan({.virtual_device_memory_mb = {{}, {1024}}}).status(),
             Code::kInvalidArgument, "virtual_gpus is given for 2 GPUs; this task sees 1");
}

TEST(LogicalGpus, AreNoMoreThanDeviceCountAndTheRestOfTheMachineIsNotTouched) {
  Machine machine;
  EXPECT_EQ(NumbersOf(machine.Plan({.device_count = 2, .visible_device_list = "3,1,0"})),
            (std::vector<int>{3, 1}));
  EXPECT_EQ(machine.asked, (std::vector<int>{3, 1}));
  EXPECT_EQ(NumbersOf(machine.Plan({.device_count = 9})), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(machine.Plan({.device_count = 0}).value(), Logical());
  EXPECT_TRUE(machine.asked.empty());
  // It counts logical devices; what is left out of a split takes no memory.
  EXPECT_EQ(machine.Plan({.device_count = 1, .virtual_device_memory_mb = {{8192, 8192}}}).value(),
            (Logical{{0, 0, 2, 8 * kGiB}}));
}

TEST(LogicalGpus, TakeAPartOfTheWholeMemoryOrAllThatIsFreeButAReserve) {
  Machine machine{.count = 1};
  EXPECT_EQ(machine.Plan({.per_process_gpu_memory_fraction = 0.25}).value(),
            (Logical{{0, 0, 1, 4 * kGiB}}));
  EXPECT_EQ(machine.Plan({}).value(), (Logical{{0, 0, 1, 12 * kGiB - 512 * kMiB}}));
  EXPECT_EQ(machine.Plan({.allow_growth = true}).value(),
            (Logical{{0, 0, 1, 12 * kGiB - 512 * kMiB}}));
}

TEST(LogicalGpus, WhatIsNotFreeIsRefusedUnlessMemoryGrows) {
  Machine machine{.count = 1};
  ExpectText(machine.Plan({.per_process_gpu_memory_fraction = 0.9}).status(),
             Code::kResourceExhausted,
             "GPU 0 has 12.0 GiB of 16.0 GiB free; per_process_gpu_memory_fraction 0.900000 is to "
             "take 14.4 GiB. Give at most 0.75, or set allow_growth");
  EXPECT_TRUE(machine.Plan({.per_process_gpu_memory_fraction = 0.9, .allow_growth = true}).ok());
  ExpectText(machine.Plan({.virtual_device_memory_mb = {{8192, 8192}}}).status(),
             Code::kResourceExhausted,
             "GPU 0 has 12.0 GiB of 16.0 GiB free; its virtual_gpus are to take 16.0 GiB together. "
             "Give smaller ones, or set allow_growth");
  machine.memory.free = 256 * kMiB;
  for (const bool grow : {false, true})
    ExpectText(machine.Plan({.allow_growth = grow}).status(), Code::kResourceExhausted,
               "GPU 0 has 0.3 GiB of 16.0 GiB free; that is not more than the reserve of 0.5 GiB "
               "for CUDA's own needs. Name another GPU in visible_device_list, or end what uses "
               "this one");
}

TEST(LogicalGpus, OneGpuIsSplitIntoSeveralAndAnotherIsLimited) {
  Machine machine;
  EXPECT_EQ(machine
                .Plan({.visible_device_list = "3,1,0",
                       .virtual_device_memory_mb = {{1024, 2048}, {}, {4096}}})
                .value(),
            (Logical{{3, 0, 2, kGiB},
                     {3, 1, 2, 2 * kGiB},
                     {1, 0, 1, 12 * kGiB - 512 * kMiB},
                     {0, 0, 1, 4 * kGiB}}));
}

// What a device of such a limit takes from its driver, at once and later.
void ExpectMemoryIsTheDevicesLimit(bool grow) {
  Machine machine{.count = 1, .memory = {.free = 1024 * kMiB, .total = 1024 * kMiB}};
  const auto plan = machine.Plan({.allow_growth = grow, .virtual_device_memory_mb = {{96, 160}}});
  const auto world = testing::RecordingDriver::NewWorld();
  for (const LogicalGpu& logical : plan.value()) {
    const int64_t limit = (logical.part == 0 ? 96 : 160) * kMiB;
    EXPECT_EQ(logical.memory_limit, limit);
    auto gpu = testing::MakeFakeGpu(
        logical.part == 0 ? testing::kGpu0 : testing::kGpu1, world, 1,
        {.memory_limit = static_cast<size_t>(logical.memory_limit), .allow_growth = grow});
    const auto taken = [&] { return gpu.driver->counts().device_bytes; };
    EXPECT_EQ(taken(), grow ? 0 : limit);
    GpuMemory& memory = gpu.device->memory();
    {
      const Buffer first = Buffer::Allocate(&memory, 80 * kMiB);
      EXPECT_TRUE(first);
      EXPECT_EQ(taken(), grow ? 80 * kMiB : limit);
      const Buffer second = Buffer::Allocate(&memory, 64 * kMiB);
      EXPECT_EQ(static_cast<bool>(second), logical.part == 1);  // 96 MiB are no 144
      EXPECT_FALSE(Buffer::Allocate(&memory, 32 * kMiB));
      EXPECT_LE(taken(), limit);
    }
    EXPECT_EQ(memory.bytes_in_use(), 0);
  }
}

TEST(LogicalGpuMemory, IsTakenAtOnce) { ExpectMemoryIsTheDevicesLimit(/*grow=*/false); }
TEST(LogicalGpuMemory, IsTakenAsItIsNeededUpToTheLimitIfItMayGrow) {
  ExpectMemoryIsTheDevicesLimit(/*grow=*/true);
}

}  // namespace
}  // namespace monograph
