#include "tools/flags/sources.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "base/input_file.h"
#include "base/json_value.h"
#include "graph/names.h"
#include "tools/flags.h"

namespace monograph {
namespace {

constexpr std::string_view kPrefix = "MONOGRAPH_";

// Variables that are no flags, and those that `monograph launch` sets for every program.
const std::set<std::string>& OtherVariables() {
  static const std::set<std::string> others = {"ALLOW_REMOVALS", "CLUSTER",    "CMAKE_OPTIONS",
                                               "CUDA_PLUGIN",    "KEY_FILE",   "RAY",
                                               "TASK",           "TENSORFLOW", "TORCH"};
  return others;
}

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // editors of Windows write it

bool IsName(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// What of a wrong line goes into a message.
std::string Shown(const std::string& text) {
  std::string shown = text.substr(0, 40);
  for (char& c : shown) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  return shown;
}

// TOML's list of texts and numbers becomes what the command line has: words between commas.
std::string ValueOf(const std::string& text) {
  const Result<nlohmann::json> list = ParseJson(text, "list");
  if (!list.ok() || !list->is_array()) return text;
  std::string value;
  for (const nlohmann::json& item : *list) {
    value += value.empty() ? "" : ",";
    value += item.is_string() ? item.get<std::string>() : JsonText(item);
  }
  return value;
}

// CLI11's reader with values as they stand: it would cut them at commas.
class Reader : public CLI::ConfigBase {
 public:
  Reader() {
    arrayStart = '\1';
    arrayEnd = '\2';
    arraySeparator = '\3';
  }
};

}  // namespace

std::string VariableOf(const std::string& flag) {
  std::string name(kPrefix);
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string FlagOf(const std::string& variable) {
  return CLI::detail::to_lower(variable.substr(kPrefix.size()));
}

std::vector<FlagValue> FlagsInEnvironment(const std::vector<std::string>& flags) {
  std::vector<FlagValue> values;
  for (const std::string& flag : flags) {
    const std::string variable = VariableOf(flag);
    const char* const value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') values.push_back({flag, value, variable});
  }
  return values;
}

bool IsReadElsewhere(const std::string& flag) {
  return flag == "cluster" || flag == "key_file" || flag == "task";
}

std::vector<std::string> StrangeVariables(const std::vector<std::string>& flags) {
  std::set<std::string> known;
  for (const std::string& flag : flags) known.insert(VariableOf(flag));
  std::vector<std::string> strange;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kPrefix) || text.ends_with('=')) continue;
    const std::string name(text.substr(0, text.find('=')));
    if (!known.contains(name) && !OtherVariables().contains(name.substr(kPrefix.size())))
      strange.push_back(name);
  }
  return strange;
}

Result<std::vector<FlagValue>> FlagsInFile(const std::string& path, const std::string& program,
                                           const std::vector<std::string>& flags) {
  MG_ASSIGN_OR_RETURN(std::string text, ReadFileOrPipe("file of flags", path));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream file(text);
  std::vector<FlagValue> values;
  for (const CLI::ConfigItem& item : Reader().from_config(file)) {
    if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
    if (!item.parents.empty() && item.parents != std::vector<std::string>{program}) {
      if (CLI::detail::to_lower(item.parents[0]) != CLI::detail::to_lower(program)) continue;
      return InvalidArgument(path + ": the section of this program is [" + program + "], not [" +
                             item.parents[0] + "]");
    }
    if (!IsName(item.name))
      return InvalidArgument(path + ": '" + Shown(item.name) + "' is no line 'name = value'");
    if (std::find(flags.begin(), flags.end(), item.name) == flags.end()) {
      const std::string near = NearestName(item.name, flags);
      return InvalidArgument(path + ": " + program + " has no flag '" + item.name + "'" +
                             (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    std::erase_if(values, [&](const FlagValue& value) { return value.name == item.name; });
    values.push_back({item.name, item.inputs.empty() ? "" : ValueOf(item.inputs.back()), path});
  }
  return values;
}

}  // namespace monograph
