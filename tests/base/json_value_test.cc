#include "base/json_value.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace monograph {
namespace {

using Json = nlohmann::json;

std::string JsonSaid(const std::string& text) {
  const Result<Json> json = ParseJson(text, "x.json");
  return json.ok() ? JsonText(*json) : json.status().ToString();
}

TEST(JsonValue, AGoodTextIsItsValue) {
  EXPECT_EQ(JsonSaid("{\"b\": [1, 2.5, null, true, \"\\u20ac\"], \"a\": {}}"),
            "{\"a\":{},\"b\":[1,2.5,null,true,\"\xe2\x82\xac\"]}");
}

TEST(JsonValue, EveryMistakeHasItsPlace) {
  EXPECT_EQ(JsonSaid("{\n  oops}"), "INVALID_ARGUMENT: x.json, line 2, column 3: not JSON");
  EXPECT_EQ(JsonSaid("[1,\n 1e999]"),
            "INVALID_ARGUMENT: x.json, line 2, column 2: the number 1e999 is out of range");
  EXPECT_EQ(JsonSaid("[\"\xff\"]"), "INVALID_ARGUMENT: x.json, line 1, column 3: not JSON");
  EXPECT_EQ(JsonSaid(std::string(60000, '[') + std::string(60000, ']')),
            "INVALID_ARGUMENT: x.json, line 1, column 101: brackets are nested more than 100 deep");
  EXPECT_EQ(JsonSaid("{\"a\": 1, \"a\": 2}"),
            "INVALID_ARGUMENT: x.json: an object has the key \"a\" twice");
  EXPECT_EQ(JsonSaid("{\"a\": 1, \"b\": {\"a\": 2}}"), "{\"a\":1,\"b\":{\"a\":2}}");
  EXPECT_EQ(JsonSaid(""), "INVALID_ARGUMENT: x.json, line 1, column 1: not JSON");
}

TEST(JsonValue, BytesThatAreNoTextAreWritten) {
  EXPECT_EQ(JsonText(Json{{"message", "a\xff"}}), "{\"message\":\"a\xef\xbf\xbd\"}");
  EXPECT_EQ(JsonText(nlohmann::ordered_json{"a\xff"}), "[\"a\xef\xbf\xbd\"]");
}

TEST(JsonValue, AnExcerptIsShortAndHasWholeCharacters) {
  EXPECT_EQ(JsonExcerpt(Json(7)), "7");
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  const std::string excerpt = JsonExcerpt(Json(euros));
  EXPECT_EQ(excerpt, "\"" + euros.substr(0, 78) + "...");
}

TEST(JsonValue, WholeNumbersAreThoseOfTheRange) {
  EXPECT_EQ(JsonWhole(Json::parse("3")).value(), 3u);
  EXPECT_EQ(JsonWhole(Json(3)).value(), 3u);
  EXPECT_EQ(JsonWhole(Json::parse("3.0")).value(), 3u);
  EXPECT_EQ(JsonWhole(Json::parse("18446744073709551615")).value(), UINT64_MAX);
  for (const char* bad : {"-1", "2.5", "1e300", "18446744073709551616", "\"3\"", "[3]", "null"})
    EXPECT_FALSE(JsonWhole(Json::parse(bad)).ok()) << bad;
  EXPECT_EQ(JsonWhole(Json(9), 8).status().message(), "9 is no whole number of 0 to 8");
}

}  // namespace
}  // namespace monograph
