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

}  // namespace
}  // namespace monograph
