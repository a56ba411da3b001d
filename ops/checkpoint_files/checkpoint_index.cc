// Names, the index, and what is done with the files of a checkpoint as a whole. Of an index that is
// damaged the shards are known by their names: ShardPrefix makes no others.
#include "ops/checkpoint_files/checkpoint_index.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/input_file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "ops/checkpoint_files/checksum.h"
#include "ops/checkpoint_files/disk.h"
#include "ops/checkpoint_files/tensor_bundle.h"

namespace monograph {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors", kIndexExtension = ".safetensors.index.json",
                           kBundleExtension = ".index";
constexpr char kLeftAside[] = "damaged", kAgain[] = ".1";

// Nobody's index makes us read, or remove, files elsewhere.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

// "model.ckpt-100" of "model.ckpt-100-00001-of-00002.safetensors"; "" if it is no name of a shard.
std::string PrefixOfShard(const std::string& file) {
  constexpr size_t kTail = sizeof("-00001-of-00002") - 1;
  if (!file.ends_with(kExtension) || file.size() <= kTail + kExtension.size()) return "";
  const std::string prefix = file.substr(0, file.size() - kTail - kExtension.size());
  std::string tail = file.substr(prefix.size(), kTail);
  for (char& c : tail) c = c >= '0' && c <= '9' ? '0' : c;
  return tail == "-00000-of-00000" ? prefix : "";
}

// An object that `key` of `object` is; an empty one if it is not there.
Result<Json> ObjectOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return Json::object();
  if (found->is_object()) return *found;
  return DataLoss(JsonQuoted(key) + " is no object: " + JsonExcerpt(*found));
}

Result<std::string> TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return DataLoss(JsonExcerpt(value) + " is no text");
}

Result<ShardIdentity> ShardOf(const Json& value) {
  if (!value.is_object() || !value.contains("bytes") || !value.contains("header_crc32"))
    return DataLoss("a shard is no object with bytes and header_crc32: " + JsonExcerpt(value));
  ShardIdentity shard;
  MG_ASSIGN_OR_RETURN(shard.bytes, JsonWhole(value["bytes"]));
  MG_ASSIGN_OR_RETURN(shard.header_crc, TextOf(value["header_crc32"]));
  return shard;
}

Result<CheckpointIndex> IndexOf(const Json& json) {
  CheckpointIndex index;
  if (!json.contains("weight_map")) return DataLoss("it has no weight_map");
  MG_ASSIGN_OR_RETURN(const Json files, ObjectOf(json, "weight_map"));
  for (const auto& [tensor, file] : files.items()) {
    MG_ASSIGN_OR_RETURN(index.weight_map[tensor], TextOf(file));
  }
  MG_ASSIGN_OR_RETURN(const Json metadata, ObjectOf(json, "metadata"));
  if (metadata.contains("total_size")) {
    MG_ASSIGN_OR_RETURN(index.total_size, JsonWhole(metadata["total_size"]));
  }
  MG_ASSIGN_OR_RETURN(const Json shards, ObjectOf(metadata, "shards"));
  for (const auto& [file, shard] : shards.items()) {
    MG_ASSIGN_OR_RETURN(index.shards[file], ShardOf(shard));
  }
  MG_ASSIGN_OR_RETURN(const Json parts, ObjectOf(metadata, "parts"));
  for (const auto& [whole, names] : parts.items()) {
    bool good = names.is_array() && !names.empty() && !index.weight_map.contains(whole);
    for (const Json& name : good ? names : Json::array()) {
      MG_ASSIGN_OR_RETURN(const std::string part, TextOf(name));
      good = good && index.weight_map.contains(part);
      index.parts[whole].push_back(part);
    }
    if (!good) {
      return DataLoss("the parts of '" + whole + "' are not all there, or it is there twice");
    }
  }
  return index;
}

}  // namespace

std::string CheckpointFileName(const std::string& prefix) {
  return prefix + std::string(kExtension);
}
std::string CheckpointIndexName(const std::string& prefix) {
  return prefix + std::string(kIndexExtension);
}
bool IsCheckpointFileName(const std::string& name) { return name.ends_with(kExtension); }
std::string PrefixAgain(const std::string& prefix) { return prefix + kAgain; }
std::string ShardPrefix(const std::string& prefix, size_t shard, size_t shards) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05zu-of-%05zu", shard + 1, shards);
  return prefix + text;
}

Status WriteCheckpointIndex(const std::string& prefix, const CheckpointIndex& index) {
  nlohmann::ordered_json metadata = {{kSealWord, kSealDigits}, {"total_size", index.total_size}};
  for (const auto& [tensor, file] : index.weight_map) {
    for (const std::string& name : {tensor, file}) {
      if (IsUtf8(name)) continue;
      return InvalidArgument("the index of a checkpoint in shards cannot name " + JsonQuoted(name) +
                             ", which is not UTF-8");
    }
  }
  if (!index.parts.empty()) metadata["parts"] = index.parts;
  for (const auto& [file, shard] : index.shards)
    metadata["shards"][file] = {{"bytes", shard.bytes}, {"header_crc32", shard.header_crc}};
  metadata["format"] = kSealedFormat;
  const nlohmann::ordered_json json = {{"metadata", metadata}, {"weight_map", index.weight_map}};
  return WriteFileWhole(CheckpointIndexName(prefix), Seal(json.dump(1) + "\n"));
}

Result<CheckpointIndex> ReadCheckpointIndex(const std::string& prefix) {
  const std::string path = CheckpointIndexName(prefix);
  const Result<std::string> text = ReadInputFile("checkpoint", path, kMostTableBytes);
  if (text.status().code() == Code::kNotFound)
    return NotFound("there is no checkpoint '" + path + "'");
  MG_RETURN_IF_ERROR(text.status());
  const std::string name = "checkpoint '" + path + "': the index";
  const Result<bool> sealed = CheckSeal(*text);
  if (!sealed.ok()) return DataLoss(name + ": " + sealed.status().message());
  const Result<Json> json = ParseJson(*text, name);
  if (!json.ok()) return DataLoss(json.status().message());
  Result<CheckpointIndex> index = IndexOf(*json);
  if (!index.ok()) return DataLoss(name + " is damaged: " + index.status().message());
  for (const auto& [tensor, file] : index->weight_map) {
    if (IsPlainFileName(file)) continue;
    return InvalidArgument("checkpoint '" + path + "': the index has '" + tensor + "' in '" + file +
                           "'; shards are files of the index's own folder");
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

bool CheckpointExists(const std::string& prefix) {
  std::error_code ignored;
  return fs::exists(CheckpointFileName(prefix), ignored) ||
         fs::exists(CheckpointIndexName(prefix), ignored) ||
         fs::exists(BundleIndexName(prefix), ignored);
}

void RemoveCheckpoint(const std::string& prefix) {
  RemoveSafetensors(prefix);
  RemoveBundle(prefix);
}

void RemoveSafetensors(const std::string& prefix) {
  CurrentDisk().Remove(CheckpointFileName(prefix));  // somebody else may have removed it
  RemoveShards(prefix);
}

void RemoveShards(const std::string& prefix) {
  const std::set<std::string> shards = ShardsOf(prefix);
  CurrentDisk().Remove(CheckpointIndexName(prefix));
  const fs::path folder = fs::path(prefix).parent_path();
  for (const std::string& shard : shards) CurrentDisk().Remove((folder / shard).string());
}

Result<std::string> LeaveAside(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  std::set<std::string> files = ShardsOf(prefix);
  std::error_code error;
  const std::string name = fs::path(prefix).filename().string();
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file == CheckpointFileName(name) || file == CheckpointIndexName(name) ||
        PrefixOfShard(file) == name || PrefixOfShard(file) == name + kAgain)
      files.insert(file);
  }
  for (const std::string& file : BundleFiles(prefix))
    files.insert(fs::path(file).filename().string());
  std::erase_if(files, [&](const std::string& file) { return !fs::exists(folder / file, error); });
  const auto taken = [&](const fs::path& to) {
    return std::ranges::any_of(files,
                               [&](const auto& file) { return fs::exists(to / file, error); });
  };
  fs::path to = folder / kLeftAside;
  for (int i = 2; taken(to); ++i) to = folder / (kLeftAside + ("-" + std::to_string(i)));
  MG_RETURN_IF_ERROR(MakeFolders(to.string()));
  for (const std::string& file : files) {
    if (CurrentDisk().Rename((folder / file).string(), (to / file).string()) != 0)
      return CannotWrite((to / file).string(), errno);
  }
  return to.string();
}

std::vector<std::string> CheckpointsIn(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    for (const std::string_view extension : {kIndexExtension, kExtension, kBundleExtension}) {
      if (file.ends_with(extension) && PrefixOfShard(file).empty())
        names.insert(file.substr(0, file.size() - extension.size()));
    }
  }
  std::vector<std::string> found(names.begin(), names.end());
  std::ranges::stable_sort(found, std::greater(), [](const std::string& name) {
    const size_t dash = name.rfind('-');
    return dash == std::string::npos ? -1 : std::atoll(name.c_str() + dash + 1);
  });
  for (std::string& name : found) name = (fs::path(folder) / name).string();
  return found;
}

}  // namespace monograph
