#include "base/byte_size.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace monograph {

std::string BytesText(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

namespace {

// What one of `unit` is worth; 0: there is no such unit.
double WorthOf(std::string unit) {
  for (char& c : unit) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (unit.empty() || unit == "B") return 1;
  const size_t power = std::string_view("KMGT").find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string rest = unit.substr(1);
  if (!rest.empty() && rest != "IB" && rest != "B") return 0;
  return std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

}  // namespace

Result<int64_t> ParseBytes(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string unit(rest, end);
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  const double worth = WorthOf(unit);
  if (error != std::errc() || worth == 0) {
    return InvalidArgument("'" + std::string(text) +
                           "' is not a number of bytes, such as 12GiB, 1.5G or 512M");
  }
  const double bytes = number * worth;
  // The comparison is false for a NaN, too.
  if (!(bytes >= 0 && bytes < 0x1p62))
    return InvalidArgument("'" + std::string(text) + "' is out of range");
  return static_cast<int64_t>(bytes);
}

}  // namespace monograph
