// The frames of TensorFlow's record files (TFRecord).
//
//   record = length (uint64), masked CRC of the length (uint32), bytes, masked CRC of the bytes
#pragma once

#include <string>
#include <string_view>

namespace monograph {

// Appends one record; numbers are little endian. A file is any number of them.
void AppendRecord(std::string_view bytes, std::string* to);

}  // namespace monograph
