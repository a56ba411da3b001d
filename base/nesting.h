// How deeply brackets are nested in a text that somebody gave us, found without recursion, before a
// parser that recurses sees it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

// Deeper texts are taken for a mistake.
inline constexpr size_t kMostNesting = 100;

// InvalidArgument if {, [ or < are nested more deeply than kMostNesting, with `source`, line and
// column. Brackets in strings ("..." or '...' on one line, with backslashes) do not count, nor
// those in comments (# to the end of the line): so it fits JSON and text of protocol buffers.
Status CheckNesting(std::string_view text, std::string_view source);

// "line 3, column 14" of byte `offset`, which counts from 0.
std::string PlaceInText(std::string_view text, size_t offset);

}  // namespace monograph
