#include "base/pool_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
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

}  // namespace
}  // namespace monograph
