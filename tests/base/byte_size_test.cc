#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(ByteSize, IsReadWithAnyUnit) {
  for (const auto& [text, bytes] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"0", 0},
                                                              {"2000000", 2000000},
                                                              {"64 B", 64},
                                                              {"512M", int64_t{512} << 20},
                                                              {"1.5G", int64_t{3} << 29},
                                                              {"12GiB", int64_t{12} << 30},
                                                              {"12 gib", int64_t{12} << 30},
                                                              {"3KB", 3000},
                                                              {"1T", int64_t{1} << 40}}) {
    const Result<int64_t> parsed = ParseBytes(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ByteSize, WhatIsNoneIsRefusedWithAnExample) {
  for (const char* text : {"", "GiB", "-1", "1e9", "12 apples", "1GiBB", "12G 3M", "nan", "1K\n"}) {
    const Result<int64_t> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(ParseBytes("12 apples").status().message(),
            "'12 apples' is not a number of bytes, such as 12GiB, 1.5G or 512M");
  EXPECT_EQ(ParseBytes("99999999T").status().message(), "'99999999T' is out of range");
}

TEST(ByteSize, IsWrittenWithTheLargestUnit) {
  EXPECT_EQ(BytesText(12), "12 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{4} << 40), "4.0 TiB");
}

}  // namespace
}  // namespace monograph
