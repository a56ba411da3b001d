// Checkpoint files: named tensors in one file of the safetensors format, which other programs read,
// too: a header that says of each tensor its type, shape and place, then the bytes. Beside that, in
// the header's __metadata__, a CRC-32 of each MiB of a tensor's bytes, so that rows of a large
// tensor are read, and checked, without the rest of it; and one of the header itself. A change of
// any byte of a file is so found.
//
// Files of other programs, and those of older versions, lack these. They are read; the first one
// that a process opens is told in the log.
//
// All functions block. One that takes a stop token ends soon after the stop is asked for, with
// Cancelled. Several threads may read at once.
#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/input_file.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "ops/checkpoint_files/header.h"

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
// lacks; InvalidArgument for a name that it cannot have; ResourceExhausted where there is no room,
// FailedPrecondition else, for a file that cannot be written, which is named.
Status WriteCheckpointFile(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                           const std::stop_token& stop = {});

// Rows [begin, end) of a tensor's first dimension; end = -1: the whole tensor.
struct RowRange {
  int64_t begin = 0, end = -1;
};

// Reads a file that stays the same one, also if another is put in its place. Errors name the file:
// NotFound; DataLoss for one that is truncated, damaged or no checkpoint, with the tensor and the
// bytes of the file that are meant; FailedPrecondition for what cannot be opened, or is no file.
class CheckpointFile {
 public:
  using Entry = CheckpointEntry;

  // Reads the header.
  static Result<CheckpointFile> Open(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return header_.entries; }
  // What tells it from other files: its size, and the CRC-32 of its header, which has those of the
  // tensors.
  uint64_t bytes() const { return bytes_; }
  const std::string& header_crc() const { return header_crc_; }
  // The bytes of these rows; OK means that the blocks which hold them were checked. No other blocks
  // are read, and a part of a block takes no more memory than a large one of ours.
  // REQUIRES: `name` is an entry, and has these rows, for which there is room at `to`.
  Status Read(const std::string& name, const RowRange& rows, void* to,
              const std::stop_token& stop = {}) const;

 private:
  CheckpointFile(std::string path, InputFile file);
  Status ReadHeader();
  Status ReadBlock(const std::string& name, size_t block, size_t begin, size_t end, char* to,
                   std::vector<char>* around, const std::stop_token& stop) const;

  std::string path_;
  std::shared_ptr<const InputFile> file_;
  uint64_t bytes_ = 0;
  std::string header_crc_;
  CheckpointHeader header_;
};

}  // namespace monograph
