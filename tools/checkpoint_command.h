// `monograph checkpoint`: list, convert.
#pragma once

#include <string>
#include <vector>

namespace monograph {

// `arguments` are those behind the command's name. The exit code.
int CheckpointCommand(const std::vector<std::string>& arguments);

}  // namespace monograph
