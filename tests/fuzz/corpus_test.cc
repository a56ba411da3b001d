// Runs every file of corpus/ through every target: what once broke a parser breaks it no more, and
// none takes long. In every build this program has the parsers with the sanitizers
// (tests/fuzz/CMakeLists.txt).
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/buffer.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};
#define MG_ROW(name) {#name, name},
constexpr Target kTargets[] = {MG_FUZZ_TARGETS(MG_ROW)};
#undef MG_ROW

TEST(FuzzCorpus, EveryTargetHasSeeds) {
  for (const Target& target : kTargets)
    EXPECT_FALSE(fs::is_empty(fs::path(MG_FUZZ_CORPUS) / target.name)) << target.name;
}

TEST(FuzzCorpus, EveryFileGoesThroughEveryTargetInASecondOfProcessorTime) {
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(MG_FUZZ_CORPUS)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    for (const Target& target : kTargets) {
      SCOPED_TRACE(entry.path().string() + " for " + target.name);
      ::testing::internal::CaptureStderr();  // what flags refuse
      ::testing::internal::CaptureStdout();  // --help
      const std::clock_t before = std::clock();
      target.run(bytes);
      const std::clock_t took = std::clock() - before;
      ::testing::internal::GetCapturedStdout();
      ::testing::internal::GetCapturedStderr();
      EXPECT_LT(took, CLOCKS_PER_SEC);
    }
  }
  EXPECT_GT(files, 90);
}

// A block is rounded up to 128 bytes and its neighbours are blocks too: only because the pool says
// which bytes belong to nobody does the sanitizer see an access there.
TEST(PoolUnderSanitizerDeathTest, ABytePastATensorsEndOrAfterItsLifeEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const size_t bytes : {size_t{100}, size_t{5000}, (size_t{2} << 20) + 100}) {
    auto* const data = static_cast<volatile char*>(HostAllocator()->Allocate(bytes));
    data[bytes - 1] = 1;
    EXPECT_DEATH(data[bytes] = 1, "use-after-poison");
    HostAllocator()->Deallocate(const_cast<char*>(data), bytes);
    EXPECT_DEATH(data[0] = 1, "use-after-poison");
  }
}

}  // namespace
}  // namespace monograph::fuzz
