#include "base/json.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(Json, QuotesAndEscapesText) {
  EXPECT_EQ(JsonQuoted("a/MatMul:0"), "\"a/MatMul:0\"");
  EXPECT_EQ(JsonQuoted("say \"\\\""), "\"say \\\"\\\\\\\"\"");
  EXPECT_EQ(JsonQuoted("one\ntwo\x01"), "\"one\\ntwo\\u0001\"");
  EXPECT_EQ(JsonQuoted("\xe2\x82\xac"), "\"\xe2\x82\xac\"");
}

TEST(Json, BytesThatAreNoTextDoNotThrow) { EXPECT_EQ(JsonQuoted("a\xff"), "\"a\xef\xbf\xbd\""); }

TEST(Json, Utf8IsToldFromOtherBytes) {
  for (const char* good :
       {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x98", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(IsUtf8(good)) << good;
  // A byte that begins nothing, a character cut off, longer forms than needed, half a pair of
  // UTF-16, beyond the last character.
  for (const char* bad : {"\x80", "\xff", "\xe2\x82", "\xe2\x82z", "\xc0\x80", "\xe0\x80\x80",
                          "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_FALSE(IsUtf8(bad)) << JsonQuoted(bad);
}

}  // namespace
}  // namespace monograph
