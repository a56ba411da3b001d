// A number as TensorFlow reads it from text: white space around it, nothing else behind it.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace monograph::ops::string {

inline bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// The text from its first character on that is no white space.
inline std::string_view WithoutSpace(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  return text;
}
inline std::string_view Stripped(std::string_view text) {
  text = WithoutSpace(text);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// Of a decimal number that is not zero: whether its magnitude is at least 1.
inline bool IsLarge(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  const std::string_view digits = number.substr(0, number.find_first_of("eE"));
  int64_t exponent = 0;
  if (digits.size() < number.size()) {
    constexpr int64_t kMost = int64_t{1} << 62;
    std::string_view power = number.substr(digits.size() + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc())
      exponent = power.starts_with('-') ? -kMost : kMost;
    exponent = std::clamp(exponent, -kMost, kMost);
  }
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size())),
             first = static_cast<int64_t>(digits.find_first_not_of("0."));
  return (first < point ? point - first : point - first + 1) + exponent > 0;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  text = Stripped(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) return false;
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range && stop == end) {  // too large, or too small
      *value = IsLarge(text) ? std::numeric_limits<T>::infinity() : T(0);
      if (text.starts_with('-')) *value = -*value;
      return true;
    }
  }
  return error == std::errc() && stop == end;
}

}  // namespace monograph::ops::string
