#include "base/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

class SystemMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n");
    Write("/proc/vmstat", "nr_free_pages 1\noom_kill 3\n");
    Write("/proc/self/cgroup", "");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string file = folder_.path() + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  TemporaryFolder folder_;
};

TEST_F(SystemMemoryTest, WithoutGroupsItIsTheMachines) {
  const SystemMemory memory = ReadSystemMemory(folder_.path());
  EXPECT_EQ(memory.total, 8192 * kMebibyte);
  EXPECT_EQ(memory.available, 4096 * kMebibyte);
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 3);
}

TEST_F(SystemMemoryTest, OfVersion2TheSmallestLimitOnThePathCounts) {
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/sys/fs/cgroup/outer/memory.max", "1073741824\n");
  Write("/sys/fs/cgroup/outer/memory.current", "805306368\n");
  Write("/sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 268435456\n");
  Write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("/sys/fs/cgroup/outer/inner/memory.events", "low 0\noom 2\noom_kill 2\n");
  const SystemMemory memory = ReadSystemMemory(folder_.path());
  EXPECT_EQ(memory.total, 1024 * kMebibyte);
  EXPECT_EQ(memory.available, 512 * kMebibyte);  // cached files would be given back
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 5);
}

TEST_F(SystemMemoryTest, OfVersion1InAContainerTheMountedRootIsTheGroup) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  Write("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
  const SystemMemory memory = ReadSystemMemory(folder_.path());
  EXPECT_EQ(memory.total, 2048 * kMebibyte);
  EXPECT_EQ(memory.available, 1024 * kMebibyte);
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 4);
}

TEST_F(SystemMemoryTest, ASystemThatSaysNothingOfItsKillsIsNotGuessedAt) {
  Write("/proc/vmstat", "nr_free_pages 1\n");
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), std::nullopt);
}

}  // namespace
}  // namespace monograph
