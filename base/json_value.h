// JSON as values: read from what somebody gave us (a file, a flag, the environment) and written
// with whatever is in it. Depth, UTF-8 and the range of numbers are checked here, and no exception
// of the JSON library comes through.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

// InvalidArgument "SOURCE, line 3, column 14: ..." for what is no JSON, is nested more deeply than
// kMostNesting (base/nesting.h), has a key twice in one object, or a number that no double holds,
// which is named. Objects are sorted by their keys: reading one takes n log n for n keys.
Result<nlohmann::json> ParseJson(std::string_view text, std::string_view source);

// The value as a text. Bytes that are no UTF-8, of a message that quotes a file for instance,
// become U+FFFD; the library would throw. `indent` as in Json::dump.
std::string JsonText(const nlohmann::json& value, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& value, int indent = -1);

// The value as JSON for a message: on one line, cut after some 80 characters.
std::string JsonExcerpt(const nlohmann::json& value);

// A whole number of [0, most], also written as 3.0. InvalidArgument "... is no whole number ...".
Result<uint64_t> JsonWhole(const nlohmann::json& value, uint64_t most = UINT64_MAX);

}  // namespace monograph
