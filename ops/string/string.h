// Strings put together, taken apart, compared with patterns, and turned into numbers and back:
// StringJoin, ReduceJoin, StringSplit, StringSplitV2, Substr, StringLength, StringLower,
// StringUpper, StringStrip, EncodeBase64, DecodeBase64, RegexFullMatch, StaticRegexFullMatch,
// RegexReplace, StaticRegexReplace, StringToHashBucketFast, StringToHashBucketStrong, AsString,
// StringToNumber, DecodeRaw, DecodeCSV. Strings live in host memory.
#pragma once

#include <array>
#include <string>

#include "graph/scope.h"

namespace monograph {

// Element by element, with `separator` in between. The inputs have one shape, or are scalars, which
// stand for all elements.
Output StringJoin(const Scope& scope, const Outputs& inputs, const std::string& separator = "");
// Each match of `pattern`, or only the first, replaced by `rewrite`, in which \0 is the match, \1
// to \9 what its parentheses enclose, and \\ a backslash.
Output RegexReplace(const Scope& scope, const Output& input, const std::string& pattern,
                    const std::string& rewrite, bool replace_global = true);
// A number in [0, num_buckets) for each string, the same everywhere: by FarmHash; or by SipHash
// under a key, which keeps others from choosing strings of one bucket.
Output StringToHashBucketFast(const Scope& scope, const Output& input, int64_t num_buckets);
Output StringToHashBucketStrong(const Scope& scope, const Output& input, int64_t num_buckets,
                                const std::array<int64_t, 2>& key);
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
