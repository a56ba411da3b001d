// A regular expression, up to the first line's end, and a text: whether it matches, and where.
#include <algorithm>
#include <cctype>

#include "ops/string/regex_cpu.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void regex(std::string_view bytes) {
  const std::string_view pattern = bytes.substr(0, bytes.find('\n'));
  const std::string_view text = bytes.substr(std::min(bytes.size(), pattern.size() + 1));
  const Result<ops::string::Regex> parsed = ops::string::Regex::Parse(pattern);
  if (!parsed.ok()) {
    MG_CHECK(parsed.status().code() == Code::kInvalidArgument);
    return;
  }
  const bool matches = parsed->FullMatch(text);
  std::vector<ops::string::Regex::Span> spans(
      static_cast<size_t>(std::min(parsed->groups(), 9) + 1));
  const bool found = parsed->Find(text, 0, &spans);
  if (matches) MG_CHECK(found && spans[0].begin == 0);
  for (size_t i = 0; found && i < spans.size(); ++i) {
    const auto [begin, end] = spans[i];
    if (i > 0 && (begin < 0 || end < 0)) continue;  // not on the way of this match
    MG_CHECK(spans[0].begin <= begin && begin <= end && end <= spans[0].end);
  }
  const auto is_literal = [](unsigned char letter) { return std::isalnum(letter) != 0; };
  if (std::all_of(pattern.begin(), pattern.end(), is_literal))
    MG_CHECK(matches == (pattern == text));
  if (const auto other = ops::string::Regex::Parse("(?:" + std::string(pattern) + ")|");
      other.ok() && !pattern.starts_with("(?"))
    MG_CHECK(other->FullMatch(text) == (matches || text.empty()));
}

}  // namespace monograph::fuzz
