// The hash of strings that TensorFlow keeps the same from version to version.
#pragma once

#include <cstdint>
#include <string_view>

namespace monograph::ops::string {

// MurmurHash64A with TensorFlow's seed.
uint64_t Murmur(std::string_view text);

}  // namespace monograph::ops::string
