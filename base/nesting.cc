#include "base/nesting.h"

#include <algorithm>

namespace monograph {
namespace {

// The index behind the string that begins at `quote`; the line's end if it is not closed.
size_t EndOfString(std::string_view text, size_t quote) {
  size_t at = quote + 1;
  while (at < text.size() && text[at] != '\n') {
    if (text[at] == text[quote]) return at + 1;
    at += text[at] == '\\' && at + 1 < text.size() && text[at + 1] != '\n' ? 2 : 1;
  }
  return at;
}

}  // namespace

Status CheckNesting(std::string_view text, std::string_view source) {
  size_t depth = 0;
  for (size_t at = 0; at < text.size();) {
    switch (text[at]) {
      case '{':
      case '[':
      case '<':
        if (++depth > kMostNesting) {
          return InvalidArgument(std::string(source) + ", " + PlaceInText(text, at) +
                                 ": brackets are nested more than " + std::to_string(kMostNesting) +
                                 " deep");
        }
        break;
      case '}':
      case ']':
      case '>':
        depth -= depth > 0 ? 1 : 0;
        break;
      case '"':
      case '\'':
        at = EndOfString(text, at);
        continue;
      case '#':
        at = std::min(text.find('\n', at), text.size());
        continue;
      default:
        break;
    }
    ++at;
  }
  return Status();
}

std::string PlaceInText(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return "line " + std::to_string(lines + 1) + ", column " +
         std::to_string(before.size() - line_begin + 1);
}

}  // namespace monograph
