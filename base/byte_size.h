// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

std::string BytesText(int64_t bytes);  // "12 B", "1.5 GiB"

// "12GiB", "1.5 G", "512M", "2000000": a number and a unit, B if there is none. K, M, G and T are
// powers of 1024, as KiB is; KB, MB, GB and TB are powers of 1000. InvalidArgument says what is
// wrong with the text.
Result<int64_t> ParseBytes(std::string_view text);

}  // namespace monograph
