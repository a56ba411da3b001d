// Flags: what a program accepts: command-line flags, the same from the environment and from a file,
// over CLI11. docs/programs.md says it for users.
//
//   Flags flags("mnist_replica", "Trains ...\n\nExamples:\n  mnist_replica --num_batches=100");
//   int batch_size = 100;
//   flags.Add("batch_size", &batch_size, "global batch: all replicas together", 1, 1 << 24);
//   flags.AddOutputFile("trace_file", &trace_file, "Chrome's trace of one step");
//   if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
//   return flags.Exit(Train(batch_size));
//
// Forms: "--name=value" or "--name value"; a boolean is "--name", "--noname" or, as in TensorFlow,
// "--name=True", "=False" (also true, false, 1, 0, yes, no, on, off). Of a flag that is given twice
// the last one counts.
//
// Sources, the stronger first: the command line; the environment (--batch_size is
// MONOGRAPH_BATCH_SIZE; empty: not set); the file of --config=FILE, with lines "batch_size = 100"
// of TOML or INI, before any section or in the section [program]. All are checked alike.
//
// Every program also has --help (-h), --version, --config and --log_level.
//
// Exit codes: 0; 2 after one line to standard error if a flag, or what it names, is wrong, before
// anything was done; 1 for what failed afterwards. --help and --version print to standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

class Flags {
 public:
  static constexpr int64_t kSmallest = std::numeric_limits<int64_t>::min(),
                           kLargest = std::numeric_limits<int64_t>::max();
  // A larger number of threads, tasks, examples or units is taken for a mistake.
  static constexpr int64_t kMostExamples = 1 << 24, kMostUnits = 1 << 20, kMostThreads = 4096;

  Flags(std::string program, std::string description);
  ~Flags();

  // The target holds the default, which --help shows.
  void Add(const std::string& name, std::string* value, const std::string& help);
  void Add(const std::string& name, double* value, const std::string& help);
  void Add(const std::string& name, bool* value, const std::string& help);
  // Values outside [at_least, at_most] are refused.
  void Add(const std::string& name, int* value, const std::string& help,
           int64_t at_least = kSmallest, int64_t at_most = kLargest);
  void Add(const std::string& name, int64_t* value, const std::string& help,
           int64_t at_least = kSmallest, int64_t at_most = kLargest);
  // A flag without a default; the help says what follows where it is not given.
  void Add(const std::string& name, std::optional<int>* value, const std::string& help,
           int64_t at_least = kSmallest, int64_t at_most = kLargest);
  // Words between commas.
  void Add(const std::string& name, std::vector<std::string>* value, const std::string& help);
  // A time in seconds, 0 to 1e9.
  void Add(const std::string& name, std::chrono::milliseconds* value, const std::string& help);
  // A time in whole microseconds.
  void Add(const std::string& name, std::chrono::microseconds* value, const std::string& help);
  // A text that `parse` turns into a value, once all texts are there; an error is one of usage.
  // Not called for a text that is empty.
  void AddParsed(const std::string& name, std::function<Status(const std::string& text)> parse,
                 const std::string& help);
  // One of a few words.
  void AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                 const std::string& help);
  // The same, and a boolean: "--name", "--name=True" are `on`, "--noname", "--name=False" `off`.
  void AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                 const std::string& help, const std::string& on, const std::string& off);
  // A file or folder that the program writes; empty: none. Parse refuses one that cannot be written
  // (tools/output_path.h) and makes nothing.
  void AddOutputFile(const std::string& name, std::string* value, const std::string& help);
  void AddOutputFolder(const std::string& name, std::string* value, const std::string& help);
  // Each time that the flag is given adds a value.
  void AddRepeated(const std::string& name, std::vector<std::string>* values,
                   const std::string& help);
  // Words that are no flags, in order; `count` of them are needed (-1: any number).
  void AddPositional(const std::string& name, std::vector<std::string>* values, int count,
                     const std::string& help);
  // Everything after "--": a command to run.
  void AddCommand(std::vector<std::string>* command, const std::string& help);
  // A heading of --help for the flags that are added next.
  void Section(const std::string& title);
  // Only the strongest source that gives one of these counts: a file's --cluster gives way to
  // --ps_hosts on the command line.
  void Together(std::vector<std::string> names);
  // Runs once all values are there. An error is one of usage.
  void AddCheck(std::function<Status()> check);
  // While *shared, variables MONOGRAPH_X that no flag has are not warned about: the environment is
  // that of other programs, too. So it is with AddCommand.
  void SharesEnvironment(const bool* shared);

  // Empty: go on. Otherwise the exit code. May be called again, with other arguments: each call
  // begins with the defaults.
  std::optional<int> Parse(int argc, const char* const* argv);
  std::optional<int> Parse(
      const std::vector<std::string>& arguments);  // without the program's name
  // What main returns: 0, or 1 after one line to standard error, "program: what failed". Standard
  // output that could not be written, on a disk that is full for instance, is a failure, too.
  int Exit(const Status& status) const;
  // What main returns for flags that cannot be, alone or together: 2 after one line to standard
  // error.
  int Refuse(const Status& status) const;
  // True if the flag was given on the command line.
  bool given(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
