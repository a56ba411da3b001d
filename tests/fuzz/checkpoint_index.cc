// The index of a checkpoint that is made of shards, and the list of a folder's checkpoints: each
// sees all bytes.
#include "ops/checkpoint_files/checkpoint_index.h"

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sealed.h"
#include "tests/fuzz/targets.h"
#include "train/saver/state_file.h"

namespace monograph::fuzz {
namespace {

void ReadIndex(std::string_view bytes) {
  static MemoryFolder folder({CheckpointIndexName("model"), "checkpoint"});
  folder.Fill(bytes);
  if (const Result<CheckpointState> state = ReadStateFile(folder.path()); state.ok())
    MG_CHECK(!state->latest.empty());
  const Result<CheckpointIndex> index = ReadCheckpointIndex(folder.path() + "/model");
  if (!index.ok()) return;
  for (const auto& [tensor, shard] : index->weight_map)
    MG_CHECK(shard.find('/') == std::string::npos && shard != "..");
  for (const auto& [whole, parts] : index->parts) {
    MG_CHECK(!parts.empty());
    for (const std::string& part : parts) MG_CHECK(index->weight_map.contains(part));
  }
}

}  // namespace

void checkpoint_index(std::string_view bytes) {
  ReadIndex(bytes);
  if (const auto sealed = Sealed(bytes)) ReadIndex(*sealed);
}

}  // namespace monograph::fuzz
