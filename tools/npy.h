// NumPy's .npy files (format 1.0 and 2.0, C order, little-endian). bfloat16 and half: '<f2' is
// half; bfloat16 is written as '<V2' and read by the type that is asked for.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

// `wanted` settles what a '<V2' file holds (DT_INVALID: unknown). Errors name the path: NotFound,
// DataLoss for a truncated file, InvalidArgument for a type or order that we do not read.
Result<Tensor> ReadNpy(const std::string& path, DType wanted = DT_INVALID);
// The same from the file's bytes.
Result<Tensor> ParseNpy(std::string_view bytes, const std::string& path, DType wanted = DT_INVALID);
// Strings are written as fixed-width '|S' bytes. Unimplemented for resource handles.
Status WriteNpy(const std::string& path, const Tensor& tensor);

}  // namespace monograph
