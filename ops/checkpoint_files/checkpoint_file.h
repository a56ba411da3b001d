// Checkpoint files: named tensors in one file of the safetensors format, which other programs read,
// too: a header that says of each tensor its type, shape and place, then the bytes. Beside that, in
// the header's __metadata__, a CRC-32 of each MiB of a tensor's bytes, so that rows of a large
// tensor are read, and checked, without the rest of it.
//
// All functions block. One that takes a stop token ends soon after the stop is asked for, with
// Cancelled. Several threads may read at once.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

// A tensor of the file: one or more pieces, which follow each other along the first dimension.
struct CheckpointTensor {
  std::string name;
  DType dtype = DT_INVALID;
  Shape shape;
  std::vector<Tensor> pieces;
};

// Writes beside `path`, makes it durable, and then puts it in its place: at any moment `path` is
// the old file, or the new one, whole. Unimplemented for tensors of strings, which the format
// lacks; FailedPrecondition names the file that cannot be written.
Status WriteCheckpointFile(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                           const std::stop_token& stop = {});

// What WriteCheckpointFile promises, for any small text.
Status WriteFileWhole(const std::string& path, const std::string& text);

// Makes durable which files `folder` ("": the current one) has.
Status SyncFolder(const std::string& folder);

// Rows [begin, end) of a tensor's first dimension; end = -1: the whole tensor.
struct RowRange {
  int64_t begin = 0, end = -1;
};

// Reads. Errors name the file: NotFound, DataLoss for one that is truncated, damaged or no
// checkpoint.
class CheckpointFile {
 public:
  struct Entry {
    DType dtype = DT_INVALID;
    Shape shape;
    size_t begin = 0;  // in the file
    size_t bytes = 0;
    std::string crcs;  // of its blocks, in hexadecimal; empty: another program wrote the file
  };

  // Reads the header.
  static Result<CheckpointFile> Open(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // The bytes of these rows, after the blocks that hold them were checked; no others are read.
  // REQUIRES: `name` is an entry, and has these rows, for which there is room at `to`.
  Status Read(const std::string& name, const RowRange& rows, void* to,
              const std::stop_token& stop = {}) const;

 private:
  std::string path_;
  size_t block_bytes_ = 0;  // what one CRC is of
  std::map<std::string, Entry> entries_;
};

}  // namespace monograph
