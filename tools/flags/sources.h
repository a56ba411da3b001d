// Where values of flags come from besides the command line: the environment and a file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct FlagValue {
  std::string name;  // of the flag
  std::string value;
  std::string source;  // "MONOGRAPH_BATCH_SIZE", "run.toml"
};

// "MONOGRAPH_BATCH_SIZE" of "batch_size".
std::string VariableOf(const std::string& flag);

// "batch_size" of "MONOGRAPH_BATCH_SIZE".
std::string FlagOf(const std::string& variable);

// Those of `flags` whose variables are set and not empty.
std::vector<FlagValue> FlagsInEnvironment(const std::vector<std::string>& flags);

// MONOGRAPH_CLUSTER, MONOGRAPH_KEY_FILE and MONOGRAPH_TASK stand for a flag that is not given, but
// the flag's own code reads them: they may say more than the flag (tools/own_task.h), and do so
// also where no flags are parsed.
bool IsReadElsewhere(const std::string& flag);

// Variables MONOGRAPH_X that are set and not empty, belong to none of `flags` and to nothing else
// of Monograph.
std::vector<std::string> StrangeVariables(const std::vector<std::string>& flags);

// The lines "name = value" of `path` (TOML or INI) before any section and in that of `program`; of
// a name that is there twice the last one. A list, ["a", "b"], is the value "a,b".
// InvalidArgument: a line of another form, or a name that is none of `flags`.
Result<std::vector<FlagValue>> FlagsInFile(const std::string& path, const std::string& program,
                                           const std::vector<std::string>& flags);

}  // namespace monograph
