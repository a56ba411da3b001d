// JSON that is written piece by piece.
#pragma once

#include <string>
#include <string_view>

namespace monograph {

// The text as a string of JSON, with its quotes. Bytes that are no UTF-8 become U+FFFD.
std::string JsonQuoted(std::string_view text);

// Whether a text can be written as JSON as it is.
bool IsUtf8(std::string_view text);

}  // namespace monograph
