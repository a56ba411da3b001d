#include "base/json.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace monograph {

std::string JsonQuoted(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at++]);
    if (first < 0x80) continue;
    const int more = first >= 0xc2 && first < 0xe0   ? 1
                     : first >= 0xe0 && first < 0xf0 ? 2
                     : first >= 0xf0 && first < 0xf5 ? 3
                                                     : 0;
    if (more == 0) return false;
    uint32_t code = first & (0x3fU >> more);
    for (int i = 0; i < more; ++i, ++at) {
      if (at == text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) return false;
      code = code << 6 | (static_cast<unsigned char>(text[at]) & 0x3f);
    }
    constexpr uint32_t kSmallest[] = {0x80, 0x800, 0x10000};  // shorter forms are none
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (code < kSmallest[more - 1] || surrogate || code > 0x10ffff) return false;
  }
  return true;
}

}  // namespace monograph
