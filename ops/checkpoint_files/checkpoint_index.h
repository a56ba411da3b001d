// Names of a checkpoint's files, and the index of one that is made of shards.
//
//   model.ckpt-100.safetensors                        a checkpoint in one file, or
//   model.ckpt-100-00001-of-00002.safetensors         shards, one for each task that has variables,
//   model.ckpt-100-00002-of-00002.safetensors
//   model.ckpt-100.safetensors.index.json             and which tensor is in which shard
//
// The index is that of Hugging Face's libraries: {"metadata": {"total_size": bytes}, "weight_map":
// {"tensor": "file"}}. Ours says more in its metadata: "parts", which tensors are the rows of one,
// {"emb": ["emb/part_0", "emb/part_1"]}; "shards", which file of a name is meant, {"file":
// {"bytes": size, "header_crc32": digits}}; "format" and "monograph_crc32", its seal
// (ops/checkpoint_files/checksum.h). Where both kinds are there (a save was interrupted), the
// single file holds. A checkpoint may also be TensorFlow's (ops/checkpoint_files/tensor_bundle.h);
// what is said of a checkpoint's files below is said of those, too.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/checkpoint_files/checkpoint_file.h"

namespace monograph {

// Of the checkpoint `prefix` ("run1/model.ckpt-100").
std::string CheckpointFileName(const std::string& prefix);
std::string CheckpointIndexName(const std::string& prefix);
// Whether it is the name of one file, as CheckpointFileName makes them.
bool IsCheckpointFileName(const std::string& name);
// What shards are called after where those of an older checkpoint `prefix` have its name.
std::string PrefixAgain(const std::string& prefix);
// "model.ckpt-100-00001-of-00002" for shard 0 of 2: a prefix for CheckpointFileName.
std::string ShardPrefix(const std::string& prefix, size_t shard, size_t shards);

// One file of the many that may have its name: those of other saves have another header.
struct ShardIdentity {
  uint64_t bytes = 0;
  std::string header_crc;

  static ShardIdentity Of(const CheckpointFile& file) { return {file.bytes(), file.header_crc()}; }
  friend bool operator==(const ShardIdentity&, const ShardIdentity&) = default;
};

struct CheckpointIndex {
  uint64_t total_size = 0;                                // bytes of all tensors
  std::map<std::string, std::string> weight_map;          // tensor: file, of the same folder
  std::map<std::string, std::vector<std::string>> parts;  // tensor: those that are its rows
  std::map<std::string, ShardIdentity> shards;  // by file; none if another program wrote the index
};

// Durable, whole or not at all. ResourceExhausted or FailedPrecondition name the file;
// InvalidArgument names a name that is not UTF-8.
Status WriteCheckpointIndex(const std::string& prefix, const CheckpointIndex& index);
// NotFound; DataLoss for what is damaged; InvalidArgument for one that names files elsewhere; the
// other errors of ReadInputFile (base/input_file.h).
Result<CheckpointIndex> ReadCheckpointIndex(const std::string& prefix);

// Files that the index of `prefix` names; none if there is no index that can be read.
std::set<std::string> ShardsOf(const std::string& prefix);

// Whether any of its own files is there: the single one, the index or TensorFlow's index.
bool CheckpointExists(const std::string& prefix);

// These remove what is there, and need not find anything. RemoveShards: the index, then the shards
// that it names. RemoveSafetensors: all but TensorFlow's files, which a save of them has replaced.
void RemoveCheckpoint(const std::string& prefix);
void RemoveShards(const std::string& prefix);
void RemoveSafetensors(const std::string& prefix);

// Moves the files of a checkpoint, damaged ones too, into the folder "damaged" beside them, under
// their names ("damaged-2", if that has one of these names already, and so on). The folder.
Result<std::string> LeaveAside(const std::string& prefix);

// Checkpoints that lie in `folder`, whatever the state of their files: the highest number first
// ("model.ckpt-300" before "model.ckpt-200"), those without one last.
std::vector<std::string> CheckpointsIn(const std::string& folder);

}  // namespace monograph
