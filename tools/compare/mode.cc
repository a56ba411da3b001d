#include "tools/compare/mode.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "graph/names.h"
#include "tools/compare.h"
#include "tools/flags.h"
#include "tools/training_command.h"

namespace monograph {
namespace {

CompareMode Mode(std::string name, std::string title, const std::string& replication,
                 const std::string& update, bool synchronous) {
  CompareMode mode{.name = std::move(name),
                   .title = std::move(title),
                   .flags = {"--replication=" + replication, "--variable_update=" + update}};
  mode.uses_ps = update == "parameter_server";
  mode.per_worker = replication != "in_graph";
  mode.synchronous = synchronous;
  // The word that is not the default: one client is synchronous unless told otherwise, many are
  // not.
  if (synchronous && mode.per_worker && mode.uses_ps) mode.flags.push_back("--sync");
  if (!synchronous && !mode.per_worker) mode.flags.push_back("--async");
  return mode;
}

// A worker that holds several replicas needs a device for each.
CompareMode Hybrid() {
  CompareMode mode = Mode("hybrid", "Hybrid", "hybrid", "parameter_server", false);
  mode.flags.push_back("--replicas_per_worker=2");
  mode.executor_flags = {"--cpu_devices=2"};
  return mode;
}

// "NAME=FLAG FLAG ...": what the flags say of replication decides how it is run.
CompareMode Custom(const std::string& name, const std::string& flags) {
  CompareMode mode{.name = name, .title = name};
  std::istringstream words(flags);
  for (std::string word; words >> word;) mode.flags.push_back(word);
  std::vector<std::string> command = {""};
  command.insert(command.end(), mode.flags.begin(), mode.flags.end());
  const TrainingCommand program = TrainingCommand::Read(command);
  if (!program.replicas_per_worker.empty())
    mode.executor_flags = {"--cpu_devices=" + program.replicas_per_worker};
  mode.uses_ps = program.needs_ps();
  mode.per_worker = program.client_per_worker();
  mode.synchronous = !program.async && (!mode.per_worker || !mode.uses_ps || program.sync);
  return mode;
}

// Words that were cut at commas which belong to a flag: "cut=--split=weights=3" and "1" are one.
std::vector<std::string> Rejoined(const std::vector<std::string>& words) {
  std::vector<std::string> modes;
  for (const std::string& word : words) {
    const bool value_goes_on = !word.empty() && word[0] >= '0' && word[0] <= '9' &&
                               word.find("=--") == std::string::npos && !modes.empty() &&
                               modes.back().find("=--") != std::string::npos;
    if (value_goes_on) {
      modes.back() += "," + word;
    } else {
      modes.push_back(word);
    }
  }
  return modes;
}

}  // namespace

const std::vector<CompareMode>& KnownModes() {
  static const auto* modes = new std::vector<CompareMode>{
      Mode("in_graph", "In-graph", "in_graph", "parameter_server", true),
      Mode("between_graph", "Between-graph", "between_graph", "parameter_server", true),
      Mode("in_graph_replicated", "In-graph (all-reduce)", "in_graph", "replicated", true),
      Mode("between_graph_replicated", "Between-graph (all-reduce)", "between_graph", "replicated",
           true),
      Mode("in_graph_central", "In-graph (central)", "in_graph", "central", true),
      Mode("in_graph_async", "In-graph (async)", "in_graph", "parameter_server", false),
      Mode("between_graph_async", "Between-graph (async)", "between_graph", "parameter_server",
           false),
      Hybrid(),
  };
  return *modes;
}

std::vector<std::string> CompareModeNames() {
  std::vector<std::string> names;
  for (const CompareMode& mode : KnownModes()) names.push_back(mode.name);
  return names;
}

Result<std::vector<CompareMode>> ParseModes(const std::vector<std::string>& words) {
  std::vector<CompareMode> modes;
  std::set<std::string> seen;
  for (const std::string& word : Rejoined(words)) {
    const size_t equals = word.find('=');
    const auto known = std::find_if(KnownModes().begin(), KnownModes().end(),
                                    [&](const CompareMode& mode) { return mode.name == word; });
    if (known != KnownModes().end()) {
      modes.push_back(*known);
    } else if (equals != std::string::npos && equals > 0) {
      modes.push_back(Custom(word.substr(0, equals), word.substr(equals + 1)));
    } else {
      std::string message = "--modes: unknown mode '" + word + "'";
      const std::string near = NearestName(word, CompareModeNames());
      message += near.empty() ? "." : "; did you mean '" + near + "'?";
      message += " Known are";
      for (const std::string& name : CompareModeNames()) message += " " + name;
      return InvalidArgument(message + "; or give NAME=FLAGS");
    }
    if (!seen.insert(modes.back().name).second)
      return InvalidArgument("--modes: '" + modes.back().name + "' is given twice");
  }
  if (modes.empty()) return InvalidArgument("--modes names no mode");
  return modes;
}

}  // namespace monograph
