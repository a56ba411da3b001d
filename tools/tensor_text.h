// Tensors as people read and type them.
#pragma once

#include <string>

#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

// "[[1, 2, 3],\n [4, 5, 6]]", as NumPy prints arrays, with the fewest digits that give the same
// number again. Of a tensor of more than `limit` elements each dimension shows its first and last
// three.
std::string FormatValues(const Tensor& tensor, int64_t limit = 1000);

// The inverse for what is typed: a JSON number, true, "text", or lists of these, [[1, 2], [3, 4]],
// as a tensor of `dtype`. InvalidArgument: not JSON, rows of unequal lengths, or a value that the
// type does not hold.
Result<Tensor> ParseValues(const std::string& text, DType dtype);

}  // namespace monograph
