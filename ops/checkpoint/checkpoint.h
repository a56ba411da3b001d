// SaveV2, RestoreV2: tensors to and from the files of a checkpoint, in the task where the op runs.
// TensorFlow's ops of these names; the files are ours (ops/checkpoint_files/checkpoint_file.h).
// Files are read and written on a thread of their own.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"
#include "ops/checkpoint_files/checkpoint_file.h"

namespace monograph {

// Writes the tensors as the file `prefix` + ".safetensors", whole or not at all, and durable.
// `prefix`: a scalar string; `tensor_names`: a string for each tensor; `shape_and_slices`: as many,
// all empty (Unimplemented else: a part is saved under a name of its own). FailedPrecondition names
// the file or folder.
Operation SaveV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                 const Output& shape_and_slices, const Outputs& tensors);

// Tensors of the checkpoint `prefix`, be it one file or shards: only the bytes that are asked for
// are read. `shape_and_slices`: "" for a whole tensor, RowsOfShape for rows of it.
Outputs RestoreV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                  const Output& shape_and_slices, const std::vector<DType>& dtypes);

// "7 2 3,4:-": rows 3 to 6 of a [7, 2], as TensorFlow writes it.
std::string RowsOfShape(const Shape& whole, const RowRange& rows);

}  // namespace monograph
