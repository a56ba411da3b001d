// A number as TensorFlow reads it from text: white space around it, nothing else behind it.
#pragma once

#include <cctype>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace monograph::ops::text {

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

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  text = Stripped(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with('+')) return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range && stop == end) {  // too large, or too small
      const bool small = text.find("e-") != text.npos || text.find("E-") != text.npos;
      *value = small ? T(0) : std::numeric_limits<T>::infinity();
      if (text.starts_with('-')) *value = -*value;
      return true;
    }
  }
  return error == std::errc() && stop == end;
}

}  // namespace monograph::ops::text
