#include "ops/checkpoint_files/checksum.h"

#include <zlib.h>

namespace monograph {
namespace {

// Where the digits are; npos if there is no word before them.
size_t DigitsOf(std::string_view text) {
  const size_t word = text.find(kSealWord);
  return word == std::string_view::npos
             ? word
             : text.find_first_not_of("\": ", word + sizeof(kSealWord) - 1);
}

std::string CrcWithout(std::string text, size_t digits) {
  text.replace(digits, kCrcDigits, kSealDigits);
  return CrcText(AddToCrc(0, text.data(), text.size()));
}

}  // namespace

uint32_t AddToCrc(uint32_t crc, const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(bytes), size));
}

std::string CrcText(uint32_t crc) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kCrcDigits, '0');
  for (size_t i = 0; i < kCrcDigits; ++i) text[kCrcDigits - 1 - i] = kDigits[(crc >> (4 * i)) & 15];
  return text;
}

std::string Seal(std::string text) {
  const size_t digits = DigitsOf(text);
  MG_CHECK(digits != std::string::npos && text.compare(digits, kCrcDigits, kSealDigits) == 0);
  return text.replace(digits, kCrcDigits, CrcWithout(text, digits));
}

Result<bool> CheckSeal(std::string_view text) {
  const size_t digits = DigitsOf(text);
  if (digits == std::string_view::npos || digits + kCrcDigits > text.size()) {
    if (text.find(kSealedFormat) == std::string_view::npos &&
        text.find(kSealWord) == std::string_view::npos)
      return false;
    return DataLoss("it is damaged: the CRC-32 of itself is not there");
  }
  const std::string says(text.substr(digits, kCrcDigits));
  const std::string is = CrcWithout(std::string(text), digits);
  if (says != is)
    return DataLoss("it is damaged: its CRC-32 is " + is + ", and it says '" + says + "'");
  return true;
}

}  // namespace monograph
