// Tables: sorted keys with values, in one file of LevelDB's table format; the index of TensorFlow's
// checkpoints is one.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

// Writes beside `path`, makes it durable and puts it in its place, as LevelDB's TableBuilder does
// with TensorFlow's options. ResourceExhausted or FailedPrecondition name the file.
Status WriteTable(const std::string& path, const std::map<std::string, std::string>& entries);

// The bytes of a table. DataLoss, "its bytes B to E: why", where they are damaged or no table: any
// changed byte that is used is found. ResourceExhausted if what it holds is larger than
// kMostTableBytes (base/input_file.h).
Result<std::map<std::string, std::string>> ParseTable(std::string_view bytes);

}  // namespace monograph
