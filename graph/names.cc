#include "graph/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

namespace monograph {
namespace {

constexpr std::array<uint8_t, 256> kNameCharacters = [] {
  std::array<uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<size_t>(c)] = 2;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<size_t>(c)] = 2;
  for (int c = '0'; c <= '9'; ++c) table[static_cast<size_t>(c)] = 2;
  table['.'] = 2;
  table['_'] = 2;
  table['-'] = table['/'] = table['>'] = 1;
  return table;
}();

bool SameLetter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Number of insertions, deletions, replacements and swaps of neighbours from a to b; `limit` + 1 if
// more than `limit`, and of long names.
int EditDistance(std::string_view a, std::string_view b, int limit) {
  const int rows = static_cast<int>(a.size()), columns = static_cast<int>(b.size());
  if (std::abs(rows - columns) > limit) return limit + 1;
  constexpr int kLongest = 256;  // the time is that of the product
  if (rows > kLongest) return limit + 1;
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (int j = 0; j <= columns; ++j) last[static_cast<size_t>(j)] = j;
  for (int i = 1; i <= rows; ++i) {
    row[0] = i;
    int smallest = i;
    for (int j = 1; j <= columns; ++j) {
      const auto x = static_cast<size_t>(i), y = static_cast<size_t>(j);
      int cost = std::min(
          {last[y] + 1, row[y - 1] + 1, last[y - 1] + (SameLetter(a[x - 1], b[y - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && SameLetter(a[x - 1], b[y - 2]) && SameLetter(a[x - 2], b[y - 1]))
        cost = std::min(cost, before[y - 2] + 1);
      row[y] = cost;
      smallest = std::min(smallest, cost);
    }
    if (smallest > limit) return limit + 1;
    before.swap(last);
    last.swap(row);
  }
  return std::min(last[b.size()], limit + 1);
}

}  // namespace

bool IsScopeName(std::string_view name) {
  uint8_t all = 2;
  for (char c : name)
    all = std::min<uint8_t>(all, kNameCharacters[static_cast<unsigned char>(c)] ? 1 : 0);
  return all > 0;
}

bool IsNodeName(std::string_view name) {
  return !name.empty() && kNameCharacters[static_cast<unsigned char>(name[0])] == 2 &&
         IsScopeName(name);
}

NearNames::NearNames(std::string_view wanted, size_t count)
    : wanted_(wanted),
      count_(count),
      limit_(std::clamp(static_cast<int>(wanted.size()) / 3, 1, 4)) {}

void NearNames::Offer(std::string_view name) {
  const bool ends_alike = name.size() > wanted_.size() && name.ends_with(wanted_) &&
                          name[name.size() - wanted_.size() - 1] == '/';
  const int distance = ends_alike ? 0 : EditDistance(wanted_, name, limit_);
  if (distance > limit_) return;
  auto place = std::upper_bound(
      best_.begin(), best_.end(), distance,
      [](int d, const std::pair<int, std::string>& entry) { return d < entry.first; });
  if (place == best_.end() && best_.size() == count_) return;
  best_.emplace(place, distance, std::string(name));
  if (best_.size() > count_) best_.pop_back();
}

std::string NearNames::Hint() const {
  if (best_.empty()) return "";
  std::string hint = "; did you mean ";
  for (size_t i = 0; i < best_.size(); ++i) hint += (i > 0 ? ", '" : "'") + best_[i].second + "'";
  return hint + "?";
}

std::string NearestName(std::string_view word, const std::vector<std::string>& candidates) {
  NearNames near(word, 1);
  for (const std::string& candidate : candidates) near.Offer(candidate);
  return near.nearest();
}

}  // namespace monograph
