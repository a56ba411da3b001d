#include "base/nesting.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

std::string Times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}
std::string Nested(const std::string& text) { return CheckNesting(text, "x").message(); }

TEST(Nesting, OneBracketTooManyIsNamedWithItsPlace) {
  EXPECT_EQ(Nested(Times(100, "[") + Times(100, "]")), "");
  EXPECT_EQ(Nested("\n" + Times(101, "{")),
            "x, line 2, column 101: brackets are nested more than 100 deep");
  EXPECT_EQ(Nested(Times(50, "a<[")), "");
  EXPECT_NE(Nested(Times(51, "a<[")), "");
  EXPECT_EQ(Nested(Times(1000, "[]{}<>")), "");
  EXPECT_NE(Nested(Times(3, "}") + Times(101, "{")), "");
}

TEST(Nesting, BracketsInStringsAndCommentsDoNotCount) {
  const std::string many = Times(200, "[");
  EXPECT_EQ(Nested("\"" + many + "\\\"" + many + "\""), "");
  EXPECT_EQ(Nested("'" + many + "\"" + many + "'"), "");
  EXPECT_EQ(Nested("# " + many + "\n{}"), "");
  // A string ends with its line, as the parsers have it: what follows is no string.
  EXPECT_NE(Nested("\"\n" + many), "");
  EXPECT_NE(Nested("'\\\n" + many), "");
}

TEST(Nesting, PlacesCountFromOne) {
  EXPECT_EQ(PlaceInText("ab\nc", 0), "line 1, column 1");
  EXPECT_EQ(PlaceInText("ab\nc", 3), "line 2, column 1");
  EXPECT_EQ(PlaceInText("ab\nc", 99), "line 2, column 2");
}

}  // namespace
}  // namespace monograph
