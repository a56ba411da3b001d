// SaveV2, RestoreV2, MergeV2Checkpoints, ShardedFilename: tensors to and from the files of a
// checkpoint, in the task where the op runs. TensorFlow's ops of these names. The files are
// TensorFlow's (ops/checkpoint_files/tensor_bundle.h), so that its programs find what they wrote;
// under a name that ends in ".safetensors", one file of that format
// (ops/checkpoint_files/checkpoint_file.h), as our Saver writes them.
// Files are read and written on a thread of their own.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"
#include "ops/checkpoint_files/checkpoint_file.h"

namespace monograph {

// Writes the tensors as the checkpoint `prefix`, durable, in place of what has this name in any
// format. `prefix`: a scalar string; `tensor_names`: a string for each tensor; `shape_and_slices`:
// as many, "" for a whole tensor or which part of one it is ("7 2 3,4:-"; Unimplemented in a
// safetensors file). FailedPrecondition names the file or folder.
Operation SaveV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                 const Output& shape_and_slices, const Outputs& tensors);

// Tensors of the checkpoint `prefix`, whatever its format (CheckpointReader): only the bytes that
// are asked for, and those needed to check them, are read. `shape_and_slices`: "" for a whole
// tensor, else a part of it, which need not be one that was saved.
Outputs RestoreV2(const Scope& scope, const Output& prefix, const Output& tensor_names,
                  const Output& shape_and_slices, const std::vector<DType>& dtypes);

// Makes one checkpoint of those, TensorFlow's, that several tasks have written: renames their data
// files, writes one index, and removes the folders that are empty then.
Operation MergeV2Checkpoints(const Scope& scope, const Output& checkpoint_prefixes,
                             const Output& destination_prefix);

// "model-00001-of-00002" of "model", 1 and 2, which are int32 scalars.
Output ShardedFilename(const Scope& scope, const Output& basename, const Output& shard,
                       const Output& num_shards);

// "7 2 3,4:-": rows 3 to 6 of a [7, 2], as TensorFlow writes it.
std::string RowsOfShape(const Shape& whole, const RowRange& rows);

}  // namespace monograph
