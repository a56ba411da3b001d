#include "base/shared_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/pool_allocator.h"

namespace monograph {
namespace {

constexpr size_t kPage = SharedArena::kPage;

class SharedArenaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    arena_ = SharedArena::Start();
    if (arena_ == nullptr) GTEST_SKIP() << "this system gives shared memory no huge pages";
  }
  SharedArena* arena_ = nullptr;
};

TEST_F(SharedArenaTest, AReaderSeesWhatIsWrittenAndNothingOfWhatWasGivenBack) {
  char* const reader = MapArena(arena_->file(), arena_->bytes(), false);
  ASSERT_NE(reader, nullptr);
  char* const data = arena_->Map(4 * kPage);
  ASSERT_NE(data, nullptr);
  arena_->Fill(data, 4 * kPage);
  std::memset(data, 7, 4 * kPage);
  const size_t offset = arena_->OffsetOf(data, 4 * kPage).value();
  EXPECT_EQ(reader[offset], 7);
  EXPECT_EQ(reader[offset + 4 * kPage - 1], 7);
  EXPECT_TRUE(arena_->Unmap(data, 4 * kPage));
  EXPECT_EQ(reader[offset], 0) << "a hole";
  munmap(reader, arena_->bytes());
}

TEST_F(SharedArenaTest, TheFileIsItsOwnersAndCanOnlyBeReadByItsDescriptor) {
  struct stat info {};
  ASSERT_EQ(fstat(arena_->file(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_size, static_cast<off_t>(arena_->bytes()));
  EXPECT_EQ(MapArena(arena_->file(), arena_->bytes(), true), nullptr);
  EXPECT_NE(ftruncate(arena_->file(), 0), 0);
}

TEST_F(SharedArenaTest, WhatIsNotOfTheArenaIsLeftAlone) {
  std::vector<char> other(kPage);
  EXPECT_FALSE(arena_->OffsetOf(other.data(), other.size()).has_value());
  EXPECT_FALSE(arena_->Unmap(other.data(), other.size()));
  char* const data = arena_->Map(kPage);
  EXPECT_FALSE(arena_->OffsetOf(data, arena_->bytes() + 1).has_value());
  EXPECT_FALSE(arena_->OffsetOf(data - 1 - *arena_->OffsetOf(data, 1), 1).has_value());
  EXPECT_EQ(arena_->Map(arena_->bytes() + kPage), nullptr);
  EXPECT_TRUE(arena_->Unmap(data, kPage));
}

TEST_F(SharedArenaTest, RangesDoNotOverlapAndComeTogetherAgain) {
  std::mt19937 random(3);
  std::vector<std::pair<char*, size_t>> ranges;
  const size_t most = arena_->bytes() / kPage / 16 * kPage;
  for (int i = 0; i < 3000; ++i) {
    if (ranges.empty() || random() % 2 == 0) {
      const size_t bytes = (1 + random() % 40) * kPage;
      char* const data = arena_->Map(bytes);
      if (data == nullptr) continue;
      for (const auto& [other, size] : ranges)
        ASSERT_TRUE(data + bytes <= other || other + size <= data);
      ranges.emplace_back(data, bytes);
    } else {
      std::swap(ranges[random() % ranges.size()], ranges.back());
      EXPECT_TRUE(arena_->Unmap(ranges.back().first, ranges.back().second));
      ranges.pop_back();
    }
  }
  for (const auto& [data, bytes] : ranges) arena_->Unmap(data, bytes);
  char* const large = arena_->Map(most);
  EXPECT_NE(large, nullptr);
  arena_->Unmap(large, most);
}

TEST_F(SharedArenaTest, ThePoolTakesLargeBlocksFromItAndGivesThemBack) {
  PoolAllocator& pool = HostPool();
  void* const small = pool.Allocate(kPage / 2);
  void* const large = pool.Allocate(3 * kPage);
  EXPECT_FALSE(arena_->OffsetOf(small, 1).has_value());
  EXPECT_TRUE(arena_->OffsetOf(large, 3 * kPage).has_value());
  std::memset(large, 1, 3 * kPage);
  pool.Deallocate(large, 3 * kPage);
  pool.Deallocate(small, kPage / 2);
  EXPECT_EQ(pool.Allocate(3 * kPage), large) << "it is kept for later use";
  pool.Deallocate(large, 3 * kPage);
  PoolAllocator own("test");
  void* const elsewhere = own.Allocate(3 * kPage);
  EXPECT_FALSE(arena_->OffsetOf(elsewhere, 1).has_value()) << "only the process's own pool";
  own.Deallocate(elsewhere, 3 * kPage);
}

}  // namespace
}  // namespace monograph
