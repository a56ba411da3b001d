#include "train/saver/state_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "base/input_file.h"
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

// As protocol buffers write text between quotes. Bytes beyond ASCII stay as they are.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> octal{};
      std::snprintf(octal.data(), octal.size(), "\\%03o", static_cast<unsigned>(c));
      escaped += octal.data();
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// What TensorFlow writes is read, too: it has octal numbers for all bytes beyond ASCII.
std::string Unescaped(std::string_view text) {
  constexpr std::string_view kLetters = "nrtabfv", kMeanings = "\n\r\t\a\b\f\v";
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      plain += text[at];
      continue;
    }
    unsigned number = 0;
    const char* const begin = text.data() + at + 1;
    const char* const end = begin + std::min<size_t>(3, text.size() - at - 1);
    const auto [after, error] = std::from_chars(begin, end, number, 8);
    if (error == std::errc()) {
      plain += static_cast<char>(number);
      at += static_cast<size_t>(after - begin);
      continue;
    }
    const size_t letter = kLetters.find(text[++at]);
    plain += letter == std::string_view::npos ? text[at] : kMeanings[letter];
  }
  return plain;
}

}  // namespace

Result<CheckpointState> ReadStateFile(const std::string& folder) {
  const std::string path = (fs::path(folder) / kStateFile).string();
  MG_ASSIGN_OR_RETURN(const std::string text,
                      ReadInputFile("list of checkpoints", path, kMostTableBytes));
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
    const std::string_view quoted = std::string_view(line).substr(open + 1, close - open - 1);
    const std::string named = (fs::path(folder) / Unescaped(quoted)).string();
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
    text += std::string("\n") + key + ": \"" + Escaped(fs::path(path).filename().string()) + "\"";
  };
  line(kLatestKey, state.latest);
  for (const std::string& path : state.all) {
    if (fs::path(path).parent_path() == folder) line(kAllKey, path);
  }
  return WriteFileWhole((fs::path(folder) / kStateFile).string(),
                        Seal(text + "\n# " + kSealedFormat + "\n"));
}

}  // namespace monograph
