// Texts with a seal of their own (ops/checkpoint_files/checksum.h), behind which a search without
// its help would not come.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "ops/checkpoint_files/checksum.h"

namespace monograph::fuzz {

// `text` with the right seal, if it has one with zeros as its digits.
inline std::optional<std::string> Sealed(std::string_view text) {
  const size_t word = text.find(kSealWord);
  if (word == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(word + sizeof kSealWord - 1);
  rest.remove_prefix(std::min(rest.find_first_not_of("\": "), rest.size()));
  if (!rest.starts_with(kSealDigits)) return std::nullopt;
  return Seal(std::string(text));
}

}  // namespace monograph::fuzz
