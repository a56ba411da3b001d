#include "train/saver/state_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ops/checkpoint_files/checksum.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

constexpr char kStateFile[] = "checkpoint";
constexpr char kLatestKey[] = "model_checkpoint_path", kAllKey[] = "all_model_checkpoint_paths";
// Times, which TensorFlow writes.
constexpr char kTimesKey[] = "all_model_checkpoint_timestamps",
               kPreservedKey[] = "last_preserved_timestamp";

}  // namespace

Result<CheckpointState> ReadStateFile(const std::string& folder) {
  const std::string path = (fs::path(folder) / kStateFile).string();
  std::ifstream file(path);
  if (!file) return NotFound("there is no '" + path + "'");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Result<bool> sealed = CheckSeal(text);
  if (!sealed.ok()) return DataLoss("'" + path + "': " + sealed.status().message());
  CheckpointState state;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(": "));
    if (key == kTimesKey || key == kPreservedKey || (*sealed && line.starts_with("#"))) continue;
    if (key != kLatestKey && key != kAllKey)
      return DataLoss("'" + path + "': the line '" + line +
                      "' is not one of a list of checkpoints");
    const size_t open = line.find('"'), close = line.rfind('"');
    if (open == std::string::npos || close <= open + 1)
      return DataLoss("'" + path + "': the line '" + line + "' names nothing in quotes");
    const std::string named = (fs::path(folder) / line.substr(open + 1, close - open - 1)).string();
    if (key == kLatestKey) state.latest = named;
    if (key == kAllKey) state.all.push_back(named);
  }
  if (state.latest.empty())
    return DataLoss("'" + path + "' has no line " + kLatestKey + ": \"...\"");
  return state;
}

Status WriteStateFile(const std::string& folder, const CheckpointState& state) {
  std::string text = std::string("# ") + kSealWord + ": " + kSealDigits;
  const auto line = [&](const char* key, const std::string& path) {
    text += std::string("\n") + key + ": \"" + fs::path(path).filename().string() + "\"";
  };
  line(kLatestKey, state.latest);
  for (const std::string& path : state.all) {
    if (fs::path(path).parent_path() == folder) line(kAllKey, path);
  }
  return WriteFileWhole((fs::path(folder) / kStateFile).string(),
                        Seal(text + "\n# " + kSealedFormat + "\n"));
}

}  // namespace monograph
