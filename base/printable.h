// Printable: text that others wrote, for a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace monograph {

enum class Lines : bool { kOne, kMany };

// The text with \x1b and the like for what would steer a terminal instead of being seen: control
// characters, bytes that are no UTF-8, and the marks that turn the direction of writing. With
// kMany, line feeds and tabs stay.
std::string Printable(std::string_view text, Lines lines = Lines::kMany);

}  // namespace monograph
