// Tables: sorted keys with values, in one file of LevelDB's table format; the index of TensorFlow's
// checkpoints is one.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

class NewFile;

// Writes what LevelDB's TableBuilder writes with TensorFlow's options; the caller puts the file in
// its place. ResourceExhausted or FailedPrecondition name the file.
Status WriteTable(const std::map<std::string, std::string>& entries, NewFile* file);

// The bytes of a table. DataLoss, "its bytes B to E: why", where they are damaged or no table: any
// changed byte that is used is found. ResourceExhausted if what it holds is larger than
// kMostTableBytes (base/input_file.h).
Result<std::map<std::string, std::string>> ParseTable(std::string_view bytes);

}  // namespace monograph
