#include "ops/checkpoint_files/checkpoint_index.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/checkpoint_files/checkpoint_file.h"

namespace monograph {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr char kExtension[] = ".safetensors", kIndexExtension[] = ".safetensors.index.json";

// Nobody's index makes us read, or remove, files elsewhere.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

}  // namespace

std::string CheckpointFileName(const std::string& prefix) { return prefix + kExtension; }
std::string CheckpointIndexName(const std::string& prefix) { return prefix + kIndexExtension; }
std::string ShardPrefix(const std::string& prefix, size_t shard, size_t shards) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05zu-of-%05zu", shard + 1, shards);
  return prefix + text;
}

Status WriteCheckpointIndex(const std::string& prefix, const CheckpointIndex& index) {
  Json metadata = {{"total_size", index.total_size}};
  if (!index.parts.empty()) metadata["parts"] = index.parts;
  const Json json = {{"metadata", metadata}, {"weight_map", index.weight_map}};
  return WriteFileWhole(CheckpointIndexName(prefix), json.dump(1) + "\n");
}

Result<CheckpointIndex> ReadCheckpointIndex(const std::string& prefix) {
  const std::string path = CheckpointIndexName(prefix);
  std::ifstream file(path);
  if (!file) return NotFound("there is no checkpoint '" + path + "'");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  CheckpointIndex index;
  try {
    const Json json = Json::parse(text);
    const Json metadata = json.value("metadata", Json::object());
    index.total_size = metadata.value("total_size", uint64_t{0});
    index.parts = metadata.value("parts", index.parts);
    index.weight_map = json.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const Json::exception& error) {
    return DataLoss("checkpoint '" + path + "': the index is damaged: " + error.what());
  }
  for (const auto& [tensor, name] : index.weight_map) {
    if (IsPlainFileName(name)) continue;
    return InvalidArgument("checkpoint '" + path + "': the index has '" + tensor + "' in '" + name +
                           "'; shards are files of the index's own folder");
  }
  for (const auto& [whole, parts] : index.parts) {
    bool good = !parts.empty() && !index.weight_map.contains(whole);
    for (const std::string& part : parts) good = good && index.weight_map.contains(part);
    if (!good)
      return DataLoss("checkpoint '" + path + "': the index is damaged: the parts of '" + whole +
                      "' are not all there, or it is there twice");
  }
  return index;
}

std::set<std::string> ShardsOf(const std::string& prefix) {
  std::set<std::string> shards;
  const Result<CheckpointIndex> index = ReadCheckpointIndex(prefix);
  if (!index.ok()) return shards;
  for (const auto& [tensor, file] : index->weight_map) shards.insert(file);
  return shards;
}

void RemoveCheckpoint(const std::string& prefix) {
  std::error_code ignored;  // somebody else may have removed it
  fs::remove(CheckpointFileName(prefix), ignored);
  RemoveShards(prefix);
}

void RemoveShards(const std::string& prefix) {
  const std::set<std::string> shards = ShardsOf(prefix);
  std::error_code ignored;
  fs::remove(CheckpointIndexName(prefix), ignored);
  const fs::path folder = fs::path(prefix).parent_path();
  for (const std::string& shard : shards) fs::remove(folder / shard, ignored);
}

}  // namespace monograph
