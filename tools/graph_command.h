// `monograph graph`: check, export, ops.
#pragma once

#include <string>
#include <vector>

namespace monograph {

// `arguments` are those behind the command's name. The exit code.
int GraphCommand(const std::vector<std::string>& arguments);
// `monograph ops`, and `monograph graph ops`, which is the same.
int OpsCommand(const std::vector<std::string>& arguments);

}  // namespace monograph
