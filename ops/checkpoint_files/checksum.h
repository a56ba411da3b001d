// CRC-32 of bytes, and texts that say their own.
//
// A sealed text has somewhere the word monograph_crc32 and, after quotes, a colon and spaces, eight
// digits: the CRC-32 of the whole text with zeros in their place. So a change of any byte is found.
// It also says kSealedFormat, far from the word, so that one whose word is damaged is not taken for
// a text of an older version or of another program, which have no seal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

inline constexpr char kSealWord[] = "monograph_crc32", kSealDigits[] = "00000000",
                      kSealedFormat[] = "monograph 2";

// Of the bytes so far and these; it begins with 0.
uint32_t AddToCrc(uint32_t crc, const void* bytes, size_t size);
// 8 hexadecimal digits.
inline constexpr size_t kCrcDigits = 8;
std::string CrcText(uint32_t crc);

// REQUIRES: the first kSealWord is that of the seal, with kSealDigits.
std::string Seal(std::string text);
// Whether the text has a seal. DataLoss: it has, but was changed; the message goes on from "it".
Result<bool> CheckSeal(std::string_view text);

}  // namespace monograph
