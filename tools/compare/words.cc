#include "tools/compare/words.h"

#include <cctype>
#include <cmath>
#include <cstdio>

namespace monograph {

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string Digits(double value) {
  const double size = std::abs(value);
  if (value == 0) return "0";
  if (size < 10) return Fixed(value, 2);
  if (size < 100) return Fixed(value, 1);
  const std::string text = Fixed(value, 0);
  std::string grouped;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool after_digit = i > 0 && text[i - 1] != '-';
    if (after_digit && (text.size() - i) % 3 == 0) grouped += ',';
    grouped += text[i];
  }
  return grouped;
}

std::string Micros(double us) {
  if (us >= 1e6) return Digits(us / 1e6) + " s";
  if (us >= 1000) return Digits(us / 1000) + " ms";
  return (us >= 10 ? Fixed(us, 0) : Digits(us)) + " µs";
}

std::string ByteSize(double bytes) {
  if (bytes >= 1 << 30) return Digits(bytes / (1 << 30)) + " GiB";
  if (bytes >= 1 << 20) return Digits(bytes / (1 << 20)) + " MiB";
  if (bytes >= 1 << 10) return Digits(bytes / (1 << 10)) + " KiB";
  return Fixed(bytes, 0) + " B";
}

std::string Percent(double share) {
  return Fixed(100 * share, share > 0 && share < 0.095 ? 1 : 0) + " %";
}

std::string Plural(int count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string Listed(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string InSentence(std::string title) {
  if (title.size() > 1 && std::isupper(static_cast<unsigned char>(title[0])) &&
      std::islower(static_cast<unsigned char>(title[1])))
    title[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(title[0])));
  return title;
}

std::string Capitalized(std::string sentence) {
  if (!sentence.empty())
    sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return sentence;
}

}  // namespace monograph
