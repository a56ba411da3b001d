// StringJoin, RegexFullMatch, RegexReplace, StringToHashBucketFast, StringToHashBucketStrong:
// strings put together, matched, changed, and as numbers. TensorFlow's ops of these names.
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

}  // namespace monograph
