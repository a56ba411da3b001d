// Strings put together, taken apart, compared with patterns, and turned into numbers and back:
// StringJoin, ReduceJoin, StringSplit, StringSplitV2, Substr, StringLength, StringLower,
// StringUpper, StringStrip, EncodeBase64, DecodeBase64, RegexFullMatch, StaticRegexFullMatch,
// AsString, StringToNumber, DecodeRaw, DecodeCSV. Strings live in host memory.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// Element by element, with `separator` in between. The inputs have one shape, or are scalars, which
// stand for all elements.
Output StringJoin(const Scope& scope, const Outputs& inputs, const std::string& separator = "");
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
