// CommandTable: programs whose first argument is the name of a command, such as `monograph` and
// `monograph graph`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace monograph {

struct Command {
  int (*run)(const std::vector<std::string>& arguments);  // those behind its name; the exit code
  const char* help;
};

struct CommandTable {
  std::string program;  // "monograph graph"
  std::string noun;     // of a command: "word"
  std::string usage;    // the help, above the list of commands
  std::string missing;  // the error of a call without a command; empty: it prints the help
  size_t width = 0;     // of the column of names in the help
  std::map<std::string, Command> commands;

  // Runs the command that the first argument names; --help, -h and help print the help. An unknown
  // command is an error with the nearest name, and the help; its code is 2.
  int Run(const std::vector<std::string>& arguments) const;
};

}  // namespace monograph
