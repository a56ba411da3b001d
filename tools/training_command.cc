#include "tools/training_command.h"

#include <charconv>
#include <filesystem>

namespace monograph {
namespace {

// What the last `flag` among the words says; empty if there is none.
std::string FlagIn(const std::vector<std::string>& words, const std::string& flag) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) value = words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) value = words[i + 1];
  }
  return value;
}

bool HasSwitch(const std::vector<std::string>& words, const std::string& flag) {
  bool on = false;
  for (const std::string& word : words) on |= word == flag || word == flag + "=true";
  return on;
}

}  // namespace

TrainingCommand TrainingCommand::Read(const std::vector<std::string>& words) {
  TrainingCommand command{.replication = FlagIn(words, "--replication"),
                          .variable_update = FlagIn(words, "--variable_update"),
                          .replicas_per_worker = FlagIn(words, "--replicas_per_worker"),
                          .async = HasSwitch(words, "--async"),
                          .sync = HasSwitch(words, "--sync")};
  const std::string num_gpus = FlagIn(words, "--num_gpus");
  std::from_chars(num_gpus.data(), num_gpus.data() + num_gpus.size(), command.num_gpus);
  const std::string program = std::filesystem::path(words[0]).filename();
  for (const char* replication : {"between_graph", "hybrid"}) {
    if (command.replication.empty() && program.ends_with(std::string("_") + replication))
      command.replication = replication;
  }
  return command;
}

}  // namespace monograph
