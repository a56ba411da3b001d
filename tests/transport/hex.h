// Bytes as hexadecimal digits, for pipes between test processes.
#pragma once

#include <string>
#include <string_view>

namespace monograph {

inline std::string ToHex(std::string_view bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[c & 15];
  }
  return text;
}

inline std::string FromHex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

}  // namespace monograph
