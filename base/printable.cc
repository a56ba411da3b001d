#include "base/printable.h"

#include <cstdio>

#include "base/json.h"

namespace monograph {
namespace {

// `character`: of UTF-8.
bool Steers(std::string_view character) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  switch (character.size()) {
    case 1:
      return at(0) < 0x20 || at(0) == 0x7f;
    case 2:
      return at(0) == 0xc2 && at(1) < 0xa0;
    case 3:  // U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069
      if (at(0) != 0xe2) return false;
      if (at(1) == 0x80) return at(2) == 0x8e || at(2) == 0x8f || (at(2) >= 0xa8 && at(2) <= 0xae);
      return at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;
    default:
      return false;
  }
}

}  // namespace

std::string Printable(std::string_view text, Lines lines) {
  std::string shown;
  while (!text.empty()) {
    size_t length = 1;
    while (length <= 4 && !IsUtf8(text.substr(0, length))) ++length;
    const bool is_character = length <= 4;
    if (!is_character) length = 1;
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    const bool separates = character == "\n" || character == "\t";
    if (is_character && (!Steers(character) || (separates && lines == Lines::kMany))) {
      shown += character;
      continue;
    }
    for (const char c : character) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
      shown += code;
    }
  }
  return shown;
}

}  // namespace monograph
