// The file "checkpoint" of a folder: which checkpoints a saver has there, and which is the latest.
//
//   # monograph_crc32: 0123abcd
//   model_checkpoint_path: "model.ckpt-300"
//   all_model_checkpoint_paths: "model.ckpt-200"      oldest first
//   all_model_checkpoint_paths: "model.ckpt-300"
//   # monograph 2
//
// It is the text of TensorFlow's CheckpointState, which has comments, too; ours are a seal
// (ops/checkpoint_files/checksum.h). TensorFlow's own files, and those of older versions, have
// none, and are read.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct CheckpointState {
  std::string latest;            // a path in the folder
  std::vector<std::string> all;  // oldest first
};

// NotFound if there is no such file; DataLoss for one that is damaged; the other errors of
// ReadInputFile (base/input_file.h), so that a list that cannot be read is not taken for none.
Result<CheckpointState> ReadStateFile(const std::string& folder);
// Durable, whole or not at all. ResourceExhausted or FailedPrecondition name the file. Of `all`
// only what lies in the folder is written.
Status WriteStateFile(const std::string& folder, const CheckpointState& state);

}  // namespace monograph
