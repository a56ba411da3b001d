// Names of a checkpoint's files, and the index of one that is made of shards.
//
//   model.ckpt-100.safetensors                        a checkpoint in one file, or
//   model.ckpt-100-00001-of-00002.safetensors         shards, one for each task that has variables,
//   model.ckpt-100-00002-of-00002.safetensors
//   model.ckpt-100.safetensors.index.json             and which tensor is in which shard
//
// The index is that of Hugging Face's libraries: {"metadata": {"total_size": bytes}, "weight_map":
// {"tensor": "file"}}. Ours says, too, which tensors are the rows of one: "parts" in the metadata,
// {"emb": ["emb/part_0", "emb/part_1"]}. Where both kinds are there (a save was interrupted), the
// single file holds.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

// Of the checkpoint `prefix` ("run1/model.ckpt-100").
std::string CheckpointFileName(const std::string& prefix);
std::string CheckpointIndexName(const std::string& prefix);
// "model.ckpt-100-00001-of-00002" for shard 0 of 2: a prefix for CheckpointFileName.
std::string ShardPrefix(const std::string& prefix, size_t shard, size_t shards);

struct CheckpointIndex {
  uint64_t total_size = 0;                                // bytes of all tensors
  std::map<std::string, std::string> weight_map;          // tensor: file, of the same folder
  std::map<std::string, std::vector<std::string>> parts;  // tensor: those that are its rows
};

// Durable, whole or not at all. FailedPrecondition names the file.
Status WriteCheckpointIndex(const std::string& prefix, const CheckpointIndex& index);
// NotFound; DataLoss for what is damaged; InvalidArgument for one that names files elsewhere.
Result<CheckpointIndex> ReadCheckpointIndex(const std::string& prefix);

// Files that the index of `prefix` names; none if there is no index that can be read.
std::set<std::string> ShardsOf(const std::string& prefix);

// These remove what is there, and need not find anything. RemoveShards: the index, then the shards
// that it names.
void RemoveCheckpoint(const std::string& prefix);
void RemoveShards(const std::string& prefix);

}  // namespace monograph
