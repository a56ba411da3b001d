// Checkpoint files: named tensors in one file of the safetensors format, which other programs read,
// too: a header that says of each tensor its type, shape and place, then the bytes. Beside that, a
// CRC-32 of each tensor's bytes, in the header's __metadata__.
#pragma once

#include <map>
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
Status WriteCheckpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors);

// What WriteCheckpoint promises, for any small text.
Status WriteFileWhole(const std::string& path, const std::string& text);

// Reads. Errors name the file: NotFound, DataLoss for one that is truncated, damaged or no
// checkpoint.
class CheckpointFile {
 public:
  struct Entry {
    DType dtype = DT_INVALID;
    Shape shape;
    size_t begin = 0;  // in the file
    std::string crc;   // of its bytes, in hexadecimal; empty: another program wrote the file
  };

  // Reads the header.
  static Result<CheckpointFile> Open(const std::string& path);
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // The tensor of an entry, after its bytes were checked.
  Result<Tensor> Read(const std::string& name) const;

 private:
  std::string path_;
  std::map<std::string, Entry> entries_;
};

}  // namespace monograph
