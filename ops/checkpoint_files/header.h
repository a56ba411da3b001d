// The header of a checkpoint file: its text from tensors, and what it says of them. The format is
// at the top of header.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"

namespace monograph {

struct CheckpointTensor;

// Of a tensor of the file.
struct CheckpointEntry {
  DType dtype = DT_INVALID;
  Shape shape;
  size_t begin = 0;  // in the file
  size_t bytes = 0;
  std::string crcs;  // of its blocks, in hexadecimal; empty: another program wrote the file
};

struct CheckpointHeader {
  bool sealed = false;     // its own checksum was there, and fits
  size_t block_bytes = 0;  // what one CRC is of; at least 1
  std::map<std::string, CheckpointEntry> entries;
};

inline constexpr size_t kMostCheckpointHeader = size_t{100} << 20;  // the format's limit

// What a file begins with whose tensors follow in their order: the size of the header, and the
// header, with the CRCs of the tensors' bytes. InvalidArgument for a name that is not UTF-8, is
// there twice or is the format's own; Unimplemented for a type that the format lacks.
Result<std::string> MakeCheckpointHeader(const std::vector<CheckpointTensor>& tensors,
                                         const std::stop_token& stop);

// Reads `text`, the header without its size, of a file of so many bytes. DataLoss, also for what
// the file is too short or too long for: the message goes on from "checkpoint 'F': ".
Result<CheckpointHeader> ParseCheckpointHeader(std::string_view text, uint64_t file_bytes);

}  // namespace monograph
