// Strings to numbers and back, and their parts: StringSplit, StringSplitV2, StringToNumber,
// AsString, Substr, StringLength, StringLower, StringUpper, StringStrip, EncodeBase64,
// DecodeBase64, ReduceJoin, DecodeRaw, DecodeCSV. Strings live in host memory.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// The numbers that the strings spell.
Output StringToNumber(const Scope& scope, const Output& string_tensor, DType out_type = DT_FLOAT);
// The bytes of each string as numbers, a row for each; all strings are equally long.
Output DecodeRaw(const Scope& scope, const Output& bytes, DType out_type,
                 bool little_endian = true);
// The columns of records of comma-separated values, one output for each default, which gives its
// type; an empty vector says that a value must be there.
Outputs DecodeCSV(const Scope& scope, const Output& records, const Outputs& record_defaults,
                  const std::string& field_delim = ",");

}  // namespace monograph
