// Flags: command-line flags of the programs, over CLI11: "--name=value" or "--name value"; a
// boolean is "--name", "--name=false" or "--noname". Of a flag that is given twice the last one
// counts.
//
//   Flags flags("mnist_replica", "Trains ...\n\nExamples:\n  mnist_replica --num_batches=100");
//   int batch_size = 100;
//   flags.Add("batch_size", &batch_size, "global batch: all replicas together");
//   if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
//   return flags.Exit(Train(batch_size));
//
// Errors: one line to standard error naming the flag, what was wrong and, for an unknown flag, the
// nearest name; exit code 2. --help and
// --version print to standard output and exit 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

class Flags {
 public:
  Flags(std::string program, std::string description);
  ~Flags();

  // The target holds the default, which --help shows.
  void Add(const std::string& name, std::string* value, const std::string& help);
  void Add(const std::string& name, int* value, const std::string& help);
  void Add(const std::string& name, int64_t* value, const std::string& help);
  void Add(const std::string& name, double* value, const std::string& help);
  // Smaller values are refused.
  void Add(const std::string& name, int* value, const std::string& help, int64_t at_least);
  void Add(const std::string& name, int64_t* value, const std::string& help, int64_t at_least);
  void Add(const std::string& name, bool* value, const std::string& help);
  // A flag without a default; the help says what follows where it is not given.
  void Add(const std::string& name, std::optional<int>* value, const std::string& help);
  // One of a few words.
  void AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                 const std::string& help);
  // Words that are no flags, in order; `count` of them are needed (-1: any number).
  void AddPositional(const std::string& name, std::vector<std::string>* values, int count,
                     const std::string& help);
  // Everything after "--": a command to run.
  void AddCommand(std::vector<std::string>* command, const std::string& help);
  // What must hold once the flags are parsed; what fails is told as a wrong flag is.
  void AddCheck(std::function<Status()> check);
  // A heading of --help for the flags that are added next.
  void Section(const std::string& title);

  // Empty: go on. Otherwise the exit code.
  std::optional<int> Parse(int argc, const char* const* argv);
  std::optional<int> Parse(
      const std::vector<std::string>& arguments);  // without the program's name
  // What main returns: 0, or 1 after one line to standard error, "program: what failed".
  int Exit(const Status& status) const;
  // What main returns for flags that cannot be, alone or together: 2 after one line to standard
  // error.
  int Refuse(const Status& status) const;
  // True if the flag was given.
  bool given(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The candidate with the smallest edit distance to `word`, if it is near enough to be a slip; else
// "".
std::string NearestName(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace monograph
