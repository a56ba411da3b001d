// Names, the index, and what is done with the files of a checkpoint as a whole. Of an index that is
// damaged the shards are known by their names: ShardPrefix makes no others.
#include "ops/checkpoint_files/checkpoint_index.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/checkpoint_files/checksum.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors", kIndexExtension = ".safetensors.index.json";
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

}  // namespace

std::string CheckpointFileName(const std::string& prefix) {
  return prefix + std::string(kExtension);
}
std::string CheckpointIndexName(const std::string& prefix) {
  return prefix + std::string(kIndexExtension);
}
std::string PrefixAgain(const std::string& prefix) { return prefix + kAgain; }
std::string ShardPrefix(const std::string& prefix, size_t shard, size_t shards) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05zu-of-%05zu", shard + 1, shards);
  return prefix + text;
}

Status WriteCheckpointIndex(const std::string& prefix, const CheckpointIndex& index) {
  Json metadata = {{kSealWord, kSealDigits}, {"total_size", index.total_size}};
  if (!index.parts.empty()) metadata["parts"] = index.parts;
  for (const auto& [file, shard] : index.shards)
    metadata["shards"][file] = {{"bytes", shard.bytes}, {"header_crc32", shard.header_crc}};
  metadata["format"] = kSealedFormat;
  const Json json = {{"metadata", metadata}, {"weight_map", index.weight_map}};
  return WriteFileWhole(CheckpointIndexName(prefix), Seal(json.dump(1) + "\n"));
}

Result<CheckpointIndex> ReadCheckpointIndex(const std::string& prefix) {
  const std::string path = CheckpointIndexName(prefix);
  std::ifstream file(path);
  if (!file) return NotFound("there is no checkpoint '" + path + "'");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Result<bool> sealed = CheckSeal(text);
  if (!sealed.ok())
    return DataLoss("checkpoint '" + path + "': the index: " + sealed.status().message());
  CheckpointIndex index;
  try {
    const Json json = Json::parse(text);
    const Json metadata = json.value("metadata", Json::object());
    index.total_size = metadata.value("total_size", uint64_t{0});
    index.parts = metadata.value("parts", index.parts);
    const Json shards = metadata.value("shards", Json::object());
    for (const auto& [name, shard] : shards.items())
      index.shards[name] = {shard.at("bytes"), shard.at("header_crc32")};
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

bool CheckpointExists(const std::string& prefix) {
  std::error_code ignored;
  return fs::exists(CheckpointFileName(prefix), ignored) ||
         fs::exists(CheckpointIndexName(prefix), ignored);
}

void RemoveCheckpoint(const std::string& prefix) {
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
    for (const std::string_view extension : {kIndexExtension, kExtension}) {
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
