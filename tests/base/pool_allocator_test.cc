#include "base/pool_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace monograph {
namespace {

TEST(PoolAllocator, BlocksAreAlignedDistinctAndLargeEnough) {
  PoolAllocator pool("test");
  std::vector<std::pair<char*, size_t>> blocks;
  for (size_t bytes : {0ul, 1ul, 127ul, 128ul, 129ul, 1000ul, 1024ul, 1025ul, 4096ul, 5000ul,
                       100000ul, 2097152ul, 2097153ul, 9000000ul}) {
    auto* block = static_cast<char*>(pool.Allocate(bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kBufferAlignment, 0u) << bytes;
    std::memset(block, static_cast<int>(blocks.size()), bytes);
    blocks.emplace_back(block, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t k = 0; k < blocks[i].second; k += 997)
      EXPECT_EQ(blocks[i].first[k], static_cast<char>(i));
    pool.Deallocate(blocks[i].first, blocks[i].second);
  }
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST(PoolAllocator, ARepeatedPatternMapsNothingNew) {
  PoolAllocator pool("test");
  int64_t mapped = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (size_t bytes = 100; bytes < 3000000; bytes = bytes * 3 / 2)
      blocks.push_back(pool.Allocate(bytes));
    size_t i = 0;
    for (size_t bytes = 100; bytes < 3000000; bytes = bytes * 3 / 2)
      pool.Deallocate(blocks[i++], bytes);
    if (round > 0) {
      EXPECT_EQ(pool.bytes_mapped(), mapped);
    }
    mapped = pool.bytes_mapped();
  }
}

TEST(PoolAllocator, AnImpossibleSizeIsRefused) {
  PoolAllocator pool("test");
  EXPECT_EQ(pool.Allocate(SIZE_MAX / 2), nullptr);
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST(PoolAllocator, ThreadsShareIt) {
  PoolAllocator pool("test");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = static_cast<size_t>(64 + (i * 37 + t * 11) % 5000);
        auto* block = static_cast<char*>(pool.Allocate(bytes));
        block[0] = static_cast<char>(t);
        block[bytes - 1] = static_cast<char>(t);
        ASSERT_EQ(block[0], static_cast<char>(t));
        pool.Deallocate(block, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

constexpr size_t kMiB = size_t{1} << 20;

TEST(PoolAllocator, NothingIsMappedBeyondTheLimit) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  EXPECT_EQ(pool.Allocate(101 * kMiB), nullptr);
  EXPECT_EQ(pool.Allocate(size_t{4} << 40), nullptr);
  EXPECT_EQ(pool.bytes_mapped(), 0);
  void* const first = pool.Allocate(60 * kMiB);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(pool.Allocate(60 * kMiB), nullptr);
  EXPECT_EQ(pool.Explain(60 * kMiB),
            "60.0 MiB are more than the 40.0 MiB that are free of 100.0 MiB (--memory_limit); held "
            "by: other tensors (60.0 MiB)");
  void* const second = pool.Allocate(38 * kMiB);
  ASSERT_NE(second, nullptr);
  // Small blocks for the runtime itself are never refused.
  std::vector<void*> small;
  for (int i = 0; i < 3000; ++i) small.push_back(pool.Allocate(2000));
  EXPECT_EQ(std::count(small.begin(), small.end(), nullptr), 0);
  EXPECT_EQ(pool.Allocate(kMiB), nullptr);
  for (void* block : small) pool.Deallocate(block, 2000);
  pool.Deallocate(second, 38 * kMiB);
  pool.Deallocate(first, 60 * kMiB);
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST(PoolAllocator, FreeLargeBlocksGoBackToTheSystemBeforeSomethingIsRefused) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  void* const large = pool.Allocate(90 * kMiB);
  pool.Deallocate(large, 90 * kMiB);
  EXPECT_EQ(pool.Allocate(90 * kMiB), large);  // recycled
  pool.Deallocate(large, 90 * kMiB);
  void* const other = pool.Allocate(50 * kMiB);
  ASSERT_NE(other, nullptr);
  EXPECT_LT(pool.bytes_mapped(), static_cast<int64_t>(60 * kMiB));
  pool.Deallocate(other, 50 * kMiB);
}

TEST(PoolAllocator, ARefusalNamesTheLargestHolders) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  const auto variable = std::make_shared<MemoryHolder>("variable 'w'");
  auto session = std::make_shared<MemoryHolder>("session 17");
  void *a, *b;
  {
    const MemoryHolder::Scope scope(session.get());
    a = pool.Allocate(40 * kMiB);
    b = pool.Allocate(20 * kMiB);
  }
  EXPECT_EQ(session->bytes(), static_cast<int64_t>(60 * kMiB));
  // Assigned to a variable: any address in the block says which it is.
  pool.SetHolder(static_cast<char*>(b) + 64, variable);
  EXPECT_EQ(pool.Explain(50 * kMiB),
            "50.0 MiB are more than the 40.0 MiB that are free of 100.0 MiB (--memory_limit); held "
            "by: session 17 (40.0 MiB), variable 'w' (20.0 MiB)");
  pool.SetHolderLike(a, b);
  EXPECT_EQ(variable->bytes(), static_cast<int64_t>(60 * kMiB));
  EXPECT_EQ(session->bytes(), 0);
  session = nullptr;  // its blocks would keep it
  pool.Deallocate(a, 40 * kMiB);
  pool.Deallocate(b, 20 * kMiB);
  EXPECT_EQ(variable->bytes(), 0);
}

TEST(PoolAllocator, ASessionTakesNotAllWhileOthersAreOpen) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  const auto greedy = std::make_shared<MemoryHolder>("session 1", /*shares=*/true);
  const MemoryHolder::Scope scope(greedy.get());
  void* const alone = pool.Allocate(90 * kMiB);
  EXPECT_NE(alone, nullptr);
  pool.Deallocate(alone, 90 * kMiB);
  const auto other = std::make_shared<MemoryHolder>("session 2", /*shares=*/true);
  EXPECT_EQ(pool.Allocate(90 * kMiB), nullptr);
  EXPECT_EQ(pool.Explain(90 * kMiB),
            "90.0 MiB more are too much: while other sessions are open session 1 may hold three "
            "quarters of 100.0 MiB (--memory_limit)");
  other->Retire();
  void* const again = pool.Allocate(90 * kMiB);
  EXPECT_NE(again, nullptr);
  pool.Deallocate(again, 90 * kMiB);
}

// Blocks of `bytes` until there are no more.
std::vector<void*> TakeAll(PoolAllocator& pool, size_t bytes) {
  std::vector<void*> blocks;
  while (void* block = pool.Allocate(bytes)) blocks.push_back(block);
  return blocks;
}

TEST(PoolAllocator, WhatSmallBlocksHadServesOtherSizesOnceTheyAreFree) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  for (const size_t bytes : {size_t{5000}, size_t{20000}, kMiB / 2, 3 * kMiB / 2}) {
    std::vector<void*> blocks = TakeAll(pool, bytes);
    EXPECT_GT(blocks.size() * bytes, 70 * kMiB) << bytes;
    EXPECT_EQ(pool.Allocate(8 * kMiB), nullptr);
    for (void* block : blocks) pool.Deallocate(block, bytes);
    // All of it for one large block; then for the next size.
    void* const large = pool.Allocate(90 * kMiB);
    ASSERT_NE(large, nullptr) << bytes;
    EXPECT_LE(pool.bytes_mapped(), static_cast<int64_t>(100 * kMiB));
    pool.Deallocate(large, 90 * kMiB);
  }
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST(PoolAllocator, ABlockInUseKeepsItsOwnChunkAlone) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  std::vector<void*> blocks = TakeAll(pool, 10000);
  std::vector<char*> kept;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2000 == 7) {
      kept.push_back(static_cast<char*>(blocks[i]));
      std::memset(kept.back(), static_cast<int>(kept.size()), 10000);
    } else {
      pool.Deallocate(blocks[i], 10000);
    }
  }
  ASSERT_GT(kept.size(), 3u);
  const size_t room = 100 * kMiB - (kept.size() + 2) * PoolAllocator::kLarge;
  void* const large = pool.Allocate(room);
  ASSERT_NE(large, nullptr);
  std::memset(large, 0, room);
  // What is left of their chunks is given out still, and nothing of it twice.
  blocks = TakeAll(pool, 10000);
  for (void* block : blocks) std::memset(block, 0, 10000);
  for (size_t i = 0; i < kept.size(); ++i) {
    for (size_t k = 0; k < 10000; k += 99) ASSERT_EQ(kept[i][k], static_cast<char>(i + 1));
    pool.Deallocate(kept[i], 10000);
  }
  for (void* block : blocks) pool.Deallocate(block, 10000);
  pool.Deallocate(large, room);
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST(PoolAllocator, MemoryFromElsewhereCountsAndBelongsToWhoAsked) {
  PoolAllocator pool("test");
  pool.SetLimit(100 * kMiB);
  const auto session = std::make_shared<MemoryHolder>("session 1", /*shares=*/true);
  const auto other = std::make_shared<MemoryHolder>("session 2", /*shares=*/true);
  const MemoryHolder::Scope scope(session.get());
  std::shared_ptr<void> room = pool.Reserve(50 * kMiB);
  ASSERT_NE(room, nullptr);
  EXPECT_EQ(session->bytes(), static_cast<int64_t>(50 * kMiB));
  EXPECT_EQ(pool.Reserve(30 * kMiB), nullptr);  // beyond its share
  EXPECT_NE(pool.Explain(30 * kMiB).find("held by: session 1 (50.0 MiB)"), std::string::npos)
      << pool.Explain(30 * kMiB);
  room = nullptr;
  EXPECT_EQ(session->bytes(), 0);
  EXPECT_NE(pool.Reserve(70 * kMiB), nullptr);
}

}  // namespace
}  // namespace monograph
