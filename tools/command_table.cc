#include "tools/command_table.h"

#include <cstdio>

#include "base/printable.h"
#include "graph/names.h"

namespace monograph {

int CommandTable::Run(const std::vector<std::string>& arguments) const {
  const std::string name = !arguments.empty() ? arguments[0] : missing.empty() ? "--help" : "";
  if (const auto found = commands.find(name); found != commands.end())
    return found->second.run({arguments.begin() + 1, arguments.end()});
  std::string help = usage;
  std::vector<std::string> names;
  for (const auto& [command, what] : commands) {
    help += "  " + command + std::string(width - command.size(), ' ') + what.help + "\n";
    names.push_back(command);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(help.c_str(), stdout);
    return 0;
  }
  const std::string near = NearestName(name, names);
  const std::string error = name.empty() ? missing : "unknown " + noun + " '" + name + "'";
  std::fprintf(stderr, "%s: %s%s\n%s", program.c_str(), Printable(error).c_str(),
               near.empty() ? "" : ("; did you mean '" + near + "'?").c_str(), help.c_str());
  return 2;
}

}  // namespace monograph
